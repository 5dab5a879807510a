/* The GPU kernels (the rows of PS_KERNELS), compiled as C and in a table by name. The threads of a block run
 * one after the other. Include in one file of a program. */
#ifndef TESTS_LOADER_KERNEL_LINES_H
#define TESTS_LOADER_KERNEL_LINES_H

#include "device/kernels/kernels.h"

#define RUN(name, args, shared_nbytes, call)                                     \
	static void run_##name(const void *all, uint32_t nblocks)                \
	{                                                                        \
		static uint8_t shared[(shared_nbytes) > 0 ? (shared_nbytes) : 1] \
		        __attribute__((aligned(16)));                            \
		struct args a;                                                   \
		memcpy(&a, all, sizeof(a));                                      \
		(void)shared;                                                    \
		for (uint32_t block = 0; block < nblocks; block++)               \
			call;                                                    \
	}
PS_KERNELS(RUN)
#undef RUN

static const struct kernel {
	const char *name;
	size_t args_nbytes;
	void (*run)(const void *args, uint32_t nblocks);
} kernels[] = {
#define ROW(name, args, shared_nbytes, call) {"ps_kernel_" #name, sizeof(struct args), run_##name},
        PS_KERNELS(ROW)
#undef ROW
};

#endif
