#include "store/store_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/store.h"

/* Syncs -------------------------------------------------------------------------------------------------- */

/* Queues the sync of an object that has rows in the last batch. store->lock held. */
static void sync_queue_locked(struct ps_object *object)
{
	struct ps_store *store = object->store;

	if (!store->sync.since_ns) {
		store->sync.since_ns = ps_clock_mono_ns();
		pthread_cond_signal(&store->sync.worker.wake);
	}
	/* If only rows have changed, syncing the index's log is enough. */
	if (object->sync_queued || !object->unsynced)
		return;
	object->sync_queued = true;
	object->refs++;
	ps_list_append(&store->sync.queue, &object->sync_link);
	store->sync.nqueued++;
}

/* store->lock held. Takes the first object off the queue; the caller takes over the queue's reference. */
static struct ps_object *take_first(struct ps_store *store)
{
	struct ps_object *object =
	        PS_CONTAINER_OF(ps_list_take(&store->sync.queue), struct ps_object, sync_link);
	object->sync_queued = false;
	store->sync.nqueued--;
	return object;
}

/* Syncs the queued objects. store->lock held, and dropped over the disk. Objects that are queued meanwhile
 * are synced by the next round. */
static void sync_round(struct ps_store *store)
{
	size_t n = store->sync.nqueued;
	int rc;

	store->sync.since_ns = 0;
	store->sync.running = true;
	for (; n > 0 && !ps_list_empty(&store->sync.queue) && !store->sync.worker.stopping; n--) {
		struct ps_object *object = take_first(store);

		pthread_mutex_unlock(&store->lock);
		object->unsynced = false;
		rc = fdatasync(object->fd) < 0 ? -errno : 0;
		pthread_mutex_lock(&store->lock);
		if (rc < 0 && !store->sync.failed)
			ps_log_warning("sync: %s: %s; after a stop its blocks will be checked again",
			        object->url, strerror(-rc));
		store->sync.failed |= rc < 0;
		ps_object_unref_locked(object);
	}
	pthread_mutex_unlock(&store->lock);
	rc = ps_index_sync(store->index);
	if (rc < 0)
		ps_log_debug("sync: %s: the index: %s", store->dir, strerror(-rc));
	pthread_mutex_lock(&store->lock);
	store->sync.running = false;
}

bool ps_sync_done_locked(const struct ps_store *store)
{
	return !store->sync.since_ns && !store->sync.running;
}

static void *sync_thread(void *arg)
{
	struct ps_store *store = arg;

	pthread_mutex_lock(&store->lock);
	while (!store->sync.worker.stopping) {
		uint64_t due = store->sync.since_ns + PS_STORE_SYNC_MS * PS_NS_PER_MS;

		if (!store->sync.since_ns)
			pthread_cond_wait(&store->sync.worker.wake, &store->lock);
		else if (ps_clock_mono_ns() < due)
			ps_cond_wait_until(&store->sync.worker.wake, &store->lock, due);
		else
			sync_round(store);
	}
	pthread_mutex_unlock(&store->lock);
	return NULL;
}

int ps_sync_start(struct ps_store *store)
{
	return ps_worker_start(&store->sync.worker, "store-sync", sync_thread, store);
}

void ps_sync_stop(struct ps_store *store)
{
	ps_worker_stop(&store->sync.worker, &store->lock);
	PS_LOCK_SCOPE(&store->lock);
	while (!ps_list_empty(&store->sync.queue))
		ps_object_unref_locked(take_first(store));
}

/* Rows to the index -------------------------------------------------------------------------------------- */

bool ps_commit_done_locked(const struct ps_store *store)
{
	return ps_commit_idle_locked(store) && !store->commit.running;
}

/* One batch ---------------------------------------------------------------------------------------------- */

/* Copies the dirty rows into the batch. The file's times are read first: a write that follows is in a later
 * batch, with the later times. */
