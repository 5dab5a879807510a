/* How a member's bytes become elements: arrays and tokens, boxes, JSON, bytes, texts and numbers. */

#include "config.h"

#include "batch/batch.h"

#include "batch/fields.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "base/utf8.h"

/* "(3, 4)"; a dimension of any size is "n". */
static const char *shape_text(const uint64_t *shape, uint32_t ndim, bool any, char text[static 128])
{
	size_t at = 1;

	strcpy(text, "(");
	for (uint32_t i = 0; i < ndim && at < 100; i++)
		at += (size_t)(any && shape[i] == 0 ? snprintf(text + at, 128 - at, "%sn", i ? ", " : "")
		                                    : snprintf(text + at, 128 - at, "%s%ju", i ? ", " : "",
		                                              (uintmax_t)shape[i]));
	snprintf(text + at, 128 - at, ")");
	return text;
}

static int shape_check(const struct ps_layout_field *f, struct ps_npy *npy, struct ps_error *err)
{
	char have[128], want[128];
	bool same;

	if (npy->ndim == 0)
		npy->shape[0] = 1; /* the number of items */
	if (npy->ndim == 0 && f->ndim > 0)
		npy->ndim = 1;
	same = npy->ndim == f->ndim;
	for (uint32_t i = 1; i < f->ndim && same; i++)
		same = npy->shape[i] == f->shape[i];
	if (same && (f->ndim == 0 || npy->shape[0] == f->shape[0] || f->shape[0] == 0))
		return 0;
	return ps_error_set(err, EBADMSG, "the array has shape %s, but the field has %s%s",
	        shape_text(npy->shape, npy->ndim, false, have), shape_text(f->shape, f->ndim, true, want),
	        same ? "; a first dimension of 0 takes any length" : "");
}

static size_t convert(const struct ps_layout_field *f, const struct ps_piece *piece, const uint8_t *src,
        void *dst, size_t n)
{
	return f->rounds ? ps_convert_rounded(piece->dtype, piece->swapped, src, f->dtype, dst, n)
	                 : ps_convert(piece->dtype, piece->swapped, src, f->dtype, dst, n);
}

/* Checks that the elements can be converted exactly, or (if rounded) are within the type's range. */
static int elements_check(
        const struct ps_layout_field *f, const struct ps_piece *piece, uint64_t n, struct ps_error *err)
{
	enum { CHUNK = 256 };
	uint64_t out[CHUNK];
	size_t size = ps_dtype_nbytes(piece->dtype);

	if (piece->dtype == f->dtype)
		return 0;
	for (uint64_t i = 0; i < n; i += CHUNK) {
		size_t k = (size_t)PS_MIN(n - i, (uint64_t)CHUNK);
		size_t done = convert(f, piece, piece->data + i * size, out, k);

		if (done < k) {
			ps_error_set(err, EBADMSG, "its element %ju, a %s, %s in %s; choose another dtype%s",
			        (uintmax_t)(i + done), ps_dtype_name(piece->dtype),
			        f->rounds ? "has no finite value" : "has no exact value",
			        ps_dtype_name(f->dtype),
			        f->rounds || f->kind != PENSTOCK_NPY || !ps_dtype_is_float(f->dtype)
			                ? ""
			                : ", or for rounding nearest");
			err->advised = true;
			return -EBADMSG;
		}
	}
	return 0;
}

static struct ps_piece piece_of_npy(const struct ps_npy *npy)
{
	return (struct ps_piece){.data = npy->data,
	        .nbytes = (size_t)npy->count * ps_dtype_nbytes(npy->dtype),
	        .items = npy->shape[0],
	        .dtype = npy->dtype,
	        .swapped = npy->swapped,
	        .fortran = npy->fortran,
	        .stride = npy->shape[0]};
}

static int npy_measure(const struct ps_layout_field *f, const uint8_t *data, size_t n,
        struct ps_piece *ret_piece, struct ps_error *err)
{
	struct ps_piece piece;
	struct ps_npy npy;
	int rc = ps_npy_parse(data, n, &npy, err);

