/* The index of a shard: how many samples it holds, and where each begins. Made by reading the shard once.
 *
 * A file NAME.psx beside the shard, or in a folder (there NAME-HASH.psx, HASH being that of the shard's real
 * path, since names repeat). Little endian:
 *
 *   0   "PSINDEX1"
 *   8   u64  bytes of the shard                            \  with which the index is out of date
 *   16  i64  its modification time, nanoseconds since 1970 /  when they differ
 *   24  u64  samples
 *   32  u64  flags: 1: a global pax header, a walk has to begin at the shard's beginning
 *   40  u64  FNV-1a of the samples' bytes
 *   48  u64  FNV-1a of bytes 0 to 47
 *   56  a sample each:  u64 offset of its first header, the highest bit set if it is bad;  u64 bytes of its
 * members
 *
 * Counted are the samples that a loader gives, bad ones (holes) included. An index tells what is known
 * without reading; it never changes an order.
 *
 * Ownership: none.   Threads: any.   Locks: none.   Blocks: on the disk. Durability: an index is complete or
 * not there: written beside its name, then renamed. Errors: 0 or -errno with a text. -ENOENT: no index;
 * -ESTALE: of an earlier version of the shard; -EBADMSG: damaged. */
#ifndef PS_SHARD_INDEX_H
#define PS_SHARD_INDEX_H

#include <stdint.h>

#include "base/cleanup.h"
#include "base/error.h"

#define PS_INDEX_SUFFIX ".psx"
#define PS_INDEX_HEAD 56
#define PS_INDEX_ENTRY 16
#define PS_INDEX_BAD (UINT64_C(1) << 63)

/* How many samples the index of a shard says that it holds. Reads the index' head. `dir`: NULL: beside it. */
int ps_index_count(
        const char *shard, const char *dir, uint64_t *ret_count, struct ps_load_error *err) PS_MUST_USE;

struct ps_index_result {
	uint64_t samples, bad;
	struct ps_load_error first_bad; /* the line that names it, if bad > 0 */
};

/* Reads the shard and writes its index. Damage is no error: what is bad is counted. */
int ps_index_make(const char *shard, const char *dir, struct ps_index_result *ret_result,
        struct ps_load_error *err) PS_MUST_USE;

#endif
