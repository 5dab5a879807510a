#ifndef PS_INDEX_INDEX_PRIVATE_H
#define PS_INDEX_INDEX_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/strbuf.h"
#include "index/index.h"

/* Keys and values ---------------------------------------------------------------------------------------- */

/* Sorted keys and values on disk: the part of RocksDB that the index needs. Only rocksdb.c includes
 * rocksdb/c.h.
 *
 * Ownership: a kv belongs to its opener; close iterators and free batches first. Threads: any, except for
 * open and close; a batch or an iterator is used by one thread at a time. Locks: a read-write lock that
 * only ps_kv_reopen() takes for writing; a lock that serialises writes. Errors: 0 or -errno; failed reads
 * and writes are logged with RocksDB's text, failed writes once until the next success. Durability: when a
 * write returns, it is in the log file (page cache): safe from a kill, and after ps_kv_sync() from a power
 * cut. Blocks on disk. */

struct ps_kv;
struct ps_kv_iter;
struct rocksdb_writebatch_t;

/* A batch of index.h. rocksdb.c has the writes; `value` is for the row that is being put. */
struct ps_index_batch {
	struct rocksdb_writebatch_t *writes;
	size_t nput; /* the bytes that the batch puts; 0: it only deletes */
	struct ps_strbuf value;
	bool failed, unasked;
};

/* Opens the database, created if missing (the parent must exist). -EIO: it is damaged. -EBUSY: another
 * process has it open. Other errors (-ENOSPC, -EACCES, -EMFILE...) are the system's. */
#define PS_KV_MEMTABLE_NBYTES \
	((size_t)4 << 20) /* usual size; rows are on disk twice until a memtable is full and sorted */
int ps_kv_open(const char *dir, size_t memtable_nbytes, struct ps_kv **ret, struct ps_error *err) PS_MUST_USE;
void ps_kv_close(struct ps_kv *kv);
/* After a failed write: see ps_index_reopen(). Rows can be read meanwhile. */
int ps_kv_reopen(struct ps_kv *kv, struct ps_error *err) PS_MUST_USE;

/* A range of keys: from `from` on and below `to` (no bytes: to the end). */
struct ps_kv_range {
	const char *from, *to;
	size_t nfrom, nto;
};

/* Reads every key of the range with its value, so that RocksDB verifies their checksums. -EIO: a part is
 * damaged. Other errors are the system's. A later ps_kv_get() or iterator that finds damage returns -EIO, and
 * the next ps_kv_open() fails. */
int ps_kv_check(struct ps_kv *kv, const struct ps_kv_range *range, struct ps_error *err) PS_MUST_USE;
/* The same while the index is in use, until *stop is set. Damage is logged, and the next start moves the
 * index aside. A reopen waits for a part of it at most. */
void ps_kv_check_later(struct ps_kv *kv, const struct ps_kv_range *range, const _Atomic bool *stop);

/* The size of the database's live sorted files. A compaction writes at most as many bytes again, and at
 * most PS_KV_COMPACTION_NBYTES, before it deletes its inputs. */
uint64_t ps_kv_live_nbytes(struct ps_kv *kv);
#define PS_KV_COMPACTION_NBYTES ((uint64_t)256 << 20)

/* Replaces *value's content. -ENOENT: no such key. */
int ps_kv_get(struct ps_kv *kv, const void *key, size_t nkey, struct ps_strbuf *value) PS_MUST_USE;

void ps_kv_batch_put(
        struct ps_index_batch *batch, const void *key, size_t nkey, const void *value, size_t nvalue);
void ps_kv_batch_del(struct ps_index_batch *batch, const void *key, size_t nkey);
/* Writes the batch atomically. The batch stays the caller's. -ENOSPC (also before the disk is really full),
 * -EROFS: nothing has happened, and the write may be tried again. -EDQUOT, -EIO and other errors of
 * RocksDB: all writes fail until ps_kv_reopen().
 *
 * If ret_refused is not NULL, a batch that the disk refuses (-ENOSPC, -EDQUOT, -EROFS, -EIO) is kept in memory.
 * Reads and iterators see it. A later write or ps_kv_write_kept() that succeeds writes it; a kill loses it.
 * refused < 0: the batch is kept at once, as if the disk had returned this error. *ret_refused: the error of
 * the batch that was kept. On an error (too much is kept, or no memory) nothing has changed. */
