#include "store/commit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/block.h"
#include "store/datafile.h"
#include "store/disk.h"
#include "store/evict.h"
#include "store/pins.h"
#include "store/store_dir.h"
#include "store/sync.h"

#define BATCH_BLOCKS 512 /* so many new blocks do not wait for the time to pass */
#define RETRY_MS 2000    /* after the index refused a batch */

/* store->lock held. */
static bool nothing_dirty(const struct ps_store *store)
{
	return ps_list_empty(&store->dirty) && !store->pins_dirty;
}

/* store->lock held; something is going to be dirty. */
static void begin_batch(struct ps_store *store)
{
	if (!nothing_dirty(store))
		return;
	store->dirty_since_ns = ps_clock_mono_ns();
	pthread_cond_signal(&store->committer.wake);
}

bool ps_commit_done_locked(const struct ps_store *store)
{
	return nothing_dirty(store) && !store->commit_running;
}

void ps_commit_pins_locked(struct ps_store *store)
{
	begin_batch(store);
	store->pins_dirty = true;
}

static void queue_append(struct ps_object *object)
{
	struct ps_store *store = object->store;

	begin_batch(store);
	ps_list_append(&store->dirty, &object->dirty_link);
}

void ps_commit_queue_locked(struct ps_object *object, uint64_t nblocks)
{
	struct ps_store *store = object->store;

	if (object->state != PS_OBJECT_READY)
		return; /* evicted: its rows are gone for good */
	store->ndirty_blocks += nblocks;
	if (!object->dirty) {
		object->dirty = true;
		object->refs++;
		/* While a batch has it, its link is the batch's: return_batch() puts it here then. */
		if (!object->committing)
			queue_append(object);
	}
	if (store->ndirty_blocks == BATCH_BLOCKS)
		pthread_cond_signal(&store->committer.wake);
}

void ps_commit_unqueue_locked(struct ps_object *object)
{
	if (!object->dirty)
		return;
	ps_list_remove(&object->dirty_link);
	object->dirty = false;
	ps_object_unref_locked(object);
}

void ps_commit_retry_locked(struct ps_store *store)
{
	store->index_failed = true;
	store->retry_at_ns = ps_clock_mono_ns() + RETRY_MS * PS_NS_PER_MS;
	pthread_cond_signal(&store->committer.wake);
}

/* One batch --------------------------------------------------------------------------------------- */

/* Copies what is dirty into the batch. The file's time is taken first: a write after it comes with a batch of
 * its own. */
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
	memcpy(row.learned_etag, object->learned_etag, sizeof row.learned_etag);
	memcpy(row.checksum, object->checksum, sizeof row.checksum);
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
		struct ps_extent_row extent_row = {
		        .present = extent->present, .unverified = extent->unverified, .used_s = extent->used_s};
		memcpy(extent_row.crc, extent->crc, sizeof extent_row.crc);
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

/* After a batch that failed: all of the object is written again, whichever part it was. */
static void dirty_again(struct ps_object *object)
{
	PS_LOCK_SCOPE(&object->lock);

	for (uint32_t i = 0; i < object->nextents; i++)
		if (object->extents[i])
			((struct ps_extent *)object->extents[i])->dirty = true;
	object->dirty_first = 0;
	object->dirty_end = object->nextents;
}

/* store->lock held. Moves the queue to list, without those that were evicted since. */
static void take_queue(struct ps_store *store, struct ps_list *list)
{
	struct ps_list queue;

	ps_list_init(&queue);
	ps_list_splice(&queue, &store->dirty);
	store->ndirty_blocks = 0;
	while (!ps_list_empty(&queue)) {
		struct ps_object *object = PS_CONTAINER_OF(queue.next, struct ps_object, dirty_link);

		ps_list_remove(&object->dirty_link);
		object->dirty = false;
		if (object->state == PS_OBJECT_READY) {
			object->committing = true;
			ps_list_append(list, &object->dirty_link);
		} else {
			ps_object_unref_locked(object);
		}
	}
}

/* store->lock held. Gives the objects of a batch back: to nobody, or to the queue. */
static void return_batch(struct ps_list *list, bool failed)
{
	while (!ps_list_empty(list)) {
		struct ps_object *object = PS_CONTAINER_OF(list->next, struct ps_object, dirty_link);

		ps_list_remove(&object->dirty_link);
		object->committing = false;
		if (!failed)
			ps_sync_queue_locked(object);
		if (object->dirty) {
			queue_append(object); /* with the ref it got when it was queued */
		} else if (failed) {
			ps_commit_queue_locked(object, 0);
		}
		ps_object_unref_locked(object);
	}
}

