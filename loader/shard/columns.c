/* Rows of Arrow's columns as samples. */
#include "config.h"

#include "shard/builder.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/number.h"
#include "base/size.h"
#include "penstock.h"

#define MAX_DEPTH 16      /* structs in structs */
#define MAX_NAME 1024     /* bytes of a member's name */
#define MAX_COLUMNS 65536 /* in one struct */

enum form {
	NOTHING, /* all values are null */
	BYTES,   /* bytes between two offsets */
	FIXED,   /* `width` bytes each */
	NUMBER,
	LIST,       /* numbers between two offsets */
	FIXED_LIST, /* `width` numbers each */
};

/* What is read of an array. */
struct type {
	enum form form;
	bool large; /* offsets of 64 bits */
	int64_t width;
	enum ps_dtype dtype; /* NUMBER: its own; LIST, FIXED_LIST: of the elements. PS_BOOL: one bit each */
};

/* A column that is read, or a column inside a struct. */
struct leaf {
	char *name;
	uint32_t path[MAX_DEPTH]; /* places among the children, from the batch on */
	uint32_t depth;
	bool dictionary; /* values are places in a dictionary of `type` */
	struct type places, type;
};

struct ps_columns {
	const char *unit;
	const struct ps_shard_options *options;
	struct ArrowArrayStream stream; /* release NULL: none */
	uint64_t stream_nbytes;         /* counted against the budget for the stream ... */
	struct leaf *leaves;
	size_t nleaves;
	struct ArrowArray batch; /* release NULL: none */
	uint64_t batch_nbytes;   /* ... and for the batch */
	int64_t row;             /* the next one of the batch */
	bool ended;
	struct ps_buf key, scratch;
	size_t base_len;
};

/* The caller's source ------------------------------------------------------------------------------------ */

/* -ECANCELED ends a reader without a word, so a source that is not told to stop cannot return it. */
static int errno_of(const struct ps_columns *c, int errnum)
{
	const atomic_bool *stop = c->options->stream.stop;

	return errnum != ECANCELED || (stop && atomic_load(stop)) ? errnum : EIO;
}

int ps_columns_count(
        const struct ps_columns_source *source, const char *unit, uint64_t *ret_rows, struct ps_error *err)
{
	struct penstock_error said = {0};
	int rc = source->calls->count(source->calls->ctx, unit, ret_rows, &said);

	if (rc >= 0)
		return 0;
	return ps_error_set(err, -rc, "%s: cannot count its rows: %.*s", unit, (int)sizeof(said.text),
	        said.text[0] ? said.text : strerror(-rc));
}

size_t ps_columns_file_len(const char *unit)
{
	const char *end = strrchr(unit, '#');

	return end ? (size_t)(end - unit) : strlen(unit);
}

/* Types -------------------------------------------------------------------------------------------------- */

/* The type of numbers with this format. False: it is another type. */
static bool number_of(const char *format, enum ps_dtype *ret)
{
	static const char letters[] = "bcCsSiIlLefg";
	static const enum ps_dtype dtypes[] = {PS_BOOL, PS_I8, PS_U8, PS_I16, PS_U16, PS_I32, PS_U32, PS_I64,
	        PS_U64, PS_F16, PS_F32, PS_F64};
	const char *at = format[0] && !format[1] ? strchr(letters, format[0]) : NULL;

	if (at)
		*ret = dtypes[at - letters];
	return at != NULL;
}

/* A width after a colon, as in "w:16". False: none. */
static bool width_of(const char *text, int64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoll(text, &end, 10);
	return end > text && *end == 0 && errno == 0 && *ret >= 0 && *ret <= INT32_MAX;
}

