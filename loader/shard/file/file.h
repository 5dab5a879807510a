/* The file of a shard: its bytes, front to back and decompressed; its kind; the members of a tar, read and
 * written.
 *
 *   stream.c    a file read once, in large reads, decompressed if it is compressed
 *   tar_in.c    a walk over a tar's members (base/tar.h), on a stream
 *   tar_out.c   writing a tar
 *   kind.c      the kind of a file by its name: tar, lines or tokens; the key of a sample by a member's name
 *   data_file.c the cache's data file of a complete file on a penstock mount
 *   foreign.c   files of other formats, given by mistake
 *
 * None of them uses samples or indexes. tar_in.c uses stream.c and foreign.c, stream.c uses data_file.c; the
 * others use none.
 * Ownership, threads, errors, blocking: as each section says. */
#ifndef PS_SHARD_FILE_FILE_H
#define PS_SHARD_FILE_FILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/tar.h"

/* Budgets ------------------------------------------------------------------------------------------------ */

/* A count of bytes held, with a limit, and optionally a parent whose limit it shares with other budgets.
 * Threads: any. */

struct ps_byte_budget {
	uint64_t limit;
	_Atomic uint64_t used; /* relaxed atomic: a counter that guards nothing else */
	/* counts the same bytes, too; NULL: none. It must not have a parent itself */
	struct ps_byte_budget *parent;
};

/* Takes n bytes if they are within this budget's own limit. */
static inline bool ps_byte_budget_take_own(struct ps_byte_budget *b, uint64_t n)
{
	uint64_t used = atomic_load_explicit(&b->used, memory_order_relaxed);

	do {
		if (n > b->limit || used > b->limit - n)
			return false;
	} while (!atomic_compare_exchange_weak_explicit(
	        &b->used, &used, used + n, memory_order_relaxed, memory_order_relaxed));
	return true;
}

/* Takes n bytes regardless of limits, for memory without which no progress is possible. */
static inline void ps_byte_budget_force(struct ps_byte_budget *b, uint64_t n)
{
	atomic_fetch_add_explicit(&b->used, n, memory_order_relaxed);
	if (b->parent)
		atomic_fetch_add_explicit(&b->parent->used, n, memory_order_relaxed);
}

static inline void ps_byte_budget_give(struct ps_byte_budget *b, uint64_t n)
{
	atomic_fetch_sub_explicit(&b->used, n, memory_order_relaxed);
	if (b->parent)
		atomic_fetch_sub_explicit(&b->parent->used, n, memory_order_relaxed);
}

/* Takes n bytes if they are within the limits. */
static inline bool ps_byte_budget_take(struct ps_byte_budget *b, uint64_t n)
{
	if (b->parent && !ps_byte_budget_take_own(b->parent, n))
		return false;
	if (ps_byte_budget_take_own(b, n))
		return true;
	if (b->parent)
		ps_byte_budget_give(b->parent, n);
	return false;
}

/* Streams ------------------------------------------------------------------------------------------------ */

/* A file read once, front to back, in large reads, decompressed if it is compressed.
 *
 * Ownership: a stream belongs to its creator.
 * Threads: one at a time.   Locks: none.
 * Errors: 0 or -errno. -ENODATA: the file ended before the bytes asked for (no text: the caller knows what
 * it expected). -ECANCELED: the stop flag was raised. Others come with a text that does not name the file.
 * Blocks: on the disk or the file's network. Waiting for a pipe ends when the stop flag is raised and the
 * wake descriptor becomes readable; a read of an ordinary file cannot be interrupted. */

#define PS_STREAM_BUF_MIN (64UL << 10) /* also the limit of ps_stream_peek() */
#define PS_STREAM_BUF_MAX (4UL << 20)

/* The cost of the reads. */
struct ps_stream_meter {
	uint64_t nbytes;  /* bytes, decompressed */
	uint64_t wait_ns; /* time that the calling thread waited in read() */
};

