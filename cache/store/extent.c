#include "store/store_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"

#define USE_SAVED_S 60 /* interval at which an extent's use is saved in its row */

/* The chunks of block i that the quota counts. */
static uint16_t charged(const struct ps_charge *charge, unsigned i)
{
	if (charge->blocks >> i & 1)
		return UINT16_MAX;
	return charge->chunks ? charge->chunks[i] : 0;
}

/* store->lock held. Counts chunks that were not yet counted. */
static int charge(struct ps_store *store, struct ps_entry *entry, uint64_t size, uint64_t block, uint16_t set)
{
	uint32_t number = (uint32_t)(block / PS_EXTENT_BLOCKS);
	struct ps_charge *c = &entry->charges[number];
	unsigned i = block % PS_EXTENT_BLOCKS;
	uint64_t nbytes = ps_chunks_disk_nbytes(size, block, set);
	bool whole = (charged(c, i) | set) == ps_chunks_all_of(size, block);

	if (!whole && !c->chunks && !(c->chunks = calloc(PS_EXTENT_BLOCKS, sizeof(*c->chunks))))
		return -ENOMEM;
	struct ps_policy_item *item = ps_quota_extent_make(store, entry, number);
	if (!item)
		return -ENOMEM;
	if (item->nbytes == 0)
		nbytes += PS_EXTENT_MAP_NBYTES;
	item->nbytes += nbytes;
	store->used_nbytes += nbytes;
	if (whole)
		c->blocks |= UINT64_C(1) << i;
	else
		c->chunks[i] |= set;
	return 0;
}

int ps_extent_add(struct ps_store *store, struct ps_entry *entry, const struct ps_object_row *object,
        uint32_t extent, const struct ps_extent_row *row)
{
	uint64_t first = (uint64_t)extent * PS_EXTENT_BLOCKS;
	int rc = 0;

	for (unsigned i = 0; i < PS_EXTENT_BLOCKS && rc == 0; i++) {
		if ((first + i) * PS_BLOCK_SIZE >= object->remote.size)
			break;
		uint16_t all = ps_chunks_all_of(object->remote.size, first + i);
		uint16_t set = row->present >> i & 1 ? all : row->partial >> i & 1 ? row->chunks[i] & all : 0;
		if (set)
			rc = charge(store, entry, object->remote.size, first + i, set);
	}
	struct ps_policy_item *item = ps_quota_extent(store, entry, extent);
	if (item) {
		item->dataset = object->dataset;
		item->opened_s = row->used_s ? row->used_s : object->opened_s;
	}
	return rc;
}

/* Use ---------------------------------------------------------------------------------------------------- */

/* store->lock held. Notes a use of an extent, once a second at most: that is enough for epochs of minutes,
 * and repeated reads do not call the policy. */
static void note_use(struct ps_object *object, uint32_t number, struct ps_extent *extent)
{
	struct ps_store *store = object->store;
	int64_t now_s = ps_clock_real_s();

	if (extent->used_s == now_s)
		return;
	struct ps_entry *entry = object->entry;
	struct ps_policy_item *item = entry && entry->charges ? ps_quota_extent(store, entry, number) : NULL;
	struct ps_id id = object->id;

	ps_policy_part_id(&id, number + 1);
	store->policy_ops->opened(
	        store->policy, object->dataset, item ? &item->id : &id, item ? item->opened_s : 0, now_s);
	/* saved in the object's row; after a restart, the last use of the extents that have none saved */
	object->opened_s = now_s;
	extent->used_s = now_s;
	if (!item)
		return;
	if (now_s - extent->saved_used_s >= USE_SAVED_S && extent->present | (extent->chunks != NULL)) {
		extent->saved_used_s = now_s;
		ps_object_dirty_extent(object, number);
		ps_commit_queue_locked(object, 0);
	}
	item->opened_s = now_s;
	item->dataset = object->dataset;
	item->seq = store->open_seq++;
}

void ps_extent_release(struct ps_object *object, struct ps_extent *extent)
{
	/* Either this thread sees `leaving`, or the evicting thread sees that nholds is 0. For an object
	 * that is cached as a whole the hold has no effect. It is released all the same, because the object
	 * may have been cached by extents when the hold was taken. */
	if (atomic_fetch_sub(&extent->nholds, 1) != 1 || !extent->leaving)
		return;
	PS_LOCK_SCOPE(&object->store->lock);
	pthread_cond_broadcast(&object->store->changed);
}

