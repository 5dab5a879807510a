/* Where batches lie: a table of devices.
 *
 * Ownership: memory from alloc belongs to the caller until free.
 * Threads: any.   Errors: alloc gives NULL when there is no memory.
 * Blocks: alloc and free on the kernel only. */
#ifndef PS_DEVICE_DEVICE_H
#define PS_DEVICE_DEVICE_H

#include <stddef.h>

#include "base/error.h"

#define PS_DEVICE_PAGE 4096 /* what alloc aligns to, at least */

struct ps_device_ops {
	const char *name;
	void *(*alloc)(size_t nbytes); /* zeroed, aligned to PS_DEVICE_PAGE */
	/* Makes it longer, keeping what it holds; it may move. NULL: no memory, and it is as it was. */
	void *(*resize)(void *p, size_t old_nbytes, size_t new_nbytes);
	void (*free)(void *p, size_t nbytes);
};

/* The device of that name ("cpu"; NULL means it too), or NULL with err filled: -ENODEV. */
const struct ps_device_ops *ps_device_find(const char *name, struct ps_load_error *err);

#endif
