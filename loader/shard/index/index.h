/* Indexes of shards and catalogues of folders: counts, offsets, keys and columns without reading the
 * shards.
 *
 * From the top down; each file uses those below it, and shard/file/:
 *
 *   set.c        the indexes of a list of shards
 *   catalogue.c  the catalogue of a folder of shards
 *   index.c      an index: opening, checking, queries
 *   writer.c     an index while it is built
 *   file.c       the path of an index, and the version of the shard that it belongs to
 *   format.h     what these files share: paths, an open index; base/psx.h has the format of an index
 *
 * The functions that make indexes, by reading shards, are in shard/shard.h. */
#ifndef PS_SHARD_INDEX_INDEX_H
#define PS_SHARD_INDEX_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/psx.h"
#include "shard/file/file.h"

/* The index of a shard: its counts, offsets, keys and columns. It is made by reading the shard once.
 *
 *   struct ps_shard_indexes *all;                         one for a list of shards, any thread
 *   ps_shard_indexes_count(all, shard, &count, err)       cheap after the first time: counts are kept
 *   ps_shard_indexes_get(all, shard, &index, err)         maps it, or returns the existing map
 *     ps_shard_index_place(index, i, &place)              where sample i begins: place.resume_offset is for
 *                                                         ps_shard_start_at()
 *     ps_shard_index_column(index, "label")               number of a column, for ps_shard_index_value()
 *   ps_shard_indexes_put(all, index)
 *
 * An index is a file NAME.psx beside the shard, or in a folder of indexes (there NAME-SIZE-HEADER.psx,
 * where HEADER is a sum of the shard's first header, since names repeat). base/psx.h has the format. A
 * catalogue beside shards (below) has the counts of all of them at once.
 *
 * An index fits any shard with its name and size, in any folder. A set opens an index without reading the
 * shard, unless two indexes in a folder of indexes fit. While the shard is read, each header is compared
 * with the index (ps_shard_index_check()), so that a replaced shard is detected where it differs. The count
 * is the number of samples that a loader delivers, bad ones (holes) included. An index never changes an
 * order.
 *
 * Ownership: an index belongs to the caller that opened it; returned data points into it. An index of a set
 * is borrowed between get and put; the set keeps at most PS_INDEXES_MAX_OPEN indexes that are not borrowed.
 * Threads: any, except for close and free.   Locks: a set has two of its own, both leaves; one is held
 * while a catalogue or the folder of indexes is read.
 * Blocks: open, count and get on the disk; the others on page faults of a mapped file.
 * Errors: 0 or -errno with a text. -ENOENT: no index; -ESTALE: made for another version of the shard, or
 * in another version of the format; -EBADMSG: damaged. Data of a damaged section is never returned: each
 * section is checked as a whole before its first use. */

#define PS_INDEX_MAX_COLUMNS 64
/* indexes of a set that are kept while not borrowed; beyond that the oldest is closed */
#define PS_INDEXES_MAX_OPEN 256

struct ps_shard_index;

/* The shard of an index ---------------------------------------------------------------------------------- */

/* A version of a shard's file, compared to detect changes while the shard is read. */
struct ps_shard_index_version {
	uint64_t nbytes;
	int64_t mtime_ns;
	mode_t mode;
};

/* -EINVAL: not an ordinary file. */
int ps_shard_index_version_read(
        const char *shard, struct ps_shard_index_version *ret_version, struct ps_error *err) PS_MUST_USE;

bool ps_shard_index_version_same(
        const struct ps_shard_index_version *a, const struct ps_shard_index_version *b);

/* The shard that an index belongs to. */
struct ps_shard_index_binding {
	uint64_t nbytes, plain_nbytes;
	uint64_t first;                /* checksum of its first header, decompressed */
	uint8_t sha256[PS_PSX_SHA256]; /* SHA-256 of the stored shard; zeros: not known */
};

bool ps_shard_index_sha256_known(const uint8_t sha256[static PS_PSX_SHA256]);

