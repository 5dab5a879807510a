#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/size.h"
#include "commands.h"
#include "guarded.h"
#include "join.h"
#include "mounts.h"

#define WATCH_DEFAULT_MS 2000

struct status {
	bool json, watch;
	uint64_t watch_ms;
	const char *mountpoint; /* NULL: all */
	char *cache_dir;        /* all of its daemon's, instead */
};

static int set_watch(void *ctx, const char *value, struct ps_error *err)
{
	struct status *s = ctx;

	s->watch = true;
	s->watch_ms = WATCH_DEFAULT_MS;
	if (value && (ps_time_parse(value, &s->watch_ms) < 0 || s->watch_ms < 100 || s->watch_ms > INT32_MAX))
		return ps_error_set(err, EINVAL, "option watch: '%s' is not a time such as 2s", value);
	return 0;
}

static const struct ps_opt options[] = {
        {"json", 0, PS_OPT_FLAG, offsetof(struct status, json), NULL, "print JSON"},
        {"watch", 'w', PS_OPT_CALL, 0, "SECONDS", "again and again, with rates [2]", PS_OPT_OPTIONAL,
                set_watch},
        {"cache-dir", 0, PS_OPT_PATH, offsetof(struct status, cache_dir), "DIR",
                "of the daemon that serves this cache, whatever namespaces its mounts are in"},
        {0},
};
static const struct ps_opts opts = {
        .command = "status",
        .usage = "[MOUNTPOINT] [OPTION...]",
        .about = "Tells what a mount, or every penstock mount, is doing. Exit code 1 if one does not answer.",
        .tables = {options},
};

/* What the last round saw of a mount, for rates. */
struct seen {
	unsigned dev_minor;
	uint64_t at_ns;
	json_int_t origin_bytes, read_bytes;
};
#define SEEN_MAX 64 /* mounts past it are shown without rates */

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

static void print_rates(const json_t *doc, struct seen *last)
{
	char a[PS_SIZE_TEXT_LEN], b[PS_SIZE_TEXT_LEN];
	struct seen now = {.at_ns = ps_clock_mono_ns(),
	        .origin_bytes = number(doc, "origin", "bytes"),
	        .read_bytes = number(doc, "reads", "bytes")};
	double s = (double)(now.at_ns - last->at_ns) / (double)PS_NS_PER_S;

	if (last->at_ns && s > 0)
		printf("  now       %s/s from the origin, %s/s to readers\n",
		        size((json_int_t)((double)(now.origin_bytes - last->origin_bytes) / s), a),
		        size((json_int_t)((double)(now.read_bytes - last->read_bytes) / s), b));
	now.dev_minor = last->dev_minor;
	*last = now;
}

/* Reads that the daemon does not see are not among those counted. */
static void print_passthrough(const json_t *passthrough)
{
	if (json_is_true(json_object_get(passthrough, "active")))
		puts("  kernel    reads complete files itself (passthrough)");
	else
		printf("  kernel    no passthrough: %s\n", text(passthrough, "reason"));
}

static void print_missing(const json_t *mount)
{
	json_int_t n = json_integer_value(json_object_get(mount, "missing"));
	const json_t *names = json_object_get(mount, "missing_names"), *name;
	size_t i;

	if (n == 0)
		return;
	printf("  missing   %lld files of the list are not at the origin: ", (long long)n);
	json_array_foreach(names, i, name) printf("%s%s", i ? ", " : "", json_string_value(name));
	puts((size_t)n > json_array_size(names) ? ", ..." : "");
}

/* Nothing while all is well. */
static void print_disk(const json_t *doc)
{
	const json_t *cache = json_object_get(doc, "cache");
	char when[32];

	if (*text(cache, "disk_error"))
		printf("  disk      takes no data (first seen %s): %s: %s; what is not cached is streamed\n",
		        ago(number(doc, "cache", "disk_error_at"), when), text(cache, "disk_error"), text(cache, "dir"));
}

