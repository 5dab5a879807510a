/* Any bytes as a .npy member: what measure() accepts can be written, and no read is outside the bytes. */
#include <stdlib.h>
#include <string.h>

#include "batch/fields.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Writes the array as a field of its shape in this type. */
static void write_as(const struct ps_npy *npy, enum ps_dtype dtype, const uint8_t *data, size_t size)
{
	struct ps_layout_field f = {.dtype = dtype, .ndim = npy->ndim, .item_elements = 1, .planes = 1};
	struct ps_piece piece;
	uint8_t *dst;

	if (npy->ndim == 0 || npy->ndim >= PENSTOCK_MAX_DIMS || npy->count > 1 << 16)
		return;
	for (uint32_t i = 1; i < npy->ndim; i++) {
		f.shape[i] = npy->shape[i];
		f.item_elements *= npy->shape[i];
	}
	f.item_nbytes = f.item_elements * ps_dtype_nbytes(dtype);
	if (f.item_elements == 0 || ps_field_npy.measure(&f, data, size, &piece, NULL) < 0)
		return;
	dst = malloc(npy->count * ps_dtype_nbytes(dtype) + 1);
	if (!dst)
		return;
	ps_field_npy.write(&f, &piece, 0, dst);
	free(dst);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ps_npy npy;

	if (ps_npy_parse(data, size, &npy, NULL) < 0)
		return 0;
	if (npy.data + npy.count * ps_dtype_nbytes(npy.dtype) != data + size)
		abort();
	write_as(&npy, npy.dtype, data, size);
	write_as(&npy, PS_I32, data, size);
	write_as(&npy, PS_F16, data, size);
	return 0;
}
