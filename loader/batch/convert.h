/* Arrays from one element type to another, exactly or not at all: a value that the other type does not have
 * stops the conversion. Threads: any.   Locks: none.   Blocks: never. */
#ifndef PS_BATCH_CONVERT_H
#define PS_BATCH_CONVERT_H

#include "batch/number.h"

/* Converts n elements; src may lie at any address, dst as its type wants. Returns how many were converted:
 * n, or the place of the first that is not exact. */
PS_MUST_USE size_t ps_convert(
        enum ps_dtype from, bool swapped, const void *src, enum ps_dtype to, void *dst, size_t n);

/* Writes the element at `value` n times. */
void ps_fill(enum ps_dtype dtype, const void *value, void *dst, size_t n);

#endif
