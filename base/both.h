/* PS_BOTH: an inline function of the processor's code and of kernels for GPUs (device/kernel_code.h), where
 * nvcc includes its header: what it may use is C that is C++, too, and other such functions. */
#ifndef PS_BASE_BOTH_H
#define PS_BASE_BOTH_H

#ifdef __CUDACC__
#define PS_BOTH __host__ __device__ static inline
#else
#define PS_BOTH static inline
#endif

#endif
