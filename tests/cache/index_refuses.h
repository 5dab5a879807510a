/* An index whose disk refuses writes. A program that includes this needs INDEX_REFUSES_WRAP. */
#ifndef PS_TESTS_INDEX_REFUSES_H
#define PS_TESTS_INDEX_REFUSES_H

#include <stdbool.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/statvfs.h>

#include <rocksdb/c.h>

#include "index/index_private.h"

static _Atomic bool index_disk_is_full, index_sync_fails;

int __real_statvfs(const char *path, struct statvfs *ret);
int __wrap_statvfs(const char *path, struct statvfs *ret);
int __wrap_statvfs(const char *path, struct statvfs *ret)
{
	int rc = __real_statvfs(path, ret);

	if (rc == 0 && atomic_load(&index_disk_is_full))
		ret->f_bavail = 0;
	return rc;
}

void __real_rocksdb_flush_wal(rocksdb_t *db, unsigned char sync, char **text);
void __wrap_rocksdb_flush_wal(rocksdb_t *db, unsigned char sync, char **text);
void __wrap_rocksdb_flush_wal(rocksdb_t *db, unsigned char sync, char **text)
{
	if (atomic_exchange(&index_sync_fails, false))
		*text = strdup("IO error: While fsync: Input/output error");
	else
		__real_rocksdb_flush_wal(db, sync, text);
}

/* One sync fails with -EIO. From now on the index refuses writes, until it is opened again. */
static inline int index_break(struct ps_index *index)
{
	atomic_store(&index_sync_fails, true);
	return ps_index_sync(index);
}

#endif
