/* A float as 16 bits: to the nearest, halves to even. Vector units must agree to the bit.
 *
 *   f16   1 sign, 5 exponent, 10 fraction bits: beyond 65519.99 infinite, below 2^-14 subnormal
 *   bf16  the upper half of the float
 * NaN stays NaN, quiet. GPUs have instructions for it. Threads: any. Errors: none. */
#ifndef PS_BASE_HALF_H
#define PS_BASE_HALF_H

#include <stdint.h>
#include <string.h>

#include "base/both.h"

PS_BOTH uint32_t ps_float_bits(float f)
{
	uint32_t bits;
	memcpy(&bits, &f, sizeof bits);
	return bits;
}

PS_BOTH float ps_float_of_bits(uint32_t bits)
{
	float f;
	memcpy(&f, &bits, sizeof f);
	return f;
}

PS_BOTH uint16_t ps_bf16_of(float f)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
	uint16_t h;
	asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(f));
	return h;
#endif
	uint32_t bits = ps_float_bits(f);
	if ((bits & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

PS_BOTH float ps_float_of_bf16(uint16_t h)
{
	return ps_float_of_bits((uint32_t)h << 16);
}

PS_BOTH uint16_t ps_f16_of(float f)
{
#ifdef __CUDA_ARCH__
	uint16_t h;
	asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
	return h;
#endif
	uint32_t bits = ps_float_bits(f), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
	if (rest > 0x7f800000)
		return (uint16_t)(sign | 0x7e00 | (rest >> 13 & 0x3ff));
	if (rest >= 0x47800000) /* 65536 and beyond */
		return (uint16_t)(sign | 0x7c00);
	if (rest >= 0x38800000) { /* 2^-14: normal; a carry out of the fraction raises the exponent */
		rest -= 0x38000000;
		return (uint16_t)(sign | ((rest + 0xfff + (rest >> 13 & 1)) >> 13));
	}
	/* Subnormal: adding 0.5 lets the sum's own rounding cut at 2^-24. */
	return (uint16_t)(sign | (ps_float_bits(ps_float_of_bits(rest) + 0.5f) - ps_float_bits(0.5f)));
}

PS_BOTH float ps_float_of_f16(uint16_t h)
{
#ifdef __CUDA_ARCH__
	float wide;
	asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(h));
	return wide;
#endif
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 0x1f, fraction = h & 0x3ff;
	if (exponent == 31)
		return ps_float_of_bits(sign | 0x7f800000 | fraction << 13);
	if (exponent == 0) {
		float f = (float)fraction * 0x1p-24f;
		return sign ? -f : f;
	}
	return ps_float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

#endif
