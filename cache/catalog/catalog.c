#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "catalog/catalog_private.h"

/* Catalogs ----------------------------------------------------------------------------------------------- */

/* Catalogs by id: the names of a source, shared by all datasets that list the same names. There must be
 * only one catalog over the same rows of the index, because a catalog assumes that nothing else gives its
 * names new nodes. */

#define RETIRED_BATCH 2000
#define ATTACH_S 5 /* a mount is usually made within this time after the listing of its attach */
#define CHANGED_BATCH 64
#define STEP_MS 1000 /* a time further in the future was stored before the clock was set back */

/* Loads the catalog's row. If the index has none, makes the row and its root directory. */
static int load_row(struct ps_catalog *catalog, const char *source)
{
	struct ps_index *index = catalog->index;
	struct ps_dataset_row *row = &catalog->row;
	struct ps_id id = row->id;
	int rc = ps_index_get_dataset(index, &id, row);

	if (rc != -ENOENT)
		return rc;
	struct ps_node_row root = {
	        .kind = PS_NODE_DIR, .remote = PS_REMOTE_UNKNOWN, .name = (char *)(uintptr_t) ""};
	*row = (struct ps_dataset_row){.id = id, .source = strdup(source)};
	if (!row->source)
		return -ENOMEM;
	rc = ps_index_new_dataset(index, &row->number);
	if (rc == 0)
		rc = ps_index_new_node(index, &row->root);
	if (rc < 0)
		return rc;
	root.node = root.ino = root.parent = row->root;
	root.dataset = row->number;
	struct ps_index_batch *batch = ps_index_batch_new();
	if (!batch)
		return -ENOMEM;
	ps_index_batch_put_dataset(batch, row);
	ps_index_batch_put_node(batch, &root);
	return ps_index_batch_commit(index, batch);
}

bool ps_catalog_is_ahead(int64_t when_ms, int64_t now_ms)
{
	return when_ms > now_ms + STEP_MS;
}

int64_t ps_catalog_attached(struct ps_catalog *catalog, int64_t now_ms)
{
	if (ps_catalog_is_ahead(catalog->attached_ms, now_ms))
		catalog->attached_ms = now_ms;
	return catalog->attached_ms;
}

static int load(struct ps_catalog *catalog, const char *source)
{
	PS_LOCK_SCOPE(&catalog->names_lock);
	if (catalog->loaded)
		return 0;
	int rc = load_row(catalog, source);
	if (rc < 0) {
		struct ps_id id = catalog->row.id;

		ps_dataset_row_fini(&catalog->row);
		catalog->row = (struct ps_dataset_row){.id = id};
		return rc;
	}
	/* attached_ms must be later than any earlier listing, even one that ended in the same millisecond:
	 * confirmations of earlier attaches do not count. */
	int64_t now_ms = ps_clock_real_ms(), listed_ms = catalog->row.listed_ms;
	catalog->attached_ms =
	        ps_catalog_is_ahead(listed_ms, now_ms) ? now_ms : PS_MAX(now_ms, listed_ms + 1);
	catalog->loaded = true;
	return 0;
}

/* cache.lock is held. */
static struct ps_catalog *find_or_make(struct ps_cache *cache, const struct ps_dataset_id *id)
{
	for (struct ps_list *l = cache->catalogs.next; l != &cache->catalogs; l = l->next) {
		struct ps_catalog *catalog = PS_CONTAINER_OF(l, struct ps_catalog, link);

		if (ps_id_cmp(&catalog->row.id, &id->catalog) == 0)
			return catalog;
	}
	struct ps_catalog *catalog = calloc(1, sizeof(*catalog));
	if (!catalog)
		return NULL;
	catalog->cache = cache;
	catalog->index = ps_store_index(cache->store);
	catalog->row.id = id->catalog;
	memcpy(catalog->route, id->route, sizeof(catalog->route));
	pthread_mutex_init(&catalog->tables_lock, NULL);
	pthread_mutex_init(&catalog->names_lock, NULL);
	pthread_mutex_init(&catalog->lock, NULL);
	pthread_cond_init(&catalog->watch_cond, NULL);
	ps_list_init(&catalog->watches);
	ps_list_append(&cache->catalogs, &catalog->link);
	return catalog;
}

