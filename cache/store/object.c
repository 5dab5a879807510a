#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/block.h"
#include "store/commit.h"
#include "store/datafile.h"
#include "store/evict.h"
#include "store/extent.h"
#include "store/pin.h"

/* ext4 and XFS map a file with up to 4 extents in the inode; beyond, a 4 KiB block maps 340. */
#define FS_BLOCK UINT64_C(4096)
#define FS_INLINE_EXTENTS 4
#define FS_EXTENTS_A_BLOCK 300

void ps_object_id(const char *url, const struct ps_remote *remote, const char *view, struct ps_id *ret_id)
{
	char size[32], mtime[32];
	bool strong = remote->etag[0] == '"';
	const char *const parts[] = {
	        url, view, strong ? "strong" : "weak", remote->etag, size, strong ? "" : mtime};

	snprintf(size, sizeof size, "%" PRIu64, remote->size);
	snprintf(mtime, sizeof mtime, "%" PRId64, remote->mtime_s);
	ps_id_of_strings(parts, PS_ARRAY_LEN(parts), ret_id);
}

uint64_t ps_object_full_charge(const struct ps_object *object)
{
	uint64_t nbytes = (object->remote.size + FS_BLOCK - 1) / FS_BLOCK * FS_BLOCK;

	if (object->nblocks > FS_INLINE_EXTENTS)
		nbytes += FS_BLOCK * (1 + object->nblocks / FS_EXTENTS_A_BLOCK);
	return nbytes;
}

uint32_t ps_nextents_of_size(uint64_t size)
{
	size = PS_MIN(size, PS_OBJECT_MAX_NBYTES);
	uint64_t nblocks = (size + PS_BLOCK_SIZE - 1) / PS_BLOCK_SIZE;
	return (uint32_t)((nblocks + PS_EXTENT_BLOCKS - 1) / PS_EXTENT_BLOCKS);
}

/* Making and freeing ------------------------------------------------------------------------------ */

static struct ps_object *object_new(
        struct ps_store *store, const char *url, const struct ps_remote *remote, const struct ps_id *id)
{
	struct ps_object *object = calloc(1, sizeof *object);

	if (!object)
		return NULL;
	object->store = store;
	object->id = *id;
	object->remote = *remote;
	object->nblocks = (remote->size + PS_BLOCK_SIZE - 1) / PS_BLOCK_SIZE;
	object->nextents = ps_nextents_of_size(remote->size);
	object->fd = object->direct_fd = -1;
	object->refs = object->users = 1;
	object->created_s = object->opened_s = ps_clock_real_s();
	object->by_extent = ps_extents_apply(store, remote->size);
	ps_list_init(&object->dirty_link);
	pthread_mutex_init(&object->lock, NULL);
	object->url = strdup(url);
	object->extents = calloc(PS_MAX(object->nextents, 1u), sizeof *object->extents);
	if (!object->url || !object->extents) {
		free(object->url);
		free(object->extents);
		pthread_mutex_destroy(&object->lock);
		free(object);
		return NULL;
	}
	return object;
}

static void extent_free(struct ps_extent *extent)
{
	if (extent)
		ps_chunks_free(extent);
	free(extent);
}

static void object_free(struct ps_object *object)
{
	if (object->fd >= 0)
		close(object->fd);
	if (object->direct_fd >= 0)
		close(object->direct_fd);
	for (uint32_t i = 0; i < object->nextents; i++)
		extent_free(object->extents[i]);
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
	uint64_t charge = object->charge;
	if (object->state != PS_OBJECT_EVICTED)
		HASH_DELETE(hh, store->objects, object);
	if (object->entry)
		object->entry->object = NULL;
	pthread_mutex_unlock(&store->lock);
	object_free(object);
	pthread_mutex_lock(&store->lock);
	if (charge > 0) {
		/* The last who held an evicted file: only now is its room free. */
		store->used_nbytes -= charge;
		pthread_cond_broadcast(&store->changed);
	}
}

/* Loading ---------------------------------------------------------------------------------------- */

struct loading {
	struct ps_object *object;
	bool unverified; /* all of it */
	bool no_memory;
};

