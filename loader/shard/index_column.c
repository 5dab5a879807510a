#include "config.h"

#include "shard/index_column.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "batch/number.h"
#include "shard/index_format.h"

/* A sample's value until the type of the column is known. */
struct value {
	uint8_t type; /* enum ps_column_type; 0: missing */
	uint8_t text_len;
	union {
		int64_t integer;
		double number;
		uint64_t text_at;
	};
};

int ps_index_column_init(struct ps_index_column_writer *c, const char *name, const char *from)
{
	*c = (struct ps_index_column_writer){0};
	if (strlen(name) > PS_INDEX_MAX_TEXT)
		return -ENAMETOOLONG;
	c->name = strdup(name);
	c->from = strdup(from);
	if (c->name && c->from)
		return 0;
	ps_index_column_fini(c);
	return -ENOMEM;
}

void ps_index_column_fini(struct ps_index_column_writer *c)
{
	free(c->name);
	free(c->from);
	ps_buf_fini(&c->values);
	ps_buf_fini(&c->texts);
}

int ps_index_column_extend(struct ps_index_column_writer *c)
{
	c->count++;
	return ps_buf_add_zeros(&c->values, sizeof(struct value));
}

static struct value *value_at(struct ps_index_column_writer *c, uint64_t i)
{
	return (struct value *)(void *)c->values.p + i;
}

int ps_index_column_set(struct ps_index_column_writer *c, const struct ps_column_value *in)
{
	struct value *v = value_at(c, c->count - 1);

	v->type = (uint8_t)in->type;
	switch (in->type) {
	case PS_COLUMN_INT:
		v->integer = in->integer;
		return 0;
	case PS_COLUMN_FLOAT:
		v->number = in->number;
		c->has_float = true;
		return 0;
	case PS_COLUMN_TEXT:
		if (in->text_len > PS_INDEX_MAX_TEXT) {
			v->type = 0;
			return 0;
		}
		v->text_at = c->texts.n;
		v->text_len = (uint8_t)in->text_len;
		c->has_text = true;
		return ps_buf_add(&c->texts, in->text, in->text_len);
	}
	return -EINVAL;
}

static double number_of(const struct value *v)
{
	return v->type == PS_COLUMN_INT ? (double)v->integer : v->number;
}

static unsigned width_find(struct ps_index_column_writer *c)
{
	unsigned width = c->has_float ? 4 : 1;

	for (uint64_t i = 0; i < c->count; i++) {
		const struct value *v = value_at(c, i);

		if (v->type == 0)
			continue;
		if (c->has_float) {
			double d = number_of(v);

			width = isnan(d) || (double)(float)d == d ? width : 8;
			continue;
		}
		while (width < 8 && (v->integer < -(INT64_C(1) << (8 * width - 1)) ||
		                            v->integer >= INT64_C(1) << (8 * width - 1)))
			width *= 2;
	}
	return width;
}

static int head_write(struct ps_index_column_writer *c, struct ps_buf *out)
{
	size_t bits = ps_index_pad8((size_t)(c->count / 8 + (c->count % 8 > 0)));
	uint8_t len = (uint8_t)strlen(c->name);
	size_t at;
	int r = ps_buf_add(out, &len, 1);

	if (r == 0)
		r = ps_buf_add(out, c->name, len);
	if (r == 0)
		r = ps_buf_add_zeros(out, ps_index_pad8(out->n) - out->n);
	at = out->n;
	if (r == 0)
		r = ps_buf_add_zeros(out, bits);
	for (uint64_t i = 0; i < c->count && r == 0; i++)
		if (value_at(c, i)->type != 0)
			out->p[at + i / 8] |= (uint8_t)(1u << (i % 8));
	return r;
}

static int numbers_write(struct ps_index_column_writer *c, unsigned width, struct ps_buf *out)
{
	int r = 0;

	for (uint64_t i = 0; i < c->count && r == 0; i++) {
		const struct value *v = value_at(c, i);
		uint8_t bytes[8] = {0};

		if (v->type != 0 && c->has_float) {
			double d = number_of(v);
			float f = (float)d;
			uint64_t u64;
			uint32_t u32;

			memcpy(&u64, &d, sizeof(u64));
			memcpy(&u32, &f, sizeof(u32));
			if (width == 4)
				ps_put_u32(bytes, u32);
			else
				ps_put_u64(bytes, u64);
		} else if (v->type != 0) {
			ps_put_u64(bytes, (uint64_t)v->integer); /* its low bytes come first */
		}
		r = ps_buf_add(out, bytes, width);
	}
	return r;
}

/* Numbers among texts are written as texts. */
static size_t text_of(struct ps_index_column_writer *c, const struct value *v, char text[static 256])
{
	switch (v->type) {
	case PS_COLUMN_INT:
		return (size_t)snprintf(text, 256, "%jd", (intmax_t)v->integer);
	case PS_COLUMN_FLOAT:
		return (size_t)snprintf(text, 256, "%.17g", v->number);
	case PS_COLUMN_TEXT:
		memcpy(text, c->texts.p + v->text_at, v->text_len);
		return v->text_len;
	default:
		return 0;
	}
}

static int texts_write(struct ps_index_column_writer *c, struct ps_buf *out)
{
	size_t marks = out->n, begin;
	int r = ps_buf_add_zeros(out, (size_t)ps_index_nmarks(c->count) * 8);

	begin = out->n;
	for (uint64_t i = 0; i < c->count && r == 0; i++) {
		char text[256];
		uint8_t head[10];
		size_t len = text_of(c, value_at(c, i), text);

		if (i % PS_INDEX_MARK == 0)
			ps_put_u64(out->p + marks + i / PS_INDEX_MARK * 8, out->n - begin);
		r = ps_buf_add(out, head, ps_put_varint(head, len));
		if (r == 0)
			r = ps_buf_add(out, text, len);
	}
	return r;
}

