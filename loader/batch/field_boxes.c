/* Boxes as members: a .npy of n x 4, or text: numbers with white space or commas between, four a box. Where
 * they come to lie in the picture is image/boxes.h's. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "batch/field.h"
#include "batch/npy.h"

#define TEXT PS_NDTYPES /* a piece's dtype, where it is no array */
#define COORDINATES 4u

static bool is_between(uint8_t c)
{
	return c == ' ' || c == ',' || (c >= '\t' && c <= '\r');
}

/* The next number's bytes; 0 behind the last. */
static size_t word_next(const uint8_t **p, const uint8_t *end)
{
	size_t n = 0;

	while (*p < end && is_between(**p))
		++*p;
	while (*p + n < end && !is_between((*p)[n]))
		n++;
	return n;
}

static int text_measure(
        const uint8_t *data, size_t nbytes, struct ps_piece *ret_piece, struct ps_load_error *err)
{
	const uint8_t *p = data, *end = data + nbytes;
	uint64_t n = 0;
	size_t len;

	while ((len = word_next(&p, end)) > 0) {
		struct ps_number number;
		const char *wrong = ps_number_float(p, len, &number);

		if (wrong)
			return ps_load_error_set(
			        err, EBADMSG, "boxes: number %ju: %s", (uintmax_t)n + 1, wrong);
		n++;
		p += len;
	}
	if (n % COORDINATES != 0)
		return ps_load_error_set(
		        err, EBADMSG, "boxes: %ju numbers, which is no multiple of four", (uintmax_t)n);
	*ret_piece =
	        (struct ps_piece){.data = data, .nbytes = nbytes, .items = n / COORDINATES, .dtype = TEXT};
	return 0;
}

static int boxes_measure(const struct ps_plan_field *f, const uint8_t *data, size_t nbytes,
        struct ps_piece *ret_piece, struct ps_load_error *err)
{
	struct ps_npy npy;
	int r;

	(void)f;
	if (nbytes < 6 || memcmp(data, "\x93NUMPY", 6) != 0)
		return text_measure(data, nbytes, ret_piece, err);
	r = ps_npy_parse(data, nbytes, &npy, err);
	if (r < 0)
		return r;
	if (npy.ndim != 2 || npy.shape[1] != COORDINATES)
		return ps_load_error_set(err, EBADMSG, "boxes: an array that is not n x 4");
	*ret_piece = (struct ps_piece){.data = npy.data,
	        .nbytes = (size_t)npy.count * ps_dtype_nbytes(npy.dtype),
	        .items = npy.shape[0],
	        .dtype = npy.dtype,
	        .swapped = npy.swapped,
	        .fortran = npy.fortran,
	        .stride = npy.shape[0]};
	return 0;
}

static float number_float(const struct ps_number *v)
{
	if (v->is_float)
		return (float)v->value;
	return v->negative ? -(float)v->magnitude : (float)v->magnitude;
}

static void boxes_write(
        const struct ps_plan_field *f, const struct ps_piece *piece, uint32_t plane, void *dst)
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

			(void)!ps_number_float(p, len, &number); /* measured before */
			p += len;
		} else {
			uint64_t at = piece->fortran ? i % COORDINATES * piece->stride + i / COORDINATES : i;

			number = ps_number_load(piece->dtype, piece->swapped,
			        piece->data + at * ps_dtype_nbytes(piece->dtype));
		}
		to[i] = number_float(&number);
	}
}

const struct ps_field_ops ps_field_boxes = {.measure = boxes_measure, .write = boxes_write};
