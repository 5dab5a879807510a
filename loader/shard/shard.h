/* Shards read as samples; lists of shards.
 *
 * From the top down; each file uses those below it:
 *
 *   make.c       reads a shard to make its index
 *   shard.c      a shard's samples, front to back; recovery after damage, with the shard's index
 *   builder.c    a sample built from members, lines or tokens
 *   tokens/      token files packed into rows
 *   columns.c    a sample built from a row of Arrow's columns
 *   sample.c     samples, and the slabs that hold small ones
 *   sums.c       which samples a wrong checksum covers
 *   index/       indexes of shards, catalogues of folders
 *   file/        a shard's file: bytes, tars, kinds
 *   list.c       expands a user's patterns to file names; of these it uses only file/
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
#include "shard/tokens/tokens.h"

/* Memory of small samples -------------------------------------------------------------------------------- */

/* Memory of many small samples: one malloc and one free for about a hundred of them.
 *
 *   maker: ps_slab_new, [ps_slab_take ..., ps_slab_share]..., ps_slab_retire
 *   users: ps_slab_put
 *
 * Ownership: a slab lives until its maker has retired it and each user has put it back. A pool outlives its
 * slabs.   Threads: the maker one at a time; ps_slab_put() any; a pool any.
 * Locks: the pool's, a leaf.   Blocks: never.   Errors: NULL: out of memory, or beyond the budget. */

#define PS_SLAB_NBYTES (64UL << 10) /* size of a slab, header included */

struct ps_slab;

/* Unused slabs, kept for later samples: touching new memory costs more than filling it. */
struct ps_slab_pool {
	pthread_mutex_t lock; /* guards all below */
	struct ps_slab *free;
	uint32_t nfree, keep;
};

void ps_slab_pool_init(struct ps_slab_pool *pool, uint32_t keep);
void ps_slab_pool_fini(struct ps_slab_pool *pool);

/* A new slab, which counts against the budget. `budget`, `pool`: NULL is allowed. NULL: over the budget, or
 * out of memory. */
struct ps_slab *ps_slab_new(struct ps_slab_pool *pool, struct ps_byte_budget *budget);

/* n bytes of the slab, aligned for any object; NULL: the slab is full. */
void *ps_slab_take(struct ps_slab *slab, size_t n);

/* The number of bytes taken; ps_slab_rewind() returns to such a number. */
size_t ps_slab_used(const struct ps_slab *slab);
void ps_slab_rewind(struct ps_slab *slab, size_t used);

/* Adds a user. */
void ps_slab_share(struct ps_slab *slab);

void ps_slab_retire(struct ps_slab *slab); /* NULL is allowed */
void ps_slab_put(struct ps_slab *slab);    /* NULL is allowed */

/* Samples ------------------------------------------------------------------------------------------------ */

/* Samples: the members of a tar that share a key, grouped as WebDataset groups them.
 *
 * A member's key is its path up to the first dot of its last component; its suffix is the text after that
 * dot, in lower case. Members without such a dot, and those whose path begins with a component
 * __LIKE_THIS__, belong to no sample. Consecutive members with one key are a sample; if the key occurs
 * again later, it begins another sample.
 *
 * Ownership: a sample owns its memory and a reference to its file; free it on any thread.
 * Threads: one at a time for one sample; any for different ones.
 * Errors: a damaged sample is not an error: it is a sample with bad != 0 and a reason. */

#define PS_SAMPLE_MAX_FIELDS 1024 /* a sample with more is bad */

/* A shard's file, which lives as long as a sample needs it. */
struct ps_shard_file {
	_Atomic uint32_t refs;
	int fd; /* for pread; -1: not kept open. With `again`, `path` is opened for each read */
	bool again;
	/* of a compressed shard, and with `again`: the file's status at first; another file at `path` is
	 * refused */
	struct stat was;
	uint32_t shard;   /* its place in the list of shards */
	uint64_t first;   /* the number in the file of the reader's first sample: packed rows */
	const char *path; /* borrowed from that list */
};