int ps_catalog_get(
        struct ps_cache *cache, const struct ps_dataset_id *id, const char *source, struct ps_catalog **ret)
{
	struct ps_catalog *catalog;
	{
		PS_LOCK_SCOPE(&cache->lock);
		catalog = find_or_make(cache, id);
		if (!catalog)
			return -ENOMEM;
		catalog->nrefs++;
	}
	int rc = load(catalog, source);
	if (rc < 0)
		ps_catalog_put(catalog);
	else
		*ret = catalog;
	return rc;
}

/* Moves *node to its child `name`. True if the child is the listed file, or (listed NULL) exists. */
static bool look_in(struct ps_index *index, uint64_t *node, const char *name, const struct ps_listed *listed)
{
	struct ps_node_row row;

	if (ps_index_get_child(index, *node, name, node) < 0 || ps_index_get_node(index, *node, &row) < 0)
		return false;
	const struct ps_remote *a = &row.remote, *b = listed ? &listed->remote : NULL;
	bool found = !listed ||
	             (row.kind == PS_NODE_FILE && strcmp(row.url, listed->url) == 0 && a->size == b->size &&
	                     strcmp(a->etag, b->etag) == 0 && a->mtime_s == b->mtime_s);
	ps_node_row_fini(&row);
	return found;
}

bool ps_catalog_has(struct ps_catalog *catalog, const struct ps_listed *listed)
{
	ps_autofree char *path = strdup(listed->path), *shown = NULL;
	uint64_t node = catalog->row.root, dir;
	char *name = path, *slash;
	size_t len = 0;
	bool tar = false;

	if (!path)
		return false;
	for (; (slash = strchr(name, '/')); name = slash + 1) {
		*slash = '\0';
		if (!look_in(catalog->index, &node, name, NULL))
			return false;
	}
	dir = node;
	if (look_in(catalog->index, &node, name, listed))
		return true;
	/* A compressed shard may be shown by its decoded name. */
	if (!ps_coding_of_name(name, &len, &tar))
		return false;
	if (asprintf(&shown, "%.*s%s", (int)len, name, tar ? ".tar" : "") < 0) {
		shown = NULL;
		return false;
	}
	return look_in(catalog->index, &dir, shown, listed);
}

/* True if the name has a new node of the same version (ps_dataset_renew()). */
static bool was_renewed(struct ps_catalog *catalog, const struct ps_node_row *old)
{
	struct ps_node_row row;
	struct ps_id a, b;
	uint64_t node;

	if (ps_index_get_child(catalog->index, old->parent, old->name, &node) < 0 ||
	        ps_index_get_node(catalog->index, node, &row) < 0)
		return false;
	bool file = row.kind == PS_NODE_FILE;
	if (file) {
		ps_object_id(old->url, &old->remote, "grant", &a);
		ps_object_id(row.url, &row.remote, "grant", &b);
	}
	ps_node_row_fini(&row);
	return file && ps_id_cmp(&a, &b) == 0;
}

/* Deletes the rows of superseded nodes. Call when no reader can use their numbers any more: no kernel and
 * no handle has them. */
static void delete_retired(struct ps_catalog *catalog)
{
	struct ps_index_batch *batch = NULL;

	for (size_t i = 0; i < catalog->nchanged; i++) {
		struct ps_node_row row;

		if (ps_index_get_node(catalog->index, catalog->changed[i], &row) < 0)
			continue;
		/* `changed` also has nodes of new names: only superseded ones are deleted. */
		if (row.superseded && (batch || (batch = ps_index_batch_new()))) {
			ps_index_batch_del_node(batch, row.node);
			ps_index_batch_del_members(catalog->index, batch, row.node);
			if (row.coding)
				ps_decompress_forget(batch, catalog->route, row.url, &row.remote);
			if (row.kind == PS_NODE_FILE && !was_renewed(catalog, &row)) {
				struct ps_id of;

				ps_object_id(row.url, &row.remote, "grant", &of);
				ps_index_batch_del_grants(batch, &of);
			}
		}
		ps_node_row_fini(&row);
		if (batch && i % RETIRED_BATCH == RETIRED_BATCH - 1 &&
		        ps_index_batch_commit(catalog->index, ps_steal_ptr(&batch)) < 0)
			return;
	}
	if (batch && ps_index_batch_commit(catalog->index, batch) < 0)
		ps_log_debug("index: rows of old versions cannot be deleted");
}

