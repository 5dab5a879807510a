#include "cli/warm.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/process.h"
#include "base/size.h"
#include "base/strbuf.h"
#include "base/progress.h"

#define POLL_MS 100
/* A request that failed for good shows only as lack of progress, so it is repeated after this time. */
#define AGAIN_NS (10 * PS_NS_PER_S)
/* A file with a known error and no progress for FAILED_NS has failed. Without an error the cache may just
 * be slow, so the limit is STUCK_NS. While no file makes progress, the mount's --timeout replaces FAILED_NS
 * if it is shorter, but at least FAILED_LEAST_NS. */
#define FAILED_NS (25 * PS_NS_PER_S)
#define FAILED_LEAST_NS (3 * PS_NS_PER_S)
#define STUCK_NS (120 * PS_NS_PER_S)
#define FAILURES_TOLD 10
/* For a second after the cache had no room, it refuses files, even if room was made meanwhile. */
#define REFUSED_MS 1100

struct run {
	const struct ps_warm_target *target;
	const struct ps_warm_options *options;
	struct ps_warm_list list;
	struct ps_progress progress;
	uint64_t patience_ns; /* how long a file with an error may be without progress */
	uint64_t came_ns;     /* time of the last progress of any file */
	size_t next, active, failed;
	size_t nfinal;   /* failed files for which another attempt would fail, too */
	bool refused;    /* at least one file was refused for lack of room */
	size_t timeouts; /* files that failed after a long wait, since the last progress */
	bool unranged;   /* the origin ignores ranges, so that the other files would fail, too */
};

void ps_warm_add(struct ps_warm_list *list, const char *path, uint64_t size, uint64_t node)
{
	if (list->n == list->cap) {
		list->cap = list->cap ? 2 * list->cap : 64;
		list->v = ps_need(reallocarray(list->v, list->cap, sizeof(*list->v)));
	}
	list->v[list->n++] =
	        (struct ps_warm_item){.path = ps_need(strdup(path)), .size = size, .fd = -1, .node = node};
}

static void list_fini(const struct ps_warm_target *target, struct ps_warm_list *list)
{
	for (size_t i = 0; i < list->n; i++) {
		target->end(target->ctx, &list->v[i]);
		free(list->v[i].path);
	}
	free(list->v);
}

static bool ignores_ranges(const char *error)
{
	return error && strstr(error, "ignores Range requests");
}

/* True for errors that waiting does not change: access, a missing name. */
static bool is_final(int errnum, const char *why)
{
	return errnum == EACCES || errnum == ENOENT || strstr(why, "HTTP 401") || strstr(why, "HTTP 403") ||
	       strstr(why, "HTTP 404") || strstr(why, "HTTP 410") || ignores_ranges(why);
}

static void fail(struct run *r, struct ps_warm_item *item, int errnum, const char *why)
{
	r->nfinal += is_final(errnum, why);
	r->unranged = r->unranged || ignores_ranges(why);
	if (item->state == PS_WARM_STARTED)
		r->active--;
	item->state = PS_WARM_FAILED;
	r->target->end(r->target->ctx, item);
	ps_progress_end(&r->progress);
	if (r->failed++ < FAILURES_TOLD)
		ps_cli_fail("warm", PS_EXIT_FAILED, "%s: %s", item->path, why);
}

static void sum(const struct run *r, uint64_t *ret_cached, uint64_t *ret_total)
{
	*ret_cached = *ret_total = 0;
	for (size_t i = 0; i < r->list.n; i++) {
		*ret_cached += r->list.v[i].cached;
		*ret_total += r->list.v[i].size;
	}
}

/* The reason why the cache has no room: its disk or its quota. The caller frees it. */
static char *no_room(const struct ps_warm_target *target)
{
	ps_autostrbuf struct ps_strbuf b = {0};
	json_t *stats = target->stats(target->ctx);
	const json_t *cache = json_object_get(stats, "cache");
	const char *error = json_string_value(json_object_get(cache, "disk_error"));
	const char *dir = json_string_value(json_object_get(cache, "dir"));
	json_int_t floor = json_integer_value(json_object_get(cache, "min_free_bytes"));
	char size[PS_SIZE_TEXT_LEN];

	if (error && *error && dir) {
		ps_strbuf_addf(&b, "%s: %s", error, dir);
		if (floor > 1)
			ps_strbuf_addf(&b, "; --min-free keeps %s free there",
			        ps_size_format((uint64_t)floor, size));
	} else {
		ps_strbuf_add(&b,
		        "no room in the cache; raise --cache-size or lower --min-free, evict files, or close "
		        "files that were evicted while open (held_bytes in penstock status --json)");
	}
	json_decref(stats);
	return ps_need(ps_strbuf_take(&b));
}