int ps_kv_write(struct ps_kv *kv, struct ps_index_batch *batch, int refused, int *ret_refused) PS_MUST_USE;
/* Writes the kept rows, if there are any. */
int ps_kv_write_kept(struct ps_kv *kv) PS_MUST_USE;
/* Syncs everything written so far to the disk. */
int ps_kv_sync(struct ps_kv *kv) PS_MUST_USE;

/* Keys with a prefix (1 to PS_KV_PREFIX_MAX_LEN bytes, the first not 0xff), in order, over a snapshot. */
#define PS_KV_PREFIX_MAX_LEN 32
int ps_kv_iter_open(
        struct ps_kv *kv, const void *prefix, size_t nprefix, struct ps_kv_iter **ret) PS_MUST_USE;
/* Makes the next ps_kv_iter_next() return this key (which has the prefix), or the first one after it. */
void ps_kv_iter_seek(struct ps_kv_iter *it, const void *key, size_t nkey);
/* The next key (with its prefix) and value, borrowed until the next call. False: the end, or an error
 * (status). */
bool ps_kv_iter_next(struct ps_kv_iter *it, const void **ret_key, size_t *ret_nkey, const void **ret_value,
        size_t *ret_nvalue);
int ps_kv_iter_status(const struct ps_kv_iter *it); /* 0, or -EIO after a read error */
void ps_kv_iter_close(struct ps_kv_iter *it);

/* Rows that the disk refuses ----------------------------------------------------------------------------- */

/* Rows that a full disk refuses are kept in memory, in front of the index, until the disk takes them. They
 * are sorted by key, so that walks can merge them with the index.
 *
 * Ownership: copies of keys and values. Rows never change and are reference-counted: a walk keeps those
 * that it began with. Threads: any; a lock of its own, a leaf. A list of rows is used by its caller only.
 * Never blocks. */

/* Limit of keys, values and overhead: about thirty thousand rows. Rows beyond it are refused with
 * -ENOSPC. */
#define PS_OVERLAY_MAX_NBYTES ((size_t)8 << 20)

struct ps_overlay_row {
	_Atomic unsigned nrefs;
	bool deleted; /* the key is deleted */
	size_t nkey, nvalue;
	char bytes[]; /* key, value */
};

/* A list of rows: either rows to be added, in the order of their puts, or the rows of a walk, in the order
 * of their keys. Starts as {0}. */
struct ps_overlay_rows {
	struct ps_overlay_row **v;
	size_t n, cap;
	size_t nbytes; /* memory, with overhead */
	bool failed;   /* out of memory */
};
void ps_overlay_rows_fini(struct ps_overlay_rows *rows);
/* value NULL: the key is to be deleted. */
void ps_overlay_rows_put(
        struct ps_overlay_rows *rows, const void *key, size_t nkey, const void *value, size_t nvalue);
/* `rows` is a result of ps_overlay_range(). Returns the position of the first row with this key or a later
 * one; rows->n: there is none. */
size_t ps_overlay_rows_find(const struct ps_overlay_rows *rows, const void *key, size_t nkey);

struct ps_overlay;

struct ps_overlay *ps_overlay_new(void); /* NULL: out of memory */
void ps_overlay_free(struct ps_overlay *overlay);

/* Adds all rows, replacing those of the same keys, or none. -ENOSPC: over the limit. -ENOMEM. */
int ps_overlay_add(struct ps_overlay *overlay, const struct ps_overlay_rows *rows) PS_MUST_USE;
/* 0: *value's content is replaced. -ENOENT: the key is deleted. -ENODATA: the overlay does not have it. */
int ps_overlay_get(
        struct ps_overlay *overlay, const void *key, size_t nkey, struct ps_strbuf *value) PS_MUST_USE;
/* Appends to *ret the rows with keys from `from` (included) to `to` (excluded), also those of deleted keys.
 * -ENOMEM. */
int ps_overlay_range(struct ps_overlay *overlay, const void *from, size_t nfrom, const void *to, size_t nto,
        struct ps_overlay_rows *ret) PS_MUST_USE;
size_t ps_overlay_nbytes(struct ps_overlay *overlay);
bool ps_overlay_is_empty(const struct ps_overlay *overlay);
/* Calls fn for each row. No row is added meanwhile. */
void ps_overlay_each(
        struct ps_overlay *overlay, void (*fn)(void *arg, const struct ps_overlay_row *row), void *arg);
void ps_overlay_clear(struct ps_overlay *overlay);

/* Like memcmp() of the whole keys; a prefix of a key comes before it. */
int ps_overlay_compare(const void *a, size_t na, const void *b, size_t nb);

/* Rows --------------------------------------------------------------------------------------------------- */

