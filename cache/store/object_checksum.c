#include "store/store_private.h"

#include <errno.h>
#include <linux/ioprio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

struct ps_refused {
	UT_hash_handle hh;
	struct ps_id id;
	unsigned times;
	uint64_t until_ns;
	struct ps_refusal story;
};

/* Refusals ----------------------------------------------------------------------------------------------- */

static void forget_refused(struct ps_store *store, uint64_t nodes_below)
{
	if (nodes_below != UINT64_MAX) /* every later node would be below UINT64_MAX, too */
		store->sum.forgotten_below = PS_MAX(store->sum.forgotten_below, nodes_below);
}

/* store->lock held. NULL: there is none, or memory ran out: then the object is fetched again without a
 * pause. */
static struct ps_refused *refused_of(struct ps_store *store, const struct ps_id *id, bool make)
{
	struct ps_refused *refused = NULL;

	HASH_FIND(hh, store->sum.refused, id, sizeof(*id), refused);
	if (refused || !make)
		return refused;
	if (HASH_COUNT(store->sum.refused) >= PS_SUM_REFUSED) {
		struct ps_refused *oldest = store->sum.refused;

		forget_refused(store, oldest->story.nodes_below);
		HASH_DELETE(hh, store->sum.refused, oldest);
		free(oldest);
	}
	refused = calloc(1, sizeof(*refused));
	if (!refused)
		return NULL;
	refused->id = *id;
	HASH_ADD(hh, store->sum.refused, id, sizeof(refused->id), refused);
	if (!refused->hh.tbl) {
		free(refused);
		return NULL;
	}
	return refused;
}

bool ps_object_refusal(struct ps_object *object, struct ps_refusal *ret)
{
	struct ps_store *store = object->store;

	PS_LOCK_SCOPE(&store->lock);
	const struct ps_refused *refused = refused_of(store, &object->id, false);
	*ret = refused ? refused->story : (struct ps_refusal){.nodes_below = store->sum.forgotten_below};
	if (!refused)
		return store->sum.forgotten_below > 0;
	ret->now = object->sum_policy == PS_CHECKSUMS_VERIFY && ps_clock_mono_ns() < refused->until_ns;
	return true;
}

/* Comparing ---------------------------------------------------------------------------------------------- */

/* Adds a block, as it is in the file, to the checksum. -EAGAIN: the block is not there any more. */
static int sum_block(struct ps_object *object, uint64_t block, void *buf, struct ps_checksum *sum)
{
	size_t nbytes = ps_object_block_nbytes(object, block);
	struct ps_hold hold;

	int rc = ps_object_hold(object, block * PS_BLOCK_SIZE, nbytes, &hold);
	if (rc < 0)
		return rc;
	if (ps_object_block(object, block) != PS_BLOCK_PRESENT)
		rc = -EAGAIN;
	if (rc == 0)
		rc = ps_datafile_read(object->fd, buf, nbytes, block * PS_BLOCK_SIZE);
	if (rc == 0)
		ps_checksum_update(sum, buf, nbytes);
	ps_object_release(&hold);
	return rc;
}

/* Compares the object with its checksum. 0 or -EBADMSG, with the computed checksum in ret_seen; after other
 * errors the result is not known. */
static int sum_object(struct ps_object *object, const char *expected, char ret_seen[static PS_CHECKSUM_LEN])
{
	ps_autofree void *buf = malloc(PS_BLOCK_SIZE);
	struct ps_checksum sum;

	int rc = buf ? ps_checksum_init(&sum, expected, object->remote.size) : -ENOMEM;
	if (rc < 0)
		return rc;
	for (uint64_t i = 0; rc == 0 && i < object->nblocks; i++) {
		if (object->store->sum.stop)
			rc = -ECANCELED;
		else
			rc = sum_block(object, i, buf, &sum);
	}
	if (rc == 0 && !ps_checksum_final(&sum, ret_seen))
		rc = -EBADMSG;
	ps_checksum_fini(&sum);
	return rc;
}

/* store->lock held. */
static void note_failure(struct ps_object *object, const char *expected, const char *seen)
{
	struct ps_store *store = object->store;

	store->counters.checksum_errors++;
	store->sum.error_s = ps_clock_real_s();
	snprintf(store->sum.error, sizeof(store->sum.error),
	        "%.300s: checksum mismatch: the data have %s, but the origin or manifest gives %s",
	        object->url, seen, expected);
}

/* True if the object's bytes stay although they do not match. */
static bool only_warn(struct ps_object *object, const char *expected, const char *seen)
{
	struct ps_store *store = object->store;
	{
		PS_LOCK_SCOPE(&store->lock);
		if (object->sum_policy == PS_CHECKSUMS_VERIFY)
			return false;
		if (object->sum_policy == PS_CHECKSUMS_OFF || strcmp(object->checksum, expected) != 0 ||
		        object->sum_warned)
			return true;
		object->sum_warned = true;
		note_failure(object, expected, seen);
	}
	ps_log_warning("checksum: %s: mismatch: the data have %s, but the origin or manifest gives %s; kept "
	               "because of --checksums warn",
	        object->url, seen, expected);
	return true;
}

