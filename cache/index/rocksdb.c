#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <rocksdb/c.h>

#include "base/log.h"
#include "base/size.h"
#include "index/index_private.h"

#define PS_KV_LOG_DIR "/dev/shm/penstock-XXXXXX"

struct ps_kv {
	size_t memtable_nbytes; /* constant */
	char *dir, *name;       /* name: for messages, as dir may be a descriptor's path in /proc */
	rocksdb_options_t *options;
	rocksdb_block_based_table_options_t *table;
	rocksdb_cache_t *cache;
	rocksdb_readoptions_t *read;
	rocksdb_writeoptions_t *write;

	pthread_rwlock_t open_lock; /* shared over every use of db; exclusive in reopen only */
	rocksdb_t *db;              /* NULL after a reopen that failed */
	_Atomic unsigned niterators;

	pthread_mutex_t write_lock; /* taken within open_lock; held over a write, and protects: */
	int broken;                 /* RocksDB refused a write: -errno, until it is opened again */
	bool logged;                /* the present failure was logged */
	struct ps_overlay *kept;    /* rows that were refused; added and cleared under write_lock */
};

/* The disk below ----------------------------------------------------------------------------------------- */

#define DAMAGED_NAME "DAMAGED" /* our own files in RocksDB's folder */
#define PROBE_NAME "probe"

static const struct {
	const char *text;
	int errnum;
} system_errors[] = {
        {"No space left on device", ENOSPC},
        {"Disk quota exceeded", EDQUOT},
        {"Read-only file system", EROFS},
        {"Permission denied", EACCES},
        {"Operation not permitted", EPERM},
        {"Too many open files", EMFILE},
        {"Cannot allocate memory", ENOMEM},
        {"lock hold by current process", EBUSY},
        {"Resource temporarily unavailable", EBUSY},
};

/* Returns the positive errno that a status text means, since the C API reports errors as text only. Errors of
 * the system must not be taken for damage, because a damaged index is moved aside. */
static int kv_errno(const char *text)
{
	for (size_t i = 0; i < PS_ARRAY_LEN(system_errors); i++)
		if (strstr(text, system_errors[i].text))
			return system_errors[i].errnum;
	return EIO;
}

/* Damage was found: the open index is used as far as possible, and the next start moves it aside. */
static void mark_damaged(const struct ps_kv *kv)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/" DAMAGED_NAME, kv->dir);
	ps_autofd int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		ps_log_debug("index: %s: cannot be marked as damaged", kv->name);
}

/* Logs a status text and frees it; marks the index as damaged if the text reports damage. Returns -errno. */
static int kv_told(struct ps_kv *kv, const char *call, char *text)
{
	int errnum = kv_errno(text);

	if (strstr(text, "Corruption"))
		mark_damaged(kv);
	ps_log_error("%s: %s: %s", call, kv->name, text);
	rocksdb_free(text);
	return -errnum;
}

/* Checks that the disk has room for the bytes: 0, -ENOSPC or -EROFS. RocksDB is called only if there is
 * room, because after one write that the disk refused, RocksDB refuses all later ones. */
static int kv_check_room(const struct ps_kv *kv, size_t nbytes)
{
	struct statvfs st;

	if (statvfs(kv->dir, &st) < 0)
		return 0; /* the write will report it */
	if (st.f_flag & ST_RDONLY)
		return -EROFS;
	/* RocksDB also writes in the background: a memtable and its manifest. */
	return (uint64_t)st.f_bavail * st.f_frsize < nbytes + kv->memtable_nbytes + PS_MIB ? -ENOSPC : 0;
}

/* Writes a probe file: statvfs does not show quotas, nor a file system that became read-only after an
 * error. */
static int kv_try_to_write(const struct ps_kv *kv)
{
	static const char zeros[4096];
	char path[PATH_MAX];
	ssize_t n = -1;

	snprintf(path, sizeof(path), "%s/" PROBE_NAME, kv->dir);
	ps_autofd int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	int rc = fd < 0 || (n = write(fd, zeros, sizeof(zeros))) < 0 || fdatasync(fd) < 0 ? -errno : 0;

	unlink(path);
	return rc == 0 && n < (ssize_t)sizeof(zeros) ? -ENOSPC : rc;
}

