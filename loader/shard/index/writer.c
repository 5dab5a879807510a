#include "config.h"

#include "shard/index/index.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/number.h"
#include "shard/index/format.h"

/* Columns ------------------------------------------------------------------------------------------------ */

/* A column while it is written. */
struct column {
	char *name, *from;
	uint64_t count;           /* samples */
	struct ps_buf values;     /* array of struct value */
	struct ps_buf texts;      /* bytes of text values */
	bool has_float, has_text; /* some value is of that type */
};

/* A sample's value, kept until the type of the column is known. */
struct value {
	uint8_t type; /* enum ps_column_type; 0: missing */
	uint8_t text_len;
	union {
		int64_t integer;
		double number;
		uint64_t text_at;
	};
};

static void column_fini(struct column *c)
{
	free(c->name);
	free(c->from);
	ps_buf_fini(&c->values);
	ps_buf_fini(&c->texts);
}

static struct value *value_at(struct column *c, uint64_t i)
{
	return (struct value *)(void *)c->values.p + i;
}

static double number_of(const struct value *v)
{
	return v->type == PS_COLUMN_INT ? (double)v->integer : v->number;
}

static unsigned width_find(struct column *c)
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

static int column_head_write(struct column *c, struct ps_buf *out)
{
	size_t bits = ps_psx_pad8((size_t)(c->count / 8 + (c->count % 8 > 0)));
	uint8_t len = (uint8_t)strlen(c->name);
	size_t at;
	int rc = ps_buf_add(out, &len, 1);

	if (rc == 0)
		rc = ps_buf_add(out, c->name, len);
	if (rc == 0)
		rc = ps_buf_add_zeros(out, ps_psx_pad8(out->n) - out->n);
	at = out->n;
	if (rc == 0)
		rc = ps_buf_add_zeros(out, bits);
	for (uint64_t i = 0; i < c->count && rc == 0; i++)
		if (value_at(c, i)->type != 0)
			out->p[at + i / 8] |= (uint8_t)(1u << (i % 8));
	return rc;
}

static int numbers_write(struct column *c, unsigned width, struct ps_buf *out)
{
	int rc = 0;

	for (uint64_t i = 0; i < c->count && rc == 0; i++) {
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
			/* little-endian, so the low `width` bytes are first */
			ps_put_u64(bytes, (uint64_t)v->integer);
		}
		rc = ps_buf_add(out, bytes, width);
	}
	return rc;
}

/* Numbers among texts are written as texts. */
static size_t text_of(struct column *c, const struct value *v, char text[static 256])
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

static int text_add(struct ps_buf *out, const char *text, size_t len)
{
	uint8_t head[10];
	int rc = ps_buf_add(out, head, ps_put_varint(head, len));

	return rc < 0 ? rc : ps_buf_add(out, text, len);
}

static int texts_write(struct column *c, struct ps_buf *out)
{
	size_t marks = out->n, begin;
	int rc = ps_buf_add_zeros(out, (size_t)ps_psx_nmarks(c->count) * 8);

	begin = out->n;
	for (uint64_t i = 0; i < c->count && rc == 0; i++) {
		char text[256];
		size_t len = text_of(c, value_at(c, i), text);

		if (i % PS_PSX_MARK == 0)
			ps_put_u64(out->p + marks + i / PS_PSX_MARK * 8, out->n - begin);
		rc = text_add(out, text, len);
	}
	return rc;
}

/* Indexes ------------------------------------------------------------------------------------------------ */

/* Limit of the average bytes of a sample in the index. If a sample would raise the average above this, it
 * loses its members (shape 0). */
#define SAMPLE_NBYTES 15.5

/* A shape, encoded as in the file. */
struct shape {
	size_t at, n; /* offset and length in shape_bytes */
	uint64_t sum;
};

struct ps_shard_index_writer {
	struct ps_shard_index_facts facts;
	uint64_t count, bad;
	uint64_t end; /* end of the last sample */
	struct ps_buf marks, samples, key_marks, keys, shape_bytes;
	struct shape *shapes;
	uint32_t nshapes;
	uint32_t last_shape; /* most samples have the shape of the one before */
	struct column columns[PS_INDEX_MAX_COLUMNS];
	uint32_t ncolumns;
	int failed;
};

struct ps_shard_index_writer *ps_shard_index_writer_new(void)
{
	struct ps_shard_index_writer *w = calloc(1, sizeof(*w));

	if (w)
		w->shapes = calloc(PS_PSX_MAX_SHAPES, sizeof(*w->shapes));
	if (!w || !w->shapes) {
		free(w);
		return NULL;
	}
	return w;
}

