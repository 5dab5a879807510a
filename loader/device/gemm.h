/* A product of two square matrices of f32: work for a GPU that stands for a model's (bench --step-ms). Each thread
 * makes four by four elements; both matrices are read by rows, the first one transposed. */
#ifndef PS_DEVICE_GEMM_H
#define PS_DEVICE_GEMM_H

#include <string.h>

#include "device/kernel_code.h"

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

/* Loaded and stored at once. */
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
