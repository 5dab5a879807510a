#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/process.h"
#include "base/stats.h"
#include "cli/commands.h"
#include "cli/metrics_server.h"
#include "daemon/daemon.h"
#include "fuse/fuse.h"

static bool same(const json_t *a, const json_t *b, const char *name)
{
	return json_equal(json_object_get(a, name), json_object_get(b, name));
}

/* Adds a document, or the mounts that the document of the same daemon lacks. The documents of one daemon may
 * differ: it reports all its mounts to root and its own user, but to other users only the mount whose file they
 * read. */
static void add_answer(json_t *docs, json_t *doc)
{
	json_t *known, *mounts = NULL, *mount, *other;
	size_t i, j;

	json_array_foreach(docs, i, known)
	{
		if (!mounts && same(known, doc, "pid") && same(known, doc, "started_at") &&
		        same(json_object_get(known, "cache"), json_object_get(doc, "cache"), "dir"))
			mounts = json_object_get(known, "mounts");
	}
	if (!mounts) {
		json_array_append(docs, doc);
		return;
	}
	json_array_foreach(json_object_get(doc, "mounts"), i, mount)
	{
		bool found = false;

		json_array_foreach(mounts, j, other) found |= same(mount, other, "device");
		if (!found)
			json_array_append(mounts, mount);
	}
}

/* What one command collects, once or for each request. */
struct metrics {
	const char *cache_dir; /* NULL: of all mounts of the node */
	json_t *left_out;      /* mountpoints that were reported already */
};

static void collect(struct metrics *m, const struct ps_mounts *mounts, json_t *docs, json_t *up)
{
	ps_autofree struct ps_mount_answer *answers = ps_need(ps_mounts_ask(mounts, PS_TIMED_TIMEOUT_MS));

	for (size_t i = 0; i < mounts->n; i++) {
		const struct ps_mount_info *info = &mounts->v[i];
		int rc = answers[i].rc;
		json_t *mountpoint = ps_json_lossy(info->mountpoint);

		if (rc == 0)
			add_answer(docs, answers[i].doc);
		/* A mount whose metrics we may not see is not down. */
		const char *name = json_string_value(mountpoint);
		bool may = rc != -EACCES && rc != -EPERM;

		if (may)
			json_object_set_new(up, name, json_boolean(rc == 0));
		else if (!json_object_get(m->left_out, name))
			ps_cli_fail(
			        "metrics", 0, "%s: left out: %s", info->mountpoint, ps_mounts_why_not(rc));
		if (!may)
			json_object_set_new(m->left_out, name, json_true());
		json_decref(mountpoint);
		json_decref(answers[i].doc);
	}
}

static int of_mounts(struct metrics *m, json_t *docs, json_t *up)
{
	ps_automounts struct ps_mounts mounts = {0};
	int rc = ps_mounts_read(NULL, false, &mounts);

	if (rc < 0)
		return ps_cli_fail("metrics", PS_EXIT_FAILED, "/proc/self/mountinfo: %s", strerror(-rc));
	ps_mounts_keep_own(&mounts);
	collect(m, &mounts, docs, up);
	return PS_EXIT_OK;
}

static int of_cache(const char *cache_dir, json_t *docs)
{
	struct ps_error err = {0};
	json_t *doc;

	if (ps_control_status(cache_dir, PS_TIMED_TIMEOUT_MS, &doc, &err) < 0)
		return ps_cli_fail("metrics", PS_EXIT_FAILED, "%s", err.text);
	json_array_append_new(docs, doc);
	return PS_EXIT_OK;
}

/* Replaces the file atomically: a reader such as node_exporter sees the old text or the new one, never a
 * part. */
static int replace_file(const char *path, const char *text)
{
	ps_autofree char *part = NULL;
	int fd = asprintf(&part, "%s.XXXXXX", path) < 0 ? -1 : mkostemp(part, O_CLOEXEC), failed;
	FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;

	if (fd < 0)
		return ps_cli_fail("metrics", PS_EXIT_FAILED, "%s: %s", path, strerror(errno));
	failed = !file || fputs(text, file) < 0 || fchmod(fd, 0644) ? errno : 0;
	if (file ? fclose(file) : close(fd))
		failed = failed ? failed : errno;
	if (!failed && rename(part, path))
		failed = errno;
	if (!failed)
		return PS_EXIT_OK;
	unlink(part);
	return ps_cli_fail("metrics", PS_EXIT_FAILED, "%s: %s", path, strerror(failed));
}

static int print(const char *text)
{
	if (fputs(text, stdout) >= 0 && !fflush(stdout))
		return PS_EXIT_OK;
	return ps_cli_fail("metrics", PS_EXIT_FAILED, "output: %s", strerror(errno));
}

/* The text; NULL: the reason was printed, and *ret_code is the exit code. */
static char *collect_text(struct metrics *m, int *ret_code)
{
	json_auto_t *docs = ps_need(json_array()), *up = ps_need(json_object());

	*ret_code = m->cache_dir ? of_cache(m->cache_dir, docs) : of_mounts(m, docs, up);
	return *ret_code ? NULL : ps_need(ps_metrics_text(docs, PS_METRICS_CACHE | PS_METRICS_MOUNTS, up));
}

static char *text_for_request(void *arg)
{
	int code;

	return collect_text(arg, &code);
}

static int run(struct ps_mount_options *o, char **args, int nargs)
{
	json_auto_t *left_out = ps_need(json_object());
	struct metrics m = {.cache_dir = o->cache_dir, .left_out = left_out};
	int code;

	(void)args, (void)nargs;
	if (o->listen && o->output)
		return ps_cli_fail("metrics", PS_EXIT_USAGE, "--listen and --output exclude each other");
	if (o->listen)
		return ps_metrics_serve(o->listen, text_for_request, &m);
	ps_autofree char *text = collect_text(&m, &code);
	return !text ? code : o->output ? replace_file(o->output, text) : print(text);
}

const struct ps_opts ps_cmd_metrics = {
        .command = "metrics",
        .id = PS_CMD_METRICS,
        .usage = "[OPTION...]",
        .about = "Prints the figures of all penstock mounts of this node for Prometheus. penstock_up of a "
                 "mount is 0 if its\n"
                 "daemon does not answer.",
        .words = {{"cache-dir",
                "ask only the daemon of this cache, including for mounts in other namespaces"}},
        .run = run,
};