int ps_index_column_finish(struct ps_index_column_writer *c, struct ps_buf *ret_bytes, uint32_t *ret_detail)
{
	unsigned width = c->has_text ? 0 : width_find(c);
	int r = head_write(c, ret_bytes);

	if (r < 0)
		return r;
	*ret_detail = (c->has_text           ? PS_COLUMN_TEXT
	                      : c->has_float ? PS_COLUMN_FLOAT
	                                     : PS_COLUMN_INT) |
	              width << 8;
	return c->has_text ? texts_write(c, ret_bytes) : numbers_write(c, width, ret_bytes);
}

/* -- Declarations -------------------------------------------------------------------------------------- */

int ps_column_spec_parse(const char *text, struct ps_column_spec *ret_spec, struct ps_load_error *err)
{
	const char *eq = strchr(text, '='), *from = eq ? eq + 1 : text;
	const char *colon = strchr(from, ':');
	size_t name_len = eq ? (size_t)(eq - text) : strlen(text);
	size_t suffix_len = colon ? (size_t)(colon - from) : strlen(from);
	struct ps_column_spec s = {0};

	if (name_len == 0 || name_len > PS_INDEX_MAX_TEXT || suffix_len == 0 || (colon && !colon[1]))
		return ps_load_error_set(err, EINVAL,
		        "column \"%.100s\": must be NAME=SUFFIX or NAME=SUFFIX:PATH, as label=cls or "
		        "h=json:height",
		        text);
	s.name = strndup(text, name_len);
	s.suffix = strndup(from, suffix_len);
	s.from = strdup(from);
	/* one more zero behind the last step */
	s.path = colon ? calloc(1, strlen(colon + 1) + 2) : NULL;
	if (!s.name || !s.suffix || !s.from || (colon && !s.path)) {
		ps_column_spec_fini(&s);
		return ps_load_error_set(err, ENOMEM, "out of memory");
	}
	for (size_t i = 0; i < suffix_len; i++)
		if (s.suffix[i] >= 'A' && s.suffix[i] <= 'Z')
			s.suffix[i] = s.from[i] = (char)(s.suffix[i] - 'A' + 'a');
	for (size_t i = 0; colon && colon[1 + i]; i++)
		s.path[i] = (char)(colon[1 + i] == '.' ? 0 : colon[1 + i]);
	*ret_spec = s;
	return 0;
}

void ps_column_spec_fini(struct ps_column_spec *s)
{
	free(s->name);
	free(s->suffix);
	free(s->from);
	free(s->path);
	*s = (struct ps_column_spec){0};
}

/* A text as it is in a member: a number if it reads as one to its end. */
static int text_value(const uint8_t *data, size_t n, struct ps_buf *scratch, struct ps_column_value *v)
{
	const char *text;
	char *end;
	int r;

	while (n > 0 && isspace(data[n - 1]))
		n--;
	while (n > 0 && isspace(*data)) {
		data++;
		n--;
	}
	if (n == 0 || n > PS_INDEX_MAX_TEXT || memchr(data, 0, n))
		return 0;
	scratch->n = 0;
	r = ps_buf_add(scratch, data, n);
	if (r == 0)
		r = ps_buf_add(scratch, "", 1);
	if (r < 0)
		return r;
	text = (const char *)scratch->p;
	v->missing = false;
	errno = 0;
	v->integer = strtoll(text, &end, 10);
	if (*end == 0 && errno == 0) {
		v->type = PS_COLUMN_INT;
		return 0;
	}
	if (strspn(text, "+-.0123456789eE") == n) { /* not nan, inf, hexadecimal: these are words here */
		struct ps_number number;

		if (!ps_number_float((const uint8_t *)text, n, &number)) {
			v->number = number.value;
			v->type = PS_COLUMN_FLOAT;
			return 0;
		}
	}
	v->type = PS_COLUMN_TEXT;
	v->text = text;
	v->text_len = n;
	return 0;
}

static int json_take(const json_t *j, struct ps_buf *scratch, struct ps_column_value *v)
{
	v->missing = false;
	switch (json_typeof(j)) {
	case JSON_INTEGER:
		v->type = PS_COLUMN_INT;
		v->integer = json_integer_value(j);
		return 0;
	case JSON_TRUE:
	case JSON_FALSE:
		v->type = PS_COLUMN_INT;
		v->integer = json_is_true(j);
		return 0;
	case JSON_REAL:
		v->type = PS_COLUMN_FLOAT;
		v->number = json_real_value(j);
		return 0;
	case JSON_STRING:
		v->type = PS_COLUMN_TEXT;
		v->text_len = json_string_length(j);
		scratch->n = 0;
		if (ps_buf_add(scratch, json_string_value(j), v->text_len) < 0)
			return -ENOMEM;
		v->text = (const char *)scratch->p;
		return 0;
	default:
		v->missing = true;
		return 0;
	}
}

int ps_column_spec_value(const struct ps_column_spec *spec, const uint8_t *data, size_t n,
        struct ps_buf *scratch, struct ps_column_value *v)
{
	json_t *root;
	const json_t *j;
	int r = 0;

	*v = (struct ps_column_value){.missing = true};
	if (!spec->path)
		return text_value(data, n, scratch, v);
	root = json_loadb((const char *)data, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
	j = root;
	for (const char *step = spec->path; *step && j; step += strlen(step) + 1)
		j = json_object_get(j, step);
	if (j)
		r = json_take(j, scratch, v);
	json_decref(root);
	return r;
}
