#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/store_private.h"

/* Admission of objects to the disk, their eviction, and the descriptor for passthrough. */

/* Admission ---------------------------------------------------------------------------------------------- */

/* store->lock held. True: the admission was decided before; *ret_e is its result. */
static bool admit_known(struct ps_object *object, int *ret_e)
{
	struct ps_store *store = object->store;

	while (object->admitting || object->state == PS_OBJECT_EVICTING)
		pthread_cond_wait(&store->changed, &store->lock);
	if (object->after_deleted && !ps_deleted_entry_find(store, &object->id))
		object->after_deleted = object->no_disk = false;
	*ret_e = object->admitted ? 0 : -ENOSPC;
	return object->admitted || object->state == PS_OBJECT_EVICTED || object->no_disk ||
	       store->index_failed || ps_clock_mono_ns() < object->refused_until_ns;
}

/* Makes the entry of an object cached by extents, without room: its blocks take their room when they are
 * written. */
static int make_entry_by_extent(struct ps_object *object)
{
	struct ps_store *store = object->store;

	PS_LOCK_SCOPE(&store->lock);
	if (object->entry)
		return 0;
	object->entry = ps_quota_add_by_extent(store, &object->id, object->nextents);
	if (!object->entry)
		return -ENOMEM;
	object->entry->object = object;
	object->entry->pinned = ps_pin_holds(object);
	return 0;
}

bool ps_object_is_reserved(struct ps_object *object)
{
	return !object->by_extent;
}

bool ps_object_fits(struct ps_object *object)
{
	return !object->by_extent || object->remote.size <= ps_store_data_limit(object->store);
}

/* Logs why the data file could not be made. Rate-limited: while there are no descriptors or no room, the
 * open of every shard fails here. */
static void tell_of_no_file(struct ps_object *object, int e)
{
	unsigned others;

	if (!ps_log_rate_pass(&object->store->no_file_rate, &others))
		return;
	ps_log_error(
	        "store: %s: the data file cannot be created: %s; the data is streamed without being cached",
	        object->url, strerror(-e));
	if (others)
		ps_log_error("store: %s: %u more such errors in the last %d s", object->store->dir, others,
		        PS_LOG_RATE_S);
}

int ps_object_admit(struct ps_object *object)
{
	struct ps_store *store = object->store;
	int fd = -1, direct_fd = -1, e;

	if (object->admitted || object->nblocks == 0)
		return 0;
	pthread_mutex_lock(&store->lock);
	bool known = admit_known(object, &e);
	if (!known)
		object->admitting = true;
	pthread_mutex_unlock(&store->lock);
	if (known)
		return e;

	e = object->by_extent ? make_entry_by_extent(object) : ps_room_take(object);
	bool took = e == 0;
	if (took && object->fd < 0)
		e = ps_datafile_create(store->data_fd, &object->id, object->remote.size, &fd);
	if (took && e < 0) {
		store->counters.write_errors++;
		ps_disk_refused(store, e, PS_BLOCK_SIZE);
		if (!object->failed) /* only one thread at a time admits an object */
			tell_of_no_file(object, e);
	}

	if (fd >= 0)
		ps_datafile_read_ahead(fd, false);
	/* An object of unknown size is decoded because a reader waits for the size, and that reader reads
	 * the object next: so its bytes are written through the page cache. */
	if (took && e == 0 && object->direct_fd < 0 && object->remote.size != PS_OBJECT_UNSIZED_NBYTES)
		direct_fd = ps_datafile_open_direct(store->data_fd, &object->id);

	PS_LOCK_SCOPE(&store->lock);
	if (fd >= 0)
		object->fd = fd;
	if (direct_fd >= 0)
		object->direct_fd = direct_fd;
	if (took && e < 0) {
		object->failed = true;
		store->unwritten -= atomic_exchange(&object->unwritten, 0);
		store->used_nbytes -= ps_quota_nbytes(store, object->entry);
		ps_quota_remove(store, object->entry);
		object->entry = NULL;
	}
	object->admitting = false;
	object->admitted = e == 0;
	if (e < 0)
		object->refused_until_ns = ps_clock_mono_ns() + PS_STORE_REFUSED_MS * PS_NS_PER_MS;
	pthread_cond_broadcast(&store->changed);
	return e == 0 ? 0 : -ENOSPC;
}