/* Adds or drops n references; dropping the last one closes the file. */
void ps_shard_file_ref(struct ps_shard_file *file, uint32_t n);
void ps_shard_file_unref(struct ps_shard_file *file, uint32_t n);

/* Prepares the file, open as `fd`, so that samples can be read from it later. It is kept open while all
 * loaders together keep fewer files than a quarter of the process's descriptor limit; beyond that an ordinary
 * file is opened again by its path. -1: error, in errno. Called by the file's only reader, before a sample
 * that needs the file is returned. */
int ps_shard_file_keep(struct ps_shard_file *file, int fd) PS_MUST_USE;

/* A descriptor for reading from the file again: the one that is kept, or a new one, which is also *ret_own and must be
 * closed by the caller. -ESTALE: the file was replaced. */
int ps_shard_file_open(const struct ps_shard_file *file, int *ret_own, struct ps_error *err) PS_MUST_USE;

struct ps_sample_field {
	const char *suffix; /* lower case, ends with a zero */
	uint64_t offset;    /* offset of its data in the tar */
	uint64_t size;
	uint8_t *data; /* NULL: not in memory; ps_sample_load() reads it */
	uint32_t suffix_len;
	bool owned;  /* data is memory of its own; else it is in the sample's slab */
	bool packed; /* the member is compressed (zstd); ps_sample_load() decompresses it */
};

struct ps_sample {
	struct ps_shard_file *file;
	struct ps_slab *slab; /* slab that holds a part of it; NULL: none */
	bool in_slab;         /* the struct itself is in the slab */
	/* counts the bytes that the sample and its fields hold; NULL: not counted */
	struct ps_byte_budget *budget;
	uint64_t own_nbytes;    /* bytes of the struct with its names; 0: they are in the slab */
	uint64_t ordinal;       /* the nth sample of its shard, from 0 */
	uint64_t offset;        /* offset of its first header */
	uint64_t resume_offset; /* equals `offset` if a walk can begin there; 0: it cannot */
	uint64_t wanted_nbytes; /* bytes of the wanted fields, in memory or not */
	const char *key;        /* followed by the suffixes of all members; each is zero-terminated */
	char *reason;           /* why it is bad; NULL if bad is 0 */
	uint32_t key_len, names_nbytes;
	int bad;          /* errno, positive; 0: sound */
	uint32_t nfields; /* wanted fields */
	uint32_t draw;    /* number of the draw of this sample in its epoch, for random numbers */
	/* a packed row, whose field is not in memory: its piece (NULL: none), and its place in there */
	struct ps_token_piece *piece;
	uint32_t row;
	struct ps_sample_field fields[];
};

/* The field with that suffix, or NULL. */
struct ps_sample_field *ps_sample_find(struct ps_sample *sample, const char *suffix, size_t len);

/* Reads a field that is not in memory, and decompresses one that is packed, which may change its size.
 * -EBADMSG: the file was truncated, or the compressed bytes are damaged. Blocks on the disk. */
int ps_sample_load(struct ps_sample *sample, struct ps_sample_field *field, struct ps_error *err) PS_MUST_USE;

/* Frees a field's bytes. */
void ps_sample_drop(struct ps_sample *sample, struct ps_sample_field *field);

/* Sets -EBADMSG, with a text that names a bad sample: shard, key, offset, reason. Of long names the text has
 * the end. The error borrows the sample's names. */
int ps_sample_error_set(struct ps_error *err, const struct ps_sample *sample, const char *reason);

/* True if an errno of a bad sample means that storage failed, as opposed to damage inside the shard. */
bool ps_errno_is_lost(int errnum);

/* Frees the bytes of a packed row. */
void ps_sample_piece_drop(struct ps_sample *sample);

/* A copy with memory of its own, or NULL: out of memory. */
struct ps_sample *ps_sample_copy(const struct ps_sample *sample);

/* NULL is allowed. */
void ps_sample_free(struct ps_sample *sample);

/* Wrong checksums ---------------------------------------------------------------------------------------- */

/* The samples of compressed shards that a wrong checksum covers, as far as they were found. The checksum follows
 * the data, so the first samples have been returned before it is read; the set remembers them for the next time
 * that the shard is read, if the file is the same by its size and times.
 *
 * Threads: any.   Locks: its own, a leaf.   Blocks: never.   Errors: -ENOMEM. */
