/* Shards as samples: one shard after the other, or the names of all of them.
 *
 * From the top down; each file uses those below it:
 *
 *   make.c       reads a shard to make its index
 *   shard.c      a shard's samples, front to back, and what an index says of those after damage
 *   builder.c    a sample put together of members, lines or tokens
 *   sample.c     samples, and the slabs that small ones are in
 *   index/       what is known of shards without reading them
 *   file/        a shard's file: bytes, tars, kinds
 *   list.c       the names that a user wrote, made into files; stands alone
 *
 * Ownership, threads, errors, blocking: as each section says. */
#ifndef PS_SHARD_SHARD_H
#define PS_SHARD_SHARD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "shard/file/file.h"
#include "shard/index/index.h"

/* Memory of small samples -------------------------------------------------------------------------------- */

/* Memory of many small samples at once: a malloc and a free for a hundred of them, not for each.
 *
 *   maker: ps_slab_new, [ps_slab_take ..., ps_slab_share]..., ps_slab_retire
 *   users: ps_slab_put
 *
 * Ownership: a slab lives until its maker has retired it and each user has put it back. A pool outlives its
 * slabs.   Threads: the maker is one thread at a time; put on any; a pool on any.
 * Locks: the pool's, a leaf.   Blocks: never.   Errors: NULL: out of memory, or beyond the budget. */

#define PS_SLAB_NBYTES (64UL << 10) /* of a slab, with its head */

struct ps_slab;

/* Unused slabs, kept for the next sample: fresh memory costs more than filling it. */
struct ps_slab_pool {
	pthread_mutex_t lock; /* all below */
	struct ps_slab *free;
	uint32_t nfree, keep;
};

void ps_slab_pool_init(struct ps_slab_pool *pool, uint32_t keep);
void ps_slab_pool_fini(struct ps_slab_pool *pool);

/* Counts against the budget; NULL: no budget, no pool. */
struct ps_slab *ps_slab_new(struct ps_slab_pool *pool, struct ps_byte_budget *budget);

/* n bytes, aligned for any object; NULL: there is no room. */
void *ps_slab_take(struct ps_slab *slab, size_t n);

/* How many bytes are taken; and back to that. */
size_t ps_slab_used(const struct ps_slab *slab);
void ps_slab_rewind(struct ps_slab *slab, size_t used);

/* One more user. */
void ps_slab_share(struct ps_slab *slab);

void ps_slab_retire(struct ps_slab *slab); /* NULL is allowed */
void ps_slab_put(struct ps_slab *slab);    /* NULL is allowed */

/* Samples ------------------------------------------------------------------------------------------------ */

/* Samples: the members of a tar that share a key, grouped as WebDataset groups them.
 *
 * A member's key is its path up to the first dot of its last component, its suffix what follows that dot in
 * lower case. Members without such a dot, and those whose path begins with a component __LIKE_THIS__, belong
 * to no sample. Consecutive members of one key are a sample; a key that comes back
 * later begins another one.
 *
 * Ownership: a sample owns its memory and a reference to its file; free it on any thread.
 * Threads: one at a time for one sample; any for different ones.
 * Errors: a damaged sample is not an error here: it is a sample with bad != 0 and a reason. */

#define PS_SAMPLE_MAX_FIELDS 1024 /* a sample with more is bad */

/* A shard's file as long as a sample needs it. */
struct ps_shard_file {
	_Atomic uint32_t refs;
	int fd; /* for pread; -1: it is not kept open, `again` says whether `path` is opened for each read */
	bool again;
	struct stat was;  /* again: what `path` was; another file is refused */
	uint32_t shard;   /* its place in the list of shards */
	const char *path; /* borrowed from that list */
};

/* Adds, or drops, n references; the file is closed with the last one. */
void ps_shard_file_ref(struct ps_shard_file *file, uint32_t n);
void ps_shard_file_unref(struct ps_shard_file *file, uint32_t n);

/* Prepares the file, open as `fd`, so that samples can be read from it later. It is kept open while the
 * process uses less than a quarter of its descriptors; beyond that an ordinary file is opened again by its
 * path. -1: errno. Called by the file's only reader, before a sample that needs it is given. */
int ps_shard_file_keep(struct ps_shard_file *file, int fd) PS_MUST_USE;