void ps_catalog_note_remote(struct ps_catalog *catalog, const struct ps_remote *remote)
{
	if (remote->size != PS_SIZE_UNKNOWN && ps_remote_versionless(remote) &&
	        !atomic_exchange(&catalog->versionless, true))
		ps_log_warning("%s: %s", catalog->row.source, PS_VERSIONLESS_TEXT);
}

void ps_catalog_none_missing(struct ps_catalog *catalog)
{
	PS_LOCK_SCOPE(&catalog->lock);
	catalog->nmissing = catalog->nunknown = 0;
	for (size_t i = 0; i < PS_DATASET_MISSING; i++)
		free(ps_steal_ptr(&catalog->missing[i]));
}

void ps_catalog_put(struct ps_catalog *catalog)
{
	if (!catalog)
		return;
	{
		PS_LOCK_SCOPE(&catalog->cache->lock);
		if (--catalog->nrefs > 0)
			return;
		ps_list_remove(&catalog->link);
	}
	delete_retired(catalog);
	ps_dataset_row_fini(&catalog->row);
	ps_catalog_none_missing(catalog);
	free(catalog->changed);
	pthread_cond_destroy(&catalog->watch_cond);
	pthread_mutex_destroy(&catalog->tables_lock);
	pthread_mutex_destroy(&catalog->names_lock);
	pthread_mutex_destroy(&catalog->lock);
	free(catalog);
}

uint64_t ps_catalog_listings(struct ps_catalog *catalog, bool joins)
{
	PS_LOCK_SCOPE(&catalog->lock);
	return catalog->nbegun - (joins && catalog->lister);
}

bool ps_catalog_list_begin(
        struct ps_catalog *catalog, const struct ps_dataset *dataset, uint64_t since, bool *ret_listed)
{
	PS_LOCK_SCOPE(&catalog->lock);
	*ret_listed = catalog->nlisted > since;
	if (*ret_listed || catalog->lister)
		return false;
	catalog->lister = dataset;
	catalog->nbegun++;
	return true;
}

void ps_cache_wake(struct ps_cache *cache)
{
	PS_LOCK_SCOPE(&cache->lock);
	pthread_cond_broadcast(&cache->cond);
	for (struct ps_list *l = cache->datasets.next; l != &cache->datasets; l = l->next) {
		struct ps_dataset *ds = PS_CONTAINER_OF(l, struct ps_dataset, link);

		PS_LOCK_SCOPE(&ds->lock);
		ds->nwakes++;
		pthread_cond_broadcast(&ds->cond);
	}
}

/* Watches ------------------------------------------------------------------------------------------------ */

/* Calls the watch without a lock: only `busy` keeps the watch from being freed. */
static void report(struct ps_catalog *catalog, struct ps_watch *watch)
{
	uint64_t nodes[CHANGED_BATCH];
	size_t n;

	while (!atomic_load(&watch->priv.ending)) {
		{
			PS_LOCK_SCOPE(&catalog->names_lock);
			n = PS_MIN(catalog->nchanged - watch->priv.ntold, (size_t)CHANGED_BATCH);
			if (n == 0)
				break;
			memcpy(nodes, catalog->changed + watch->priv.ntold, n * sizeof(*nodes));
		}
		for (size_t i = 0; i < n && !atomic_load(&watch->priv.ending); i++) {
			struct ps_node_row row;

			if (ps_index_get_node(catalog->index, nodes[i], &row) < 0)
				continue;
			watch->changed(watch->arg, row.parent, row.name);
			ps_node_row_fini(&row);
		}
		watch->priv.ntold += n;
	}
	PS_LOCK_SCOPE(&catalog->names_lock);
	if (watch->owed && watch->priv.ntold == catalog->nchanged)
		atomic_store(watch->owed, false);
}

