/* The resize that picture.h defines, in plain C. */
#include "base/dtype.h"
#include "image/picture.h"
#include "image/pixel/pixel.h"

static int32_t clamp(int32_t v, int32_t max)
{
	return v < 0 ? 0 : v > max ? max : v;
}

static void horizontal(const struct ps_resize_axis *axis, const void *packed, const uint8_t *rgb, int shift,
        int max, int16_t *dst, size_t stride)
{
	(void)packed;
	const int32_t half = (int32_t)1 << (shift - 1);
	for (uint32_t i = 0; i < axis->n; i++) {
		const uint8_t *s = rgb + (size_t)axis->first[i] * 3;
		const int16_t *w = axis->weights + (size_t)i * axis->taps;
		int32_t red = half, green = half, blue = half;
		for (uint32_t k = 0; k < axis->count[i]; k++, s += 3) {
			red += w[k] * s[0];
			green += w[k] * s[1];
			blue += w[k] * s[2];
		}
		dst[i] = (int16_t)clamp(red >> shift, max);
		dst[stride + i] = (int16_t)clamp(green >> shift, max);
		dst[2 * stride + i] = (int16_t)clamp(blue >> shift, max);
	}
}

static int32_t vertical(
        const int16_t *const *rows, const int16_t *weights, uint32_t nrows, int shift, uint32_t x)
{
	int32_t sum = (int32_t)1 << (shift - 1);
	for (uint32_t k = 0; k < nrows; k++)
		sum += weights[k] * rows[k][x];
	return clamp(sum >> shift, 255);
}

static void vertical_u8(const int16_t *const *rows, const int16_t *weights, uint32_t npairs, int shift,
        uint32_t n, float scale, float bias, void *dst)
{
	(void)scale;
	(void)bias;
	for (uint32_t x = 0; x < n; x++)
		((uint8_t *)dst)[x] = (uint8_t)vertical(rows, weights, 2 * npairs, shift, x);
}

#define VERTICAL(name, type, of)                                                                         \
	static void name(const int16_t *const *rows, const int16_t *weights, uint32_t npairs, int shift, \
	        uint32_t n, float scale, float bias, void *dst)                                          \
	{                                                                                                \
		for (uint32_t x = 0; x < n; x++)                                                         \
			((type *)dst)[x] = of(ps_pixel_normalised(                                       \
			        (uint32_t)vertical(rows, weights, 2 * npairs, shift, x), scale, bias));  \
	}

VERTICAL(vertical_f32, float, )
VERTICAL(vertical_f16, uint16_t, ps_f16_of)
VERTICAL(vertical_bf16, uint16_t, ps_bf16_of)

const struct ps_resize_kernels ps_resize_portable = {
        .horizontal = horizontal,
        .vertical = {vertical_u8, vertical_f32, vertical_f16, vertical_bf16},
};
