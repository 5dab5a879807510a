/* What is known of shards without reading them: their indexes, and the catalogues of folders of them.
 *
 * From the top down; each file uses those below it, and shard/file/:
 *
 *   set.c        the indexes of a list of shards
 *   dali.c       DALI's index files, read and written
 *   catalogue.c  the catalogue of a folder of shards
 *   index.c      an index: opened, checked, asked
 *   writer.c     an index while it is put together
 *   file.c       where an index is, and of which version of a shard
 *   format.h     its bytes
 *
 * shard/shard.h makes indexes, by reading shards. */
#ifndef PS_SHARD_INDEX_INDEX_H
#define PS_SHARD_INDEX_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "shard/file/file.h"

/* The index of a shard: what is known of it without reading it. Made by reading the shard once.
 *
 *   struct ps_shard_indexes *all;                         one for a list of shards, any thread
 *   ps_shard_indexes_count(all, shard, &count, err)       cheap after the first time: counts are kept
 *   ps_shard_indexes_get(all, shard, &index, err)         maps it, or gives the map that is there
 *     ps_shard_index_place(index, i, &place)              where sample i begins; its resume_offset is what
 *                                                   ps_shard_start_at() takes
 *     ps_shard_index_column(index, "label")               number of a declared column, ps_shard_index_value() reads it
 *   ps_shard_indexes_put(all, index)
 *
 * A file NAME.psx beside the shard, or in a folder (there NAME-SIZE-HEADER.psx, HEADER being a sum of the
 * shard's first header, since names repeat). The format is in format.h. A catalogue beside shards
 * (below) has the counts of all of them at once.
 *
 * An index fits a shard of its name and size, wherever that is: opening reads nothing of the shard. While the
 * shard is read, each header is compared with the index (ps_shard_index_check()), so that one that was
 * replaced is found where it differs. Counted are the samples that a loader gives, bad ones (holes) included.
 * It never changes an order.
 *
 * Ownership: an index belongs to its opener; what it returns points into it. One of a set is borrowed
 * between get and put, and the set keeps at most PS_INDEXES_MAX_OPEN without a holder.
 * Threads: any, but close and free.   Locks: that of a set, a leaf; not held over the disk.
 * Blocks: open, count and get on the disk; the others on page faults of a mapped file.
 * Errors: 0 or -errno with a text. -ENOENT: no index; -ESTALE: of an earlier version of the shard, or of this
 * format; -EBADMSG: damaged. Nothing of a damaged one is ever given: each section is checked as a whole
 * before its first use. */

#define PS_INDEX_SUFFIX ".psx"
#define PS_INDEX_MAX_COLUMNS 64
#define PS_INDEXES_MAX_OPEN 256 /* maps of a set without a holder; more: the oldest is closed */

#define PS_INDEX_SHA256 32
#define PS_INDEX_FIRST 512 /* bytes of the shard that the head has a sum of */

enum {
	PS_INDEX_FLAG_GLOBAL = 1,     /* a global pax header: a walk has to begin at the beginning */
	PS_INDEX_FLAG_LINES = 2,      /* units of 1 byte */
	PS_INDEX_FLAG_COMPRESSED = 4, /* offsets are of the decompressed bytes */
	PS_INDEX_FLAGS = 7,
};

struct ps_shard_index;

/* The sum of bytes, for accidents, not malice. Continues from `sum`; 0 begins. */
uint64_t ps_shard_index_sum(uint64_t sum, const void *p, size_t n);

/* The shard that an index is of -------------------------------------------------------------------------- */

/* What a shard's file is like now: whether it changes while it is read. */
struct ps_shard_index_version {
	uint64_t nbytes;
	int64_t mtime_ns;
	mode_t mode;
};

/* -EINVAL: not an ordinary file. */
int ps_shard_index_version_read(
        const char *shard, struct ps_shard_index_version *ret_version, struct ps_load_error *err) PS_MUST_USE;

bool ps_shard_index_version_same(
        const struct ps_shard_index_version *a, const struct ps_shard_index_version *b);