struct ps_sample_field {
	const char *suffix; /* lower case, ends with a zero */
	uint64_t offset;    /* of its data in the tar */
	uint64_t size;
	uint8_t *data; /* NULL: not held; read it with ps_sample_load() */
	uint32_t suffix_len;
	bool owned;  /* data is memory of its own, else of the sample's slab */
	bool packed; /* the member is zstd data; ps_sample_load() decompresses them */
};

struct ps_sample {
	struct ps_shard_file *file;
	struct ps_slab *slab;          /* that has a part of it; NULL: none */
	bool in_slab;                  /* the sample itself does */
	struct ps_byte_budget *budget; /* of what the sample and its fields hold, NULL: not counted */
	uint64_t own_nbytes;           /* of the sample itself, with its names; 0: they are the slab's */
	uint64_t ordinal;              /* the nth sample of its shard, from 0 */
	uint64_t offset;               /* of its first header */
	uint64_t resume_offset;        /* the same where a walk can begin there; 0: it cannot */
	uint64_t wanted_nbytes;        /* of the fields that were asked for, held or not */
	const char *key;               /* then the suffixes of all members, each with a zero after it */
	char *reason;                  /* why it is bad; with bad 0 NULL */
	uint32_t key_len, names_nbytes;
	int bad;          /* errno, positive; 0: sound */
	uint32_t nfields; /* that were asked for */
	uint32_t draw;    /* the nth time that the sample comes in its epoch, for random numbers */
	struct ps_sample_field fields[];
};

/* The field of that suffix, or NULL. */
struct ps_sample_field *ps_sample_find(struct ps_sample *sample, const char *suffix, size_t len);

/* Reads a field that is not held, and decompresses one that is packed; its size may be another then.
 * -EBADMSG: the file has become shorter, or the compressed bytes are damaged. Blocks on the disk. */
int ps_sample_load(
        struct ps_sample *sample, struct ps_sample_field *field, struct ps_load_error *err) PS_MUST_USE;

/* Frees a field's bytes. */
void ps_sample_drop(struct ps_sample *sample, struct ps_sample_field *field);

/* Sets -EBADMSG with the line that names a bad sample: shard, key, offset, reason. Long names keep their
 * ends. */
int ps_sample_error_set(struct ps_load_error *err, const struct ps_sample *sample, const char *reason);

/* True if an errno of a bad sample means that storage did not give its shard, not what the shard holds. */
bool ps_errno_is_lost(int errnum);

/* A copy with memory of its own, or NULL: out of memory. */
struct ps_sample *ps_sample_copy(const struct ps_sample *sample);

/* NULL is allowed. */
void ps_sample_free(struct ps_sample *sample);

/* Shards ------------------------------------------------------------------------------------------------- */

/* One shard, read as samples, front to back.
 *
 * Ownership: a reader belongs to its creator; samples belong to the caller. The path is borrowed until the
 * last sample is gone. Threads: one at a time; samples may be freed elsewhere.   Locks: none. Errors: what is
 * wrong with a shard comes as a bad sample, in its place, and ends the shard if nothing after it can be
 * trusted: a sample is whole or bad, never shorter than it was written. Only -ECANCELED and what this process
 * lacks (-ENOMEM, -EMFILE, -ENFILE) are errors: they say nothing of the shard. Blocks: as the stream does. */

struct ps_shard_options {
	struct ps_stream_options stream;
	enum ps_shard_kind source;
	struct ps_windows windows; /* of token streams */
	/* Whether samples hold the bytes of a field of that suffix; NULL: all. Called on the reading
	 * thread. */
	bool (*wants)(void *ctx, const char *suffix, size_t len);
	void *wants_ctx;
	/* Memory for held bytes. Past it, fields of files that can be read again are left in the file; NULL:
	 * no limit. */
	struct ps_byte_budget *budget;
	struct ps_slab_pool *slabs; /* where memory of small samples comes from; NULL: malloc */
	uint64_t max_sample_nbytes; /* of wanted fields; a larger sample is bad; 0: no limit */
	const char *index_dir;      /* of write_index; NULL: beside the shard */
	/* What the samples are compared with; one that differs ends the shard: it and those that the index
	 * knows after it are bad, -ESTALE. Borrowed as long as the reader lives; NULL: nothing. */
	struct ps_shard_index *check;
	bool recover;     /* where an index says how many, samples after a damaged place are given, too */
	bool write_index; /* once the shard was read as a whole, if it has none that is good */
	bool never_hold;  /* for listing: no bytes at all */
	/* receives every sample before it is given; NULL: none does */
	struct ps_shard_index_writer *index_writer;
	/* With never_hold: sees each file of a tar (sparse ones and those of no sample, too) before the
	 * sample that it belongs to is given, and may take its data by ps_tar_read(). What it returns below 0
	 * ends the shard, as damage there does. NULL: not looked for. */
	int (*on_member)(
	        void *ctx, struct ps_tar *tar, const struct ps_tar_member *member, struct ps_load_error *err);
	void *on_member_ctx;
};

