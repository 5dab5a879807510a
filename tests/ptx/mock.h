/* The tests' driver over PTX: with MOCK_CUDA_PTX=FILE in the environment, kernels are those of the file,
 * which nvcc made of device/kernels/kernels.cu, instead of the lines of their headers compiled as C.
 * MOCK_CUDA_PTX_COVERAGE=FILE gets what of them ran, at the process's end (ptx_module_coverage()).
 *
 * Threads: any; one launch at a time.   Errors: what is wrong goes to stderr. */
#ifndef TESTS_PTX_MOCK_H
#define TESTS_PTX_MOCK_H

#include <stdbool.h>
#include <stddef.h>

#include "ptx.h"

bool mock_ptx_wanted(void);

/* Of the file, which is read once. NULL: it cannot be read, has no such kernel, one with other arguments, or
 * one whose floats need not be the CPU's. */
struct ptx_kernel *mock_ptx_kernel(const char *name, size_t args_nbytes);

/* false: a fault, or no GPU takes such a launch. */
bool mock_ptx_launch(struct ptx_kernel *kernel, const struct ptx_launch *launch);

#endif