static void refuse(struct ps_object *object, const char *expected, const char *seen)
{
	struct ps_store *store = object->store;
	uint64_t node = 0;

	/* The kernel may have pages of these bytes for all nodes that exist now. A new number separates them
	 * from later nodes. */
	if (ps_index_new_node(store->index, &node) < 0)
		node = UINT64_MAX;
	/* Under the lock: a reader that sees the object corrupt finds the refusal, too. */
	pthread_mutex_lock(&store->lock);
	if (atomic_exchange(&object->corrupt, true)) {
		pthread_mutex_unlock(&store->lock);
		return; /* another thread has done this just now */
	}
	note_failure(object, expected, seen);
	struct ps_refused *refused = refused_of(store, &object->id, true);
	uint64_t ms = refused ? store->sum.retry_ms : 0;
	if (refused) {
		for (unsigned i = 0; i < refused->times && ms < PS_SUM_RETRY_MAX_MS; i++)
			ms *= 2;
		ms = PS_MIN(ms, PS_SUM_RETRY_MAX_MS);
		refused->times++;
		refused->until_ns = ps_clock_mono_ns() + ms * PS_NS_PER_MS;
		refused->story.nodes_below = node;
		snprintf(refused->story.text, sizeof(refused->story.text),
		        "checksum mismatch: the data have %s, but the origin or manifest gives %s; discarded",
		        seen, expected);
	} else {
		forget_refused(store, node);
	}
	pthread_mutex_unlock(&store->lock);
	ps_log_error("checksum: %s: mismatch: the data have %s, but the origin or manifest gives %s; "
	             "discarded, and not fetched again for %llu s",
	        object->url, seen, expected, (unsigned long long)ms / 1000);
	if (ps_object_retire(object) < 0)
		ps_log_error("checksum: %s: cannot be discarded: out of memory", object->url);
}

int ps_object_checksum_check(struct ps_object *object)
{
	struct ps_store *store = object->store;
	char expected[PS_CHECKSUM_LEN], seen[PS_CHECKSUM_LEN];
	{
		PS_LOCK_SCOPE(&store->lock);
		if (!object->checksum[0] || object->sum_matched || !ps_object_complete(object))
			return 0;
		memcpy(expected, object->checksum, sizeof(expected));
	}
	int rc = sum_object(object, expected, seen);
	if (rc == 0) {
		PS_LOCK_SCOPE(&store->lock);
		/* The result does not count if another checksum was given, or a block was evicted, since the
		 * file was read. */
		if (strcmp(object->checksum, expected) == 0 && ps_object_complete(object)) {
			object->sum_matched = true;
			ps_commit_queue_locked(object, 0);
		}
	} else if (rc == -EBADMSG && only_warn(object, expected, seen)) {
		rc = 0;
	} else if (rc == -EBADMSG) {
		refuse(object, expected, seen);
	} else if (rc != -ECANCELED && rc != -EAGAIN) {
		ps_log_warning("checksum: %s: cannot be compared: %s", object->url, strerror(-rc));
	}
	return rc == -EBADMSG ? rc : 0;
}

/* The thread --------------------------------------------------------------------------------------------- */

static void *sum_main(void *arg)
{
	struct ps_store *store = arg;

	/* Lowers this thread's priority: readers and writers of the same disk come first. 0: the calling
	 * thread. The daemon's sandbox refuses any other number. */
	(void)setpriority(PRIO_PROCESS, 0, 10);
	(void)syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_PRIO_VALUE(IOPRIO_CLASS_BE, 7));
	pthread_mutex_lock(&store->lock);
	while (!store->sum.stop) {
		if (ps_list_empty(&store->sum.queue)) {
			pthread_cond_wait(&store->sum.worker.wake, &store->lock);
			continue;
		}
		struct ps_object *object =
		        PS_CONTAINER_OF(ps_list_take(&store->sum.queue), struct ps_object, sum_link);
		object->sum_queued = false;
		pthread_mutex_unlock(&store->lock);
		ps_object_checksum_check(object);
		pthread_mutex_lock(&store->lock);
		ps_object_unref_locked(object);
	}
	pthread_mutex_unlock(&store->lock);
	return NULL;
}

void ps_object_checksum_stop(struct ps_store *store)
{
	pthread_mutex_lock(&store->lock);
	store->sum.stop = true;
	pthread_mutex_unlock(&store->lock);
	ps_worker_stop(&store->sum.worker, &store->lock);
	PS_LOCK_SCOPE(&store->lock);
	while (!ps_list_empty(&store->sum.queue)) {
		struct ps_object *object =
		        PS_CONTAINER_OF(ps_list_take(&store->sum.queue), struct ps_object, sum_link);
		object->sum_queued = false;
		ps_object_unref_locked(object);
	}
}

void ps_object_checksum_free(struct ps_store *store)
{
	struct ps_refused *refused, *next;

	HASH_ITER (hh, store->sum.refused, refused, next) {
		HASH_DELETE(hh, store->sum.refused, refused);
		free(refused);
	}
}

void ps_object_checksum_init(struct ps_store *store)
{
	ps_worker_init(&store->sum.worker);
	ps_list_init(&store->sum.queue);
	store->sum.main = sum_main;
}
