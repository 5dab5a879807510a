/* A dataset: its identity, its attach, its detach. */
#include "catalog/catalog_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "base/thread.h"
#include "listing/listing.h"
#include "origin/origin.h"
#include "base/url.h"

#define REPORT_MS 50 /* how often a waiting attach reports how many names are listed */
#define REVALIDATE_DEFAULT_MS (3600 * UINT64_C(1000))

/* Hashes a digest with the store's salt, so that what is stored reveals nothing of credentials. */
static void keyed(struct ps_store *store, const struct ps_id *digest, struct ps_id *ret)
{
	char hex[PS_ID_HEX_LEN + 1];

	ps_id_hex(digest, hex);
	ps_store_fingerprint(store, hex, ret);
}

/* Adds patterns to the id: other patterns show other names. They are sorted, because their order means
 * nothing. */
static int add_patterns(struct ps_id *id, const char *kind, const char *const *patterns)
{
	size_t n = 0;

	while (patterns && patterns[n])
		n++;
	ps_autofree const char **sorted = calloc(n + 1, sizeof(*sorted));
	if (!sorted)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		sorted[i] = patterns[i];
	qsort(sorted, n, sizeof(*sorted), ps_text_compare);
	for (size_t i = 0; i < n; i++) {
		char hex[PS_ID_HEX_LEN + 1];

		if (i > 0 && strcmp(sorted[i], sorted[i - 1]) == 0)
			continue;
		ps_id_hex(id, hex);
		ps_id_of_strings((const char *[]){hex, kind, sorted[i]}, 3, id);
	}
	return 0;
}

int ps_dataset_id(struct ps_store *store, const char *canonical, const char *source,
        const struct ps_dataset_options *options, struct ps_dataset_id *ret)
{
	struct ps_identity identity;
	struct ps_id names;
	char hex[PS_ID_HEX_LEN + 1];
	int rc = ps_identity_of(source, canonical, &options->origin, &identity);

	if (rc < 0)
		return rc;
	keyed(store, &identity.access, &ret->access);
	ret->anonymous = identity.anonymous;
	memcpy(ret->route_text, identity.route_text, sizeof(ret->route_text));
	keyed(store, &identity.names, &names);
	ret->route[0] = '\0';
	if (identity.has_route) {
		struct ps_id route;

		keyed(store, &identity.route, &route);
		ps_id_hex(&route, ret->route);
	}
	ps_id_hex(&names, hex);
	ps_id_of_strings(
	        (const char *[]){"dataset", canonical, hex, options->raw ? "raw" : ""}, 4, &ret->catalog);
	rc = add_patterns(&ret->catalog, "include", options->include);
	if (rc == 0)
		rc = add_patterns(&ret->catalog, "exclude", options->exclude);
	if (rc < 0)
		return rc;
	ret->may_be_another = identity.names_for_all && identity.has_endpoint;
	char access[PS_ID_HEX_LEN + 1];
	ps_id_hex(&ret->access, access);
	ps_id_hex(&ret->catalog, hex);
	ps_id_of_strings((const char *[]){"own", hex, access}, 3, &ret->own_catalog);
	return 0;
}

/* Waits for the listing with this number; without a time limit if there is no stored listing, or this
 * access may not see it. */
