#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/stats.h"
#include "base/size.h"
#include "base/strbuf.h"
#include "cli/commands.h"
#include "cli/live.h"
#include "daemon/daemon.h"

struct status {
	/* with cache_dir set, all mounts of that cache's daemon are shown */
	struct ps_mount_options options;
	const char *mountpoint; /* NULL: all */
};

static const struct ps_opts opts = {
        .command = "status",
        .id = PS_CMD_STATUS,
        .usage = "[MOUNTPOINT] [OPTION...]",
        .about = "Shows what a mount, or every penstock mount, is doing. Exit code 1 if one does not answer.",
        .words = {{"cache-dir", "ask this cache's daemon, whatever namespaces its mounts are in"}},
};

/* The figures of a mount in the last round, for rates. */
struct seen {
	unsigned dev_minor;
	uint64_t at_ns;
	json_int_t origin_bytes, read_bytes, passed;
};
#define SHARE_LEAST_NBYTES \
	(1 << 20)   /* of fewer bytes through the daemon, the share that waited means nothing */
#define SEEN_MAX 64 /* further mounts are shown without rates */

static json_int_t number(const json_t *doc, const char *part, const char *name)
{
	return json_integer_value(json_object_get(json_object_get(doc, part), name));
}

static const char *text(const json_t *object, const char *name)
{
	const char *s = json_string_value(json_object_get(object, name));

	return s ? s : "";
}

static const char *size(json_int_t nbytes, char buf[static PS_SIZE_TEXT_LEN])
{
	return ps_size_format(nbytes > 0 ? (uint64_t)nbytes : 0, buf);
}

static const char *ago(json_int_t then_s, char buf[static 32])
{
	json_int_t s = ps_clock_real_s() - then_s;

	if (then_s <= 0)
		return "never";
	if (s < 120)
		snprintf(buf, 32, "%lld s ago", (long long)PS_MAX(s, 0));
	else if (s < 7200)
		snprintf(buf, 32, "%lld min ago", (long long)s / 60);
	else
		snprintf(buf, 32, "%lld h ago", (long long)s / 3600);
	return buf;
}

/* ", again in 7 min"; empty if the source is listed only on request. */
static const char *again(const json_t *then, char buf[static 48])
{
	json_int_t s = PS_MAX(json_integer_value(then) - ps_clock_real_s(), 0);

	buf[0] = '\0';
	if (json_is_integer(then))
		snprintf(buf, 48, ", again in %lld %s",
		        (long long)(s < 120    ? s
		                    : s < 7200 ? s / 60
		                               : s / 3600),
		        s < 120    ? "s"
		        : s < 7200 ? "min"
		                   : "h");
	return buf;
}

static json_int_t opens_in(const json_t *mount, const char *mode)
{
	return number(json_object_get(mount, "modes"), mode, "opens");
}

static void print_rates(const json_t *doc, const json_t *mount, struct seen *last)
{
	char a[PS_SIZE_TEXT_LEN], b[PS_SIZE_TEXT_LEN];
	struct seen now = {.at_ns = ps_clock_mono_ns(),
	        .origin_bytes = number(doc, "origin", "bytes"),
	        .read_bytes = number(mount, "reads", "bytes"),
	        .passed = opens_in(mount, "passed")};
	double s = (double)(now.at_ns - last->at_ns) / (double)PS_NS_PER_S;

	if (last->at_ns && s > 0)
		printf("  now       %s/s from the origin, %s/s through the daemon, %.1f opens/s served by "
		       "the "
		       "kernel\n",
		        size((json_int_t)((double)(now.origin_bytes - last->origin_bytes) / s), a),
		        size((json_int_t)((double)(now.read_bytes - last->read_bytes) / s), b),
		        (double)(now.passed - last->passed) / s);
	now.dev_minor = last->dev_minor;
	*last = now;
}