	if (rc == 0)
		rc = shape_check(f, &npy, err);
	if (rc < 0)
		return rc;
	piece = piece_of_npy(&npy);
	rc = elements_check(f, &piece, npy.count, err);
	if (rc == 0)
		*ret_piece = piece;
	return rc;
}

/* Writes in C order from an array in Fortran order. */
static void fortran_write(const struct ps_layout_field *f, const struct ps_piece *piece, uint8_t *dst)
{
	size_t in = ps_dtype_nbytes(piece->dtype), out = ps_dtype_nbytes(f->dtype);
	uint64_t at[PENSTOCK_MAX_DIMS - 1] = {0};

	for (uint64_t n = piece->items * f->item_elements; n > 0; n--) {
		uint64_t src = 0, stride = 1;

		for (uint32_t d = 0; d < f->ndim; d++) {
			src += at[d] * stride;
			stride *= d == 0 ? piece->stride : f->shape[d];
		}
		(void)!convert(f, piece, piece->data + src * in, dst, 1);
		dst += out;
		for (uint32_t d = f->ndim; d-- > 0;) {
			if (++at[d] < (d == 0 ? piece->items : f->shape[d]))
				break;
			at[d] = 0;
		}
	}
}

static void array_write(
        const struct ps_layout_field *f, const struct ps_piece *piece, uint32_t plane, void *dst)
{
	/* y is x, one token later */
	size_t skip = plane * ps_dtype_nbytes(piece->dtype);

	if (piece->fortran)
		fortran_write(f, piece, dst);
	else
		(void)!convert(f, piece, piece->data + skip, dst, (size_t)piece->items * f->item_elements);
}

const struct ps_field_ops ps_field_npy = {.measure = npy_measure, .write = array_write};

static int tokens_measure(const struct ps_layout_field *f, const uint8_t *data, size_t n,
        struct ps_piece *ret_piece, struct ps_error *err)
{
	struct ps_piece piece = {.data = data,
	        .nbytes = n,
	        .dtype = f->source_dtype,
	        .swapped = __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__};
	size_t size = ps_dtype_nbytes(f->source_dtype);
	uint64_t tokens = n / size;
	int rc;

	if (n >= 6 && memcmp(data, "\x93NUMPY", 6) == 0) {
		struct ps_npy npy;

		rc = ps_npy_parse(data, n, &npy, err);
		if (rc < 0)
			return rc;
		if (npy.ndim != 1)
			return ps_error_set(
			        err, EBADMSG, "the array has %u dimensions, but tokens have one", npy.ndim);
		piece.data = npy.data;
		piece.dtype = npy.dtype;
		piece.swapped = npy.swapped;
		tokens = npy.count;
	} else if (n % size != 0) {
		return ps_error_set(
		        err, EBADMSG, "%zu bytes are not a whole number of %zu-byte tokens", n, size);
	}
	if (tokens == 0 || (f->shape[0] > 0 && tokens != f->shape[0] + 1))
		return ps_error_set(err, EBADMSG, "%ju tokens, but the field needs %s%ju", (uintmax_t)tokens,
		        f->shape[0] ? "" : "at least ", (uintmax_t)f->shape[0] + 1);
	piece.items = tokens - 1;
	rc = elements_check(f, &piece, tokens, err);
	if (rc == 0)
		*ret_piece = piece;
	return rc;
}

const struct ps_field_ops ps_field_tokens = {.measure = tokens_measure, .write = array_write};

/* Boxes -------------------------------------------------------------------------------------------------- */

/* Boxes as members: a .npy of n x 4, or text: numbers separated by white space or commas, four for each
 * box. image/image.h maps them to the picture. */

#define TEXT PS_NDTYPES /* dtype of a piece that is text, not an array */
#define COORDINATES 4u

static bool is_between(uint8_t c)
{
	return c == ' ' || c == ',' || (c >= '\t' && c <= '\r');
}

/* Finds the next number; returns its length, or 0 after the last. */
static size_t word_next(const uint8_t **p, const uint8_t *end)
{
	size_t n = 0;

	while (*p < end && is_between(**p))
		++*p;
	while (*p + n < end && !is_between((*p)[n]))
		n++;
	return n;
}