static struct ps_watch *next_watch(struct ps_catalog *catalog, struct ps_watch *last, uint64_t round)
{
	PS_LOCK_SCOPE(&catalog->lock);
	if (last) {
		last->priv.busy = false;
		pthread_cond_broadcast(&catalog->watch_cond);
	}
	for (struct ps_list *l = catalog->watches.next; l != &catalog->watches; l = l->next) {
		struct ps_watch *watch = PS_CONTAINER_OF(l, struct ps_watch, priv.link);

		if (watch->priv.round == round)
			continue;
		watch->priv.round = round;
		watch->priv.busy = true;
		return watch;
	}
	return NULL;
}

void ps_catalog_list_end(struct ps_catalog *catalog, bool listed)
{
	/* Only the lister calls this, so nbegun does not change. */
	for (struct ps_watch *watch = NULL; (watch = next_watch(catalog, watch, catalog->nbegun));)
		report(catalog, watch);
	{
		PS_LOCK_SCOPE(&catalog->lock);
		catalog->lister = NULL;
		if (listed) {
			catalog->nlisted = catalog->nbegun;
			atomic_store(&catalog->listed_ns, ps_clock_mono_ns());
		}
	}
	ps_cache_wake(catalog->cache);
}

/* Sets the dataset's refresh interval to the least of its watches. Call after watches changed. */
static void note_refresh(struct ps_dataset *ds)
{
	struct ps_catalog *catalog = ds->catalog;
	uint64_t least = 0;
	{
		PS_LOCK_SCOPE(&catalog->lock);
		for (struct ps_list *l = catalog->watches.next; l != &catalog->watches; l = l->next) {
			const struct ps_watch *watch = PS_CONTAINER_OF(l, struct ps_watch, priv.link);

			if (watch->dataset == ds && watch->refresh_ms &&
			        (!least || watch->refresh_ms < least))
				least = watch->refresh_ms;
		}
	}
	PS_LOCK_SCOPE(&ds->lock);
	if (ds->refresh_ms != least) {
		ds->refresh_ms = least;
		pthread_cond_broadcast(&ds->cond);
	}
}

void ps_dataset_watch(struct ps_watch *watch)
{
	struct ps_dataset *ds = watch->dataset;
	struct ps_catalog *catalog = ds->catalog;
	int64_t listed_ms;

	watch->priv.round = 0;
	watch->priv.busy = false;
	atomic_store(&watch->priv.ending, false);
	{
		PS_LOCK_SCOPE(&catalog->names_lock);
		watch->priv.ntold = catalog->nchanged;
	}
	{
		PS_LOCK_SCOPE(&catalog->lock);
		ps_list_append(&catalog->watches, &watch->priv.link);
		listed_ms = catalog->row.listed_ms;
	}
	note_refresh(ds);
	/* Without a refresh interval a mount shows the names that it was made with. They are listed again only if
	 * the earlier process was killed before the listing at its attach had ended. */
	if (!watch->resumed_s || listed_ms / 1000 + ATTACH_S >= watch->resumed_s)
		return;
	PS_LOCK_SCOPE(&ds->lock);
	ds->watched = true;
	pthread_cond_broadcast(&ds->cond);
}

