/* Plain host memory, zeroed, in whole pages: what slots of every device are made of.
 *
 * Threads: any.   Errors: NULL: no memory.   Blocks: on the kernel only. */
#ifndef PS_DEVICE_HOST_H
#define PS_DEVICE_HOST_H

#include <stddef.h>

void *ps_host_alloc(size_t nbytes);
/* Keeps what it holds, and may move; NULL: it is as it was. */
void *ps_host_resize(void *p, size_t old_nbytes, size_t new_nbytes);
void ps_host_free(void *p, size_t nbytes);

/* Asks for pages of that NUMA node, for those that were not touched yet. No error: it is a wish. */
void ps_host_prefer_node(void *p, size_t nbytes, int node);

#endif
