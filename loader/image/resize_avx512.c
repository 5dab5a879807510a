/* The definition of resize.h for AVX-512 (F and BW); the rest of the library needs no such processor. As
 * resize_avx2.c, with twice the width: a register holds four outputs, columns j, j + 4, j + 8, j + 12, a lane
 * each, and tails are masked. */
#include "image/resize_kernel.h"

#ifdef PS_RESIZE_HAVE_AVX2

#include <immintrin.h>
#include <string.h>

#define AVX512 __attribute__((target("avx512f,avx512bw")))
#define INLINE static inline __attribute__((always_inline, target("avx512f,avx512bw")))

#define GROUP 16u        /* outputs */
#define LANES 4u         /* of a register: one output each */
#define TAPS_PER_LOAD 4u /* 12 of the 16 bytes */
#define COLUMNS 32u      /* of one vertical step */

static uint32_t groups(const struct ps_resize_axis *axis)
{
	return (axis->n + GROUP - 1) / GROUP;
}

/* Layout: [group][16 offsets in bytes], then [group][j of 4][pair of taps][lane of 4][4 times the pair]. */
static size_t packed_nbytes(const struct ps_resize_axis *axis)
{
	size_t pairs = (size_t)groups(axis) * (GROUP / LANES) * (axis->taps / 2);
	return groups(axis) * GROUP * sizeof(uint32_t) + pairs * sizeof(__m512i);
}

static void pack(const struct ps_resize_axis *axis, void *ret_packed)
{
	uint32_t *offset = ret_packed;
	uint32_t *to = offset + (size_t)groups(axis) * GROUP;
	for (uint32_t i = 0; i < groups(axis) * GROUP; i++)
		offset[i] = i < axis->n ? axis->first[i] * 3 : 0;
	for (uint32_t g = 0; g < groups(axis) * GROUP; g += GROUP) {
		for (uint32_t j = g; j < g + 4; j++) {
			for (uint32_t k = 0; k < axis->taps; k += 2) {
				for (uint32_t out = j; out < g + GROUP; out += 4, to += 4) {
					uint32_t pair = 0;
					if (out < axis->n)
						memcpy(&pair, axis->weights + (size_t)out * axis->taps + k,
						        sizeof pair);
					for (uint32_t l = 0; l < 4; l++)
						to[l] = pair;
				}
			}
		}
	}
}

INLINE __m512i load_four(const uint8_t *rgb, const uint32_t *offset)
{
	__m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(rgb + offset[0])));
	v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(rgb + offset[4])), 1);
	v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(rgb + offset[8])), 2);
	return _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(rgb + offset[12])), 3);
}

/* Sum of the taps of outputs j, j + 4, j + 8, j + 12: r g b 0 in each lane. */
INLINE __m512i four_outputs(const uint8_t *rgb, const uint32_t *offset, const __m512i *w, uint32_t loads)
{
	const __m512i taps01 = _mm512_broadcast_i32x4(
	        _mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
	const __m512i taps23 = _mm512_broadcast_i32x4(
	        _mm_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1));
	__m512i sum = _mm512_setzero_si512();
	for (uint32_t l = 0; l < loads; l++) {
		__m512i v = load_four(rgb + (size_t)l * 3 * TAPS_PER_LOAD, offset);
		__m512i a = _mm512_madd_epi16(_mm512_shuffle_epi8(v, taps01), _mm512_loadu_si512(w + 2 * l));
		__m512i b =
		        _mm512_madd_epi16(_mm512_shuffle_epi8(v, taps23), _mm512_loadu_si512(w + 2 * l + 1));
		sum = _mm512_add_epi32(sum, _mm512_add_epi32(a, b));
	}
	return sum;
}