/* What an index is bound to: the shard that it is of. */
struct ps_shard_index_binding {
	uint64_t nbytes, plain_nbytes;
	uint64_t first;                  /* sum of its first header, decompressed */
	uint8_t sha256[PS_INDEX_SHA256]; /* of all its bytes; zeros: not known */
};

bool ps_shard_index_sha256_known(const uint8_t sha256[static PS_INDEX_SHA256]);

/* The sum of a shard's first header, which is read for it. */
int ps_shard_index_first_read(const char *shard, uint64_t *ret_first, struct ps_load_error *err) PS_MUST_USE;

/* True if reading the shard costs no request: it is no remote file, or a mount has all of it. */
bool ps_shard_index_shard_is_here(const char *shard);

/* Opening ------------------------------------------------------------------------------------------------ */

/* The index of that shard, whose first header is read to find it in a folder. `dir`: NULL: beside the shard
 * (also that of x.tar.zst or x.tar.gz, where x.tar is what a mount shows of it). */
int ps_shard_index_open(const char *shard, const char *dir, struct ps_shard_index **ret_index,
        struct ps_load_error *err) PS_MUST_USE;

/* The index file `path`, of a shard of `nbytes` bytes. */
int ps_shard_index_open_file(const char *path, const char *shard, uint64_t nbytes,
        struct ps_shard_index **ret_index, struct ps_load_error *err) PS_MUST_USE;

/* An index that the shard had when it was longer than it is now: of what stood where it was cut. -ENOENT: it
 * is not of a longer one. */
int ps_shard_index_open_of_longer(const char *shard, const char *dir, struct ps_shard_index **ret_index,
        struct ps_load_error *err) PS_MUST_USE;

/* The same of bytes in memory, which are copied; the shard is not looked at. For tests and fuzzing. */
int ps_shard_index_open_mem(const void *data, size_t nbytes, struct ps_shard_index **ret_index,
        struct ps_load_error *err) PS_MUST_USE;

/* What an index would say of a token stream, by its size. It knows no keys. */
int ps_shard_index_open_windows(const char *shard, const struct ps_windows *windows,
        struct ps_shard_index **ret_index, struct ps_load_error *err) PS_MUST_USE;

/* What shard it is of. */
const struct ps_shard_index_binding *ps_shard_index_binding(const struct ps_shard_index *index);

const char *ps_shard_index_path_of(const struct ps_shard_index *index);

/* True if it is of lines, not members. */
bool ps_shard_index_is_of_lines(const struct ps_shard_index *index);

void ps_shard_index_close(struct ps_shard_index *index); /* NULL is allowed */

uint64_t ps_shard_index_samples(const struct ps_shard_index *index);
uint64_t ps_shard_index_bad(const struct ps_shard_index *index); /* of them bad */

struct ps_shard_index_place {
	uint64_t offset;        /* of the sample's first header (line: its first byte), decompressed */
	uint64_t resume_offset; /* the same where a walk can begin there; 0: only at the shard's beginning */
	bool bad;
	uint32_t nmembers; /* that are known; 0: none is (of a bad sample, or one of very many) */
};

/* -ERANGE: there is no such sample; -EBADMSG: damaged. */
int ps_shard_index_place(struct ps_shard_index *index, uint64_t sample,
        struct ps_shard_index_place *ret_place, struct ps_load_error *err) PS_MUST_USE;

struct ps_shard_index_member {
	const char *suffix; /* lower case, ends with a zero */
	uint64_t offset;    /* of its data */
	uint64_t size;
};

#define PS_INDEX_MAX_MEMBERS 64 /* a sample with more has none in the index */

/* The members of a sample in the order of the shard, all of them or none: ret_place->nmembers. */
int ps_shard_index_members(struct ps_shard_index *index, uint64_t sample,
        struct ps_shard_index_place *ret_place,
        struct ps_shard_index_member ret_members[static PS_INDEX_MAX_MEMBERS],
        struct ps_load_error *err) PS_MUST_USE;

/* The sample's key, without a zero at its end; bad ones may have an empty one. */
int ps_shard_index_key(struct ps_shard_index *index, uint64_t sample, const char **ret_key, size_t *ret_len,
        struct ps_load_error *err) PS_MUST_USE;

