#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/size.h"
#include "store/store_private.h"

/* In the background -------------------------------------------------------------------------------------- */

static void check(struct ps_object *object, void *buf)
{
	struct ps_store *store = object->store;
	uint64_t nchecked = 0, nbad = 0;

	for (uint64_t i = 0; i < object->nblocks; i++) {
		if (ps_object_block(object, i) != PS_BLOCK_UNVERIFIED)
			continue;
		{
			PS_LOCK_SCOPE(&store->lock);
			if (store->check.worker.stopping || object->state != PS_OBJECT_READY)
				return;
		}
		int e = ps_object_verify_block(object, i, buf);
		nchecked++;
		nbad += e == -EILSEQ;
	}
	if (nbad > 0)
		ps_log_warning("check: %s: of %llu blocks that were not yet synced, %llu are lost; they are "
		               "fetched again",
		        object->url, (unsigned long long)nchecked, (unsigned long long)nbad);
	else
		ps_log_debug("check: %s: %llu blocks are sound", object->url, (unsigned long long)nchecked);
}

static void *check_thread(void *arg)
{
	struct ps_store *store = arg;
	ps_autofree void *buf = NULL;

	pthread_mutex_lock(&store->lock);
	while (!store->check.worker.stopping) {
		if (ps_list_empty(&store->check.queue)) {
			pthread_cond_wait(&store->check.worker.wake, &store->lock);
			continue;
		}
		struct ps_object *object =
		        PS_CONTAINER_OF(ps_list_take(&store->check.queue), struct ps_object, check_link);
		pthread_mutex_unlock(&store->lock);
		if (!buf)
			buf = malloc(PS_BLOCK_SIZE);
		if (buf) /* without memory, only readers check the blocks that they read */
			check(object, buf);
		pthread_mutex_lock(&store->lock);
		ps_object_unref_locked(object);
	}
	pthread_mutex_unlock(&store->lock);
	return NULL;
}

int ps_check_start(struct ps_store *store)
{
	return ps_worker_start(&store->check.worker, "store-check", check_thread, store);
}

void ps_check_stop(struct ps_store *store)
{
	ps_worker_stop(&store->check.worker, &store->lock);
	PS_LOCK_SCOPE(&store->lock);
	while (!ps_list_empty(&store->check.queue)) {
		struct ps_object *object =
		        PS_CONTAINER_OF(ps_list_take(&store->check.queue), struct ps_object, check_link);
		ps_object_unref_locked(object);
	}
}

/* By a command ------------------------------------------------------------------------------------------- */

/* Work on the whole directory: checking every block, evicting by glob. Both walk the ids that the index had
 * at the start, and ignore later changes. */

struct ids {
	struct ps_id *ids;
	size_t n, cap;
	uint64_t nbytes; /* of present blocks */
	const char *const *globs;
	size_t nglobs;
};

static bool matches_one(const struct ids *ids, const char *url)
{
	const char *slash = strrchr(url, '/');
	const char *base = slash ? slash + 1 : url;

	for (size_t i = 0; i < ids->nglobs; i++)
		if (fnmatch(ids->globs[i], base, 0) == 0 || fnmatch(ids->globs[i], url, 0) == 0)
			return true;
	return ids->nglobs == 0;
}

/* The URL of a view is URL#NAME: a glob may match either part. */
static bool matches(const void *arg, const char *url)
{
	const char *mark = strrchr(url, '#');

	if (!mark)
		return matches_one(arg, url);
	ps_autofree char *source = strndup(url, (size_t)(mark - url));
	return matches_one(arg, mark + 1) || (source && matches_one(arg, source));
}

static int collect_id(void *arg, const struct ps_object_row *row)
{
	struct ids *ids = arg;

	if (!matches(ids, row->url))
		return 0;
	if (!ps_grow(&ids->ids, ids->n, &ids->cap, sizeof(*ids->ids)))
		return -ENOMEM;
	ids->ids[ids->n++] = row->id;
	ids->nbytes += PS_MIN(row->nblocks_present * PS_BLOCK_SIZE + row->partial_nbytes, row->remote.size);
	return 0;
}