struct ps_shard_sums {
	pthread_mutex_t lock; /* guards `runs` */
	struct ps_buf runs;
	_Atomic size_t n;
};

void ps_shard_sums_init(struct ps_shard_sums *sums);
void ps_shard_sums_fini(struct ps_shard_sums *sums);

/* Adds the samples `from` to `to` - 1 of a shard. */
int ps_shard_sums_add(
        struct ps_shard_sums *sums, const struct ps_shard_file *file, uint64_t from, uint64_t to) PS_MUST_USE;

bool ps_shard_sums_has(struct ps_shard_sums *sums, const struct ps_shard_file *file, uint64_t ordinal);

#define PS_SHARD_SUM_REASON "the checksum of the compressed data that it is in does not match"

/* Sources of columns ------------------------------------------------------------------------------------- */

/* The caller's source, with the members that the fields read. Ownership: borrows both.   Threads: any. */
struct ps_columns_source {
	const struct penstock_columns *calls;
	const char *const *members; /* in lower case */
	uint32_t nmembers;
};

/* Counts the rows of a unit. Blocks as the source does; call it without a lock. */
int ps_columns_count(const struct ps_columns_source *source, const char *unit, uint64_t *ret_rows,
        struct ps_error *err) PS_MUST_USE;

/* The length of the file's path in the name of a unit that is a part of a file. */
size_t ps_columns_file_len(const char *unit);

/* Shards ------------------------------------------------------------------------------------------------- */

/* One shard, read as samples, front to back.
 *
 * Ownership: a reader belongs to its creator; samples belong to the caller. The path is borrowed until the
 * last sample is gone. Threads: one at a time; samples may be freed elsewhere.   Locks: none. Errors:
 * damage of a shard is returned as a bad sample at its place, and ends the shard if nothing after it can be
 * trusted: a sample is complete or bad, never shorter than it was written, unless a tar without an end mark was
 * cut between two of its members and no index knows of it. Errors are only -ECANCELED and
 * this process's lack of resources (-ENOMEM, -EMFILE, -ENFILE), which say nothing about the shard.
 * Blocks: as the stream does. */

struct ps_shard_options {
	struct ps_stream_options stream;
	enum ps_shard_kind source;
	struct ps_windows windows; /* windows of token streams */
	/* Packed rows of token files, in place of windows: the stretch that is read, in this epoch and pass over
	 * it. NULL: none. */
	struct ps_packing *packing;
	uint32_t stretch;
	uint64_t epoch, pass;
	bool single; /* one sample is read; packed rows only */
	/* where rows come from; the path is then a unit's name. Borrowed; NULL: shards are files */
	const struct ps_columns_source *columns;
	/* Whether fields with a suffix are wanted, so that samples hold their bytes; NULL: all are. Called
	 * on the reading thread. */
	bool (*wants)(void *ctx, const char *suffix, size_t len);
	void *wants_ctx;
	/* Budget of the bytes held in memory. Beyond it, fields of files that can be read again stay in the
	 * file; NULL: no limit. */
	struct ps_byte_budget *budget;
	struct ps_slab_pool *slabs; /* memory of small samples; NULL: malloc */
	struct ps_shard_sums *sums; /* its samples are bad, and those found are added; NULL: none is known */
	/* limit of the wanted fields' bytes; a larger sample is bad; 0: no limit */
	uint64_t max_sample_nbytes;
	const char *index_dir; /* folder of indexes, for recover; NULL: beside the shard */
	/* The index that samples are compared with. A sample that differs ends the shard: that sample and
	 * all later ones of the index are bad, with -ESTALE. Borrowed as long as the reader lives; NULL: no
	 * comparison. */
	struct ps_shard_index *check;
	bool recover;    /* also return the samples after a damaged place, if an index lists them */
	bool never_hold; /* for listing: hold no bytes at all */
	/* receives every sample before it is returned; NULL: none */
	struct ps_shard_index_writer *index_writer;
	/* With never_hold: called for each file of a tar (including sparse files, hard links of samples with
	 * the place of their target, and files of no sample) before its sample is returned; may read the data
	 * of a file by ps_tar_read(). A negative result ends the
	 * shard, as damage at that place does. NULL: none. */
	int (*on_member)(
	        void *ctx, struct ps_tar *tar, const struct ps_tar_member *member, struct ps_error *err);
	void *on_member_ctx;
};

