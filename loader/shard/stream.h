/* A file read once, front to back, in big pieces, decompressed if it is compressed: what the tar walker
 * stands on.
 *
 * Ownership: a stream belongs to its creator; memory given to ps_stream_mem() must outlive it.
 * Threads: one at a time.   Locks: none.
 * Errors: 0 or -errno. -ENODATA: the file ended before the bytes asked for (no text; the caller knows what it
 * was looking for). -ECANCELED: the stop flag was raised. Others come with a text that does not name the
 * file. Blocks: on the disk or the network behind the file. Waiting for a pipe ends when the stop flag is
 * raised and the wake descriptor becomes readable; a read of an ordinary file cannot be interrupted. */
#ifndef PS_SHARD_STREAM_H
#define PS_SHARD_STREAM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cleanup.h"
#include "base/load_error.h"
#include "shard/budget.h"

#define PS_STREAM_BUF_MIN (64UL << 10) /* also the most that ps_stream_peek() can show */
#define PS_STREAM_BUF_MAX (4UL << 20)

/* What the reads cost. */
struct ps_stream_meter {
	uint64_t nbytes;  /* decompressed */
	uint64_t wait_ns; /* that the calling thread was in read() without running */
};

struct ps_stream_options {
	size_t buf_nbytes;             /* of one read(); put between the two limits above */
	const atomic_bool *stop;       /* NULL: never stops */
	int wake_fd;                   /* readable once stop is set; -1: none */
	struct ps_budget *budget;      /* of what a decompression holds; NULL: not counted */
	struct ps_stream_meter *meter; /* counted up by the thread that reads; NULL: nobody counts */
};

struct ps_stream;

int ps_stream_open(const char *path, const struct ps_stream_options *options, struct ps_stream **ret_stream,
        struct ps_load_error *err) PS_MUST_USE;

/* What to do about a path that names no file: a URL, or a command as WebDataset writes it ("pipe:..."). NULL: it may
 * be a file's. */
const char *ps_stream_path_hint(const char *path);

/* A stream over memory. NULL if there is no memory for the stream itself. */
struct ps_stream *ps_stream_mem(const void *data, size_t nbytes);

void ps_stream_free(struct ps_stream *stream);

/* Shows the next n bytes (n <= PS_STREAM_BUF_MIN) without taking them; valid until the next call. Fewer only
 * at the end of the file: *ret_n says how many. */
int ps_stream_peek(struct ps_stream *stream, size_t n, const uint8_t **ret_p, size_t *ret_n,
        struct ps_load_error *err) PS_MUST_USE;

/* Shows what is there, at least a byte; none at the end of the file only. */
int ps_stream_peek_some(struct ps_stream *stream, const uint8_t **ret_p, size_t *ret_n,
        struct ps_load_error *err) PS_MUST_USE;

/* Takes n bytes that were shown. */
void ps_stream_take(struct ps_stream *stream, size_t n);

/* Copies the next n bytes to dst and takes them; large ones are read into dst directly. */
int ps_stream_read(struct ps_stream *stream, void *dst, size_t n, struct ps_load_error *err) PS_MUST_USE;

/* Takes n bytes unseen; seeks where the file can. */
int ps_stream_skip(struct ps_stream *stream, uint64_t n, struct ps_load_error *err) PS_MUST_USE;

/* If what the stream shows first is compressed (shard/inflate.h), puts the decompression in between: from
 * here on *stream shows the decompressed bytes, and owns the old one. It can only be read once. Before the
 * first byte is taken. -ENODATA never: a file without bytes is not compressed. */
int ps_stream_inflate(struct ps_stream **stream, struct ps_load_error *err) PS_MUST_USE;

/* True if it is decompressed while it is read. */
bool ps_stream_is_inflated(const struct ps_stream *stream);

/* Reads what stands behind the end of a tar in compressed data, up to 1 MiB: their checksum is there.
 * -EBADMSG: it does not fit, or something else follows: *ret_garbage. */
int ps_stream_drain(struct ps_stream *stream, bool *ret_garbage, struct ps_load_error *err) PS_MUST_USE;

/* Bytes taken so far. */
uint64_t ps_stream_offset(const struct ps_stream *stream);

/* Bytes of the file when it was opened, compressed ones where it is compressed; -1: not an ordinary file. */
int64_t ps_stream_size(const struct ps_stream *stream);

/* A descriptor for reading the file again at any offset (pread), or -1 if it can only be read once. The
 * stream keeps it; dup it to use it longer. */
int ps_stream_fd(const struct ps_stream *stream);

#endif