static int boxes_text_measure(
        const uint8_t *data, size_t nbytes, struct ps_piece *ret_piece, struct ps_error *err)
{
	const uint8_t *p = data, *end = data + nbytes;
	uint64_t n = 0;
	size_t len;

	while ((len = word_next(&p, end)) > 0) {
		struct ps_number number;
		const char *wrong = ps_number_float(p, len, &number);

		if (wrong)
			return ps_error_set(err, EBADMSG, "boxes: number %ju: %s", (uintmax_t)n + 1, wrong);
		n++;
		p += len;
	}
	if (n % COORDINATES != 0)
		return ps_error_set(
		        err, EBADMSG, "boxes: %ju numbers, which is not a multiple of four", (uintmax_t)n);
	*ret_piece =
	        (struct ps_piece){.data = data, .nbytes = nbytes, .items = n / COORDINATES, .dtype = TEXT};
	return 0;
}

static int boxes_measure(const struct ps_layout_field *f, const uint8_t *data, size_t nbytes,
        struct ps_piece *ret_piece, struct ps_error *err)
{
	struct ps_npy npy;
	int rc;

	(void)f;
	if (nbytes < 6 || memcmp(data, "\x93NUMPY", 6) != 0)
		return boxes_text_measure(data, nbytes, ret_piece, err);
	rc = ps_npy_parse(data, nbytes, &npy, err);
	if (rc < 0)
		return rc;
	if (npy.ndim != 2 || npy.shape[1] != COORDINATES)
		return ps_error_set(err, EBADMSG, "boxes: the array is not n x 4");
	*ret_piece = piece_of_npy(&npy);
	return 0;
}

static void boxes_write(
        const struct ps_layout_field *f, const struct ps_piece *piece, uint32_t plane, void *dst)
{
	float *to = dst;
	uint64_t n = piece->items * COORDINATES;
	const uint8_t *p = piece->data, *end = piece->data + piece->nbytes;

	(void)f;
	(void)plane;
	for (uint64_t i = 0; i < n; i++) {
		struct ps_number number = {0};

		if (piece->dtype == TEXT) {
			size_t len = word_next(&p, end);

			(void)!ps_number_float(p, len, &number); /* valid: checked by measure() */
			p += len;
		} else {
			uint64_t at = piece->fortran ? i % COORDINATES * piece->stride + i / COORDINATES : i;

			number = ps_number_load(piece->dtype, piece->swapped,
			        piece->data + at * ps_dtype_nbytes(piece->dtype));
		}
		if (number.is_float)
			to[i] = (float)number.value;
		else
			to[i] = number.negative ? -(float)number.magnitude : (float)number.magnitude;
	}
}

const struct ps_field_ops ps_field_boxes = {.measure = boxes_measure, .write = boxes_write};

/* Stores a number at dst as one element of the field; false: the element's type cannot hold it. */
static bool field_store(const struct ps_layout_field *f, const struct ps_number *v, void *dst)
{
	return f->rounds ? ps_number_store_rounded(v, f->dtype, dst) : ps_number_store(v, f->dtype, dst);
}

/* JSON --------------------------------------------------------------------------------------------------- */

/* Finds the field's value; -ENOENT: none, or null. */
static int value_find(const struct ps_layout_field *f, const uint8_t *data, size_t n,
        struct ps_json *ret_value, struct ps_error *err)
{
	int rc = ps_json_find(data, n, f->path, ret_value, err);

	return rc == 0 && ret_value->type == PS_JSON_NULL ? -ENOENT : rc;
}

/* Restores, from a piece, the value that ps_json_find() returned. */
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

static int json_text_measure(const struct ps_layout_field *f, const uint8_t *data, size_t n,
        struct ps_piece *ret_piece, struct ps_error *err)
{
	struct ps_json v;
	int rc = value_find(f, data, n, &v, err);