static void print_members(const json_t *mount)
{
	const json_t *members = json_object_get(mount, "members");
	json_int_t nshards = number(mount, "members", "shards"), nknown = number(mount, "members", "known");
	json_int_t nfailed = number(mount, "members", "failed"), nhidden = number(mount, "members", "hidden");
	char a[PS_SIZE_TEXT_LEN];

	if (!members)
		return;
	printf("  members   %s in %lld of %s", PS_COUNTED(number(mount, "members", "files"), "file"),
	        (long long)nknown, PS_COUNTED(nshards, "shard"));
	if (nknown + nfailed < nshards)
		printf("; the others are %s, read once when they are looked into",
		        size(number(mount, "members", "unknown_bytes"), a));
	if (nfailed)
		printf("; %s cannot be read as a tar", PS_COUNTED(nfailed, "shard"));
	puts("");
	if (json_is_true(json_object_get(members, "merges")) &&
	        !json_is_true(json_object_get(members, "merged")))
		printf("  merged    not yet: penstock warm --members %s\n", text(mount, "mountpoint"));
	if (nhidden)
		printf("  hidden    %s; the first: %s\n", PS_COUNTED(nhidden, "member"),
		        text(members, "hidden_reason"));
}

/* The daemon does not count reads that the kernel serves. */
static void print_passthrough(const json_t *passthrough)
{
	if (json_is_true(json_object_get(passthrough, "active")))
		puts("  kernel    reads complete files itself (passthrough)");
	else
		printf("  kernel    no passthrough: %s\n", text(passthrough, "reason"));
}

static void print_sandbox(const json_t *sandbox)
{
	const char *reason = text(sandbox, "reason");

	if (json_is_true(json_object_get(sandbox, "active")))
		printf("%s%s\n", *reason ? "sandbox incomplete: " : "sandboxed", reason);
	else
		printf("no sandbox%s%s\n", *reason ? ": " : "", reason);
}

static void print_missing(const json_t *mount)
{
	json_int_t n = json_integer_value(json_object_get(mount, "missing"));
	const json_t *names = json_object_get(mount, "missing_names"), *name;
	size_t i;

	if (n == 0)
		return;
	printf("  missing   %s of the list %s not at the origin: ", PS_COUNTED(n, "file"),
	        n == 1 ? "is" : "are");
	json_array_foreach(names, i, name) printf("%s%s", i ? ", " : "", json_string_value(name));
	puts((size_t)n > json_array_size(names) ? ", ..." : "");
}

/* Prints nothing if there is no problem. */
static void print_disk(const json_t *doc)
{
	const json_t *cache = json_object_get(doc, "cache");
	char when[32];

	if (*text(cache, "disk_error"))
		printf("  disk      takes no data (first seen %s): %s: %s; what is not cached is streamed\n",
		        ago(number(doc, "cache", "disk_error_at"), when), text(cache, "disk_error"),
		        text(cache, "dir"));
}

static void print_pinned(const json_t *doc)
{
	char a[PS_SIZE_TEXT_LEN];
	json_int_t n = number(doc, "cache", "pinned_objects");

	if (n > 0)
		printf("  pinned    %s, %s\n", PS_COUNTED(n, "file"),
		        size(number(doc, "cache", "pinned_bytes"), a));
}

static void print_plans(const json_t *doc)
{
	const json_t *plans = json_object_get(doc, "plans"), *rank;
	json_int_t opens = number(doc, "plans", "foreseen_opens"),
	           hits = number(doc, "plans", "foreseen_hits");
	size_t i;

	json_array_foreach(json_object_get(plans, "ranks"), i, rank)
	        printf("  plan      %s, rank %lld of %lld: epoch %lld, %s done; %s announced, last report "
	               "%.0f s ago\n",
	                text(rank, "job"), (long long)json_integer_value(json_object_get(rank, "rank")),
	                (long long)json_integer_value(json_object_get(rank, "world")),
	                (long long)json_integer_value(json_object_get(rank, "epoch")),
	                PS_COUNTED(json_integer_value(json_object_get(rank, "files_done")), "file"),
	                PS_COUNTED(json_integer_value(json_object_get(rank, "epochs")), "epoch"),
	                json_number_value(json_object_get(rank, "age_seconds")));
	if (opens > 0)
		printf("  planned   %s, %lld of files that were cached at least in part\n",
		        PS_COUNTED(opens, "open"), (long long)hits);
}