/* Comparing with the shard ------------------------------------------------------------------------------- */

/* Ends each text of an index that is no good. */
#define PS_INDEX_HINT "make it again by penstock-loader index"
#define PS_INDEX_STALE "the shard was changed since" /* in each text of a difference */

/* How far an index was walked: samples that follow each other are found in one step each. All zeros:
 * nowhere. */
struct ps_shard_index_walk {
	bool ready;
	uint64_t next, end;
	const uint8_t *place, *key;
};

/* Compares a sample that was read, sound as it is, with what the index says of it. -ESTALE with a text that
 * does not name the shard: it differs, or the index knows of no such sample. */
int ps_shard_index_check(struct ps_shard_index *index, struct ps_shard_index_walk *walk, uint64_t sample,
        uint64_t offset, const char *key, size_t key_len, const struct ps_shard_index_member *members,
        uint32_t nmembers, struct ps_load_error *err) PS_MUST_USE;

/* The same of the shard's first bytes, PS_INDEX_FIRST of them or all, decompressed. */
int ps_shard_index_check_first(const struct ps_shard_index *index, const uint8_t *p, size_t n,
        struct ps_load_error *err) PS_MUST_USE;

/* Bytes of memory that comparing takes: those of an index that is not mapped. */
size_t ps_shard_index_held(const struct ps_shard_index *index);

/* True if both say the same of samples and columns. */
bool ps_shard_index_equals(struct ps_shard_index *a, struct ps_shard_index *b);

/* Columns: values taken from members when the index was made --------------------------------------------- */

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

int ps_shard_index_ncolumns(const struct ps_shard_index *index);

/* The column's number, or -1 if the index has none of that name. */
int ps_shard_index_column(const struct ps_shard_index *index, const char *name);

/* True if the column is known to be taken from there, the `from` of a ps_column_spec. */
bool ps_shard_index_column_is(const struct ps_shard_index *index, int column, const char *from);

/* "NAME=FROM" of a column, as the command line spells it, to be freed; NULL: the file does not say, or no
 * memory. */
char *ps_shard_index_column_text(const struct ps_shard_index *index, int column);

int ps_shard_index_value(struct ps_shard_index *index, int column, uint64_t sample,
        struct ps_column_value *ret_value, struct ps_load_error *err) PS_MUST_USE;

/* The indexes of a list of shards ------------------------------------------------------------------------ */

struct ps_shard_indexes;

/* Borrows the names and `dir` as long as it lives; opens nothing. NULL: out of memory. */
struct ps_shard_indexes *ps_shard_indexes_new(char *const *shards, size_t nshards, const char *dir);
/* What the shards are, before the first question: of token streams the size says all; an index of lines is
 * none of a tar. */
void ps_shard_indexes_source(
        struct ps_shard_indexes *indexes, enum ps_shard_kind source, const struct ps_windows *windows);
void ps_shard_indexes_free(
        struct ps_shard_indexes *indexes); /* NULL is allowed; none of its indexes is held */

/* How many samples a shard has: by its index in the folder, else by the catalogue beside it, else by the
 * index beside it. A count that was found stays, so that all of an epoch is decided by the same. */
int ps_shard_indexes_count(struct ps_shard_indexes *indexes, uint32_t shard, uint64_t *ret_count,
        struct ps_load_error *err) PS_MUST_USE;

/* -ESTALE: also one that is of another version of the shard than the catalogue. */
int ps_shard_indexes_get(struct ps_shard_indexes *indexes, uint32_t shard, struct ps_shard_index **ret_index,
        struct ps_load_error *err) PS_MUST_USE;
void ps_shard_indexes_put(struct ps_shard_indexes *indexes, struct ps_shard_index *index);

/* Writing an index --------------------------------------------------------------------------------------- */

/* An index being put together in memory, sample by sample, in the order of the shard.
 *
 * Ownership: the writer owns all it was given.   Threads: one at a time.   Locks: none.
 * Blocks: never, but ps_shard_index_writer_save() on the disk.   Errors: 0 or -errno. After -ENOMEM or
 * -EINVAL (samples that do not follow each other) it stays failed, and save fails the same way. */