/* Opening ------------------------------------------------------------------------------------------------ */

/* The index of 100,000 shards takes some tens of megabytes on disk and is hardly ever read twice: a small
 * footprint matters more than hits. */
#define BLOCK_CACHE_NBYTES (4 * PS_MIB)
#define WAL_NBYTES (16 * PS_MIB)
#define MANIFEST_NBYTES PS_MIB
/* Allocated ahead on disk for the manifest. */
#define MANIFEST_AHEAD_NBYTES (64 * PS_KIB)
/* Files are small, and few of them are unsorted (in level 0), so that one compaction covers only a small part
 * of a large index. */
#define TABLE_NBYTES (16 * PS_MIB)
#define LEVEL_NBYTES (32 * PS_MIB)
#define UNSORTED_SLOW 8
#define UNSORTED_STOP 12
/* Enough for the index of 20 million names. A bucket's names are looked up at several places at a time, and
 * opening a table reads its filters: with 64 files, 3 million names took as long as 20 million with 256. */
#define MAX_OPEN_FILES 256
#define CHECK_READ_AHEAD_NBYTES (2 * PS_MIB)
#define CHECK_PART_ROWS 65536 /* some 50 ms */
#define BLOOM_BITS 10

enum { INFO_LOG_WARN = 2, RECOVER_POINT_IN_TIME = 2 }; /* RocksDB's own numbers; c.h has no names for them */

static void set_options(struct ps_kv *kv)
{
	rocksdb_block_based_options_set_block_cache(kv->table, kv->cache);
	/* Indexes and filters are in the cache, too, so that memory is bounded. They are partitioned: those
	 * of a million names are larger than the cache, and would be read again for each name. */
	rocksdb_block_based_options_set_cache_index_and_filter_blocks(kv->table, 1);
	rocksdb_block_based_options_set_cache_index_and_filter_blocks_with_high_priority(kv->table, 1);
	rocksdb_block_based_options_set_index_type(
	        kv->table, rocksdb_block_based_table_index_type_two_level_index_search);
#ifdef HAVE_ROCKSDB_BLOCK_BASED_OPTIONS_SET_PARTITION_FILTERS
	rocksdb_block_based_options_set_partition_filters(kv->table, 1);
#endif
	rocksdb_block_based_options_set_filter_policy(
	        kv->table, rocksdb_filterpolicy_create_bloom_full(BLOOM_BITS));
	rocksdb_options_set_block_based_table_factory(kv->options, kv->table);
	rocksdb_options_set_create_if_missing(kv->options, 1);
	rocksdb_options_set_write_buffer_size(kv->options, kv->memtable_nbytes);
	rocksdb_options_set_max_write_buffer_number(kv->options, 2);
	rocksdb_options_set_max_total_wal_size(kv->options, WAL_NBYTES);
	rocksdb_options_set_max_manifest_file_size(kv->options, MANIFEST_NBYTES);
	rocksdb_options_set_manifest_preallocation_size(kv->options, MANIFEST_AHEAD_NBYTES);
	rocksdb_options_set_target_file_size_base(kv->options, TABLE_NBYTES);
	rocksdb_options_set_max_bytes_for_level_base(kv->options, LEVEL_NBYTES);
	rocksdb_options_set_max_compaction_bytes(kv->options, PS_KV_COMPACTION_NBYTES / 2);
	rocksdb_options_set_level0_slowdown_writes_trigger(kv->options, UNSORTED_SLOW);
	rocksdb_options_set_level0_stop_writes_trigger(kv->options, UNSORTED_STOP);
	rocksdb_options_set_max_open_files(kv->options, MAX_OPEN_FILES);
	rocksdb_options_set_max_background_jobs(kv->options, 2);
	rocksdb_options_set_info_log_level(kv->options, INFO_LOG_WARN);
	rocksdb_options_set_keep_log_file_num(kv->options, 1);
	rocksdb_options_set_stats_dump_period_sec(kv->options, 0);
	rocksdb_options_set_stats_persist_period_sec(kv->options, 0);
	/* Replay ends where a power cut ended the log: everything before is whole. */
	rocksdb_options_set_wal_recovery_mode(kv->options, RECOVER_POINT_IN_TIME);
}

