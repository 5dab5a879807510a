#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/process.h"
#include "base/stats.h"
#include "base/size.h"
#include "base/strbuf.h"
#include "cli/commands.h"
#include "cli/figure_text.h"
#include "cli/live.h"
#include "daemon/daemon.h"

struct status {
	/* with cache_dir set, all mounts of that cache's daemon are shown */
	struct ps_mount_options *options;
	const char *mountpoint; /* NULL: all */
};

/* The figures of a mount in the last round, for rates. */
struct seen {
	unsigned dev_minor;
	uint64_t at_ns;
	json_int_t origin_bytes, read_bytes, passed;
};
#define SEEN_MAX 64 /* further mounts are shown without rates */

static const char *size(json_int_t nbytes, char buf[static PS_SIZE_TEXT_LEN])
{
	return ps_size_format(nbytes > 0 ? (uint64_t)nbytes : 0, buf);
}

static json_int_t opens_in(const json_t *mount, const char *mode)
{
	return ps_figure_number(json_object_get(mount, "modes"), mode, "opens");
}

static void print_rates(const json_t *doc, const json_t *mount, struct seen *last)
{
	char a[PS_SIZE_TEXT_LEN], b[PS_SIZE_TEXT_LEN];
	struct seen now = {.at_ns = ps_clock_mono_ns(),
	        .origin_bytes = ps_figure_number(doc, "origin", "bytes"),
	        .read_bytes = ps_figure_number(mount, "reads", "bytes"),
	        .passed = opens_in(mount, "passed")};
	double s = (double)(now.at_ns - last->at_ns) / (double)PS_NS_PER_S;

	if (last->at_ns && s > 0)
		printf("  now       %s/s from the origin, %s/s through the daemon, %.1f opens/s served by "
		       "the kernel\n",
		        size((json_int_t)((double)(now.origin_bytes - last->origin_bytes) / s), a),
		        size((json_int_t)((double)(now.read_bytes - last->read_bytes) / s), b),
		        (double)(now.passed - last->passed) / s);
	now.dev_minor = last->dev_minor;
	*last = now;
}

/* The lines of a mount. Between them are those that are made by code: patterns, ranks, tiers set aside. */
static const char head[] =
        "{mountpoint}  {source}\n"
        "  files     {#files}, {cached_bytes} of them cached, listed {listed_at}"
        "[next_listing_at?:, again in {next_listing_at}], opened {opens}"
        "[listing_error:; listing again failed: {listing_error}]\n"
        "[skipped:  skipped   {skipped} that cannot be shown; the log names the first ones\n]"
        "[missing:  missing   {missing} of the list [missing>1:do][!missing>1:does] not exist at the origin: "
        "{missing_names}[missing_names<missing:, ...]\n]";
