/* Fields of values in JSON members. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "batch/field.h"
#include "batch/json.h"

/* The field's value; -ENOENT: none, or null. */
static int value_find(const struct ps_plan_field *f, const uint8_t *data, size_t n, struct ps_json *ret_value,
        struct ps_load_error *err)
{
	int r = ps_json_find(data, n, f->path, ret_value, err);

	return r == 0 && ret_value->type == PS_JSON_NULL ? -ENOENT : r;
}

/* A piece's value again: what ps_json_find() gave. */
static struct ps_json value_of(const struct ps_piece *piece)
{
	const uint8_t c = *piece->data;

	return (struct ps_json){.type = c == '"'                 ? PS_JSON_STRING
	                                : c == '['               ? PS_JSON_ARRAY
	                                : c == '{'               ? PS_JSON_OBJECT
	                                : (c == 't' || c == 'f') ? PS_JSON_BOOL
	                                                         : PS_JSON_NUMBER,
	        .p = piece->data,
	        .end = piece->data + piece->nbytes};
}

static struct ps_piece piece_of(const struct ps_json *v, uint64_t items)
{
	return (struct ps_piece){.data = v->p, .nbytes = (size_t)(v->end - v->p), .items = items};
}

static int text_measure(const struct ps_plan_field *f, const uint8_t *data, size_t n,
        struct ps_piece *ret_piece, struct ps_load_error *err)
{
	struct ps_json v;
	int r = value_find(f, data, n, &v, err);

	if (r < 0)
		return r;
	if (f->kind == PENSTOCK_TEXT && v.type != PS_JSON_STRING)
		return ps_load_error_set(err, EBADMSG, "the value at %.200s is no string", f->path);
	*ret_piece = piece_of(
	        &v, v.type == PS_JSON_STRING ? ps_json_string(&v, NULL, SIZE_MAX) : (uint64_t)(v.end - v.p));
	return 0;
}

/* A string cut short is written to its cut; what is written is at most what the piece's items say. */
static void text_write(const struct ps_plan_field *f, const struct ps_piece *piece, uint32_t plane, void *dst)
{
	struct ps_json v = value_of(piece);

	(void)f;
	(void)plane;
	if (v.type == PS_JSON_STRING)
		(void)ps_json_string(&v, dst, (size_t)piece->items);
	else
		memcpy(dst, piece->data, (size_t)piece->items);
}

static uint64_t text_cut(const struct ps_piece *piece, uint64_t items)
{
	struct ps_json v = value_of(piece);

	return v.type == PS_JSON_STRING ? ps_json_string(&v, NULL, (size_t)items) : items;
}

const struct ps_field_ops ps_field_json_text = {
        .measure = text_measure, .write = text_write, .cut = text_cut};

/* -- Numbers ------------------------------------------------------------------------------------------- */

/* Where the elements of an array go, and how many there may be. */
struct walk {
	const struct ps_plan_field *field;
	uint64_t items; /* of the first dimension, at most */
	uint8_t *dst;   /* NULL: only checked */
	struct ps_load_error *err;
};

/* The value as dimensions `dim` and on; ret_n: the items of it. */
static int walk(struct walk *w, const struct ps_json *v, uint32_t dim, uint64_t *ret_n)
{
	const struct ps_plan_field *f = w->field;
	uint64_t most = dim == 0 ? w->items : UINT64_MAX, n = 0, inner;
	struct ps_json item = {0};

	if (dim == f->ndim) {
		uint8_t element[8];
		struct ps_number number;
		const char *wrong = ps_json_number(v, &number);

		if (wrong)
			return ps_load_error_set(w->err, EBADMSG, "at %.200s: %s", f->path, wrong);
		if (!ps_field_store(f, &number, w->dst ? w->dst : element))
			return ps_load_error_set(w->err, EBADMSG, "at %.200s: a number that %s cannot hold",
			        f->path, ps_dtype_name(f->dtype));
		if (w->dst)
			w->dst += ps_dtype_nbytes(f->dtype);
		*ret_n = 1;
		return 0;
	}
	if (v->type != PS_JSON_ARRAY)
		return ps_load_error_set(
		        w->err, EBADMSG, "at %.200s: no array of %u dimensions", f->path, f->ndim);
	while (n < most && ps_json_next(v, &item)) {
		int r = walk(w, &item, dim + 1, &inner);

		if (r < 0)
			return r;
		n++;
	}
	if (f->shape[dim] > 0 && n != f->shape[dim])
		return ps_load_error_set(w->err, EBADMSG, "at %.200s: %ju items where the field has %ju",
		        f->path, (uintmax_t)n, (uintmax_t)f->shape[dim]);
	*ret_n = n;
	return 0;
}

static int numbers_measure(const struct ps_plan_field *f, const uint8_t *data, size_t n,
        struct ps_piece *ret_piece, struct ps_load_error *err)
{
	struct walk w = {.field = f, .items = UINT64_MAX, .err = err};
	struct ps_json v;
	uint64_t items = 0;
	int r = value_find(f, data, n, &v, err);

	if (r == 0)
		r = walk(&w, &v, 0, &items);
	if (r == 0)
		*ret_piece = piece_of(&v, items);
	return r;
}

static void numbers_write(
        const struct ps_plan_field *f, const struct ps_piece *piece, uint32_t plane, void *dst)
{
	struct walk w = {.field = f, .items = f->ndim ? piece->items : 1, .dst = dst};
	struct ps_json v = value_of(piece);
	uint64_t n;

	(void)plane;
	(void)walk(&w, &v, 0, &n);
}

const struct ps_field_ops ps_field_json_numbers = {.measure = numbers_measure, .write = numbers_write};
