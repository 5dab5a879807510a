#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/stats.h"
#include "base/log.h"
#include "base/size.h"
#include "store/store_private.h"

#define DEFAULT_LIMIT_PERCENT 80
#define ENDING_MS 2000 /* for a process that has released the folder's lock to release the index, too */
#define ENDING_STEP_MS 20
#define DEFAULT_FLOOR_PERCENT 5
#define LEAST_DATA_NBYTES (4 * PS_MIB)
#define SMALL_NBYTES (256 * PS_MIB) /* limit of a folder below which index and reserve are small */

/* Opening ------------------------------------------------------------------------------------------------ */

static int set_limits(struct ps_store *store, const struct ps_store_options *options, struct ps_error *err)
{
	struct statvfs st;

	if (fstatvfs(store->dir_fd, &st) < 0)
		return ps_error_set(
		        err, errno, "cache directory %s: statvfs: %s", store->dir, strerror(errno));
	uint64_t disk = (uint64_t)st.f_blocks * st.f_frsize;
	store->counts_folder = options->limit_bytes == 0;
	store->limit_nbytes = options->limit_bytes    ? options->limit_bytes
	                      : options->folder_bytes ? options->folder_bytes
	                                              : disk / 100 * DEFAULT_LIMIT_PERCENT;
	/* A process that only verifies or evicts does not know the mount's limit, and leaves the reserve as
	 * it is. */
	store->is_small = store->counts_folder &&
	                  (options->must_exist || PS_MIN(store->limit_nbytes, disk) < SMALL_NBYTES);
	store->reserve_nbytes = options->must_exist ? 0
	                        : store->is_small   ? PS_RESERVE_SMALL_NBYTES
	                                            : PS_RESERVE_NBYTES;
	store->min_free_nbytes = options->min_free_bytes ? options->min_free_bytes
	                                                 : PS_MIN(PS_GIB, disk / 100 * DEFAULT_FLOOR_PERCENT);
	return 0;
}

/* Opens the index through the path of its descriptor, so that RocksDB writes to this folder even if a
 * folder above is renamed. */
static int try_index(struct ps_store *store, struct ps_error *err)
{
	char path[32];

	if (store->index_fd >= 0)
		close(store->index_fd);
	store->index_fd = ps_store_dir_sub(store->dir_fd, store->dir, "index", err);
	if (store->index_fd < 0)
		return store->index_fd;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", store->index_fd);
	const unsigned flags =
	        (store->is_small ? PS_INDEX_SMALL : 0) | (store->was_checked ? PS_INDEX_WAS_CHECKED : 0);
	int rc = ps_index_open(path, flags, &store->index, err);
	/* This process has the folder's lock, so another process that still has the index open is ending. */
	for (unsigned i = 0; rc == -EBUSY && i < ENDING_MS / ENDING_STEP_MS; i++) {
		poll(NULL, 0, ENDING_STEP_MS);
		rc = ps_index_open(path, flags, &store->index, err);
	}
	if (rc < 0)
		ps_error_prefix(err, rc, "cache directory %s", store->dir);
	return rc;
}

static int open_index(struct ps_store *store, struct ps_error *err)
{
	int rc = try_index(store, err);

	if ((rc == -ENOSPC || rc == -EDQUOT) && ps_store_dir_give_up_reserve(store->dir_fd))
		rc = try_index(store, err);
	if (rc != -EIO)
		return rc;
	rc = ps_store_dir_set_aside(store->dir_fd, store->dir, err);
	store->set_aside = rc == 0;
	return rc < 0 ? rc : try_index(store, err);
}

/* Called before there are entries: nothing can be evicted yet. */
static int count_index(struct ps_store *store, struct ps_error *err)
{
	char limit[PS_SIZE_TEXT_LEN], index[PS_SIZE_TEXT_LEN];
	int rc = ps_folder_look(store);

	store->whole_nbytes = ps_store_data_limit(store);
	if (rc == 0 && store->whole_nbytes >= LEAST_DATA_NBYTES)
		return 0;
	if (!store->counts_folder)
		return 0;
	return ps_error_set(err, EINVAL,
	        "cache directory %s: of its %s the index and its reserve need %s, which leaves too little "
	        "for data; give it "
	        "a larger --cache-size",
	        store->dir, ps_size_format(store->limit_nbytes, limit),
	        ps_size_format(store->room.index_nbytes, index));
}