/* Reads a shard's first header and returns its checksum. */
int ps_shard_index_first_read(const char *shard, uint64_t *ret_first, struct ps_error *err) PS_MUST_USE;

/* True if reading the shard costs no request: the file is local, or completely cached by its mount. */
bool ps_shard_index_shard_is_here(const char *shard);

/* Opening ------------------------------------------------------------------------------------------------ */

/* Opens the index of a shard. With `dir`, the folder of indexes, the shard's first header is read to find
 * its index. `dir` NULL: beside the shard (for an x.tar that a mount shows decompressed, also the index of
 * x.tar.zst or x.tar.gz). */
int ps_shard_index_open(const char *shard, const char *dir, struct ps_shard_index **ret_index,
        struct ps_error *err) PS_MUST_USE;

/* Opens the index file `path` of a shard with `nbytes` bytes. */
int ps_shard_index_open_file(const char *path, const char *shard, uint64_t nbytes,
        struct ps_shard_index **ret_index, struct ps_error *err) PS_MUST_USE;

/* Opens an index from the time when the shard was longer than now, to find the samples that were cut off.
 * -ENOENT: no index of a longer shard. */
int ps_shard_index_open_of_longer(const char *shard, const char *dir, struct ps_shard_index **ret_index,
        struct ps_error *err) PS_MUST_USE;

/* Opens an index from bytes in memory, which are copied; no shard is accessed. For tests and fuzzing. */
int ps_shard_index_open_mem(
        const void *data, size_t nbytes, struct ps_shard_index **ret_index, struct ps_error *err) PS_MUST_USE;

/* Makes an index of a token stream, from the stream's size. It has no keys. */
int ps_shard_index_open_windows(const char *shard, const struct ps_windows *windows,
        struct ps_shard_index **ret_index, struct ps_error *err) PS_MUST_USE;

/* Makes an index of a unit of rows: sample i is at offset i. It has no keys. */
int ps_shard_index_open_rows(
        const char *unit, uint64_t rows, struct ps_shard_index **ret_index, struct ps_error *err) PS_MUST_USE;

/* The shard that the index belongs to. */
const struct ps_shard_index_binding *ps_shard_index_binding(const struct ps_shard_index *index);

const char *ps_shard_index_path_of(const struct ps_shard_index *index);

/* True for an index of lines; false: of members. */
bool ps_shard_index_is_of_lines(const struct ps_shard_index *index);

void ps_shard_index_close(struct ps_shard_index *index); /* NULL is allowed */

uint64_t ps_shard_index_samples(const struct ps_shard_index *index);
uint64_t ps_shard_index_bad(const struct ps_shard_index *index); /* bad samples among these */

struct ps_shard_index_place {
	uint64_t offset; /* offset of the sample's first header (line: first byte), decompressed */
	/* equals `offset` if a walk can begin there; 0: walks begin at the shard's beginning */
	uint64_t resume_offset;
	bool bad;
	uint32_t nmembers; /* known members; 0: none (a bad sample, or one with very many members) */
};

/* Where a sample is in its shard, and its members in the order of the shard, all or none; their number is
 * ret_place->nmembers, at most PS_PSX_MAX_MEMBERS. ret_members may be NULL. -ERANGE: no such sample; -EBADMSG:
 * damaged. */
struct ps_shard_index_member {
	const char *suffix; /* lower case, zero-terminated */
	uint64_t offset;    /* offset of its data */
	uint64_t size;
};

int ps_shard_index_place(struct ps_shard_index *index, uint64_t sample,
        struct ps_shard_index_place *ret_place, struct ps_shard_index_member *ret_members,
        struct ps_error *err) PS_MUST_USE;

/* The sample's key, not zero-terminated; that of a bad sample may be empty. */
int ps_shard_index_key(struct ps_shard_index *index, uint64_t sample, const char **ret_key, size_t *ret_len,
        struct ps_error *err) PS_MUST_USE;

/* Comparing with the shard ------------------------------------------------------------------------------- */

