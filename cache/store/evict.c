/* Evicts the objects and extents that the eviction policy chooses (policy/eviction_policy.c). */
#include "store/store_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "store/store.h"

/* Disk state --------------------------------------------------------------------------------------------- */

void ps_disk_refused(struct ps_store *store, int e, uint64_t wanted_nbytes)
{
	atomic_store(&store->disk.wanted_nbytes, wanted_nbytes);
	if (atomic_exchange(&store->disk.errnum, -e) == 0)
		atomic_store(&store->disk.refused_s, ps_clock_real_s());
}

void ps_disk_took(struct ps_store *store)
{
	if (atomic_load(&store->disk.errnum))
		atomic_store(&store->disk.errnum, 0);
}

uint64_t ps_disk_room(const struct ps_store *store)
{
	struct statvfs st;

	if (fstatvfs(store->data_fd, &st) < 0)
		return UINT64_MAX;
	uint64_t avail = (uint64_t)st.f_bavail * st.f_frsize;
	return avail > store->min_free_nbytes ? avail - store->min_free_nbytes : 0;
}

int ps_disk_error(struct ps_store *store, int64_t *ret_since_s)
{
	int errnum = atomic_load(&store->disk.errnum);
	uint64_t room = errnum == ENOSPC && !atomic_load(&store->index_failed) ? ps_disk_room(store) : 0;

	/* Perhaps no write has tried the disk since the refusal, and the disk has room by now. */
	if (room > 0 && room < UINT64_MAX && room >= atomic_load(&store->disk.wanted_nbytes)) {
		ps_disk_took(store);
		errnum = 0;
	}
	*ret_since_s = errnum ? atomic_load(&store->disk.refused_s) : 0;
	return errnum;
}

/* The folder --------------------------------------------------------------------------------------------- */

/* Counts the index's bytes in the quota, and evicts data for them. index_lock held. Also evicts objects in
 * use, because nothing can be cached without an index. */
static int count_index(struct ps_store *store, uint64_t nbytes, uint64_t allocated_nbytes)
{
	const struct ps_wish nothing = {.pinned = true};
	struct ps_room room = {0};
	int rc = -EAGAIN;

	while (rc == -EAGAIN) {
		ps_room_look(store, &room);
		PS_LOCK_SCOPE(&store->lock);
		store->room.index_nbytes = nbytes;
		store->room.allocated_nbytes = allocated_nbytes;
		rc = ps_room_try(store, &room, &nothing);
		/* If the disk is full but the quota is not, this is no error: the index meets the error
		 * itself when it writes. */
		if (rc == -ENOSPC && store->used_nbytes + nbytes <= store->limit_nbytes)
			rc = 0;
	}
	return rc < 0 ? -EDQUOT : 0;
}

/* index_lock held. */
static int look(struct ps_store *store, size_t nbytes)
{
	uint64_t sorted, allocated;

	allocated = ps_store_dir_measure(store->dir_fd, store->data_fd, store->reserve_nbytes, &sorted);
	int rc =
	        count_index(store, allocated + ps_index_peak_nbytes(store->index, sorted, nbytes), allocated);
	atomic_store(&store->room.slack_nbytes, rc == 0 ? ps_index_slack_nbytes(store->index) : 0);
	return rc;
}

int ps_folder_look(struct ps_store *store)
{
	if (!store->counts_folder)
		return 0;
	PS_LOCK_SCOPE(&store->room.lock);
	return look(store, 0);
}

int ps_folder_room(void *arg, size_t nbytes)
{
	struct ps_store *store = arg;
	uint64_t slack = atomic_load(&store->room.slack_nbytes);

	if (!store->counts_folder)
		return 0;
	while (slack >= nbytes)
		if (atomic_compare_exchange_weak(&store->room.slack_nbytes, &slack, slack - nbytes))
			return 0;
	PS_LOCK_SCOPE(&store->room.lock);
	return look(store, nbytes);
}

uint64_t ps_store_reachable(struct ps_store *store)
{
	struct ps_room room = {0};

	ps_room_look(store, &room);
	PS_LOCK_SCOPE(&store->lock);
	uint64_t there = store->used_nbytes - PS_MIN(store->used_nbytes, atomic_load(&store->unwritten)) +
	                 store->room.allocated_nbytes;
	return room.disk > store->limit_nbytes ? store->limit_nbytes
	                                       : PS_MIN(store->limit_nbytes, there + room.disk);
}

