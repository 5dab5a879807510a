#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/store_private.h"

/* Loading ------------------------------------------------------------------------------------------------ */

/* Loading an object into memory, from the index and the data file. */

struct loading {
	struct ps_object *object;
	bool unverified; /* all blocks count as unverified */
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
	struct ps_extent *extent = calloc(1, sizeof(*extent));
	if (!extent)
		return -ENOMEM;
	extent->present = row->present & mask;
	extent->unverified = (loading->unverified ? row->present | row->partial : row->unverified) & mask;
	extent->used_s = extent->saved_used_s = row->used_s;
	memcpy(extent->crc, row->crc, sizeof(extent->crc));
	object->npresent += (unsigned)__builtin_popcountll(extent->present);
	object->nunverified += (unsigned)__builtin_popcountll(extent->unverified & extent->present);
	object->extents[number] = extent;
	object->unsure |= extent->unverified != 0;
	int rc = ps_chunks_load(object, extent, number, row, mask);
	if (rc < 0)
		return rc;
	if (loading->unverified) {
		/* The next batch writes the file's present time and inode. So it must also write that the
		 * blocks are unverified. */
		extent->dirty = true;
		object->dirty_first = 0;
		object->dirty_end = object->nextents;
	}
	return 0;
}

/* True if the file is the one that the row describes, and unchanged since. */
static bool same_file(const struct ps_store *store, const struct ps_object_row *row, const struct stat *st)
{
	int64_t mtime_ns = ps_datafile_mtime_ns(st);

	/* A file with another inode is a copy. */
	if (row->data_ino != st->st_ino || mtime_ns < row->data_mtime_ns)
		return false;
	/* Without exact_mtimes a newer time is accepted: the process may have been killed between a write
	 * and its commit. */
	return !store->exact_mtimes ||
	       (mtime_ns == row->data_mtime_ns &&
	               (!row->data_ctime_ns || ps_datafile_ctime_ns(st) == row->data_ctime_ns));
}

/* -EUCLEAN: row or file cannot be used. Other errors: the disk cannot be used now. */
static int load_blocks(struct ps_object *object)
{
	struct ps_store *store = object->store;
	struct loading loading = {.object = object};
	struct ps_object_row row;
	struct stat st;
	bool writable = true;
	int fd = -1;

	int rc = ps_index_get_object(store->index, &object->id, &row);
	if (rc == -ENOENT)
		return 0;
	if (rc < 0)
		return rc == -EBADMSG ? -EUCLEAN : rc;
	object->created_s = row.created_s;
	object->opened_s = row.opened_s;
	object->dataset = row.dataset;
	object->row_by_extent = row.by_extent;
	memcpy(object->learned_etag, row.learned_etag, sizeof(object->learned_etag));
	memcpy(object->checksum, row.checksum, sizeof(object->checksum));
	object->sum_matched = row.sum_matched;
	rc = ps_datafile_open(store->data_fd, &object->id, &fd, &writable);
	if (rc == -ENOENT) {
		ps_log_warning(
		        "store: %s: its data file is missing; its blocks are fetched again", object->url);
		rc = -EUCLEAN;
	}
	if (rc == 0 && fstat(fd, &st) < 0)
		rc = -errno;
	if (rc == 0)
		loading.unverified = !same_file(store, &row, &st);
	if (rc == 0 && (uint64_t)st.st_size != object->remote.size) {
		ps_log_warning("store: %s: its data file has another size; its blocks are fetched again",
		        object->url);
		rc = -EUCLEAN;
	}
	if (rc == 0)
		rc = ps_index_each_extent(store->index, &object->id, load_extent, &loading);
	ps_object_row_fini(&row);
	if (rc < 0) {
		if (fd >= 0)
			close(fd);
		for (uint32_t i = 0; i < object->nextents; i++) {
			ps_extent_free(object->extents[i]);
			object->extents[i] = NULL;
		}
		object->npresent = object->nunverified = object->partial_nbytes = 0;
		return rc;
	}
	object->fd = fd;
	ps_datafile_read_ahead(fd, object->npresent == object->nblocks);
	object->no_disk = !writable;
	return 0;
}

/* Drops the entry, the rows and the file of an object. The object is LOADING, so no other thread creates
 * the file meanwhile. */
static void drop_entry(struct ps_object *object)
{
	struct ps_store *store = object->store;
	struct ps_leaving *leaving = NULL;

	pthread_mutex_lock(&store->lock);
	if (!object->entry) /* recovery skipped the object's row; an entry is needed to delete it */
		object->entry = ps_quota_add(store, &object->id, object->nextents, 0);
	if (object->entry) {
		object->entry->object = NULL; /* the object stays, empty */
		leaving = ps_leaving_begin(store, object->entry);
		object->entry = leaving ? NULL : object->entry;
	}
	object->no_disk = !leaving;
	pthread_mutex_unlock(&store->lock);
	if (leaving)
		ps_leaving_finish(store, leaving);
}