/* The end of each error text about an invalid index. */
#define PS_INDEX_HINT "make it again by penstock-loader index"
#define PS_INDEX_STALE "the shard was changed since" /* part of each error text about a difference */

/* The state of a walk over an index. With it, the sample after the one compared before is found in one step.
 * All zeros: no walk yet. */
struct ps_shard_index_walk {
	bool ready;
	uint64_t next, end;
	const uint8_t *place, *key;
};

/* Compares a sound sample that was read with its entry in the index. -ESTALE, with a text that does not
 * name the shard: the sample differs, or the index has no such sample. */
int ps_shard_index_check(struct ps_shard_index *index, struct ps_shard_index_walk *walk, uint64_t sample,
        uint64_t offset, const char *key, size_t key_len, const struct ps_shard_index_member *members,
        uint32_t nmembers, struct ps_error *err) PS_MUST_USE;

/* The same for the shard's first PS_PSX_FIRST bytes (all, if it is shorter), decompressed. */
int ps_shard_index_check_first(
        const struct ps_shard_index *index, const uint8_t *p, size_t n, struct ps_error *err) PS_MUST_USE;

/* Memory that the index takes: its bytes if it is not mapped; else 0. */
size_t ps_shard_index_held(const struct ps_shard_index *index);

/* True if both have the same samples and columns. */
bool ps_shard_index_equals(struct ps_shard_index *a, struct ps_shard_index *b);

/* Columns: values taken from members when the index was made --------------------------------------------- */

enum ps_column_type {
	PS_COLUMN_INT = 1,
	PS_COLUMN_FLOAT = 2,
	PS_COLUMN_TEXT = 3, /* at most 255 bytes */
};

struct ps_column_value {
	bool missing; /* the sample is bad, or it has no such member, or the member has no such value */
	enum ps_column_type type;
	int64_t integer;
	double number; /* set for integers, too */
	const char *text;
	size_t text_len;
};

int ps_shard_index_ncolumns(const struct ps_shard_index *index);

/* The number of the column with that name; -1: none. */
int ps_shard_index_column(const struct ps_shard_index *index, const char *name);

/* True if the column is known to be taken from `from`, as in struct ps_column_spec. */
bool ps_shard_index_column_is(const struct ps_shard_index *index, int column, const char *from);

/* "NAME=FROM" of a column, as on the command line; the caller frees it. NULL: the file does not say where the
 * column comes from, or out of memory. */
char *ps_shard_index_column_text(const struct ps_shard_index *index, int column);

int ps_shard_index_value(struct ps_shard_index *index, int column, uint64_t sample,
        struct ps_column_value *ret_value, struct ps_error *err) PS_MUST_USE;

/* The indexes of a list of shards ------------------------------------------------------------------------ */

struct ps_shard_indexes;
struct ps_packing;

/* Creates a set, which borrows the names and `dir` for its life. Opens no file. NULL: out of memory. */
struct ps_shard_indexes *ps_shard_indexes_new(char *const *shards, size_t nshards, const char *dir);
/* Sets the kind of the shards, before the first query. Counts of token streams follow from their sizes; an
 * index of lines is not accepted for a tar. */
void ps_shard_indexes_set_source(
        struct ps_shard_indexes *indexes, enum ps_shard_kind source, const struct ps_windows *windows);
/* Sets the packing of token files, before the first query: its counts are those of the stretches, which `shards` names.
 * Borrowed. */
void ps_shard_indexes_set_packing(struct ps_shard_indexes *indexes, const struct ps_packing *packing);
/* Sets where the rows of units come from, before the first query: counts are the source's. */
void ps_shard_indexes_set_columns(struct ps_shard_indexes *indexes,
        int (*count)(void *ctx, const char *unit, uint64_t *ret_rows, struct ps_error *err), void *ctx);
void ps_shard_indexes_free(
        struct ps_shard_indexes *indexes); /* NULL is allowed; none of its indexes may be borrowed */