void ps_shard_index_writer_free(struct ps_shard_index_writer *w)
{
	if (!w)
		return;
	for (uint32_t i = 0; i < w->ncolumns; i++)
		column_fini(&w->columns[i]);
	ps_buf_fini(&w->marks);
	ps_buf_fini(&w->samples);
	ps_buf_fini(&w->key_marks);
	ps_buf_fini(&w->keys);
	ps_buf_fini(&w->shape_bytes);
	free(w->shapes);
	free(w);
}

struct ps_shard_index_facts *ps_shard_index_writer_facts(struct ps_shard_index_writer *w)
{
	return &w->facts;
}

static uint64_t unit_of(const struct ps_shard_index_writer *w)
{
	return w->facts.flags & PS_PSX_FLAG_LINES ? 1 : 512;
}

/* Shapes ------------------------------------------------------------------------------------------------- */

#define MAX_SHAPE_NBYTES 4096

/* Encodes a sample's shape; 0: it cannot be encoded. *ret_end is where the sample ends. */
static size_t shape_make(const struct ps_shard_index_writer *w, uint64_t offset,
        const struct ps_shard_index_member *members, uint32_t n, uint8_t p[static MAX_SHAPE_NBYTES],
        uint64_t *ret_end)
{
	uint64_t unit = unit_of(w), at = offset;
	size_t len = ps_put_varint(p, n);
	bool fits = n > 0 && n <= PS_PSX_MAX_MEMBERS;

	for (uint32_t i = 0; i < n; i++) {
		const struct ps_shard_index_member *m = &members[i];
		size_t suffix = strlen(m->suffix);

		fits = fits && m->offset >= at && (m->offset - at) % unit == 0 && suffix < MAX_SHAPE_NBYTES &&
		       len + suffix + 24 <= MAX_SHAPE_NBYTES;
		if (fits) {
			len += ps_put_varint(p + len, (m->offset - at) / unit);
			len += ps_put_varint(p + len, suffix);
			memcpy(p + len, m->suffix, suffix + 1);
			len += suffix + 1;
		}
		at = m->offset + (m->size + unit - 1) / unit * unit;
	}
	*ret_end = PS_MAX(at, offset);
	return fits ? len : 0;
}

static bool shape_is(
        const struct ps_shard_index_writer *w, uint32_t i, const uint8_t *p, size_t n, uint64_t sum)
{
	const struct shape *s = &w->shapes[i];

	return s->sum == sum && s->n == n && memcmp(w->shape_bytes.p + s->at, p, n) == 0;
}

/* Sets the number of a shape, from 1 on; a new shape gets the next one. 0: there is no room for more
 * shapes. */
static int shape_number(struct ps_shard_index_writer *w, const uint8_t *p, size_t n, uint32_t *ret_number)
{
	uint64_t sum = ps_psx_sum(0, p, n);
	uint32_t i = w->last_shape;
	int rc;

	if (i >= w->nshapes || !shape_is(w, i, p, n, sum))
		for (i = 0; i < w->nshapes && !shape_is(w, i, p, n, sum);)
			i++;
	if (i == PS_PSX_MAX_SHAPES) {
		*ret_number = 0;
		return 0;
	}
	if (i == w->nshapes) {
		w->shapes[i] = (struct shape){.at = w->shape_bytes.n, .n = n, .sum = sum};
		rc = ps_buf_add(&w->shape_bytes, p, n);
		if (rc < 0)
			return rc;
		w->nshapes++;
	}
	w->last_shape = i;
	*ret_number = i + 1;
	return 0;
}

/* Samples ------------------------------------------------------------------------------------------------ */

static int marks_add(struct ps_shard_index_writer *w)
{
	uint8_t mark[16];
	int rc;

	if (w->count % PS_PSX_MARK != 0)
		return 0;
	ps_put_u64(mark, w->end);
	ps_put_u64(mark + 8, w->samples.n);
	rc = ps_buf_add(&w->marks, mark, 16);
	ps_put_u64(mark, w->keys.n);
	return rc < 0 ? rc : ps_buf_add(&w->key_marks, mark, 8);
}

