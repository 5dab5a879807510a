/* The language of kernels, and code that several of them share. */
#ifndef PS_DEVICE_KERNEL_CODE_H
#define PS_DEVICE_KERNEL_CODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/dtype.h"
#include "image/pixel/pixel.h"

/* The language in which kernels are written once for two compilers. nvcc compiles them for GPUs (kernels.cu).
 * A C compiler compiles them for tests, where the same lines run over host memory (tests/loader/mock_cuda.c).
 *
 * A kernel is a function of a block's number. The parallel work of its threads is in PS_THREADS(t) { ... };
 * PS_TOGETHER() between two PS_THREADS is a barrier. Only `shared` keeps values from one PS_THREADS to the
 * next. A block that has nothing to do returns outside of PS_THREADS.
 *
 * Arithmetic is that of the CPU's code, to the bit: nvcc must not contract multiplications and additions
 * (-fmad=false), and headers that both compilers include mark their functions PS_BOTH (base/dtype.h). */

#define PS_KERNEL_THREADS 256u /* threads of each block of each kernel */

#ifdef __CUDACC__
#define PS_THREADS(t) for (uint32_t t = threadIdx.x, t##_end = t + 1; t < t##_end; t++)
#define PS_TOGETHER() __syncthreads()
#define PS_ADD_U64(place, n) atomicAdd((unsigned long long *)(place), (unsigned long long)(n))
#define PS_UNROLL _Pragma("unroll")
#else
#define PS_THREADS(t) for (uint32_t t = 0; t < PS_KERNEL_THREADS; t++)
#define PS_TOGETHER() ((void)0)
#define PS_ADD_U64(place, n) (*(place) += (n))
#define PS_UNROLL
#endif

/* 16 bytes that are copied at once; aligned to 16. */
struct ps_bytes16 {
	uint32_t w[4];
} __attribute__((aligned(16)));

/* Loads n bytes at once (1, 4, 8 or 16, and aligned to that) as words, lowest byte first. nvcc would compile
 * a memcpy() of 4 or 16 bytes to loads of single bytes. */
PS_BOTH void ps_words_load(uint32_t ret_words[4], const uint8_t *p, uint32_t n)
{
#ifdef __CUDA_ARCH__
	if (n == 16) {
		uint4 v = *(const uint4 *)(const void *)p;
		ret_words[0] = v.x;
		ret_words[1] = v.y;
		ret_words[2] = v.z;
		ret_words[3] = v.w;
	} else if (n == 8) {
		uint2 v = *(const uint2 *)(const void *)p;
		ret_words[0] = v.x;
		ret_words[1] = v.y;
	} else if (n == 4) {
		ret_words[0] = *(const uint32_t *)(const void *)p;
	} else {
		ret_words[0] = *p;
	}
#else
	memset(ret_words, 0, 16);
	for (uint32_t i = 0; i < n; i++)
		ret_words[i / 4] |= (uint32_t)p[i] << 8 * (i % 4);
#endif
}

PS_BOTH uint8_t ps_words_byte(const uint32_t *words, uint32_t i)
{
	return (uint8_t)(words[i / 4] >> 8 * (i % 4));
}

/* Images ------------------------------------------------------------------------------------------------- */

/* The images of a field, as kernels see them: one after the other. An image is one view of a row; its pixels
 * are three planes of bytes. */

struct ps_images {
	uint8_t *planes; /* as they were copied; all steps but the affine one work in place */
	/* room of the same size, for the results of PS_IMAGE_AFFINE; NULL: no image takes that step */
	uint8_t *moved;
	struct ps_image_ops *ops; /* one for each image; NULL: no image has any */
	uint32_t nimages, width, height;
	uint32_t npixels; /* width * height */
};

/* The planes of an image after the affine step. */
PS_BOTH uint8_t *ps_image_planes(const struct ps_images *a, uint32_t image)
{
	bool moved = a->ops && a->ops[image].what & PS_IMAGE_AFFINE;

	return (moved ? a->moved : a->planes) + (size_t)image * 3 * a->npixels;
}

/* A product of matrices ---------------------------------------------------------------------------------- */

/* A product of two square matrices of f32, which stands for a model's work on the GPU (bench --step-ms). Each
 * thread makes four by four elements. Both matrices are read by rows, so the first one is transposed. */

#define PS_GEMM_TILE 64u /* rows and columns that a block makes */

struct ps_gemm_args {
	const float *a, *b; /* n by n; c[y][x] = sum of a[k][y] * b[k][x] */
	float *c;
	uint32_t n; /* a multiple of PS_GEMM_TILE */
};

PS_BOTH uint32_t ps_gemm_blocks(uint32_t n)
{
	return n / PS_GEMM_TILE * (n / PS_GEMM_TILE);
}

/* Four floats that are loaded and stored at once. */
struct __attribute__((aligned(16))) ps_floats4 {
	float v[4];
};

PS_BOTH void ps_gemm_block(const struct ps_gemm_args *g, uint32_t block, uint8_t *shared)
{
	const uint32_t n = g->n, tiles = n / PS_GEMM_TILE;

	(void)shared;
	PS_THREADS(t)
	{
		const uint32_t x = block % tiles * PS_GEMM_TILE + t % 16 * 4;
		const uint32_t y = block / tiles * PS_GEMM_TILE + t / 16 * 4;
		struct ps_floats4 sum[4];

		memset(sum, 0, sizeof(sum));
		for (uint32_t k = 0; k < n; k++) {
			const struct ps_floats4 a = *(const struct ps_floats4 *)(g->a + (size_t)k * n + y);
			const struct ps_floats4 b = *(const struct ps_floats4 *)(g->b + (size_t)k * n + x);

			PS_UNROLL
			for (uint32_t i = 0; i < 16; i++)
				sum[i / 4].v[i % 4] += a.v[i / 4] * b.v[i % 4];
		}
		PS_UNROLL
		for (uint32_t i = 0; i < 4; i++)
			*(struct ps_floats4 *)(g->c + (size_t)(y + i) * n + x) = sum[i];
	}
}

#endif