/* How many samples a shard has: from its index in the folder of indexes, else from the catalogue beside the
 * shard, else from the index beside the shard. A count that was found is kept, so that an epoch always uses
 * the same counts. */
int ps_shard_indexes_count(struct ps_shard_indexes *indexes, uint32_t shard, uint64_t *ret_count,
        struct ps_error *err) PS_MUST_USE;

/* Borrows the index of a shard. -ESTALE also if the index and the catalogue are of different versions of
 * the shard. */
int ps_shard_indexes_get(struct ps_shard_indexes *indexes, uint32_t shard, struct ps_shard_index **ret_index,
        struct ps_error *err) PS_MUST_USE;
void ps_shard_indexes_put(struct ps_shard_indexes *indexes, struct ps_shard_index *index);

/* Writing an index --------------------------------------------------------------------------------------- */

/* An index being built in memory, sample by sample, in the order of the shard.
 *
 * Ownership: the writer copies its input.   Threads: one at a time.   Locks: none.
 * Blocks: only ps_shard_index_writer_save(), on the disk.   Errors: 0 or -errno. After -ENOMEM or -EINVAL
 * (samples out of order) the writer stays failed, and saving fails the same way. */

struct ps_shard_index_writer;

/* NULL: out of memory. */
struct ps_shard_index_writer *ps_shard_index_writer_new(void);
void ps_shard_index_writer_free(struct ps_shard_index_writer *writer); /* NULL is allowed */

/* What is known of the shard besides its samples; unset values are zeros. */
struct ps_shard_index_facts {
	uint32_t flags; /* PS_PSX_FLAG_...; PS_PSX_FLAG_LINES must be set before the first sample */
	/* the shard has something that the index does not record: a member that belongs to no sample, a suffix with
	 * capital letters, or a __bad__ mark */
	bool leaves_out;
	bool ended;                    /* it was read from its beginning to its end mark */
	uint64_t first;                /* checksum of its first header */
	uint8_t sha256[PS_PSX_SHA256]; /* of all its bytes */
};
struct ps_shard_index_facts *ps_shard_index_writer_facts(struct ps_shard_index_writer *writer);

/* Adds a sample; `members` are in the order of the shard. */
int ps_shard_index_writer_add(struct ps_shard_index_writer *writer, uint64_t offset, bool bad,
        const char *key, size_t key_len, const struct ps_shard_index_member *members,
        uint32_t nmembers) PS_MUST_USE;

/* Declares a column, before the first sample; returns its number, or -errno. `from`: as in struct
 * ps_column_spec. */
int ps_shard_index_writer_column(
        struct ps_shard_index_writer *writer, const char *name, const char *from) PS_MUST_USE;

/* Sets the value of the sample added last; without a call it is missing. A column with both integers and
 * floats becomes one of floats; a column with any text becomes one of texts. */
int ps_shard_index_writer_value(
        struct ps_shard_index_writer *writer, int column, const struct ps_column_value *value) PS_MUST_USE;

/* The decompressed size of a shard of `nbytes` stored bytes, of which `read` decompressed bytes were read. */
uint64_t ps_shard_index_writer_plain(
        const struct ps_shard_index_writer *writer, uint64_t nbytes, uint64_t read);

/* Returns the file's bytes, which the caller frees. `nbytes`: stored bytes of the shard; `read`:
 * decompressed bytes that were read. */
int ps_shard_index_writer_finish(struct ps_shard_index_writer *writer, uint64_t nbytes, uint64_t read,
        uint8_t **ret_data, size_t *ret_nbytes, struct ps_error *err) PS_MUST_USE;

/* The same, written to the shard's index file. -EAGAIN: the shard no longer has that version. */
int ps_shard_index_writer_save(struct ps_shard_index_writer *writer, const char *shard, const char *dir,
        const struct ps_shard_index_version *version, uint64_t read, struct ps_error *err) PS_MUST_USE;

/* Declarations ------------------------------------------------------------------------------------------- */

