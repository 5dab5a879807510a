/* The header of a .npy file (format versions 1, 2 and 3): the array's type and shape, and where its bytes
 * begin. Uses base/ alone, since the Python extension is compiled with it, without the rest of the loader.
 *
 * Ownership: data points into the caller's bytes.   Threads: any.   Locks: none.   Blocks: never.
 * Errors: -EBADMSG with a text: not a .npy file, damaged, truncated, longer than its array, or with
 * elements that batches do not support (structures, objects, complex numbers, texts). */
#ifndef PS_BASE_NPY_H
#define PS_BASE_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/dtype.h"
#include "base/error.h"

#define PS_NPY_MAX_DIMS 32 /* as in NumPy 1 */

struct ps_npy {
	enum ps_dtype dtype;
	bool swapped; /* elements are in the other byte order than this machine's */
	bool fortran; /* the first index varies fastest; never set where it makes no difference */
	uint32_t ndim;
	uint64_t shape[PS_NPY_MAX_DIMS];
	uint64_t count; /* elements */
	const uint8_t *data;
};

int ps_npy_parse(const void *file, size_t nbytes, struct ps_npy *ret_npy, struct ps_error *err) PS_MUST_USE;

#endif