static int sample_add(struct ps_shard_index_writer *w, uint64_t offset, bool bad,
        const struct ps_shard_index_member *members, uint32_t n)
{
	uint8_t shape[MAX_SHAPE_NBYTES], line[32 + 10 * PS_PSX_MAX_MEMBERS];
	uint64_t unit = unit_of(w), end, gap = (offset - w->end) / unit;
	size_t shape_n = shape_make(w, offset, members, n, shape, &end), len;
	uint32_t number = 0;
	int rc;

	if (shape_n > 0 && !bad) {
		rc = shape_number(w, shape, shape_n, &number);
		if (rc < 0)
			return rc;
	}
	for (;;) {
		len = ps_put_varint(line, (uint64_t)number << 2 | (bad ? 2 : 0) | (gap > 0));
		if (gap > 0)
			len += ps_put_varint(line + len, gap);
		if (number == 0) {
			len += ps_put_varint(line + len, (end - offset) / unit);
			end = offset + (end - offset) / unit * unit;
			break;
		}
		for (uint32_t i = 0; i < n; i++)
			len += ps_put_varint(line + len, members[i].size);
		if ((double)(w->samples.n + len) <= SAMPLE_NBYTES * (double)(w->count + 1))
			break;
		number = 0;
	}
	w->end = end + (unit == 1 && number > 0);
	return ps_buf_add(&w->samples, line, len);
}

int ps_shard_index_writer_add(struct ps_shard_index_writer *w, uint64_t offset, bool bad, const char *key,
        size_t key_len, const struct ps_shard_index_member *members, uint32_t n)
{
	if (w->failed)
		return w->failed;
	if (offset < w->end || (offset - w->end) % unit_of(w) != 0) {
		if (!bad)
			return w->failed = -EINVAL;
		offset = w->end; /* of a bad sample only the place in the order matters */
	}
	w->failed = marks_add(w);
	if (w->failed == 0)
		w->failed = sample_add(w, offset, bad, members, n);
	if (w->failed == 0)
		w->failed = text_add(&w->keys, key, key_len);
	w->count++;
	w->bad += bad;
	for (uint32_t i = 0; i < w->ncolumns && w->failed == 0; i++) {
		/* the sample's value is missing until it is set */
		w->columns[i].count++;
		w->failed = ps_buf_add_zeros(&w->columns[i].values, sizeof(struct value));
	}
	return w->failed;
}

int ps_shard_index_writer_column(struct ps_shard_index_writer *w, const char *name, const char *from)
{
	struct column *c = &w->columns[w->ncolumns];

	assert(w->count == 0);
	if (w->ncolumns == PS_INDEX_MAX_COLUMNS)
		return -E2BIG;
	if (strlen(name) > PS_INDEX_MAX_TEXT)
		return -ENAMETOOLONG;
	*c = (struct column){.name = strdup(name), .from = strdup(from)};
	if (c->name && c->from)
		return (int)w->ncolumns++;
	column_fini(c);
	return -ENOMEM;
}

int ps_shard_index_writer_value(
        struct ps_shard_index_writer *w, int column, const struct ps_column_value *value)
{
	struct column *c = &w->columns[column];
	struct value *v;

	if (w->failed || value->missing)
		return w->failed;
	v = value_at(c, c->count - 1);
	v->type = (uint8_t)value->type;
	switch (value->type) {
	case PS_COLUMN_INT:
		v->integer = value->integer;
		break;
	case PS_COLUMN_FLOAT:
		v->number = value->number;
		c->has_float = true;
		break;
	case PS_COLUMN_TEXT:
		if (value->text_len > PS_INDEX_MAX_TEXT) {
			v->type = 0;
			break;
		}
		v->text_at = c->texts.n;
		v->text_len = (uint8_t)value->text_len;
		c->has_text = true;
		w->failed = ps_buf_add(&c->texts, value->text, value->text_len);
	}
	return w->failed;
}

/* The file ----------------------------------------------------------------------------------------------- */

struct file {
	struct ps_buf out, table;
};

/* Adds a section that consists of up to two pieces. */
static int section_add(
        struct file *f, uint32_t kind, uint32_t detail, const struct ps_buf *a, const struct ps_buf *b)
{
	static const uint8_t zeros[8];
	uint8_t entry[PS_PSX_SECTION];
	size_t at = f->out.n, n = a->n + (b ? b->n : 0);
	int rc = ps_buf_add(&f->out, a->p, a->n);

	if (rc == 0 && b)
		rc = ps_buf_add(&f->out, b->p, b->n);
	if (rc < 0)
		return rc;
	ps_put_u32(entry, kind);
	ps_put_u32(entry + 4, detail);
	ps_put_u64(entry + 8, at);
	ps_put_u64(entry + 16, n);
	ps_put_u64(entry + 24, ps_psx_sum(0, f->out.p + at, n));
	rc = ps_buf_add(&f->out, zeros, ps_psx_pad8(n) - n);
	return rc < 0 ? rc : ps_buf_add(&f->table, entry, sizeof(entry));
}

