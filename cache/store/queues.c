/* The queues of objects for the threads of the store (rows to write, files to sync, blocks to check,
 * checksums to compare), and the last reference of an object. store->lock is held for all functions. */
#include "store/store_private.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"

#define RETRY_MS 2000 /* after the index refused a batch */

/* The last reference ------------------------------------------------------------------------------------- */

void ps_object_free(struct ps_object *object)
{
	if (object->fd >= 0)
		close(object->fd);
	if (object->direct_fd >= 0)
		close(object->direct_fd);
	for (uint32_t i = 0; i < object->nextents; i++)
		ps_extent_free(object->extents[i]);
	free(object->extents);
	free(object->url);
	pthread_mutex_destroy(&object->lock);
	free(object);
}

void ps_object_unref_locked(struct ps_object *object)
{
	struct ps_store *store = object->store;

	if (--object->refs > 0)
		return;
	if (object->named) {
		struct ps_object **at = &store->named;

		pthread_mutex_unlock(&store->lock);
		/* if this fails, the next start deletes the file */
		(void)ps_datafile_unlink(store->data_fd, &object->id);
		pthread_mutex_lock(&store->lock);
		while (*at != object)
			at = &(*at)->next_named;
		*at = object->next_named;
	}
	uint64_t charge = object->charge;
	if (object->state != PS_OBJECT_EVICTED)
		HASH_DELETE(hh, store->objects, object);
	if (object->entry)
		object->entry->object = NULL;
	pthread_mutex_unlock(&store->lock);
	ps_object_free(object);
	pthread_mutex_lock(&store->lock);
	if (charge > 0) {
		/* The last holder of an evicted file has put it: only now is its room free. */
		store->used_nbytes -= charge;
		store->held_nbytes -= charge;
		pthread_cond_broadcast(&store->changed);
	}
}

/* Rows for the index ------------------------------------------------------------------------------------- */

bool ps_commit_idle_locked(const struct ps_store *store)
{
	return ps_list_empty(&store->commit.dirty) && !store->pins_dirty;
}

/* store->lock held. Call it before rows become dirty. */
static void begin_batch(struct ps_store *store)
{
	if (!ps_commit_idle_locked(store))
		return;
	store->commit.dirty_since_ns = ps_clock_mono_ns();
	pthread_cond_signal(&store->commit.worker.wake);
}

void ps_commit_pins_locked(struct ps_store *store)
{
	begin_batch(store);
	store->pins_dirty = true;
}

void ps_commit_append_locked(struct ps_object *object)
{
	struct ps_store *store = object->store;

	begin_batch(store);
	ps_list_append(&store->commit.dirty, &object->dirty_link);
}

void ps_commit_queue_locked(struct ps_object *object, uint64_t nblocks)
{
	struct ps_store *store = object->store;

	if (object->state != PS_OBJECT_READY)
		return; /* evicted: its rows are deleted */
	store->commit.ndirty_blocks += nblocks;
	if (!object->dirty) {
		object->dirty = true;
		object->refs++;
		/* While a batch has the object, dirty_link belongs to the batch, and return_batch() queues
		 * the object afterwards. */
		if (!object->committing)
			ps_commit_append_locked(object);
	}
	if (store->commit.ndirty_blocks == PS_STORE_BATCH_BLOCKS)
		pthread_cond_signal(&store->commit.worker.wake);
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
	store->commit.retry_at_ns = ps_clock_mono_ns() + RETRY_MS * PS_NS_PER_MS;
	pthread_cond_signal(&store->commit.worker.wake);
}

/* Syncs, checks, checksums ------------------------------------------------------------------------------- */

void ps_sync_unqueue_locked(struct ps_object *object)
{
	if (!object->sync_queued)
		return;
	ps_list_remove(&object->sync_link);
	object->sync_queued = false;
	object->store->sync.nqueued--;
	ps_object_unref_locked(object);
}

void ps_check_queue_locked(struct ps_object *object)
{
	struct ps_store *store = object->store;

	if (!object->unsure || object->state != PS_OBJECT_READY)
		return;
	/* one check is enough: blocks never become unverified while the object is in memory */
	object->unsure = false;
	object->refs++;
	ps_list_append(&store->check.queue, &object->check_link);
	pthread_cond_signal(&store->check.worker.wake);
}

void ps_object_checksum_look(struct ps_object *object)
{
	struct ps_store *store = object->store;

	if (!object->checksum[0] || object->state != PS_OBJECT_READY)
		return;
	if (!ps_object_complete(object)) {
		object->sum_matched = object->sum_warned = false;
		return;
	}
	if (object->sum_policy == PS_CHECKSUMS_OFF || object->sum_warned || object->sum_matched ||
	        object->sum_queued || object->nblocks == 0)
		return;
	/* The checksum thread starts here, since most caches never need it. */
	if (!store->sum.worker.started && !store->sum.stop)
		(void)ps_worker_start(&store->sum.worker, "checksum", store->sum.main, store);
	if (!store->sum.worker.started)
		return;
	object->sum_queued = true;
	object->refs++;
	ps_list_append(&store->sum.queue, &object->sum_link);
	pthread_cond_signal(&store->sum.worker.wake);
}