/* Prints nothing without --tier. */
static void print_tiers(const json_t *mount)
{
	const json_t *all = json_object_get(mount, "tier"), *tier;
	json_int_t fallbacks = number(mount, "tier", "fallbacks"),
	           withheld = number(mount, "tier", "withheld"),
	           verified = number(mount, "tier", "verified_bytes");
	char a[PS_SIZE_TEXT_LEN];
	size_t i;

	if (!all)
		return;
	printf("  tiers     %lld, %lld set aside: %s in %s", (long long)number(mount, "tier", "known"),
	        (long long)number(mount, "tier", "aside"), size(number(mount, "tier", "bytes"), a),
	        PS_COUNTED(number(mount, "tier", "requests"), "request"));
	if (fallbacks > 0)
		printf("; %lld of them left to the origin, %s", (long long)fallbacks,
		        size(number(mount, "tier", "fallback_bytes"), a));
	if (withheld > 0)
		printf("; %lld not sent, for the secrets in them (--tier-auth)", (long long)withheld);
	if (verified > 0)
		printf("; %s compared, %s", size(verified, a),
		        PS_COUNTED(number(mount, "tier", "mismatches"), "difference"));
	putchar('\n');
	json_array_foreach(json_object_get(all, "tiers"), i, tier)
	{
		if (strcmp(text(tier, "state"), "aside") != 0)
			continue;
		if (json_is_null(json_object_get(tier, "retry_seconds")))
			printf("  aside     %s, while it is listed: %s\n", text(tier, "url"),
			        text(tier, "last_error"));
		else
			printf("  aside     %s, for %.0f s: %s\n", text(tier, "url"),
			        json_number_value(json_object_get(tier, "retry_seconds")),
			        text(tier, "last_error"));
	}
}

static void print_trouble(const json_t *mount, const json_t *doc)
{
	char when[32];
	json_int_t n = number(doc, "cache", "checksum_errors");
	const char *error = text(json_object_get(doc, "origin"), "last_error");

	if (json_is_true(json_object_get(mount, "offline")))
		puts("  offline   the origin does not answer: only what is cached can be read");
	if (*error)
		printf("  failure   %s: %s\n", ago(number(doc, "origin", "last_error_at"), when), error);
	if (n > 0)
		printf("  checksums mismatches: %lld, dropped; user.penstock.error of a file says why\n",
		        (long long)n);
}

/* Names the daemon's other mounts, since cache, origin and plans are shared by all of them. */
static void print_siblings(const json_t *doc, const json_t *mount)
{
	const json_t *mounts = json_object_get(doc, "mounts"), *other;
	size_t i, n = 0;

	if (json_array_size(mounts) < 2)
		return;
	printf("  shared    the daemon, its cache and origin figures, with ");
	json_array_foreach(mounts, i, other)
	{
		if (other != mount)
			printf("%s%s", n++ ? ", " : "", text(other, "mountpoint"));
	}
	putchar('\n');
	json_array_foreach(mounts, i, other)
	{
		const char *here = text(mount, "route"), *there = text(other, "route");

		if (strcmp(text(mount, "source"), text(other, "source")) != 0 || strcmp(here, there) == 0)
			continue;
		printf("            %s has the same source and shares no cached data with this mount: "
		       "another "
		       "route (there: %s; here: %s)\n",
		        text(other, "mountpoint"), *there ? there : "no proxy, the system's certificates",
		        *here ? here : "no proxy, the system's certificates");
	}
}