struct ps_stream_options {
	size_t buf_nbytes;             /* size of one read(); clamped to the two limits above */
	const atomic_bool *stop;       /* NULL: never stops */
	int wake_fd;                   /* readable once stop is set; -1: none */
	struct ps_byte_budget *budget; /* counts the memory of decompression; NULL: not counted */
	struct ps_stream_meter *meter; /* incremented by the reading thread; NULL: not counted */
};

struct ps_stream;

int ps_stream_open(const char *path, const struct ps_stream_options *options, struct ps_stream **ret_stream,
        struct ps_error *err) PS_MUST_USE;

/* A hint for the user about a path that is not a file: a URL, or a command as WebDataset writes it
 * ("pipe:..."). NULL: the path may be a file. */
const char *ps_stream_path_hint(const char *path);

/* A descriptor of the data file in the cache that has the bytes of shard_fd; -1: none. There is one if
 * shard_fd is a complete file of a penstock mount without passthrough, and this process may read the cache's
 * files. The caller must keep shard_fd open while it uses the data file: until shard_fd is closed, the data
 * file stays as it is, and is counted in the cache's quota (docs/design/open-modes.md). Threads: any. Blocks:
 * on the mount, for an answer from memory and index. */
int ps_data_file_open(int shard_fd);

/* Whether a path is on a FUSE mount, also if the file does not exist. ENOTCONN (the mount's daemon is dead)
 * counts as a mount. */
bool ps_path_is_on_mount(const char *path);

void ps_stream_free(struct ps_stream *stream);

/* Reads n bytes at an offset of a stream that can seek (ps_stream_fd()), and leaves its position as it is. -ENODATA:
 * they are beyond the end of the file. */
int ps_stream_read_at(
        struct ps_stream *stream, void *dst, size_t n, uint64_t offset, struct ps_error *err) PS_MUST_USE;

/* Shows the next n bytes (n <= PS_STREAM_BUF_MIN) without taking them; valid until the next call. At the end
 * of the file they may be fewer: *ret_n is their number. */
int ps_stream_peek(struct ps_stream *stream, size_t n, const uint8_t **ret_p, size_t *ret_n,
        struct ps_error *err) PS_MUST_USE;

/* Shows the buffered bytes, at least one; none only at the end of the file. */
int ps_stream_peek_some(
        struct ps_stream *stream, const uint8_t **ret_p, size_t *ret_n, struct ps_error *err) PS_MUST_USE;

/* Takes n of the bytes that were shown. */
void ps_stream_take(struct ps_stream *stream, size_t n);

/* Copies the next n bytes to dst and takes them; if n is large, reads the file into dst directly. */
int ps_stream_read(struct ps_stream *stream, void *dst, size_t n, struct ps_error *err) PS_MUST_USE;

/* Skips n bytes; by a seek if the file can seek. */
int ps_stream_skip(struct ps_stream *stream, uint64_t n, struct ps_error *err) PS_MUST_USE;

/* If the stream begins with compressed data (zstd, gzip or lz4), replaces *stream by a stream of the
 * decompressed bytes, which owns the old one and can only be read once. Must be called before the first
 * byte is taken. Never returns -ENODATA: an empty file is not compressed. */
int ps_stream_inflate(struct ps_stream **stream, struct ps_error *err) PS_MUST_USE;

/* True if the stream is decompressed while it is read. */
bool ps_stream_is_inflated(const struct ps_stream *stream);

/* Reads the data after the end of a tar in a compressed stream, up to 1 MiB, so that the checksum at its
 * end is verified. -EBADMSG with *ret_garbage set: other data follows. */
int ps_stream_drain(struct ps_stream *stream, bool *ret_garbage, struct ps_error *err) PS_MUST_USE;

/* The checksums of frames (of gzip: members) that cover decompressed bytes `from` to `to` of a compressed stream,
 * as far as they were read. */
struct ps_stream_sum {
	bool wrong;        /* one of these is known not to match ... */
	bool wrong_before; /* ... and is of a frame that begins before `from` */
	uint64_t last;     /* where the last of these frames begins */
	bool passed; /* since the last call the last frame of that call ended before `from`, and does not match */
};