void ps_kv_close(struct ps_kv *kv)
{
	if (!kv)
		return;
	if (kv->db)
		rocksdb_close(kv->db);
	if (kv->write)
		rocksdb_writeoptions_destroy(kv->write);
	if (kv->read)
		rocksdb_readoptions_destroy(kv->read);
	if (kv->options)
		rocksdb_options_destroy(kv->options);
	if (kv->table)
		rocksdb_block_based_options_destroy(kv->table);
	if (kv->cache)
		rocksdb_cache_destroy(kv->cache);
	pthread_mutex_destroy(&kv->write_lock);
	pthread_rwlock_destroy(&kv->open_lock);
	ps_overlay_free(kv->kept);
	free(kv->dir);
	free(kv->name);
	free(kv);
}

/* RocksDB insists on a log file of its own. On a full disk, the second line of that file fails an assertion,
 * which ends the process in builds with assertions (Debian's). So the log file is made in memory and removed
 * once RocksDB has opened it; errors reach our log as status texts. If the folder for it cannot be made, the log
 * file is in the index's folder, as usual. */
static int open_db(struct ps_kv *kv, bool writable, struct ps_error *err)
{
	char log_dir[] = PS_KV_LOG_DIR;
	bool in_memory = mkdtemp(log_dir);
	char *text = NULL;

	rocksdb_options_set_db_log_dir(kv->options, in_memory ? log_dir : "");
	kv->db = writable ? rocksdb_open(kv->options, kv->dir, &text)
	                  : rocksdb_open_for_read_only(kv->options, kv->dir, 0, &text);
	DIR *dir = in_memory ? opendir(log_dir) : NULL;
	for (struct dirent *d; dir && (d = readdir(dir));)
		/* "." and ".." stay: unlinkat does not remove directories. */
		unlinkat(dirfd(dir), d->d_name, 0);
	if (dir)
		closedir(dir);
	if (in_memory)
		rmdir(log_dir);
	if (!text)
		return 0;
	int rc = ps_error_set(err, kv_errno(text), "index %s: %s", kv->name, text);
	rocksdb_free(text);
	kv->db = NULL;
	return rc;
}

int ps_kv_open(const char *dir, size_t memtable_nbytes, struct ps_kv **ret, struct ps_error *err)
{
	struct ps_kv *kv = calloc(1, sizeof(*kv));
	char damaged[PATH_MAX];

	if (!kv)
		return ps_error_set(err, ENOMEM, "index: out of memory");
	snprintf(damaged, sizeof(damaged), "%s/" DAMAGED_NAME, dir);
	pthread_rwlock_init(&kv->open_lock, NULL);
	pthread_mutex_init(&kv->write_lock, NULL);
	kv->memtable_nbytes = memtable_nbytes;
	kv->dir = strdup(dir);
	kv->name = realpath(dir, NULL);
	if (!kv->name)
		kv->name = strdup(dir);
	kv->options = rocksdb_options_create();
	kv->table = rocksdb_block_based_options_create();
	kv->cache = rocksdb_cache_create_lru(BLOCK_CACHE_NBYTES);
	kv->read = rocksdb_readoptions_create();
	kv->write = rocksdb_writeoptions_create();
	kv->kept = ps_overlay_new();
	int rc = -ENOMEM;
	if (kv->kept && kv->dir && kv->name && kv->options && kv->table && kv->cache && kv->read &&
	        kv->write) {
		set_options(kv);
		rc = access(damaged, F_OK) == 0
		             ? ps_error_set(err, EIO, "index %s: an earlier run found it damaged", kv->name)
		             : open_db(kv, true, err);
	} else {
		ps_error_set(err, ENOMEM, "index: out of memory");
	}
	if (rc < 0)
		ps_kv_close(kv);
	else
		*ret = kv;
	return rc;
}

