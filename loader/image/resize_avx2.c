/* The resize that picture.h defines, for AVX2. Only the functions of this file are compiled for it, by
 * their target attribute.
 *
 * Horizontal: eight outputs at a time. A register holds two of them, columns j and j + 4, a lane each, so
 * that packing to 16 bits and one permutation bring the eight into order. One 16-byte load per output covers
 * four taps; a byte shuffle makes 16-bit pairs of neighbouring pixels, channel by channel, and madd does two
 * taps:
 *
 *   bytes      r0 g0 b0 r1 g1 b1 r2 g2 b2 r3 g3 b3 ....        of output j (and j + 4 in the upper lane)
 *   taps 0, 1  r0 r1 | g0 g1 | b0 b1 | 0 0   times   w0 w1 | w0 w1 | w0 w1 | w0 w1
 *   taps 2, 3  r2 r3 | g2 g3 | b2 b3 | 0 0   times   w2 w3 | ... */
#include "image/picture.h"

#ifdef PS_RESIZE_HAVE_AVX2

#include <immintrin.h>
#include <string.h>

#define AVX2 __attribute__((target("avx2,f16c")))
#define INLINE static inline __attribute__((always_inline, target("avx2,f16c")))

#define GROUP 8u         /* outputs at a time */
#define TAPS_PER_LOAD 4u /* in 12 of its 16 bytes */
#define PAIR_WEIGHTS 16u /* 16-bit weights of one madd */

static uint32_t groups(const struct ps_resize_axis *axis)
{
	return (axis->n + GROUP - 1) / GROUP;
}

/* Layout: [group][8 offsets in bytes], then [group][j of 4][pair of taps][16 weights]. */
static size_t packed_nbytes(const struct ps_resize_axis *axis)
{
	size_t weights =
	        (size_t)groups(axis) * (GROUP / 2) * (axis->taps / 2) * PAIR_WEIGHTS * sizeof(int16_t);
	return groups(axis) * GROUP * sizeof(uint32_t) + weights;
}

static void pack(const struct ps_resize_axis *axis, void *ret_packed)
{
	uint32_t *offset = ret_packed;
	uint32_t *pair = offset + (size_t)groups(axis) * GROUP;
	for (uint32_t i = 0; i < groups(axis) * GROUP; i++)
		offset[i] = i < axis->n ? axis->first[i] * 3 : 0;
	for (uint32_t g = 0; g < groups(axis) * GROUP; g += GROUP) {
		for (uint32_t j = g; j < g + GROUP / 2; j++) {
			for (uint32_t k = 0; k < axis->taps; k += 2, pair += PAIR_WEIGHTS / 2) {
				uint32_t a = 0, b = 0;
				if (j < axis->n)
					memcpy(&a, axis->weights + (size_t)j * axis->taps + k, sizeof(a));
				if (j + 4 < axis->n)
					memcpy(&b, axis->weights + (size_t)(j + 4) * axis->taps + k,
					        sizeof(b));
				for (uint32_t l = 0; l < 4; l++) {
					pair[l] = a;
					pair[4 + l] = b;
				}
			}
		}
	}
}

INLINE __m256i load_two(const uint8_t *a, const uint8_t *b)
{
	__m128i lower = _mm_loadu_si128((const __m128i *)a), upper = _mm_loadu_si128((const __m128i *)b);
	return _mm256_inserti128_si256(_mm256_castsi128_si256(lower), upper, 1);
}

/* Sums the taps of outputs j and j + 4: r g b 0 in each lane. */
INLINE __m256i two_outputs(const uint8_t *a, const uint8_t *b, const __m256i *w, uint32_t loads)
{
	const __m256i taps01 = _mm256_broadcastsi128_si256(
	        _mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
	const __m256i taps23 = _mm256_broadcastsi128_si256(
	        _mm_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1));
	__m256i v = load_two(a, b);
	__m256i sum = _mm256_add_epi32(_mm256_madd_epi16(_mm256_shuffle_epi8(v, taps01), w[0]),
	        _mm256_madd_epi16(_mm256_shuffle_epi8(v, taps23), w[1]));
	for (uint32_t l = 1; l < loads; l++) {
		v = load_two(a + (size_t)l * 3 * TAPS_PER_LOAD, b + (size_t)l * 3 * TAPS_PER_LOAD);
		sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_shuffle_epi8(v, taps01), w[2 * l]));
		sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_shuffle_epi8(v, taps23), w[2 * l + 1]));
	}
	return sum;
}