/* The name of a type, for people; of the more frequent ones. */
static const char *format_name(const char *format)
{
	static const char *const names[][2] = {{"td", "date"}, {"tt", "time"}, {"ts", "timestamp"},
	        {"tD", "duration"}, {"ti", "interval"}, {"d:", "decimal"}, {"vu", "string_view"},
	        {"vz", "binary_view"}, {"+v", "list_view"}, {"+m", "map"}, {"+u", "union"},
	        {"+r", "run_end_encoded"}, {"+l", "list"}, {"+L", "large_list"}, {"+w", "fixed_size_list"},
	        {"+s", "struct"}, {"u", "string"}, {"U", "large_string"}, {"z", "binary"},
	        {"Z", "large_binary"}, {"w:", "fixed_size_binary"}};

	for (size_t i = 0; i < PS_ARRAY_LEN(names); i++)
		if (strncmp(format, names[i][0], strlen(names[i][0])) == 0)
			return names[i][1];
	return format;
}

static bool list_type(const struct ArrowSchema *schema, struct type *t)
{
	const struct ArrowSchema *item = schema->n_children == 1 ? schema->children[0] : NULL;

	return item && item->format && !item->dictionary && number_of(item->format, &t->dtype);
}

/* Finds how an array is read. False: it cannot be. */
static bool type_of(const struct ArrowSchema *schema, struct type *t)
{
	const char *f = schema->format;

	*t = (struct type){0};
	if (number_of(f, &t->dtype)) {
		t->form = NUMBER;
		return true;
	}
	t->large = strcmp(f, "U") == 0 || strcmp(f, "Z") == 0 || strcmp(f, "+L") == 0;
	if (strcmp(f, "u") == 0 || strcmp(f, "z") == 0 || strcmp(f, "U") == 0 || strcmp(f, "Z") == 0) {
		t->form = BYTES;
		return true;
	}
	if (strncmp(f, "w:", 2) == 0) {
		t->form = FIXED;
		return width_of(f + 2, &t->width);
	}
	if (strcmp(f, "+l") == 0 || strcmp(f, "+L") == 0) {
		t->form = LIST;
		return list_type(schema, t);
	}
	if (strncmp(f, "+w:", 3) == 0) {
		t->form = FIXED_LIST;
		return width_of(f + 3, &t->width) && list_type(schema, t);
	}
	t->form = NOTHING;
	return strcmp(f, "n") == 0;
}

static int type_refuse(const char *name, const struct ArrowSchema *schema, struct ps_error *err)
{
	const struct ArrowSchema *item =
	        schema->n_children == 1 && schema->children ? schema->children[0] : NULL;
	const char *values =
	        schema->dictionary && schema->dictionary->format ? schema->dictionary->format : "";
	const char *of = values[0]                                          ? format_name(values)
	                 : item && item->format && schema->format[0] == '+' ? format_name(item->format)
	                                                                    : "";

	return ps_error_set(err, EINVAL,
	        "column %.200s has the type %s%s%s, which cannot be a member; columns of text, binary, "
	        "numbers, "
	        "booleans, lists of these last two, and dictionaries can: convert it, or leave its field out",
	        name, schema->dictionary ? "dictionary" : format_name(schema->format), of[0] ? " of " : "",
	        of);
}

/* Schema ------------------------------------------------------------------------------------------------- */

static bool is_member(const struct ps_columns *c, const char *name)
{
	char lower[MAX_NAME];
	size_t n = 0;

	for (; name[n] && n < sizeof(lower) - 1; n++)
		lower[n] = (char)(name[n] >= 'A' && name[n] <= 'Z' ? name[n] - 'A' + 'a' : name[n]);
	return !name[n] && (!c->options->wants || c->options->wants(c->options->wants_ctx, lower, n));
}

static int leaf_add(struct ps_columns *c, const struct ArrowSchema *schema, const char *name,
        const uint32_t *path, uint32_t depth, struct ps_error *err)
{
	struct leaf leaf = {.depth = depth, .dictionary = schema->dictionary != NULL};
	struct leaf *leaves;
	bool ok;

	if (leaf.dictionary)
		ok = type_of(schema, &leaf.places) && leaf.places.form == NUMBER &&
		     !ps_dtype_is_float(leaf.places.dtype) && leaf.places.dtype != PS_BOOL &&
		     schema->dictionary->format && !schema->dictionary->dictionary &&
		     type_of(schema->dictionary, &leaf.type);
	else
		ok = type_of(schema, &leaf.type);
	if (!ok)
		return type_refuse(name, schema, err);
	memcpy(leaf.path, path, depth * sizeof(*path));
	leaves = realloc(c->leaves, (c->nleaves + 1) * sizeof(*leaves));
	if (!leaves)
		return ps_no_memory(err);
	c->leaves = leaves;
	leaf.name = strdup(name);
	if (!leaf.name)
		return ps_no_memory(err);
	leaves[c->nleaves++] = leaf;
	return 0;
}

