/* Files that are given for shards and are none: what they are, by their first bytes or by a name, and what to do
 * with them. Threads: any.   Errors: none.   Blocks: never. */
#ifndef PS_SHARD_FOREIGN_H
#define PS_SHARD_FOREIGN_H

#include <stddef.h>
#include <stdint.h>

#define PS_FOREIGN_MARK ", not a tar: " /* in all such texts */

/* "an HDF5 file, not a tar: ..."; NULL: not known. */
const char *ps_foreign_of_bytes(const uint8_t *p, size_t n);
const char *ps_foreign_of_name(const char *name);

#endif
