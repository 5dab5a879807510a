/* Decompression of a shard while it is read: zstd and lz4 (any frames, skippable ones passed over; lz4's legacy
 * format is refused by name), gzip (any members).
 *
 * What is bad in the data is found where it is: cut data, a wrong checksum, bytes behind the last frame. A
 * checksum stands behind what it guards, though, so bytes may have been given before it is known to be wrong.
 *
 * Memory, counted where there is a budget: zstd: the frame's window (2 to 8 MiB usually; more than
 * PS_INFLATE_MAX_WINDOW is refused), gzip 0.1 MiB, lz4 up to 8 MiB. Ownership: an inflater owns its input.
 * Threads: one at a time.   Locks: none. Blocks: as the input does.   Errors: -EBADMSG: damaged or cut;
 * -EFBIG: the window; -ENOSYS: this library was built without that format; else what the input says. */
#ifndef PS_SHARD_INFLATE_H
#define PS_SHARD_INFLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/load_error.h"
#include "shard/budget.h"
#include "shard/stream.h"

#define PS_INFLATE_MAX_WINDOW_LOG 27 /* 128 MiB: what `zstd -d` takes, too */
#define PS_INFLATE_MAGIC 4           /* bytes that tell the format ... */
#define PS_INFLATE_SKIPPABLE 8       /* ... and those of a skippable frame's head */

enum ps_codec {
	PS_CODEC_NONE,
	PS_CODEC_ZSTD,
	PS_CODEC_GZIP,
	PS_CODEC_LZ4,
	PS_CODEC_LZ4_LEGACY, /* ps_inflate_new() refuses it */
};

/* By the first n bytes of a file. zstd and lz4 share the magic of skippable frames: what follows those decides, and
 * here they count as zstd. */
enum ps_codec ps_codec_detect(const uint8_t *p, size_t n);

/* Whether a skippable frame begins with these, and how many bytes it has with its head. */
bool ps_codec_skippable(const uint8_t head[static PS_INFLATE_SKIPPABLE], uint64_t *ret_nbytes);

struct ps_inflate;

/* On failure `in` is still the caller's. budget, which outlives it, may be NULL. */
int ps_inflate_new(enum ps_codec codec, struct ps_stream *in, struct ps_budget *budget,
        struct ps_inflate **ret_inflate, struct ps_load_error *err) PS_MUST_USE;
void ps_inflate_free(struct ps_inflate *inflate); /* NULL is allowed */

/* Up to n bytes; *ret_got 0: the end. */
int ps_inflate_read(struct ps_inflate *inflate, void *dst, size_t n, size_t *ret_got,
        struct ps_load_error *err) PS_MUST_USE;

/* True if it failed because what follows its last frame is none. */
bool ps_inflate_has_garbage(const struct ps_inflate *inflate);

#endif