/* Stores eight columns of each plane; sums[j] has outputs j and j + 4. */
INLINE void store_group(
        const __m256i sums[4], __m256i half, __m128i shift, __m256i max, int16_t *dst, size_t stride)
{
	const __m256i by_channel = _mm256_broadcastsi128_si256(
	        _mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15));
	__m256i s[4];
	for (int j = 0; j < 4; j++)
		s[j] = _mm256_sra_epi32(_mm256_add_epi32(sums[j], half), shift);
	__m256i zero = _mm256_setzero_si256();
	__m256i p01 = _mm256_packs_epi32(s[0], s[1]), p23 = _mm256_packs_epi32(s[2], s[3]);
	p01 = _mm256_shuffle_epi8(_mm256_min_epi16(_mm256_max_epi16(p01, zero), max), by_channel);
	p23 = _mm256_shuffle_epi8(_mm256_min_epi16(_mm256_max_epi16(p23, zero), max), by_channel);
	__m256i rg = _mm256_permute4x64_epi64(_mm256_unpacklo_epi32(p01, p23), 0xd8);
	__m256i b = _mm256_permute4x64_epi64(_mm256_unpackhi_epi32(p01, p23), 0xd8);
	_mm_storeu_si128((__m128i *)dst, _mm256_castsi256_si128(rg));
	_mm_storeu_si128((__m128i *)(dst + stride), _mm256_extracti128_si256(rg, 1));
	_mm_storeu_si128((__m128i *)(dst + 2 * stride), _mm256_castsi256_si128(b));
}

INLINE void horizontal_loads(const struct ps_resize_axis *axis, const void *packed, const uint8_t *rgb,
        int shift, int max, int16_t *dst, size_t stride, uint32_t loads)
{
	const uint32_t *offset = packed;
	const __m256i *w = (const __m256i *)(const void *)(offset + (size_t)groups(axis) * GROUP);
	const __m256i half = _mm256_set1_epi32((int)1 << (shift - 1)), most = _mm256_set1_epi16((int16_t)max);
	const __m128i by = _mm_cvtsi32_si128(shift);
	for (uint32_t i = 0; i < axis->n; i += GROUP, offset += GROUP) {
		__m256i sums[4];
		for (int j = 0; j < 4; j++, w += 2 * loads)
			sums[j] = two_outputs(rgb + offset[j], rgb + offset[j + 4], w, loads);
		store_group(sums, half, by, most, dst + i, stride);
	}
}

