/* Runs on the CPU the PTX that nvcc makes of our kernels: for tests without a GPU.
 *
 * Instructions do what the PTX ISA says; an unknown instruction is an error and never skipped. The threads
 * of a block run as warps of 32 lanes, which diverge and converge again; only barriers order the warps.
 * Whatever fails or is undefined on a GPU is a fault that ends the launch: an address that is not aligned to
 * its access or that is outside of all allocations; bytes that one thread writes and another one accesses
 * without a barrier in between (of one block), or in the same launch (of different blocks); bits that were
 * never written and decide a branch, an address or a result; threads of a block at different barriers; a
 * division by zero; a loop without an end.
 *
 * Ownership: the caller owns the module, which owns its kernels. Threads: one launch at a time. Blocks:
 * until the kernel has ended. Errors: -errno and a text. */
#ifndef TESTS_PTX_PTX_H
#define TESTS_PTX_PTX_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define PTX_TEXT 640 /* size of the buffer for an error's text */

struct ptx_module;
struct ptx_kernel;

/* -EINVAL: not PTX, or PTX that the interpreter does not know. The text is copied. */
int ptx_module_parse(
        const char *text, size_t nbytes, struct ptx_module **ret_module, char error[static PTX_TEXT]);
void ptx_module_free(struct ptx_module *module);
struct ptx_kernel *ptx_module_find(struct ptx_module *module, const char *name); /* NULL: none */

struct ptx_facts {
	uint32_t params_nbytes, shared_nbytes;
	uint32_t threads_most; /* of a block: the value of .maxntid, or 1024 */
	uint32_t ninstructions;
	/* Numbers of float instructions whose results may differ from the CPU's. */
	uint32_t nfused, napproximate;
	uint32_t nfree; /* mul and add without .rn, which an assembler may fuse */
};
struct ptx_facts ptx_kernel_facts(const struct ptx_kernel *kernel);

/* A range of global memory. *shadow is NULL at first; the caller frees it by free(). */
struct ptx_range {
	const char *from;
	size_t nbytes;
	void **shadow;
};

struct ptx_launch {
	uint32_t grid[3], block[3];
	uint32_t dynamic_nbytes; /* of shared memory, in addition to the kernel's own */
	uint32_t shared_most;    /* limit of both; 48 KiB unless an attribute raised it */
	const void *params;      /* params_nbytes */
	const struct ptx_range *ranges;
	size_t nranges;
};

/* -EINVAL: no GPU accepts such a launch. -EFAULT: a fault; memory stays as it was at that moment.
 * -ENOMEM. */
int ptx_launch(struct ptx_kernel *kernel, const struct ptx_launch *launch, char error[static PTX_TEXT]);

/* Writes a line for each kernel: its name, the number of instructions that ran in any launch, the number of
 * all instructions, and the lines of those that never ran, separated by commas, or a dash. */
void ptx_module_coverage(const struct ptx_module *module, FILE *to);

#endif
