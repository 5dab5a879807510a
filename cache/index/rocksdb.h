/* Sorted keys and values on disk: the little of RocksDB that the index needs. The files of this name alone
 * include rocksdb/c.h.
 *
 * Ownership: a kv belongs to whoever opened it; close iterators and free batches first.
 * Threads: any, but open and close; a batch or an iterator one at a time.
 * Locks: a read-write lock that only ps_kv_reopen() takes for writing; writers wait for one another.
 * Errors: 0 or -errno; failures of writing and reading are logged with RocksDB's text, of writing once until
 * the next success. Durability: a write is in the log file (page cache) when it returns: safe from a kill,
 * from a power cut after ps_kv_sync(). Blocks: on disk. */
#ifndef PS_INDEX_ROCKSDB_H
#define PS_INDEX_ROCKSDB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/strbuf.h"

struct ps_kv;
struct ps_kv_batch;
struct ps_kv_iter;

/* Created if missing (the parent must exist). -EIO: it is there and damaged. -EBUSY: another process has it.
 * Others
 * (-ENOSPC, -EACCES, -EMFILE...) are the system's. */
#define PS_KV_MEMTABLE_NBYTES ((size_t)4 << 20) /* as a rule; what is written is on disk twice until so much is sorted */
int ps_kv_open(const char *dir, size_t memtable_nbytes, struct ps_kv **ret, struct ps_error *err) PS_MUST_USE;
void ps_kv_close(struct ps_kv *kv);
/* After a failed write: see ps_index_reopen(). What can be read meanwhile stays readable. */
int ps_kv_reopen(struct ps_kv *kv, struct ps_error *err) PS_MUST_USE;

/* Reads every key from `from` on and below `to` ("": to the end), and its value; RocksDB looks at their
 * checksums: 0, or -EIO if some of it is damaged. Who meets with damage later is told -EIO, and the next
 * ps_kv_open() fails. */
int ps_kv_check(struct ps_kv *kv, const char *from, const char *to, struct ps_error *err) PS_MUST_USE;

/* What its sorted files take, but for those that nobody needs any more. A compaction writes at most as much again, and no
 * more than PS_KV_COMPACTION_NBYTES, before it deletes what it has read. */
uint64_t ps_kv_live_nbytes(struct ps_kv *kv);
#define PS_KV_COMPACTION_NBYTES ((uint64_t)256 << 20)

/* As if RocksDB had refused a write, for the test of that. */
void ps_kv_refuse(struct ps_kv *kv, int e);

/* Replaces *value's content. -ENOENT: no such key. */
int ps_kv_get(struct ps_kv *kv, const void *key, size_t nkey, struct ps_strbuf *value) PS_MUST_USE;

struct ps_kv_batch *ps_kv_batch_new(void); /* NULL: out of memory */
void ps_kv_batch_free(struct ps_kv_batch *batch);
void ps_kv_batch_put(
        struct ps_kv_batch *batch, const void *key, size_t nkey, const void *value, size_t nvalue);
void ps_kv_batch_del(struct ps_kv_batch *batch, const void *key, size_t nkey);
/* Atomic. The batch stays the caller's. -ENOSPC (also before the disk is really full), -EROFS: nothing has
 * happened, it may be tried again. -EDQUOT, -EIO and what else RocksDB met with: all writes fail until
 * ps_kv_reopen(). */
int ps_kv_write(struct ps_kv *kv, struct ps_kv_batch *batch) PS_MUST_USE;
/* The same, but what the disk does not take (-ENOSPC, -EDQUOT, -EROFS, -EIO) is kept in memory and read from
 * there, also by iterators, until a later write or ps_kv_write_kept() finds that it is taken; a kill loses
 * it. refused < 0: it is kept, as if the disk had said so. *ret_refused: what it said of that which is kept. An error: there is
 * too much of it, or no memory; then nothing has changed. */
int ps_kv_write_or_keep(struct ps_kv *kv, struct ps_kv_batch *batch, int refused, int *ret_refused) PS_MUST_USE;
/* What it puts; 0: it only deletes. */
size_t ps_kv_batch_nput(const struct ps_kv_batch *batch);
/* Writes what is kept, if there is any. */
int ps_kv_write_kept(struct ps_kv *kv) PS_MUST_USE;
/* Everything written so far is on the disk itself when it returns. */
int ps_kv_sync(struct ps_kv *kv) PS_MUST_USE;

/* Keys with a prefix (1 to PS_KV_PREFIX_MAX_LEN bytes, the first not 0xff), in order, over a snapshot. */
#define PS_KV_PREFIX_MAX_LEN 32
int ps_kv_iter_open(
        struct ps_kv *kv, const void *prefix, size_t nprefix, struct ps_kv_iter **ret) PS_MUST_USE;
/* The next one is this key (it has the prefix), or the first after it. */
void ps_kv_iter_seek(struct ps_kv_iter *it, const void *key, size_t nkey);
/* The next one; key (whole) and value are borrowed until the next call. False: the end, or an error (status).
 */
bool ps_kv_iter_next(struct ps_kv_iter *it, const void **ret_key, size_t *ret_nkey, const void **ret_value,
        size_t *ret_nvalue);
int ps_kv_iter_status(const struct ps_kv_iter *it); /* 0, or -EIO after a read error */
void ps_kv_iter_close(struct ps_kv_iter *it);

#endif