static int open_data_and_index(struct ps_store *store, struct ps_error *err)
{
	store->data_fd = ps_store_dir_sub(store->dir_fd, store->dir, "data", err);
	if (store->data_fd < 0)
		return store->data_fd;
	store->can_punch = ps_datafile_can_punch(store->data_fd);
	struct ps_scan *scan = ps_scan_start(store->data_fd);
	int rc = scan ? open_index(store, err) : ps_error_set(err, ENOMEM, "out of memory");

	if (rc == 0)
		rc = count_index(store, err);
	if (rc == 0)
		rc = ps_recover(store, scan, err);
	ps_scan_free(scan);
	return rc;
}

static int init_policy(struct ps_store *store, const char *name, struct ps_error *err)
{
	store->policy_ops = ps_policy_find(name ? name : PS_POLICY_DEFAULT);
	if (!store->policy_ops)
		return ps_error_set(err, EINVAL, "policy %s: there is none of that name (plan, lru)", name);
	store->plans = ps_plans_new();
	store->policy = store->plans ? store->policy_ops->new (store->plans) : NULL;
	return store->policy ? 0 : ps_error_set(err, ENOMEM, "out of memory");
}

static struct ps_store *store_new(void)
{
	struct ps_store *store = calloc(1, sizeof(*store));

	if (!store)
		return NULL;
	store->dir_fd = store->data_fd = store->index_fd = store->lock_fd = -1;
	ps_list_init(&store->commit.dirty);
	ps_list_init(&store->sync.queue);
	ps_list_init(&store->check.queue);
	pthread_mutex_init(&store->lock, NULL);
	pthread_mutex_init(&store->room.lock, NULL);
	ps_object_checksum_init(store);
	ps_cond_init(&store->changed);
	ps_worker_init(&store->commit.worker);
	ps_worker_init(&store->sync.worker);
	ps_worker_init(&store->check.worker);
	ps_worker_init(&store->beside.worker);
	return store;
}

static void store_free(struct ps_store *store)
{
	ps_index_close(store->index);
	while (store->deleted_entries) {
		struct ps_leaving *deleted = store->deleted_entries;
		store->deleted_entries = deleted->next;
		free(deleted);
	}
	ps_object_checksum_free(store);
	ps_pins_free(store);
	ps_quota_free(store);
	if (store->policy)
		store->policy_ops->free(store->policy);
	ps_plans_free(store->plans);
	if (store->index_fd >= 0)
		close(store->index_fd);
	if (store->data_fd >= 0)
		close(store->data_fd);
	if (store->dir_fd >= 0)
		close(store->dir_fd);
	if (store->lock_fd >= 0 && store->keeps_lock)
		close(store->lock_fd);
	else if (store->lock_fd >= 0)
		ps_store_dir_unlock(store->lock_fd); /* last: then the next process may open the store */
	ps_worker_fini(&store->commit.worker);
	ps_worker_fini(&store->sync.worker);
	ps_worker_fini(&store->check.worker);
	ps_worker_fini(&store->beside.worker);
	ps_worker_fini(&store->sum.worker);
	pthread_cond_destroy(&store->changed);
	pthread_mutex_destroy(&store->lock);
	pthread_mutex_destroy(&store->room.lock);
	free(store->dir);
	free(store);
}

/* The callback for ps_index_on_failure(): a batch of the store or of a dataset was refused, and all later
 * ones will be until the index is opened again. */
static void index_failed(void *arg, int e)
{
	struct ps_store *store = arg;

	ps_disk_refused(store, e, PS_BLOCK_SIZE);
	PS_LOCK_SCOPE(&store->lock);
	store->failed_since = true;
	if (!store->index_failed)
		ps_commit_retry_locked(store);
}

/* Stops the store's threads. 0: the index has everything. */
static int stop_threads(struct ps_store *store)
{
	ps_beside_stop(store);
	ps_check_stop(store);
	ps_object_checksum_stop(store);
	int rc = ps_commit_stop(store);
	ps_sync_stop(store);
	return rc;
}