static const char body[] =
        "[version_by=size:  versions  not checked, only sizes (--version-by size)\n]"
        "[!version_by=size:[versionless:"
        "  versions  none: the server sends neither ETag nor Last-Modified\n]]"
        /* For files that the kernel reads itself, only the number of opens is known. Of fewer bytes than
           1 MiB through the daemon, the share that waited means nothing. */
        "  reads     [modes.passed.opens:{modes.passed.opens} served straight from the cache (kernel), ]"
        "{reads.bytes} through the daemon[reads.bytes>1048575:, {reads.ready_bytes%reads.bytes} without "
        "waiting]"
        "; waited {reads.stalled_seconds}, {#reads.waiting} waiting now\n"
        "[members.shards?:  members   {members.files} in {#members.known} of {members.shards}"
        "[members.known+members.failed<members.shards:"
        "; the other shards ({members.unknown_bytes}) are read at the first access]"
        "[members.failed:; {members.failed} cannot be read as a tar]\n"
        "[members.merges:[!members.merged:  merged    not yet: penstock warm --members {mountpoint}\n]]"
        "[members.hidden:  hidden    {members.hidden}; the first: {members.hidden_reason}\n]]"
        "[!members.shards?:  opens     {#modes.passed.opens} passed through, {#modes.direct.opens} direct, "
        "{#modes.cached.opens} through the page cache\n"
        "  kernel    [passthrough.active:reads fully cached files itself (passthrough)]"
        "[!passthrough.active:no passthrough: {passthrough.reason}]\n]"
        "  cache     {/cache.used_bytes} of {/cache.limit_bytes} used"
        "[/cache.reserved_bytes: ({/cache.reserved_bytes} reserved for files that are being fetched)]"
        ", {/cache.index_bytes} by the index, {/cache.objects}"
        "[/reads.hit_ratio?:, hit ratio {%/reads.hit_ratio}], in {/cache.dir}\n"
        "[/cache.reachable_bytes</cache.limit_bytes:"
        "  reach     {/cache.reachable_bytes}: the disk has no room for more\n]"
        "[/cache.disk_error:  disk      accepts no data (first seen {/cache.disk_error_at}): "
        "{/cache.disk_error}: "
        "{/cache.dir}; new data is streamed without being cached\n]"
        "[/cache.pinned_objects:  pinned    {/cache.pinned_objects}, {/cache.pinned_bytes}\n]";
static const char rank[] = "  plan      {job}, rank {#rank} of {#world}: epoch {#epoch}, {files_done} done; "
                           "{epochs} announced, last report {age_seconds} s ago\n";
static const char requests[] =
        "[/plans.foreseen_opens:  planned   {/plans.foreseen_opens}, "
        "{#/plans.foreseen_hits} of files that were cached at least partially\n]"
        "  origin    {/origin.bytes} in {/origin.requests}, {/origin.errors}, {/origin.retries}\n"
        "[tier?:  tiers     {#tier.known}, {#tier.aside} set aside: {tier.bytes} in {tier.requests}"
        "[tier.fallbacks:; {#tier.fallbacks} of them answered by the origin, {tier.fallback_bytes}]"
        "[tier.withheld:; {#tier.withheld} not sent, because they contain secrets (--tier-auth)]"
        "[tier.verified_bytes:; {tier.verified_bytes} compared, {tier.mismatches}]\n]";
static const char tier[] = "[state=aside:  aside     {url}, [retry_seconds?:for {retry_seconds} s]"
                           "[!retry_seconds?:while it is listed]: {last_error}\n]";
static const char trouble[] =
        "[offline:  offline   the origin does not answer: only cached data can be read\n]"
        "[/origin.last_error:  failure   {/origin.last_error_at}: {/origin.last_error}\n]"
        "[/cache.checksum_errors:  checksums {#/cache.checksum_errors} file[/cache.checksum_errors>1:s] "
        "failed the checksum; "
        "for details: getfattr -n user.penstock.error FILE\n]";
static const char tail[] = "  daemon    pid {#/pid}, version {/version}, mounted {mounted_at}, "
                           "[/sandbox.active:[/sandbox.reason:sandbox incomplete: "
                           "{/sandbox.reason}][!/sandbox.reason:sandboxed]]"
                           "[!/sandbox.active:no sandbox[/sandbox.reason:: {/sandbox.reason}]]\n";

static void print(const char *lines, const struct ps_figure_source *source)
{
	ps_autostrbuf struct ps_strbuf b = {0};

	ps_figure_text(&b, lines, source);
	ps_autofree char *made = ps_need(ps_strbuf_take(&b));
	fputs(made, stdout);
}

/* Prints the lines for each entry of a list. */
static void print_each(
        const char *lines, const struct ps_figure_source *source, const char *section, const json_t *entries)
{
	struct ps_figure_source one = {.doc = source->doc, .list = section};
	size_t i;

	json_array_foreach(entries, i, one.object) print(lines, &one);
}