/* Verify ------------------------------------------------------------------------------------------------- */

struct verifying {
	struct ps_verify_result result;
	void (*progress)(void *arg, uint64_t done_nbytes, uint64_t total_nbytes);
	void *arg;
	const _Atomic bool *stop;
	uint64_t total_nbytes;
	void *buf;
};

static int verify_blocks(struct verifying *v, struct ps_object *object)
{
	for (uint64_t i = 0; i < object->nblocks; i++) {
		if (v->stop && *v->stop)
			return -ECANCELED;
		if (ps_object_block(object, i) == PS_BLOCK_ABSENT)
			continue;
		uint64_t nbytes = ps_object_block_cached_nbytes(object, i);
		int e = ps_object_verify_block(object, i, v->buf);
		if (e == -ENOENT) /* dropped by another thread just now */
			continue;
		v->result.blocks++;
		v->result.nbytes += nbytes;
		v->result.bad_blocks += e == -EILSEQ;
		if (v->progress)
			v->progress(v->arg, v->result.nbytes, v->total_nbytes);
	}
	return 0;
}

static int verify_object(struct verifying *v, struct ps_store *store, const struct ps_id *id)
{
	struct ps_object *object;
	bool any;

	int rc = ps_object_get_stored(store, id, &object, &any);
	if (!object)
		return rc;
	v->result.objects++;
	/* The object's row had blocks, but loading it found no file. */
	if (any && object->fd < 0)
		v->result.missing_files++;
	rc = verify_blocks(v, object);
	if (rc == 0 && ps_object_checksum_check(object) < 0)
		v->result.bad_objects++;
	ps_object_put(object);
	return rc;
}

int ps_store_verify(struct ps_store *store,
        void (*progress)(void *arg, uint64_t done_nbytes, uint64_t total_nbytes), void *arg,
        const _Atomic bool *stop, struct ps_verify_result *ret)
{
	struct verifying v = {.progress = progress, .arg = arg, .stop = stop};
	struct ids ids = {0};

	v.buf = malloc(PS_BLOCK_SIZE);
	int rc = v.buf ? ps_store_commit(store) : -ENOMEM;
	if (rc == 0)
		rc = ps_index_each_object(store->index, collect_id, NULL, &ids);
	v.total_nbytes = ids.nbytes;
	for (size_t i = 0; rc == 0 && i < ids.n; i++)
		rc = verify_object(&v, store, &ids.ids[i]);
	free(v.buf);
	free(ids.ids);
	*ret = v.result; /* after an error, too: what was checked until then */
	return rc;
}

/* Evict -------------------------------------------------------------------------------------------------- */

int ps_store_evict(struct ps_store *store, const char *const *globs, size_t n, uint64_t *ret_objects,
        uint64_t *ret_nbytes)
{
	struct ids ids = {.globs = globs, .nglobs = n};
	uint64_t nobjects = 0, nbytes = 0;

	int rc = ps_store_commit(store);
	if (rc == 0)
		rc = ps_index_each_object(store->index, collect_id, NULL, &ids);
	for (size_t i = 0; rc == 0 && i < ids.n; i++) {
		struct ps_leaving *leaving = NULL;

		pthread_mutex_lock(&store->lock);
		struct ps_entry *entry;
		while ((entry = ps_quota_find(store, &ids.ids[i])) && entry->nleaving > 0)
			pthread_cond_wait(&store->changed, &store->lock);
		if (entry && !entry->pinned && !(entry->object && entry->object->users > 0)) {
			leaving = ps_leaving_begin(store, entry);
			rc = leaving ? 0 : -ENOMEM;
		}
		if (leaving) {
			nobjects++;
			nbytes += leaving->nbytes;
			store->counters.evicted_objects++;
			store->counters.evicted_bytes += leaving->nbytes;
		}
		pthread_mutex_unlock(&store->lock);
		if (leaving)
			ps_leaving_finish(store, leaving);
	}
	free(ids.ids);
	if (rc == 0) {
		*ret_objects = nobjects;
		*ret_nbytes = nbytes;
	}
	return rc;
}

