#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "index/rocksdb_private.h"

/* The index of 100,000 shards is some tens of megabytes on disk, hardly ever read twice: a small footprint
 * matters more than hits. */
#define BLOCK_CACHE_NBYTES (4 * PS_MIB)
#define WAL_NBYTES (16 * PS_MIB)
#define MANIFEST_NBYTES PS_MIB
#define MANIFEST_AHEAD_NBYTES (64 * PS_KIB) /* set aside for it on disk */
/* Small files and few of them unsorted, so that a compaction is no large part of a large index. */
#define TABLE_NBYTES (16 * PS_MIB)
#define LEVEL_NBYTES (32 * PS_MIB)
#define UNSORTED_SLOW 8
#define UNSORTED_STOP 12
#define MAX_OPEN_FILES 64
#define CHECK_READ_AHEAD_NBYTES (2 * PS_MIB)
#define BLOOM_BITS 10

enum { INFO_LOG_WARN = 2, RECOVER_POINT_IN_TIME = 2 }; /* RocksDB's own numbers: c.h has no names for them */

static void set_options(struct ps_kv *kv)
{
	rocksdb_block_based_options_set_block_cache(kv->table, kv->cache);
	/* Indexes and filters lie in the cache, too, so that memory is bounded; in partitions, for one of a
	 * million names is larger than the cache, and would be read anew for each name. */
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
	/* A log cut short by a power cut ends the replay there: everything before is whole. */
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

static int open_db(struct ps_kv *kv, bool writable, struct ps_error *err)
{
	char log_dir[sizeof(PS_KV_LOG_DIR)];
	char *text = NULL;

	bool in_memory = ps_kv_log_dir_make(log_dir);
	rocksdb_options_set_db_log_dir(kv->options, in_memory ? log_dir : "");
	kv->db = writable ? rocksdb_open(kv->options, kv->dir, &text)
	                  : rocksdb_open_for_read_only(kv->options, kv->dir, 0, &text);
	if (in_memory)
		ps_kv_log_dir_remove(log_dir);
	if (!text)
		return 0;
	int e = ps_error_set(err, ps_kv_errno(text), "index %s: %s", kv->name, text);
	rocksdb_free(text);
	kv->db = NULL;
	return e;
}

int ps_kv_open(const char *dir, size_t memtable_nbytes, struct ps_kv **ret, struct ps_error *err)
{
	struct ps_kv *kv = calloc(1, sizeof *kv);

	if (!kv)
		return ps_error_set(err, ENOMEM, "index: out of memory");
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
	int e = -ENOMEM;
	if (kv->kept && kv->dir && kv->name && kv->options && kv->table && kv->cache && kv->read && kv->write) {
		set_options(kv);
		e = ps_kv_is_marked_damaged(dir)
		            ? ps_error_set(err, EIO, "index %s: an earlier run found it damaged", kv->name)
		            : open_db(kv, true, err);
	} else {
		ps_error_set(err, ENOMEM, "index: out of memory");
	}
	if (e < 0)
		ps_kv_close(kv);
	else
		*ret = kv;
	return e;
}

int ps_kv_reopen(struct ps_kv *kv, struct ps_error *err)
{
	int e = ps_kv_check_room(kv, 0);

	if (e == 0)
		e = ps_kv_try_to_write(kv);

	if (e < 0)
		return ps_error_set(err, -e, "index %s: %s", kv->name, strerror(-e));
	pthread_rwlock_wrlock(&kv->open_lock);
	if (kv->db && !kv->broken) {
		e = 0;
	} else if (kv->niterators > 0) {
		e = ps_error_set(err, EBUSY, "index %s: somebody is reading a directory", kv->name);
	} else {
		if (kv->db)
			rocksdb_close(kv->db);
		e = open_db(kv, true, err);
		/* Names and blocks are still to be found. */
		if (e < 0)
			(void)open_db(kv, false, NULL);
		kv->broken = e; /* open_lock keeps writers out */
	}
	pthread_rwlock_unlock(&kv->open_lock);
	return e;
}

int ps_kv_get(struct ps_kv *kv, const void *key, size_t nkey, struct ps_strbuf *value)
{
	char *text = NULL;
	int e = 0;

	e = ps_overlay_get(kv->kept, key, nkey, value);
	if (e != -ENODATA)
		return e;
	e = 0;
	ps_strbuf_reset(value);
	pthread_rwlock_rdlock(&kv->open_lock);
	if (!kv->db) {
		e = -EIO;
	} else {
		rocksdb_pinnableslice_t *slice = rocksdb_get_pinned(kv->db, kv->read, key, nkey, &text);
		if (text) {
			e = ps_kv_told(kv, "index read", text);
		} else if (!slice) {
			e = -ENOENT;
		} else {
			size_t n = 0;
			const char *bytes = rocksdb_pinnableslice_value(slice, &n);
			ps_strbuf_addn(value, bytes, n);
			if (value->failed)
				e = -ENOMEM;
		}
		if (slice)
			rocksdb_pinnableslice_destroy(slice);
	}
	pthread_rwlock_unlock(&kv->open_lock);
	return e;
}

int ps_kv_check(struct ps_kv *kv, const char *from, const char *to, struct ps_error *err)
{
	rocksdb_readoptions_t *read = rocksdb_readoptions_create();
	rocksdb_iterator_t *it;
	char *text = NULL;
	int e = 0;

	rocksdb_readoptions_set_fill_cache(read, 0);
	rocksdb_readoptions_set_readahead_size(read, CHECK_READ_AHEAD_NBYTES);
	if (to[0])
		rocksdb_readoptions_set_iterate_upper_bound(read, to, strlen(to));
	pthread_rwlock_rdlock(&kv->open_lock);
	it = rocksdb_create_iterator(kv->db, read);
	for (rocksdb_iter_seek(it, from, strlen(from)); rocksdb_iter_valid(it); rocksdb_iter_next(it))
		;
	rocksdb_iter_get_error(it, &text);
	rocksdb_iter_destroy(it);
	pthread_rwlock_unlock(&kv->open_lock);
	rocksdb_readoptions_destroy(read);
	if (text)
		e = ps_error_set(err, ps_kv_errno(text), "index %s: %s", kv->name, text);
	rocksdb_free(text);
	return e;
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