struct ps_shard;

/* NULL: out of memory. Opens the file at the first ps_shard_next(). */
struct ps_shard *ps_shard_new(
        const char *path, uint32_t shard, const struct ps_shard_options *options, struct ps_error *err);

/* Before the first ps_shard_next(): begins with the sample `ordinal`. `offset` is its resume_offset, so
 * that nothing before it is read. If it is 0, or the file cannot seek, the sample is found by walking; if
 * reading fails on the way, the sample is bad. */
void ps_shard_start_at(struct ps_shard *shard, uint64_t ordinal, uint64_t offset);

/* Sets whether samples from the next one on hold bytes; initially the opposite of never_hold. Samples
 * without bytes are only walked over. */
void ps_shard_hold(struct ps_shard *shard, bool hold);

/* 1 and the next sample, 0 at the end of the shard. */
int ps_shard_next(struct ps_shard *shard, struct ps_sample **ret_sample, struct ps_error *err) PS_MUST_USE;

/* After a bad sample, until the next call: -errno if reading failed there, 0 if that sample alone is bad.
 * *ret_garbage: the tar was whole; something else follows it. */
int ps_shard_failed(const struct ps_shard *shard, bool *ret_garbage);

/* After the end of the shard: true if it is a tar without an end mark, which may have been cut off between two
 * members. Then no index knows of more. */
bool ps_shard_has_no_end(const struct ps_shard *shard);

/* Decompressed bytes read or skipped so far. */
uint64_t ps_shard_offset(const struct ps_shard *shard);

/* As ps_stream_size(); also -1 while the file is not open. */
int64_t ps_shard_size(const struct ps_shard *shard);

enum ps_shard_rest {
	PS_SHARD_GOES, /* the shard must stay open, or was not begun */
	/* the shard may be closed: a new reader can begin at *ret_offset (ps_shard_start_at()) */
	PS_SHARD_RESTS,
	PS_SHARD_OVER, /* the shard is at its end: ps_shard_next() would return 0 */
};

/* Whether the shard may be closed after the sample that was returned last. */
enum ps_shard_rest ps_shard_rest(const struct ps_shard *shard, uint64_t *ret_offset);

void ps_shard_free(struct ps_shard *shard); /* NULL is allowed */

/* Making indexes ----------------------------------------------------------------------------------------- */

/* index="make": makes the missing indexes of a list of shards, where that is quick.
 *
 * A shard is walked over only if reading it costs no request: it is local, or completely cached by its
 * mount. The walk ends when the estimate for all shards exceeds PS_INDEX_AUTO_S; the indexes made so far
 * are kept. One process at a time works in a folder: the others wait for it and use its indexes.
 *
 * Ownership: borrows all.   Threads: any.   Locks: a lock file in the folder of the indexes.
 * Blocks: on the disk, up to about PS_INDEX_AUTO_S, or as long as another process makes the indexes.
 * Errors: -EINVAL with a text that says how much must be read and how long that takes; others of the disk. */

/* The hint where an index is missing, for callers that have the option `index`, which the programs lack. */
#define PS_INDEX_AUTO_HINT "; or have missing indexes made at open (index=\"make\")"

#define PS_INDEX_AUTO_S 10

int ps_shard_index_auto(struct ps_shard_indexes *indexes, char *const *shards, size_t nshards,
        const char *dir, struct ps_error *err) PS_MUST_USE;

struct ps_shard_index_result {
	uint64_t samples, bad;
	uint64_t plain_nbytes;     /* size of the shard decompressed, as far as it could be read */
	struct ps_error first_bad; /* text that names the first bad sample, if bad > 0 */
};

