/* Extents on their way out: see extent.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "store/block.h"
#include "store/commit.h"
#include "store/datafile.h"
#include "store/evict.h"
#include "store/extent.h"

struct ps_extent_out *ps_extent_out_begin(struct ps_store *store, struct ps_entry *entry, uint32_t extent)
{
	struct ps_extent_out *out = calloc(1, sizeof *out);
	struct ps_policy_item *item = ps_table_extent(store, entry, extent);
	struct ps_extent *record =
	        entry->object ? ps_extent_make(entry->object, (uint64_t)extent * PS_EXTENT_BLOCKS) : NULL;

	if (!out || (entry->object && !record)) {
		free(out);
		return NULL;
	}
	out->entry = entry;
	out->extent = extent;
	out->nbytes = item->nbytes;
	out->object = entry->object;
	if (out->object) {
		out->object->refs++;
		record->leaving = true;
	}
	item->busy = true;
	store->places[entry->charges[extent].slot].leaving = true;
	entry->nleaving++;
	store->leaving_nbytes += out->nbytes;
	return out;
}

/* Waits until nobody reads or writes the extent, and no batch is about to put its row back. */
static void wait_for_holders(struct ps_store *store, const struct ps_extent_out *out)
{
	struct ps_object *object = out->object;
	struct ps_extent *extent = object ? object->extents[out->extent] : NULL;

	if (!object)
		return;
	PS_LOCK_SCOPE(&store->lock);
	while (object->committing || extent->nholds > 0)
		pthread_cond_wait(&store->changed, &store->lock);
	PS_LOCK_SCOPE(&object->lock);
	extent->dirty = false;
}

static int punch(struct ps_store *store, const struct ps_extent_out *out)
{
	ps_autofd int own = -1;
	bool writable = true;
	int fd = out->object ? out->object->fd : -1;

	if (fd < 0) {
		int e = ps_datafile_open(store->data_fd, &out->entry->id, &own, &writable);
		if (e < 0)
			return e == -ENOENT ? 0 : e;
		fd = own;
	}
	/* Holes must not be read ahead: see ps_datafile_read_ahead(). */
	ps_datafile_read_ahead(fd, false);
	return ps_datafile_punch(fd, out->extent * PS_EXTENT_NBYTES, PS_EXTENT_NBYTES);
}

/* The row of an object that is not in memory says what it has and when the file was changed last. A row that
 * is behind only makes the next load check the other blocks. */
static void put_row_after(struct ps_store *store, const struct ps_extent_out *out)
{
	const struct ps_charge *c = &out->entry->charges[out->extent];
	uint64_t nblocks = (uint64_t)__builtin_popcountll(c->blocks), partial = 0;
	ps_autofd int fd = -1;
	struct ps_object_row row;
	struct stat st;
	bool writable;

	if (ps_datafile_open(store->data_fd, &out->entry->id, &fd, &writable) < 0 || fstat(fd, &st) < 0 ||
	        ps_index_get_object(store->index, &out->entry->id, &row) < 0)
		return;
	for (unsigned i = 0; i < PS_EXTENT_BLOCKS && c->chunks; i++)
		if (!(c->blocks >> i & 1))
			partial += ps_chunks_disk_nbytes(
			        row.remote.size, (uint64_t)out->extent * PS_EXTENT_BLOCKS + i, c->chunks[i]);
	struct ps_index_batch *batch = ps_index_batch_new();
	row.nblocks_present -= PS_MIN(row.nblocks_present, nblocks);
	row.partial_nbytes -= PS_MIN(row.partial_nbytes, partial);
	row.allocated_nbytes = (uint64_t)st.st_blocks * 512;
	row.data_mtime_ns = ps_datafile_mtime_ns(&st);
	row.data_ctime_ns = ps_datafile_ctime_ns(&st);
	ps_index_batch_put_object(batch, &row);
	ps_object_row_fini(&row);
	ps_index_batch_unasked(batch); /* it comes of making room */
	if (ps_index_batch_commit(store->index, batch) < 0)
		ps_log_debug("evict: the row of an object is behind its file");
}

