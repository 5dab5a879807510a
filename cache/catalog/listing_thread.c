/* The two threads of a dataset: one lists the source when that is requested or due, one sends HEADs. */
#include "catalog/catalog_private.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "base/thread.h"
#include "listing/listing.h"
#include "origin/origin.h"

#define MISSING_NAMED 3 /* missing names in one text */
/* limit of the interval after failures; a longer interval is not changed */
#define REFRESH_BACKOFF_MAX_MS (3600 * UINT64_C(1000))
/* up to 1 / 10 of the interval earlier, so that the nodes of a cluster do not list together */
#define REFRESH_JITTER 10
#define COMPARED 64 /* names of a page that are compared with those that another access has listed */

static uint64_t wakes_of(struct ps_dataset *ds)
{
	PS_LOCK_SCOPE(&ds->lock);
	return ds->nwakes;
}

uint64_t ps_dataset_listed_files(struct ps_dataset *ds, int64_t *ret_listed_ms)
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

	(void)ps_dataset_listed_files(ds, &listed_ms);
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
	for (;;) {
		uint64_t wakes = wakes_of(ds);

		if (ps_catalog_list_begin(ds->catalog, ds, since, &listed))
			break;
		/* Before the first listing there is nothing to compare. */
		if (!has_page && (listed || !ds->compares || is_listed(ds))) {
			rc = list_page(ds, err);
			has_page = true;
		}
		if (rc < 0 || listed)
			return rc;
		PS_LOCK_SCOPE(&ds->lock);
		while (ds->nwakes == wakes && !atomic_load(&ds->stop))
			pthread_cond_wait(&ds->cond, &ds->lock);
		if (atomic_load(&ds->stop))
			return ps_error_set(err, ECANCELED, "cancelled");
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
	{
		PS_LOCK_SCOPE(&catalog->lock);
		catalog->nsweeping += (unsigned)n;
	}
	if (n < 0) /* a mount may wait for the end of the sweep: ps_dataset_missing() */
		ps_cache_wake(catalog->cache);
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
			pthread_cond_wait(&ds->cond, &ds->lock);
	}
	add_sweeping(ds->catalog, -1);
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
	for (;;) {
		uint64_t wakes = wakes_of(ds);

		n = missing_now(ds->catalog, &done, ret_text);
		if (done || ps_clock_mono_ns() >= until_ns)
			break;
		if (cancelled && atomic_load(cancelled))
			return -ECANCELED;
		PS_LOCK_SCOPE(&ds->lock);
		if (ds->ended < ds->asked && wait_ms != UINT64_MAX)
			break;
		if (ds->nwakes == wakes)
			ps_cond_wait_until(&ds->cond, &ds->lock, until_ns);
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

uint64_t ps_dataset_due_ns(const struct ps_dataset *ds)
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
		uint64_t due = ps_dataset_due_ns(ds);

		if (due == UINT64_MAX)
			pthread_cond_wait(&ds->cond, &ds->lock);
		else if (ps_clock_mono_ns() < due)
			ps_cond_wait_until(&ds->cond, &ds->lock, due);
		else
			return true;
	}
	return false;
}

uint64_t ps_dataset_ask(struct ps_dataset *ds, bool joins, struct ps_refresh *refresh)
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
	(void)ps_dataset_ask(refresh->watch->dataset, false, refresh);
}

/* Waits for the next listing, requested or due, and marks it begun. False: the dataset ends; *ret_asked: a
 * requested listing was not made. */
static bool begin_listing(struct ps_dataset *ds, bool *ret_asked)
{
	bool by_time = is_due(ds);

	if (by_time)
		(void)ps_dataset_ask(ds, false, NULL);
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

	int rc = list(ds, &err, &first_unsized);
	log_listing(ds, rc, &err);
	if (rc == -EACCES) {
		struct ps_id names;

		ps_grant_id_of_names(ds->catalog, &names);
		ps_grant_revoke(ds, &names);
	}
	{
		PS_LOCK_SCOPE(&ds->lock);
		ds->ended = ds->begun;
		ds->ended_ns = ps_clock_mono_ns();
		ds->jitter = (uint16_t)ps_clock_jitter(UINT16_MAX);
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
	if (asked) /* ps_dataset_ask() has counted this dataset as sweeping, and no listing will end that */
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

int ps_dataset_start_threads(struct ps_dataset *ds, struct ps_error *err)
{
	bool lists = ds->asked > 0; /* ps_dataset_ask() counts the listings that follow */
	int rc;

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
	return rc < 0 ? ps_error_set(err, -rc, "cannot start a thread: %s", strerror(-rc)) : 0;
}
