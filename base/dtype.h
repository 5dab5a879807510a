/* Element types and memory layouts of a batch's fields, and 16-bit floats. The types' numbers are stored
 * (resume state, JSON), so new types are added at the end. Threads: any. Errors: none. */
#ifndef PS_BASE_DTYPE_H
#define PS_BASE_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* PS_BOTH: an inline function for the CPU and for GPU kernels (device/kernels/kernel_code.h). nvcc includes
 * its header, so the function must be valid C and C++, and may call only other PS_BOTH functions. */
#ifdef __CUDACC__
#define PS_BOTH __host__ __device__ static inline
#else
#define PS_BOTH static inline
#endif

enum ps_dtype {
	PS_U8 = 0,
	PS_F32 = 1,
	PS_F16 = 2,
	PS_BF16 = 3,
	PS_I32 = 4,
	PS_I64 = 5,
	PS_F64 = 6,
	PS_U16 = 7,
	PS_U32 = 8,
	PS_U64 = 9,
	PS_I8 = 10,
	PS_I16 = 11,
	PS_BOOL = 12, /* a byte, 0 or 1 */
	PS_NDTYPES,
};

enum ps_layout {
	PS_NCHW = 0, /* planes: all red values of an image, then green, then blue */
	PS_NHWC = 1, /* red, green, blue of a pixel side by side */
};

/* Bytes of one element; 0 for an unknown number. */
static inline size_t ps_dtype_nbytes(enum ps_dtype dtype)
{
	switch (dtype) {
	case PS_U8:
	case PS_I8:
	case PS_BOOL:
		return 1;
	case PS_F16:
	case PS_BF16:
	case PS_U16:
	case PS_I16:
		return 2;
	case PS_F32:
	case PS_I32:
	case PS_U32:
		return 4;
	case PS_I64:
	case PS_F64:
	case PS_U64:
		return 8;
	case PS_NDTYPES:
		break;
	}
	return 0;
}

/* "u8", "f32", ...; "?" for an unknown number. */
static inline const char *ps_dtype_name(enum ps_dtype dtype)
{
	static const char *const names[] = {
	        "u8", "f32", "f16", "bf16", "i32", "i64", "f64", "u16", "u32", "u64", "i8", "i16", "bool"};
	return (size_t)dtype < sizeof(names) / sizeof(names[0]) ? names[dtype] : "?";
}

/* A float rounded to 16 bits: to nearest, ties to even. Vector code must give the same bits.
 *
 *   f16   1 sign, 5 exponent, 10 fraction bits: beyond 65519.99 infinite, below 2^-14 subnormal
 *   bf16  the upper half of the float
 * NaN becomes a quiet NaN. GPUs have instructions for these conversions. */
PS_BOTH uint32_t ps_float_bits(float f)
{
	uint32_t bits;
	memcpy(&bits, &f, sizeof(bits));
	return bits;
}

PS_BOTH float ps_float_of_bits(uint32_t bits)
{
	float f;
	memcpy(&f, &bits, sizeof(f));
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
	/* Subnormal: adding 0.5 rounds the value to a multiple of 2^-24, the step of subnormal numbers. */
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