/* Pin ---------------------------------------------------------------------------------------------------- */

static int with_object(struct ps_store *store, const struct ps_id *id, uint64_t *nbytes, bool pin)
{
	struct ps_object *object;
	uint64_t added;
	bool any;

	int rc = ps_object_get_stored(store, id, &object, &any);
	if (!object)
		return rc;
	if (pin)
		rc = ps_object_pin(object, &added);
	else
		*nbytes += ps_object_pin_nbytes(object);
	ps_object_put(object);
	return rc;
}

int ps_store_pin(struct ps_store *store, const char *const *globs, size_t n, bool pin, uint64_t *ret_objects,
        uint64_t *ret_nbytes)
{
	struct ids ids = {.globs = globs, .nglobs = n};
	uint64_t nbytes = 0;

	if (!pin)
		return ps_store_unpin(store, matches, &ids, ret_objects, ret_nbytes);
	int rc = ps_store_commit(store);
	if (rc == 0)
		rc = ps_index_each_object(store->index, collect_id, NULL, &ids);
	for (size_t i = 0; rc == 0 && i < ids.n; i++)
		rc = with_object(store, &ids.ids[i], &nbytes, false);
	if (rc == 0) {
		PS_LOCK_SCOPE(&store->lock);
		*ret_nbytes = store->pinned_nbytes + nbytes;
		if (*ret_nbytes > ps_store_data_limit(store))
			rc = -ENOSPC;
	}
	for (size_t i = 0; rc == 0 && i < ids.n; i++)
		rc = with_object(store, &ids.ids[i], &nbytes, true);
	if (rc == 0) {
		*ret_objects = ids.n;
		*ret_nbytes = nbytes;
	}
	free(ids.ids);
	return rc;
}

struct pins {
	const struct ids *ids; /* has the globs */
	struct ps_pin_row *rows;
	size_t n, cap;
};

static int collect_pin(void *arg, const struct ps_pin_row *row)
{
	struct pins *pins = arg;

	if (!matches(pins->ids, row->url))
		return 0;
	if (!ps_grow(&pins->rows, pins->n, &pins->cap, sizeof(*pins->rows)))
		return -ENOMEM;
	pins->rows[pins->n] = *row;
	pins->rows[pins->n].url = strdup(row->url);
	return pins->rows[pins->n++].url ? 0 : -ENOMEM;
}

static int by_url(const void *a, const void *b)
{
	return strcmp(((const struct ps_pin_row *)a)->url, ((const struct ps_pin_row *)b)->url);
}

int ps_store_each_pin(struct ps_store *store, const char *const *globs, size_t n,
        int (*fn)(void *arg, const char *url, uint64_t nbytes, uint64_t cached_nbytes), void *arg)
{
	const struct ids ids = {.globs = globs, .nglobs = n};
	struct pins pins = {.ids = &ids};

	int rc = ps_store_commit(store);
	if (rc == 0)
		rc = ps_index_each_pin(store->index, collect_pin, &pins);
	if (rc == 0 && pins.n > 0)
		qsort(pins.rows, pins.n, sizeof(*pins.rows), by_url);
	for (size_t i = 0; rc == 0 && i < pins.n; i++) {
		struct ps_object *object;
		bool any;

		rc = ps_object_get_stored(store, &pins.rows[i].object_id, &object, &any);
		/* Without a row of the pinned version, the size is the pin's. */
		if (rc == 0)
			rc = fn(arg, pins.rows[i].url, object ? ps_object_size(object) : pins.rows[i].nbytes,
			        object ? ps_object_cached_nbytes(object) : 0);
		ps_object_put(object);
	}
	for (size_t i = 0; i < pins.n; i++)
		ps_pin_row_fini(&pins.rows[i]);
	free(pins.rows);
	return rc;
}