static int load_extent(void *arg, uint32_t number, const struct ps_extent_row *row)
{
	struct loading *loading = arg;
	struct ps_object *object = loading->object;

	if (number >= object->nextents)
		return 0;
	uint64_t in_extent =
	        PS_MIN(object->nblocks - (uint64_t)number * PS_EXTENT_BLOCKS, (uint64_t)PS_EXTENT_BLOCKS);
	uint64_t mask = in_extent == 64 ? UINT64_MAX : (UINT64_C(1) << in_extent) - 1;
	struct ps_extent *extent = calloc(1, sizeof *extent);
	if (!extent)
		return -ENOMEM;
	extent->present = row->present & mask;
	extent->unverified = (loading->unverified ? row->present | row->partial : row->unverified) & mask;
	memcpy(extent->crc, row->crc, sizeof extent->crc);
	object->npresent += (unsigned)__builtin_popcountll(extent->present);
	object->nunverified += (unsigned)__builtin_popcountll(extent->unverified & extent->present);
	object->extents[number] = extent;
	int e = ps_chunks_load(object, extent, number, row, mask);
	if (e < 0)
		return e;
	if (loading->unverified) {
		/* The next batch writes down the file's time and inode as they are now: with them, that the
		 * blocks are not sure. */
		extent->dirty = true;
		object->dirty_first = 0;
		object->dirty_end = object->nextents;
	}
	return 0;
}

static void forget_blocks(struct ps_object *object)
{
	for (uint32_t i = 0; i < object->nextents; i++) {
		extent_free(object->extents[i]);
		object->extents[i] = NULL;
	}
	object->npresent = object->nunverified = object->partial_nbytes = 0;
}

/* What the file says to the row. 0: the blocks may be used; -EUCLEAN: they must go. */
static int compare_file(struct ps_object *object, const struct ps_object_row *row, const struct stat *st,
        bool *ret_unverified)
{
	int64_t mtime_ns = ps_datafile_mtime_ns(st);

	if ((uint64_t)st->st_size != object->remote.size || mtime_ns < row->data_mtime_ns) {
		ps_log_warning("store: %s: its data file has %s; its blocks are fetched again", object->url,
		        mtime_ns < row->data_mtime_ns ? "an older time than the index says" : "another size");
		return -EUCLEAN;
	}
	/* A newer time is ours only if we were killed between a write and its commit; another inode is a
	 * copy. */
	*ret_unverified =
	        row->data_ino != st->st_ino || (object->store->exact_mtimes && mtime_ns > row->data_mtime_ns);
	return 0;
}

/* -EUCLEAN: row or file are of no use. Other errors: the disk cannot be used now. */
static int load_blocks(struct ps_object *object)
{
	struct ps_store *store = object->store;
	struct loading loading = {.object = object};
	struct ps_object_row row;
	struct stat st;
	bool writable = true;
	int fd = -1;

	int e = ps_index_get_object(store->index, &object->id, &row);
	if (e == -ENOENT)
		return 0;
	if (e < 0)
		return e == -EBADMSG ? -EUCLEAN : e;
	object->created_s = row.created_s;
	object->opened_s = row.opened_s;
	object->dataset = row.dataset;
	object->row_by_extent = row.by_extent;
	memcpy(object->learned_etag, row.learned_etag, sizeof object->learned_etag);
	e = ps_datafile_open(store->data_fd, &object->id, &fd, &writable);
	if (e == -ENOENT) {
		ps_log_warning("store: %s: its data file is gone; its blocks are fetched again", object->url);
		e = -EUCLEAN;
	}
	if (e == 0 && fstat(fd, &st) < 0)
		e = -errno;
	if (e == 0)
		e = compare_file(object, &row, &st, &loading.unverified);
	if (e == 0)
		e = ps_index_each_extent(store->index, &object->id, load_extent, &loading);
	ps_object_row_fini(&row);
	if (e < 0) {
		if (fd >= 0)
			close(fd);
		forget_blocks(object);
		return e;
	}
	object->fd = fd;
	ps_datafile_read_ahead(fd, object->npresent == object->nblocks);
	object->no_disk = !writable;
	return 0;
}

