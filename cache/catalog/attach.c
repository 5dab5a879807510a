/* One dataset: its attach, its two threads with listings and refreshes, its detach. */
#include "catalog/catalog_private.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/stats.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "base/thread.h"
#include "listing/listing.h"
#include "origin/origin.h"
#include "base/url.h"

#define WAIT_MS 50
#define MISSING_NAMED 3 /* missing names in one text */
/* limit of the interval after failures; a longer interval is not changed */
#define REFRESH_BACKOFF_MAX_MS (3600 * UINT64_C(1000))
/* up to 1 / 10 of the interval earlier, so that the nodes of a cluster do not list together */
#define REFRESH_JITTER 10
#define COMPARED 64 /* names of a page that are compared with those that another access has listed */
#define REVALIDATE_DEFAULT_MS (3600 * UINT64_C(1000))

/* The thread --------------------------------------------------------------------------------------------- */

/* Waits for a signal, but at most WAIT_MS, so that the caller can check for cancellation. The dataset's
 * lock is held. */
static void wait_a_while(struct ps_dataset *ds)
{
	ps_cond_wait_until(&ds->cond, &ds->lock, ps_clock_mono_ns() + WAIT_MS * PS_NS_PER_MS);
}

static uint64_t listed_files(struct ps_dataset *ds, int64_t *ret_listed_ms)
{
	PS_LOCK_SCOPE(&ds->catalog->lock);
	*ret_listed_ms = ds->catalog->row.listed_ms;
	return ds->catalog->row.nfiles;
}

/* Records a grant: the origin lists names of the catalog for this access. */
static void note_shown(struct ps_dataset *ds)
{
	struct ps_id names;

	if (atomic_exchange(&ds->shown_names, true))
		return;
	ps_grant_id_of_names(ds->catalog, &names);
	ps_grant_give(ds, &names, 0);
	PS_LOCK_SCOPE(&ds->lock);
	pthread_cond_broadcast(&ds->cond);
}

struct listing {
	struct ps_dataset *dataset;
	struct ps_merge *merge; /* NULL: stop after the first name, or (compares) after COMPARED names */
	bool any, compares;
	unsigned n, nsame;
	uint64_t ncatalogues;
};

static int take_listed(void *arg, const struct ps_listed *listed)
{
	struct listing *listing = arg;

	if (listed->unread)
		return listing->merge ? ps_merge_add(listing->merge, listed) : 0;
	/* With a filter, catalogues (SHARDS.psc) do not count as files: all of their shards may be hidden. */
	if (listing->dataset->filter && ps_listing_filter_is_catalogue(listed->path)) {
		listing->ncatalogues++;
		return listing->merge ? ps_merge_add(listing->merge, listed) : 0;
	}
	listing->any = true;
	if (listing->compares) {
		listing->nsame += ps_catalog_has(listing->dataset->catalog, listed);
		return ++listing->n < COMPARED ? 0 : -ECANCELED;
	}
	note_shown(listing->dataset);
	return listing->merge ? ps_merge_add(listing->merge, listed) : -ECANCELED;
}

static int none_found(struct ps_dataset *ds, struct ps_error *err)
{
	return ps_error_set(err, ENOENT, "%s: no files found there%s", ds->catalog->row.source,
	        ds->filter ? " that --include and --exclude would show" : "");
}

/* Lists one page, to check that this access may list the source and, if it might be another bucket
 * (compares), that it has the same names; else -EREMCHG. */
static int list_page(struct ps_dataset *ds, struct ps_error *err)
{
	struct listing listing = {.dataset = ds, .compares = ds->compares && !atomic_load(&ds->shown_names)};
	int rc = ds->origin->ops->list(ds->origin, take_listed, &listing, &ds->stop, err);

	if (listing.any && (!listing.compares || 2 * listing.nsame >= listing.n)) {
		note_shown(ds);
		*err = (struct ps_error){0};
		return 0;
	}
	if (listing.any)
		return ps_error_set(err, EREMCHG,
		        "%s: with these credentials it lists other names than with other credentials, so it "
		        "is treated as another bucket",
		        ds->catalog->row.source);
	if (rc == 0)
		return none_found(ds, err);
	return err->err ? -err->err
	                : ps_error_set(err, -rc, "listing %s: %s", ds->catalog->row.source, strerror(-rc));
}