/* The extents that a range touches. False: it touches more than two, or ends beyond the object. */
static bool find_extents(const struct ps_object *object, uint64_t offset, uint64_t nbytes,
        uint32_t *ret_first, uint32_t *ret_last)
{
	*ret_first = (uint32_t)(offset / PS_EXTENT_NBYTES);
	*ret_last = (uint32_t)((offset + nbytes - 1) / PS_EXTENT_NBYTES);
	return *ret_last < object->nextents &&
	       *ret_last - *ret_first < PS_ARRAY_LEN(((struct ps_hold *)0)->extents);
}

int ps_object_hold(struct ps_object *object, uint64_t offset, uint64_t nbytes, struct ps_hold *ret)
{
	uint32_t first, last;

	*ret = (struct ps_hold){0};
	if (!object->by_extent)
		return 0;
	if (!find_extents(object, offset, nbytes, &first, &last))
		return -EINVAL;
	struct ps_hold hold = {.object = object};
	for (uint32_t i = first; i <= last; i++)
		if (!(hold.extents[i - first] = ps_extent_make(object, (uint64_t)i * PS_EXTENT_BLOCKS)))
			return -ENOMEM;
	PS_LOCK_SCOPE(&object->store->lock);
	for (uint32_t i = first; i <= last; i++) {
		atomic_fetch_add(&hold.extents[i - first]->nholds, 1);
		note_use(object, i, hold.extents[i - first]);
	}
	/* The hold may be the object's last reference. */
	object->refs++;
	object->users++;
	*ret = hold;
	return 0;
}

static void release_extents(struct ps_object *object, const struct ps_hold *hold)
{
	for (size_t i = 0; i < PS_ARRAY_LEN(hold->extents); i++)
		if (hold->extents[i])
			ps_extent_release(object, hold->extents[i]);
}

/* Holds the extents without a lock. False: an extent is not allocated yet, or its use must be noted, both of
 * which need a lock; *hold has the holds taken so far. */
static bool hold_noted(struct ps_object *object, uint32_t first, uint32_t last, struct ps_hold *hold)
{
	int64_t now_s = ps_clock_real_s();

	for (uint32_t i = first; i <= last; i++) {
		struct ps_extent *extent = ps_extent_of(object, (uint64_t)i * PS_EXTENT_BLOCKS);

		if (!extent || extent->used_s != now_s)
			return false;
		/* Either the reader, which looks for its blocks after this, sees `leaving` and finds none,
		 * or the evicting thread sees the hold and waits. */
		atomic_fetch_add(&extent->nholds, 1);
		hold->extents[i - first] = extent;
	}
	return true;
}

int ps_object_hold_borrowed(struct ps_object *object, uint64_t offset, uint64_t nbytes, struct ps_hold *ret)
{
	struct ps_hold hold = {.object = object, .borrowed = true};
	uint32_t first, last;

	*ret = (struct ps_hold){0};
	if (!object->by_extent)
		return 0;
	if (!find_extents(object, offset, nbytes, &first, &last))
		return -EINVAL;
	if (hold_noted(object, first, last, &hold)) {
		*ret = hold;
		return 0;
	}
	release_extents(object, &hold);
	return ps_object_hold(object, offset, nbytes, ret);
}

void ps_object_release(struct ps_hold *hold)
{
	if (!hold->object)
		return;
	release_extents(hold->object, hold);
	if (!hold->borrowed)
		ps_object_put(hold->object);
	*hold = (struct ps_hold){0};
}

/* Room --------------------------------------------------------------------------------------------------- */

/* Waits until the object and its extent can be written. 1: the quota counts the chunks already. 0: room
 * must be made for them. store->lock held, and dropped while waiting. */
static int take_known(struct ps_object *object, struct ps_extent *extent, uint64_t block, uint16_t set)
{
	struct ps_store *store = object->store;

	while (object->state == PS_OBJECT_EVICTING || extent->leaving)
		pthread_cond_wait(&store->changed, &store->lock);
	if (!object->entry || object->no_disk || store->index_failed)
		return -ENOSPC;
	/* The object was converted meanwhile, and now has room as a whole. */
	if (!object->entry->charges)
		return 1;
	const struct ps_charge *c = &object->entry->charges[block / PS_EXTENT_BLOCKS];
	if (!(set & ~charged(c, block % PS_EXTENT_BLOCKS)))
		return 1;
	return ps_clock_mono_ns() < object->refused_until_ns ? -ENOSPC : 0;
}

/* Makes room for chunks of an extent, which must not itself be evicted for that. store->lock held; may be
 * dropped. */
static int make_room(
        struct ps_object *object, uint32_t number, struct ps_room *room, const struct ps_wish *wish)
{
	struct ps_store *store = object->store;
	struct ps_policy_item *own = ps_quota_extent(store, object->entry, number);

