/* The file of a shard: its bytes, front to back and decompressed, what they are, and the members of a tar,
 * read and written.
 *
 *   stream.c    a file read once, in big pieces, decompressed if it is compressed
 *   tar.c       a walk over a tar's members, on a stream
 *   tar_out.c   a tar as it is written
 *   kind.c      by a file's name: tar, lines or tokens; by a member's name: its sample
 *
 * None knows of samples or indexes. tar.c and tar_out.c use stream.c; kind.c uses none.
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

/* Budgets ------------------------------------------------------------------------------------------------ */

/* A count of bytes held, with a limit, and perhaps a parent whose limit it shares with others. Threads:
 * any. */

struct ps_byte_budget {
	uint64_t limit;
	_Atomic uint64_t used;         /* relaxed: a count, it guards nothing else */
	struct ps_byte_budget *parent; /* counts what this one does; NULL: none. It has no parent itself */
};

/* Takes n bytes if they are within this limit alone. */
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

/* Takes n bytes whatever the limit: for what must be held to go on at all. */
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

/* A file read once, front to back, in big pieces, decompressed if it is compressed: what the tar walker
 * stands on.
 *
 * Ownership: a stream belongs to its creator; memory given to ps_stream_mem() must outlive it.
 * Threads: one at a time.   Locks: none.
 * Errors: 0 or -errno. -ENODATA: the file ended before the bytes asked for (no text; the caller knows what it
 * was looking for). -ECANCELED: the stop flag was raised. Others come with a text that does not name the
 * file. Blocks: on the disk or the file's network. Waiting for a pipe ends when the stop flag is
 * raised and the wake descriptor becomes readable; a read of an ordinary file cannot be interrupted. */

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
	struct ps_byte_budget *budget; /* of what a decompression holds; NULL: not counted */
	struct ps_stream_meter *meter; /* counted up by the thread that reads; NULL: not counted */
};

struct ps_stream;

int ps_stream_open(const char *path, const struct ps_stream_options *options, struct ps_stream **ret_stream,
        struct ps_load_error *err) PS_MUST_USE;

/* What to do about a path that names no file: a URL, or a command as WebDataset writes it ("pipe:..."). NULL:
 * it may be a file's. */
const char *ps_stream_path_hint(const char *path);

/* Whether a file is, or would be, of a FUSE mount. One that has died answers nothing but ENOTCONN. */
bool ps_path_is_on_mount(const char *path);

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

/* If what the stream shows first is compressed (zstd, gzip or lz4), puts the decompression in between: from
 * here on *stream shows the decompressed bytes, and owns the old one. It can only be read once. Before the
 * first byte is taken. -ENODATA never: a file without bytes is not compressed. */
int ps_stream_inflate(struct ps_stream **stream, struct ps_load_error *err) PS_MUST_USE;

/* True if it is decompressed while it is read. */
bool ps_stream_is_inflated(const struct ps_stream *stream);

/* Reads what stands after the end of a tar in compressed data, up to 1 MiB: their checksum is there.
 * -EBADMSG: it does not fit, or something else follows: *ret_garbage. */
int ps_stream_drain(struct ps_stream *stream, bool *ret_garbage, struct ps_load_error *err) PS_MUST_USE;

/* Bytes taken so far. */
uint64_t ps_stream_offset(const struct ps_stream *stream);

/* Bytes of the file when it was opened, compressed ones where it is compressed; -1: not an ordinary file. */
int64_t ps_stream_size(const struct ps_stream *stream);

/* A descriptor for reading the file again at any offset (pread), or -1 if it can only be read once. The
 * stream keeps it; dup it to use it longer. */
int ps_stream_fd(const struct ps_stream *stream);

enum ps_codec {
	PS_CODEC_NONE,
	PS_CODEC_ZSTD,
	PS_CODEC_GZIP,
	PS_CODEC_LZ4,
	PS_CODEC_LZ4_LEGACY, /* ps_inflate_new() refuses it */
};

/* By the first n bytes of a file. zstd and lz4 share the magic of skippable frames: what follows those
 * decides, and here they count as zstd. */
enum ps_codec ps_codec_detect(const uint8_t *p, size_t n);

/* Members that are compressed by themselves -------------------------------------------------------------- */