/* For files that the kernel reads itself, only the number of opens is known. */
static void print_reads(const json_t *mount)
{
	json_int_t nbytes = number(mount, "reads", "bytes"), passed = opens_in(mount, "passed");
	const json_t *reads = json_object_get(mount, "reads");
	char a[PS_SIZE_TEXT_LEN];

	fputs("  reads     ", stdout);
	if (passed > 0)
		printf("%s served straight from the cache (kernel), ", PS_COUNTED(passed, "open"));
	printf("%s through the daemon", size(nbytes, a));
	if (nbytes >= SHARE_LEAST_NBYTES)
		printf(", %.1f %% without waiting",
		        100 * (double)number(mount, "reads", "ready_bytes") / (double)nbytes);
	printf("; waited %.1f s, %lld waiting now\n",
	        json_number_value(json_object_get(reads, "stalled_seconds")),
	        (long long)json_integer_value(json_object_get(reads, "waiting")));
}

static void print_cache(const json_t *doc)
{
	const json_t *ratio = json_object_get(json_object_get(doc, "reads"), "hit_ratio");
	json_int_t reserved = number(doc, "cache", "reserved_bytes");
	char a[PS_SIZE_TEXT_LEN], b[PS_SIZE_TEXT_LEN];

	printf("  cache     %s of %s used", size(number(doc, "cache", "used_bytes"), a),
	        size(number(doc, "cache", "limit_bytes"), b));
	if (reserved > 0)
		printf(" (%s reserved for what is being fetched)", size(reserved, a));
	printf(", %s by the index", size(number(doc, "cache", "index_bytes"), a));
	printf(", %s", PS_COUNTED(number(doc, "cache", "objects"), "object"));
	if (json_is_real(ratio))
		printf(", hit ratio %.1f %%", 100 * json_real_value(ratio));
	printf(", in %s\n", text(json_object_get(doc, "cache"), "dir"));
	if (number(doc, "cache", "reachable_bytes") < number(doc, "cache", "limit_bytes"))
		printf("  reach     %s: the disk has room for no more\n",
		        size(number(doc, "cache", "reachable_bytes"), a));
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
	const char *name = text(source, "name");
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
	const json_t *source;
	size_t i;
	char a[PS_SIZE_TEXT_LEN], when[32], next[48];

	printf("%s  %s\n", text(mount, "mountpoint"), text(mount, "source"));
	printf("  files     %lld, %s of them cached, listed %s%s, opened %s%s%s\n",
	        (long long)json_integer_value(json_object_get(mount, "files")),
	        size(json_integer_value(json_object_get(mount, "cached_bytes")), a),
	        ago(json_integer_value(json_object_get(mount, "listed_at")), when),
	        again(json_object_get(mount, "next_listing_at"), next),
	        PS_COUNTED(json_integer_value(json_object_get(mount, "opens")), "time"),
	        *text(mount, "listing_error") ? "; listing again failed: " : "",
	        text(mount, "listing_error"));
	json_int_t skipped = json_integer_value(json_object_get(mount, "skipped"));
	if (skipped > 0)
		printf("  skipped   %s that cannot be shown; the log names the first of them\n",
		        PS_COUNTED(skipped, "name"));
	print_missing(mount);
	print_patterns(mount);
	json_array_foreach(json_object_get(mount, "sources"), i, source) print_patterns(source);
	if (strcmp(text(mount, "version_by"), "size") == 0)
		puts("  versions  not checked, only sizes (--version-by size)");
	else if (json_is_true(json_object_get(mount, "versionless")))
		puts("  versions  none: the server sends neither ETag nor Last-Modified");
	print_reads(mount);
	print_members(mount);
	if (!json_object_get(mount, "members")) {
		printf("  opens     %lld passed through, %lld direct, %lld through the page cache\n",
		        (long long)opens_in(mount, "passed"), (long long)opens_in(mount, "direct"),
		        (long long)opens_in(mount, "cached"));
		print_passthrough(json_object_get(mount, "passthrough"));
	}
	print_cache(doc);
	print_disk(doc);
	print_pinned(doc);
	print_plans(doc);
	printf("  origin    %s in %s, %s, %s\n", size(number(doc, "origin", "bytes"), a),
	        PS_COUNTED(number(doc, "origin", "requests"), "request"),
	        PS_COUNTED(number(doc, "origin", "errors"), "error"),
	        PS_COUNTED(number(doc, "origin", "retries"), "retry"));
	print_tiers(mount);
	print_trouble(mount, doc);
	print_siblings(doc, mount);
	if (last)
		print_rates(doc, mount, last);
	printf("  daemon    pid %lld, version %s, mounted %s, ",
	        (long long)json_integer_value(json_object_get(doc, "pid")), text(doc, "version"),
	        ago(json_integer_value(json_object_get(mount, "mounted_at")), when));
	print_sandbox(json_object_get(doc, "sandbox"));
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
		if (s->options.json)
			*ret_doc = json_pack("{s:o,s:s}", "mountpoint", ps_json_lossy(info->mountpoint),
			        "error", ps_mounts_why_not(answer->rc));
		return false;
	}
	if (s->options.json) {
		*ret_doc = json_incref(answer->doc);
		return true;
	}
	/* The document may be of another user's mount, which can be any program. */
	json_t *doc = ps_json_printable(answer->doc);
	print_mount(doc, json_array_get(json_object_get(doc, "mounts"), 0),
	        s->options.watch ? seen_of(seen, info->dev_minor) : NULL);
	json_decref(doc);
	return true;
}