	if (rc < 0)
		return rc;
	if (f->kind == PENSTOCK_TEXT && v.type != PS_JSON_STRING)
		return ps_error_set(err, EBADMSG, "the value at %.200s is not a string", f->path);
	if (v.type == PS_JSON_STRING && ps_json_has_surrogate(&v))
		return ps_error_set(err, EBADMSG,
		        "the text at %.200s has a lone surrogate (\\ud800 to \\udfff), which UTF-8 cannot "
		        "hold",
		        f->path);
	*ret_piece = piece_of(
	        &v, v.type == PS_JSON_STRING ? ps_json_string(&v, NULL, SIZE_MAX) : (uint64_t)(v.end - v.p));
	return 0;
}

/* Writes a string, up to the number of items in the piece, which may have been lowered. */
static void text_write(
        const struct ps_layout_field *f, const struct ps_piece *piece, uint32_t plane, void *dst)
{
	struct ps_json v = value_of(piece);

	(void)f;
	(void)plane;
	if (v.type == PS_JSON_STRING)
		(void)ps_json_string(&v, dst, (size_t)piece->items);
	else
		memcpy(dst, piece->data, (size_t)piece->items);
}

static uint64_t json_text_cut(const struct ps_piece *piece, uint64_t items)
{
	struct ps_json v = value_of(piece);

	return v.type == PS_JSON_STRING ? ps_json_string(&v, NULL, (size_t)items) : items;
}

const struct ps_field_ops ps_field_json_text = {
        .measure = json_text_measure, .write = text_write, .cut = json_text_cut};

/* Numbers ------------------------------------------------------------------------------------------------ */

/* The destination of an array's elements, and the limit of their number. */
struct walk {
	const struct ps_layout_field *field;
	uint64_t items; /* most items of the first dimension */
	uint8_t *dst;   /* NULL: check only */
	struct ps_error *err;
};

/* Walks over a value, which holds dimension `dim` and the following ones. ret_n: its number of items. */
static int walk(struct walk *w, const struct ps_json *v, uint32_t dim, uint64_t *ret_n)
{
	const struct ps_layout_field *f = w->field;
	uint64_t most = dim == 0 ? w->items : UINT64_MAX, n = 0, inner;
	struct ps_json item = {0};

	if (dim == f->ndim) {
		uint8_t element[8];
		struct ps_number number;
		const char *wrong = ps_json_number(v, &number);

		if (wrong)
			return ps_error_set(w->err, EBADMSG, "at %.200s: %s", f->path, wrong);
		if (!field_store(f, &number, w->dst ? w->dst : element))
			return ps_error_set(w->err, EBADMSG, "at %.200s: a number that %s cannot hold",
			        f->path, ps_dtype_name(f->dtype));
		if (w->dst)
			w->dst += ps_dtype_nbytes(f->dtype);
		*ret_n = 1;
		return 0;
	}
	if (v->type != PS_JSON_ARRAY)
		return ps_error_set(
		        w->err, EBADMSG, "at %.200s: not an array of %u dimensions", f->path, f->ndim);
	while (n < most && ps_json_next(v, &item)) {
		int rc = walk(w, &item, dim + 1, &inner);

		if (rc < 0)
			return rc;
		n++;
	}
	if (f->shape[dim] > 0 && n != f->shape[dim])
		return ps_error_set(w->err, EBADMSG, "at %.200s: %ju items, but the field has %ju", f->path,
		        (uintmax_t)n, (uintmax_t)f->shape[dim]);
	*ret_n = n;
	return 0;
}

static int numbers_measure(const struct ps_layout_field *f, const uint8_t *data, size_t n,
        struct ps_piece *ret_piece, struct ps_error *err)
{
	struct walk w = {.field = f, .items = UINT64_MAX, .err = err};
	struct ps_json v;
	uint64_t items = 0;
	int rc = value_find(f, data, n, &v, err);

	if (rc == 0)
		rc = walk(&w, &v, 0, &items);
	if (rc == 0)
		*ret_piece = piece_of(&v, items);
	return rc;
}

static void numbers_write(
        const struct ps_layout_field *f, const struct ps_piece *piece, uint32_t plane, void *dst)
{
	struct walk w = {.field = f, .items = f->ndim ? piece->items : 1, .dst = dst};
	struct ps_json v = value_of(piece);
	uint64_t n;

	(void)plane;
	(void)walk(&w, &v, 0, &n);
}