int ps_kv_reopen(struct ps_kv *kv, struct ps_error *err)
{
	int rc = kv_check_room(kv, 0);

	if (rc == 0)
		rc = kv_try_to_write(kv);

	if (rc < 0)
		return ps_error_set(err, -rc, "index %s: %s", kv->name, strerror(-rc));
	pthread_rwlock_wrlock(&kv->open_lock);
	if (kv->db && !kv->broken) {
		rc = 0;
	} else if (kv->niterators > 0) {
		rc = ps_error_set(err, EBUSY, "index %s: a snapshot is in use", kv->name);
	} else {
		if (kv->db)
			rocksdb_close(kv->db);
		rc = open_db(kv, true, err);
		/* The index is opened read-only, so that names and blocks can still be looked up. */
		if (rc < 0)
			(void)open_db(kv, false, NULL);
		kv->broken = rc; /* open_lock keeps writers out */
	}
	pthread_rwlock_unlock(&kv->open_lock);
	return rc;
}

int ps_kv_get(struct ps_kv *kv, const void *key, size_t nkey, struct ps_strbuf *value)
{
	char *text = NULL;
	int rc = 0;

	rc = ps_overlay_get(kv->kept, key, nkey, value);
	if (rc != -ENODATA)
		return rc;
	rc = 0;
	ps_strbuf_reset(value);
	pthread_rwlock_rdlock(&kv->open_lock);
	if (!kv->db) {
		rc = -EIO;
	} else {
		rocksdb_pinnableslice_t *slice = rocksdb_get_pinned(kv->db, kv->read, key, nkey, &text);
		if (text) {
			rc = kv_told(kv, "index read", text);
		} else if (!slice) {
			rc = -ENOENT;
		} else {
			size_t n = 0;
			const char *bytes = rocksdb_pinnableslice_value(slice, &n);
			ps_strbuf_addn(value, bytes, n);
			if (value->failed)
				rc = -ENOMEM;
		}
		if (slice)
			rocksdb_pinnableslice_destroy(slice);
	}
	pthread_rwlock_unlock(&kv->open_lock);
	return rc;
}

/* Reads up to nrows rows of the range, beginning at the key `from`. Sets `from` to the key of the next row;
 * empty: there is none. Returns RocksDB's text of an error, or NULL. */
static char *read_range(
        struct ps_kv *kv, const struct ps_kv_range *range, struct ps_strbuf *from, uint64_t nrows)
{
	rocksdb_readoptions_t *read = rocksdb_readoptions_create();
	rocksdb_iterator_t *it;
	char *text = NULL;

	rocksdb_readoptions_set_fill_cache(read, 0);
	rocksdb_readoptions_set_readahead_size(read, CHECK_READ_AHEAD_NBYTES);
	if (range->nto)
		rocksdb_readoptions_set_iterate_upper_bound(read, range->to, range->nto);
	pthread_rwlock_rdlock(&kv->open_lock);
	if (kv->db) {
		it = rocksdb_create_iterator(kv->db, read);
		rocksdb_iter_seek(it, ps_strbuf_peek(from), from->len);
		ps_strbuf_reset(from);
		for (; rocksdb_iter_valid(it) && nrows > 0; nrows--)
			rocksdb_iter_next(it);
		if (rocksdb_iter_valid(it)) {
			size_t n;
			const char *key = rocksdb_iter_key(it, &n);
			ps_strbuf_addn(from, key, n);
		}
		rocksdb_iter_get_error(it, &text);
		rocksdb_iter_destroy(it);
	} else {
		ps_strbuf_reset(from);
	}
	pthread_rwlock_unlock(&kv->open_lock);
	rocksdb_readoptions_destroy(read);
	return text;
}