/* Names the daemon's other mounts, since cache, origin and plans are shared by all of them. */
static void print_siblings(const json_t *doc, const json_t *mount)
{
	const json_t *mounts = json_object_get(doc, "mounts"), *other;
	size_t i, n = 0;

	if (json_array_size(mounts) < 2)
		return;
	printf("  shared    daemon, cache and origin figures, together with ");
	json_array_foreach(mounts, i, other)
	{
		if (other != mount)
			printf("%s%s", n++ ? ", " : "", ps_figure_word(other, "mountpoint"));
	}
	putchar('\n');
	json_array_foreach(mounts, i, other)
	{
		const char *here = ps_figure_word(mount, "route"), *there = ps_figure_word(other, "route");

		if (strcmp(ps_figure_word(mount, "source"), ps_figure_word(other, "source")) != 0 ||
		        strcmp(here, there) == 0)
			continue;
		printf("            %s has the same source and shares no cached data with this mount: "
		       "another "
		       "route (there: %s; here: %s)\n",
		        ps_figure_word(other, "mountpoint"),
		        *there ? there : "no proxy, the system's certificates",
		        *here ? here : "no proxy, the system's certificates");
	}
}

static bool has(const json_t *array, const char *text)
{
	const json_t *value;
	size_t i;

	json_array_foreach(array, i, value) if (strcmp(json_string_value(value), text) == 0) return true;
	return false;
}

/* Prints the patterns of a source, or of a mount with one source. */
static void print_patterns(const json_t *source)
{
	static const char *const lists[] = {"include", "exclude"};
	const char *name = ps_figure_word(source, "name");
	const json_t *value;
	bool any = false;
	size_t i;

	for (size_t l = 0; l < PS_ARRAY_LEN(lists); l++) {
		json_array_foreach(json_object_get(source, lists[l]), i, value)
		{
			const char *pattern = json_string_value(value);

			printf("%s%s%s --%s '%s'%s", any ? "," : "  patterns ", any || !*name ? "" : " ",
			        any ? "" : name, lists[l], pattern,
			        has(json_object_get(source, "unmatched"), pattern) ? " (matches nothing)"
			                                                           : "");
			any = true;
		}
	}
	if (any)
		putchar('\n');
}

static void print_mount(const json_t *doc, const json_t *mount, struct seen *last)
{
	const struct ps_figure_source source = {.doc = doc, .object = mount};
	const json_t *one;
	size_t i;

	print(head, &source);
	print_patterns(mount);
	json_array_foreach(json_object_get(mount, "sources"), i, one) print_patterns(one);
	print(body, &source);
	print_each(rank, &source, "plans.ranks[]", ps_figures_at(doc, "plans.ranks"));
	print(requests, &source);
	print_each(tier, &source, "mounts[].tier.tiers[]", ps_figures_at(mount, "tier.tiers"));
	print(trouble, &source);
	print_siblings(doc, mount);
	if (last)
		print_rates(doc, mount, last);
	print(tail, &source);
}

static struct seen *seen_of(struct seen seen[static SEEN_MAX], unsigned dev_minor)
{
	for (size_t i = 0; i < SEEN_MAX; i++) {
		if (seen[i].dev_minor == dev_minor || seen[i].dev_minor == 0) {
			seen[i].dev_minor = dev_minor;
			return &seen[i];
		}
	}
	return NULL;
}

/* Prints one mount in the requested form; with --json sets *ret_doc instead. False: the mount did not
 * answer. */
static bool show(const struct status *s, const struct ps_mount_info *info,
        const struct ps_mount_answer *answer, struct seen seen[static SEEN_MAX], json_t **ret_doc)
{
	if (answer->rc < 0) {
		ps_cli_fail(
		        "status", PS_EXIT_FAILED, "%s: %s", info->mountpoint, ps_mounts_why_not(answer->rc));
		if (s->options->json)
			*ret_doc = json_pack("{s:o,s:s}", "mountpoint", ps_json_lossy(info->mountpoint),
			        "error", ps_mounts_why_not(answer->rc));
		return false;
	}
	if (s->options->json) {
		*ret_doc = json_incref(answer->doc);
		return true;
	}
	/* The document may be of another user's mount, which can be any program. */
	json_t *doc = ps_json_printable(answer->doc);
	print_mount(doc, json_array_get(json_object_get(doc, "mounts"), 0),
	        s->options->watch ? seen_of(seen, info->dev_minor) : NULL);
	json_decref(doc);
	return true;
}