int ps_store_open(const struct ps_store_options *options, struct ps_store **ret, struct ps_error *err)
{
	struct ps_error own; /* a damaged index is logged even if err is NULL */
	struct ps_store *store = store_new();

	err = err ? err : &own;
	if (!store)
		return ps_error_set(err, ENOMEM, "out of memory");
	store->keeps_lock = options->lock_fd > 0;
	store->was_checked = options->was_checked;
	int rc = init_policy(store, options->policy, err);
	if (rc == 0)
		rc = ps_store_dir_open(options->dir, options->must_exist, options->lock_fd, &store->dir_fd,
		        &store->lock_fd, &store->dir, err);
	if (rc == 0)
		rc = ps_store_dir_salt(store->dir_fd, store->dir, store->salt, sizeof(store->salt), err);
	if (rc == 0)
		rc = set_limits(store, options, err);
	if (rc == 0)
		rc = open_data_and_index(store, err);
	if (rc == 0) {
		store->exact_mtimes = ps_index_was_clean(store->index);
		store->sum.retry_ms =
		        options->checksum_retry_ms ? options->checksum_retry_ms : PS_SUM_RETRY_MS;
		rc = ps_commit_start(store);
		if (rc == 0)
			rc = ps_sync_start(store);
		if (rc == 0)
			rc = ps_check_start(store);
		if (rc < 0)
			ps_error_set(err, -rc, "thread: %s", strerror(-rc));
	}
	if (rc == -ENOSPC || rc == -EDQUOT)
		(void)ps_store_dir_no_room(
		        options->dir, rc, store->is_small ? PS_RESERVE_SMALL_NBYTES : PS_RESERVE_NBYTES, err);
	if (rc < 0) {
		if (store->commit.worker.started)
			(void)stop_threads(store);
		store_free(store);
		return rc;
	}
	ps_index_on_failure(store->index, index_failed, store);
	ps_index_on_growth(store->index, ps_folder_room, store);
	ps_room_trim(store);
	ps_store_dir_reserve(store->dir_fd, store->reserve_nbytes);
	rc = ps_beside_start(store, options->beside);
	if (rc < 0) {
		ps_error_set(err, -rc, "thread: %s", strerror(-rc));
		ps_store_close(store);
		return rc;
	}
	*ret = store;
	return 0;
}

void ps_store_close(struct ps_store *store)
{
	if (!store)
		return;
	int rc = stop_threads(store);
	/* A stop is clean if all data that the index names is synced. After a failed sync the kernel may
	 * have dropped the data, and a later sync does not report that. */
	if (rc == 0 && store->sync.failed)
		rc = -EIO;
	if (rc == 0 && syncfs(store->data_fd) < 0)
		rc = -errno;
	if (rc == 0)
		rc = ps_index_mark_clean(store->index);
	if (rc < 0)
		ps_log_warning("store: %s: not stopped cleanly (%s); its blocks may be checked again",
		        store->dir, strerror(-rc));
	if (store->objects)
		ps_log_error(
		        "store: %s: closed with %u objects held", store->dir, HASH_COUNT(store->objects));
	store_free(store);
}

void ps_store_keep_lock(struct ps_store *store, bool keep)
{
	store->keeps_lock = keep;
}

int ps_store_lock_fd(const struct ps_store *store)
{
	return store->lock_fd;
}

/* Properties --------------------------------------------------------------------------------------------- */

uint64_t ps_store_limit(const struct ps_store *store)
{
	return store->limit_nbytes;
}

struct ps_index *ps_store_index(struct ps_store *store)
{
	return store->index;
}

/* The bytes of used_nbytes that are reserved and not written yet. store->lock is held; writers reduce
 * `unwritten` without that lock. */
static uint64_t reserved(const struct ps_store *store)
{
	return PS_MIN(atomic_load(&store->unwritten), store->used_nbytes);
}

void ps_store_room(struct ps_store *store, uint64_t *ret_limit_nbytes, uint64_t *ret_used_nbytes,
        uint64_t *ret_reserved_nbytes)
{
	PS_LOCK_SCOPE(&store->lock);
	*ret_limit_nbytes = store->limit_nbytes;
	uint64_t reserved_nbytes = reserved(store);
	*ret_reserved_nbytes = reserved_nbytes + store->room.index_nbytes;
	*ret_used_nbytes = store->used_nbytes - reserved_nbytes;
}