/* sums[j]: outputs j, j + 4, ... . Stores sixteen columns of each plane. */
INLINE void store_group(
        const __m512i sums[4], __m512i half, __m128i shift, __m512i max, int16_t *dst, size_t stride)
{
	const __m512i by_channel = _mm512_broadcast_i32x4(
	        _mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15));
	const __m512i even_first = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
	const __m512i zero = _mm512_setzero_si512();
	__m512i s[4];
	for (int j = 0; j < 4; j++)
		s[j] = _mm512_sra_epi32(_mm512_add_epi32(sums[j], half), shift);
	__m512i p01 = _mm512_packs_epi32(s[0], s[1]), p23 = _mm512_packs_epi32(s[2], s[3]);
	p01 = _mm512_shuffle_epi8(_mm512_min_epi16(_mm512_max_epi16(p01, zero), max), by_channel);
	p23 = _mm512_shuffle_epi8(_mm512_min_epi16(_mm512_max_epi16(p23, zero), max), by_channel);
	__m512i rg = _mm512_permutexvar_epi64(even_first, _mm512_unpacklo_epi32(p01, p23));
	__m512i b = _mm512_permutexvar_epi64(even_first, _mm512_unpackhi_epi32(p01, p23));
	_mm256_storeu_si256((__m256i *)dst, _mm512_castsi512_si256(rg));
	_mm256_storeu_si256((__m256i *)(dst + stride), _mm512_extracti64x4_epi64(rg, 1));
	_mm256_storeu_si256((__m256i *)(dst + 2 * stride), _mm512_castsi512_si256(b));
}

INLINE void horizontal_loads(const struct ps_resize_axis *axis, const void *packed, const uint8_t *rgb,
        int shift, int max, int16_t *dst, size_t stride, uint32_t loads)
{
	const uint32_t *offset = packed;
	const __m512i *w = (const void *)(offset + (size_t)groups(axis) * GROUP);
	const __m512i half = _mm512_set1_epi32((int)1 << (shift - 1)), most = _mm512_set1_epi16((int16_t)max);
	const __m128i by = _mm_cvtsi32_si128(shift);
	for (uint32_t i = 0; i < axis->n; i += GROUP, offset += GROUP) {
		__m512i sums[4];
		for (int j = 0; j < 4; j++, w += 2 * loads)
			sums[j] = four_outputs(rgb, offset + j, w, loads);
		store_group(sums, half, by, most, dst + i, stride);
	}
}

AVX512 static void horizontal(const struct ps_resize_axis *axis, const void *packed, const uint8_t *rgb,
        int shift, int max, int16_t *dst, size_t stride)
{
	uint32_t loads = axis->taps / TAPS_PER_LOAD;
	if (loads == 1)
		horizontal_loads(axis, packed, rgb, shift, max, dst, stride, 1);
	else if (loads == 2)
		horizontal_loads(axis, packed, rgb, shift, max, dst, stride, 2);
	else
		horizontal_loads(axis, packed, rgb, shift, max, dst, stride, loads);
}

/* 32 finished columns (those of the mask), 0 to 255 as 16-bit numbers, in order. */
INLINE __m512i vertical(const int16_t *const *rows, const int16_t *weights, uint32_t npairs, __m512i half,
        __m128i shift, uint32_t x, __mmask32 mask)
{
	__m512i lo = half, hi = half;
	for (uint32_t k = 0; k < npairs; k++) {
		int32_t pair;
		memcpy(&pair, weights + 2 * k, sizeof pair);
		__m512i w = _mm512_set1_epi32(pair);
		__m512i a = _mm512_maskz_loadu_epi16(mask, rows[2 * k] + x);
		__m512i b = _mm512_maskz_loadu_epi16(mask, rows[2 * k + 1] + x);
		lo = _mm512_add_epi32(lo, _mm512_madd_epi16(_mm512_unpacklo_epi16(a, b), w));
		hi = _mm512_add_epi32(hi, _mm512_madd_epi16(_mm512_unpackhi_epi16(a, b), w));
	}
	__m512i v = _mm512_packs_epi32(_mm512_sra_epi32(lo, shift), _mm512_sra_epi32(hi, shift));
	return _mm512_min_epi16(_mm512_max_epi16(v, _mm512_setzero_si512()), _mm512_set1_epi16(255));
}