static int write_batch(struct ps_store *store, struct ps_list *list)
{
	struct ps_index_batch *batch = ps_index_batch_new();

	if (!batch)
		return -ENOMEM;
	for (struct ps_list *l = list->next; l != list; l = l->next)
		collect(PS_CONTAINER_OF(l, struct ps_object, dirty_link), batch);
	ps_pins_collect(store, batch);
	ps_index_batch_unasked(batch); /* ps_folder_look() was */
	int e = ps_index_batch_commit(store->index, batch);
	ps_pins_collected(store, e == 0);
	for (struct ps_list *l = list->next; e < 0 && l != list; l = l->next)
		dirty_again(PS_CONTAINER_OF(l, struct ps_object, dirty_link));
	return e;
}

/* A disk that is nearly full takes data and refuses it by turns. */
static void tell_of_refusal(struct ps_store *store, int e)
{
	unsigned others;

	store->told_of_refusal = ps_log_rate_pass(&store->refusal_rate, &others);
	if (store->told_of_refusal)
		ps_log_error("store: %s: the index takes no more (%s): new data is streamed without caching "
		             "until it does",
		        store->dir, strerror(-e));
}

static void recovered(struct ps_store *store)
{
	if (store->told_of_refusal)
		ps_log_warning("store: %s: the index takes data again", store->dir);
	ps_disk_took(store);
	ps_store_dir_reserve(store->dir_fd, store->reserve_nbytes);
}

/* store->lock held, dropped over the index. Errors leave everything on the queue. */
static int commit_locked(struct ps_store *store)
{
	struct ps_list list;
	bool was_failed;

	while (store->commit_running)
		pthread_cond_wait(&store->changed, &store->lock);
	store->commit_running = true;
	pthread_mutex_unlock(&store->lock);
	int e = ps_folder_look(store);
	pthread_mutex_lock(&store->lock);
	was_failed = store->index_failed;
	store->failed_since = false;
	ps_list_init(&list);
	take_queue(store, &list);
	pthread_mutex_unlock(&store->lock);

	struct ps_error err = {0};
	if (e == 0 && was_failed)
		e = ps_index_reopen(store->index, &err);
	if (e == 0)
		e = ps_tombs_clear(store);
	if (e == 0)
		e = write_batch(store, &list);
	if (e < 0)
		ps_disk_refused(store, e, PS_BLOCK_SIZE);
	if (e < 0 && !was_failed)
		tell_of_refusal(store, e);
	else if (e == 0 && was_failed)
		recovered(store);

	pthread_mutex_lock(&store->lock);
	return_batch(&list, e < 0);
	store->commit_running = false;
	store->index_failed = false;
	if (e < 0 || store->failed_since)
		ps_commit_retry_locked(store);
	pthread_cond_broadcast(&store->changed);
	return e;
}

int ps_store_commit(struct ps_store *store)
{
	PS_LOCK_SCOPE(&store->lock);

	return commit_locked(store);
}

/* The thread ------------------------------------------------------------------------------------- */

/* store->lock held. When the next batch is due; UINT64_MAX: when something comes. */
static uint64_t due_ns(const struct ps_store *store)
{
	if (store->index_failed)
		return store->retry_at_ns;
	if (store->ndirty_blocks >= BATCH_BLOCKS)
		return 0;
	return nothing_dirty(store) ? UINT64_MAX : store->dirty_since_ns + PS_STORE_COMMIT_MS * PS_NS_PER_MS;
}

static void *commit_thread(void *arg)
{
	struct ps_store *store = arg;

	pthread_mutex_lock(&store->lock);
	while (!store->committer.stopping) {
		uint64_t due = due_ns(store), now = ps_clock_mono_ns();

		if (due == UINT64_MAX)
			pthread_cond_wait(&store->committer.wake, &store->lock);
		else if (now < due)
			ps_cond_wait_until(&store->committer.wake, &store->lock, due);
		else
			(void)commit_locked(store); /* has told, and set the time of the next try */
	}
	pthread_mutex_unlock(&store->lock);
	return NULL;
}

int ps_commit_start(struct ps_store *store)
{
	return ps_worker_start(&store->committer, "store-commit", commit_thread, store);
}

int ps_commit_stop(struct ps_store *store)
{
	ps_worker_stop(&store->committer, &store->lock);
	PS_LOCK_SCOPE(&store->lock);
	int e = commit_locked(store);
	/* What the index would not take is lost with the process: blocks to be fetched again. */
	while (!ps_list_empty(&store->dirty)) {
		struct ps_object *object = PS_CONTAINER_OF(store->dirty.next, struct ps_object, dirty_link);
		ps_list_remove(&object->dirty_link);
		object->dirty = false;
		ps_object_unref_locked(object);
	}
	return e;
}
