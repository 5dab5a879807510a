/* Where the index of a shard is, of which version of the shard it must be, and how it is written.
 *
 * Ownership: the caller's.   Threads: any.   Locks: none.   Blocks: on the disk.
 * Durability: an index is complete or not there: written beside its name, then renamed. One that a power cut
 * left short is refused as any damaged one.
 * Errors: 0 or -errno with a text. */
#ifndef PS_SHARD_INDEX_FILE_H
#define PS_SHARD_INDEX_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "shard/index_format.h"

/* What a shard's version is known by. */
struct ps_index_version {
	uint64_t nbytes;
	int64_t mtime_ns;
	mode_t mode;
	size_t etag_len; /* 0: nobody tells one */
	char etag[PS_INDEX_MAX_ETAG];
};

/* -EINVAL: not an ordinary file. */
int ps_index_version_read(
        const char *shard, struct ps_index_version *ret_version, struct ps_load_error *err) PS_MUST_USE;

/* The same size, and the same ETag, or where one has none the same modification time. */
bool ps_index_version_same(const struct ps_index_version *a, const struct ps_index_version *b);

/* The name of a shard's index, to be freed; `dir` NULL: beside the shard. NULL with err filled. */
char *ps_index_path(const char *shard, const char *dir, const char *suffix, struct ps_load_error *err);

/* Writes the file `path`, readable by those of `mode`. */
int ps_index_file_write(const char *path, mode_t mode, const void *data, size_t nbytes,
        struct ps_load_error *err) PS_MUST_USE;

#endif