/* Sixteen floats as 16-bit numbers, or themselves, to column x on. */
INLINE void store_half(enum ps_dtype dtype, __m512 f, __mmask16 mask, void *dst, uint32_t x)
{
	if (dtype == PS_F32) {
		_mm512_mask_storeu_ps((float *)dst + x, mask, f);
		return;
	}
	__m256i h;
	if (dtype == PS_F16) {
		h = _mm512_cvtps_ph(f, _MM_FROUND_TO_NEAREST_INT);
	} else {
		__m512i i = _mm512_castps_si512(f);
		__m512i odd = _mm512_and_si512(_mm512_srli_epi32(i, 16), _mm512_set1_epi32(1));
		i = _mm512_add_epi32(i, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
		h = _mm512_cvtepi32_epi16(_mm512_srli_epi32(i, 16));
	}
	_mm512_mask_storeu_epi16((uint16_t *)dst + x, mask, _mm512_castsi256_si512(h));
}

INLINE void vertical_pairs(enum ps_dtype dtype, const int16_t *const *rows, const int16_t *weights,
        uint32_t npairs, int shift, uint32_t n, float scale, float bias, void *dst)
{
	const __m512i half = _mm512_set1_epi32((int)1 << (shift - 1));
	const __m128i by = _mm_cvtsi32_si128(shift);
	const __m512 s = _mm512_set1_ps(scale), b = _mm512_set1_ps(bias);
	for (uint32_t x = 0; x < n; x += COLUMNS) {
		__mmask32 mask = n - x >= COLUMNS ? ~(__mmask32)0 : (__mmask32)((1u << (n - x)) - 1);
		__m512i v = vertical(rows, weights, npairs, half, by, x, mask);
		if (dtype == PS_U8) {
			_mm512_mask_storeu_epi8((uint8_t *)dst + x, mask,
			        _mm512_castsi256_si512(_mm512_cvtepi16_epi8(v)));
			continue;
		}
		__m512 f0 = _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(_mm512_castsi512_si256(v)));
		__m512 f1 = _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(_mm512_extracti64x4_epi64(v, 1)));
		store_half(dtype, _mm512_add_ps(_mm512_mul_ps(f0, s), b), (__mmask16)mask, dst, x);
		store_half(dtype, _mm512_add_ps(_mm512_mul_ps(f1, s), b), (__mmask16)(mask >> 16), dst, x + 16);
	}
}

/* One and two pairs (up to four taps: enlarging, and shrinking to two thirds) get loops without branches. */
#define VERTICAL(name, dtype)                                                                               \
	AVX512 static void name(const int16_t *const *rows, const int16_t *weights, uint32_t npairs,        \
	        int shift, uint32_t n, float scale, float bias, void *dst)                                  \
	{                                                                                                   \
		if (npairs == 1)                                                                            \
			vertical_pairs(dtype, rows, weights, 1, shift, n, scale, bias, dst);                \
		else if (npairs == 2)                                                                       \
			vertical_pairs(dtype, rows, weights, 2, shift, n, scale, bias, dst);                \
		else                                                                                        \
			vertical_pairs(dtype, rows, weights, npairs, shift, n, scale, bias, dst);           \
	}

VERTICAL(vertical_u8, PS_U8)
VERTICAL(vertical_f32, PS_F32)
VERTICAL(vertical_f16, PS_F16)
VERTICAL(vertical_bf16, PS_BF16)

const struct ps_resize_kernels ps_resize_avx512 = {
        .packed_nbytes = packed_nbytes,
        .pack = pack,
        .horizontal = horizontal,
        .vertical = {vertical_u8, vertical_f32, vertical_f16, vertical_bf16},
};

#endif