const struct ps_field_ops ps_field_json_numbers = {.measure = numbers_measure, .write = numbers_write};

/* Bytes, texts and numbers ------------------------------------------------------------------------------- */

static int bytes_measure(const struct ps_layout_field *f, const uint8_t *data, size_t n,
        struct ps_piece *ret_piece, struct ps_error *err)
{
	(void)f;
	(void)err;
	*ret_piece = (struct ps_piece){.data = data, .nbytes = n, .items = n};
	return 0;
}

static void bytes_write(
        const struct ps_layout_field *f, const struct ps_piece *piece, uint32_t plane, void *dst)
{
	(void)f;
	(void)plane;
	if (piece->items > 0)
		memcpy(dst, piece->data, (size_t)piece->items);
}

const struct ps_field_ops ps_field_bytes = {.measure = bytes_measure, .write = bytes_write};

static int text_measure(const struct ps_layout_field *f, const uint8_t *data, size_t n,
        struct ps_piece *ret_piece, struct ps_error *err)
{
	size_t sound = ps_utf8_check(data, n);

	if (sound < n)
		return ps_error_set(err, EBADMSG, "not UTF-8: byte %zu is 0x%02x", sound, data[sound]);
	return bytes_measure(f, data, n, ret_piece, err);
}

static uint64_t text_cut(const struct ps_piece *piece, uint64_t items)
{
	return ps_utf8_cut(piece->data, (size_t)items);
}

const struct ps_field_ops ps_field_text = {.measure = text_measure, .write = bytes_write, .cut = text_cut};

static int json_measure(const struct ps_layout_field *f, const uint8_t *data, size_t n,
        struct ps_piece *ret_piece, struct ps_error *err)
{
	struct ps_json all;
	int rc = ps_json_find(data, n, NULL, &all, err);

	return rc < 0 ? rc : bytes_measure(f, data, n, ret_piece, err);
}

const struct ps_field_ops ps_field_json = {.measure = json_measure, .write = bytes_write};

/* Elements of the field's own type, written by a transform ----------------------------------------------- */

static void memory_write(
        const struct ps_layout_field *f, const struct ps_piece *piece, uint32_t plane, void *dst)
{
	(void)plane;
	if (piece->items > 0)
		memcpy(dst, piece->data, (size_t)piece->items * f->item_nbytes);
}

const struct ps_field_ops ps_field_memory = {.write = memory_write};

/* Numbers ------------------------------------------------------------------------------------------------ */

#define TEXT_SHOWN 40u /* bytes shown of a text that is not a number */

static const char *number_parse(
        const struct ps_layout_field *f, const uint8_t *data, size_t n, struct ps_number *ret_number)
{
	ps_number_trim(&data, &n);
	return f->kind == PENSTOCK_FLOAT ? ps_number_float(data, n, ret_number)
	                                 : ps_number_integer(data, n, ret_number);
}

static int number_measure(const struct ps_layout_field *f, const uint8_t *data, size_t n,
        struct ps_piece *ret_piece, struct ps_error *err)
{
	struct ps_number v;
	const char *wrong = number_parse(f, data, n, &v);
	uint8_t element[8];

	if (wrong) {
		ps_number_trim(&data, &n);
		return ps_error_set(err, EBADMSG, "%s: \"%.*s%s\"", wrong, (int)PS_MIN(n, TEXT_SHOWN),
		        (const char *)data, n > TEXT_SHOWN ? "..." : "");
	}
	if (!field_store(f, &v, element))
		return ps_error_set(err, EBADMSG, "%s cannot hold this integer", ps_dtype_name(f->dtype));
	*ret_piece = (struct ps_piece){.data = data, .nbytes = n, .items = 1};
	return 0;
}

static void number_write(
        const struct ps_layout_field *f, const struct ps_piece *piece, uint32_t plane, void *dst)
{
	struct ps_number v;

	(void)plane;
	if (!number_parse(f, piece->data, piece->nbytes, &v))
		(void)!field_store(f, &v, dst);
}

const struct ps_field_ops ps_field_number = {.measure = number_measure, .write = number_write};