/* `from` must not be lower than at the last call. Blocks: never. */
struct ps_stream_sum ps_stream_sum(struct ps_stream *stream, uint64_t from, uint64_t to);

/* Bytes taken so far. */
uint64_t ps_stream_offset(const struct ps_stream *stream);

/* Size of the file when it was opened, as stored (compressed); -1: not an ordinary file. */
int64_t ps_stream_size(const struct ps_stream *stream);

/* A descriptor for reading the file again at any offset (pread), or -1 if it can only be read once. It
 * belongs to the stream; the caller must dup it to use it longer. */
int ps_stream_fd(const struct ps_stream *stream);

enum ps_codec {
	PS_CODEC_NONE,
	PS_CODEC_ZSTD,
	PS_CODEC_GZIP,
	PS_CODEC_LZ4,
	PS_CODEC_LZ4_LEGACY, /* the reader refuses it */
};

/* Finds the codec from the first n bytes of a file. zstd and lz4 share the magic of skippable frames; such
 * frames count as zstd here, and the frame after them decides. */
enum ps_codec ps_codec_detect(const uint8_t *p, size_t n);

/* Compressed members ------------------------------------------------------------------------------------- */

/* A single compressed member: x.json.zst, where a field wants json.
 *
 * Ownership: the caller's.   Threads: any.   Locks: none.   Blocks: on the processor.
 * Errors: -EBADMSG: damaged or truncated; -EFBIG: larger than `max`; -ENOMEM; each with a text. */

#define PS_UNPACK_SUFFIX ".zst"

/* Decompresses all frames in n bytes into an empty buffer. */
int ps_unpack(const uint8_t *data, size_t n, uint64_t max, struct ps_buf *ret_bytes,
        struct ps_error *err) PS_MUST_USE;

/* Kinds of shards ---------------------------------------------------------------------------------------- */

/* The kind of a shard: a tar, lines of text, or a stream of tokens; and keys for samples without names.
 *
 * Ownership: the caller's.   Threads: any.   Locks: none.   Blocks: never. */

/* As enum penstock_source. */
enum ps_shard_kind {
	/* the name decides, without .zst, .gz, .lz4: .jsonl and .txt are lines, .bin tokens, others tars */
	PS_SHARD_KIND_AUTO = 0,
	PS_SHARD_KIND_TAR = 1,
	PS_SHARD_KIND_LINES = 2,
	PS_SHARD_KIND_TOKENS = 3,
};

#define PS_WINDOWS_MAX_NBYTES (UINT64_C(1) << 28)
#define PS_WINDOWS_MAX_STRIDE (UINT64_C(1) << 40) /* tokens */

/* Windows of a token stream; all in bytes. */
struct ps_windows {
	/* bytes of a window; 0: no windows are wanted, and .bin files are tars like others */
	uint64_t nbytes;
	uint64_t stride;    /* from the beginning of a window to that of the next */
	uint32_t item;      /* bytes of a token */
	const char *type;   /* its type, "u16" */
	const char *suffix; /* suffix of the sample's only member */
};

/* Resolves AUTO to one of the other kinds. */
enum ps_shard_kind ps_shard_kind_of(
        enum ps_shard_kind asked, const struct ps_windows *windows, const char *path);

/* The type of the tokens in NAME.bin as the index NAME.idx beside it states it, in Megatron's format: "i32";
 * NULL: there is no such index. Errors: -errno with a text. Blocks: on the disk. */
int ps_tokens_type(const char *path, const char **ret_type, struct ps_error *err) PS_MUST_USE;

/* True if the shard's name says that it is compressed; the size of the file is then not that of its
 * contents. */
bool ps_shard_is_compressed(const char *path);

/* The suffix of a line's member, without the dot: "json" for lines of JSON, "txt" for others. */
const char *ps_shard_line_suffix(const char *path);

/* The prefix of keys, to which a sample's number is appended: "train-007-" for /data/train-007.jsonl.zst. */
int ps_shard_key(const char *path, struct ps_buf *ret_base) PS_MUST_USE;