/* Index values as bytes, and back. The layouts are in docs/format.md; little-endian, a format byte first.
 *
 * Ownership: a decoded row owns its strings (ps_*_row_fini()); encoders append to the caller's buffer.
 * Threads: any. Never blocks. Errors: encoders set buffer->failed; decoders return 0, -ENOMEM, or -EBADMSG
 * for a value that no encoder writes (truncated or too long, another format, an impossible number). *ret is
 * untouched on error. Ids are not in the values: decoders take them from the key. */

/* Longer strings are never written, and are refused when read. */
#define PS_ROW_STRING_MAX_LEN 65536

/* letter: the kind, as index.h lists it: 'D' struct ps_dataset_row, 'N' struct ps_node_row, 'C' uint64_t, 'O'
 * struct ps_object_row, 'P' struct ps_pin_row, 'V' struct ps_view_row, 'G' struct ps_grants_row, 'M' struct
 * ps_stop_row (other meta rows are numbers, as 'C'). */
void ps_row_encode(char letter, const void *row, struct ps_strbuf *b);
/* key: that of the row; it begins with the letter, and has the id or node number of a 'D', 'N', 'O' or 'P'. */
int ps_row_decode(const uint8_t *key, const void *bytes, size_t n, void *ret) PS_MUST_USE;

/* `trust` counts the stops that may have lost written data. decode marks all blocks of a row as unverified
 * if the row was written under another count. */
void ps_extent_row_encode(const struct ps_extent_row *row, uint64_t trust, struct ps_strbuf *b);
int ps_extent_row_decode(const void *bytes, size_t n, uint64_t trust, struct ps_extent_row *ret) PS_MUST_USE;

/* How the last process stopped. */
struct ps_stop_row {
	bool clean;
	char boot_id[37];
	uint64_t mount_id; /* of the cache directory's file system in that boot; 0: not known */
	uint64_t trust;
};

/* Keys of the index, as index.h lists them. They return key. Threads: any. Never blocks. */
/* A longer name would be cut; ps_path_check() refuses it before. */
#define PS_INDEX_KEY_MAX_LEN (1 + 8 + 4096)

struct ps_index_key {
	size_t n;
	uint8_t bytes[PS_INDEX_KEY_MAX_LEN];
};

const struct ps_index_key *ps_index_key_meta(struct ps_index_key *key, const char *name);
const struct ps_index_key *ps_index_key_id(struct ps_index_key *key, char kind, const struct ps_id *id);
const struct ps_index_key *ps_index_key_node(struct ps_index_key *key, char kind, uint64_t node);
const struct ps_index_key *ps_index_key_child(struct ps_index_key *key, uint64_t parent, const char *name);
const struct ps_index_key *ps_index_key_extent(
        struct ps_index_key *key, const struct ps_id *id, uint32_t extent);
const struct ps_index_key *ps_index_key_members(struct ps_index_key *key, uint64_t node, uint32_t row);

/* The big-endian number in nbytes bytes of a key. */
uint64_t ps_index_key_number(const uint8_t *bytes, int nbytes);

/* Logs which row is damaged if err is -EBADMSG; the rest of the index can be used. Returns err. */
int ps_index_bad_row(const struct ps_index_key *key, int err);

/* The index ---------------------------------------------------------------------------------------------- */

/* Types that the files of the index share, and functions for the store's tests. */

struct ps_index_numbers {
	const char *meta; /* name of the row that holds the first number not reserved yet */
	uint64_t next, end;
};

struct ps_index {
	struct ps_kv *kv;
	void (*failed)(void *arg, int e);
	void *failed_arg;
	int (*room)(void *arg, size_t nbytes);
	void *room_arg;
	size_t memtable_nbytes;
	bool was_clean, same_boot, kept;
	bool checks_later; /* the thread below was started */
	pthread_t checker;
	_Atomic bool stops_check;
	struct ps_stop_row stop; /* the row that ps_index_open() wrote */

	/* Protects next and end. It is also held while more numbers are reserved by a write to the index:
	 * the threads that wait for the lock need these numbers. */
	pthread_mutex_t numbers_lock;
	struct ps_index_numbers nodes, datasets;
};

/* For tests: as if the index were large, so that names are checked by a thread. */
#define PS_INDEX_LARGE 4u
/* Like ps_index_open(). If boot_id is not NULL, it replaces the kernel's boot id ("": unknown), and the mount
 * counts as that of the last run. */
int ps_index_open_at_boot(const char *dir, unsigned flags, const char *boot_id, struct ps_index **ret,
        struct ps_error *err) PS_MUST_USE;

#endif