static int print_json(const struct status *s, json_t *doc)
{
	ps_autofree char *json = ps_json_dump(
	        doc, JSON_REAL_PRECISION(9) | (s->options->watch ? JSON_COMPACT : JSON_INDENT(2)));

	json_decref(doc);
	return !json || puts(json) == EOF || fflush(stdout) ? PS_EXIT_FAILED : PS_EXIT_OK;
}

/* Asks the daemon itself, since some of its mounts may be in other mount namespaces. */
static int cache_round(const struct status *s, struct seen seen[static SEEN_MAX])
{
	struct ps_error err = {0};
	json_t *raw, *doc, *mount;
	size_t i;

	if (ps_control_status(s->options->cache_dir, PS_TIMED_TIMEOUT_MS, &raw, &err) < 0)
		return ps_cli_fail("status", PS_EXIT_FAILED, "%s", err.text);
	if (s->options->json)
		return print_json(s, raw);
	doc = ps_json_printable(raw);
	json_decref(raw);
	json_array_foreach(json_object_get(doc, "mounts"), i, mount)
	        print_mount(doc, mount, s->options->watch ? seen_of(seen, (unsigned)i + 1) : NULL);
	json_decref(doc);
	return fflush(stdout) ? PS_EXIT_FAILED : PS_EXIT_OK;
}

/* The mounts that were asked, and their answers; free with forget(). `these`: the selected part of `all`. */
struct asked {
	struct ps_mounts all, these;
	size_t nothers; /* mounts of other users, which were left out */
	struct ps_mount_answer *answers;
};

static int ask(const struct status *s, struct asked *ret, struct ps_error *err)
{
	const struct ps_mount_info *info;
	int rc;

	*ret = (struct asked){0};
	if (s->mountpoint) {
		rc = ps_mounts_lookup(s->mountpoint, &ret->all, &info, err);
		if (rc < 0)
			return rc;
		ret->these = (struct ps_mounts){.v = &ret->all.v[info - ret->all.v], .n = 1};
	} else {
		rc = ps_mounts_read(NULL, false, &ret->all);
		if (rc < 0)
			return ps_error_set(err, -rc, "/proc/self/mountinfo: %s", strerror(-rc));
		ret->nothers = ps_mounts_keep_own(&ret->all);
		ret->these = ret->all;
	}
	ret->answers = ps_mounts_ask(&ret->these, PS_TIMED_TIMEOUT_MS);
	if (ret->answers)
		return 0;
	ps_mounts_fini(&ret->all);
	return ps_no_memory(err); /* no exit: it would leave the terminal of --watch as it is */
}

static void forget(struct asked *asked)
{
	for (size_t i = 0; i < asked->these.n; i++)
		json_decref(asked->answers[i].doc);
	free(asked->answers);
	ps_mounts_fini(&asked->all);
}

static int one_round(const struct status *s, struct seen seen[static SEEN_MAX])
{
	struct asked asked;
	struct ps_error err = {0};
	json_t *list = json_array();
	int code = PS_EXIT_OK;

	if (ask(s, &asked, &err) < 0) {
		json_decref(list);
		return ps_cli_fail("status", PS_EXIT_FAILED, "%s", err.text);
	}
	for (size_t i = 0; i < asked.these.n; i++) {
		json_t *doc = NULL;

		if (!show(s, &asked.these.v[i], &asked.answers[i], seen, &doc))
			code = PS_EXIT_FAILED;
		if (doc)
			json_array_append_new(list, doc);
	}
	if (asked.these.n == 0 && !s->options->json)
		printf("no penstock mounts%s\n", asked.nothers ? " of this user" : "");
	if (s->options->json && print_json(s, s->mountpoint ? json_incref(json_array_get(list, 0))
	                                                    : json_pack("{s:O}", "daemons", list)))
		code = PS_EXIT_FAILED;
	json_decref(list);
	forget(&asked);
	return fflush(stdout) ? PS_EXIT_FAILED : code;
}

