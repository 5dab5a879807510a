#include "store/evict.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/commit.h"
#include "store/datafile.h"

/* Leaving ---------------------------------------------------------------------------------------- */

struct ps_leaving *ps_leaving_begin(struct ps_store *store, struct ps_entry *entry)
{
	struct ps_leaving *leaving = calloc(1, sizeof *leaving);

	if (!leaving)
		return NULL;
	leaving->id = entry->id;
	leaving->nextents = entry->nextents;
	leaving->nbytes = ps_table_item(store, entry)->nbytes;
	HASH_ADD(hh, store->leaving, id, sizeof leaving->id, leaving);
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
	ps_table_remove(store, entry);
	return leaving;
}

/* The rows of an object that is being committed would be put back by that commit. */
static void wait_for_commit(struct ps_store *store, const struct ps_leaving *list)
{
	PS_LOCK_SCOPE(&store->lock);

	for (; list; list = list->next)
		while (list->object && list->object->committing)
			pthread_cond_wait(&store->changed, &store->lock);
}

static void leave(struct ps_store *store, struct ps_leaving *leaving)
{
	struct ps_object *object = leaving->object;

	bool rows_left = leaving->rows_left;

	store->leaving_nbytes -= leaving->nbytes;
	HASH_DELETE(hh, store->leaving, leaving);
	if (object) {
		object->state = PS_OBJECT_EVICTED;
		HASH_DELETE(hh, store->objects, object);
		object->charge = leaving->nbytes;
		ps_commit_unqueue_locked(object);
		ps_object_unref_locked(object); /* used_nbytes follows when it is freed */
	} else {
		store->used_nbytes -= leaving->nbytes;
	}
	if (rows_left) {
		leaving->next = store->tombs;
		store->tombs = leaving;
		ps_commit_retry_locked(store);
	} else {
		free(leaving);
	}
}