/* The object is LOADING and its id held by us, so nobody makes the file meanwhile. */
static void drop_entry(struct ps_object *object)
{
	struct ps_store *store = object->store;
	struct ps_leaving *leaving = NULL;

	pthread_mutex_lock(&store->lock);
	if (!object->entry) /* a row that the recovery left out: its deletion still needs a place */
		object->entry = ps_table_add(store, &object->id, object->nextents, 0);
	if (object->entry) {
		object->entry->object = NULL; /* the object lives on, empty */
		leaving = ps_leaving_begin(store, object->entry);
		object->entry = leaving ? NULL : object->entry;
	}
	object->no_disk = !leaving;
	pthread_mutex_unlock(&store->lock);
	if (leaving)
		ps_leaving_finish(store, leaving);
}

static void load(struct ps_object *object)
{
	struct ps_store *store = object->store;

	pthread_mutex_lock(&store->lock);
	bool tomb = ps_tomb_find(store, &object->id);
	pthread_mutex_unlock(&store->lock);
	int e = tomb ? -EIO : load_blocks(object);
	if (e == -EUCLEAN)
		drop_entry(object);
	else if (e < 0)
		object->no_disk = true;

	PS_LOCK_SCOPE(&store->lock);
	object->state = PS_OBJECT_READY;
	pthread_cond_broadcast(&store->changed);
}

/* Getting and putting ----------------------------------------------------------------------------- */

/* store->lock held. */
static void note_open(struct ps_object *object, uint32_t dataset)
{
	struct ps_store *store = object->store;
	int64_t now_s = ps_clock_real_s();

	ps_pin_follow(object);
	if (!object->by_extent) /* whose extents are used, not opened */
		store->policy_ops->opened(
		        store->policy, dataset, &object->id, object->entry ? object->opened_s : 0, now_s);
	object->opened_s = now_s;
	object->dataset = dataset;
	if (!object->entry)
		return;
	if (!object->entry->charges) {
		struct ps_policy_item *item = ps_table_item(store, object->entry);
		item->opened_s = now_s;
		item->dataset = dataset;
		item->seq = store->open_seq++;
	}
	if (object->npresent + object->partial_nbytes > 0 && !store->index_failed)
		ps_commit_queue_locked(object, 0);
}

/* store->lock held; may wait. The object with this id, with one more user; NULL: there is none and the id is
 * free. */
static struct ps_object *find_and_use(struct ps_store *store, const struct ps_id *id)
{
	for (;;) {
		struct ps_leaving *leaving = NULL;
		struct ps_object *object = NULL;

		HASH_FIND(hh, store->objects, id, sizeof *id, object);
		if (object && object->state != PS_OBJECT_EVICTING) {
			object->refs++;
			if (object->users++ == 0 && object->entry && !object->entry->charges)
				ps_table_update_busy(store, object->entry);
			while (object->state == PS_OBJECT_LOADING)
				pthread_cond_wait(&store->changed, &store->lock);
			return object;
		}
		HASH_FIND(hh, store->leaving, id, sizeof *id, leaving);
		/* Extents that leave a file which nobody has open must be gone before its rows are read. */
		const struct ps_entry *entry = ps_table_find(store, id);
		if (!object && !leaving && !(entry && entry->nleaving > 0))
			return NULL;
		pthread_cond_wait(&store->changed, &store->lock);
	}
}

static int object_get(struct ps_store *store, const char *url, const struct ps_remote *remote,
        const struct ps_id *id, bool opened, uint32_t dataset, struct ps_object **ret)
{
	pthread_mutex_lock(&store->lock);
	struct ps_object *object = find_and_use(store, id);
	if (!object) {
		object = object_new(store, url, remote, id);
		if (object)
			HASH_ADD(hh, store->objects, id, sizeof object->id, object);
		if (!object || !object->hh.tbl) {
			pthread_mutex_unlock(&store->lock);
			if (object)
				object_free(object);
			return -ENOMEM;
		}
		object->dataset = dataset;
		object->entry = ps_table_find(store, id);
		if (object->entry) {
			object->entry->object = object;
			object->by_extent = object->entry->charges != NULL;
			ps_table_update_busy(store, object->entry);
		}
		pthread_mutex_unlock(&store->lock);
		load(object);
		pthread_mutex_lock(&store->lock);
	}
	if (opened)
		note_open(object, dataset);
	pthread_mutex_unlock(&store->lock);
	*ret = object;
	return 0;
}