/* Adds the columns of a struct that are read. `name` has the name so far, which ends at `len`. */
static int schema_walk(struct ps_columns *c, const struct ArrowSchema *schema, char name[static MAX_NAME],
        size_t len, uint32_t *path, uint32_t depth, struct ps_error *err)
{
	int rc = 0;

	if (schema->n_children < 0 || schema->n_children > MAX_COLUMNS ||
	        (schema->n_children > 0 && !schema->children))
		return ps_error_set(err, EBADMSG, "a schema with %jd columns", (intmax_t)schema->n_children);
	for (int64_t i = 0; i < schema->n_children && rc == 0; i++) {
		const struct ArrowSchema *child = schema->children[i];
		int n;

		if (!child || !child->format)
			return ps_error_set(err, EBADMSG, "a schema with a column of no type");
		n = snprintf(name + len, MAX_NAME - len, "%s%s", len > 0 ? "." : "",
		        child->name ? child->name : "");
		if (n < 0 || (size_t)n >= MAX_NAME - len || depth == MAX_DEPTH)
			continue; /* no field can name it */
		path[depth] = (uint32_t)i;
		if (strcmp(child->format, "+s") == 0 && !child->dictionary)
			rc = schema_walk(c, child, name, len + (size_t)n, path, depth + 1, err);
		else if (is_member(c, name))
			rc = leaf_add(c, child, name, path, depth + 1, err);
		name[len] = 0;
	}
	return rc;
}

static int stream_error(struct ps_columns *c, int code, struct ps_error *err)
{
	const char *text = c->stream.get_last_error ? c->stream.get_last_error(&c->stream) : NULL;

	/* Arrow's readers give EINVAL for damaged data. */
	return ps_error_set(err, code == EINVAL ? EBADMSG : errno_of(c, code), "%s",
	        text && text[0] ? text : strerror(code));
}

static int schema_read(struct ps_columns *c, struct ps_error *err)
{
	struct ArrowSchema schema = {0};
	uint32_t path[MAX_DEPTH];
	char name[MAX_NAME] = "";
	int rc = c->stream.get_schema(&c->stream, &schema);

	if (rc != 0)
		return stream_error(c, rc, err);
	if (!schema.format || strcmp(schema.format, "+s") != 0)
		rc = ps_error_set(err, EBADMSG, "a stream of %s, not of rows",
		        schema.format ? format_name(schema.format) : "nothing");
	else
		rc = schema_walk(c, &schema, name, 0, path, 0, err);
	if (schema.release)
		schema.release(&schema);
	return rc;
}

/* Batches ------------------------------------------------------------------------------------------------ */

static int64_t offset_at(const struct type *t, const void *offsets, int64_t i)
{
	return t->large ? ((const int64_t *)offsets)[i] : ((const int32_t *)offsets)[i];
}

static size_t item_nbytes(enum ps_dtype dtype)
{
	return ps_dtype_nbytes(dtype);
}

static int array_refuse(const char *name, const char *what, struct ps_error *err)
{
	return ps_error_set(err, EBADMSG, "column %.200s: %s", name, what);
}

/* Checks length, offset and the number of buffers. */
static int head_check(const struct ArrowArray *a, int64_t nbuffers, const char *name, struct ps_error *err)
{
	if (a->length < 0 || a->offset < 0 || a->length > INT64_MAX / 16 - a->offset)
		return array_refuse(name, "a length or offset out of range", err);
	if (a->n_buffers != nbuffers || (nbuffers > 0 && !a->buffers))
		return array_refuse(name, "another number of buffers than its type has", err);
	return 0;
}

