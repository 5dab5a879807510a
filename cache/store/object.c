#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "store/block.h"
#include "store/check.h"
#include "store/commit.h"
#include "store/evict.h"
#include "store/extent.h"
#include "store/object_load.h"
#include "store/pins.h"

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
	ps_list_init(&object->sum_link);
	ps_list_init(&object->sync_link);
	ps_list_init(&object->check_link);
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

static void object_free(struct ps_object *object)
{
	if (object->fd >= 0)
		close(object->fd);
	if (object->direct_fd >= 0)
		close(object->direct_fd);
	for (uint32_t i = 0; i < object->nextents; i++)
		ps_extent_free(object->extents[i]);
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
	if (object->named)
		ps_named_unlink_locked(object);
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
		store->held_nbytes -= charge;
		pthread_cond_broadcast(&store->changed);
	}
}

/* Getting and putting ----------------------------------------------------------------------------- */

/* store->lock held. */
static void note_open(struct ps_object *object, uint32_t dataset)
{
	struct ps_store *store = object->store;
	int64_t now_s = ps_clock_real_s();

	ps_pin_follow(object);
	ps_check_queue_locked(object);
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
		ps_object_load(object);
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
	int e = object_get(store, url, remote, &id, opened, dataset, ret);
	if (e == 0)
		ps_object_expect(*ret, remote->checksum, true);
	return e;
}

int ps_object_get_view(struct ps_store *store, const char *url, const struct ps_remote *source,
        const struct ps_id *id, uint64_t size, uint32_t dataset, bool opened, struct ps_object **ret)
{
	struct ps_remote remote = *source;

	if (size == PS_SIZE_UNKNOWN)
		return -EINVAL;
	if (size > PS_OBJECT_MAX_NBYTES)
		return -EFBIG;
	remote.size = size;
	remote.checksum[0] = '\0'; /* of the source's bytes */
	return object_get(store, url, &remote, id, opened, dataset, ret);
}

int ps_object_get_unsized(struct ps_store *store, const char *url, const struct ps_remote *source,
        const struct ps_id *id, struct ps_object **ret)
{
	struct ps_remote remote = *source;
	struct ps_object_row row;

	remote.checksum[0] = '\0';
	remote.size = PS_OBJECT_UNSIZED_NBYTES;
	/* An earlier one may have got farther than its size came to be known. */
	int e = ps_index_get_object(store->index, id, &row);
	if (e == 0) {
		remote.size = row.remote.size;
		ps_object_row_fini(&row);
		if (remote.size > PS_OBJECT_MAX_NBYTES)
			return -EFBIG;
	} else if (e != -ENOENT) {
		return e;
	}
	if (remote.size == PS_OBJECT_UNSIZED_NBYTES && !ps_extents_apply(store, remote.size))
		return -ENOTSUP;
	return object_get(store, url, &remote, id, false, 0, ret);
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

const struct ps_id *ps_object_key(const struct ps_object *object)
{
	return &object->id;
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

int ps_object_fd(struct ps_object *object)
{
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