int ps_kv_check(struct ps_kv *kv, const struct ps_kv_range *range, struct ps_error *err)
{
	ps_autostrbuf struct ps_strbuf from = {0};

	ps_strbuf_addn(&from, range->from, range->nfrom);
	if (from.failed)
		return ps_error_set(err, ENOMEM, "index %s: out of memory", kv->name);
	char *text = read_range(kv, range, &from, UINT64_MAX);
	int rc = text ? ps_error_set(err, kv_errno(text), "index %s: %s", kv->name, text) : 0;

	rocksdb_free(text);
	return rc;
}

void ps_kv_check_later(struct ps_kv *kv, const struct ps_kv_range *range, const _Atomic bool *stop)
{
	ps_autostrbuf struct ps_strbuf from = {0};
	char *text = NULL;

	/* In parts, between which the index may be opened again. */
	for (ps_strbuf_addn(&from, range->from, range->nfrom);
	        !text && from.len > 0 && !from.failed && !atomic_load_explicit(stop, memory_order_relaxed);)
		text = read_range(kv, range, &from, CHECK_PART_ROWS);
	/* As at a start: what cannot be read has to be made again. */
	if (text && kv_errno(text) == EIO)
		mark_damaged(kv);
	if (text)
		(void)kv_told(kv, "index check", text);
}

uint64_t ps_kv_live_nbytes(struct ps_kv *kv)
{
	uint64_t nbytes = 0;

	pthread_rwlock_rdlock(&kv->open_lock);
	if (kv->db && rocksdb_property_int(kv->db, "rocksdb.live-sst-files-size", &nbytes) != 0)
		nbytes = 0;
	pthread_rwlock_unlock(&kv->open_lock);
	return nbytes;
}

/* Batches ------------------------------------------------------------------------------------------------ */

struct ps_index_batch *ps_index_batch_new(void)
{
	struct ps_index_batch *batch = calloc(1, sizeof(*batch));

	if (!batch)
		return NULL;
	batch->writes = rocksdb_writebatch_create();
	if (!batch->writes) {
		free(batch);
		return NULL;
	}
	return batch;
}

void ps_index_batch_free(struct ps_index_batch *batch)
{
	if (!batch)
		return;
	rocksdb_writebatch_destroy(batch->writes);
	ps_strbuf_fini(&batch->value);
	free(batch);
}

void ps_kv_batch_put(
        struct ps_index_batch *batch, const void *key, size_t nkey, const void *value, size_t nvalue)
{
	rocksdb_writebatch_put(batch->writes, key, nkey, value, nvalue);
	batch->nput += nkey + nvalue;
}

void ps_kv_batch_del(struct ps_index_batch *batch, const void *key, size_t nkey)
{
	rocksdb_writebatch_delete(batch->writes, key, nkey);
}

/* Writes, under open_lock and write_lock. Calls are serialised, and none is made after one that failed:
 * RocksDB's log file may then be in a state for which its assertions (Debian's build has them) end the
 * process. */
