/* A member that is compressed by itself: x.json.zst, where a field asks for json.
 *
 * Ownership: the caller's.   Threads: any.   Locks: none.   Blocks: on the processor.
 * Errors: -EBADMSG: damaged or cut; -EFBIG: larger than `max`; -ENOMEM; each with a text. */
#ifndef PS_SHARD_UNPACK_H
#define PS_SHARD_UNPACK_H

#include "base/buf.h"
#include "base/load_error.h"

#define PS_UNPACK_SUFFIX ".zst"

/* All frames of n bytes, decompressed, into an empty buffer. */
int ps_unpack(const uint8_t *data, size_t n, uint64_t max, struct ps_buf *ret_bytes,
        struct ps_load_error *err) PS_MUST_USE;

#endif