	if (own)
		own->busy = true;
	int rc = ps_room_try(store, room, wish);
	struct ps_entry *entry = own ? object->entry : NULL;
	if (entry && !entry->charges)
		ps_quota_update_busy(store, entry);
	/* Of the entry's items only this extent's is updated: nothing has changed for the others, and there
	 * may be very many. */
	else if (entry && (own = ps_quota_extent(store, entry, number)))
		own->busy = entry->pinned || store->places[entry->charges[number].slot].leaving;
	return rc;
}

/* Makes one attempt to take room for the chunks. store->lock held; -EAGAIN if it was dropped. */
static int take_once(struct ps_object *object, struct ps_extent *extent, uint64_t block, uint16_t set,
        struct ps_room *room)
{
	struct ps_store *store = object->store;
	uint32_t number = (uint32_t)(block / PS_EXTENT_BLOCKS);

	int e = take_known(object, extent, block, set);
	if (e != 0)
		return PS_MIN(e, 0);
	note_use(object, number, extent);
	const struct ps_charge *c = &object->entry->charges[number];
	uint16_t news = set & (uint16_t)~charged(c, block % PS_EXTENT_BLOCKS);
	uint64_t nbytes = ps_chunks_disk_nbytes(object->remote.size, block, news) +
	                  (c->slot == PS_NO_SLOT ? PS_EXTENT_MAP_NBYTES : 0);
	const struct ps_wish wish = {
	        .object = object, .add = nbytes, .unwritten = nbytes, .pinned = object->entry->pinned};
	e = make_room(object, number, room, &wish);
	bool first = e == 0 && c->slot == PS_NO_SLOT;
	if (e == 0)
		e = charge(store, object->entry, object->remote.size, block, news);
	if (first && e == 0) {
		struct ps_policy_item *item = ps_quota_extent(store, object->entry, number);
		item->dataset = object->dataset;
		item->opened_s = extent->used_s;
	}
	if (e == -ENOSPC)
		object->refused_until_ns = ps_clock_mono_ns() + PS_STORE_REFUSED_MS * PS_NS_PER_MS;
	return e;
}

int ps_extent_take(struct ps_object *object, uint64_t block, uint16_t chunks, struct ps_extent **ret_extent)
{
	struct ps_store *store = object->store;
	struct ps_extent *extent = ps_extent_make(object, block);
	struct ps_room room = {0};
	int rc = -EAGAIN;

	if (!extent)
		return -ENOMEM;
	*ret_extent = extent;
	if (!object->by_extent) {
		atomic_fetch_add(&extent->nholds, 1);
		return 0;
	}
	while (rc == -EAGAIN) {
		ps_room_look(store, &room);
		PS_LOCK_SCOPE(&store->lock);
		rc = take_once(object, extent, block, chunks, &room);
		if (rc == 0)
			atomic_fetch_add(&extent->nholds, 1);
	}
	return rc;
}

/* Starting ----------------------------------------------------------------------------------------------- */

/* Punches out the blocks and chunks of an extent that the quota does not count. */
static int punch_uncounted(int fd, const struct ps_charge *c, uint64_t offset)
{
	uint64_t absent = ~c->blocks;
	int rc = 0;

	for (unsigned i = 0, n; i < PS_EXTENT_BLOCKS && rc == 0; i += n) {
		n = 1;
		if (!(absent >> i & 1))
			continue;
		uint64_t at = offset + i * PS_BLOCK_SIZE;
		for (unsigned k = 0; charged(c, i) && k < PS_BLOCK_CHUNKS && rc == 0; k++)
			if (!(charged(c, i) >> k & 1))
				rc = ps_datafile_punch(fd, at + k * PS_CHUNK_SIZE, PS_CHUNK_SIZE);
		if (charged(c, i))
			continue;
		while (i + n < PS_EXTENT_BLOCKS && absent >> (i + n) & 1 && !charged(c, i + n))
			n++;
		rc = ps_datafile_punch(fd, at, n * PS_BLOCK_SIZE);
	}
	return rc;
}

int ps_extents_recover(struct ps_store *store, const struct ps_entry *entry)
{
	ps_autofd int fd = -1;
	struct stat st;
	bool writable;

	int rc = ps_datafile_open(store->data_fd, &entry->id, &fd, &writable);
	if (rc < 0 || fstat(fd, &st) < 0)
		return rc < 0 ? rc : -errno;
	if ((uint64_t)st.st_blocks * 512 <= ps_quota_nbytes(store, entry) || !writable)
		return 0;
	for (uint32_t i = 0; rc == 0 && i < entry->nextents; i++)
		rc = punch_uncounted(fd, &entry->charges[i], i * PS_EXTENT_NBYTES);
	return rc;
}