static int write_locked(struct ps_kv *kv, size_t nbytes, rocksdb_writebatch_t *writes)
{
	char *text = NULL;

	if (!kv->db)
		return -EIO;
	if (kv->broken)
		return kv->broken;
	int rc = writes ? kv_check_room(kv, nbytes) : 0;
	if (rc < 0) {
		if (!kv->logged)
			ps_log_error("index write: %s: %s", kv->name, strerror(-rc));
		kv->logged = true;
		return rc;
	}
	if (writes)
		rocksdb_write(kv->db, kv->write, writes, &text);
	else
		rocksdb_flush_wal(kv->db, 1, &text);
	if (text) {
		int reported = kv_told(kv, writes ? "index write" : "index sync", text);

		/* -ENOMEM would make the caller believe that the batch was never tried, and that the index
		 * need not be opened again. */
		kv->broken = reported == -ENOMEM ? -EIO : reported;
		kv->logged = true;
	} else {
		kv->logged = false;
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

/* Writes the kept rows, which precede those of the present batch. Under open_lock and write_lock. */
static int write_kept(struct ps_kv *kv)
{
	size_t nbytes = 0;

	if (ps_overlay_is_empty(kv->kept))
		return 0;
	if (!kv->db || kv->broken)
		return kv->broken ? kv->broken : -EIO;
	/* The room is checked before the rows are copied to a batch, because each later write comes here. */
	int rc = kv_check_room(kv, ps_overlay_nbytes(kv->kept));
	if (rc < 0)
		return rc;
	rocksdb_writebatch_t *writes = rocksdb_writebatch_create();
	ps_overlay_each(kv->kept, put_kept, writes);
	rocksdb_writebatch_data(writes, &nbytes);
	rc = write_locked(kv, nbytes, writes);
	rocksdb_writebatch_destroy(writes);
	if (rc == 0)
		ps_overlay_clear(kv->kept);
	return rc;
}

static void keep_put(void *rows, const char *key, size_t nkey, const char *value, size_t nvalue)
{
	ps_overlay_rows_put(rows, key, nkey, value ? value : "", nvalue);
}

static void keep_deleted(void *rows, const char *key, size_t nkey)
{
	ps_overlay_rows_put(rows, key, nkey, NULL, 0);
}

int ps_kv_write(struct ps_kv *kv, struct ps_index_batch *batch, int refused, int *ret_refused)
{
	struct ps_overlay_rows rows = {0};
	size_t nbytes = 0;

	if (batch)
		rocksdb_writebatch_data(batch->writes, &nbytes);
	pthread_rwlock_rdlock(&kv->open_lock);
	pthread_mutex_lock(&kv->write_lock);
	int rc = refused ? refused : write_kept(kv);
	if (rc == 0)
		rc = write_locked(kv, nbytes, batch ? batch->writes : NULL);
	if (rc < 0 && ret_refused) {
		*ret_refused = rc;
		/* Keeps all rows in memory, or none. */
		rocksdb_writebatch_iterate(batch->writes, &rows, keep_put, keep_deleted);
		int kept = ps_overlay_add(kv->kept, &rows);
		ps_overlay_rows_fini(&rows);
		rc = kept == -ENOSPC ? rc : kept;
	}
	pthread_mutex_unlock(&kv->write_lock);
	pthread_rwlock_unlock(&kv->open_lock);
	return rc;
}

int ps_kv_write_kept(struct ps_kv *kv)
{
	pthread_rwlock_rdlock(&kv->open_lock);
	pthread_mutex_lock(&kv->write_lock);
	int rc = write_kept(kv);
	pthread_mutex_unlock(&kv->write_lock);
	pthread_rwlock_unlock(&kv->open_lock);
	return rc;
}

int ps_kv_sync(struct ps_kv *kv)
{
	return ps_kv_write(kv, NULL, 0, NULL);
}

/* Walks -------------------------------------------------------------------------------------------------- */

/* Merges the rows of the index with those kept in memory, in the order of their keys. A kept row hides one
 * of the index. */
struct ps_kv_iter {
	struct ps_kv *kv;
	rocksdb_iterator_t *it;
	rocksdb_readoptions_t *read;
	struct ps_overlay_rows kept;               /* rows with the prefix */
	size_t nkept;                              /* of these, rows already passed */
	enum { AT_NOTHING, AT_INDEX, AT_KEPT } at; /* where the current row is */
	int status;
	size_t nend;
	char end[PS_KV_PREFIX_MAX_LEN]; /* first key after the prefix; RocksDB keeps a pointer to it */
};

/* The smallest key greater than all with the prefix: the prefix plus one, with carry. */
static size_t prefix_end(const void *prefix, size_t n, char *ret)
{
	memcpy(ret, prefix, n);
	while (n > 0 && (uint8_t)ret[n - 1] == 0xff)
		n--;
	if (n > 0)
		ret[n - 1] = (char)((uint8_t)ret[n - 1] + 1);
	return n;
}

int ps_kv_iter_open(struct ps_kv *kv, const void *prefix, size_t nprefix, struct ps_kv_iter **ret)
{
	struct ps_kv_iter *it = calloc(1, sizeof(*it));
	int rc = 0;

	if (!it)
		return -ENOMEM;
	it->kv = kv;
	it->nend = prefix_end(prefix, PS_MIN(nprefix, sizeof(it->end)), it->end);
	it->read = rocksdb_readoptions_create();
	rocksdb_readoptions_set_iterate_upper_bound(it->read, it->end, it->nend);
	rocksdb_readoptions_set_fill_cache(it->read, 0);
	kv->niterators++;
	pthread_rwlock_rdlock(&kv->open_lock);
	/* If rows are kept, the iterator over them and the one over the index are opened under the lock, because
	 * no row may move from the kept ones into the index in between. */
	bool keeps = kv->db && !ps_overlay_is_empty(kv->kept);
	if (keeps) {
		pthread_mutex_lock(&kv->write_lock);
		rc = ps_overlay_range(kv->kept, prefix, nprefix, it->end, it->nend, &it->kept);
	}
	it->it = kv->db ? rocksdb_create_iterator(kv->db, it->read) : NULL;
	if (keeps)
		pthread_mutex_unlock(&kv->write_lock);
	if (it->it)
		rocksdb_iter_seek(it->it, prefix, nprefix);
	else
		rc = -EIO;
	pthread_rwlock_unlock(&kv->open_lock);
	if (rc < 0)
		ps_kv_iter_close(it);
	else
		*ret = it;
	return rc;
}

/* Takes no lock: reopen refuses while an iterator is open. */
void ps_kv_iter_seek(struct ps_kv_iter *it, const void *key, size_t nkey)
{
	rocksdb_iter_seek(it->it, key, nkey);
	it->nkept = ps_overlay_rows_find(&it->kept, key, nkey);
	it->at = AT_NOTHING;
}

/* Chooses the source of the next row. A row of the index that a kept one hides is skipped. */
static void choose(struct ps_kv_iter *it)
{
	const struct ps_overlay_row *row = it->nkept < it->kept.n ? it->kept.v[it->nkept] : NULL;
	bool in_index = rocksdb_iter_valid(it->it);
	int order = in_index ? -1 : 1;

	if (in_index && row) {
		size_t nkey;
		const char *key = rocksdb_iter_key(it->it, &nkey);

		order = ps_overlay_compare(key, nkey, row->bytes, row->nkey);
	}
	if (order == 0)
		rocksdb_iter_next(it->it);
	it->at = order < 0 ? AT_INDEX : row ? AT_KEPT : AT_NOTHING;
}

bool ps_kv_iter_next(struct ps_kv_iter *it, const void **ret_key, size_t *ret_nkey, const void **ret_value,
        size_t *ret_nvalue)
{
	char *text = NULL;

	do {
		if (it->at == AT_INDEX)
			rocksdb_iter_next(it->it);
		else if (it->at == AT_KEPT)
			it->nkept++;
		it->at = AT_NOTHING;
		/* If the index has no next row, because of an error or at the end: an error ends the whole
		 * iteration. */
		if (it->status == 0 && !rocksdb_iter_valid(it->it))
			rocksdb_iter_get_error(it->it, &text);
		if (text)
			it->status = kv_told(it->kv, "index walk", text);
		if (it->status < 0)
			return false;
		choose(it);
	} while (it->at == AT_KEPT && it->kept.v[it->nkept]->deleted);
	if (it->at == AT_INDEX) {
		*ret_key = rocksdb_iter_key(it->it, ret_nkey);
		*ret_value = rocksdb_iter_value(it->it, ret_nvalue);
	} else if (it->at == AT_KEPT) {
		const struct ps_overlay_row *row = it->kept.v[it->nkept];

		*ret_key = row->bytes;
		*ret_nkey = row->nkey;
		*ret_value = row->bytes + row->nkey;
		*ret_nvalue = row->nvalue;
	}
	return it->at != AT_NOTHING;
}

int ps_kv_iter_status(const struct ps_kv_iter *it)
{
	return it->status;
}

void ps_kv_iter_close(struct ps_kv_iter *it)
{
	if (!it)
		return;
	if (it->it)
		rocksdb_iter_destroy(it->it);
	rocksdb_readoptions_destroy(it->read);
	ps_overlay_rows_fini(&it->kept);
	it->kv->niterators--;
	free(it);
}