struct ps_shard_index_writer;

/* NULL: out of memory. */
struct ps_shard_index_writer *ps_shard_index_writer_new(void);
void ps_shard_index_writer_free(struct ps_shard_index_writer *writer); /* NULL is allowed */

/* PS_INDEX_FLAG_...; that of lines before the first sample. */
void ps_shard_index_writer_flag(struct ps_shard_index_writer *writer, uint32_t flags);

/* The sum of the shard's first header, and of all its bytes; what is not known is zeros. */
void ps_shard_index_writer_first(struct ps_shard_index_writer *writer, uint64_t first);
void ps_shard_index_writer_sha256(
        struct ps_shard_index_writer *writer, const uint8_t sha256[static PS_INDEX_SHA256]);

/* `members` in the order of the shard. */
int ps_shard_index_writer_add(struct ps_shard_index_writer *writer, uint64_t offset, bool bad,
        const char *key, size_t key_len, const struct ps_shard_index_member *members,
        uint32_t nmembers) PS_MUST_USE;

/* Declares a column: its number, or -errno. Before the first sample. `from`: as in a ps_column_spec. */
int ps_shard_index_writer_column(
        struct ps_shard_index_writer *writer, const char *name, const char *from) PS_MUST_USE;

/* The value of the sample added last; without one it is missing. A column that is given integers and floats
 * is one of floats; one that is given a text, too, one of texts. */
int ps_shard_index_writer_value(
        struct ps_shard_index_writer *writer, int column, const struct ps_column_value *value) PS_MUST_USE;

/* Bytes of the shard decompressed, of which `read` were read. */
uint64_t ps_shard_index_writer_plain(
        const struct ps_shard_index_writer *writer, uint64_t nbytes, uint64_t read);

/* The file's bytes, to be freed. `nbytes`: of the shard; `read`: of it decompressed. */
int ps_shard_index_writer_finish(struct ps_shard_index_writer *writer, uint64_t nbytes, uint64_t read,
        uint8_t **ret_data, size_t *ret_nbytes, struct ps_load_error *err) PS_MUST_USE;

/* The same, into the shard's index file. -EAGAIN: the shard is no longer of that version. */
int ps_shard_index_writer_save(struct ps_shard_index_writer *writer, const char *shard, const char *dir,
        const struct ps_shard_index_version *version, uint64_t read, struct ps_load_error *err) PS_MUST_USE;

/* Declarations ------------------------------------------------------------------------------------------- */

/* "label=cls": the text of member .cls, a number if it reads as one; "h=json:height" or "json:meta.height": a
 * value inside of a JSON member, numbers, true and false (1, 0) and strings. Without "NAME=" the name is what
 * follows it. */
struct ps_column_spec {
	char *name, *suffix;
	char *from; /* "suffix" or "suffix:path": what an index keeps of where a column comes from */
	char *path; /* inside of JSON, its steps with zeros between and two after; NULL: the member's text */
};

/* -EINVAL with a text. */
int ps_column_spec_parse(
        const char *text, struct ps_column_spec *ret_spec, struct ps_load_error *err) PS_MUST_USE;
void ps_column_spec_fini(struct ps_column_spec *spec);

/* Takes the value from a member's bytes; ret_value borrows from `scratch` and `data`, and is missing where
 * the bytes have none. -ENOMEM. */
int ps_column_spec_value(const struct ps_column_spec *spec, const uint8_t *data, size_t n,
        struct ps_buf *scratch, struct ps_column_value *ret_value) PS_MUST_USE;

/* Catalogues --------------------------------------------------------------------------------------------- */