/* A member that is compressed by itself: x.json.zst, where a field asks for json.
 *
 * Ownership: the caller's.   Threads: any.   Locks: none.   Blocks: on the processor.
 * Errors: -EBADMSG: damaged or cut; -EFBIG: larger than `max`; -ENOMEM; each with a text. */

#define PS_UNPACK_SUFFIX ".zst"

/* All frames of n bytes, decompressed, into an empty buffer. */
int ps_unpack(const uint8_t *data, size_t n, uint64_t max, struct ps_buf *ret_bytes,
        struct ps_load_error *err) PS_MUST_USE;

/* What a shard is ---------------------------------------------------------------------------------------- */

/* What a shard is: a tar, lines of text, or a stream of tokens; and the names of samples that have none.
 *
 * Ownership: the caller's.   Threads: any.   Locks: none.   Blocks: never. */

/* As enum penstock_source. */
enum ps_shard_kind {
	PS_SHARD_KIND_AUTO =
	        0, /* by the name, without .zst, .gz, .lz4: .jsonl and .txt lines, .bin tokens, else a tar */
	PS_SHARD_KIND_TAR = 1,
	PS_SHARD_KIND_LINES = 2,
	PS_SHARD_KIND_TOKENS = 3,
};

#define PS_WINDOWS_MAX_NBYTES (UINT64_C(1) << 28)
#define PS_WINDOWS_MAX_STRIDE (UINT64_C(1) << 40) /* tokens */

/* Windows of a token stream; all in bytes. */
struct ps_windows {
	uint64_t nbytes;    /* of a window; 0: none were asked for, and .bin is a tar as any other name */
	uint64_t stride;    /* from one's beginning to the next one's */
	uint32_t item;      /* of a token */
	const char *suffix; /* of the sample's one member */
};

/* AUTO made one of the others. */
enum ps_shard_kind ps_shard_kind_of(
        enum ps_shard_kind asked, const struct ps_windows *windows, const char *path);

/* By its name: the size of such a file says nothing of what is in it. */
bool ps_shard_is_compressed(const char *path);

/* ".json" of lines that are JSON, ".txt" of others; without the dot. */
const char *ps_shard_line_suffix(const char *path);

/* "train-007" and '-', of /data/train-007.jsonl.zst: what a sample's number is put after. */
int ps_shard_key(const char *path, struct ps_buf *ret_base) PS_MUST_USE;

/* The key of sample number `ordinal`; what stood after the first base_len bytes is gone. */
int ps_shard_key_number(struct ps_buf *key, size_t base_len, uint64_t ordinal) PS_MUST_USE;

/* How many windows that many bytes make. */
uint64_t ps_tokens_count(const struct ps_windows *windows, uint64_t nbytes);

/* Members ------------------------------------------------------------------------------------------------ */

/* Where a member's name is cut. Both point into the name; the suffix is not lowered yet. */
struct ps_name_parts {
	size_t key_len;
	const char *suffix;
	size_t suffix_len;
};

/* False if the member belongs to no sample. */
bool ps_name_split(const char *name, size_t len, struct ps_name_parts *ret_parts);

/* Reading a tar ------------------------------------------------------------------------------------------ */

/* A walk over the members of a tar file, front to back, in bounded memory.
 *
 * Reads v7, ustar (with its prefix field), GNU (long names, base-256 numbers) and pax (path, size and the
 * name of a sparse file, per file and global). One block of zeros ends the archive; a file that stops before
 * it is truncated, since a tar cut between two members looks like a shorter one otherwise.
 *
 * Ownership: borrows the stream; a member's name is valid until the next call.
 * Threads: one at a time.   Locks: none.
 * Errors: -EBADMSG: damaged or truncated, the text names the offset; else what the stream says. After an
 * error every further call fails the same way. Blocks: as the stream does. */

#define PS_TAR_BLOCK 512
#define PS_TAR_MAX_NAME (16UL << 10) /* a longer name is damage */
#define PS_TAR_MAX_PAX (1UL << 20)   /* a larger pax header is damage */

enum ps_tar_kind {
	PS_TAR_FILE,   /* an ordinary file: its bytes follow */
	PS_TAR_SPARSE, /* a file with holes, whose bytes are not stored as they are: skipped */
	PS_TAR_OTHER,  /* folder, link, device, unknown: skipped */
};