struct ps_shard;

/* NULL: out of memory. Opens the file at the first ps_shard_next(). */
struct ps_shard *ps_shard_new(
        const char *path, uint32_t shard, const struct ps_shard_options *options, struct ps_load_error *err);

/* The same over a stream that the reader then owns; for tests and fuzzing. */
struct ps_shard *ps_shard_new_stream(struct ps_stream *stream, const struct ps_shard_options *options);

/* Before the first ps_shard_next(): begins with the sample of that ordinal. `offset` is its resume_offset, so
 * that nothing before it is read; 0, or a file that cannot seek: found by walking there. If reading fails on
 * the way, that sample is bad. */
void ps_shard_start_at(struct ps_shard *shard, uint64_t ordinal, uint64_t offset);

/* Whether the samples from the next on hold bytes; at first as never_hold says. Others are walked over. */
void ps_shard_hold(struct ps_shard *shard, bool hold);

/* 1 and the next sample, 0 at the end of the shard. */
int ps_shard_next(
        struct ps_shard *shard, struct ps_sample **ret_sample, struct ps_load_error *err) PS_MUST_USE;

/* After a bad sample, until the next call: -errno if reading failed there, 0 if that sample alone is bad.
 * *ret_garbage: the tar was whole; something else follows it. */
int ps_shard_failed(const struct ps_shard *shard, bool *ret_garbage);

/* Bytes that were read or skipped by now, decompressed. */
uint64_t ps_shard_offset(const struct ps_shard *shard);

/* As ps_stream_size(); -1, too, while the file is not open. */
int64_t ps_shard_size(const struct ps_shard *shard);

enum ps_shard_rest {
	PS_SHARD_GOES,  /* it can only be read further, or was not begun */
	PS_SHARD_RESTS, /* a new reader may begin with the next sample at *ret_offset (ps_shard_start_at()) */
	PS_SHARD_OVER,  /* ps_shard_next() would give 0 */
};

/* Whether the shard may be closed after the sample that was given last. */
enum ps_shard_rest ps_shard_rest(const struct ps_shard *shard, uint64_t *ret_offset);

/* The index of write_index, as far as a shard that rests was read. */
struct ps_shard_byproduct {
	struct ps_shard_index_writer *writer; /* NULL: there is none */
	struct ps_shard_index_version version;
	uint64_t ordinal; /* of the sample that comes next */
};

/* Takes it from a shard that rests, to be given to the reader that goes on there before it begins; one that
 * begins elsewhere frees it. Its owner frees the writer. */
void ps_shard_byproduct_take(struct ps_shard *shard, struct ps_shard_byproduct *ret_byproduct);
void ps_shard_byproduct_give(struct ps_shard *shard, struct ps_shard_byproduct *byproduct);

void ps_shard_free(struct ps_shard *shard); /* NULL is allowed */

/* Making indexes ----------------------------------------------------------------------------------------- */

/* index="make": makes the indexes that a list of shards lacks, where that is quick.
 *
 * A shard is walked over only if reading it costs no request: it is local, or its mount has all of it. The
 * walk ends when the whole of it would take more than PS_INDEX_AUTO_S by what it took so far; what was made
 * stays. One process at a time in a folder: the others wait for it and find what it made.
 *
 * Ownership: borrows all.   Threads: any.   Locks: a lock file in the folder of the indexes.
 * Blocks: on the disk, up to about PS_INDEX_AUTO_S, or as long as another process makes them.
 * Errors: -EINVAL with a text that says what there would be to read and how long it would take; others of the
 * disk. */

/* The hint where an index is missing, for callers that have the option; the programs have not. */
#define PS_INDEX_AUTO_HINT "; or have short ones made here (index=\"make\")"