/* The blocks are gone: nobody looks for them in memory either. */
static void forget_blocks(struct ps_object *object, struct ps_extent *extent, uint32_t number)
{
	uint64_t first = (uint64_t)number * PS_EXTENT_BLOCKS;

	PS_LOCK_SCOPE(&object->lock);
	for (uint64_t b = first; b < PS_MIN(first + PS_EXTENT_BLOCKS, object->nblocks); b++)
		ps_chunks_drop(object, extent, b);
	object->npresent -= (unsigned)__builtin_popcountll(extent->present);
	object->nunverified -= (unsigned)__builtin_popcountll(extent->present & extent->unverified);
	extent->present = 0;
	extent->unverified = 0;
}

static int out_one(struct ps_store *store, struct ps_extent_out *out)
{
	struct ps_extent *extent = out->object ? out->object->extents[out->extent] : NULL;
	struct ps_index_batch *batch = ps_index_batch_new();

	wait_for_holders(store, out);
	ps_index_batch_del_extent(batch, &out->entry->id, out->extent);
	int e = ps_index_batch_commit(store->index, batch);
	if (e < 0)
		return e;
	if (extent)
		forget_blocks(out->object, extent, out->extent);
	out->done = true;
	e = punch(store, out);
	if (e == 0 && !out->object)
		put_row_after(store, out);
	return e;
}

/* store->lock held. */
static void settle(struct ps_store *store, struct ps_extent_out *out, int e)
{
	struct ps_object *object = out->object;
	struct ps_extent *extent = object ? object->extents[out->extent] : NULL;
	struct ps_policy_item *item = ps_table_extent(store, out->entry, out->extent);

	store->leaving_nbytes -= out->nbytes;
	out->entry->nleaving--;
	store->places[out->entry->charges[out->extent].slot].leaving = false;
	item->busy = out->entry->pinned;
	if (e == 0)
		ps_table_extent_drop(store, out->entry, out->extent);
	else if (!out->done)
		ps_commit_retry_locked(store);
	if (extent && !out->done)
		/* Its row is still there; what was not yet in it is written again. */
		ps_object_dirty_extent(object, out->extent);
	if (extent)
		extent->leaving = false;
	if (object)
		ps_commit_queue_locked(object, 0);
}

/* store->lock held. An entry without extents, whose object nobody has: row and file go. */
static struct ps_leaving *last_of(struct ps_store *store, struct ps_entry *entry)
{
	const struct ps_object *object = entry->object;
	bool idle = !object || (object->users == 0 && object->state == PS_OBJECT_READY);

	return idle && entry->ncharged == 0 && entry->nleaving == 0 ? ps_leaving_begin(store, entry) : NULL;
}

void ps_extent_out_finish(struct ps_store *store, struct ps_extent_out *list)
{
	while (list) {
		struct ps_extent_out *out = list;
		int e = out_one(store, out);

		if (e < 0)
			ps_log_error("evict: %s: extent %u of %s: %s", store->dir, out->extent,
			        out->object ? out->object->url : "an object that nobody has open",
			        strerror(-e));
		pthread_mutex_lock(&store->lock);
		settle(store, out, e);
		/* Looked up before our reference of the object goes, since the lock is dropped over that:
		 * from now on nobody else keeps the entry. */
		struct ps_leaving *last = last_of(store, out->entry);
		if (out->object)
			ps_object_unref_locked(out->object);
		pthread_cond_broadcast(&store->changed);
		pthread_mutex_unlock(&store->lock);
		if (last)
			ps_leaving_finish(store, last);
		list = out->next;
		free(out);
	}
}

int ps_extents_evict(struct ps_object *object, uint64_t *ret_nbytes)
{
	struct ps_store *store = object->store;
	struct ps_extent_out *list = NULL;
	uint64_t nbytes = 0;
	int e = 0;

	pthread_mutex_lock(&store->lock);
	struct ps_entry *entry = object->state == PS_OBJECT_READY ? object->entry : NULL;
	for (uint32_t i = 0; entry && entry->charges && e == 0 && i < entry->nextents; i++) {
		uint32_t slot = entry->charges[i].slot;
		if (slot == PS_NO_SLOT || store->places[slot].leaving)
			continue;
		struct ps_extent_out *out = ps_extent_out_begin(store, entry, i);
		e = out ? 0 : -ENOMEM;
		if (!out)
			continue;
		nbytes += out->nbytes;
		out->next = list;
		list = out;
		store->evicted_extents++;
	}
	store->evicted_nbytes += nbytes;
	pthread_mutex_unlock(&store->lock);
	ps_extent_out_finish(store, list);
	*ret_nbytes = nbytes;
	return e;
}