bool ps_dataset_unmatched(const struct ps_dataset *ds, char ret_text[static PS_ERROR_TEXT_LEN])
{
	ps_autostrbuf struct ps_strbuf b = {0};
	bool exclude, unmatched;
	const char *pattern;

	for (size_t i = 0; (pattern = ps_listing_filter_pattern(ds->filter, i, &exclude, &unmatched)); i++)
		if (unmatched)
			ps_strbuf_addf(&b, "%s--%s '%s'", b.len ? ", " : "", exclude ? "exclude" : "include",
			        pattern);
	if (b.len == 0)
		return false;
	snprintf(ret_text, PS_ERROR_TEXT_LEN, "matches no file of the source: %.*s", PS_ERROR_TEXT_LEN - 100,
	        ps_strbuf_peek(&b));
	return true;
}

/* Warns of patterns without a match, only once: a later listing may have files that match. */
static void tell_unmatched(struct ps_dataset *ds)
{
	char text[PS_ERROR_TEXT_LEN];

	if (!ds->filter || atomic_exchange(&ds->told_unmatched, true))
		return;
	ps_listing_filter_listed(ds->filter);
	if (ps_dataset_unmatched(ds, text))
		ps_log_warning("list: %s: %s", ds->catalog->row.source, text);
}

static int list_whole(struct ps_dataset *ds, struct ps_error *err, uint64_t *ret_first_unsized)
{
	struct listing listing = {.dataset = ds, .merge = ps_merge_new(ds)};
	uint64_t nfiles = 0;

	if (!listing.merge)
		return ps_error_set(err, ENOMEM, "out of memory for the listing");
	ps_catalog_none_missing(ds->catalog);
	int rc = ds->origin->ops->list(ds->origin, take_listed, &listing, &ds->stop, err);
	if (rc == 0) {
		rc = ps_merge_finish(listing.merge, &nfiles, ret_first_unsized);
		if (rc < 0)
			ps_error_set(err, -rc, "cannot store the listing in the index: %s", strerror(-rc));
		else if (nfiles == listing.ncatalogues)
			rc = none_found(ds, err);
		if (rc == 0)
			tell_unmatched(ds);
	} else if (!err->err) {
		ps_error_set(err, -rc, "listing %s: %s", ds->catalog->row.source, strerror(-rc));
	}
	if (rc == -EDQUOT)
		ps_error_set(err, EDQUOT,
		        "%s: the index of its names needs more room than --cache-size leaves it; mount with "
		        "a larger one",
		        ds->catalog->row.source);
	ps_merge_free(listing.merge);
	return rc;
}

static bool is_listed(struct ps_dataset *ds)
{
	int64_t listed_ms;

	(void)listed_files(ds, &listed_ms);
	return listed_ms != 0;
}

/* Lists the whole source; or only a page, if another dataset of the catalog has listed it since the
 * request. */
static int list(struct ps_dataset *ds, struct ps_error *err, uint64_t *ret_first_unsized)
{
	bool listed, has_page = false;
	uint64_t since;
	int rc = 0;

	{
		PS_LOCK_SCOPE(&ds->lock);
		since = ds->since;
	}
	while (!ps_catalog_list_begin(ds->catalog, ds, since, &listed)) {
		/* Before the first listing there is nothing to compare. */
		if (!has_page && (listed || !ds->compares || is_listed(ds))) {
			rc = list_page(ds, err);
			has_page = true;
		}
		if (rc < 0 || listed)
			return rc;
		PS_LOCK_SCOPE(&ds->lock);
		if (atomic_load(&ds->stop))
			return ps_error_set(err, ECANCELED, "cancelled");
		wait_a_while(ds);
	}
	if (ds->compares && !atomic_load(&ds->shown_names) && is_listed(ds))
		rc = list_page(ds, err);
	if (rc == 0)
		rc = list_whole(ds, err, ret_first_unsized);
	ps_catalog_list_end(ds->catalog, rc == 0);
	return rc;
}