struct ps_tar_member {
	const char *name; /* ends with a zero, holds none; bytes as they are in the tar */
	size_t name_len;
	enum ps_tar_kind kind;
	uint64_t size;          /* of the data */
	uint64_t offset;        /* of the data in the tar */
	uint64_t header_offset; /* of the member's first header block, long-name and pax blocks included */
};

struct ps_tar;

/* NULL: out of memory. */
struct ps_tar *ps_tar_new(struct ps_stream *stream);

void ps_tar_free(struct ps_tar *tar);

/* 1 and the next member, whatever is left of the last one skipped; 0 at the end of the archive. */
int ps_tar_next(struct ps_tar *tar, struct ps_tar_member *ret_member, struct ps_load_error *err) PS_MUST_USE;

/* True if a global pax header was read that says something about the members after it: these cannot be read
 * from the middle of the archive. */
bool ps_tar_has_global(const struct ps_tar *tar);

/* Copies all data of the member that ps_tar_next() gave to dst. Once a member. */
int ps_tar_read(struct ps_tar *tar, void *dst, struct ps_load_error *err) PS_MUST_USE;

/* Files that are no shards ------------------------------------------------------------------------------- */

/* Files that are given for shards and are none: what they are, by their first bytes or by a name, and what to
 * do with them. Threads: any.   Errors: none.   Blocks: never. */

#define PS_FOREIGN_MARK ", not a tar: " /* in all such texts */

/* "an HDF5 file, not a tar: ..."; NULL: not known. */
const char *ps_foreign_of_bytes(const uint8_t *p, size_t n);
const char *ps_foreign_of_name(const char *name);

/* Writing a tar ------------------------------------------------------------------------------------------ */

/* A shard as it is written: the same members give the same bytes, on any machine and in any year.
 *
 * Members are ordinary files of ustar: mode 0444, no owner, no time. A name or size that ustar cannot hold
 * gets a pax header before it. A shard is written beside its name and renamed once it is whole and on the
 * disk.
 *
 * With a zstd level the file is in the seekable format (frames of 4 MiB, each with its checksum, and a table
 * at the end; github.com/facebook/zstd, contrib/seekable_format): any zstd reads it front to back, and who
 * knows the table reads from the middle.
 *
 * Ownership: belongs to its creator.   Threads: one at a time for one shard.
 * Errors: 0 or -errno with a text that names the file; then only ps_tar_out_abort() is left to call.
 * Blocks: on the disk. */

#define PS_TAR_OUT_MAX_LEVEL 19

struct ps_tar_out;

/* level: of zstd, 0: not compressed. */
int ps_tar_out_open(
        const char *path, int level, struct ps_tar_out **ret_out, struct ps_load_error *err) PS_MUST_USE;

/* The same into a descriptor that stays the caller's, such as standard output; `path` is for texts. */
int ps_tar_out_fd(int fd, const char *path, int level, struct ps_tar_out **ret_out,
        struct ps_load_error *err) PS_MUST_USE;

/* Has each piece of the file shown as it is written; before the first member. */
void ps_tar_out_watch(
        struct ps_tar_out *out, void (*on_bytes)(void *ctx, const void *p, size_t n), void *ctx);

/* Begins a member; exactly `size` bytes of data follow, by one or more calls of ps_tar_out_data(). */
int ps_tar_out_member(struct ps_tar_out *out, const char *name, size_t name_len, uint64_t size,
        struct ps_load_error *err) PS_MUST_USE;
int ps_tar_out_data(
        struct ps_tar_out *out, const void *data, size_t n, struct ps_load_error *err) PS_MUST_USE;

/* Bytes that a member takes in the tar, its headers and padding included. */
uint64_t ps_tar_out_member_nbytes(size_t name_len, const char *name, uint64_t size);

/* Ends the archive and gives the file its name. Frees `out` on success. *ret_nbytes: of the file; may be
 * NULL. */
int ps_tar_out_finish(struct ps_tar_out *out, uint64_t *ret_nbytes, struct ps_load_error *err) PS_MUST_USE;

/* Removes what was written. NULL is allowed. */
void ps_tar_out_abort(struct ps_tar_out *out);

#endif
