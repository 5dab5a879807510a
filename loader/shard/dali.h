/* The index files of DALI's webdataset reader, "v1.2 SAMPLES" and a line a sample: SUFFIX OFFSET BYTES NAME
 * for each of its members. Beside NAME.tar they are called NAME.idx.
 *
 * They do not say of which version of the shard they are, so one is believed only where it is not older than
 * the shard, its members fill the shard to its end, and the headers of some samples say what it says; and
 * only to make an index of ours, which then tells when the shard was changed.
 *
 * Ownership: none.   Threads: any.   Locks: none.   Blocks: on the disk.
 * Errors: 0 or -errno with a text. -ENOENT: no such index; -ESTALE: of an earlier version of the shard;
 * -EBADMSG: damaged, or not of the shard; -EINVAL: a name that these files cannot have, or what they cannot
 * say. */
#ifndef PS_SHARD_DALI_H
#define PS_SHARD_DALI_H

#include "base/load_error.h"
#include "shard/index.h"

/* Where it is: beside the shard, or in `dir`. To be freed; NULL with err filled. */
char *ps_dali_path(const char *shard, const char *dir, struct ps_load_error *err);

/* Reads the shard's headers and writes its index. A damaged shard gets none. */
int ps_dali_write(
        const char *shard, const char *path, uint64_t *ret_samples, struct ps_load_error *err) PS_MUST_USE;

/* Makes the shard's index (shard/index.h) of DALI's. */
int ps_dali_import(const char *shard, const char *path, const char *index_dir, uint64_t *ret_samples,
        struct ps_load_error *err) PS_MUST_USE;

#endif