/* Returns the number of names that are missing or whose state is unknown. *ret_done: no HEADs are
 * outstanding. */
static uint64_t missing_now(struct ps_catalog *catalog, bool *ret_done, char ret[static PS_ERROR_TEXT_LEN])
{
	PS_LOCK_SCOPE(&catalog->lock);
	unsigned long long nfiles = catalog->row.nfiles, nmissing = catalog->nmissing;
	bool done = *ret_done = catalog->nsweeping == 0;

	if (nmissing == 0) {
		snprintf(ret, PS_ERROR_TEXT_LEN,
		        "the origin did not say of %llu of %llu listed files whether it has them",
		        (unsigned long long)catalog->nunknown, nfiles);
		return done ? catalog->nunknown : 0;
	}
	size_t n = (size_t)snprintf(ret, PS_ERROR_TEXT_LEN,
	        "%llu of %llu listed files %s missing at the origin%s, first:", nmissing, nfiles,
	        nmissing == 1 ? "is" : "are", done ? "" : " so far");
	for (size_t i = 0; i < MISSING_NAMED && catalog->missing[i] && n < PS_ERROR_TEXT_LEN; i++)
		n += (size_t)snprintf(
		        ret + n, PS_ERROR_TEXT_LEN - n, "%s %.100s", i ? "," : "", catalog->missing[i]);
	return nmissing + catalog->nunknown;
}

static void add_sweeping(struct ps_catalog *catalog, int n)
{
	PS_LOCK_SCOPE(&catalog->lock);
	catalog->nsweeping += (unsigned)n;
}

/* Waits for the last HEAD of the sweep (files whose size the listing did not give), then reports missing
 * files. */
static void end_sweep(struct ps_dataset *ds, bool report)
{
	char text[PS_ERROR_TEXT_LEN];
	uint64_t n;
	bool done;
	{
		PS_LOCK_SCOPE(&ds->lock);
		while (ds->nsweep > 0 && !atomic_load(&ds->stop))
			wait_a_while(ds);
	}
	add_sweeping(ds->catalog, -1);
	{
		/* A mount may wait for the end of the sweep: ps_dataset_missing(). */
		PS_LOCK_SCOPE(&ds->lock);
		pthread_cond_broadcast(&ds->cond);
	}
	if (!report || atomic_load(&ds->stop) || atomic_load(&ds->asked_again))
		return;
	n = missing_now(ds->catalog, &done, text);
	if (n > 0 && !(ds->origin->lister.quiet && n == ds->nmissing_logged))
		ps_log_warning("list: %s: %s", ds->catalog->row.source, text);
	ds->nmissing_logged = n;
}

int ps_dataset_missing(struct ps_dataset *ds, uint64_t wait_ms, const _Atomic bool *cancelled,
        char ret_text[static PS_ERROR_TEXT_LEN])
{
	uint64_t now_ns = ps_clock_mono_ns(), until_ns = UINT64_MAX, n;
	bool done;

	if (wait_ms < (until_ns - now_ns) / PS_NS_PER_MS)
		until_ns = now_ns + wait_ms * PS_NS_PER_MS;
	while (n = missing_now(ds->catalog, &done, ret_text), !done && ps_clock_mono_ns() < until_ns) {
		if (cancelled && atomic_load(cancelled))
			return -ECANCELED;
		PS_LOCK_SCOPE(&ds->lock);
		if (ds->ended < ds->asked && wait_ms != UINT64_MAX)
			break;
		wait_a_while(ds);
	}
	return n == 0 && !done ? -EAGAIN : (int)PS_MIN(n, (uint64_t)INT_MAX);
}

/* Answers the refreshes that have waited for the listing that has just ended. */
static void end_refreshes(struct ps_dataset *ds, int errnum)
{
	struct ps_list ended, *l, *next;
	struct ps_refreshed result;
	{
		PS_LOCK_SCOPE(&ds->catalog->lock);
		result = (struct ps_refreshed){
		        ds->catalog->row.nfiles, ds->catalog->nadded, ds->catalog->nvanished};
	}
	ps_list_init(&ended);
	{
		PS_LOCK_SCOPE(&ds->lock);
		for (l = ds->refreshes.next; l != &ds->refreshes; l = next) {
			next = l->next;
			if (PS_CONTAINER_OF(l, struct ps_refresh, priv.link)->priv.number <= ds->ended) {
				ps_list_remove(l);
				ps_list_append(&ended, l);
			}
		}
	}
	ps_refreshes_end(&ended, errnum, &result);
}