int ps_object_get(struct ps_store *store, const char *url, const struct ps_remote *remote, uint32_t dataset,
        bool opened, struct ps_object **ret)
{
	struct ps_id id;

	if (remote->size == PS_SIZE_UNKNOWN)
		return -EINVAL;
	if (remote->size > PS_OBJECT_MAX_NBYTES)
		return -EFBIG;
	ps_object_id(url, remote, "raw", &id);
	return object_get(store, url, remote, &id, opened, dataset, ret);
}

int ps_object_get_row(struct ps_store *store, const struct ps_object_row *row, struct ps_object **ret)
{
	if (row->remote.size > PS_OBJECT_MAX_NBYTES)
		return -EFBIG;
	return object_get(store, row->url, &row->remote, &row->id, false, row->dataset, ret);
}

struct ps_object *ps_object_ref(struct ps_object *object)
{
	PS_LOCK_SCOPE(&object->store->lock);

	object->refs++;
	object->users++;
	return object;
}

void ps_object_put(struct ps_object *object)
{
	if (!object)
		return;
	struct ps_store *store = object->store;

	pthread_mutex_lock(&store->lock);
	if (--object->users == 0) {
		if (object->entry && !object->entry->charges)
			ps_table_update_busy(store, object->entry);
		if (object->entry && object->fd >= 0) {
			/* Our ref keeps it while it is settled. */
			pthread_mutex_unlock(&store->lock);
			ps_room_settle(object);
			pthread_mutex_lock(&store->lock);
		}
	}
	ps_object_unref_locked(object);
	pthread_mutex_unlock(&store->lock);
}

/* What it is ------------------------------------------------------------------------------------- */

const char *ps_object_url(const struct ps_object *object)
{
	return object->url;
}

const struct ps_remote *ps_object_remote(const struct ps_object *object)
{
	return &object->remote;
}

uint64_t ps_object_size(const struct ps_object *object)
{
	return object->remote.size;
}

uint64_t ps_object_nblocks(const struct ps_object *object)
{
	return object->nblocks;
}

uint64_t ps_object_block_nbytes(const struct ps_object *object, uint64_t block)
{
	return PS_MIN(object->remote.size - block * PS_BLOCK_SIZE, PS_BLOCK_SIZE);
}

void **ps_object_fill_slot(struct ps_object *object)
{
	return &object->fill_slot;
}

int ps_object_fd(struct ps_object *object)
{
	return object->fd;
}

/* Turns a file that is cached by extents into a whole one, or -EBUSY. */
static int make_whole(struct ps_object *object)
{
	struct ps_store *store = object->store;

	PS_LOCK_SCOPE(&store->lock);
	struct ps_entry *entry = object->state == PS_OBJECT_READY ? object->entry : NULL;
	if (!object->by_extent)
		return 0;
	if (!entry || !entry->pinned || entry->nleaving > 0 || !ps_object_complete(object))
		return -EBUSY;
	int e = ps_table_make_whole(store, entry);
	if (e == 0)
		object->by_extent = false;
	return e;
}

/* The index must not go on saying that holes may be punched. */
static int forget_by_extent(struct ps_object *object)
{
	struct ps_store *store = object->store;
	{
		PS_LOCK_SCOPE(&store->lock);
		if (!object->row_by_extent)
			return 0;
		ps_commit_queue_locked(object, 0);
	}
	int e = ps_store_commit(store);
	PS_LOCK_SCOPE(&store->lock);
	if (e == 0)
		object->row_by_extent = false;
	return e;
}

int ps_object_pass_fd(struct ps_object *object)
{
	if (!ps_object_complete(object) || (object->by_extent && make_whole(object) < 0) ||
	        forget_by_extent(object) < 0)
		return -1;
	return object->fd;
}

void ps_object_learned_etag(struct ps_object *object, char ret[static PS_ETAG_LEN])
{
	PS_LOCK_SCOPE(&object->store->lock);
	memcpy(ret, object->learned_etag, PS_ETAG_LEN);
}