void ps_dataset_unwatch(struct ps_watch *watch)
{
	struct ps_dataset *ds = watch->dataset;
	struct ps_list ended, *l, *next;

	atomic_store(&watch->priv.ending, true);
	{
		PS_LOCK_SCOPE(&ds->catalog->lock);
		while (watch->priv.busy)
			pthread_cond_wait(&ds->catalog->watch_cond, &ds->catalog->lock);
		ps_list_remove(&watch->priv.link);
	}
	note_refresh(ds);
	ps_list_init(&ended);
	{
		PS_LOCK_SCOPE(&ds->lock);
		for (l = ds->refreshes.next; l != &ds->refreshes; l = next) {
			next = l->next;
			if (PS_CONTAINER_OF(l, struct ps_refresh, priv.link)->watch == watch) {
				ps_list_remove(l);
				ps_list_append(&ended, l);
			}
		}
	}
	ps_refreshes_end(&ended, ECANCELED, &(struct ps_refreshed){0});
}

void ps_catalog_changed(struct ps_catalog *catalog, uint64_t node)
{
	{
		PS_LOCK_SCOPE(&catalog->lock);
		/* If a listing is under way, its end reports the change. Otherwise it is not reported: the next open
		 * finds that the version is superseded. */
		struct ps_list *l = catalog->lister ? catalog->watches.next : &catalog->watches;
		for (; l != &catalog->watches; l = l->next) {
			struct ps_watch *watch = PS_CONTAINER_OF(l, struct ps_watch, priv.link);

			if (watch->owed)
				atomic_store(watch->owed, true);
		}
	}
	if (catalog->nchanged == catalog->changed_cap) {
		size_t cap = catalog->changed_cap ? catalog->changed_cap * 2 : 256;
		uint64_t *changed = realloc(catalog->changed, cap * sizeof(*changed));

		if (!changed)
			return; /* the row stays on disk, and the kernel notices the change only by ESTALE */
		catalog->changed = changed;
		catalog->changed_cap = cap;
	}
	catalog->changed[catalog->nchanged++] = node;
}

/* Grants ------------------------------------------------------------------------------------------------- */

#define FRESH_SHARE 8 /* a grant younger than 1 / FRESH_SHARE of its lifetime is not written again */

void ps_grant_id_of_names(const struct ps_catalog *catalog, struct ps_id *ret)
{
	char hex[PS_ID_HEX_LEN + 1];

	ps_id_hex(&catalog->row.id, hex);
	ps_id_of_strings((const char *[]){"names", hex}, 2, ret);
}

void ps_grant_id_of_file(
        const struct ps_dataset *ds, const char *url, const struct ps_remote *version, struct ps_id *ret)
{
	char hex[PS_ID_HEX_LEN + 1];

	if (!ds->origin->proves_all) {
		ps_object_id(url, version, "grant", ret);
		return;
	}
	ps_id_hex(&ds->catalog->row.id, hex);
	ps_id_of_strings((const char *[]){"all of", hex}, 2, ret);
}

/* Reads the row. Returns the index of this access in it; ret->n: not in it. */
static unsigned get(struct ps_dataset *ds, const struct ps_id *of, struct ps_grants_row *ret)
{
	unsigned i = 0;

	if (ps_index_get_grants(ds->index, of, ret) < 0)
		*ret = (struct ps_grants_row){.n = 0};
	while (i < ret->n && ps_id_cmp(&ret->v[i].access, &ds->access) != 0)
		i++;
	return i;
}

/* False for a time in the future, which comes from a clock that was set back. */
static bool is_within(int64_t given_ms, uint64_t ms)
{
	int64_t now_ms = ps_clock_real_ms();

	return given_ms <= now_ms && (uint64_t)(now_ms - given_ms) < ms;
}

/* The lifetime of a grant. Without credentials a right cannot be withdrawn from one user only. So an
 * anonymous grant lives at least as long as a confirmed version: the next revalidation notices that an
 * object is no longer public. */
static uint64_t ttl_ms(const struct ps_dataset *ds)
{
	uint64_t ms = ds->cache->grant_ttl_ms;

	return ds->anonymous && ms != PS_GRANT_TTL_OPEN_MS ? PS_MAX(ms, ds->revalidate_ms) : ms;
}

enum ps_grant ps_grant_look(struct ps_dataset *ds, const struct ps_id *of)
{
	struct ps_grants_row row;
	unsigned i = get(ds, of, &row);