/* The catalogue of the shards in a folder, as who made them uploads it beside them: how many samples each
 * holds. One file has the length of an epoch, so none of their indexes has to be fetched for that.
 *
 * A text file, SHARDS.psc:
 *
 *   penstock-shards 1
 *   SHA256 BYTES PLAIN SAMPLES BAD tar|lines NAME      a line a shard, sorted by the bytes of their names
 *   sum SUM                                            16 digits, of all that precedes this line
 *
 * SHA256 is that of the shard as it is stored (- where it is not known), PLAIN its bytes decompressed. Each
 * shard that it names has its index, NAME.psx, beside it. One that is cut or damaged is refused as a whole.
 *
 * Ownership: the caller's, until free; entries are the catalogue's.   Threads: any, but free.   Locks: none.
 * Blocks: reading and writing on the disk.
 * Errors: 0 or -errno with a text. -ENOENT: no such file; -EBADMSG: damaged; -ESTALE: of another version. */

#define PS_CATALOGUE_NAME "SHARDS.psc"
#define PS_CATALOGUE_MAX_FILE (UINT64_C(1) << 30)

struct ps_catalogue_entry {
	char *name; /* without folders */
	uint64_t nbytes, plain_nbytes;
	uint64_t samples, bad;
	bool lines;
	uint8_t sha256[PS_INDEX_SHA256]; /* zeros: not known */
};

struct ps_catalogue {
	char *path;
	struct ps_catalogue_entry *entries; /* sorted by name */
	size_t n;
	char *text; /* where the names are */
};

/* That of a folder. */
int ps_catalogue_read(
        const char *dir, struct ps_catalogue **ret_catalogue, struct ps_load_error *err) PS_MUST_USE;

/* The same of n bytes in memory, which are copied. */
int ps_catalogue_parse(const char *path, const void *data, size_t n, struct ps_catalogue **ret_catalogue,
        struct ps_load_error *err) PS_MUST_USE;

/* NULL: it does not name the shard. */
const struct ps_catalogue_entry *ps_catalogue_find(const struct ps_catalogue *catalogue, const char *name);

/* That of a shard as a reader sees it: also of x.tar.zst or x.tar.gz, where a mount shows it as x.tar, of so
 * many bytes. */
const struct ps_catalogue_entry *ps_catalogue_match(
        const struct ps_catalogue *catalogue, const char *name, uint64_t nbytes);

void ps_catalogue_free(struct ps_catalogue *catalogue); /* NULL is allowed */

/* Puts entries (which it sorts) into the folder's catalogue: those of the same names are replaced, those
 * whose shards are not there any more, with that size, are dropped. One process at a time: the folder is
 * locked (flock). is_part: processes on several machines do so at a time; NFS locks no folders, so the file
 * .SHARDS.psc.lock in it is locked, too, and stays. -EINVAL: a name that a catalogue cannot hold. */
int ps_catalogue_update(const char *dir, struct ps_catalogue_entry *entries, size_t n, bool is_part,
        struct ps_load_error *err) PS_MUST_USE;

/* DALI's indexes ----------------------------------------------------------------------------------------- */

/* The index files of DALI's webdataset reader, "v1.2 SAMPLES" and a line a sample: SUFFIX OFFSET BYTES NAME
 * for each of its members. Beside NAME.tar they are called NAME.idx.
 *
 * They do not say of which version of the shard they are, so one is believed only where it is not older than
 * the shard, its members fill the shard to its end, and the headers of some samples say what it says; and
 * only to make an index of ours, which then shows when the shard was changed.
 *
 * Ownership: none.   Threads: any.   Locks: none.   Blocks: on the disk.
 * Errors: 0 or -errno with a text. -ENOENT: no such index; -ESTALE: of an earlier version of the shard;
 * -EBADMSG: damaged, or not of the shard; -EINVAL: a name that these files cannot have, or what they cannot
 * say. */

/* Where it is: beside the shard, or in `dir`. To be freed; NULL with err filled. */
char *ps_dali_path(const char *shard, const char *dir, struct ps_load_error *err);

/* Reads the shard's headers and writes its index. A damaged shard gets none. */
int ps_dali_write(
        const char *shard, const char *path, uint64_t *ret_samples, struct ps_load_error *err) PS_MUST_USE;

/* Makes the shard's index (shard/index/index.h) of DALI's. */
int ps_dali_import(const char *shard, const char *path, const char *index_dir, uint64_t *ret_samples,
        struct ps_load_error *err) PS_MUST_USE;

#endif