/* Makes the key of sample `ordinal`: replaces all after the first base_len bytes. */
int ps_shard_key_number(struct ps_buf *key, size_t base_len, uint64_t ordinal) PS_MUST_USE;

/* The number of windows in nbytes bytes. */
uint64_t ps_tokens_count(const struct ps_windows *windows, uint64_t nbytes);

/* Members ------------------------------------------------------------------------------------------------ */

/* The parts of a member's name. The suffix points into the name, and is not converted to lower case. */
struct ps_name_parts {
	size_t key_len;
	const char *suffix;
	size_t suffix_len;
};

/* False if the member belongs to no sample. */
bool ps_name_split(const char *name, size_t len, struct ps_name_parts *ret_parts);

/* Reading a tar ------------------------------------------------------------------------------------------ */

/* A walk (base/tar.h) over the tar in a stream, which it borrows. If the stream is not a tar, the error's
 * text says what it is, where that is known. NULL: out of memory. */
struct ps_tar *ps_stream_tar(struct ps_stream *stream);

/* Files of other formats --------------------------------------------------------------------------------- */

/* Files of other formats given as shards: their format, by the first bytes or the name, and a hint for the
 * user. Threads: any.   Errors: none.   Blocks: never. */

#define PS_FOREIGN_MARK ", not a tar: " /* part of all such texts */

/* A text such as "an HDF5 file, not a tar: ..."; NULL: unknown format. */
const char *ps_foreign_of_bytes(const uint8_t *p, size_t n);
const char *ps_foreign_of_name(const char *name);

/* Writing a tar ------------------------------------------------------------------------------------------ */

/* Writing shards: the same members give the same bytes, on any machine and at any time.
 *
 * Members are ordinary files of ustar: mode 0444, no owner, no time. A name or size that ustar cannot hold
 * gets a pax header before it. A shard is written under a temporary name, synced, and renamed once it is
 * complete.
 *
 * With a zstd level the file is in the seekable format (frames of 4 MiB, each with its checksum, and a table
 * at the end; github.com/facebook/zstd, contrib/seekable_format): any zstd reads it front to back, and a
 * reader that uses the table can begin in the middle.
 *
 * Ownership: belongs to its creator.   Threads: one at a time for one shard.
 * Errors: 0 or -errno with a text that names the file; after that only ps_tar_out_abort() may be called.
 * Blocks: on the disk. */

#define PS_TAR_OUT_MAX_LEVEL 19

struct ps_tar_out;

/* level: zstd level; 0: not compressed. */
int ps_tar_out_open(
        const char *path, int level, struct ps_tar_out **ret_out, struct ps_error *err) PS_MUST_USE;

/* The same to a descriptor that still belongs to the caller, such as standard output; `path` is for error
 * texts. */
int ps_tar_out_fd(
        int fd, const char *path, int level, struct ps_tar_out **ret_out, struct ps_error *err) PS_MUST_USE;

/* Sets a callback that receives each piece of the file as it is written. Must be called before the first
 * member. */
void ps_tar_out_watch(
        struct ps_tar_out *out, void (*on_bytes)(void *ctx, const void *p, size_t n), void *ctx);

/* Begins a member; exactly `size` bytes of data follow, by one or more calls of ps_tar_out_data(). */
int ps_tar_out_member(struct ps_tar_out *out, const char *name, size_t name_len, uint64_t size,
        struct ps_error *err) PS_MUST_USE;
int ps_tar_out_data(struct ps_tar_out *out, const void *data, size_t n, struct ps_error *err) PS_MUST_USE;

/* Bytes that a member takes in the tar, its headers and padding included. */
uint64_t ps_tar_out_member_nbytes(size_t name_len, const char *name, uint64_t size);

/* Ends the archive and renames the file to its name. Frees `out` on success. *ret_nbytes is the size of the
 * file; ret_nbytes may be NULL. */
int ps_tar_out_finish(struct ps_tar_out *out, uint64_t *ret_nbytes, struct ps_error *err) PS_MUST_USE;

/* Removes what was written. NULL is allowed. */
void ps_tar_out_abort(struct ps_tar_out *out);

#endif