struct ps_plans *ps_store_plans(struct ps_store *store)
{
	return store->policy_ops->follows_plans ? store->plans : NULL;
}

const char *ps_store_dir(const struct ps_store *store)
{
	return store->dir;
}

void ps_store_fingerprint(struct ps_store *store, const char *secret, struct ps_id *ret_id)
{
	unsigned char digest[EVP_MAX_MD_SIZE];
	unsigned n = 0;

	/* Only allocation can fail. Without a fingerprint, different credentials would count as the same. */
	if (!HMAC(EVP_sha256(), store->salt, sizeof(store->salt), (const unsigned char *)secret,
	            strlen(secret), digest, &n))
		abort();
	memcpy(ret_id->bytes, digest, PS_ID_LEN);
}

#define SUM_AT_ONCE 4096u /* items added up without releasing the lock, for about 0.01 ms */

/* The bytes that are reserved for the entry of an item and not written yet, if the item is the entry's first. */
static uint64_t reserved_by(const struct ps_store *store, size_t slot)
{
	const struct ps_entry *entry = store->places[slot].entry;
	uint64_t unwritten = entry->object ? atomic_load(&entry->object->unwritten) : 0;

	for (uint32_t i = 0; unwritten > 0 && i < store->places[slot].extent; i++)
		if (entry->charges && entry->charges[i].slot != PS_NO_SLOT)
			return 0;
	return unwritten;
}

uint64_t ps_store_dataset_nbytes(struct ps_store *store, uint32_t dataset)
{
	uint64_t sum = 0, reserved_nbytes = 0;

	for (size_t i = 0, n = SIZE_MAX; i < n;) {
		PS_LOCK_SCOPE(&store->lock);
		n = store->nitems;
		for (size_t end = PS_MIN(n, i + SUM_AT_ONCE); i < end; i++)
			if (store->items[i].dataset == dataset) {
				sum += store->items[i].nbytes;
				reserved_nbytes += reserved_by(store, i);
			}
	}
	return sum - PS_MIN(reserved_nbytes, sum);
}

bool ps_store_has_others(struct ps_store *store, uint32_t dataset)
{
	for (size_t i = 0, n = SIZE_MAX; i < n;) {
		PS_LOCK_SCOPE(&store->lock);
		n = store->nitems;
		for (size_t end = PS_MIN(n, i + SUM_AT_ONCE); i < end; i++)
			if (store->items[i].dataset != dataset)
				return true;
	}
	return false;
}

json_t *ps_store_stats(struct ps_store *store)
{
	int64_t since_s;
	int disk_errnum = ps_disk_error(store, &since_s);
	uint64_t reachable = ps_store_reachable(store);

	PS_LOCK_SCOPE(&store->lock);
	uint64_t reserved_nbytes = reserved(store);
	/* A path need not be UTF-8. */
	return ps_figures_json(PS_SECTION_cache, &store->counters,
	        "{s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:I, s:I, s:o, s:I, s:I, s:s, s:I, s:b}",
	        "dir", ps_json_lossy(store->dir), "limit_bytes", (json_int_t)store->limit_nbytes,
	        "used_bytes", (json_int_t)(store->used_nbytes - reserved_nbytes), "index_bytes",
	        (json_int_t)store->room.allocated_nbytes, "reachable_bytes", (json_int_t)reachable,
	        "reserved_bytes", (json_int_t)reserved_nbytes, "min_free_bytes",
	        (json_int_t)store->min_free_nbytes, "objects", (json_int_t)HASH_COUNT(store->entries),
	        "policy", store->policy_ops->name, "pinned_objects", (json_int_t)ps_pins_count(store),
	        "pinned_bytes", (json_int_t)store->pinned_nbytes, "checksum_error",
	        ps_json_lossy(store->sum.error), "checksum_error_at", (json_int_t)store->sum.error_s,
	        "held_bytes", (json_int_t)store->held_nbytes, "disk_error",
	        disk_errnum ? strerror(disk_errnum) : "", "disk_error_at", (json_int_t)since_s, "synced",
	        ps_commit_done_locked(store) && ps_sync_done_locked(store));
}
