/* The size of a file that was written before its size was known. */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/datafile.h"
#include "store/extent.h"
#include "store/store_private.h"
#include "store/sync.h"

#define WAIT_TICK_NS (20 * PS_NS_PER_MS)
#define WAIT_MAX_NS (20 * PS_NS_PER_S) /* for who looks at every object: verify, evict */

/* The entry, of which nothing is in memory and nothing leaves; nobody may load, evict or convert it until
 * let_go(). */
static struct ps_entry *seize(struct ps_store *store, const struct ps_id *id, bool *ret_pinned)
{
	uint64_t until_ns = ps_clock_mono_ns() + WAIT_MAX_NS;
	struct ps_entry *entry;

	PS_LOCK_SCOPE(&store->lock);
	while ((entry = ps_table_find(store, id)) && (entry->object || entry->nleaving > 0)) {
		uint64_t wake = ps_clock_mono_ns() + WAIT_TICK_NS;

		/* The sync that is queued can go: with what is written next, all of the file is synced. */
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
	ps_table_update_busy(store, entry);
	return entry;
}

static void let_go(struct ps_store *store, struct ps_entry *entry, bool pinned, uint64_t size, bool done)
{
	PS_LOCK_SCOPE(&store->lock);
	if (done && entry->charges && !ps_extents_apply(store, size) && ps_table_make_whole(store, entry) < 0)
		ps_log_debug("store: a file stays cached by extents: out of memory");
	if (done) {
		entry->nextents = ps_nextents_of_size(size);
		entry->nrows = PS_MIN(entry->nrows, entry->nextents);
	}
	entry->nleaving--;
	entry->pinned = pinned;
	ps_table_update_busy(store, entry);
	pthread_cond_broadcast(&store->changed);
}

static int cut(struct ps_store *store, const struct ps_id *id, uint64_t size)
{
	struct ps_object_row row;
	struct stat st;
	bool writable;
	int fd = -1;
	int e = ps_index_get_object(store->index, id, &row);

	if (e < 0)
		return e;
	if (row.remote.size == size) {
		ps_object_row_fini(&row);
		return 0;
	}
	e = ps_datafile_open(store->data_fd, id, &fd, &writable);
	/* A kill from here to the commit drops the file at its next use: its size is not what the row says.
	 */
	if (e == 0 && (ftruncate(fd, (off_t)size) < 0 || fstat(fd, &st) < 0))
		e = -errno;
	if (fd >= 0)
		close(fd);
	if (e == 0) {
		struct ps_index_batch *batch = ps_index_batch_new();

		row.remote.size = size;
		row.data_mtime_ns = ps_datafile_mtime_ns(&st);
		row.data_ctime_ns = ps_datafile_ctime_ns(&st);
		row.allocated_nbytes = (uint64_t)st.st_blocks * 512;
		row.by_extent = row.by_extent && ps_extents_apply(store, size);
		ps_index_batch_put_object(batch, &row);
		e = ps_index_batch_commit(store->index, batch);
	}
	ps_object_row_fini(&row);
	return e;
}

int ps_store_set_size(struct ps_store *store, const struct ps_id *id, uint64_t size)
{
	bool pinned = false;
	int e = ps_store_commit(store); /* the rows of what was written; then only we have it */

	if (e < 0)
		return e;
	struct ps_entry *entry = seize(store, id, &pinned);
	if (!entry)
		return -EBUSY;
	e = cut(store, id, size);
	let_go(store, entry, pinned, size, e == 0);
	return e;
}