void ps_leaving_finish(struct ps_store *store, struct ps_leaving *list)
{
	wait_for_commit(store, list);
	/* Rows first: a file without a row is rubbish that the next start deletes, but a row whose file is
	 * made anew would vouch for blocks that are not there. */
	struct ps_index_batch *batch = ps_index_batch_new();
	for (const struct ps_leaving *l = list; l; l = l->next)
		ps_index_batch_del_object(batch, &l->id, l->nextents);
	int e = ps_index_batch_commit(store->index, batch);
	for (struct ps_leaving *l = list; l; l = l->next) {
		l->rows_left = e < 0;
		int err = ps_datafile_unlink(store->data_fd, &l->id);
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

bool ps_tomb_find(struct ps_store *store, const struct ps_id *id)
{
	for (const struct ps_leaving *tomb = store->tombs; tomb; tomb = tomb->next)
		if (ps_id_cmp(&tomb->id, id) == 0)
			return true;
	return false;
}

int ps_tombs_clear(struct ps_store *store)
{
	pthread_mutex_lock(&store->lock);
	struct ps_index_batch *batch = store->tombs ? ps_index_batch_new() : NULL;
	bool any = store->tombs;
	for (struct ps_leaving *tomb = store->tombs; tomb; tomb = tomb->next) {
		tomb->in_batch = true;
		ps_index_batch_del_object(batch, &tomb->id, tomb->nextents);
	}
	pthread_mutex_unlock(&store->lock);
	if (!any)
		return 0;
	int e = ps_index_batch_commit(store->index, batch);
	if (e < 0)
		return e;
	PS_LOCK_SCOPE(&store->lock);
	for (struct ps_leaving **p = &store->tombs; *p;) {
		struct ps_leaving *tomb = *p;
		if (tomb->in_batch) {
			*p = tomb->next;
			free(tomb);
		} else {
			p = &tomb->next; /* came since: its own batch next time */
		}
	}
	return 0;
}

/* Room ------------------------------------------------------------------------------------------- */

/* Under store->lock. Victims for need_nbytes, taken out of the table; NULL: what may go does not suffice. */
static struct ps_leaving *choose(
        struct ps_store *store, const struct ps_policy_ops *ops, uint64_t need_nbytes)
{
	struct ps_leaving *list = NULL;
	size_t n = ops->choose(
	        store->policy, store->items, store->nitems, need_nbytes, ps_clock_real_s(), store->victims);

	/* Removing one moves the last item into its slot: turn slots into entries before the first goes. */
	struct ps_entry **entries = n > 0 ? reallocarray(NULL, n, sizeof(struct ps_entry *)) : NULL;
	if (!entries)
		return NULL;
	for (size_t i = 0; i < n; i++)
		entries[i] = store->slots[store->victims[i]];
	for (size_t i = 0; i < n; i++) {
		struct ps_leaving *leaving = ps_leaving_begin(store, entries[i]);
		if (!leaving)
			break;
		store->evicted_objects++;
		store->evicted_nbytes += leaving->nbytes;
		leaving->next = list;
		list = leaving;
	}
	free(entries);
	return list;
}

/* What statvfs leaves above the floor, or UINT64_MAX if it does not tell. */
static uint64_t disk_room(const struct ps_store *store)
{
	struct statvfs st;

	if (fstatvfs(store->data_fd, &st) < 0)
		return UINT64_MAX;
	uint64_t avail = (uint64_t)st.f_bavail * st.f_frsize;
	return avail > store->min_free_nbytes ? avail - store->min_free_nbytes : 0;
}

/* What one admission asks for. */
struct wish {
	uint64_t full;      /* the file's size on disk when all is there */
	uint64_t add;       /* of that, not yet counted by the quota */
	uint64_t unwritten; /* of that, not yet on disk, and not yet in store->unwritten */
};

/* Under store->lock: the bytes that must go before the wish is granted. */
static uint64_t shortfall(const struct ps_store *store, const struct wish *wish, uint64_t disk)
{
	uint64_t wanted = store->used_nbytes + wish->add;
	uint64_t over_limit = wanted > store->limit_nbytes ? wanted - store->limit_nbytes : 0;
	uint64_t unwritten = store->unwritten + wish->unwritten;
	uint64_t over_disk = unwritten > disk ? unwritten - disk : 0;

	return PS_MAX(over_limit, over_disk);
}

/* Under store->lock. */
static struct wish wish_of(const struct ps_object *object)
{
	struct wish wish = {.full = ps_object_full_charge(object)};
	uint64_t have = object->entry ? ps_table_item(object->store, object->entry)->nbytes : 0;
	uint64_t written = object->npresent * PS_BLOCK_SIZE + object->partial_nbytes;

	wish.add = wish.full > have ? wish.full - have : 0;
	wish.unwritten = wish.full > written ? wish.full - written : 0;
	wish.unwritten -= PS_MIN(wish.unwritten, object->unwritten);
	return wish;
}

/* Under store->lock. */
static int reserve(struct ps_object *object, const struct wish *wish)
{
	struct ps_store *store = object->store;

	if (!object->entry) {
		object->entry = ps_table_add(store, &object->id, object->nextents, wish->full);
		if (!object->entry)
			return -ENOMEM;
		object->entry->object = object;
		struct ps_policy_item *item = ps_table_item(store, object->entry);
		item->busy = object->users > 0;
		item->dataset = object->dataset;
		item->opened_s = object->opened_s;
		item->seq = store->open_seq++;
	} else {
		ps_table_charge(
		        store, object->entry, ps_table_item(store, object->entry)->nbytes + wish->add);
	}
	object->unwritten += wish->unwritten;
	store->unwritten += wish->unwritten;
	return 0;
}

int ps_room_take(struct ps_object *object)
{
	struct ps_store *store = object->store;
	uint64_t freed = 0, first_disk = UINT64_MAX;

	if (ps_object_full_charge(object) > store->limit_nbytes)
		return -ENOSPC;
	for (;;) {
		uint64_t disk = disk_room(store);
		/* Some file systems free the blocks of an unlinked file later: what we freed counts at once.
		 */
		if (first_disk == UINT64_MAX)
			first_disk = disk;
		if (disk < UINT64_MAX)
			disk = PS_MAX(disk, first_disk + freed);

		pthread_mutex_lock(&store->lock);
		struct wish wish = wish_of(object);
		uint64_t need = shortfall(store, &wish, disk);
		if (need == 0) {
			int e = reserve(object, &wish);
			pthread_mutex_unlock(&store->lock);
			return e;
		}
		if (need <= store->leaving_nbytes) {
			/* Another thread is about to give back as much. */
			pthread_cond_wait(&store->changed, &store->lock);
			pthread_mutex_unlock(&store->lock);
			continue;
		}
		struct ps_leaving *list = choose(store, store->policy_ops, need - store->leaving_nbytes);
		pthread_mutex_unlock(&store->lock);
		if (!list)
			return -ENOSPC;
		for (const struct ps_leaving *l = list; l; l = l->next)
			freed += l->nbytes;
		ps_leaving_finish(store, list);
	}
}

void ps_room_settle(struct ps_object *object)
{
	struct ps_store *store = object->store;
	struct stat st;

	if (object->fd < 0 || fstat(object->fd, &st) < 0)
		return;
	pthread_mutex_lock(&store->lock);
	struct ps_leaving *leaving = NULL;
	/* Somebody took it again meanwhile: it stays admitted. */
	if (object->users == 0 && object->state == PS_OBJECT_READY && object->entry) {
		object->admitted = false;
		store->unwritten -= atomic_exchange(&object->unwritten, 0);
		if (object->npresent + object->partial_nbytes > 0)
			ps_table_charge(store, object->entry, (uint64_t)st.st_blocks * 512);
		else /* nothing was written: no row will ever name the file */
			leaving = ps_leaving_begin(store, object->entry);
		pthread_cond_broadcast(&store->changed);
	}
	pthread_mutex_unlock(&store->lock);
	if (leaving)
		ps_leaving_finish(store, leaving);
}

void ps_room_trim(struct ps_store *store)
{
	const struct ps_policy_ops *oldest = ps_policy_find("lru");
	struct ps_leaving *list = NULL;
	const struct wish nothing = {0};

	do {
		pthread_mutex_lock(&store->lock);
		uint64_t need = shortfall(store, &nothing, UINT64_MAX);
		list = need > 0 ? choose(store, store->policy_ops, need) : NULL;
		/* The quota is a promise, what is in use only a wish. */
		if (need > 0 && !list)
			list = choose(store, oldest, need);
		pthread_mutex_unlock(&store->lock);
		if (list)
			ps_leaving_finish(store, list);
	} while (list);
}