/* Loads a LOADING object, whose id no other thread can use meanwhile, and makes it READY. The object is
 * empty if its row or file cannot be used. Without store->lock. Blocks on the index and on the disk. */
static void object_load(struct ps_object *object)
{
	struct ps_store *store = object->store;

	pthread_mutex_lock(&store->lock);
	bool deleted = ps_deleted_entry_find(store, &object->id);
	pthread_mutex_unlock(&store->lock);
	int rc = deleted ? -EIO : load_blocks(object);
	if (rc == -EUCLEAN)
		drop_entry(object);
	else if (rc < 0)
		object->no_disk = true;

	PS_LOCK_SCOPE(&store->lock);
	object->after_deleted = deleted;
	object->state = PS_OBJECT_READY;
	ps_object_checksum_look(object);
	pthread_cond_broadcast(&store->changed);
}

/* Objects ------------------------------------------------------------------------------------------------ */

void ps_object_id(const char *url, const struct ps_remote *remote, const char *view, struct ps_id *ret_id)
{
	char size[32], mtime[32];
	bool strong = remote->etag[0] == '"' || ps_remote_is_by_size(remote);
	const char *const parts[] = {
	        url, view, strong ? "strong" : "weak", remote->etag, size, strong ? "" : mtime};

	snprintf(size, sizeof(size), "%" PRIu64, remote->size);
	snprintf(mtime, sizeof(mtime), "%" PRId64, remote->mtime_s);
	ps_id_of_strings(parts, PS_ARRAY_LEN(parts), ret_id);
}

/* Making and freeing ------------------------------------------------------------------------------------- */

static struct ps_object *object_new(
        struct ps_store *store, const char *url, const struct ps_remote *remote, const struct ps_id *id)
{
	struct ps_object *object = calloc(1, sizeof(*object));

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
	object->extents = calloc(PS_MAX(object->nextents, 1u), sizeof(*object->extents));
	if (!object->url || !object->extents) {
		free(object->url);
		free(object->extents);
		pthread_mutex_destroy(&object->lock);
		free(object);
		return NULL;
	}
	return object;
}

/* Getting and putting ------------------------------------------------------------------------------------ */

/* store->lock held. */
static void note_open(struct ps_object *object, uint32_t dataset)
{
	struct ps_store *store = object->store;
	int64_t now_s = ps_clock_real_s();

	ps_pin_follow(object);
	ps_check_queue_locked(object);
	if (!object->by_extent) /* else uses of its extents are noted, not opens */
		store->policy_ops->opened(
		        store->policy, dataset, &object->id, object->entry ? object->opened_s : 0, now_s);
	object->opened_s = now_s;
	object->dataset = dataset;
	if (!object->entry)
		return;
	if (!object->entry->charges) {
		struct ps_policy_item *item = ps_quota_item(store, object->entry);
		item->opened_s = now_s;
		item->dataset = dataset;
		item->seq = store->open_seq++;
	}
	if (object->npresent + object->partial_nbytes > 0 && !store->index_failed)
		ps_commit_queue_locked(object, 0);
}

/* Returns the object with this id, with one more user; NULL: there is none, and none is being evicted.
 * store->lock held; may wait. */
static struct ps_object *find_and_use(struct ps_store *store, const struct ps_id *id)
{
	for (;;) {
		struct ps_leaving *leaving = NULL;
		struct ps_object *object = NULL;

		HASH_FIND(hh, store->objects, id, sizeof(*id), object);
		if (object && object->state != PS_OBJECT_EVICTING) {
			object->refs++;
			if (object->users++ == 0 && object->entry && !object->entry->charges)
				ps_quota_update_busy(store, object->entry);
			while (object->state == PS_OBJECT_LOADING)
				pthread_cond_wait(&store->changed, &store->lock);
			return object;
		}
		HASH_FIND(hh, store->leaving, id, sizeof(*id), leaving);
		/* If extents of a file without an object are being evicted, their eviction must end before
		 * the file's rows are read. */
		const struct ps_entry *entry = ps_quota_find(store, id);
		if (!object && !leaving && !(entry && entry->nleaving > 0))
			return NULL;
		pthread_cond_wait(&store->changed, &store->lock);
	}
}