/* Checks offsets against each other, and the last against `most`. Adds the bytes between the first and the last,
 * `each` bytes an element. */
static int offsets_check(const struct ArrowArray *a, const struct type *t, int64_t most, size_t each,
        const char *name, uint64_t *nbytes, struct ps_error *err)
{
	const void *offsets = a->buffers[1];
	int64_t before, at = 0;

	if (!offsets && a->length > 0)
		return array_refuse(name, "it has no offsets", err);
	if (a->length == 0)
		return 0;
	before = offset_at(t, offsets, a->offset);
	if (before < 0)
		return array_refuse(name, "a negative offset", err);
	*nbytes -= (uint64_t)before * each;
	for (int64_t i = 1; i <= a->length; i++, before = at) {
		at = offset_at(t, offsets, a->offset + i);
		if (at < before)
			return array_refuse(name, "offsets that do not ascend", err);
	}
	if (at > most)
		return array_refuse(name, "an offset beyond its values", err);
	*nbytes += (uint64_t)at * each;
	return 0;
}

/* Checks an array against its type, and adds the bytes that it holds. */
static int array_check(const struct ArrowArray *a, const struct type *t, const char *name, uint64_t *nbytes,
        struct ps_error *err)
{
	const struct ArrowArray *items = NULL;
	uint64_t n;
	int rc = head_check(a,
	        t->form == NOTHING      ? 0
	        : t->form == BYTES      ? 3
	        : t->form == FIXED_LIST ? 1
	                                : 2,
	        name, err);

	if (rc < 0 || t->form == NOTHING)
		return rc;
	if (t->form == LIST || t->form == FIXED_LIST) {
		items = a->n_children == 1 && a->children ? a->children[0] : NULL;
		if (!items)
			return array_refuse(name, "a list without values", err);
		rc = head_check(items, 2, name, err);
		if (rc < 0)
			return rc;
		if (!items->buffers[1] && items->length > 0)
			return array_refuse(name, "it has no values", err);
	}
	switch (t->form) {
	case BYTES:
		rc = offsets_check(a, t, INT64_MAX, 1, name, nbytes, err);
		if (rc == 0 && a->length > 0 && !a->buffers[2] &&
		        offset_at(t, a->buffers[1], a->offset + a->length) > 0)
			rc = array_refuse(name, "it has no values", err);
		return rc;
	case LIST:
		return offsets_check(a, t, items->length, item_nbytes(t->dtype), name, nbytes, err);
	case FIXED_LIST:
		if (!ps_u64_mul((uint64_t)(a->offset + a->length), (uint64_t)t->width, &n) ||
		        n > (uint64_t)items->length)
			return array_refuse(name, "fewer values than its lists have", err);
		*nbytes += (uint64_t)a->length * (uint64_t)t->width * item_nbytes(t->dtype);
		return 0;
	default:
		if (!a->buffers[1] && a->length > 0 && (t->form == NUMBER || t->width > 0))
			return array_refuse(name, "it has no values", err);
		if (!ps_u64_mul((uint64_t)(a->offset + a->length), t->form == FIXED ? (uint64_t)t->width : 8,
		            &n) ||
		        n > INT64_MAX)
			return array_refuse(name, "a length or offset out of range", err);
		*nbytes +=
		        (uint64_t)a->length * (t->form == FIXED ? (uint64_t)t->width : item_nbytes(t->dtype));
		return 0;
	}
}

/* Checks the arrays of a leaf: those of the structs that it is in, and its own. */
static int leaf_check(struct ps_columns *c, const struct leaf *leaf, struct ps_error *err)
{
	const struct ArrowArray *a = &c->batch;
	int rc;

	for (uint32_t i = 0; i < leaf->depth; i++) {
		const struct ArrowArray *child;

		if (a->n_children <= (int64_t)leaf->path[i] || !a->children || !a->children[leaf->path[i]])
			return array_refuse(leaf->name, "fewer columns than its schema has", err);
		child = a->children[leaf->path[i]];
		if (child->length < 0 || child->length < a->offset + a->length)
			return array_refuse(leaf->name, "fewer values than there are rows", err);
		if (i + 1 < leaf->depth) {
			rc = head_check(child, 1, leaf->name, err);
			if (rc < 0)
				return rc;
		}
		a = child;
	}
	rc = array_check(
	        a, leaf->dictionary ? &leaf->places : &leaf->type, leaf->name, &c->batch_nbytes, err);
	if (rc < 0 || !leaf->dictionary)
		return rc;
	if (!a->dictionary)
		return array_refuse(leaf->name, "it has no dictionary", err);
	return array_check(a->dictionary, &leaf->type, leaf->name, &c->batch_nbytes, err);
}

