/* The index of a shard: what is known of it without reading it. Made by reading the shard once.
 *
 *   struct ps_indexes *all;                         one for a list of shards, any thread
 *   ps_indexes_count(all, shard, &count, err)       cheap after the first time: counts are kept
 *   ps_indexes_get(all, shard, &index, err)         maps it, or gives the map that is there
 *     ps_index_place(index, i, &place)              where sample i begins; its resume_offset is what
 *                                                   ps_shard_start_at() takes
 *     ps_index_column(index, "label")               number of a declared column, ps_index_value() reads it
 *   ps_indexes_put(all, index)
 *
 * A file NAME.psx beside the shard, or in a folder (there NAME-SIZE-HEADER.psx, HEADER being a sum of the
 * shard's first header, since names repeat). The format is in shard/index_format.h. A catalogue beside shards
 * (shard/catalogue.h) tells the counts of all of them at once.
 *
 * An index fits a shard of its name and size, wherever that is: opening reads nothing of the shard. While the
 * shard is read, each header is compared with the index (ps_index_check()), so that one that was replaced is
 * found where it differs. Counted are the samples that a loader gives, bad ones (holes) included. It never
 * changes an order.
 *
 * Ownership: an index belongs to whoever opened it; what it returns points into it. One of a set is borrowed
 * between get and put, and the set keeps at most PS_INDEXES_MAX_OPEN that nobody holds.
 * Threads: any, but close and free.   Locks: that of a set, a leaf; not held over the disk.
 * Blocks: open, count and get on the disk; the others on page faults of a mapped file.
 * Errors: 0 or -errno with a text. -ENOENT: no index; -ESTALE: of an earlier version of the shard, or of this
 * format; -EBADMSG: damaged. Nothing of a damaged one is ever given: each section is checked as a whole
 * before its first use. */
#ifndef PS_SHARD_INDEX_H
#define PS_SHARD_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/load_error.h"
#include "shard/source.h"

#define PS_INDEX_SUFFIX ".psx"
#define PS_INDEX_MAX_COLUMNS 64
#define PS_INDEXES_MAX_OPEN 256 /* maps of a set that nobody holds; more: the oldest is closed */

struct ps_index;

/* The index of that shard, whose first header is read to find it in a folder. `dir`: NULL: beside the shard
 * (also that of x.tar.zst or x.tar.gz, where x.tar is what a mount shows of it). */
int ps_index_open(const char *shard, const char *dir, struct ps_index **ret_index,
        struct ps_load_error *err) PS_MUST_USE;

/* The index file `path`, of a shard of `nbytes` bytes. */
int ps_index_open_file(const char *path, const char *shard, uint64_t nbytes, struct ps_index **ret_index,
        struct ps_load_error *err) PS_MUST_USE;

/* An index that the shard had when it was longer than it is now: of what stood where it was cut. -ENOENT: it
 * is not of a longer one. */
int ps_index_open_of_longer(const char *shard, const char *dir, struct ps_index **ret_index,
        struct ps_load_error *err) PS_MUST_USE;

/* The same of bytes in memory, which are copied; the shard is not looked at. For tests and fuzzing. */
int ps_index_open_mem(
        const void *data, size_t nbytes, struct ps_index **ret_index, struct ps_load_error *err) PS_MUST_USE;

/* What an index would say of a token stream, by its size. It knows no keys. */
int ps_index_open_windows(const char *shard, const struct ps_windows *windows, struct ps_index **ret_index,
        struct ps_load_error *err) PS_MUST_USE;

struct ps_index_binding; /* shard/index_file.h */

/* What shard it is of. */
const struct ps_index_binding *ps_index_binding(const struct ps_index *index);

const char *ps_index_path_of(const struct ps_index *index);

/* True if it is of lines, not members. */
bool ps_index_is_of_lines(const struct ps_index *index);

void ps_index_close(struct ps_index *index); /* NULL is allowed */

uint64_t ps_index_samples(const struct ps_index *index);
uint64_t ps_index_bad(const struct ps_index *index); /* of them bad */

struct ps_index_place {
	uint64_t offset;        /* of the sample's first header (line: its first byte), decompressed */
	uint64_t resume_offset; /* the same where a walk can begin there; 0: only at the shard's beginning */
	bool bad;
	uint32_t nmembers; /* that are known; 0: none is (of a bad sample, or one of very many) */
};

/* -ERANGE: there is no such sample; -EBADMSG: damaged. */
int ps_index_place(struct ps_index *index, uint64_t sample, struct ps_index_place *ret_place,
        struct ps_load_error *err) PS_MUST_USE;

struct ps_index_member {
	const char *suffix; /* lower case, ends with a zero */
	uint64_t offset;    /* of its data */
	uint64_t size;
};

#define PS_INDEX_MAX_MEMBERS 64 /* a sample with more has none in the index */

/* The members of a sample in the order of the shard, all of them or none: ret_place->nmembers. */
int ps_index_members(struct ps_index *index, uint64_t sample, struct ps_index_place *ret_place,
        struct ps_index_member ret_members[static PS_INDEX_MAX_MEMBERS],
        struct ps_load_error *err) PS_MUST_USE;

