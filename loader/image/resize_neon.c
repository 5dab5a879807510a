/* The resize that picture.h defines, for 64-bit ARM, whose processors all have NEON.
 *
 * Horizontal: four outputs at a time. One 16-byte load covers four taps; a byte shuffle puts r g b 0 of each
 * tap into four 16-bit places, and a multiply-add for each tap adds them with its weight. A transposition
 * brings the channels of four outputs together. */
#include "image/picture.h"

#ifdef PS_RESIZE_HAVE_NEON

#include <arm_neon.h>
#include <string.h>

#define GROUP 4u         /* outputs at a time */
#define TAPS_PER_LOAD 4u /* in 12 of its 16 bytes */
#define COLUMNS 8u       /* in one vertical step */

/* Sums the taps of an output: r g b 0. */
static inline int32x4_t one_output(const uint8_t *rgb, const int16_t *w, uint32_t taps, int32x4_t half)
{
	static const uint8_t spread[16] = {0, 1, 2, 255, 3, 4, 5, 255, 6, 7, 8, 255, 9, 10, 11, 255};
	const uint8x16_t by_tap = vld1q_u8(spread);
	int32x4_t sum = half;
	for (uint32_t k = 0; k < taps; k += TAPS_PER_LOAD) {
		uint8x16_t v = vqtbl1q_u8(vld1q_u8(rgb + (size_t)k * 3), by_tap);
		int16x8_t taps01 = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(v)));
		int16x8_t taps23 = vreinterpretq_s16_u16(vmovl_u8(vget_high_u8(v)));
		int16x4_t weights = vld1_s16(w + k);
		sum = vmlal_lane_s16(sum, vget_low_s16(taps01), weights, 0);
		sum = vmlal_lane_s16(sum, vget_high_s16(taps01), weights, 1);
		sum = vmlal_lane_s16(sum, vget_low_s16(taps23), weights, 2);
		sum = vmlal_lane_s16(sum, vget_high_s16(taps23), weights, 3);
	}
	return sum;
}

static inline int16x4_t shifted(int32x4_t sums, int32x4_t right, int16x4_t max)
{
	int16x4_t v = vqmovn_s32(vshlq_s32(sums, right));
	return vmin_s16(vmax_s16(v, vdup_n_s16(0)), max);
}

static void horizontal(const struct ps_resize_axis *axis, const void *packed, const uint8_t *rgb, int shift,
        int max, int16_t *dst, size_t stride)
{
	const int32x4_t half = vdupq_n_s32((int32_t)1 << (shift - 1)), right = vdupq_n_s32(-shift);
	const int16x4_t most = vdup_n_s16((int16_t)max);
	(void)packed;
	for (uint32_t i = 0; i < axis->n; i += GROUP) {
		int32x4_t s[GROUP];
		for (uint32_t j = 0; j < GROUP; j++) {
			uint32_t out = i + j < axis->n ? i + j : axis->n - 1;
			s[j] = one_output(rgb + (size_t)axis->first[out] * 3,
			        axis->weights + (size_t)out * axis->taps, axis->taps, half);
		}
		int32x4x2_t a = vtrnq_s32(s[0], s[1]), b = vtrnq_s32(s[2], s[3]);
		int32x4_t red = vcombine_s32(vget_low_s32(a.val[0]), vget_low_s32(b.val[0]));
		int32x4_t green = vcombine_s32(vget_low_s32(a.val[1]), vget_low_s32(b.val[1]));
		int32x4_t blue = vcombine_s32(vget_high_s32(a.val[0]), vget_high_s32(b.val[0]));
		vst1_s16(dst + i, shifted(red, right, most));
		vst1_s16(dst + stride + i, shifted(green, right, most));
		vst1_s16(dst + 2 * stride + i, shifted(blue, right, most));
	}
}

/* Computes eight finished columns, 0 to 255. */
static inline uint8x8_t vertical(
        const int16_t *const *rows, const int16_t *weights, uint32_t nrows, int shift, uint32_t x)
{
	int32x4_t lo = vdupq_n_s32((int32_t)1 << (shift - 1)), hi = lo;
	const int32x4_t right = vdupq_n_s32(-shift);
	for (uint32_t k = 0; k < nrows; k++) {
		int16x8_t row = vld1q_s16(rows[k] + x);
		lo = vmlal_n_s16(lo, vget_low_s16(row), weights[k]);
		hi = vmlal_n_s16(hi, vget_high_s16(row), weights[k]);
	}
	return vqmovun_s16(vcombine_s16(vqmovn_s32(vshlq_s32(lo, right)), vqmovn_s32(vshlq_s32(hi, right))));
}

static inline uint16x4_t bf16_of(float32x4_t f)
{
	uint32x4_t bits = vreinterpretq_u32_f32(f);
	uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
	return vshrn_n_u32(vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff))), 16);
}

static inline void store(enum ps_dtype dtype, uint8x8_t v, float scale, float bias, void *dst)
{
	if (dtype == PS_U8) {
		vst1_u8(dst, v);
		return;
	}
	uint16x8_t wide = vmovl_u8(v);
	float32x4_t f0 = vcvtq_f32_u32(vmovl_u16(vget_low_u16(wide)));
	float32x4_t f1 = vcvtq_f32_u32(vmovl_u16(vget_high_u16(wide)));
	f0 = vaddq_f32(vmulq_n_f32(f0, scale), vdupq_n_f32(bias));
	f1 = vaddq_f32(vmulq_n_f32(f1, scale), vdupq_n_f32(bias));
	if (dtype == PS_F32) {
		vst1q_f32(dst, f0);
		vst1q_f32((float *)dst + 4, f1);
	} else if (dtype == PS_F16) {
		vst1_u16(dst, vreinterpret_u16_f16(vcvt_f16_f32(f0)));
		vst1_u16((uint16_t *)dst + 4, vreinterpret_u16_f16(vcvt_f16_f32(f1)));
	} else {
		vst1_u16(dst, bf16_of(f0));
		vst1_u16((uint16_t *)dst + 4, bf16_of(f1));
	}
}

static inline void vertical_all(enum ps_dtype dtype, const int16_t *const *rows, const int16_t *weights,
        uint32_t npairs, int shift, uint32_t n, float scale, float bias, void *dst)
{
	const size_t esize = dtype == PS_U8 ? 1 : dtype == PS_F32 ? 4 : 2;
	for (uint32_t x = 0; x < n; x += COLUMNS) {
		uint8x8_t v = vertical(rows, weights, 2 * npairs, shift, x);
		if (n - x >= COLUMNS) {
			store(dtype, v, scale, bias, (uint8_t *)dst + x * esize);
		} else {
			uint8_t tail[COLUMNS * sizeof(float)];
			store(dtype, v, scale, bias, tail);
			memcpy((uint8_t *)dst + x * esize, tail, (n - x) * esize);
		}
	}
}

#define VERTICAL(name, dtype)                                                                            \
	static void name(const int16_t *const *rows, const int16_t *weights, uint32_t npairs, int shift, \
	        uint32_t n, float scale, float bias, void *dst)                                          \
	{                                                                                                \
		vertical_all(dtype, rows, weights, npairs, shift, n, scale, bias, dst);                  \
	}

VERTICAL(vertical_u8, PS_U8)
VERTICAL(vertical_f32, PS_F32)
VERTICAL(vertical_f16, PS_F16)
VERTICAL(vertical_bf16, PS_BF16)

const struct ps_resize_kernels ps_resize_neon = {
        .horizontal = horizontal,
        .vertical = {vertical_u8, vertical_f32, vertical_f16, vertical_bf16},
};

#endif