/* The time of the next listing by interval; UINT64_MAX: never. A listing by another dataset of the catalog
 * counts. The dataset's lock is held. */
static uint64_t due_ns(const struct ps_dataset *ds)
{
	uint64_t ms = ds->refresh_ms, listed_ns = atomic_load(&ds->catalog->listed_ns);

	if (ms == 0)
		return UINT64_MAX;
	for (unsigned i = 0; i + 1 < ds->nfailed && ms < REFRESH_BACKOFF_MAX_MS; i++)
		ms = PS_MIN(ms * 2, REFRESH_BACKOFF_MAX_MS);
	ms -= ms / REFRESH_JITTER * ds->jitter / UINT16_MAX;
	return PS_MAX(ds->ended_ns, listed_ns) + ms * PS_NS_PER_MS;
}

/* Waits until a listing is requested, or due by the refresh interval. True: it is due. */
static bool is_due(struct ps_dataset *ds)
{
	PS_LOCK_SCOPE(&ds->lock);
	while (!atomic_load(&ds->stop) && ds->asked == ds->begun) {
		if (ds->lists_when_watched && ds->watched)
			return true;
		uint64_t due = due_ns(ds);

		if (due == UINT64_MAX)
			pthread_cond_wait(&ds->cond, &ds->lock);
		else if (ps_clock_mono_ns() < due)
			ps_cond_wait_until(&ds->cond, &ds->lock, due);
		else
			return true;
	}
	return false;
}

/* Requests a listing and returns its number. With `joins`, a listing that is in progress satisfies the
 * request. */
static uint64_t ask(struct ps_dataset *ds, bool joins, struct ps_refresh *refresh)
{
	uint64_t since = ps_catalog_listings(ds->catalog, joins), number;
	bool more;

	add_sweeping(ds->catalog, 1);
	{
		PS_LOCK_SCOPE(&ds->lock);
		more = ds->asked == ds->begun && !(joins && ds->begun > ds->ended);
		if (more) {
			ds->asked++;
			atomic_store(&ds->asked_again, true);
		}
		if (ds->asked > ds->begun)
			ds->since = PS_MAX(ds->since, since);
		number = ds->asked;
		if (refresh) {
			refresh->priv.number = number;
			ps_list_append(&ds->refreshes, &refresh->priv.link);
		}
		pthread_cond_broadcast(&ds->cond);
	}
	if (!more)
		add_sweeping(ds->catalog, -1);
	return number;
}

void ps_dataset_refresh(struct ps_refresh *refresh)
{
	(void)ask(refresh->watch->dataset, false, refresh);
}

/* Waits for the next listing, requested or due, and marks it begun. False: the dataset ends; *ret_asked: a
 * requested listing was not made. */
static bool begin_listing(struct ps_dataset *ds, bool *ret_asked)
{
	bool by_time = is_due(ds);

	if (by_time)
		(void)ask(ds, false, NULL);
	ds->origin->lister.quiet = by_time;
	PS_LOCK_SCOPE(&ds->lock);
	*ret_asked = ds->asked > ds->begun;
	ds->begun = ds->asked;
	ds->lists_when_watched = false;
	atomic_store(&ds->asked_again, false);
	atomic_store(&ds->nlisted, 0);
	return !atomic_load(&ds->stop);
}

/* Logs a repeated failure only once. Texts are not compared: the same failure may have another time or
 * address in its text. */
static void log_listing(struct ps_dataset *ds, int rc, const struct ps_error *err)
{
	const struct ps_error *last = &ds->listing_error; /* only this thread writes it */

	if (rc == -ECANCELED)
		return;
	if (rc < 0 && ds->nfailed && last->err == err->err && last->http_status == err->http_status)
		ps_log_debug("list: %s", err->text);
	else if (rc < 0)
		ps_log_warning("list: %s", err->text);
	else if (ds->nfailed)
		ps_log_info("list: %s: listed again, after %u attempts that failed", ds->catalog->row.source,
		        ds->nfailed);
}