static int sections_write(struct ps_shard_index_writer *w, struct file *f)
{
	uint8_t head[10];
	struct ps_buf nshapes = {.p = head, .n = ps_put_varint(head, w->nshapes)}, sources = {0};
	int rc = section_add(f, PS_PSX_SHAPES, 0, &nshapes, &w->shape_bytes);

	if (rc == 0)
		rc = section_add(f, PS_PSX_SAMPLES, 0, &w->marks, &w->samples);
	if (rc == 0)
		rc = section_add(f, PS_PSX_KEYS, 0, &w->key_marks, &w->keys);
	for (uint32_t i = 0; i < w->ncolumns && rc == 0; i++) {
		struct column *c = &w->columns[i];
		unsigned width = c->has_text ? 0 : width_find(c);
		uint32_t type = c->has_text ? PS_COLUMN_TEXT : c->has_float ? PS_COLUMN_FLOAT : PS_COLUMN_INT;
		struct ps_buf bytes = {0};

		rc = column_head_write(c, &bytes);
		if (rc == 0)
			rc = c->has_text ? texts_write(c, &bytes) : numbers_write(c, width, &bytes);
		if (rc == 0)
			rc = section_add(f, PS_PSX_COLUMN, type | width << 8, &bytes, NULL);
		ps_buf_fini(&bytes);
		if (rc == 0)
			rc = text_add(&sources, c->from, strlen(c->from));
	}
	if (rc == 0 && w->ncolumns > 0)
		rc = section_add(f, PS_PSX_SOURCES, 0, &sources, NULL);
	ps_buf_fini(&sources);
	return rc;
}

static void head_write(const struct ps_shard_index_writer *w, uint64_t nbytes, uint64_t plain, struct file *f)
{
	uint8_t *h = f->out.p;
	/* Samples of shape 0 do not matter here: a reader recognises them. */
	bool all = w->facts.ended && !w->facts.leaves_out && w->bad == 0 &&
	           !(w->facts.flags & (PS_PSX_FLAG_LINES | PS_PSX_FLAG_GLOBAL));

	memcpy(h, PS_PSX_MAGIC, 8);
	ps_put_u64(h + PS_PSX_AT_SIZE, nbytes);
	ps_put_u64(h + PS_PSX_AT_PLAIN, plain);
	ps_put_u64(h + PS_PSX_AT_COUNT, w->count);
	ps_put_u64(h + PS_PSX_AT_BAD, w->bad);
	ps_put_u32(h + PS_PSX_AT_FLAGS, w->facts.flags);
	ps_put_u16(h + PS_PSX_AT_NSECTIONS, (uint16_t)(f->table.n / PS_PSX_SECTION));
	ps_put_u16(h + PS_PSX_AT_NOTES, (all ? PS_PSX_NOTE_ALL : 0) | PS_PSX_NOTE_LINKS);
	ps_put_u64(h + PS_PSX_AT_FIRST, w->facts.first);
	memcpy(h + PS_PSX_AT_SHA256, w->facts.sha256, PS_PSX_SHA256);
	memcpy(h + PS_PSX_HEAD, f->table.p, f->table.n);
	ps_put_u64(h + PS_PSX_AT_SUM, ps_psx_head_sum(h, f->table.n / PS_PSX_SECTION));
}

uint64_t ps_shard_index_writer_plain(const struct ps_shard_index_writer *w, uint64_t nbytes, uint64_t read)
{
	return w->facts.flags & PS_PSX_FLAG_COMPRESSED ? read : nbytes;
}

int ps_shard_index_writer_finish(struct ps_shard_index_writer *w, uint64_t nbytes, uint64_t read,
        uint8_t **ret_data, size_t *ret_nbytes, struct ps_error *err)
{
	size_t head = PS_PSX_HEAD + (3u + (w->ncolumns > 0) + w->ncolumns) * PS_PSX_SECTION;
	struct file f = {0};
	int rc = w->failed ? w->failed : ps_buf_add_zeros(&f.out, head);

	if (rc == 0)
		rc = sections_write(w, &f);
	if (rc == 0) {
		head_write(w, nbytes, ps_shard_index_writer_plain(w, nbytes, read), &f);
		*ret_nbytes = f.out.n;
		*ret_data = ps_steal_ptr(&f.out.p);
	}
	ps_buf_fini(&f.out);
	ps_buf_fini(&f.table);
	if (rc == -ENOMEM)
		return ps_no_memory(err);
	if (rc < 0)
		return ps_error_set(err, -rc, "the shard's samples cannot be indexed: %s", strerror(-rc));
	return 0;
}