static void print_pinned(const json_t *doc)
{
	char a[PS_SIZE_TEXT_LEN];
	json_int_t n = number(doc, "cache", "pinned_objects");

	if (n > 0)
		printf("  pinned    %lld files, %s\n", (long long)n,
		        size(number(doc, "cache", "pinned_bytes"), a));
}

static void print_plans(const json_t *doc)
{
	const json_t *plans = json_object_get(doc, "plans"), *rank;
	json_int_t opens = number(doc, "plans", "foreseen_opens"), hits = number(doc, "plans", "foreseen_hits");
	size_t i;

	json_array_foreach(json_object_get(plans, "ranks"), i, rank) printf(
	        "  plan      %s, rank %lld of %lld: epoch %lld, %lld files done; %lld epochs told, heard of %.0f s ago\n",
	        text(rank, "job"), (long long)json_integer_value(json_object_get(rank, "rank")),
	        (long long)json_integer_value(json_object_get(rank, "world")),
	        (long long)json_integer_value(json_object_get(rank, "epoch")),
	        (long long)json_integer_value(json_object_get(rank, "files_done")),
	        (long long)json_integer_value(json_object_get(rank, "epochs")),
	        json_number_value(json_object_get(rank, "age_seconds")));
	if (opens > 0)
		printf("  planned   %lld opens, %.1f %% of them cached by then\n", (long long)opens,
		        100 * (double)hits / (double)opens);
}

static void print_trouble(const json_t *mount, const json_t *doc)
{
	char when[32];
	json_int_t n = number(doc, "cache", "checksum_errors");
	const char *error = text(json_object_get(doc, "origin"), "last_error");

	if (json_is_true(json_object_get(mount, "offline")))
		puts("  offline   the origin does not answer: what is cached is served as it is known");
	if (*error)
		printf("  failure   %s: %s\n", ago(number(doc, "origin", "last_error_at"), when), error);
	if (n > 0)
		printf("  checksums mismatches: %lld, dropped; user.penstock.error tells of each file\n", (long long)n);
}

static json_int_t opens_in(const json_t *mount, const char *mode)
{
	return number(json_object_get(mount, "modes"), mode, "opens");
}

/* Of a daemon that has several: what is this one's, since the sums are of all. */
static void print_siblings(const json_t *doc, const json_t *mount)
{
	const json_t *mounts = json_object_get(doc, "mounts"), *other;
	json_int_t nbytes = number(mount, "reads", "bytes"), hits = number(mount, "reads", "hit_bytes");
	char a[PS_SIZE_TEXT_LEN];
	size_t i, n = 0;

	if (json_array_size(mounts) < 2)
		return;
	printf("  of these  %s read here", size(nbytes, a));
	if (nbytes > 0)
		printf(", %.1f %% at once", 100 * (double)hits / (double)nbytes);
	printf("; the daemon serves also ");
	json_array_foreach(mounts, i, other)
	{
		if (other != mount)
			printf("%s%s", n++ ? ", " : "", text(other, "mountpoint"));
	}
	putchar('\n');
}