static void batch_drop(struct ps_columns *c)
{
	if (c->batch.release)
		c->batch.release(&c->batch);
	c->batch = (struct ArrowArray){0};
	if (c->options->budget)
		ps_byte_budget_give(c->options->budget, c->batch_nbytes);
	c->batch_nbytes = 0;
	c->row = 0;
}

/* Takes the next batch that has rows, or none at the end. */
static int batch_take(struct ps_columns *c, struct ps_error *err)
{
	while (c->row == c->batch.length && !c->ended) {
		int rc;

		batch_drop(c);
		rc = c->stream.get_next(&c->stream, &c->batch);
		if (rc != 0) {
			c->batch = (struct ArrowArray){0};
			return stream_error(c, rc, err);
		}
		if (!c->batch.release) {
			c->ended = true;
			c->batch = (struct ArrowArray){0};
			return 0;
		}
		rc = head_check(&c->batch, 1, "(rows)", err);
		for (size_t i = 0; i < c->nleaves && rc == 0; i++)
			rc = leaf_check(c, &c->leaves[i], err);
		if (rc < 0) {
			c->batch_nbytes = 0;
			batch_drop(c);
			return rc;
		}
		if (c->options->budget) /* it is in memory, even beyond the budget */
			ps_byte_budget_force(c->options->budget, c->batch_nbytes);
		if (c->options->stream.meter)
			c->options->stream.meter->nbytes += c->batch_nbytes;
	}
	return 0;
}

/* Values ------------------------------------------------------------------------------------------------- */

static bool bit_at(const void *bits, int64_t i)
{
	return ((const uint8_t *)bits)[i / 8] >> (i % 8) & 1;
}

static bool is_null(const struct ArrowArray *a, int64_t i)
{
	return a->n_buffers > 0 && a->buffers[0] && !bit_at(a->buffers[0], a->offset + i);
}

/* The bytes of a value. */
struct value {
	const void *p; /* NULL: no member */
	uint64_t n;
};

static void number_load(const struct ArrowArray *a, enum ps_dtype dtype, int64_t i, struct ps_number *ret)
{
	if (dtype == PS_BOOL)
		*ret = (struct ps_number){.magnitude = bit_at(a->buffers[1], i)};
	else
		*ret = ps_number_load(
		        dtype, false, (const uint8_t *)a->buffers[1] + (size_t)i * ps_dtype_nbytes(dtype));
}

static int scratch_room(struct ps_columns *c, size_t n)
{
	c->scratch.n = 0;
	return ps_buf_reserve(&c->scratch, n);
}

static int number_text(
        struct ps_columns *c, const struct ArrowArray *a, const struct type *t, int64_t i, struct value *ret)
{
	enum { ROOM = 40 };
	struct ps_number number;
	int n;

	if (scratch_room(c, ROOM) < 0)
		return -ENOMEM;
	number_load(a, t->dtype, a->offset + i, &number);
	if (!number.is_float)
		n = snprintf((char *)c->scratch.p, ROOM, "%s%ju", number.negative ? "-" : "",
		        (uintmax_t)number.magnitude);
	else /* digits from which the same number is read again */
		n = snprintf((char *)c->scratch.p, ROOM, "%.*g", t->dtype == PS_F64 ? 17 : 9, number.value);
	for (int k = 0; k < n; k++) /* the point of the program's locale */
		if (c->scratch.p[k] == ',')
			c->scratch.p[k] = '.';
	*ret = (struct value){c->scratch.p, (uint64_t)n};
	return 0;
}

