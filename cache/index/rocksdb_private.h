/* What the files behind rocksdb.h share; they alone include rocksdb/c.h.
 *
 *   rocksdb.c        the options, opening, closing, opening anew, reading one row, checking all
 *   rocksdb_disk.c   what the disk under it says: room, refusals; the folder of its log; the mark of damage
 *   rocksdb_write.c  batches, and rows that the disk did not take
 *   rocksdb_iter.c   walks */
#ifndef PS_INDEX_ROCKSDB_PRIVATE_H
#define PS_INDEX_ROCKSDB_PRIVATE_H

#include <pthread.h>

#include <rocksdb/c.h>

#include "base/size.h"
#include "index/rocksdb.h"
#include "index/overlay.h"

#define PS_KV_LOG_DIR "/dev/shm/penstock-XXXXXX"

struct ps_kv {
	size_t memtable_nbytes; /* constant */
	char *dir, *name; /* name: for messages, where dir is a descriptor's in /proc */
	rocksdb_options_t *options;
	rocksdb_block_based_table_options_t *table;
	rocksdb_cache_t *cache;
	rocksdb_readoptions_t *read;
	rocksdb_writeoptions_t *write;

	pthread_rwlock_t open_lock; /* held for reading over every use of db; for writing by reopen alone */
	rocksdb_t *db;              /* NULL after a reopen that failed */
	_Atomic unsigned niterators;

	pthread_mutex_t write_lock; /* within open_lock; over a write, and: */
	int broken;                 /* RocksDB refused a write: -errno, until it is opened anew */
	bool told;                  /* of the failure that goes on */
	struct ps_overlay *kept;    /* what was refused; added to and cleared under write_lock */
};

/* The C API tells of errors in text alone. What is the system's fault must not be taken for damage: a damaged
 * index is moved aside. A positive errno. */
int ps_kv_errno(const char *text);
/* Logs a status text and frees it; marks the index as damaged if it says so. -errno. */
int ps_kv_told(struct ps_kv *kv, const char *call, char *text);

/* Would the disk take so many bytes? RocksDB is asked only then: what it was refused once it does not forget.
 * 0, -ENOSPC or -EROFS. */
int ps_kv_check_room(const struct ps_kv *kv, size_t nbytes);
/* Not all that refuses is to be seen by statvfs: a quota, a file system that has become read-only by itself.
 */
int ps_kv_try_to_write(const struct ps_kv *kv);

bool ps_kv_is_marked_damaged(const char *dir);

/* RocksDB insists on a log file of its own. On a full disk its second line there is a failed assertion in
 * builds that have them (Debian's), which ends the process. So the file is made in memory, and is gone when
 * RocksDB has opened it: errors reach our log as status texts. False: it cannot be, and lies with the index,
 * as usual. */
bool ps_kv_log_dir_make(char ret_dir[static sizeof(PS_KV_LOG_DIR)]);
void ps_kv_log_dir_remove(const char *dir);

#endif
