/* What code of kernels is written in, so that it stands once: nvcc compiles it for GPUs (kernels.cu), and a C
 * compiler for tests, where the same lines run over host memory (tests/loader/mock_cuda.c).
 *
 * A kernel is a function of a block's number. What its threads do one beside the other stands in
 * PS_THREADS(t) { ... }; between two of these PS_TOGETHER(): all threads are through with the first. What is
 * known from one to the next lies in `shared`; nothing else does. A block that has nothing to do returns
 * outside of PS_THREADS.
 *
 * Arithmetic is that of the CPU's code, to the bit: nvcc is told not to contract (-fmad=false), and headers
 * that both include mark their functions PS_BOTH (base/both.h). */
#ifndef PS_DEVICE_KERNEL_CODE_H
#define PS_DEVICE_KERNEL_CODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/both.h"

#define PS_KERNEL_THREADS 256u /* of each block of each kernel */

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

/* Bytes that are copied at once; aligned to their number. */
struct ps_bytes16 {
	uint32_t w[4];
} __attribute__((aligned(16)));

/* n bytes at once (1, 4, 8 or 16, and aligned to that) as words, lowest byte first. nvcc makes single bytes
 * of a memcpy() of 4 or 16 of them. */
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

#endif
