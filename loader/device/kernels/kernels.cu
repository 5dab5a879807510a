/* Entries of the kernels of kernels.h for GPUs; what they do is in the headers. */
#include "device/kernels/kernels.h"

#pragma nv_diag_suppress 177, 550 /* not every kernel has a use for shared memory */

#define ENTRY(name, args, shared_nbytes, call)                                               \
	extern "C" __global__ void __launch_bounds__(PS_KERNEL_THREADS)                        \
	        ps_kernel_##name(const __grid_constant__ struct args a)                          \
	{                                                                                    \
		__shared__ __align__(16) uint8_t shared[(shared_nbytes) > 0 ? (shared_nbytes) : 1]; \
		const uint32_t block = blockIdx.x;                                           \
		call;                                                                        \
	}
PS_KERNELS(ENTRY)