/* "label=cls": the text of member .cls, stored as a number if it is one. "h=json:height" or
 * "json:meta.height": a value inside a JSON member: a number, true or false (1, 0), or a string. Without
 * "NAME=" the text itself is the name. */
struct ps_column_spec {
	char *name, *suffix;
	char *from; /* "suffix" or "suffix:path": where the column comes from, as an index stores it */
	/* steps inside the JSON, each zero-terminated, then another zero; NULL: the member's text */
	char *path;
};

/* -EINVAL with a text. */
int ps_column_spec_parse(const char *text, struct ps_column_spec *ret_spec, struct ps_error *err) PS_MUST_USE;
void ps_column_spec_fini(struct ps_column_spec *spec);

/* Reads the value from a member's bytes. ret_value points into `scratch` and `data`, and is missing if the
 * bytes have no such value. -ENOMEM. */
int ps_column_spec_value(const struct ps_column_spec *spec, const uint8_t *data, size_t n,
        struct ps_buf *scratch, struct ps_column_value *ret_value) PS_MUST_USE;

/* Catalogues --------------------------------------------------------------------------------------------- */

/* The catalogue of the shards in a folder, with the number of samples of each. The shards' publisher
 * uploads it beside them. This one file gives the length of an epoch, so no index has to be fetched for
 * that.
 *
 * A text file, SHARDS.psc:
 *
 *   penstock-shards 1
 *   SHA256 BYTES PLAIN SAMPLES BAD tar|lines NAME      a line for each shard, sorted by name (bytes)
 *   sum SUM                                            16 digits: checksum of all lines before
 *
 * SHA256 is the hash of the stored shard (- if not known), PLAIN its decompressed size. Each shard in the
 * catalogue has its index, NAME.psx, beside it. A truncated or damaged catalogue is refused as a whole.
 *
 * Ownership: a catalogue belongs to the caller; entries belong to the catalogue.   Threads: any, except for
 * free.   Locks: none.
 * Blocks: reading and writing on the disk.
 * Errors: 0 or -errno with a text. -ENOENT: no such file; -EBADMSG: damaged; -ESTALE: another version of
 * the format. */

#define PS_CATALOGUE_NAME "SHARDS.psc"
#define PS_CATALOGUE_MAX_FILE (UINT64_C(1) << 30)

struct ps_catalogue_entry {
	char *name; /* without folders */
	uint64_t nbytes, plain_nbytes;
	uint64_t samples, bad;
	bool lines;
	uint8_t sha256[PS_PSX_SHA256]; /* zeros: not known */
};

struct ps_catalogue {
	char *path;
	struct ps_catalogue_entry *entries; /* sorted by name */
	size_t n;
	char *text; /* the text that names point into */
};

/* Reads the catalogue of a folder. */
int ps_catalogue_read(const char *dir, struct ps_catalogue **ret_catalogue, struct ps_error *err) PS_MUST_USE;

/* The entry of a shard; NULL: none. */
const struct ps_catalogue_entry *ps_catalogue_find(const struct ps_catalogue *catalogue, const char *name);

/* The entry of a shard by the name and size that a reader sees: also that of x.tar.zst or x.tar.gz, which a
 * mount shows decompressed as x.tar. */
const struct ps_catalogue_entry *ps_catalogue_match(
        const struct ps_catalogue *catalogue, const char *name, uint64_t nbytes);

void ps_catalogue_free(struct ps_catalogue *catalogue); /* NULL is allowed */

/* Adds entries to the folder's catalogue, and sorts the array. Existing entries with the same names are
 * replaced; entries whose shards no longer exist with that size are dropped. The folder is locked (flock):
 * one process at a time. is_part: processes on several machines may call this at the same time; NFS does not
 * lock folders, so the file .SHARDS.psc.lock in the folder is locked, too, and is left there.
 * -EINVAL: a name that a catalogue cannot hold. */
int ps_catalogue_update(const char *dir, struct ps_catalogue_entry *entries, size_t n, bool is_part,
        struct ps_error *err) PS_MUST_USE;

#endif