int ps_shard_index_writer_save(struct ps_shard_index_writer *w, const char *shard, const char *dir,
        const struct ps_shard_index_version *v, uint64_t read, struct ps_error *err)
{
	ps_autofree char *path = ps_shard_index_path(shard, dir, v->nbytes, w->facts.first, err);
	ps_autofree uint8_t *data = NULL;
	struct ps_shard_index_version now;
	size_t nbytes = 0;
	int rc = path ? ps_shard_index_version_read(shard, &now, err) : -ENOMEM;

	if (rc == 0 && !ps_shard_index_version_same(&now, v))
		rc = ps_error_set(err, EAGAIN, "%s: was changed while it was read; try again", shard);
	if (rc == 0)
		rc = ps_shard_index_writer_finish(w, v->nbytes, read, &data, &nbytes, err);
	if (rc == 0)
		rc = ps_shard_index_file_write(path, v->mode, data, nbytes, err);
	return rc;
}

/* Declarations ------------------------------------------------------------------------------------------- */

int ps_column_spec_parse(const char *text, struct ps_column_spec *ret_spec, struct ps_error *err)
{
	const char *eq = strchr(text, '='), *from = eq ? eq + 1 : text;
	const char *colon = strchr(from, ':');
	size_t name_len = eq ? (size_t)(eq - text) : strlen(text);
	size_t suffix_len = colon ? (size_t)(colon - from) : strlen(from);
	struct ps_column_spec s = {0};

	if (name_len == 0 || name_len > PS_INDEX_MAX_TEXT || suffix_len == 0 || (colon && !colon[1]))
		return ps_error_set(err, EINVAL,
		        "column \"%.100s\": must be NAME=SUFFIX or NAME=SUFFIX:PATH, as label=cls or "
		        "h=json:height",
		        text);
	s.name = strndup(text, name_len);
	s.suffix = strndup(from, suffix_len);
	s.from = strdup(from);
	/* two zeros end the path */
	s.path = colon ? calloc(1, strlen(colon + 1) + 2) : NULL;
	if (!s.name || !s.suffix || !s.from || (colon && !s.path)) {
		ps_column_spec_fini(&s);
		return ps_no_memory(err);
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

/* Makes a value of a member's text: a number if the whole text is one, else a text. */
static int text_value(const uint8_t *data, size_t n, struct ps_buf *scratch, struct ps_column_value *v)
{
	const char *text;
	char *end;
	int rc;

	while (n > 0 && isspace(data[n - 1]))
		n--;
	while (n > 0 && isspace(*data)) {
		data++;
		n--;
	}
	if (n == 0 || n > PS_INDEX_MAX_TEXT || memchr(data, 0, n))
		return 0;
	scratch->n = 0;
	rc = ps_buf_add(scratch, data, n);
	if (rc == 0)
		rc = ps_buf_add(scratch, "", 1);
	if (rc < 0)
		return rc;
	text = (const char *)scratch->p;
	v->missing = false;
	errno = 0;
	v->integer = strtoll(text, &end, 10);
	if (*end == 0 && errno == 0) {
		v->type = PS_COLUMN_INT;
		return 0;
	}
	if (strspn(text, "+-.0123456789eE") == n) { /* nan, inf and hexadecimal numbers are texts */
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

int ps_column_spec_value(const struct ps_column_spec *spec, const uint8_t *data, size_t n,
        struct ps_buf *scratch, struct ps_column_value *v)
{
	json_t *root;
	const json_t *j;
	int rc = 0;

	*v = (struct ps_column_value){.missing = true};
	if (!spec->path)
		return text_value(data, n, scratch, v);
	root = json_loadb((const char *)data, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
	j = root;
	for (const char *step = spec->path; *step && j; step += strlen(step) + 1)
		j = json_object_get(j, step);
	switch (j ? json_typeof(j) : JSON_NULL) {
	case JSON_INTEGER:
	case JSON_TRUE:
	case JSON_FALSE:
		*v = (struct ps_column_value){.type = PS_COLUMN_INT,
		        .integer = json_is_integer(j) ? json_integer_value(j) : json_is_true(j)};
		break;
	case JSON_REAL:
		*v = (struct ps_column_value){.type = PS_COLUMN_FLOAT, .number = json_real_value(j)};
		break;
	case JSON_STRING:
		scratch->n = 0;
		rc = ps_buf_add(scratch, json_string_value(j), json_string_length(j));
		*v = (struct ps_column_value){.type = PS_COLUMN_TEXT,
		        .text = (const char *)scratch->p,
		        .text_len = json_string_length(j)};
		break;
	default:
		break;
	}
	json_decref(root);
	return rc;
}