/* Reports the error in the file's attribute, or that of the call. */
static void fail_to_start(struct run *r, struct ps_warm_item *item, int rc)
{
	ps_autofree char *error = NULL, *room = rc == -ENOSPC ? no_room(r->target) : NULL;

	if (rc != -ENOSPC)
		(void)r->target->look(r->target->ctx, item, &error);
	fail(r, item, -rc, room ? room : error && *error ? error : strerror(-rc));
}

/* False if the file has failed. */
static bool start(struct run *r, struct ps_warm_item *item)
{
	int rc = r->target->start(r->target->ctx, item);

	if (rc == -ENOSPC && !r->refused) {
		r->refused = true;
		poll(NULL, 0, REFUSED_MS);
		rc = r->target->start(r->target->ctx, item);
	}
	r->timeouts += rc == -ETIMEDOUT;
	if (rc < 0)
		fail_to_start(r, item, rc);
	return rc >= 0;
}

/* After as many consecutive timeouts as there are jobs the origin counts as unreachable. */
static bool gives_up(const struct run *r)
{
	return r->timeouts >= r->options->jobs || r->unranged;
}

static void start_more(struct run *r)
{
	while (r->active < r->options->jobs && r->next < r->list.n && !*r->options->stop && !gives_up(r)) {
		struct ps_warm_item *item = &r->list.v[r->next++];

		if (item->state != PS_WARM_WAITING)
			continue;
		if (!start(r, item))
			continue;
		item->state = PS_WARM_STARTED;
		item->progress_ns = item->started_ns = ps_clock_mono_ns();
		r->active++;
	}
}

/* The mount's --timeout, within the limits above. */
static uint64_t patience_ns(const struct ps_warm_target *target)
{
	json_t *stats = target->stats(target->ctx);
	double s = json_number_value(json_object_get(json_object_get(stats, "origin"), "timeout_seconds"));

	json_decref(stats);
	if (s <= 0 || s >= (double)FAILED_NS / PS_NS_PER_S)
		return FAILED_NS;
	return PS_MAX((uint64_t)(s * PS_NS_PER_S), FAILED_LEAST_NS);
}

static bool has_failed(const struct run *r, const struct ps_warm_item *item, const char *error, uint64_t now)
{
	uint64_t quiet = now - item->progress_ns;

	if (!error || !*error)
		return quiet > STUCK_NS;
	if (ignores_ranges(error))
		return true;
	return quiet > FAILED_NS || (quiet > r->patience_ns && now - r->came_ns > r->patience_ns);
}

static void look_at(struct run *r, struct ps_warm_item *item)
{
	uint64_t before = item->cached, now = ps_clock_mono_ns();
	ps_autofree char *error = NULL;
	int rc = r->target->look(r->target->ctx, item, &error);

	if (rc < 0) {
		fail(r, item, -rc, strerror(-rc));
		return;
	}
	if (item->cached >= item->size) {
		r->came_ns = now;
		r->timeouts = 0;
		item->state = PS_WARM_DONE;
		r->target->end(r->target->ctx, item);
		r->active--;
		return;
	}
	if (item->cached != before) {
		item->progress_ns = item->started_ns = r->came_ns = now;
		r->timeouts = 0;
	} else if (has_failed(r, item, error, now)) {
		r->timeouts++;
		fail(r, item, 0,
		        error && *error ? error
		                        : "no progress; the cache may be too small for the file (see "
		                          "penstock status)");
	} else if (now - item->started_ns > AGAIN_NS) {
		item->started_ns = now;
		start(r, item);
	}
}

/* Looks at all files, so that a run resumes where an earlier one ended. Returns the number of cached
 * bytes. */