bool ps_object_gone(struct ps_object *object)
{
	PS_LOCK_SCOPE(&object->store->lock);
	return object->state == PS_OBJECT_EVICTED;
}

static int evict_whole(struct ps_object *object, bool retire, uint64_t *ret_nbytes)
{
	struct ps_store *store = object->store;
	struct ps_leaving *leaving = NULL;
	uint64_t nbytes = 0;
	int rc = 0;

	pthread_mutex_lock(&store->lock);
	while (object->admitting || object->state == PS_OBJECT_EVICTING ||
	        (object->entry && object->entry->nleaving > 0))
		pthread_cond_wait(&store->changed, &store->lock);
	if (object->state == PS_OBJECT_READY && object->entry) {
		nbytes = ps_quota_nbytes(store, object->entry);
		leaving = ps_leaving_begin(store, object->entry);
		if (!leaving)
			rc = -ENOMEM;
	} else if (object->state == PS_OBJECT_READY && retire) {
		/* An object that has neither file nor row is forgotten, so that the next get makes a new
		 * one. */
		object->state = PS_OBJECT_EVICTED;
		object->admitted = false;
		HASH_DELETE(hh, store->objects, object);
		ps_commit_unqueue_locked(object);
	}
	if (leaving) {
		store->counters.evicted_objects++;
		store->counters.evicted_bytes += nbytes;
	}
	pthread_mutex_unlock(&store->lock);
	if (leaving)
		ps_leaving_finish(store, leaving);
	if (rc == 0 && ret_nbytes)
		*ret_nbytes = nbytes;
	return rc;
}

int ps_object_evict(struct ps_object *object, uint64_t *ret_nbytes)
{
	uint64_t nbytes = 0;

	if (!object->by_extent)
		return evict_whole(object, false, ret_nbytes);
	/* Its extents are evicted, and the object stays: later reads of it are cached again. */
	int rc = ps_extents_evict(object, &nbytes);
	if (rc == 0 && ret_nbytes)
		*ret_nbytes = nbytes;
	return rc;
}

int ps_object_retire(struct ps_object *object)
{
	return evict_whole(object, true, NULL);
}

/* Passing through ---------------------------------------------------------------------------------------- */

/* Makes a file that is cached by extents count as a whole one. -EBUSY: impossible now. */
static int make_whole(struct ps_object *object)
{
	struct ps_store *store = object->store;

	PS_LOCK_SCOPE(&store->lock);
	struct ps_entry *entry = object->state == PS_OBJECT_READY ? object->entry : NULL;
	if (!object->by_extent)
		return 0;
	if (!entry || !entry->pinned || entry->nleaving > 0 || !ps_object_complete(object))
		return -EBUSY;
	int rc = ps_quota_make_whole(store, entry);
	if (rc == 0)
		object->by_extent = false;
	return rc;
}

/* Clears by_extent in the object's row, so that no hole is punched into the file after a restart. */
static int forget_by_extent(struct ps_object *object)
{
	struct ps_store *store = object->store;
	{
		PS_LOCK_SCOPE(&store->lock);
		if (!object->row_by_extent)
			return 0;
		ps_commit_queue_locked(object, 0);
	}
	int rc = ps_store_commit(store);
	PS_LOCK_SCOPE(&store->lock);
	if (rc == 0)
		object->row_by_extent = false;
	return rc;
}

int ps_object_pass_fd(struct ps_object *object)
{
	enum ps_sum sum = ps_object_sum(object);

	if (sum == PS_SUM_PENDING || sum == PS_SUM_CORRUPT)
		return -1;
	if (!ps_object_complete(object) || (object->by_extent && make_whole(object) < 0) ||
	        forget_by_extent(object) < 0)
		return -1;
	PS_LOCK_SCOPE(&object->store->lock);
	if (object->state != PS_OBJECT_READY)
		return -1;
	object->passed = true;
	return object->fd;
}