/* The sample's key, without a zero at its end; bad ones may have an empty one. */
int ps_index_key(struct ps_index *index, uint64_t sample, const char **ret_key, size_t *ret_len,
        struct ps_load_error *err) PS_MUST_USE;

/* -- Comparing with the shard --------------------------------------------------------------------------- */

#define PS_INDEX_HINT "make it anew by penstock-loader index" /* ends each text of an index that is no good */
#define PS_INDEX_STALE "the shard was changed since" /* in each text of a difference */

/* How far an index was walked: samples that follow each other are found in one step each. All zeros: nowhere. */
struct ps_index_walk {
	bool ready;
	uint64_t next, end;
	const uint8_t *place, *key;
};

/* Compares a sample that was read, sound as it is, with what the index says of it. -ESTALE with a text that
 * does not name the shard: it differs, or the index knows of no such sample. */
int ps_index_check(struct ps_index *index, struct ps_index_walk *walk, uint64_t sample, uint64_t offset,
        const char *key, size_t key_len, const struct ps_index_member *members, uint32_t nmembers,
        struct ps_load_error *err) PS_MUST_USE;

/* The same of the shard's first bytes, PS_INDEX_FIRST of them or all, decompressed. */
int ps_index_check_first(const struct ps_index *index, const uint8_t *p, size_t n, struct ps_load_error *err) PS_MUST_USE;

/* Bytes of memory that comparing takes: those of an index that is not mapped. */
size_t ps_index_held(const struct ps_index *index);

/* True if both say the same of samples and columns. */
bool ps_index_equals(struct ps_index *a, struct ps_index *b);

/* -- Columns: values taken from members when the index was made ---------------------------------------- */

enum ps_column_type {
	PS_COLUMN_INT = 1,
	PS_COLUMN_FLOAT = 2,
	PS_COLUMN_TEXT = 3, /* of at most 255 bytes */
};

struct ps_column_value {
	bool missing; /* the sample is bad, has no such member, or the member no such value */
	enum ps_column_type type;
	int64_t integer;
	double number; /* of integers, too */
	const char *text;
	size_t text_len;
};

int ps_index_ncolumns(const struct ps_index *index);

/* The column's number, or -1 if the index has none of that name. */
int ps_index_column(const struct ps_index *index, const char *name);

/* True if the column is known to be taken from there, the `from` of a ps_column_spec. */
bool ps_index_column_is(const struct ps_index *index, int column, const char *from);

/* "NAME=FROM" of a column, as the command line spells it, to be freed; NULL: the file does not say, or no memory. */
char *ps_index_column_text(const struct ps_index *index, int column);

int ps_index_value(struct ps_index *index, int column, uint64_t sample, struct ps_column_value *ret_value,
        struct ps_load_error *err) PS_MUST_USE;

/* -- Making ------------------------------------------------------------------------------------------- */

struct ps_column_spec; /* shard/index_column.h */

struct ps_index_result {
	uint64_t samples, bad;
	uint64_t plain_nbytes; /* of the shard decompressed, as far as it could be read */
	struct ps_load_error first_bad; /* the line that names it, if bad > 0 */
};

/* Reads the shard and writes its index: complete or not at all, to another name first. Damage is no error:
 * what is bad is counted. */
int ps_index_make(const char *shard, const char *dir, const struct ps_column_spec *columns, size_t ncolumns,
        struct ps_index_result *ret_result, struct ps_load_error *err) PS_MUST_USE;

/* The same beside a shard whose hash is known, which the index keeps. */
int ps_index_make_hashed(const char *shard, const struct ps_column_spec *columns, size_t ncolumns,
        const uint8_t sha256[static 32], struct ps_index_result *ret_result, struct ps_load_error *err) PS_MUST_USE;

/* The same, and gives it instead of writing it. */
int ps_index_make_mem(const char *shard, const struct ps_column_spec *columns, size_t ncolumns,
        struct ps_index **ret_index, struct ps_load_error *err) PS_MUST_USE;

/* -- The indexes of a list of shards ------------------------------------------------------------------- */

struct ps_indexes;

/* Borrows the names and `dir` as long as it lives; opens nothing. NULL: out of memory. */
struct ps_indexes *ps_indexes_new(char *const *shards, size_t nshards, const char *dir);
/* What the shards are, before the first question: of token streams the size says all; an index of lines is
 * none of a tar. */
void ps_indexes_source(struct ps_indexes *indexes, enum ps_source source, const struct ps_windows *windows);
void ps_indexes_free(struct ps_indexes *indexes); /* NULL is allowed; nobody holds one of its indexes */

/* How many samples a shard has: by its index in the folder, else by the catalogue beside it, else by the index
 * beside it. A count that was found stays, so that all of an epoch is decided by the same.
 */
int ps_indexes_count(struct ps_indexes *indexes, uint32_t shard, uint64_t *ret_count,
        struct ps_load_error *err) PS_MUST_USE;

/* -ESTALE: also one that is of another version of the shard than the catalogue. */
int ps_indexes_get(struct ps_indexes *indexes, uint32_t shard, struct ps_index **ret_index,
        struct ps_load_error *err) PS_MUST_USE;
void ps_indexes_put(struct ps_indexes *indexes, struct ps_index *index);

#endif