/* Adds the mount to the list's entry for its daemon. One document is enough for the entry: the daemon's own
 * figures are the same in the documents of all its mounts. */
static void add_live(json_t *list, json_t *doc, json_t *mount)
{
	json_t *pid = json_object_get(doc, "pid"), *one;
	size_t i;

	json_array_foreach(list, i, one)
	{
		if (json_equal(json_object_get(json_object_get(one, "doc"), "pid"), pid)) {
			json_array_append(json_object_get(one, "mounts"), mount);
			return;
		}
	}
	json_array_append_new(list, json_pack("{s:O, s:[O]}", "doc", doc, "mounts", mount));
}

static int live_round(void *arg, json_t *list, struct ps_error *err)
{
	const struct status *s = arg;
	struct asked asked;
	json_t *doc, *mount;
	size_t i;
	int rc;

	if (s->options->cache_dir) {
		rc = ps_control_status(s->options->cache_dir, PS_TIMED_TIMEOUT_MS, &doc, err);
		if (rc < 0)
			return rc;
		json_array_foreach(json_object_get(doc, "mounts"), i, mount) add_live(list, doc, mount);
		json_decref(doc);
		return 0;
	}
	rc = ask(s, &asked, err);
	if (rc < 0)
		return rc;
	for (i = 0; i < asked.these.n; i++) {
		doc = asked.answers[i].doc;
		if (asked.answers[i].rc == 0)
			add_live(list, doc, json_array_get(json_object_get(doc, "mounts"), 0));
		else
			json_array_append_new(list, json_pack("{s:o, s:s}", "mountpoint",
			                                    ps_json_lossy(asked.these.v[i].mountpoint),
			                                    "error", ps_mounts_why_not(asked.answers[i].rc)));
	}
	forget(&asked);
	return 0;
}

/* For monitoring ----------------------------------------------------------------------------------------- */

/* Exit codes in the convention of Nagios plugins. */
enum level { LEVEL_OK, LEVEL_WARNING, LEVEL_CRITICAL, LEVEL_UNKNOWN };
static const char *const level_names[] = {"ok", "warning", "critical", "unknown"};

#define RECENT_S 300 /* older failures are ignored */

/* Adds a problem to `found`. state: "offline", "full", "degraded", "down", "unknown". */
static void note(
        json_t *found, const char *mountpoint, enum level level, const char *state, const char *reason)
{
	json_array_append_new(
	        found, json_pack("{s:o, s:s, s:s, s:o}", "mountpoint", ps_json_lossy(mountpoint), "level",
	                       level_names[level], "state", state, "reason", ps_json_lossy(reason)));
}

/* note() with figures in the reason. */
static void note_figures(json_t *found, const struct ps_figure_source *source, enum level level,
        const char *state, const char *reason)
{
	ps_autostrbuf struct ps_strbuf b = {0};

	ps_figure_text(&b, reason, source);
	ps_autofree char *made = ps_need(ps_strbuf_take(&b));
	note(found, ps_figure_word(source->object, "mountpoint"), level, state, made);
}

static bool is_recent(json_int_t at_s)
{
	return at_s > 0 && ps_clock_real_s() - at_s < RECENT_S;
}