static int print_json(const struct status *s, json_t *doc)
{
	ps_autofree char *json = ps_json_dump(
	        doc, JSON_REAL_PRECISION(9) | (s->options.watch ? JSON_COMPACT : JSON_INDENT(2)));

	json_decref(doc);
	return !json || puts(json) == EOF || fflush(stdout) ? PS_EXIT_FAILED : PS_EXIT_OK;
}

/* Asks the daemon itself, since some of its mounts may be in other mount namespaces. */
static int cache_round(const struct status *s, struct seen seen[static SEEN_MAX])
{
	struct ps_error err = {0};
	json_t *raw, *doc, *mount;
	size_t i;

	if (ps_control_status(s->options.cache_dir, PS_TIMED_TIMEOUT_MS, &raw, &err) < 0)
		return ps_cli_fail("status", PS_EXIT_FAILED, "%s", err.text);
	if (s->options.json)
		return print_json(s, raw);
	doc = ps_json_printable(raw);
	json_decref(raw);
	json_array_foreach(json_object_get(doc, "mounts"), i, mount)
	        print_mount(doc, mount, s->options.watch ? seen_of(seen, (unsigned)i + 1) : NULL);
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
	return ps_error_set(err, ENOMEM, "out of memory");
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
	if (asked.these.n == 0 && !s->options.json)
		printf("no penstock mounts%s\n", asked.nothers ? " of this user" : "");
	if (s->options.json && print_json(s, s->mountpoint ? json_incref(json_array_get(list, 0))
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

	if (s->options.cache_dir) {
		rc = ps_control_status(s->options.cache_dir, PS_TIMED_TIMEOUT_MS, &doc, err);
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

static bool is_full(const char *disk_error)
{
	return strcmp(disk_error, strerror(ENOSPC)) == 0 || strcmp(disk_error, strerror(EDQUOT)) == 0;
}

static void judge(json_t *found, const json_t *doc, const json_t *mount)
{
	const char *mountpoint = text(mount, "mountpoint"), *listing = text(mount, "listing_error");
	const char *disk = text(json_object_get(doc, "cache"), "disk_error");
	json_int_t failed_at_s = number(doc, "origin", "last_error_at");
	const json_t *sandbox = json_object_get(doc, "sandbox");
	char when[32], reason[PS_ERROR_TEXT_LEN + 64];

	if (json_is_true(json_object_get(sandbox, "active")) && *text(sandbox, "reason")) {
		snprintf(reason, sizeof(reason), "sandbox incomplete: %s", text(sandbox, "reason"));
		note(found, mountpoint, LEVEL_WARNING, "unprotected", reason);
	}
	if (json_is_true(json_object_get(mount, "offline"))) {
		note(found, mountpoint, LEVEL_CRITICAL, "offline", "the origin does not answer");
		return;
	}
	if (*disk)
		note(found, mountpoint, LEVEL_WARNING, is_full(disk) ? "full" : "degraded", disk);
	json_int_t refused_at_s = number(doc, "cache", "checksum_error_at");
	if (refused_at_s > 0 && ps_clock_real_s() - refused_at_s < RECENT_S) {
		snprintf(reason, sizeof(reason), "a file failed its checksum %s: %s", ago(refused_at_s, when),
		        text(json_object_get(doc, "cache"), "checksum_error"));
		note(found, mountpoint, LEVEL_WARNING, "degraded", reason);
	}
	if (*listing) {
		snprintf(reason, sizeof(reason), "listing again failed: %s", listing);
		note(found, mountpoint, LEVEL_WARNING, "degraded", reason);
	} else if (failed_at_s > 0 && ps_clock_real_s() - failed_at_s < RECENT_S) {
		snprintf(reason, sizeof(reason), "a read failed %s: %s", ago(failed_at_s, when),
		        text(json_object_get(doc, "origin"), "last_error"));
		note(found, mountpoint, LEVEL_WARNING, "degraded", reason);
	}
}

/* Returns the number of mounts that were checked. */
static size_t judge_all(const struct status *s, json_t *found)
{
	struct ps_error err = {0};
	struct asked asked;
	json_t *doc, *mount;
	size_t i, n;

	if (s->options.cache_dir) {
		if (ps_control_status(s->options.cache_dir, PS_TIMED_TIMEOUT_MS, &doc, &err) < 0) {
			note(found, s->options.cache_dir, LEVEL_CRITICAL, "down", err.text);
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
			if (strcmp(text(one, "level"), level_names[order[k]]) == 0)
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

	if (s->options.json) {
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
			print_word(text(one, "mountpoint"));
			printf("%s%s: ", *text(one, "mountpoint") ? ": " : "", text(one, "state"));
			print_word(text(one, "reason"));
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
		if (s->options.watch && is_number(args[i])) {
			if (ps_options_watch(&s->options, args[i], &err) < 0)
				return ps_cli_fail("status", PS_EXIT_USAGE, "%s", err.text);
		} else if (s->mountpoint) {
			return ps_cli_fail("status", PS_EXIT_USAGE,
			        "too many arguments; usage: penstock status %s", opts.usage);
		} else {
			s->mountpoint = args[i];
		}
	}
	if (s->options.check && s->options.watch)
		return ps_cli_fail("status", PS_EXIT_USAGE, "--check or --watch, not both");
	if (s->options.cache_dir && s->mountpoint)
		return ps_cli_fail("status", PS_EXIT_USAGE, "a MOUNTPOINT or --cache-dir, not both");
	return PS_EXIT_OK;
}

static int run(struct status *s)
{
	struct seen seen[SEEN_MAX] = {0};
	struct ps_error err = {0};

	if (s->options.watch && !s->options.json && ps_live_possible())
		return ps_live_run(s->options.watch_ms, live_round, s, &err) < 0
		               ? ps_cli_fail("status", PS_EXIT_FAILED, "%s", err.text)
		               : PS_EXIT_OK;
	for (;;) {
		int code = s->options.cache_dir ? cache_round(s, seen) : one_round(s, seen);
		if (!s->options.watch || ferror(stdout))
			return code;
		poll(NULL, 0, (int)s->options.watch_ms);
	}
}

int ps_cmd_status(int argc, char **argv)
{
	struct status s = {0};
	bool checked = false;
	int nargs, code;

	if (ps_cli_begin(&opts, &s.options, argc, argv, 0, 2, &nargs, &code)) {
		code = take_arguments(&s, argv + 1, nargs);
		checked = !code && s.options.check;
		code = code ? code : s.options.check ? check(&s) : run(&s);
	}
	if (s.options.check && !checked && code == PS_EXIT_USAGE)
		code = LEVEL_UNKNOWN; /* PS_EXIT_USAGE, 2, would mean critical */
	ps_mount_options_fini(&s.options);
	return code;
}