/* Writes a .npy file of `n` values from `at` on. */
static int npy_make(struct ps_columns *c, const struct ArrowArray *items, const struct type *t, int64_t at,
        int64_t n, struct value *ret)
{
	enum { HEAD = 128, MAGIC = 10 };
	static const char *const types[PS_NDTYPES] = {[PS_U8] = "|u1",
	        [PS_F32] = "<f4",
	        [PS_F16] = "<f2",
	        [PS_I32] = "<i4",
	        [PS_I64] = "<i8",
	        [PS_F64] = "<f8",
	        [PS_U16] = "<u2",
	        [PS_U32] = "<u4",
	        [PS_U64] = "<u8",
	        [PS_I8] = "|i1",
	        [PS_I16] = "<i2",
	        [PS_BOOL] = "|b1"};
	static const uint8_t magic[MAGIC] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, HEAD - MAGIC, 0};
	size_t each = item_nbytes(t->dtype), nbytes = (size_t)n * each;
	char *head;
	int len;

	for (int64_t i = at; items->buffers[0] && i < at + n; i++)
		if (is_null(items, i))
			return -ENODATA;
	if (nbytes / each != (size_t)n || scratch_room(c, HEAD + nbytes + 1) < 0)
		return -ENOMEM;
	head = (char *)c->scratch.p;
	memset(head, ' ', HEAD);
	memcpy(head, magic, MAGIC);
	len = snprintf(head + MAGIC, HEAD - MAGIC,
	        "{'descr': '%s', 'fortran_order': False, 'shape': (%jd,), }", types[t->dtype], (intmax_t)n);
	head[MAGIC + len] = ' ';
	head[HEAD - 1] = '\n';
	at += items->offset;
	if (t->dtype == PS_BOOL)
		for (int64_t i = 0; i < n; i++)
			c->scratch.p[HEAD + i] = bit_at(items->buffers[1], at + i);
	else if (nbytes > 0)
		memcpy(c->scratch.p + HEAD, (const uint8_t *)items->buffers[1] + (size_t)at * each, nbytes);
	*ret = (struct value){c->scratch.p, HEAD + nbytes};
	return 0;
}

/* The bytes of value i of an array that is not null. -ENODATA: a list with a null. */
static int value_get(
        struct ps_columns *c, const struct ArrowArray *a, const struct type *t, int64_t i, struct value *ret)
{
	int64_t from, to;

	switch (t->form) {
	case NUMBER:
		return number_text(c, a, t, i, ret);
	case FIXED:
		*ret = (struct value){t->width > 0
		                              ? (const uint8_t *)a->buffers[1] + (a->offset + i) * t->width
		                              : (const uint8_t *)"",
		        (uint64_t)t->width};
		return 0;
	case FIXED_LIST:
		return npy_make(c, a->children[0], t, (a->offset + i) * t->width, t->width, ret);
	case BYTES:
	case LIST:
		from = offset_at(t, a->buffers[1], a->offset + i);
		to = offset_at(t, a->buffers[1], a->offset + i + 1);
		if (t->form == LIST)
			return npy_make(c, a->children[0], t, from, to - from, ret);
		*ret = (struct value){
		        a->buffers[2] ? (const uint8_t *)a->buffers[2] + from : (const uint8_t *)"",
		        (uint64_t)(to - from)};
		return 0;
	default:
		return 0;
	}
}

/* Finds the value of a leaf in a row. -EBADMSG: a place that the dictionary does not have. */
static int leaf_get(struct ps_columns *c, const struct leaf *leaf, int64_t row, struct value *ret)
{
	const struct ArrowArray *a = &c->batch;
	struct ps_number place;
	int64_t i = row;

	*ret = (struct value){0};
	for (uint32_t d = 0; d < leaf->depth; d++) {
		i += a->offset; /* a struct's offset holds for its children, too */
		a = a->children[leaf->path[d]];
		if (is_null(a, i))
			return 0;
	}
	if (!leaf->dictionary)
		return leaf->type.form == NOTHING ? 0 : value_get(c, a, &leaf->type, i, ret);
	number_load(a, leaf->places.dtype, a->offset + i, &place);
	a = a->dictionary;
	if (place.negative || place.magnitude >= (uint64_t)a->length)
		return -EBADMSG;
	i = (int64_t)place.magnitude;
	return leaf->type.form == NOTHING || is_null(a, i) ? 0 : value_get(c, a, &leaf->type, i, ret);
}