static void print_mount(const json_t *doc, const json_t *mount, struct seen *last)
{
	char a[PS_SIZE_TEXT_LEN], b[PS_SIZE_TEXT_LEN], when[32];
	const json_t *reads = json_object_get(doc, "reads");
	json_int_t nbytes = number(doc, "reads", "bytes"), passed = opens_in(mount, "passed");

	printf("%s  %s\n", text(mount, "mountpoint"), text(mount, "source"));
	printf("  files     %lld, listed %s, opened %lld times%s%s\n",
	        (long long)json_integer_value(json_object_get(mount, "files")),
	        ago(json_integer_value(json_object_get(mount, "listed_at")), when),
	        (long long)json_integer_value(json_object_get(mount, "opens")),
	        *text(mount, "listing_error") ? "; listing anew failed: " : "", text(mount, "listing_error"));
	print_missing(mount);
	printf("  cache     %s of %s used, %lld objects, in %s\n",
	        size(number(doc, "cache", "used_bytes"), a), size(number(doc, "cache", "limit_bytes"), b),
	        (long long)number(doc, "cache", "objects"), text(json_object_get(doc, "cache"), "dir"));
	print_disk(doc);
	print_pinned(doc);
	print_plans(doc);
	printf("  reads     %s", size(nbytes, a));
	if (nbytes > 0)
		printf(", %.1f %% from the cache",
		        100 * json_number_value(json_object_get(reads, "hit_ratio")));
	printf(", waited %.1f s, %lld waiting now\n",
	        json_number_value(json_object_get(reads, "stalled_seconds")),
	        (long long)json_integer_value(json_object_get(reads, "waiting")));
	printf("  origin    %s in %lld requests, %lld errors, %lld retries\n",
	        size(number(doc, "origin", "bytes"), a), (long long)number(doc, "origin", "requests"),
	        (long long)number(doc, "origin", "errors"), (long long)number(doc, "origin", "retries"));
	print_siblings(doc, mount);
	print_trouble(mount, doc);
	print_passthrough(json_object_get(mount, "passthrough"));
	printf("  opens     %lld passed through%s, %lld direct, %lld through the page cache\n",
	        (long long)passed, passed ? " (bytes not counted: passed through by the kernel)" : "",
	        (long long)opens_in(mount, "direct"), (long long)opens_in(mount, "cached"));
	if (last)
		print_rates(doc, last);
	printf("  daemon    pid %lld, version %s, mounted %s\n",
	        (long long)json_integer_value(json_object_get(doc, "pid")), text(doc, "version"),
	        ago(json_integer_value(json_object_get(mount, "mounted_at")), when));
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

/* One mount in the form asked for; false if it did not answer. With --json its document goes to *ret_doc. */
static bool show(const struct status *s, const struct ps_mount_info *info, struct seen seen[static SEEN_MAX],
        json_t **ret_doc)
{
	json_t *doc = NULL;
	int rc = ps_mounts_stats(info, PS_GUARDED_TIMEOUT_MS, &doc);

	if (rc < 0) {
		ps_cli_fail("status", PS_EXIT_FAILED, "%s: %s", info->mountpoint, ps_mounts_why_not(rc));
		if (s->json)
			*ret_doc = json_pack("{s:o,s:s}", "mountpoint", ps_json_lossy(info->mountpoint), "error",
			        ps_mounts_why_not(rc));
		return false;
	}
	if (s->json) {
		*ret_doc = doc;
		return true;
	}
	print_mount(doc, json_array_get(json_object_get(doc, "mounts"), 0),
	        s->watch ? seen_of(seen, info->dev_minor) : NULL);
	json_decref(doc);
	return true;
}

static int print_json(const struct status *s, json_t *doc)
{
	int rc = json_dumpf(doc, stdout, JSON_REAL_PRECISION(9) | (s->watch ? JSON_COMPACT : JSON_INDENT(2)));

	json_decref(doc);
	return putchar('\n') == EOF || fflush(stdout) || rc ? PS_EXIT_FAILED : PS_EXIT_OK;
}

/* Asks the daemon itself: some of its mounts may be in mount namespaces that we do not see. */
static int cache_round(const struct status *s, struct seen seen[static SEEN_MAX])
{
	ps_autofree char *answer = NULL;
	struct ps_error err = {0};
	const json_t *mount;
	size_t i;
	int rc = ps_join_status(s->cache_dir, PS_GUARDED_TIMEOUT_MS, &answer, &err);

	if (rc == -ENOENT && !err.err)
		return ps_cli_fail("status", PS_EXIT_FAILED, "%s: no daemon serves it", s->cache_dir);
	if (rc < 0)
		return ps_cli_fail("status", PS_EXIT_FAILED, "%s", err.text);
	json_t *doc = json_loads(answer, 0, NULL);
	if (!json_is_object(doc)) {
		json_decref(doc);
		return ps_cli_fail("status", PS_EXIT_FAILED, "%s: its daemon's answer is no JSON", s->cache_dir);
	}
	if (s->json)
		return print_json(s, doc);
	json_array_foreach(json_object_get(doc, "mounts"), i, mount)
	        print_mount(doc, mount, s->watch ? seen_of(seen, (unsigned)i + 1) : NULL);
	json_decref(doc);
	return fflush(stdout) ? PS_EXIT_FAILED : PS_EXIT_OK;
}

static int one_round(const struct status *s, struct seen seen[static SEEN_MAX])
{
	const struct ps_mount_info *info;
	struct ps_error err = {0};
	struct ps_mounts mounts;
	json_t *docs = NULL;
	int code = PS_EXIT_OK;

	if (s->mountpoint) {
		json_t *doc = NULL;

		if (ps_mounts_lookup(s->mountpoint, &mounts, &info, &err) < 0)
			return ps_cli_fail("status", PS_EXIT_FAILED, "%s", err.text);
		if (!show(s, info, seen, &doc))
			code = PS_EXIT_FAILED;
		docs = doc;
	} else {
		int rc = ps_mounts_read(NULL, false, &mounts);

		if (rc < 0)
			return ps_cli_fail(
			        "status", PS_EXIT_FAILED, "/proc/self/mountinfo: %s", strerror(-rc));
		json_t *list = s->json ? json_array() : NULL;
		for (size_t i = 0; i < mounts.n; i++) {
			json_t *doc = NULL;

			if (!show(s, &mounts.v[i], seen, &doc))
				code = PS_EXIT_FAILED;
			if (list)
				json_array_append_new(list, doc);
		}
		if (mounts.n == 0 && !s->json)
			puts("no penstock mounts");
		docs = list ? json_pack("{s:o}", "daemons", list) : NULL;
	}
	ps_mounts_fini(&mounts);
	if (s->json && print_json(s, docs))
		code = PS_EXIT_FAILED;
	return fflush(stdout) ? PS_EXIT_FAILED : code;
}

static bool is_number(const char *arg)
{
	return isdigit((unsigned char)arg[0]) && arg[strspn(arg, "0123456789.")] == '\0';
}

/* An option whose value may be missing cannot claim the next argument by itself: "--watch 5". */
static int take_arguments(struct status *s, char **args, int nargs)
{
	struct ps_error err = {0};

	for (int i = 0; i < nargs; i++) {
		if (s->watch && is_number(args[i])) {
			if (set_watch(s, args[i], &err) < 0)
				return ps_cli_fail("status", PS_EXIT_USAGE, "%s", err.text);
		} else if (s->mountpoint) {
			return ps_cli_fail("status", PS_EXIT_USAGE,
			        "too many arguments; usage: penstock status %s", opts.usage);
		} else {
			s->mountpoint = args[i];
		}
	}
	if (s->cache_dir && s->mountpoint)
		return ps_cli_fail("status", PS_EXIT_USAGE, "a MOUNTPOINT or --cache-dir, not both");
	return PS_EXIT_OK;
}

static int run(const struct status *s)
{
	struct seen seen[SEEN_MAX] = {0};

	for (;;) {
		if (s->watch && !s->json && isatty(STDOUT_FILENO))
			fputs("\033[H\033[J", stdout);
		int code = s->cache_dir ? cache_round(s, seen) : one_round(s, seen);
		if (!s->watch || ferror(stdout))
			return code;
		poll(NULL, 0, (int)s->watch_ms);
	}
}

int ps_cmd_status(int argc, char **argv)
{
	struct status s = {0};
	int nargs, code;

	if (ps_cli_begin(&opts, &s, argc, argv, 0, 2, &nargs, &code)) {
		code = take_arguments(&s, argv + 1, nargs);
		code = code ? code : run(&s);
	}
	ps_opts_fini(&opts, &s);
	return code;
}
