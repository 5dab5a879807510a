/* Fields of arrays: .npy files and token windows. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "batch/convert.h"
#include "batch/field.h"
#include "batch/npy.h"

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

static int shape_check(const struct ps_plan_field *f, struct ps_npy *npy, struct ps_load_error *err)
{
	char have[128], want[128];
	bool same;

	if (npy->ndim == 0) {
		npy->ndim = 1;
		npy->shape[0] = 1;
	}
	same = npy->ndim == f->ndim;
	for (uint32_t i = 0; i < f->ndim && same; i++)
		same = npy->shape[i] == f->shape[i] || (i == 0 && f->shape[0] == 0);
	if (same)
		return 0;
	return ps_load_error_set(err, EBADMSG, "an array of shape %s where the field has %s",
	        shape_text(npy->shape, npy->ndim, false, have), shape_text(f->shape, f->ndim, true, want));
}

/* Sees to it that writing the elements will be exact. */
static int exact_check(
        const struct ps_plan_field *f, const struct ps_piece *piece, uint64_t n, struct ps_load_error *err)
{
	enum { CHUNK = 256 };
	uint64_t out[CHUNK];
	size_t size = ps_dtype_nbytes(piece->dtype);

	if (piece->dtype == f->dtype)
		return 0;
	for (uint64_t i = 0; i < n; i += CHUNK) {
		size_t k = (size_t)PS_MIN(n - i, (uint64_t)CHUNK);
		size_t done =
		        ps_convert(piece->dtype, piece->swapped, piece->data + i * size, f->dtype, out, k);

		if (done < k)
			return ps_load_error_set(err, EBADMSG,
			        "its element %ju, a %s, has no exact value in %s; ask for another dtype",
			        (uintmax_t)(i + done), ps_dtype_name(piece->dtype), ps_dtype_name(f->dtype));
	}
	return 0;
}

static int npy_measure(const struct ps_plan_field *f, const uint8_t *data, size_t n,
        struct ps_piece *ret_piece, struct ps_load_error *err)
{
	struct ps_piece piece;
	struct ps_npy npy;
	int r = ps_npy_parse(data, n, &npy, err);

	if (r == 0)
		r = shape_check(f, &npy, err);
	if (r < 0)
		return r;
	piece = (struct ps_piece){.data = npy.data,
	        .nbytes = (size_t)npy.count * ps_dtype_nbytes(npy.dtype),
	        .items = npy.shape[0],
	        .dtype = npy.dtype,
	        .swapped = npy.swapped,
	        .fortran = npy.fortran,
	        .stride = npy.shape[0]};
	r = exact_check(f, &piece, npy.count, err);
	if (r == 0)
		*ret_piece = piece;
	return r;
}

/* In the order of C, from an array whose first index runs fastest. */
static void fortran_write(const struct ps_plan_field *f, const struct ps_piece *piece, uint8_t *dst)
{
	size_t in = ps_dtype_nbytes(piece->dtype), out = ps_dtype_nbytes(f->dtype);
	uint64_t at[PENSTOCK_MAX_DIMS - 1] = {0};

	for (uint64_t n = piece->items * f->item_elements; n > 0; n--) {
		uint64_t src = 0, stride = 1;

		for (uint32_t d = 0; d < f->ndim; d++) {
			src += at[d] * stride;
			stride *= d == 0 ? piece->stride : f->shape[d];
		}
		(void)!ps_convert(piece->dtype, piece->swapped, piece->data + src * in, f->dtype, dst, 1);
		dst += out;
		for (uint32_t d = f->ndim; d-- > 0;) {
			if (++at[d] < (d == 0 ? piece->items : f->shape[d]))
				break;
			at[d] = 0;
		}
	}
}

static void array_write(
        const struct ps_plan_field *f, const struct ps_piece *piece, uint32_t plane, void *dst)
{
	/* y is x, one token later */
	size_t skip = plane * ps_dtype_nbytes(piece->dtype);

	if (piece->fortran)
		fortran_write(f, piece, dst);
	else
		(void)!ps_convert(piece->dtype, piece->swapped, piece->data + skip, f->dtype, dst,
		        (size_t)piece->items * f->item_elements);
}

const struct ps_field_ops ps_field_npy = {.measure = npy_measure, .write = array_write};

static int tokens_measure(const struct ps_plan_field *f, const uint8_t *data, size_t n,
        struct ps_piece *ret_piece, struct ps_load_error *err)
{
	struct ps_piece piece = {.data = data,
	        .nbytes = n,
	        .dtype = f->source_dtype,
	        .swapped = __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__};
	size_t size = ps_dtype_nbytes(f->source_dtype);
	uint64_t tokens = n / size;
	int r;

	if (n >= 6 && memcmp(data, "\x93NUMPY", 6) == 0) {
		struct ps_npy npy;

		r = ps_npy_parse(data, n, &npy, err);
		if (r < 0)
			return r;
		if (npy.ndim != 1)
			return ps_load_error_set(
			        err, EBADMSG, "an array of %u dimensions where tokens have one", npy.ndim);
		piece.data = npy.data;
		piece.dtype = npy.dtype;
		piece.swapped = npy.swapped;
		tokens = npy.count;
	} else if (n % size != 0) {
		return ps_load_error_set(err, EBADMSG, "%zu bytes are no whole tokens of %zu bytes", n, size);
	}
	if (tokens == 0 || (f->shape[0] > 0 && tokens != f->shape[0] + 1))
		return ps_load_error_set(err, EBADMSG, "%ju tokens where %s%ju must be", (uintmax_t)tokens,
		        f->shape[0] ? "" : "at least ", (uintmax_t)f->shape[0] + 1);
	piece.items = tokens - 1;
	r = exact_check(f, &piece, tokens, err);
	if (r == 0)
		*ret_piece = piece;
	return r;
}

const struct ps_field_ops ps_field_tokens = {.measure = tokens_measure, .write = array_write};