/* Adds a leaf's value to the open sample. */
static int leaf_put(struct ps_columns *c, const struct leaf *leaf, struct ps_builder *b)
{
	struct value value;
	uint8_t *data;
	char text[300];
	int rc = leaf_get(c, leaf, c->row, &value);

	if (rc == -ENODATA || rc == -EBADMSG) {
		snprintf(text, sizeof(text), "column %.200s: %s", leaf->name,
		        rc == -ENODATA ? "a list with a null in it"
		                       : "a place that its dictionary does not have");
		return ps_builder_bad(b, EBADMSG, text);
	}
	if (rc < 0 || !value.p)
		return rc;
	rc = ps_builder_field(b, leaf->name, strlen(leaf->name), 0, value.n, true, &data);
	if (rc == 0 && data)
		memcpy(data, value.p, (size_t)value.n);
	return rc;
}

/* Reading ------------------------------------------------------------------------------------------------ */

struct ps_columns *ps_columns_new(const char *unit, const struct ps_shard_options *options)
{
	struct ps_columns *c = calloc(1, sizeof(*c));
	const char *slash = strrchr(unit, '/');

	if (!c)
		return NULL;
	c->unit = unit;
	c->options = options;
	if (ps_buf_add(&c->key, slash ? slash + 1 : unit, strlen(slash ? slash + 1 : unit)) < 0 ||
	        ps_buf_add(&c->key, "-", 1) < 0) {
		ps_columns_free(c);
		return NULL;
	}
	c->base_len = c->key.n;
	return c;
}

void ps_columns_free(struct ps_columns *c)
{
	if (!c)
		return;
	batch_drop(c);
	if (c->stream.release)
		c->stream.release(&c->stream);
	if (c->options->budget)
		ps_byte_budget_give(c->options->budget, c->stream_nbytes);
	for (size_t i = 0; i < c->nleaves; i++)
		free(c->leaves[i].name);
	free(c->leaves);
	ps_buf_fini(&c->key);
	ps_buf_fini(&c->scratch);
	free(c);
}

int ps_columns_open(struct ps_columns *c, uint64_t row, struct ps_error *err)
{
	const struct ps_columns_source *source = c->options->columns;
	struct penstock_error said = {0};
	int rc = source->calls->read(source->calls->ctx, c->unit, row, source->members, source->nmembers,
	        &c->stream, &c->stream_nbytes, &said);

	if (rc < 0) {
		c->stream = (struct ArrowArrayStream){0};
		c->stream_nbytes = 0;
		return ps_error_set(err, errno_of(c, -rc), "%.*s", (int)sizeof(said.text),
		        said.text[0] ? said.text : strerror(-rc));
	}
	if (!c->stream.release)
		return ps_error_set(err, EBADMSG, "its source returned a stream that was released already");
	if (c->options->budget)
		ps_byte_budget_force(c->options->budget, c->stream_nbytes);
	return schema_read(c, err);
}

int ps_columns_next(
        struct ps_columns *c, struct ps_builder *b, uint64_t ordinal, bool hold, struct ps_error *err)
{
	int rc = batch_take(c, err);

	if (rc < 0 || c->ended)
		return rc;
	rc = ps_shard_key_number(&c->key, c->base_len, ordinal);
	if (rc == 0)
		rc = ps_builder_begin(b, (const char *)c->key.p, c->key.n, ordinal);
	for (size_t i = 0; i < c->nleaves && rc == 0 && hold && !b->options->never_hold && !b->bad; i++)
		rc = leaf_put(c, &c->leaves[i], b);
	c->row++;
	return rc;
}
