/* Kernels of PTX for the tests' CUDA driver: with MOCK_CUDA_PTX=FILE in the environment, the kernels in that
 * file, which nvcc made of device/kernels/kernels.cu, are launched instead of the kernels compiled as C. At
 * the end of the process the file that MOCK_CUDA_PTX_COVERAGE names gets a report of the instructions that
 * ran (ptx_module_coverage()).
 *
 * Threads: any; one launch at a time. Errors: are printed to stderr. */
#ifndef TESTS_PTX_MOCK_H
#define TESTS_PTX_MOCK_H

#include <stdbool.h>
#include <stddef.h>

#include "ptx.h"

bool mock_ptx_wanted(void);

/* Finds a kernel of the file, which is read once. NULL: the file cannot be read, has no such kernel, or the
 * kernel has other arguments or float instructions that may give other results than the CPU. */
struct ptx_kernel *mock_ptx_kernel(const char *name, size_t args_nbytes);

/* False: the kernel had a fault, or no GPU accepts such a launch. */
bool mock_ptx_launch(struct ptx_kernel *kernel, const struct ptx_launch *launch);

#endif