static void collect(struct ps_object *object, struct ps_index_batch *batch)
{
	struct ps_store *store = object->store;
	struct ps_object_row row = {.id = object->id, .url = object->url, .remote = object->remote};
	struct stat st;

	if (object->fd < 0 || fstat(object->fd, &st) < 0)
		return;
	pthread_mutex_lock(&store->lock);
	row.dataset = object->dataset;
	row.created_s = object->created_s;
	row.opened_s = object->opened_s;
	row.by_extent = object->by_extent;
	object->row_by_extent |= row.by_extent;
	memcpy(row.learned_etag, object->learned_etag, sizeof(row.learned_etag));
	memcpy(row.checksum, object->checksum, sizeof(row.checksum));
	row.sum_matched = object->sum_matched;
	pthread_mutex_unlock(&store->lock);
	row.allocated_nbytes = (uint64_t)st.st_blocks * 512;
	row.data_mtime_ns = ps_datafile_mtime_ns(&st);
	row.data_ctime_ns = ps_datafile_ctime_ns(&st);
	row.data_ino = st.st_ino;

	pthread_mutex_lock(&object->lock);
	for (uint32_t i = object->dirty_first; i < object->dirty_end; i++) {
		struct ps_extent *extent = object->extents[i];
		if (!extent || !extent->dirty || extent->leaving)
			continue;
		struct ps_extent_row extent_row = {.present = extent->present,
		        .unverified = extent->unverified,
		        .used_s = extent->used_s};
		memcpy(extent_row.crc, extent->crc, sizeof(extent_row.crc));
		ps_chunks_store(extent, &extent_row);
		ps_index_batch_put_extent(store->index, batch, &object->id, i, &extent_row);
		extent->dirty = false;
	}
	object->dirty_first = object->dirty_end = 0;
	row.nblocks_present = object->npresent;
	row.partial_nbytes = object->partial_nbytes;
	pthread_mutex_unlock(&object->lock);
	ps_index_batch_put_object(batch, &row);
}

/* store->lock held. Moves the queue to list, except for objects that were evicted since. */
static void take_queue(struct ps_store *store, struct ps_list *list)
{
	struct ps_list queue;

	ps_list_init(&queue);
	ps_list_splice(&queue, &store->commit.dirty);
	store->commit.ndirty_blocks = 0;
	while (!ps_list_empty(&queue)) {
		struct ps_object *object =
		        PS_CONTAINER_OF(ps_list_take(&queue), struct ps_object, dirty_link);
		object->dirty = false;
		if (object->state == PS_OBJECT_READY) {
			object->committing = true;
			ps_list_append(list, &object->dirty_link);
		} else {
			ps_object_unref_locked(object);
		}
	}
}

/* store->lock held. Ends a batch: queues its objects again if it failed or if they are dirty again, and
 * releases the others. */
static void return_batch(struct ps_list *list, bool failed)
{
	while (!ps_list_empty(list)) {
		struct ps_object *object = PS_CONTAINER_OF(ps_list_take(list), struct ps_object, dirty_link);
		object->committing = false;
		if (!failed)
			sync_queue_locked(object);
		if (object->dirty) {
			/* the queue takes over the reference that was taken when the object became dirty */
			ps_commit_append_locked(object);
		} else if (failed) {
			ps_commit_queue_locked(object, 0);
		}
		ps_object_unref_locked(object);
	}
}

static void collect_pins(struct ps_store *store, struct ps_index_batch *batch)
{
	PS_LOCK_SCOPE(&store->lock);

	if (!store->pins_dirty)
		return;
	store->pins_dirty = false;
	for (struct ps_pin *pin = store->pins; pin; pin = pin->hh.next) {
		if (!pin->dirty)
			continue;
		pin->dirty = false;
		pin->collected = true;
		if (pin->deleted)
			ps_index_batch_del_pin(batch, &pin->row.url_id);
		else
			ps_index_batch_put_pin(batch, &pin->row);
	}
}

static void pins_collected(struct ps_store *store, bool written)
{
	struct ps_pin *pin, *next;

	PS_LOCK_SCOPE(&store->lock);
	HASH_ITER (hh, store->pins, pin, next) {
		if (!pin->collected)
			continue;
		pin->collected = false;
		if (!written)
			pin->dirty = true, ps_commit_pins_locked(store);
		else if (pin->deleted && !pin->dirty)
			ps_pin_free(store, pin);
	}
}

static int write_batch(struct ps_store *store, struct ps_list *list)
{
	struct ps_index_batch *batch = ps_index_batch_new();

	if (!batch)
		return -ENOMEM;
	PS_LIST_EACH (struct ps_object, object, list, dirty_link)
		collect(object, batch);
	collect_pins(store, batch);
	ps_index_batch_unasked(batch); /* ps_folder_look() has made room already */
	int rc = ps_index_batch_commit(store->index, batch);
	pins_collected(store, rc == 0);
	if (rc == 0)
		return 0;
	PS_LIST_EACH (struct ps_object, object, list, dirty_link) {
		PS_LOCK_SCOPE(&object->lock);
		for (uint32_t i = 0; i < object->nextents; i++)
			if (object->extents[i])
				((struct ps_extent *)object->extents[i])->dirty = true;
		object->dirty_first = 0;
		object->dirty_end = object->nextents;
	}
	return rc;
}