	if (i == row.n)
		return PS_GRANT_NONE;
	bool expired = row.v[i].expires_ms && ps_clock_real_ms() >= row.v[i].expires_ms;
	return !expired && is_within(row.v[i].given_ms, ttl_ms(ds)) ? PS_GRANT_VALID : PS_GRANT_OLD;
}

enum ps_grant ps_grant_of_row(struct ps_dataset *ds, const struct ps_node_row *row)
{
	struct ps_id of;

	if (!ds->origin->proved || row->remote.size == 0)
		return PS_GRANT_VALID;
	ps_grant_id_of_file(ds, row->url, &row->remote, &of);
	return ps_grant_look(ds, &of);
}

void ps_grant_proved(void *arg, const char *url, const struct ps_remote *version, int64_t key_expires_s)
{
	struct ps_dataset *ds = arg;
	struct ps_id of;

	ps_grant_id_of_file(ds, url, version, &of);
	ps_grant_give(ds, &of, key_expires_s);
}

static void put(struct ps_dataset *ds, const struct ps_id *of, const struct ps_grants_row *row)
{
	struct ps_index_batch *batch = ps_index_batch_new();

	if (row->n)
		ps_index_batch_put_grants(batch, of, row);
	else
		ps_index_batch_del_grants(batch, of);
	if (ps_index_batch_commit_or_keep(ds->index, batch) < 0)
		ps_log_debug("index: a grant cannot be stored: the origin will be asked for it again");
}

void ps_grant_give(struct ps_dataset *ds, const struct ps_id *of, int64_t expires_s)
{
	struct ps_grants_row row;

	PS_LOCK_SCOPE(&ds->cache->grants_lock);
	unsigned i = get(ds, of, &row);
	if (i < row.n && row.v[i].expires_ms == expires_s * 1000 &&
	        is_within(row.v[i].given_ms, ds->cache->grant_ttl_ms / FRESH_SHARE))
		return;
	/* The new grant becomes the first one; if the row is full, the oldest grant is dropped. */
	if (i == row.n && row.n < PS_GRANTS_KEPT)
		row.n++;
	memmove(&row.v[1], &row.v[0], PS_MIN(i, PS_GRANTS_KEPT - 1u) * sizeof(row.v[0]));
	row.v[0].access = ds->access;
	row.v[0].given_ms = ps_clock_real_ms();
	row.v[0].expires_ms = expires_s * 1000;
	put(ds, of, &row);
}

void ps_grant_revoke(struct ps_dataset *ds, const struct ps_id *of)
{
	struct ps_grants_row row;

	PS_LOCK_SCOPE(&ds->cache->grants_lock);
	unsigned i = get(ds, of, &row);
	if (i == row.n)
		return;
	memmove(&row.v[i], &row.v[i + 1], (--row.n - i) * sizeof(row.v[0]));
	put(ds, of, &row);
}

/* Datasets: their failures, their refreshes -------------------------------------------------------------- */

void ps_dataset_note_error(struct ps_dataset *ds, uint64_t node, int errnum, const char *text)
{
	char *copy = strdup(text);

	if (!copy)
		return;
	PS_LOCK_SCOPE(&ds->lock);
	unsigned slot = ds->next_error;
	for (unsigned i = 0; i < PS_DATASET_ERRORS; i++)
		if (ds->errors[i].text && ds->errors[i].node == node)
			slot = i;
	if (slot == ds->next_error)
		ds->next_error = (ds->next_error + 1) % PS_DATASET_ERRORS;
	free(ds->errors[slot].text);
	ds->errors[slot].text = copy;
	ds->errors[slot].node = node;
	ds->errors[slot].errnum = errnum;
}

void ps_refreshes_end(struct ps_list *refreshes, int errnum, const struct ps_refreshed *result)
{
	while (!ps_list_empty(refreshes)) {
		struct ps_refresh *refresh = PS_CONTAINER_OF(refreshes->next, struct ps_refresh, priv.link);

		ps_list_remove(&refresh->priv.link);
		refresh->done(refresh, errnum, result);
	}
}
