#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "index/rocksdb_private.h"

struct ps_kv_batch {
	rocksdb_writebatch_t *writes;
	size_t nput;
};

struct ps_kv_batch *ps_kv_batch_new(void)
{
	struct ps_kv_batch *batch = calloc(1, sizeof *batch);

	if (!batch)
		return NULL;
	batch->writes = rocksdb_writebatch_create();
	if (!batch->writes) {
		free(batch);
		return NULL;
	}
	return batch;
}

void ps_kv_batch_free(struct ps_kv_batch *batch)
{
	if (!batch)
		return;
	rocksdb_writebatch_destroy(batch->writes);
	free(batch);
}

void ps_kv_batch_put(
        struct ps_kv_batch *batch, const void *key, size_t nkey, const void *value, size_t nvalue)
{
	rocksdb_writebatch_put(batch->writes, key, nkey, value, nvalue);
	batch->nput += nkey + nvalue;
}

size_t ps_kv_batch_nput(const struct ps_kv_batch *batch)
{
	return batch->nput;
}

void ps_kv_batch_del(struct ps_kv_batch *batch, const void *key, size_t nkey)
{
	rocksdb_writebatch_delete(batch->writes, key, nkey);
}

/* A call that writes; under open_lock and write_lock. Calls come one after another, and none comes after
 * one that failed: RocksDB's log file may then be in a state for which its assertions (Debian's build has
 * them) end the process. */
static int write_locked(struct ps_kv *kv, size_t nbytes, rocksdb_writebatch_t *writes)
{
	char *text = NULL;

	if (!kv->db)
		return -EIO;
	if (kv->broken)
		return kv->broken;
	int e = writes ? ps_kv_check_room(kv, nbytes) : 0;
	if (e < 0) {
		if (!kv->told)
			ps_log_error("index write: %s: %s", kv->name, strerror(-e));
		kv->told = true;
		return e;
	}
	if (writes)
		rocksdb_write(kv->db, kv->write, writes, &text);
	else
		rocksdb_flush_wal(kv->db, 1, &text);
	if (text) {
		int told = ps_kv_told(kv, writes ? "index write" : "index sync", text);

		/* -ENOMEM of a batch means that it was never tried: the index is not opened anew for that. */
		kv->broken = told == -ENOMEM ? -EIO : told;
		kv->told = true;
	} else {
		kv->told = false;
	}
	return kv->broken;
}

static void put_kept(void *writes, const struct ps_overlay_row *row)
{
	if (row->deleted)
		rocksdb_writebatch_delete(writes, row->bytes, row->nkey);
	else
		rocksdb_writebatch_put(writes, row->bytes, row->nkey, row->bytes + row->nkey, row->nvalue);
}

/* What was kept comes before what is written now. Under open_lock and write_lock. */
static int write_kept(struct ps_kv *kv)
{
	size_t nbytes = 0;

	if (ps_overlay_is_empty(kv->kept))
		return 0;
	if (!kv->db || kv->broken)
		return kv->broken ? kv->broken : -EIO;
	/* Before all of it is put together, for each row anew. */
	int e = ps_kv_check_room(kv, ps_overlay_nbytes(kv->kept));
	if (e < 0)
		return e;
	rocksdb_writebatch_t *writes = rocksdb_writebatch_create();
	ps_overlay_each(kv->kept, put_kept, writes);
	rocksdb_writebatch_data(writes, &nbytes);
	e = write_locked(kv, nbytes, writes);
	rocksdb_writebatch_destroy(writes);
	if (e == 0)
		ps_overlay_clear(kv->kept);
	return e;
}

static void keep_put(void *rows, const char *key, size_t nkey, const char *value, size_t nvalue)
{
	ps_overlay_rows_put(rows, key, nkey, value ? value : "", nvalue);
}

static void keep_deleted(void *rows, const char *key, size_t nkey)
{
	ps_overlay_rows_put(rows, key, nkey, NULL, 0);
}

/* All of it or nothing: -ENOMEM, or `e`, for which it was refused, where there is no room. Under write_lock.
 */
static int keep(struct ps_kv *kv, rocksdb_writebatch_t *writes, int e)
{
	struct ps_overlay_rows rows = {0};

	rocksdb_writebatch_iterate(writes, &rows, keep_put, keep_deleted);
	int kept = ps_overlay_add(kv->kept, &rows);
	ps_overlay_rows_fini(&rows);
	return kept == -ENOSPC ? e : kept;
}

static int kv_write(struct ps_kv *kv, struct ps_kv_batch *batch, int refused, int *ret_refused)
{
	size_t nbytes = 0;

	if (batch)
		rocksdb_writebatch_data(batch->writes, &nbytes);
	pthread_rwlock_rdlock(&kv->open_lock);
	pthread_mutex_lock(&kv->write_lock);
	int e = refused ? refused : write_kept(kv);
	if (e == 0)
		e = write_locked(kv, nbytes, batch ? batch->writes : NULL);
	if (e < 0 && ret_refused) {
		*ret_refused = e;
		e = keep(kv, batch->writes, e);
	}
	pthread_mutex_unlock(&kv->write_lock);
	pthread_rwlock_unlock(&kv->open_lock);
	return e;
}

int ps_kv_write(struct ps_kv *kv, struct ps_kv_batch *batch)
{
	return kv_write(kv, batch, 0, NULL);
}

int ps_kv_write_kept(struct ps_kv *kv)
{
	pthread_rwlock_rdlock(&kv->open_lock);
	pthread_mutex_lock(&kv->write_lock);
	int e = write_kept(kv);
	pthread_mutex_unlock(&kv->write_lock);
	pthread_rwlock_unlock(&kv->open_lock);
	return e;
}

int ps_kv_write_or_keep(struct ps_kv *kv, struct ps_kv_batch *batch, int refused, int *ret_refused)
{
	return kv_write(kv, batch, refused, ret_refused);
}

void ps_kv_refuse(struct ps_kv *kv, int e)
{
	PS_LOCK_SCOPE(&kv->write_lock);
	kv->broken = e;
}

int ps_kv_sync(struct ps_kv *kv)
{
	return kv_write(kv, NULL, 0, NULL);
}