AVX2 static void horizontal(const struct ps_resize_axis *axis, const void *packed, const uint8_t *rgb,
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

/* Computes sixteen finished columns, 0 to 255 as 16-bit numbers, in order. */
INLINE __m256i vertical(const int16_t *const *rows, const int16_t *weights, uint32_t npairs, __m256i half,
        __m128i shift, uint32_t x)
{
	__m256i lo = half, hi = half;
	for (uint32_t k = 0; k < npairs; k++) {
		int32_t pair;
		memcpy(&pair, weights + 2 * k, sizeof(pair));
		__m256i w = _mm256_set1_epi32(pair);
		__m256i a = _mm256_loadu_si256((const __m256i *)(rows[2 * k] + x));
		__m256i b = _mm256_loadu_si256((const __m256i *)(rows[2 * k + 1] + x));
		lo = _mm256_add_epi32(lo, _mm256_madd_epi16(_mm256_unpacklo_epi16(a, b), w));
		hi = _mm256_add_epi32(hi, _mm256_madd_epi16(_mm256_unpackhi_epi16(a, b), w));
	}
	__m256i v = _mm256_packs_epi32(_mm256_sra_epi32(lo, shift), _mm256_sra_epi32(hi, shift));
	return _mm256_min_epi16(_mm256_max_epi16(v, _mm256_setzero_si256()), _mm256_set1_epi16(255));
}

/* Stores sixteen finished columns as a dtype. */
INLINE void store(enum ps_dtype dtype, __m256i v, __m256 s, __m256 b, void *dst)
{
	if (dtype == PS_U8) {
		__m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
		_mm_storeu_si128(dst, bytes);
		return;
	}
	__m256 f0 = _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(_mm256_castsi256_si128(v)));
	__m256 f1 = _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(_mm256_extracti128_si256(v, 1)));
	f0 = _mm256_add_ps(_mm256_mul_ps(f0, s), b);
	f1 = _mm256_add_ps(_mm256_mul_ps(f1, s), b);
	if (dtype == PS_F32) {
		_mm256_storeu_ps(dst, f0);
		_mm256_storeu_ps((float *)dst + 8, f1);
	} else if (dtype == PS_F16) {
		_mm_storeu_si128(dst, _mm256_cvtps_ph(f0, _MM_FROUND_TO_NEAREST_INT));
		_mm_storeu_si128((__m128i *)dst + 1, _mm256_cvtps_ph(f1, _MM_FROUND_TO_NEAREST_INT));
	} else {
		const __m256i most = _mm256_set1_epi32(0x7fff), one = _mm256_set1_epi32(1);
		__m256i i0 = _mm256_castps_si256(f0), i1 = _mm256_castps_si256(f1);
		__m256i odd0 = _mm256_and_si256(_mm256_srli_epi32(i0, 16), one);
		__m256i odd1 = _mm256_and_si256(_mm256_srli_epi32(i1, 16), one);
		i0 = _mm256_srli_epi32(_mm256_add_epi32(i0, _mm256_add_epi32(odd0, most)), 16);
		i1 = _mm256_srli_epi32(_mm256_add_epi32(i1, _mm256_add_epi32(odd1, most)), 16);
		_mm256_storeu_si256(dst, _mm256_permute4x64_epi64(_mm256_packus_epi32(i0, i1), 0xd8));
	}
}

INLINE void vertical_pairs(enum ps_dtype dtype, const int16_t *const *rows, const int16_t *weights,
        uint32_t npairs, int shift, uint32_t n, float scale, float bias, void *dst)
{
	const __m256i half = _mm256_set1_epi32((int)1 << (shift - 1));
	const __m128i by = _mm_cvtsi32_si128(shift);
	const __m256 s = _mm256_set1_ps(scale), b = _mm256_set1_ps(bias);
	const size_t esize = dtype == PS_U8 ? 1 : dtype == PS_F32 ? 4 : 2;
	for (uint32_t x = 0; x < n; x += PS_RESIZE_LANES) {
		__m256i v = vertical(rows, weights, npairs, half, by, x);
		if (n - x >= PS_RESIZE_LANES) {
			store(dtype, v, s, b, (uint8_t *)dst + x * esize);
		} else {
			uint8_t tail[PS_RESIZE_LANES * sizeof(float)];
			store(dtype, v, s, b, tail);
			memcpy((uint8_t *)dst + x * esize, tail, (n - x) * esize);
		}
	}
}

/* One and two pairs (up to four taps: enlarging, and shrinking to two thirds) have loops without branches. */
#define VERTICAL(name, dtype)                                                                      \
	AVX2 static void name(const int16_t *const *rows, const int16_t *weights, uint32_t npairs, \
	        int shift, uint32_t n, float scale, float bias, void *dst)                         \
	{                                                                                          \
		if (npairs == 1)                                                                   \
			vertical_pairs(dtype, rows, weights, 1, shift, n, scale, bias, dst);       \
		else if (npairs == 2)                                                              \
			vertical_pairs(dtype, rows, weights, 2, shift, n, scale, bias, dst);       \
		else                                                                               \
			vertical_pairs(dtype, rows, weights, npairs, shift, n, scale, bias, dst);  \
	}

VERTICAL(vertical_u8, PS_U8)
VERTICAL(vertical_f32, PS_F32)
VERTICAL(vertical_f16, PS_F16)
VERTICAL(vertical_bf16, PS_BF16)

const struct ps_resize_kernels ps_resize_avx2 = {
        .packed_nbytes = packed_nbytes,
        .pack = pack,
        .horizontal = horizontal,
        .vertical = {vertical_u8, vertical_f32, vertical_f16, vertical_bf16},
};

#endif