static void list_once(struct ps_dataset *ds)
{
	struct ps_error err = {0};
	uint64_t first_unsized = 0;
	uint16_t jitter = 0;

	int rc = list(ds, &err, &first_unsized);
	log_listing(ds, rc, &err);
	if (getrandom(&jitter, sizeof(jitter), GRND_NONBLOCK) != sizeof(jitter))
		jitter = (uint16_t)ps_clock_mono_ns();
	if (rc == -EACCES) {
		struct ps_id names;

		ps_grant_id_of_names(ds->catalog, &names);
		ps_grant_revoke(ds, &names);
	}
	{
		PS_LOCK_SCOPE(&ds->lock);
		ds->ended = ds->begun;
		ds->ended_ns = ps_clock_mono_ns();
		ds->jitter = jitter;
		ds->nfailed = rc == 0 ? 0 : ds->nfailed + 1;
		ds->listing_ok = rc == 0;
		ds->listing_error = err;
		ds->first_unsized = first_unsized;
		pthread_cond_broadcast(&ds->cond);
	}
	end_refreshes(ds, -rc);
	if (first_unsized)
		ps_revalidate_sizes(ds);
	end_sweep(ds, first_unsized);
}

static void *dataset_main(void *arg)
{
	struct ps_dataset *ds = arg;
	bool asked;

	while (begin_listing(ds, &asked)) {
		pthread_setname_np(pthread_self(), "dataset");
		list_once(ds);
		pthread_setname_np(pthread_self(), "dataset-idle");
	}
	if (asked) /* ask() has counted this dataset as sweeping, and no listing will end that */
		add_sweeping(ds->catalog, -1);
	return NULL;
}

static void *prober_main(void *arg)
{
	struct ps_dataset *ds = arg;

	while (!atomic_load(&ds->stop)) {
		uint64_t wake = ps_revalidate_tick(ds, ps_clock_mono_ns());

		PS_LOCK_SCOPE(&ds->lock);
		if (!atomic_load(&ds->stop))
			ps_cond_wait_until(&ds->cond, &ds->lock, wake);
	}
	return NULL;
}

/* Attach ------------------------------------------------------------------------------------------------- */

/* Hashes a digest with the store's salt, so that what is stored reveals nothing of credentials. */
static void keyed(struct ps_store *store, const struct ps_id *digest, struct ps_id *ret)
{
	char hex[PS_ID_HEX_LEN + 1];

	ps_id_hex(digest, hex);
	ps_store_fingerprint(store, hex, ret);
}