void ps_object_learn_etag(struct ps_object *object, const char *etag)
{
	PS_LOCK_SCOPE(&object->store->lock);
	if (strlen(etag) >= sizeof object->learned_etag || strcmp(etag, object->learned_etag) == 0)
		return;
	snprintf(object->learned_etag, sizeof object->learned_etag, "%s", etag);
	if (object->npresent > 0)
		ps_commit_queue_locked(object, 0);
}

/* Admission and eviction -------------------------------------------------------------------------- */

/* store->lock held. True: decided already, *ret_e says how. */
static bool admit_known(struct ps_object *object, int *ret_e)
{
	struct ps_store *store = object->store;

	while (object->admitting || object->state == PS_OBJECT_EVICTING)
		pthread_cond_wait(&store->changed, &store->lock);
	*ret_e = object->admitted ? 0 : -ENOSPC;
	return object->admitted || object->state == PS_OBJECT_EVICTED || object->no_disk ||
	       store->index_failed || ps_clock_mono_ns() < object->refused_until_ns;
}

/* Its blocks take their room when they are written. */
static int make_entry_by_extent(struct ps_object *object)
{
	struct ps_store *store = object->store;

	PS_LOCK_SCOPE(&store->lock);
	if (object->entry)
		return 0;
	object->entry = ps_table_add_by_extent(store, &object->id, object->nextents);
	if (!object->entry)
		return -ENOMEM;
	object->entry->object = object;
	object->entry->pinned = ps_pin_holds(object);
	return 0;
}

bool ps_object_fits(struct ps_object *object)
{
	return !object->by_extent || object->remote.size <= object->store->limit_nbytes;
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
		store->write_errors++;
		if (!object->failed) /* only the thread that admits gets here */
			ps_log_error("store: %s: no data file: %s; it is streamed without caching",
			        object->url, strerror(-e));
	}

	if (fd >= 0)
		ps_datafile_read_ahead(fd, false);
	if (took && e == 0 && object->direct_fd < 0)
		direct_fd = ps_datafile_open_direct(store->data_fd, &object->id);

	PS_LOCK_SCOPE(&store->lock);
	if (fd >= 0)
		object->fd = fd;
	if (direct_fd >= 0)
		object->direct_fd = direct_fd;
	if (took && e < 0) {
		object->failed = true;
		store->unwritten -= atomic_exchange(&object->unwritten, 0);
		store->used_nbytes -= ps_table_nbytes(store, object->entry);
		ps_table_remove(store, object->entry);
		object->entry = NULL;
	}
	object->admitting = false;
	object->admitted = e == 0;
	if (e < 0)
		object->refused_until_ns = ps_clock_mono_ns() + PS_STORE_REFUSED_MS * PS_NS_PER_MS;
	pthread_cond_broadcast(&store->changed);
	return e == 0 ? 0 : -ENOSPC;
}

int ps_object_evict(struct ps_object *object, uint64_t *ret_nbytes)
{
	struct ps_store *store = object->store;
	struct ps_leaving *leaving = NULL;
	uint64_t nbytes = 0;
	int e = 0;

	if (object->by_extent) {
		/* In place: whoever has it open goes on caching. */
		e = ps_extents_evict(object, &nbytes);
		if (e == 0 && ret_nbytes)
			*ret_nbytes = nbytes;
		return e;
	}
	pthread_mutex_lock(&store->lock);
	while (object->admitting || object->state == PS_OBJECT_EVICTING)
		pthread_cond_wait(&store->changed, &store->lock);
	if (object->state == PS_OBJECT_READY && object->entry) {
		nbytes = ps_table_nbytes(store, object->entry);
		leaving = ps_leaving_begin(store, object->entry);
		if (!leaving)
			e = -ENOMEM;
	}
	if (leaving) {
		store->evicted_objects++;
		store->evicted_nbytes += nbytes;
	}
	pthread_mutex_unlock(&store->lock);
	if (leaving)
		ps_leaving_finish(store, leaving);
	if (e == 0 && ret_nbytes)
		*ret_nbytes = nbytes;
	return e;
}