static void judge(json_t *found, const json_t *doc, const json_t *mount)
{
	const struct ps_figure_source source = {.doc = doc, .object = mount};
	const char *disk = ps_figure_word(json_object_get(doc, "cache"), "disk_error");
	const json_t *sandbox = json_object_get(doc, "sandbox");

	if (json_is_true(json_object_get(sandbox, "active")) && *ps_figure_word(sandbox, "reason"))
		note_figures(found, &source, LEVEL_WARNING, "unprotected",
		        "sandbox incomplete: {/sandbox.reason}");
	if (json_is_true(json_object_get(mount, "offline"))) {
		note_figures(found, &source, LEVEL_CRITICAL, "offline", "the origin does not answer");
		return;
	}
	bool full = strcmp(disk, strerror(ENOSPC)) == 0 || strcmp(disk, strerror(EDQUOT)) == 0;
	if (*disk)
		note_figures(
		        found, &source, LEVEL_WARNING, full ? "full" : "degraded", "{/cache.disk_error}");
	if (is_recent(ps_figure_number(doc, "cache", "checksum_error_at")))
		note_figures(found, &source, LEVEL_WARNING, "degraded",
		        "a file failed its checksum {/cache.checksum_error_at}: {/cache.checksum_error}");
	if (*ps_figure_word(mount, "listing_error"))
		note_figures(
		        found, &source, LEVEL_WARNING, "degraded", "listing again failed: {listing_error}");
	else if (is_recent(ps_figure_number(doc, "origin", "last_error_at")))
		note_figures(found, &source, LEVEL_WARNING, "degraded",
		        "a read failed {/origin.last_error_at}: {/origin.last_error}");
}

/* Returns the number of mounts that were checked. */
static size_t judge_all(const struct status *s, json_t *found)
{
	struct ps_error err = {0};
	struct asked asked;
	json_t *doc, *mount;
	size_t i, n;

	if (s->options->cache_dir) {
		if (ps_control_status(s->options->cache_dir, PS_TIMED_TIMEOUT_MS, &doc, &err) < 0) {
			note(found, s->options->cache_dir, LEVEL_CRITICAL, "down", err.text);
			return 0;
		}
		json_array_foreach(json_object_get(doc, "mounts"), i, mount) judge(found, doc, mount);
		json_decref(doc);
		return i;
	}
	if (ask(s, &asked, &err) < 0) {
		note(found, s->mountpoint ? s->mountpoint : "",
		        s->mountpoint ? LEVEL_CRITICAL : LEVEL_UNKNOWN, s->mountpoint ? "down" : "unknown",
		        err.text);
		return 0;
	}
	for (i = 0; i < asked.these.n; i++) {
		int rc = asked.answers[i].rc;
		bool forbidden = rc == -EACCES || rc == -EPERM;

		if (rc < 0)
			note(found, asked.these.v[i].mountpoint, forbidden ? LEVEL_UNKNOWN : LEVEL_CRITICAL,
			        forbidden ? "unknown" : "down", ps_mounts_why_not(rc));
		else
			judge(found, asked.answers[i].doc,
			        json_array_get(json_object_get(asked.answers[i].doc, "mounts"), 0));
	}
	n = asked.these.n;
	if (n == 0)
		note(found, "", LEVEL_UNKNOWN, "unknown",
		        asked.nothers ? "no penstock mounts of this user" : "no penstock mounts");
	forget(&asked);
	return n;
}

/* The worst level: critical, then unknown, then warning. */
static enum level worst_of(const json_t *found)
{
	static const enum level order[] = {LEVEL_CRITICAL, LEVEL_UNKNOWN, LEVEL_WARNING};
	const json_t *one;
	size_t i;

	for (size_t k = 0; k < PS_ARRAY_LEN(order); k++) {
		json_array_foreach(found, i, one)
		{
			if (strcmp(ps_figure_word(one, "level"), level_names[order[k]]) == 0)
				return order[k];
		}
	}
	return LEVEL_OK;
}

/* Prints the text on one line, without '|', which begins performance data in a Nagios plugin's output. */
static void print_word(const char *s)
{
	ps_autostrbuf struct ps_strbuf b = {0};

	ps_strbuf_add_printable(&b, s);
	for (s = ps_strbuf_peek(&b); *s; s++)
		putchar(*s == '|' ? '?' : *s);
}

