#include "store/check.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"

void ps_check_queue_locked(struct ps_object *object)
{
	struct ps_store *store = object->store;

	if (!object->unsure || object->state != PS_OBJECT_READY)
		return;
	object->unsure = false; /* once is enough: nothing becomes unverified later */
	object->refs++;
	ps_list_append(&store->unchecked, &object->check_link);
	pthread_cond_signal(&store->checker.wake);
}

static bool goes_on(struct ps_object *object)
{
	struct ps_store *store = object->store;

	PS_LOCK_SCOPE(&store->lock);
	return !store->checker.stopping && object->state == PS_OBJECT_READY;
}

static void check(struct ps_object *object, void *buf)
{
	uint64_t nchecked = 0, nbad = 0;

	for (uint64_t i = 0; i < object->nblocks; i++) {
		if (ps_object_block(object, i) != PS_BLOCK_UNVERIFIED)
			continue;
		if (!goes_on(object))
			return;
		int e = ps_object_verify_block(object, i, buf);
		nchecked++;
		nbad += e == -EILSEQ;
	}
	if (nbad > 0)
		ps_log_warning("check: %s: of %llu blocks that may have been lost, %llu were; they are "
		               "fetched again",
		        object->url, (unsigned long long)nchecked, (unsigned long long)nbad);
	else
		ps_log_debug("check: %s: %llu blocks are sound", object->url, (unsigned long long)nchecked);
}

static void *check_thread(void *arg)
{
	struct ps_store *store = arg;
	ps_autofree void *buf = NULL;

	pthread_mutex_lock(&store->lock);
	while (!store->checker.stopping) {
		if (ps_list_empty(&store->unchecked)) {
			pthread_cond_wait(&store->checker.wake, &store->lock);
			continue;
		}
		struct ps_object *object =
		        PS_CONTAINER_OF(store->unchecked.next, struct ps_object, check_link);
		ps_list_remove(&object->check_link);
		pthread_mutex_unlock(&store->lock);
		if (!buf)
			buf = malloc(PS_BLOCK_SIZE);
		if (buf) /* else its readers check what they read, and that is all */
			check(object, buf);
		pthread_mutex_lock(&store->lock);
		ps_object_unref_locked(object);
	}
	pthread_mutex_unlock(&store->lock);
	return NULL;
}

int ps_check_start(struct ps_store *store)
{
	return ps_worker_start(&store->checker, "store-check", check_thread, store);
}

void ps_check_stop(struct ps_store *store)
{
	ps_worker_stop(&store->checker, &store->lock);
	PS_LOCK_SCOPE(&store->lock);
	while (!ps_list_empty(&store->unchecked)) {
		struct ps_object *object =
		        PS_CONTAINER_OF(store->unchecked.next, struct ps_object, check_link);
		ps_list_remove(&object->check_link);
		ps_object_unref_locked(object);
	}
}