/* Size of an unsized object ------------------------------------------------------------------------------ */

/* The size of a file that was written before its size was known. */

#define WAIT_TICK_NS (20 * PS_NS_PER_MS)
#define WAIT_MAX_NS (20 * PS_NS_PER_S) /* verify and evict hold each object for a while */

/* Waits until the entry has neither an object in memory nor an extent that is being evicted, and takes it:
 * no thread may load, evict or convert the object until let_go(). */
static struct ps_entry *seize(struct ps_store *store, const struct ps_id *id, bool *ret_pinned)
{
	uint64_t until_ns = ps_clock_mono_ns() + WAIT_MAX_NS;
	struct ps_entry *entry;

	PS_LOCK_SCOPE(&store->lock);
	while ((entry = ps_quota_find(store, id)) && (entry->object || entry->nleaving > 0)) {
		uint64_t wake = ps_clock_mono_ns() + WAIT_TICK_NS;

		/* A queued sync would keep the object in memory. The sync can be dropped, because the next
		 * writes queue a sync of the whole file. */
		if (entry->object && entry->object->sync_queued && entry->object->users == 0) {
			struct ps_object *object = entry->object;

			object->refs++;
			ps_sync_unqueue_locked(object);
			ps_object_unref_locked(object);
			continue;
		}
		if (wake > until_ns)
			return NULL;
		ps_cond_wait_until(&store->changed, &store->lock, wake);
	}
	if (!entry)
		return NULL;
	*ret_pinned = entry->pinned;
	entry->pinned = true;
	entry->nleaving++;
	ps_quota_update_busy(store, entry);
	return entry;
}

static void let_go(struct ps_store *store, struct ps_entry *entry, bool pinned, uint64_t size, bool done)
{
	PS_LOCK_SCOPE(&store->lock);
	if (done && entry->charges && !ps_extents_apply(store, size) && ps_quota_make_whole(store, entry) < 0)
		ps_log_debug("store: a file stays cached by extents: out of memory");
	if (done) {
		entry->nextents = ps_nextents_of_size(size);
		entry->nrows = PS_MIN(entry->nrows, entry->nextents);
	}
	entry->nleaving--;
	entry->pinned = pinned;
	ps_quota_update_busy(store, entry);
	pthread_cond_broadcast(&store->changed);
}

static int cut(struct ps_store *store, const struct ps_id *id, uint64_t size)
{
	struct ps_object_row row;
	struct stat st;
	bool writable;
	int fd = -1;
	int rc = ps_index_get_object(store->index, id, &row);

	if (rc < 0)
		return rc;
	if (row.remote.size == size) {
		ps_object_row_fini(&row);
		return 0;
	}
	rc = ps_datafile_open(store->data_fd, id, &fd, &writable);
	/* After a kill between here and the commit, the next use drops the file, because its size is not
	 * the row's. */
	if (rc == 0 && (ftruncate(fd, (off_t)size) < 0 || fstat(fd, &st) < 0))
		rc = -errno;
	if (fd >= 0)
		close(fd);
	if (rc == 0) {
		struct ps_index_batch *batch = ps_index_batch_new();

		row.remote.size = size;
		row.data_mtime_ns = ps_datafile_mtime_ns(&st);
		row.data_ctime_ns = ps_datafile_ctime_ns(&st);
		row.allocated_nbytes = (uint64_t)st.st_blocks * 512;
		row.by_extent = row.by_extent && ps_extents_apply(store, size);
		ps_index_batch_put_object(batch, &row);
		rc = ps_index_batch_commit(store->index, batch);
	}
	ps_object_row_fini(&row);
	return rc;
}

int ps_store_set_size(struct ps_store *store, const struct ps_id *id, uint64_t size)
{
	bool pinned = false;
	/* writes the rows of the written blocks, after which no queue of rows holds the object */
	int rc = ps_store_commit(store);

	if (rc < 0)
		return rc;
	struct ps_entry *entry = seize(store, id, &pinned);
	if (!entry)
		return -EBUSY;
	rc = cut(store, id, size);
	let_go(store, entry, pinned, size, rc == 0);
	return rc;
}