static int object_get(struct ps_store *store, const char *url, const struct ps_remote *remote,
        const struct ps_id *id, bool opened, uint32_t dataset, struct ps_object **ret)
{
	if (remote->size == PS_SIZE_UNKNOWN)
		return -EINVAL;
	if (remote->size > PS_OBJECT_MAX_NBYTES)
		return -EFBIG;
	pthread_mutex_lock(&store->lock);
	struct ps_object *object = find_and_use(store, id);
	if (!object) {
		object = object_new(store, url, remote, id);
		if (object)
			HASH_ADD(hh, store->objects, id, sizeof(object->id), object);
		if (!object || !object->hh.tbl) {
			pthread_mutex_unlock(&store->lock);
			if (object)
				ps_object_free(object);
			return -ENOMEM;
		}
		object->dataset = dataset;
		object->entry = ps_quota_find(store, id);
		if (object->entry) {
			object->entry->object = object;
			object->by_extent = object->entry->charges != NULL;
			ps_quota_update_busy(store, object->entry);
		}
		pthread_mutex_unlock(&store->lock);
		object_load(object);
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

	ps_object_id(url, remote, "raw", &id);
	int rc = object_get(store, url, remote, &id, opened, dataset, ret);
	if (rc == 0)
		ps_object_expect(*ret, remote->checksum, true);
	return rc;
}

int ps_object_get_view(struct ps_store *store, const char *url, const struct ps_remote *source,
        const struct ps_id *id, uint64_t size, uint32_t dataset, bool opened, struct ps_object **ret)
{
	struct ps_remote remote = *source;

	remote.size = size;
	remote.checksum[0] = '\0'; /* the checksum is of the source, not of the view */
	return object_get(store, url, &remote, id, opened, dataset, ret);
}

int ps_object_get_unsized(struct ps_store *store, const char *url, const struct ps_remote *source,
        const struct ps_id *id, struct ps_object **ret)
{
	struct ps_remote remote = *source;
	struct ps_object_row row;

	remote.checksum[0] = '\0';
	remote.size = PS_OBJECT_UNSIZED_NBYTES;
	/* An earlier decoding may have found the size already. */
	int rc = ps_index_get_object(store->index, id, &row);
	if (rc == 0) {
		remote.size = row.remote.size;
		ps_object_row_fini(&row);
	} else if (rc != -ENOENT) {
		return rc;
	}
	if (remote.size == PS_OBJECT_UNSIZED_NBYTES && !ps_extents_apply(store, remote.size))
		return -ENOTSUP;
	return object_get(store, url, &remote, id, false, 0, ret);
}

int ps_object_get_stored(
        struct ps_store *store, const struct ps_id *id, struct ps_object **ret, bool *ret_any)
{
	struct ps_object_row row;
	int rc = ps_index_get_object(store->index, id, &row);

	*ret = NULL;
	if (rc < 0)
		return rc == -ENOENT || rc == -EBADMSG ? 0 : rc;
	*ret_any = row.nblocks_present + row.partial_nbytes > 0;
	rc = object_get(store, row.url, &row.remote, id, false, row.dataset, ret);
	ps_object_row_fini(&row);
	return rc;
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
			ps_quota_update_busy(store, object->entry);
		if (object->entry && object->fd >= 0) {
			/* Our reference keeps the object meanwhile. */
			pthread_mutex_unlock(&store->lock);
			ps_room_settle(object);
			pthread_mutex_lock(&store->lock);
		}
	}
	ps_object_unref_locked(object);
	pthread_mutex_unlock(&store->lock);
}

/* Properties --------------------------------------------------------------------------------------------- */

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
	if (strlen(etag) >= sizeof(object->learned_etag) || strcmp(etag, object->learned_etag) == 0)
		return;
	snprintf(object->learned_etag, sizeof(object->learned_etag), "%s", etag);
	if (object->npresent > 0)
		ps_commit_queue_locked(object, 0);
}

/* Checksums ---------------------------------------------------------------------------------------------- */

void ps_object_expect(struct ps_object *object, const char *checksum, bool sure)
{
	char text[PS_CHECKSUM_LEN];

	if (!ps_checksum_parse(checksum, text))
		return;
	PS_LOCK_SCOPE(&object->store->lock);
	if (strcmp(object->checksum, text) == 0 || (object->checksum[0] && !sure))
		return;
	memcpy(object->checksum, text, sizeof(text));
	object->sum_matched = object->sum_warned = false;
	if (object->npresent > 0)
		ps_commit_queue_locked(object, 0);
	ps_object_checksum_look(object);
}

void ps_object_checksum_policy(struct ps_object *object, enum ps_checksums policy)
{
	PS_LOCK_SCOPE(&object->store->lock);
	if (object->sum_policy == policy)
		return;
	object->sum_policy = policy;
	object->sum_warned = false;
	ps_object_checksum_look(object);
}

enum ps_sum ps_object_sum(struct ps_object *object)
{
	PS_LOCK_SCOPE(&object->store->lock);
	if (object->corrupt)
		return PS_SUM_CORRUPT;
	if (!object->checksum[0] || object->nblocks == 0 || object->sum_policy == PS_CHECKSUMS_OFF)
		return PS_SUM_NONE;
	return object->sum_matched || object->sum_warned ? PS_SUM_MATCHED : PS_SUM_PENDING;
}

bool ps_object_corrupt(const struct ps_object *object)
{
	return object->corrupt;
}