#define PS_INDEX_AUTO_S 10

int ps_shard_index_auto(struct ps_shard_indexes *indexes, char *const *shards, size_t nshards,
        const char *dir, struct ps_load_error *err) PS_MUST_USE;

struct ps_shard_index_result {
	uint64_t samples, bad;
	uint64_t plain_nbytes;          /* of the shard decompressed, as far as it could be read */
	struct ps_load_error first_bad; /* the line that names it, if bad > 0 */
};

/* Reads the shard and writes its index: complete or not at all, to another name first. Damage is no error:
 * what is bad is counted. */
int ps_shard_index_make(const char *shard, const char *dir, const struct ps_column_spec *columns,
        size_t ncolumns, struct ps_shard_index_result *ret_result, struct ps_load_error *err) PS_MUST_USE;

/* The same beside a shard whose hash is known, which the index keeps. */
int ps_shard_index_make_hashed(const char *shard, const struct ps_column_spec *columns, size_t ncolumns,
        const uint8_t sha256[static 32], struct ps_shard_index_result *ret_result,
        struct ps_load_error *err) PS_MUST_USE;

/* The same, and gives it instead of writing it. */
int ps_shard_index_make_mem(const char *shard, const struct ps_column_spec *columns, size_t ncolumns,
        struct ps_shard_index **ret_index, struct ps_load_error *err) PS_MUST_USE;

/* Lists of shards ---------------------------------------------------------------------------------------- */

/* Shard lists: the names a user wrote, made into the list of files to read.
 *
 *   data/train-{000000..001281}.tar     brace expansion, as WebDataset spells it (see ps_shard_list_add)
 *   a.tar::b-{0..3}.tar                 "::" joins several patterns in one string
 *   data/t*.tar, data/                  files that are looked for (shard/list.c); not in a text file
 *   @shards.txt                         a text file: a pattern a line; blank lines and '#' lines are skipped
 *
 * Ownership: the list owns its names; they live until ps_shard_list_fini().
 * Threads: none of its own; one thread at a time.
 * Errors: -EINVAL for a bad pattern, -E2BIG past a limit, -ENOMEM, or the errno of reading a list file; `err`
 * says which. */

#define PS_LIST_MAX_NAMES 1000000        /* more: -E2BIG */
#define PS_LIST_MAX_BYTES (512UL << 20)  /* of all names together; more: -E2BIG */
#define PS_LIST_MAX_DEPTH 32             /* of nested braces; deeper: -EINVAL */
#define PS_LIST_MAX_FILE (512UL << 20)   /* a list file; larger: -E2BIG */
#define PS_LIST_MAX_PATTERN (64UL << 10) /* one pattern; longer: -E2BIG */

struct ps_shard_list {
	char **names;
	size_t n;
	size_t cap;
	size_t nbytes; /* of all names, with their ends */
};

/* Appends what `pattern` stands for, in order. Reads a file if it begins with '@', and looks for files where
 * it has wildcards or is a folder. On error the list is as before.
 *
 * Brace expansion: {a,b} alternatives, {3..10} and {a..f} ranges with an optional third number (the step), in
 * both directions; a leading zero pads all numbers of the range to one width; braces nest; a group that is
 * neither stays as it is; a backslash takes the next character literally; unbalanced braces are an error. */
int ps_shard_list_add(struct ps_shard_list *list, const char *pattern, struct ps_load_error *err) PS_MUST_USE;

/* The same for the text of a list file. `name` is for error texts. */
int ps_shard_list_add_text(struct ps_shard_list *list, const char *text, size_t len, const char *name,
        struct ps_load_error *err) PS_MUST_USE;

/* Appends one name of `len` bytes, as it is. take() owns it, also when it fails; NULL: -ENOMEM. */
int ps_shard_list_push(
        struct ps_shard_list *list, const char *name, size_t len, struct ps_load_error *err) PS_MUST_USE;
int ps_shard_list_take(
        struct ps_shard_list *list, char *name, size_t len, struct ps_load_error *err) PS_MUST_USE;

/* Shortens the list to its first n names. */
void ps_shard_list_cut(struct ps_shard_list *list, size_t n);

/* Frees the names and zeroes the list. */
void ps_shard_list_fini(struct ps_shard_list *list);

#endif
