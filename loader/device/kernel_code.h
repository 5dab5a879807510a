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

/* Bytes that are loaded and stored at once; aligned to their size. */
struct ps_bytes4 {
	uint32_t w[1];
};
struct ps_bytes8 {
	uint32_t w[2];
};
struct ps_bytes16 {
	uint32_t w[4];
};

#endif