static int wait_listing(struct ps_dataset *ds, uint64_t number, bool stored,
        const struct ps_dataset_options *options, uint64_t *ret_first_unsized, struct ps_error *err)
{
	int64_t listed_ms;
	uint64_t wait_ms = ps_dataset_listed_files(ds, &listed_ms) < PS_ATTACH_MANY ? PS_ATTACH_WAIT_MS
	                                                                            : PS_ATTACH_WAIT_MANY_MS;

	PS_LOCK_SCOPE(&ds->lock);
	uint64_t until_ns = ps_clock_mono_ns() + wait_ms * PS_NS_PER_MS;
	while (ds->ended < number) {
		if (options->cancelled && atomic_load(options->cancelled))
			return ps_error_set(err, ECANCELED, "%s: interrupted", ds->catalog->row.source);
		uint64_t now_ns = ps_clock_mono_ns(), wake_ns = UINT64_MAX;
		if (options->listed)
			wake_ns = now_ns + REPORT_MS * PS_NS_PER_MS;
		if (stored && (now_ns < until_ns || atomic_load(&ds->shown_names)))
			wake_ns = PS_MIN(wake_ns, until_ns);
		ps_cond_wait_until(&ds->cond, &ds->lock, wake_ns);
		if (options->listed) {
			pthread_mutex_unlock(&ds->lock);
			options->listed(
			        options->listed_arg, ds->catalog->row.source, atomic_load(&ds->nlisted));
			pthread_mutex_lock(&ds->lock);
		}
		if (stored && atomic_load(&ds->shown_names) && ds->ended < number &&
		        ps_clock_mono_ns() >= until_ns) {
			ps_log_info("list: %s: using the stored listing while the new one is on its way",
			        ds->catalog->row.source);
			return 0;
		}
	}
	*ret_first_unsized = ds->first_unsized;
	if (ds->listing_ok)
		return 0;
	/* ENOENT and EACCES are answers of the origin; other errors count as no answer. */
	bool no_answer = stored && ds->listing_error.err != ENOENT && ds->listing_error.err != EACCES;
	if (no_answer && !atomic_load(&ds->shown_names)) {
		if (err) {
			*err = ds->listing_error;
			ps_error_prefix(err, -err->err,
			        "these credentials have not listed this source before, and cannot now");
		}
		return -ds->listing_error.err;
	}
	if (no_answer) {
		ps_log_warning("list: %s: %s; using the stored listing", ds->catalog->row.source,
		        ds->listing_error.err == ENOMEM ? "out of memory" : "the origin does not answer");
		return 0;
	}
	if (err)
		*err = ds->listing_error;
	return -ds->listing_error.err;
}

struct first_check {
	struct ps_dataset *dataset;
	bool done;
	int errnum;
};

static void first_checked(void *arg, int errnum, const struct ps_attr *attr)
{
	struct first_check *check = arg;

	(void)attr;
	PS_LOCK_SCOPE(&check->dataset->lock);
	check->errnum = errnum;
	check->done = true;
	pthread_cond_broadcast(&check->dataset->cond);
}

/* For a source that no listing has confirmed (braces, a manifest): checks one file, to see whether the
 * source exists. */
static int check_first(
        struct ps_dataset *ds, uint64_t node, const _Atomic bool *cancelled, struct ps_error *err)
{
	bool aborted = false;
	struct first_check check = {.dataset = ds};
	struct ps_node_info info = {0};
	struct ps_node_row row;
	int rc = ps_index_get_node(ds->index, node, &row);

	if (rc < 0)
		return rc == -ENOENT ? 0 : ps_error_set(err, -rc, "cannot read the index: %s", strerror(-rc));
	ps_revalidate(ds, &row, false, first_checked, &check);
	pthread_mutex_lock(&ds->lock);
	while (!check.done) {
		if (aborted || !cancelled || !atomic_load(cancelled)) {
			pthread_cond_wait(&ds->cond, &ds->lock);
			continue;
		}
		aborted = true;
		pthread_mutex_unlock(&ds->lock);
		ps_revalidate_drain(ds);
		pthread_mutex_lock(&ds->lock);
	}
	pthread_mutex_unlock(&ds->lock);
	if (aborted)
		check.errnum = ECANCELED; /* whatever the HEAD found: the dataset's origin was aborted */
	if (check.errnum) {
		const char *why = strerror(check.errnum);

		if (check.errnum == ENOENT && strncmp(row.url, "file:", 5) != 0 && strchr(row.url, '*'))
			why = "not found at the origin (404); wildcards do not work here: write {000..127} "
			      "braces, or the folder's URL with a / at its end";
		else if (check.errnum == ENOENT)
			why = strncmp(row.url, "file:", 5) == 0 ? "there is no such file or folder"
			      : strncmp(row.url, "az:", 3) == 0
			              ? "not found at the origin (404): there is no such blob, or no "
			                "container of that name"
			              : "not found at the origin (404); check the URL";
		else if (aborted)
			why = "interrupted";
		else if (check.errnum == EACCES && !ps_s3_url_is(row.url))
			why = "the origin refuses access; check the credentials (--user, --header)";
		else if (ps_node_info_get(ds, node, &info) == 0 && info.error && info.error[0])
			why = info.error;
		rc = ps_error_set(err, check.errnum, "%s: %s", row.url, why);
		ps_node_info_fini(&info);
	}
	ps_node_row_fini(&row);
	return rc;
}