static int check(const struct status *s)
{
	json_t *found = json_array();
	size_t n = judge_all(s, found), i;
	enum level level = worst_of(found);
	const json_t *one;
	bool failed = false;

	if (s->options->json) {
		failed = print_json(
		        s, json_pack("{s:s, s:i, s:I, s:O}", "level", level_names[level], "exit_code",
		                   (int)level, "mounts", (json_int_t)n, "problems", found));
	} else {
		printf("penstock %s: ", level_names[level]);
		if (level == LEVEL_OK)
			fputs(PS_COUNTED(n, "mount"), stdout);
		json_array_foreach(found, i, one)
		{
			printf("%s", i ? "; " : "");
			print_word(ps_figure_word(one, "mountpoint"));
			printf("%s%s: ", *ps_figure_word(one, "mountpoint") ? ": " : "",
			        ps_figure_word(one, "state"));
			print_word(ps_figure_word(one, "reason"));
		}
		failed = putchar('\n') == EOF || fflush(stdout);
	}
	json_decref(found);
	return failed ? LEVEL_UNKNOWN : level;
}

static bool is_number(const char *arg)
{
	return isdigit((unsigned char)arg[0]) && arg[strspn(arg, "0123456789.")] == '\0';
}

/* Takes the mountpoint, and the number of "--watch 5": for an option with an optional value, the parser
 * does not take the next argument. */
static int take_arguments(struct status *s, char **args, int nargs)
{
	struct ps_error err = {0};

	for (int i = 0; i < nargs; i++) {
		if (s->options->watch && is_number(args[i])) {
			if (ps_options_watch(s->options, args[i], &err) < 0)
				return ps_cli_fail("status", PS_EXIT_USAGE, "%s", err.text);
		} else if (s->mountpoint) {
			return ps_cli_fail("status", PS_EXIT_USAGE,
			        "too many arguments; usage: penstock status %s", ps_cmd_status.usage);
		} else {
			s->mountpoint = args[i];
		}
	}
	if (s->options->check && s->options->watch)
		return ps_cli_fail("status", PS_EXIT_USAGE, "--check or --watch, not both");
	if (s->options->cache_dir && s->mountpoint)
		return ps_cli_fail("status", PS_EXIT_USAGE, "a MOUNTPOINT or --cache-dir, not both");
	return PS_EXIT_OK;
}

static int show_all(struct status *s)
{
	struct seen seen[SEEN_MAX] = {0};
	struct ps_error err = {0};

	if (s->options->watch && !s->options->json && ps_live_possible())
		return ps_live_run(s->options->watch_ms, live_round, s, &err) < 0
		               ? ps_cli_fail("status", PS_EXIT_FAILED, "%s", err.text)
		               : PS_EXIT_OK;
	for (;;) {
		int code = s->options->cache_dir ? cache_round(s, seen) : one_round(s, seen);
		if (!s->options->watch || ferror(stdout))
			return code;
		poll(NULL, 0, (int)s->options->watch_ms);
	}
}

static int run(struct ps_mount_options *o, char **args, int nargs)
{
	struct status s = {.options = o};
	int code = take_arguments(&s, args, nargs);

	if (code)
		return o->check && code == PS_EXIT_USAGE ? LEVEL_UNKNOWN : code;
	return o->check ? check(&s) : show_all(&s);
}

const struct ps_opts ps_cmd_status = {
        .command = "status",
        .id = PS_CMD_STATUS,
        .usage = "[MOUNTPOINT] [OPTION...]",
        .about = "Shows what a mount, or every penstock mount, is doing. Exits with status 1 if a mount does "
                 "not answer.",
        .words = {{"cache-dir", "ask the daemon of this cache, including for mounts in other namespaces"}},
        .max = 2,
        .run = run,
};
