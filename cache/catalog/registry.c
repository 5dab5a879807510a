/* Datasets by their id: an attach of the same source and access shares the dataset that is attached
 * already. */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "catalog/catalog_private.h"

struct ps_attached {
	struct ps_list link; /* cache.attached */
	struct ps_dataset_id id;
	struct ps_dataset *dataset; /* NULL: being attached or detached */
	unsigned nrefs;
};

static struct ps_attached *find(
        struct ps_cache *cache, const struct ps_id *catalog, const struct ps_id *access)
{
	for (struct ps_list *l = cache->attached.next; l != &cache->attached; l = l->next) {
		struct ps_attached *a = PS_CONTAINER_OF(l, struct ps_attached, link);

		if (ps_id_cmp(&a->id.catalog, catalog) == 0 && ps_id_cmp(&a->id.access, access) == 0)
			return a;
	}
	return NULL;
}

/* Waits while another thread attaches or detaches the dataset (*ret_waited: it has waited). If the dataset
 * is attached then, *ret gets it with a new reference; else *ret_new gets an entry, and the caller attaches
 * the dataset. */
static int enter(struct ps_cache *cache, const struct ps_dataset_id *id, const _Atomic bool *cancelled,
        struct ps_attached **ret_new, struct ps_dataset **ret, bool *ret_waited)
{
	struct ps_attached *a;

	PS_LOCK_SCOPE(&cache->lock);
	while ((a = find(cache, &id->catalog, &id->access)) && !a->dataset) {
		if (cancelled && atomic_load(cancelled))
			return -ECANCELED;
		*ret_waited = true;
		pthread_cond_wait(&cache->cond, &cache->lock);
	}
	if (a) {
		a->nrefs++;
		*ret = a->dataset;
		return 0;
	}
	a = calloc(1, sizeof(*a));
	if (!a)
		return -ENOMEM;
	a->id = *id;
	a->nrefs = 1;
	ps_list_append(&cache->attached, &a->link);
	*ret_new = a;
	return 0;
}

/* The attach has ended. dataset NULL: it failed, or the dataset was detached. */
static void publish(struct ps_cache *cache, struct ps_attached *a, struct ps_dataset *dataset)
{
	PS_LOCK_SCOPE(&cache->lock);
	a->dataset = dataset;
	if (!dataset) {
		ps_list_remove(&a->link);
		free(a);
	}
	pthread_cond_broadcast(&cache->cond);
}

static int attach(struct ps_cache *cache, const char *source, const char *canonical,
        const struct ps_dataset_id *id, const struct ps_dataset_options *options, struct ps_dataset **ret,
        struct ps_error *err)
{
	struct ps_attached *new = NULL;
	struct ps_dataset *dataset = NULL;
	bool waited = false;
	int rc = enter(cache, id, options->cancelled, &new, &dataset, &waited);

	if (rc == -ECANCELED)
		return ps_error_set(err, ECANCELED, "%s: interrupted", canonical);
	if (rc < 0)
		return ps_no_memory(err);
	if (new) {
		rc = ps_dataset_new(cache, source, canonical, id, options, &dataset, err);
		publish(cache, new, rc < 0 ? NULL : dataset);
	}
	if (rc == 0 && !new && !waited) {
		rc = ps_dataset_rejoin(dataset, options, err);
		if (rc < 0)
			ps_dataset_detach(dataset);
	}
	if (rc == 0)
		*ret = dataset;
	return rc;
}

static void take_own(struct ps_dataset_id *id)
{
	id->catalog = id->own_catalog;
	id->may_be_another = false;
}

int ps_dataset_attach(struct ps_cache *cache, const char *source, const struct ps_dataset_options *options,
        struct ps_dataset **ret, struct ps_error *err)
{
	ps_autofree char *canonical = ps_source_canonical(source, err);
	struct ps_dataset_row own;
	struct ps_dataset_id id;

	if (!canonical)
		return err && err->err ? -err->err : -EINVAL;
	int rc = ps_dataset_id(cache->store, canonical, source, options, &id);
	if (rc < 0)
		return ps_no_memory(err);
	if (id.may_be_another &&
	        ps_index_get_dataset(ps_store_index(cache->store), &id.own_catalog, &own) == 0) {
		ps_dataset_row_fini(&own);
		take_own(&id);
	}
	rc = attach(cache, source, canonical, &id, options, ret, err);
	if (rc != -EREMCHG || !id.may_be_another)
		return rc;
	take_own(&id);
	if (err)
		*err = (struct ps_error){0};
	return attach(cache, source, canonical, &id, options, ret, err);
}

_Static_assert(PS_DATASET_KEY_LEN == 2 * PS_ID_HEX_LEN + 1, "a catalog and an access");

int ps_dataset_key(struct ps_cache *cache, const char *source, const struct ps_dataset_options *options,
        char ret[static PS_DATASET_KEY_LEN], struct ps_error *err)
{
	ps_autofree char *canonical = ps_source_canonical(source, err);
	struct ps_dataset_id id;

	if (!canonical)
		return err && err->err ? -err->err : -EINVAL;
	int rc = ps_dataset_id(cache->store, canonical, source, options, &id);
	if (rc < 0)
		return ps_no_memory(err);
	ps_id_hex(&id.catalog, ret);
	ps_id_hex(&id.access, ret + PS_ID_HEX_LEN);
	return 0;
}

void ps_dataset_detach(struct ps_dataset *dataset)
{
	struct ps_attached *last = NULL;
	struct ps_cache *cache;

	if (!dataset)
		return;
	cache = dataset->cache;
	{
		PS_LOCK_SCOPE(&cache->lock);
		struct ps_attached *a = find(cache, &dataset->catalog->row.id, &dataset->access);

		if (a && --a->nrefs == 0) {
			last = a;
			a->dataset = NULL;
		}
	}
	if (last) {
		ps_dataset_free(dataset);
		publish(cache, last, NULL);
	}
}