/* Eviction of extents ------------------------------------------------------------------------------------ */

/* Begins the eviction of an extent. Preconditions: the extent has an item and is not leaving, and its object
 * is READY or not in memory. store->lock held. NULL: out of memory. The caller passes the result, or a list
 * of such results, to extent_out_finish(). */
static struct ps_extent_out *extent_out_begin(struct ps_store *store, struct ps_entry *entry, uint32_t extent)
{
	struct ps_extent_out *out = calloc(1, sizeof(*out));
	struct ps_policy_item *item = ps_quota_extent(store, entry, extent);
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

static int punch(struct ps_store *store, const struct ps_extent_out *out)
{
	ps_autofd int own = -1;
	bool writable = true;
	int fd = out->object ? out->object->fd : -1;

	if (fd < 0) {
		int rc = ps_datafile_open(store->data_fd, &out->entry->id, &own, &writable);
		if (rc < 0)
			return rc == -ENOENT ? 0 : rc;
		fd = own;
	}
	/* Holes must not be read ahead: see ps_datafile_read_ahead(). */
	ps_datafile_read_ahead(fd, false);
	return ps_datafile_punch(fd, out->extent * PS_EXTENT_NBYTES, PS_EXTENT_NBYTES);
}

/* Updates the row of an object that is not in memory: its present blocks, and the file's times. An outdated
 * row only makes the next load check the other blocks. */
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
	ps_index_batch_unasked(batch); /* this is a part of making room */
	if (ps_index_batch_commit(store->index, batch) < 0)
		ps_log_debug("evict: the row of an object is older than its file");
}

/* Clears the presence of the evicted blocks in memory, too. */
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
	struct ps_object *object = out->object;
	struct ps_extent *extent = object ? object->extents[out->extent] : NULL;
	struct ps_index_batch *batch = ps_index_batch_new();

	/* Waits until no thread reads or writes the extent, and until no batch under way has its row: such a
	 * batch would write the row again. */
	if (object) {
		PS_LOCK_SCOPE(&store->lock);
		while (object->committing || extent->nholds > 0)
			pthread_cond_wait(&store->changed, &store->lock);
		PS_LOCK_SCOPE(&object->lock);
		extent->dirty = false;
	}
	ps_index_batch_del_extent(batch, &out->entry->id, out->extent);
	int rc = ps_index_batch_commit(store->index, batch);
	if (rc < 0)
		return rc;
	if (object)
		forget_blocks(object, extent, out->extent);
	out->done = true;
	rc = punch(store, out);
	if (rc == 0 && !object)
		put_row_after(store, out);
	return rc;
}

/* store->lock held. */
static void settle(struct ps_store *store, struct ps_extent_out *out, int e)
{
	struct ps_object *object = out->object;
	struct ps_extent *extent = object ? object->extents[out->extent] : NULL;
	struct ps_policy_item *item = ps_quota_extent(store, out->entry, out->extent);

	store->leaving_nbytes -= out->nbytes;
	out->entry->nleaving--;
	store->places[out->entry->charges[out->extent].slot].leaving = false;
	item->busy = out->entry->pinned;
	if (e == 0)
		ps_quota_extent_drop(store, out->entry, out->extent);
	else if (!out->done)
		ps_commit_retry_locked(store);
	if (extent && !out->done)
		/* The extent's row still exists, and may lack blocks that are stored: it is written
		 * again. */
		ps_object_dirty_extent(object, out->extent);
	if (extent)
		extent->leaving = false;
	if (object)
		ps_commit_queue_locked(object, 0);
}

/* Ends the evictions of these extents: waits for holders, deletes the rows, punches holes into the files,
 * and gives the room back. An extent whose row cannot be deleted stays. Without store->lock. */
