/* The PTX that nvcc makes of our kernels, run on the processor: for tests, where there is no GPU.
 *
 * Instructions do what the PTX ISA says of them; one that is not known is an error, never skipped. The
 * threads of a block run as warps of 32 that part and meet again; nothing orders warps but barriers. What a
 * GPU would punish or leave to chance is a fault that ends the launch: an address that is not aligned to its
 * access, or outside of all that was allocated; bytes that threads write and others touch without a barrier
 * between them (in shared memory) or in one launch (in global memory); what was never written and decides a
 * branch, an address or a result; threads of a block at different barriers; a division by zero; a loop
 * without an end.
 *
 * Ownership: a module belongs to whoever parsed it, kernels to their module.   Threads: one launch at a time.
 * Blocks: until the kernel is through.   Errors: -errno and a text. */
#ifndef TESTS_PTX_PTX_H
#define TESTS_PTX_PTX_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define PTX_TEXT 640 /* bytes that an error's text has room for */

struct ptx_module;
struct ptx_kernel;

/* -EINVAL: not PTX as we know it. The text is copied. */
int ptx_module_parse(
        const char *text, size_t nbytes, struct ptx_module **ret_module, char error[static PTX_TEXT]);
void ptx_module_free(struct ptx_module *module);
struct ptx_kernel *ptx_module_find(struct ptx_module *module, const char *name); /* NULL: none */

struct ptx_facts {
	uint32_t params_nbytes, shared_nbytes;
	uint32_t threads_most; /* of a block: what .maxntid says, or 1024 */
	uint32_t ninstructions;
	/* Instructions on floats whose result the CPU's need not be. */
	uint32_t nfused, napproximate;
	uint32_t nfree; /* mul and add without .rn, which an assembler may join */
};
struct ptx_facts ptx_kernel_facts(const struct ptx_kernel *kernel);

/* Global memory. `shadow` is NULL at first; whoever has it ends it by free(). */
struct ptx_range {
	const char *from;
	size_t nbytes;
	void **shadow;
};

struct ptx_launch {
	uint32_t grid[3], block[3];
	uint32_t dynamic_nbytes; /* of shared memory, beside the kernel's own */
	uint32_t shared_most;    /* of both; 48 KiB unless an attribute raised it */
	const void *params;      /* params_nbytes */
	const struct ptx_range *ranges;
	size_t nranges;
};

/* -EINVAL: no GPU takes such a launch. -EFAULT: a fault; memory is as it was then. -ENOMEM. */
int ptx_launch(struct ptx_kernel *kernel, const struct ptx_launch *launch, char error[static PTX_TEXT]);

/* A line a kernel: name, instructions that ran in some launch, instructions, and the lines of those that did
 * not, by commas, or a dash. */
void ptx_module_coverage(const struct ptx_module *module, FILE *to);

#endif