/* Reads the shard and writes its index, completely or not at all: to another name first, then renamed. With
 * `sha256`, the shard's hash, unless it is NULL. Damage is not an error: bad samples are counted. */
int ps_shard_index_make(const char *shard, const char *dir, const struct ps_column_spec *columns,
        size_t ncolumns, const uint8_t *sha256, struct ps_shard_index_result *ret_result,
        struct ps_error *err) PS_MUST_USE;

/* The same, but returns the index in memory and writes no file. */
int ps_shard_index_make_mem(const char *shard, const struct ps_column_spec *columns, size_t ncolumns,
        struct ps_shard_index **ret_index, struct ps_error *err) PS_MUST_USE;

/* Hard links ---------------------------------------------------------------------------------------------- */

/* The files of a tar by their names, so that hard links find their targets. As for tar(1), a link leads to the last
 * earlier member of that name; ".", empty parts and a slash at the beginning of a name do not count.
 *
 * Ownership: the creator's.   Threads: one at a time.   Locks: none.   Blocks: never.
 * Errors: -ENOMEM; -E2BIG: more than PS_LINKS_MAX members or PS_LINKS_MAX_TEXT bytes of names. */

#define PS_LINKS_MAX (UINT32_C(4) << 20)
#define PS_LINKS_MAX_TEXT (256UL << 20)

struct ps_links;

struct ps_links *ps_links_new(void);        /* NULL: out of memory */
void ps_links_free(struct ps_links *links); /* NULL is allowed */

/* Takes note of a member, in the order of the tar. A hard link gets offset and size of its target; kind becomes
 * PS_TAR_OTHER if it has none, that is not an ordinary file before it. */
int ps_links_add(struct ps_links *links, struct ps_tar_member *member) PS_MUST_USE;

/* Lists of shards ---------------------------------------------------------------------------------------- */

/* Shard lists: patterns as users write them, expanded to the list of files to read.
 *
 *   data/train-{000000..001281}.tar     brace expansion, as WebDataset spells it (see ps_shard_list_add)
 *   a.tar::b-{0..3}.tar                 "::" joins several patterns in one string
 *   data/t*.tar, data/                  wildcards, folders: searched on disk (list.c); not in text files
 *   @shards.txt                         a text file: a pattern a line; blank and '#' lines are skipped
 *
 * Ownership: the list owns its names; they live until ps_shard_list_fini().
 * Threads: none of its own; one thread at a time.
 * Errors: -EINVAL for a bad pattern, -ENOENT where no file is found, -E2BIG past a limit, -ENOMEM, or the
 * errno of reading a list file or a folder; `err` says which. */

#define PS_LIST_MAX_NAMES 1000000        /* more: -E2BIG */
#define PS_LIST_MAX_BYTES (512UL << 20)  /* all names together; more: -E2BIG */
#define PS_LIST_MAX_FILE (512UL << 20)   /* a list file; larger: -E2BIG */
#define PS_LIST_MAX_PATTERN (64UL << 10) /* one pattern; longer: -E2BIG */

struct ps_shard_list {
	char **names;
	size_t n;
	size_t cap;
	size_t nbytes; /* bytes of all names, with their terminators */
};

/* Appends the files that `pattern` expands to, in order. Reads a list file if the pattern begins with '@',
 * and searches the disk if it has wildcards or is a folder. On error the list is unchanged.
 *
 * base/braces.h says how braces are expanded. */
int ps_shard_list_add(struct ps_shard_list *list, const char *pattern, struct ps_error *err) PS_MUST_USE;

/* The same for the text of a list file. `name` is for error texts. */
int ps_shard_list_add_text(struct ps_shard_list *list, const char *text, size_t len, const char *name,
        struct ps_error *err) PS_MUST_USE;

/* Appends a name, without expansion; owns it, also on failure. `name` NULL: -ENOMEM. */
int ps_shard_list_take(struct ps_shard_list *list, char *name, struct ps_error *err) PS_MUST_USE;

/* Shortens the list to its first n names. */
void ps_shard_list_cut(struct ps_shard_list *list, size_t n);

/* Frees the names and zeroes the list. */
void ps_shard_list_fini(struct ps_shard_list *list);

#endif