static void extent_out_finish(struct ps_store *store, struct ps_extent_out *list)
{
	while (list) {
		struct ps_extent_out *out = list;
		struct ps_entry *entry = out->entry;
		struct ps_leaving *last = NULL;
		int rc = out_one(store, out);

		if (rc < 0)
			ps_log_error("evict: %s: extent %u of %s: %s", store->dir, out->extent,
			        out->object ? out->object->url : "an object that is not open", strerror(-rc));
		pthread_mutex_lock(&store->lock);
		settle(store, out, rc);
		/* If the entry has no extents left and its object is not open, its row and its file are
		 * deleted. This begins before our reference of the object is put, which drops the lock: after
		 * that another thread may free the entry. */
		if (entry->ncharged == 0 && entry->nleaving == 0 &&
		        (!entry->object ||
		                (entry->object->users == 0 && entry->object->state == PS_OBJECT_READY)))
			last = ps_leaving_begin(store, entry);
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
	int rc = 0;

	pthread_mutex_lock(&store->lock);
	struct ps_entry *entry = object->state == PS_OBJECT_READY ? object->entry : NULL;
	for (uint32_t i = 0; entry && entry->charges && rc == 0 && i < entry->nextents; i++) {
		uint32_t slot = entry->charges[i].slot;
		if (slot == PS_NO_SLOT || store->places[slot].leaving)
			continue;
		struct ps_extent_out *out = extent_out_begin(store, entry, i);
		rc = out ? 0 : -ENOMEM;
		if (!out)
			continue;
		nbytes += out->nbytes;
		out->next = list;
		list = out;
		store->counters.evicted_extents++;
	}
	store->counters.evicted_bytes += nbytes;
	pthread_mutex_unlock(&store->lock);
	extent_out_finish(store, list);
	*ret_nbytes = nbytes;
	return rc;
}

/* Eviction of entries ------------------------------------------------------------------------------------ */

struct ps_leaving *ps_leaving_begin(struct ps_store *store, struct ps_entry *entry)
{
	struct ps_leaving *leaving = calloc(1, sizeof(*leaving));

	if (!leaving)
		return NULL;
	leaving->id = entry->id;
	leaving->nrows = entry->nrows;
	leaving->nbytes = ps_quota_nbytes(store, entry);
	HASH_ADD(hh, store->leaving, id, sizeof(leaving->id), leaving);
	if (!leaving->hh.tbl) {
		free(leaving);
		return NULL;
	}
	if (entry->object) {
		leaving->object = entry->object;
		leaving->object->refs++;
		leaving->object->state = PS_OBJECT_EVICTING;
		leaving->object->admitted = false;
		store->unwritten -= atomic_exchange(&leaving->object->unwritten, 0);
		leaving->object->entry = NULL;
	}
	store->leaving_nbytes += leaving->nbytes;
	ps_quota_remove(store, entry);
	return leaving;
}

static void leave(struct ps_store *store, struct ps_leaving *leaving)
{
	struct ps_object *object = leaving->object;
	uint64_t nbytes = leaving->nbytes;
	bool named = leaving->named;

	store->leaving_nbytes -= nbytes;
	HASH_DELETE(hh, store->leaving, leaving);
	if (leaving->rows_left) {
		leaving->next = store->deleted_entries;
		store->deleted_entries = leaving;
		ps_commit_retry_locked(store);
	} else {
		free(leaving);
	}
	if (object) {
		object->state = PS_OBJECT_EVICTED;
		HASH_DELETE(hh, store->objects, object);
		object->named = named;
		if (named) {
			object->next_named = store->named;
			store->named = object;
		}
		object->charge = nbytes;
		store->held_nbytes += nbytes;
		ps_commit_unqueue_locked(object);
		ps_sync_unqueue_locked(object);
		/* used_nbytes is reduced when the object is freed. This call may drop the lock, and a thread
		 * that gets the same id meanwhile must find the deleted entry. */
		ps_object_unref_locked(object);
	} else {
		store->used_nbytes -= nbytes;
	}
}

void ps_leaving_finish(struct ps_store *store, struct ps_leaving *list)
{
	/* Commits under way of these objects would write deleted rows again. */
	pthread_mutex_lock(&store->lock);
	for (const struct ps_leaving *l = list; l; l = l->next)
		while (l->object && l->object->committing)
			pthread_cond_wait(&store->changed, &store->lock);
	pthread_mutex_unlock(&store->lock);
	/* Rows are deleted before files. The next start deletes a file without a row. A row without a file
	 * would be worse: once the file is created again, the row would claim blocks that are not there. */
	struct ps_index_batch *batch = ps_index_batch_new();
	for (const struct ps_leaving *l = list; l; l = l->next)
		ps_index_batch_del_object(batch, &l->id, l->nrows);
	int rc = ps_index_batch_commit(store->index, batch);
	for (struct ps_leaving *l = list; l; l = l->next) {
		l->rows_left = rc < 0;
		/* The file's last holder must unlink it if unlinking it now could deadlock. An unlink takes
		 * the file's lock. A read by the kernel holds that lock while it faults in its destination
		 * pages, and these may belong to a mapped file that this process serves. */
		pthread_mutex_lock(&store->lock);
		l->named = l->object && l->object->passed && l->object->users > 0;
		pthread_mutex_unlock(&store->lock);
		int err = l->named ? 0 : ps_datafile_unlink(store->data_fd, &l->id);
		if (err < 0) {
			char hex[PS_ID_HEX_LEN + 1];
			ps_id_hex(&l->id, hex);
			ps_log_error("unlink: %s/data/%.2s/%s: %s", store->dir, hex, hex, strerror(-err));
		}
	}
	PS_LOCK_SCOPE(&store->lock);
	while (list) {
		struct ps_leaving *next = list->next;
		leave(store, list);
		list = next;
	}
	pthread_cond_broadcast(&store->changed);
}

bool ps_deleted_entry_find(struct ps_store *store, const struct ps_id *id)
{
	for (const struct ps_leaving *deleted = store->deleted_entries; deleted; deleted = deleted->next)
		if (ps_id_cmp(&deleted->id, id) == 0)
			return true;
	for (const struct ps_object *named = store->named; named; named = named->next_named)
		if (ps_id_cmp(&named->id, id) == 0)
			return true;
	return false;
}

int ps_deleted_entries_clear(struct ps_store *store)
{
	pthread_mutex_lock(&store->lock);
	struct ps_index_batch *batch = store->deleted_entries ? ps_index_batch_new() : NULL;
	bool any = store->deleted_entries;
	for (struct ps_leaving *deleted = store->deleted_entries; deleted; deleted = deleted->next) {
		deleted->in_batch = true;
		ps_index_batch_del_object(batch, &deleted->id, deleted->nrows);
	}
	pthread_mutex_unlock(&store->lock);
	if (!any)
		return 0;
	int rc = ps_index_batch_commit(store->index, batch);
	if (rc < 0)
		return rc;
	PS_LOCK_SCOPE(&store->lock);
	for (struct ps_leaving **p = &store->deleted_entries; *p;) {
		struct ps_leaving *deleted = *p;
		if (deleted->in_batch) {
			*p = deleted->next;
			free(deleted);
		} else {
			p = &deleted->next; /* was added meanwhile: the next batch deletes its rows */
		}
	}
	return 0;
}

/* Room --------------------------------------------------------------------------------------------------- */

/* The evictions that one choice of the policy has begun. */
struct going {
	struct ps_leaving *files;
	struct ps_extent_out *extents;
	uint64_t nbytes;
	bool loading; /* a victim was skipped that can be evicted once its object is loaded */
};

/* Under store->lock. */
static void begin(struct ps_store *store, struct ps_entry *entry, uint32_t extent, struct going *going)
{
	if (entry->charges && entry->object && entry->object->state != PS_OBJECT_READY) {
		going->loading = true;
		return;
	}
	if (entry->charges) {
		struct ps_extent_out *out = extent_out_begin(store, entry, extent);
		if (!out)
			return;
		store->counters.evicted_extents++;
		going->nbytes += out->nbytes;
		out->next = going->extents;
		going->extents = out;
		return;
	}
	struct ps_leaving *leaving = ps_leaving_begin(store, entry);
	if (!leaving)
		return;
	store->counters.evicted_objects++;
	going->nbytes += leaving->nbytes;
	leaving->next = going->files;
	going->files = leaving;
}

/* Under store->lock. Begins the eviction of victims that have need_nbytes together. by_policy: those that
 * the policy gives up for `object` (NULL: none); else the least recently opened ones. False: the items that
 * may be evicted do not suffice. */
static bool choose(struct ps_store *store, bool by_policy, const struct ps_object *object,
        uint64_t need_nbytes, struct going *going)
{
	const struct ps_policy_query query = {.items = store->items,
	        .n = store->nitems,
	        .need_nbytes = need_nbytes,
	        .now_s = ps_clock_real_s(),
	        .id = object ? &object->id : NULL,
	        .dataset = object ? object->dataset : 0};

	*going = (struct going){0};
	size_t n = by_policy ? store->policy_ops->choose(store->policy, &query, store->victims)
	                     : ps_policy_oldest(&query, store->victims);

	/* Slots are turned into places before the first item is removed, because removing an item moves the
	 * last one into its slot. */
	struct ps_place *places = n > 0 ? reallocarray(NULL, n, sizeof(*places)) : NULL;
	if (!places)
		return false;
	for (size_t i = 0; i < n; i++)
		places[i] = store->places[store->victims[i]];
	for (size_t i = 0; i < n; i++)
		begin(store, places[i].entry, places[i].extent, going);
	free(places);
	store->counters.evicted_bytes += going->nbytes;
	return going->files || going->extents || going->loading;
}

/* Without store->lock. */
static void finish(struct ps_store *store, struct going *going)
{
	if (going->extents)
		extent_out_finish(store, going->extents);
	if (going->files)
		ps_leaving_finish(store, going->files);
}

void ps_room_look(struct ps_store *store, struct ps_room *room)
{
	room->disk = ps_disk_room(store);
	/* Some file systems free the blocks of an unlinked file later. So the bytes that this attempt has
	 * freed count as free at once. */
	if (!room->looked)
		room->first_disk = room->disk;
	room->looked = true;
	if (room->disk < UINT64_MAX)
		room->disk = PS_MAX(room->disk, room->first_disk + room->freed);
}

/* Under store->lock. How many bytes the disk lacks for the wish. */
static uint64_t over_disk(const struct ps_store *store, const struct ps_wish *wish, uint64_t disk)
{
	uint64_t unwritten =
	        store->unwritten + wish->unwritten + store->room.index_nbytes - store->room.allocated_nbytes;

	return unwritten > disk ? unwritten - disk : 0;
}

/* Under store->lock. How many bytes must be evicted for the wish. */
static uint64_t shortfall(const struct ps_store *store, const struct ps_wish *wish, uint64_t disk)
{
	uint64_t wanted = store->used_nbytes + store->room.index_nbytes + wish->add;
	uint64_t over_limit = wanted > store->limit_nbytes ? wanted - store->limit_nbytes : 0;

	return PS_MAX(over_limit, over_disk(store, wish, disk));
}

int ps_room_try(struct ps_store *store, struct ps_room *room, const struct ps_wish *wish)
{
	uint64_t need = shortfall(store, wish, room->disk);
	struct going going;

	if (need == 0)
		return 0;
	if (need <= store->leaving_nbytes) {
		/* Other threads are about to give that much back. */
		pthread_cond_wait(&store->changed, &store->lock);
		return -EAGAIN;
	}
	need -= store->leaving_nbytes;
	if (!choose(store, true, wish->object, need, &going) &&
	        !(wish->pinned && choose(store, false, NULL, need, &going))) {
		/* A refusal is recorded if the disk is full, not if only the quota is. */
		if (over_disk(store, wish, room->disk) == shortfall(store, wish, room->disk))
			ps_disk_refused(store, -ENOSPC, store->unwritten + wish->unwritten);
		return -ENOSPC;
	}
	if (!going.files && !going.extents) {
		pthread_cond_wait(&store->changed, &store->lock);
		return -EAGAIN;
	}
	room->freed += going.nbytes;
	pthread_mutex_unlock(&store->lock);
	finish(store, &going);
	pthread_mutex_lock(&store->lock);
	return -EAGAIN;
}

/* Under store->lock. */
static struct ps_wish wish_of(const struct ps_object *object)
{
	uint64_t full = ps_object_full_charge(object);
	uint64_t written = object->npresent * PS_BLOCK_SIZE + object->partial_nbytes;
	uint64_t have = object->entry ? ps_quota_item(object->store, object->entry)->nbytes : 0;
	struct ps_wish wish = {.object = object,
	        .add = full > have ? full - have : 0,
	        .unwritten = full > written ? full - written : 0,
	        .pinned = ps_pin_holds(object)};

	wish.unwritten -= PS_MIN(wish.unwritten, object->unwritten);
	return wish;
}

/* Under store->lock. */
static int reserve(struct ps_object *object, const struct ps_wish *wish)
{
	struct ps_store *store = object->store;

	if (!object->entry) {
		object->entry = ps_quota_add(store, &object->id, object->nextents, wish->add);
		if (!object->entry)
			return -ENOMEM;
		object->entry->object = object;
		object->entry->pinned = wish->pinned;
		struct ps_policy_item *item = ps_quota_item(store, object->entry);
		item->dataset = object->dataset;
		item->opened_s = object->opened_s;
		ps_quota_update_busy(store, object->entry);
	} else {
		ps_quota_charge(
		        store, object->entry, ps_quota_item(store, object->entry)->nbytes + wish->add);
	}
	object->unwritten += wish->unwritten;
	store->unwritten += wish->unwritten;
	return 0;
}

int ps_room_take(struct ps_object *object)
{
	struct ps_store *store = object->store;
	struct ps_room room = {0};
	int rc = -EAGAIN;

	if (ps_object_full_charge(object) > ps_store_data_limit(store))
		return -ENOSPC;
	while (rc == -EAGAIN) {
		ps_room_look(store, &room);
		PS_LOCK_SCOPE(&store->lock);
		struct ps_wish wish = wish_of(object);
		rc = ps_room_try(store, &room, &wish);
		if (rc == 0)
			rc = reserve(object, &wish);
	}
	return rc;
}

void ps_room_settle(struct ps_object *object)
{
	struct ps_store *store = object->store;
	struct stat st;

	if (object->fd < 0 || fstat(object->fd, &st) < 0)
		return;
	pthread_mutex_lock(&store->lock);
	struct ps_leaving *leaving = NULL;
	/* If the object was opened again meanwhile, it stays admitted. */
	if (object->users == 0 && object->state == PS_OBJECT_READY && object->entry) {
		struct ps_entry *entry = object->entry;

		object->admitted = false;
		store->unwritten -= atomic_exchange(&object->unwritten, 0);
		if (object->npresent + object->partial_nbytes == 0 && entry->nleaving == 0)
			/* Nothing was written, so no row will ever name the file. */
			leaving = ps_leaving_begin(store, entry);
		else if (!entry->charges)
			ps_quota_charge(store, entry, (uint64_t)st.st_blocks * 512);
		pthread_cond_broadcast(&store->changed);
	}
	pthread_mutex_unlock(&store->lock);
	if (leaving)
		ps_leaving_finish(store, leaving);
}

/* store->lock held. Lets pinned objects be evicted that nothing else protects, for a limit that was lowered.
 * False: there are none. */
static bool unpin_all(struct ps_store *store)
{
	size_t n = 0;

	for (size_t i = 0; i < store->nitems; i++) {
		const struct ps_entry *entry = store->places[i].entry;
		bool held = !entry->charges && entry->object && entry->object->users > 0;

		if (!store->items[i].busy || !entry->pinned || held || store->places[i].leaving)
			continue;
		store->items[i].busy = false;
		n++;
	}
	if (n > 0)
		ps_log_warning("store: %s: the pinned files do not fit into the cache's limit any more: some "
		               "are evicted",
		        store->dir);
	return n > 0;
}

/* store->lock held. As choose(); if the items do not suffice, takes all that may be evicted. */
static bool choose_most(struct ps_store *store, uint64_t need, struct going *going)
{
	uint64_t most = 0;

	for (size_t i = 0; i < store->nitems; i++)
		most += store->items[i].busy ? 0 : store->items[i].nbytes;
	return most > 0 && choose(store, false, NULL, PS_MIN(need, most), going);
}

void ps_room_trim(struct ps_store *store)
{
	const struct ps_wish nothing = {0};
	bool again = true, unpinned = false;

	while (again) {
		struct going going;

		pthread_mutex_lock(&store->lock);
		uint64_t need = shortfall(store, &nothing, UINT64_MAX);
		again = need > 0 &&
		        (choose(store, true, NULL, need, &going) || choose_most(store, need, &going));
		if (need > 0 && !again && unpin_all(store)) {
			unpinned = true;
			again = choose_most(store, need, &going);
		}
		pthread_mutex_unlock(&store->lock);
		if (again)
			finish(store, &going);
	}
	if (!unpinned)
		return;
	/* Pinned objects that were spared are protected again. */
	PS_LOCK_SCOPE(&store->lock);
	for (const struct ps_entry *entry = store->entries; entry; entry = entry->hh.next)
		ps_quota_update_busy(store, entry);
}