static int compare_pattern(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
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
	qsort(sorted, n, sizeof(*sorted), compare_pattern);
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

static void forget(struct ps_dataset *ds)
{
	ps_catalog_put(ds->catalog);
	ps_listing_filter_free(ds->filter);
	for (size_t i = 0; i < PS_DATASET_ERRORS; i++)
		free(ds->errors[i].text);
	for (size_t i = 0; i < PS_DATASET_ALTERNATIONS; i++)
		free(ds->alternations[i].text);
	pthread_mutex_destroy(&ds->merge_lock);
	pthread_mutex_destroy(&ds->lock);
	pthread_cond_destroy(&ds->cond);
	free(ds);
}

/* Waits for the listing with this number; without a time limit if there is no stored listing, or this
 * access may not see it. */
static int wait_listing(struct ps_dataset *ds, uint64_t number, bool stored,
        const struct ps_dataset_options *options, uint64_t *ret_first_unsized, struct ps_error *err)
{
	int64_t listed_ms;
	uint64_t wait_ms =
	        listed_files(ds, &listed_ms) < PS_ATTACH_MANY ? PS_ATTACH_WAIT_MS : PS_ATTACH_WAIT_MANY_MS;

	PS_LOCK_SCOPE(&ds->lock);
	uint64_t until_ns = ps_clock_mono_ns() + wait_ms * PS_NS_PER_MS;
	while (ds->ended < number) {
		if (options->cancelled && atomic_load(options->cancelled))
			return ps_error_set(err, ECANCELED, "%s: interrupted", ds->catalog->row.source);
		wait_a_while(ds);
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
	ps_revalidate(ds, &row, first_checked, &check);
	for (bool done = false; !done;) {
		if (!aborted && cancelled && atomic_load(cancelled)) {
			aborted = true;
			ps_revalidate_drain(ds);
		}
		PS_LOCK_SCOPE(&ds->lock);
		if (!check.done)
			wait_a_while(ds);
		done = check.done;
	}
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

static int start_threads(struct ps_dataset *ds)
{
	int rc;

	bool lists = ds->asked > 0; /* ask() counts the listings that follow */

	add_sweeping(ds->catalog, lists);
	{
		/* The new thread takes this lock before it sets a name of its own (idle or not). Holding
		 * the lock here keeps ps_thread_start() from overwriting that name later. */
		PS_LOCK_SCOPE(&ds->lock);
		rc = ps_thread_start(&ds->thread, "dataset", dataset_main, ds);
	}
	ds->thread_started = rc == 0;
	if (rc < 0)
		add_sweeping(ds->catalog, -(int)lists);
	if (rc == 0) {
		rc = ps_thread_start(&ds->prober, "dataset-probes", prober_main, ds);
		ds->prober_started = rc == 0;
	}
	return rc;
}

int ps_dataset_new(struct ps_cache *cache, const char *source, const char *canonical,
        const struct ps_dataset_id *id, const struct ps_dataset_options *options, struct ps_dataset **ret,
        struct ps_error *err)
{
	struct ps_dataset *ds = calloc(1, sizeof(*ds));
	uint64_t first_unsized = 0;

	if (!ds)
		return ps_error_set(err, ENOMEM, "out of memory");
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

	int rc = cache->prefetch->start(ds);
	if (rc < 0)
		ps_error_set(err, -rc, "out of memory");
	if (rc == 0)
		rc = ps_listing_filter_new(options->include, options->exclude, &ds->filter, err);
	struct ps_origin_options origin = options->origin;
	/* The fill engine keeps to the limit of connections for its gets; this option applies it to HEADs
	 * and listings. */
	if (!origin.http.max_connections)
		origin.http.max_connections = ps_fill_max_connections(cache->fill);
	origin.http.reader_timeout_ms = ps_fill_timeout_ns(cache->fill) / PS_NS_PER_MS;
	if (rc == 0)
		rc = ps_origin_open(source, &origin, &ds->origin, err);
	if (rc < 0) {
		cache->prefetch->stop_plans(ds);
		cache->prefetch->stop(ds);
		forget(ds);
		return rc;
	}
	rc = ps_catalog_get(cache, id, canonical, &ds->catalog);
	if (rc < 0) {
		ps_error_set(err, -rc, "cannot use the index in %s: %s", ps_store_dir(cache->store),
		        strerror(-rc));
		ps_dataset_free(ds);
		return rc;
	}
	ds->origin->lister.filter = ds->filter;
	ds->origin->route = ds->catalog->route[0] ? ds->catalog->route : NULL;
	if (!ds->origin->local) {
		ds->origin->proved = ps_grant_proved;
		ds->origin->proved_arg = ds;
	}
	int64_t listed_ms;
	struct ps_id names;
	(void)listed_files(ds, &listed_ms);
	bool stored = listed_ms != 0;
	ds->since = ps_catalog_listings(ds->catalog, true);
	ps_grant_id_of_names(ds->catalog, &names);
	atomic_store(&ds->shown_names, ps_grant_look(ds, &names) != PS_GRANT_NONE);
	if (options->resumes)
		atomic_store(&ds->shown_names, true);
	rc = options->resumes && !stored
	             ? ps_error_set(err, ESTALE, "%s: the index has lost its names", canonical)
	             : 0;
	if (rc == 0 && (rc = start_threads(ds)) < 0)
		ps_error_set(err, -rc, "cannot start a thread: %s", strerror(-rc));
	if (rc == 0 && !options->resumes)
		rc = wait_listing(ds, 1, stored, options, &first_unsized, err);
	if (rc == 0 && first_unsized && !stored) {
		rc = check_first(ds, first_unsized, options->cancelled, err);
		if (rc < 0)
			forget_listing(ds);
	}
	if (rc < 0) {
		ps_dataset_free(ds);
		return rc;
	}
	*ret = ds;
	return 0;
}

int ps_dataset_rejoin(struct ps_dataset *ds, const struct ps_dataset_options *options, struct ps_error *err)
{
	uint64_t first_unsized;

	if (options->resumes)
		return 0;
	return wait_listing(ds, ask(ds, true, NULL), true, options, &first_unsized, err);
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
	ps_decompress_abort(ds->cache->decompress, ds->origin);
	ps_fill_drain(ds->cache->fill, ds->origin);
	ps_decompress_drain(ds->cache->decompress, ds->origin);
	ds->origin->ops->close(ds->origin);
	forget(ds);
}

uint64_t ps_dataset_root(const struct ps_dataset *ds)
{
	return ds->catalog->row.root;
}

int64_t ps_dataset_root_mtime_s(const struct ps_dataset *ds)
{
	struct ps_node_row row;

	if (ps_index_get_node(ds->index, ds->catalog->row.root, &row) < 0)
		return 0;
	int64_t mtime_s = PS_MAX(row.remote.mtime_s, 0);
	ps_node_row_fini(&row);
	return mtime_s;
}

uint64_t ps_dataset_revalidate_ms(const struct ps_dataset *ds)
{
	return ds->revalidate_ms;
}

const char *ps_dataset_source(const struct ps_dataset *ds)
{
	return ds->catalog->row.source;
}

bool ps_dataset_versionless(const struct ps_dataset *ds)
{
	return atomic_load(&ds->catalog->versionless);
}

static json_t *missing_names(struct ps_catalog *catalog, uint64_t *ret_n)
{
	json_t *names = json_array();

	PS_LOCK_SCOPE(&catalog->lock);
	*ret_n = catalog->nmissing;
	for (size_t i = 0; i < PS_DATASET_MISSING; i++)
		if (catalog->missing[i])
			json_array_append_new(names, ps_json_lossy(catalog->missing[i]));
	return names;
}

/* The dataset's lock is held. */
static json_t *next_listing(const struct ps_dataset *ds)
{
	uint64_t now_ns = ps_clock_mono_ns(), due = due_ns(ds);

	if (due == UINT64_MAX)
		return json_null();
	return json_integer(
	        ps_clock_real_s() + (json_int_t)((due > now_ns ? due - now_ns : 0) / PS_NS_PER_S));
}

/* Names that are looked at one by one: of more, counting would hold up who asks for the statistics. */
#define COUNT_MAX_NAMES 20000
#define COUNT_SHARE 50 /* counting takes at most one part in this many of the time */

/* The sum of a number over the files below a directory. */
static uint64_t sum_below(struct ps_dataset *ds, uint64_t dir, int depth,
        uint64_t (*of)(struct ps_dataset *ds, const struct ps_node_row *row))
{
	struct ps_index_children *it;
	const char *name;
	uint64_t node, sum = 0;

	if (depth > PS_LIST_MAX_DEPTH || ps_index_children_open(ds->index, dir, &it) < 0)
		return 0;
	while (ps_index_children_next(it, &name, &node)) {
		struct ps_node_row row;

		if (ps_index_get_node(ds->index, node, &row) < 0)
			continue;
		if (row.kind == PS_NODE_DIR)
			sum += sum_below(ds, node, depth + 1, of);
		else if (row.remote.size != PS_SIZE_UNKNOWN)
			sum += of(ds, &row);
		ps_node_row_fini(&row);
	}
	ps_index_children_close(it);
	return sum;
}

static uint64_t shown_nbytes(struct ps_dataset *ds, const struct ps_node_row *row)
{
	uint64_t size = ps_view_size(ds, row);

	return size == PS_SIZE_UNKNOWN ? 0 : size;
}

/* Counts again if that is due. Two threads may count at the same time, and come to the same. */
static uint64_t counted(struct ps_dataset *ds, struct ps_counted *c,
        uint64_t (*of)(struct ps_dataset *ds, const struct ps_node_row *row))
{
	uint64_t now_ns = ps_clock_mono_ns();
	{
		PS_LOCK_SCOPE(&ds->lock);
		if (now_ns < c->again_ns)
			return c->nbytes;
	}
	uint64_t nbytes = sum_below(ds, ds->catalog->row.root, 0, of), end_ns = ps_clock_mono_ns();
	PS_LOCK_SCOPE(&ds->lock);
	c->nbytes = nbytes;
	c->again_ns = end_ns + (end_ns - now_ns) * COUNT_SHARE;
	return nbytes;
}

uint64_t ps_dataset_nbytes(struct ps_dataset *ds)
{
	int64_t listed_ms;

	if (listed_files(ds, &listed_ms) > COUNT_MAX_NAMES)
		return 0;
	return counted(ds, &ds->shown, shown_nbytes);
}

/* The store books each object to the dataset that opened it last, so if there are other datasets, files of this one
 * may be booked to them. */
static bool must_count(struct ps_dataset *ds, uint64_t nfiles)
{
	return nfiles <= COUNT_MAX_NAMES && ps_store_has_others(ds->cache->store, ds->catalog->row.number);
}

void ps_dataset_count(struct ps_dataset *ds)
{
	int64_t listed_ms;

	if (must_count(ds, listed_files(ds, &listed_ms)))
		(void)counted(ds, &ds->cached, ps_view_cached_nbytes);
}

/* What the dataset's files have in the cache, without counting. */
static uint64_t cached_nbytes(struct ps_dataset *ds, uint64_t nfiles)
{
	uint64_t booked = ps_store_dataset_nbytes(ds->cache->store, ds->catalog->row.number);

	if (!must_count(ds, nfiles))
		return booked;
	PS_LOCK_SCOPE(&ds->lock);
	return PS_MAX(ds->cached.nbytes, booked);
}

json_t *ps_dataset_stats(struct ps_dataset *ds)
{
	int64_t listed_ms;
	uint64_t nmissing, nfiles = listed_files(ds, &listed_ms);
	json_t *names = missing_names(ds->catalog, &nmissing);

	json_t *include = json_array(), *exclude = json_array(), *unmatched = json_array();
	bool excludes, in_vain;
	const char *pattern;
	for (size_t i = 0; (pattern = ps_listing_filter_pattern(ds->filter, i, &excludes, &in_vain)); i++) {
		json_array_append_new(excludes ? exclude : include, ps_json_lossy(pattern));
		if (in_vain)
			json_array_append_new(unmatched, ps_json_lossy(pattern));
	}

	uint64_t cached = cached_nbytes(ds, nfiles);

	json_t *tier = ds->origin->tiers ? ps_tiers_stats(ds->origin->tiers) : NULL;

	PS_LOCK_SCOPE(&ds->lock);
	return json_pack("{s:I,s:o,s:o,s:o,s:o,s:I,s:I,s:o,s:I,s:b,s:o,s:b,s:I,s:I,s:o,s:b,s:I,s:s,s:o,s:o*}",
	        "cached_bytes", (json_int_t)cached, "include", include, "exclude", exclude, "unmatched",
	        unmatched, "source", ps_json_lossy(ds->catalog->row.source), "files",
	        (json_int_t)(nfiles - PS_MIN(nmissing, nfiles)), "listed_at", (json_int_t)(listed_ms / 1000),
	        "next_listing_at", next_listing(ds), "refresh_seconds", (json_int_t)(ds->refresh_ms / 1000),
	        "listing", (int)(ds->ended < ds->asked), "listing_error",
	        ps_json_lossy(ds->ended > 0 && !ds->listing_ok ? ds->listing_error.text : ""), "offline",
	        (int)atomic_load(&ds->offline), "opens", (json_int_t)atomic_load(&ds->nopens), "missing",
	        (json_int_t)nmissing, "missing_names", names, "versionless", (int)ps_dataset_versionless(ds),
	        "skipped", (json_int_t)atomic_load(&ds->origin->lister.nskipped), "version_by",
	        ds->by_size ? "size" : "version", "route", ps_json_lossy(ds->route_text), "tier", tier);
}
