#include "config.h"

#include "batch/convert.h"

#include <string.h>

/* The conversions that are always exact and that data sets are full of; the rest goes one by one. */
#define WIDEN(from, to)                                                     \
	static void from##_to_##to(const uint8_t *src, void *dst, size_t n) \
	{                                                                   \
		to *out = dst;                                              \
                                                                            \
		for (size_t i = 0; i < n; i++) {                            \
			from v;                                             \
                                                                            \
			memcpy(&v, src + i * sizeof(v), sizeof(v));         \
			out[i] = (to)v;                                     \
		}                                                           \
	}

WIDEN(uint8_t, int32_t)
WIDEN(uint8_t, int64_t)
WIDEN(uint16_t, int32_t)
WIDEN(uint16_t, int64_t)
WIDEN(int16_t, int64_t)
WIDEN(uint32_t, int64_t)
WIDEN(int32_t, int64_t)
WIDEN(uint8_t, float)
WIDEN(float, double)

static const struct {
	enum ps_dtype from, to;
	void (*run)(const uint8_t *src, void *dst, size_t n);
} widens[] = {
        {PS_U8, PS_I32, uint8_t_to_int32_t},
        {PS_U8, PS_I64, uint8_t_to_int64_t},
        {PS_U16, PS_I32, uint16_t_to_int32_t},
        {PS_U16, PS_I64, uint16_t_to_int64_t},
        {PS_I16, PS_I64, int16_t_to_int64_t},
        {PS_U32, PS_I64, uint32_t_to_int64_t},
        {PS_I32, PS_I64, int32_t_to_int64_t},
        {PS_U8, PS_F32, uint8_t_to_float},
        {PS_F32, PS_F64, float_to_double},
};

size_t ps_convert(enum ps_dtype from, bool swapped, const void *src, enum ps_dtype to, void *dst, size_t n)
{
	size_t in = ps_dtype_nbytes(from), out = ps_dtype_nbytes(to);

	if (n == 0)
		return 0;
	swapped = swapped && in > 1;
	if (from == to && !swapped && from != PS_BOOL) {
		memcpy(dst, src, n * in);
		return n;
	}
	for (size_t i = 0; i < PS_ARRAY_LEN(widens) && !swapped; i++) {
		if (widens[i].from == from && widens[i].to == to) {
			widens[i].run(src, dst, n);
			return n;
		}
	}
	for (size_t i = 0; i < n; i++) {
		struct ps_number v = ps_number_load(from, swapped, (const uint8_t *)src + i * in);

		if (!ps_number_store(&v, to, (uint8_t *)dst + i * out))
			return i;
	}
	return n;
}

void ps_fill(enum ps_dtype dtype, const void *value, void *dst, size_t n)
{
	size_t size = ps_dtype_nbytes(dtype);

	if (size == 1)
		memset(dst, *(const uint8_t *)value, n);
	else
		for (size_t i = 0; i < n; i++)
			memcpy((uint8_t *)dst + i * size, value, size);
}