/* Marks a source that was not found as never listed, so that the next attach checks again. */
static void forget_listing(struct ps_dataset *ds)
{
	struct ps_index_batch *batch = ps_index_batch_new();

	PS_LOCK_SCOPE(&ds->catalog->names_lock);
	{
		PS_LOCK_SCOPE(&ds->catalog->lock);
		ds->catalog->row.listed_ms = 0;
		ps_index_batch_put_dataset(batch, &ds->catalog->row);
	}
	if (ps_index_batch_commit(ds->index, batch) < 0)
		ps_log_warning(
		        "index: the listing of %s cannot be marked as invalid", ds->catalog->row.source);
}

static void init(struct ps_dataset *ds, struct ps_cache *cache, const struct ps_dataset_id *id,
        const struct ps_dataset_options *options)
{
	ds->cache = cache;
	ds->index = ps_store_index(cache->store);
	ds->by_size = options->origin.by_size;
	ds->checksums = options->checksums;
	ds->revalidate_ms = options->revalidate_ms ? options->revalidate_ms : REVALIDATE_DEFAULT_MS;
	ds->access = id->access;
	ds->anonymous = id->anonymous;
	memcpy(ds->route_text, id->route_text, sizeof(ds->route_text));
	ds->raw = options->raw;
	ds->compares = id->may_be_another;
	ps_list_init(&ds->probes);
	ps_list_init(&ds->refreshes);
	ds->lists_when_watched = options->resumes;
	ds->asked = options->resumes ? 0 : 1;
	pthread_mutex_init(&ds->merge_lock, NULL);
	pthread_mutex_init(&ds->lock, NULL);
	ps_cond_init(&ds->cond);
	PS_LOCK_SCOPE(&cache->lock);
	ps_list_append(&cache->datasets, &ds->link);
}

static int open_origin(struct ps_dataset *ds, const char *source, const struct ps_origin_options *options,
        struct ps_error *err)
{
	struct ps_origin_options origin = *options;
	struct ps_fill *fill = ds->cache->fill;

	/* The fill engine keeps to the limit of connections for its gets; this option applies it to HEADs
	 * and listings. */
	if (!origin.http.max_connections)
		origin.http.max_connections = ps_fill_max_connections(fill);
	origin.http.reader_timeout_ms = ps_fill_timeout_ns(fill) / PS_NS_PER_MS;
	int rc = ps_origin_open(source, &origin, &ds->origin, err);
	if (rc < 0)
		return rc;
	ds->origin->lister.filter = ds->filter;
	if (!ds->origin->local) {
		ds->origin->proved = ps_grant_proved;
		ds->origin->proved_arg = ds;
	}
	return 0;
}

