#include "store/sync.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

void ps_sync_queue_locked(struct ps_object *object)
{
	struct ps_store *store = object->store;

	if (!store->unsynced_since_ns) {
		store->unsynced_since_ns = ps_clock_mono_ns();
		pthread_cond_signal(&store->syncer.wake);
	}
	/* Rows alone need the log only. */
	if (object->sync_queued || !object->unsynced)
		return;
	object->sync_queued = true;
	object->refs++;
	ps_list_append(&store->unsynced, &object->sync_link);
	store->nunsynced++;
}

/* store->lock held. The ref is the caller's from now on. */
static struct ps_object *take_first(struct ps_store *store)
{
	struct ps_object *object = PS_CONTAINER_OF(store->unsynced.next, struct ps_object, sync_link);

	ps_list_remove(&object->sync_link);
	object->sync_queued = false;
	store->nunsynced--;
	return object;
}

void ps_sync_unqueue_locked(struct ps_object *object)
{
	if (!object->sync_queued)
		return;
	ps_list_remove(&object->sync_link);
	object->sync_queued = false;
	object->store->nunsynced--;
	ps_object_unref_locked(object);
}

/* store->lock held, and dropped over the disk. What is queued meanwhile is the next round's. */
static void sync_round(struct ps_store *store)
{
	size_t n = store->nunsynced;
	int e = 0;

	store->unsynced_since_ns = 0;
	store->syncing = true;
	for (; n > 0 && !ps_list_empty(&store->unsynced) && !store->syncer.stopping; n--) {
		struct ps_object *object = take_first(store);

		pthread_mutex_unlock(&store->lock);
		object->unsynced = false;
		if (fdatasync(object->fd) < 0 && e == 0) {
			e = -errno;
			ps_log_warning("sync: %s: %s", object->url, strerror(-e));
		}
		pthread_mutex_lock(&store->lock);
		ps_object_unref_locked(object);
	}
	pthread_mutex_unlock(&store->lock);
	e = ps_index_sync(store->index);
	if (e < 0)
		ps_log_debug("sync: %s: the index: %s", store->dir, strerror(-e));
	pthread_mutex_lock(&store->lock);
	store->syncing = false;
}

bool ps_sync_done_locked(const struct ps_store *store)
{
	return !store->unsynced_since_ns && !store->syncing;
}

static void *sync_thread(void *arg)
{
	struct ps_store *store = arg;

	pthread_mutex_lock(&store->lock);
	while (!store->syncer.stopping) {
		uint64_t due = store->unsynced_since_ns + PS_STORE_SYNC_MS * PS_NS_PER_MS;

		if (!store->unsynced_since_ns)
			pthread_cond_wait(&store->syncer.wake, &store->lock);
		else if (ps_clock_mono_ns() < due)
			ps_cond_wait_until(&store->syncer.wake, &store->lock, due);
		else
			sync_round(store);
	}
	pthread_mutex_unlock(&store->lock);
	return NULL;
}

int ps_sync_start(struct ps_store *store)
{
	return ps_worker_start(&store->syncer, "store-sync", sync_thread, store);
}

void ps_sync_stop(struct ps_store *store)
{
	ps_worker_stop(&store->syncer, &store->lock);
	PS_LOCK_SCOPE(&store->lock);
	while (!ps_list_empty(&store->unsynced))
		ps_object_unref_locked(take_first(store));
}