/* Rate-limited, because a nearly full disk accepts and refuses writes in turns. */
static void tell_of_refusal(struct ps_store *store, int e)
{
	unsigned others;

	store->commit.told_of_refusal = ps_log_rate_pass(&store->refusal_rate, &others);
	if (store->commit.told_of_refusal)
		ps_log_error("store: %s: the index cannot be written (%s); until it can, new data is "
		             "streamed without being cached",
		        store->dir, strerror(-e));
}

/* Writes one batch. store->lock held, dropped over the index. After an error all its rows are on the queue
 * again. */
static int commit_locked(struct ps_store *store)
{
	struct ps_list list;
	bool was_failed;

	while (store->commit.running)
		pthread_cond_wait(&store->changed, &store->lock);
	store->commit.running = true;
	pthread_mutex_unlock(&store->lock);
	int rc = ps_folder_look(store);
	pthread_mutex_lock(&store->lock);
	was_failed = store->index_failed;
	store->failed_since = false;
	ps_list_init(&list);
	take_queue(store, &list);
	pthread_mutex_unlock(&store->lock);

	struct ps_error err = {0};
	if (rc == 0 && was_failed)
		rc = ps_index_reopen(store->index, &err);
	if (rc == 0)
		rc = ps_deleted_entries_clear(store);
	if (rc == 0)
		rc = write_batch(store, &list);
	if (rc < 0)
		ps_disk_refused(store, rc, PS_BLOCK_SIZE);
	if (rc < 0 && !was_failed) {
		tell_of_refusal(store, rc);
	} else if (rc == 0 && was_failed) {
		if (store->commit.told_of_refusal)
			ps_log_warning("store: %s: the index can be written again", store->dir);
		ps_disk_took(store);
		ps_store_dir_reserve(store->dir_fd, store->reserve_nbytes);
	}

	pthread_mutex_lock(&store->lock);
	return_batch(&list, rc < 0);
	store->commit.running = false;
	store->index_failed = false;
	if (rc < 0 || store->failed_since)
		ps_commit_retry_locked(store);
	pthread_cond_broadcast(&store->changed);
	return rc;
}

int ps_store_commit(struct ps_store *store)
{
	PS_LOCK_SCOPE(&store->lock);

	return commit_locked(store);
}

/* The thread --------------------------------------------------------------------------------------------- */

/* store->lock held. The time of the next batch; UINT64_MAX: none is queued. */
static uint64_t due_ns(const struct ps_store *store)
{
	if (store->index_failed)
		return store->commit.retry_at_ns;
	if (store->commit.ndirty_blocks >= PS_STORE_BATCH_BLOCKS)
		return 0;
	return ps_commit_idle_locked(store)
	               ? UINT64_MAX
	               : store->commit.dirty_since_ns + PS_STORE_COMMIT_MS * PS_NS_PER_MS;
}

static void *commit_thread(void *arg)
{
	struct ps_store *store = arg;

	pthread_mutex_lock(&store->lock);
	while (!store->commit.worker.stopping) {
		uint64_t due = due_ns(store), now = ps_clock_mono_ns();

		if (due == UINT64_MAX)
			pthread_cond_wait(&store->commit.worker.wake, &store->lock);
		else if (now < due)
			ps_cond_wait_until(&store->commit.worker.wake, &store->lock, due);
		else
			(void)commit_locked(store); /* logs errors, and sets the time of the next try */
	}
	pthread_mutex_unlock(&store->lock);
	return NULL;
}

int ps_commit_start(struct ps_store *store)
{
	return ps_worker_start(&store->commit.worker, "store-commit", commit_thread, store);
}

int ps_commit_stop(struct ps_store *store)
{
	ps_worker_stop(&store->commit.worker, &store->lock);
	PS_LOCK_SCOPE(&store->lock);
	int rc = commit_locked(store);
	/* Rows that the index refused are lost with the process: their blocks will be fetched again. */
	while (!ps_list_empty(&store->commit.dirty)) {
		struct ps_object *object =
		        PS_CONTAINER_OF(ps_list_take(&store->commit.dirty), struct ps_object, dirty_link);
		object->dirty = false;
		ps_object_unref_locked(object);
	}
	return rc;
}