/* Gets the catalog, and looks up whether this access may see its names. *ret_stored: they were listed before. */
static int join_catalog(struct ps_dataset *ds, const char *canonical, const struct ps_dataset_id *id,
        bool resumes, bool *ret_stored, struct ps_error *err)
{
	int rc = ps_catalog_get(ds->cache, id, canonical, &ds->catalog);
	struct ps_id names;
	int64_t listed_ms;

	if (rc < 0)
		return ps_error_set(err, -rc, "cannot use the index in %s: %s",
		        ps_store_dir(ds->cache->store), strerror(-rc));
	(void)ps_dataset_listed_files(ds, &listed_ms);
	*ret_stored = listed_ms != 0;
	if (resumes && !*ret_stored)
		return ps_error_set(err, ESTALE, "%s: the index has lost its names", canonical);
	ds->origin->route = ds->catalog->route[0] ? ds->catalog->route : NULL;
	ds->since = ps_catalog_listings(ds->catalog, true);
	ps_grant_id_of_names(ds->catalog, &names);
	atomic_store(&ds->shown_names, resumes || ps_grant_look(ds, &names) != PS_GRANT_NONE);
	return 0;
}

int ps_dataset_new(struct ps_cache *cache, const char *source, const char *canonical,
        const struct ps_dataset_id *id, const struct ps_dataset_options *options, struct ps_dataset **ret,
        struct ps_error *err)
{
	struct ps_dataset *ds = calloc(1, sizeof(*ds));
	uint64_t first_unsized = 0;
	bool stored = false;

	if (!ds)
		return ps_no_memory(err);
	init(ds, cache, id, options);
	int rc = (options->whole && !(ds->whole = strdup(options->whole))) || cache->prefetch->start(ds) < 0
	                 ? ps_no_memory(err)
	                 : 0;
	if (rc == 0)
		rc = ps_listing_filter_new(options->include, options->exclude, &ds->filter, err);
	if (rc == 0)
		rc = open_origin(ds, source, &options->origin, err);
	if (rc == 0)
		rc = join_catalog(ds, canonical, id, options->resumes, &stored, err);
	if (rc == 0)
		rc = ps_dataset_start_threads(ds, err);
	if (rc == 0 && !options->resumes)
		rc = wait_listing(ds, 1, stored, options, &first_unsized, err);
	if (rc == 0 && !stored && first_unsized) {
		rc = check_first(ds, first_unsized, options->cancelled, err);
		if (rc < 0)
			forget_listing(ds);
	}
	if (rc < 0)
		ps_dataset_free(ds);
	else
		*ret = ds;
	return rc;
}

int ps_dataset_rejoin(struct ps_dataset *ds, const struct ps_dataset_options *options, struct ps_error *err)
{
	uint64_t first_unsized;

	if (options->resumes)
		return 0;
	return wait_listing(ds, ps_dataset_ask(ds, true, NULL), true, options, &first_unsized, err);
}

void ps_dataset_free(struct ps_dataset *ds)
{
	{
		PS_LOCK_SCOPE(&ds->lock);
		atomic_store(&ds->stop, true);
		pthread_cond_broadcast(&ds->cond);
	}
	ps_revalidate_drain(ds);
	if (ds->thread_started)
		pthread_join(ds->thread, NULL);
	if (ds->prober_started)
		pthread_join(ds->prober, NULL);
	ds->cache->prefetch->stop_plans(ds);
	ps_revalidate_drain(ds); /* the sweep or a plan may have started another probe */
	ds->cache->prefetch->stop(ds);
	if (ds->origin) { /* else the attach failed before */
		ps_decompress_abort(ds->cache->decompress, ds->origin);
		ps_fill_drain(ds->cache->fill, ds->origin);
		ps_decompress_drain(ds->cache->decompress, ds->origin);
		ds->origin->ops->close(ds->origin);
	}
	{
		PS_LOCK_SCOPE(&ds->cache->lock);
		ps_list_remove(&ds->link);
	}
	ps_catalog_put(ds->catalog);
	ps_listing_filter_free(ds->filter);
	free(ds->whole);
	for (size_t i = 0; i < PS_DATASET_ERRORS; i++)
		free(ds->errors[i].text);
	for (size_t i = 0; i < PS_DATASET_ALTERNATIONS; i++)
		free(ds->alternations[i].text);
	pthread_mutex_destroy(&ds->merge_lock);
	pthread_mutex_destroy(&ds->lock);
	pthread_cond_destroy(&ds->cond);
	free(ds);
}