static uint64_t look_at_all(struct run *r)
{
	uint64_t cached = 0;

	for (size_t i = 0; i < r->list.n && !*r->options->stop; i++) {
		struct ps_warm_item *item = &r->list.v[i];
		ps_autofree char *error = NULL;

		if (r->target->look(r->target->ctx, item, &error) < 0)
			continue; /* start() will report the reason */
		cached += item->cached;
		if (item->state == PS_WARM_WAITING && item->size > 0 && item->cached >= item->size)
			item->state = PS_WARM_DONE;
	}
	return cached;
}

static void work(struct run *r)
{
	char note[64];
	uint64_t cached, total;

	while (!*r->options->stop) {
		start_more(r);
		if (r->active == 0 || r->unranged)
			return;
		for (size_t i = 0; i < r->next; i++)
			if (r->list.v[i].state == PS_WARM_STARTED && !r->unranged)
				look_at(r, &r->list.v[i]);
		sum(r, &cached, &total);
		snprintf(note, sizeof(note), "%zu of %zu files", r->next - r->active, r->list.n);
		ps_progress_update(&r->progress, cached, total, note);
		if (r->active >= r->options->jobs || (r->active > 0 && r->next >= r->list.n))
			poll(NULL, 0, POLL_MS);
	}
}

static int conclude(struct run *r, uint64_t had)
{
	char a[PS_SIZE_TEXT_LEN], b[PS_SIZE_TEXT_LEN];
	uint64_t cached, total;
	size_t gone = 0, untried = 0;

	ps_progress_end(&r->progress);
	if (*r->options->stop)
		return ps_cli_fail("warm", PS_EXIT_FAILED, PS_WARM_INTERRUPTED);
	/* Files that were cached first may have been evicted for later ones. */
	look_at_all(r);
	sum(r, &cached, &total);
	for (size_t i = 0; i < r->list.n; i++) {
		gone += r->list.v[i].state == PS_WARM_DONE && r->list.v[i].cached < r->list.v[i].size;
		untried += r->list.v[i].state == PS_WARM_WAITING || r->list.v[i].state == PS_WARM_STARTED;
	}
	if (r->unranged)
		ps_cli_fail("warm", PS_EXIT_FAILED,
		        "gave up, with %s not fetched; serve the files by nginx, Apache or Caddy",
		        PS_COUNTED(untried, "more file"));
	else if (untried)
		ps_cli_fail("warm", PS_EXIT_FAILED,
		        "the origin does not answer: %s not tried; fetched data is kept: run the command "
		        "again to resume",
		        PS_COUNTED(untried, "more file"));
	if (r->failed > FAILURES_TOLD)
		ps_cli_fail("warm", PS_EXIT_FAILED, "and %s failed",
		        PS_COUNTED(r->failed - FAILURES_TOLD, "more file"));
	if (gone)
		ps_cli_fail("warm", PS_EXIT_FAILED,
		        "%s evicted to make room for others: the cache is too small",
		        PS_COUNTED(gone, "file"));
	size_t done = r->list.n - r->failed - gone - untried;
	if (!r->options->quiet)
		printf("%s, %s in the cache, %s of it fetched now\n", PS_COUNTED(done, "file"),
		        ps_size_format(cached, a), ps_size_format(cached > had ? cached - had : 0, b));
	if (r->failed > 0 && r->failed == r->nfinal && !gone && (!untried || r->unranged))
		return PS_EXIT_FINAL;
	return r->failed || gone || untried || cached < total ? PS_EXIT_FAILED : PS_EXIT_OK;
}

int ps_warm_run(const struct ps_warm_target *target, const struct ps_warm_options *options)
{
	struct run r = {.target = target, .options = options};
	struct ps_error err = {0};
	int code;

	int rc = target->list(target->ctx, &r.list, &err);
	if (rc < 0) {
		code = ps_cli_fail("warm", rc == -ENOENT ? PS_EXIT_FINAL : PS_EXIT_FAILED, "%s", err.text);
	} else {
		uint64_t had = look_at_all(&r);

		ps_progress_init(&r.progress, !options->quiet, had);
		r.patience_ns = patience_ns(target);
		r.came_ns = ps_clock_mono_ns();
		work(&r);
		code = conclude(&r, had);
	}
	list_fini(target, &r.list);
	return code;
}
