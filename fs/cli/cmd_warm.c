#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/process.h"
#include "base/strbuf.h"
#include "base/thread.h"
#include "cli/commands.h"
#include "cli/walk.h"
#include "cli/warm.h"
#include "daemon/daemon.h"
#include "fuse/fuse.h"

/* Files of a mount --------------------------------------------------------------------------------------- */

#define STATS_TIMEOUT_MS 5000

struct mounted {
	const struct ps_mount_info *info;
	const char *const *globs;
	size_t nglobs;
};

static char *path_of(const struct mounted *m, const struct ps_warm_item *item)
{
	ps_autostrbuf struct ps_strbuf b = {0};

	ps_strbuf_addf(
	        &b, "%s/%s", strcmp(m->info->mountpoint, "/") == 0 ? "" : m->info->mountpoint, item->path);
	return ps_need(ps_strbuf_take(&b));
}

static int add_file(void *arg, const char *file, const char *path, uint64_t size)
{
	(void)file;
	ps_warm_add(arg, path, size, 0);
	return 0;
}

static int mount_list_files(void *ctx, struct ps_warm_list *list, struct ps_error *err)
{
	struct mounted *m = ctx;

	return ps_walk_mount(m->info->mountpoint, m->globs, m->nglobs, add_file, list, err);
}

static int mount_start_file(void *ctx, struct ps_warm_item *item)
{
	ps_autofree char *path = path_of(ctx, item);

	if (item->fd < 0)
		item->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	return item->fd < 0 || ioctl(item->fd, PS_IOC_WARM) < 0 ? -errno : 0;
}

static void mount_end_file(void *ctx, struct ps_warm_item *item)
{
	(void)ctx;
	if (item->fd >= 0)
		close(item->fd);
	item->fd = -1;
}

static int get_attribute(const char *path, const char *name, char *buf, size_t room)
{
	ssize_t n = getxattr(path, name, buf, room - 1);

	if (n < 0)
		return -errno;
	buf[n] = '\0';
	return 0;
}

static int mount_look_at_file(void *ctx, struct ps_warm_item *item, char **ret_error)
{
	ps_autofree char *path = path_of(ctx, item);
	char number[32], text[PS_ERROR_TEXT_LEN];

	int rc = get_attribute(path, "user.penstock.cached", number, sizeof(number));
	if (rc < 0)
		return rc;
	item->cached = strtoull(number, NULL, 10);
	/* A file that cannot be decoded has size 0. */
	if ((item->cached < item->size || item->size == 0) &&
	        get_attribute(path, "user.penstock.error", text, sizeof(text)) == 0)
		*ret_error = ps_need(strdup(text));
	return 0;
}

static json_t *mount_stats_of(void *ctx)
{
	const struct mounted *m = ctx;
	json_t *stats;

	return ps_mounts_stats(m->info, STATS_TIMEOUT_MS, &stats) == 0 ? stats : NULL;
}

static int warm_mount(const struct ps_mount_info *info, const char *const *globs, size_t nglobs,
        const struct ps_warm_options *options)
{
	struct mounted m = {.info = info, .globs = globs, .nglobs = nglobs};
	const struct ps_warm_target target = {.ctx = &m,
	        .list = mount_list_files,
	        .start = mount_start_file,
	        .look = mount_look_at_file,
	        .end = mount_end_file,
	        .stats = mount_stats_of};

	return ps_warm_run(&target, options);
}

/* Tables of members -------------------------------------------------------------------------------------- */

static json_t *mount_members_of(void *ctx)
{
	json_t *stats = mount_stats_of(ctx);
	json_t *mount = json_array_get(json_object_get(stats, "mounts"), 0);
	json_t *members = json_incref(json_object_get(mount, "members"));

	json_decref(stats);
	return members;
}

static int warm_mount_members(const struct ps_mount_info *info, const struct ps_warm_options *options)
{
	struct mounted m = {.info = info};
	ps_autofd int fd = open(info->mountpoint, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || ioctl(fd, PS_IOC_MEMBERS) < 0)
		return ps_cli_fail("warm", PS_EXIT_FAILED, "%s: %s", info->mountpoint,
		        errno == ENOTTY ? "the mount shows no members; mount it with --members"
		                        : strerror(errno));
	json_t *members = mount_members_of(&m);
	bool merges = json_is_true(json_object_get(members, "merges"));
	json_decref(members);
	return ps_warm_members(mount_members_of, &m, merges, options);
}

/* Files of a source, into a cache that no mount serves --------------------------------------------------- */

#define DEPTH_MAX 64 /* of nested folders; a listing's own limit is lower */

struct sourced {
	struct ps_cache *cache;
	struct ps_dataset *dataset;
	const char *const *globs;
	size_t nglobs;
	bool *used;
};

static int list_folder(
        struct sourced *s, struct ps_warm_list *list, uint64_t node, const char *prefix, int depth)
{
	struct ps_attr attr;
	struct ps_dir *dir;
	const char *name;
	int found = 0, rc = depth > DEPTH_MAX ? -ELOOP : ps_dir_open(s->dataset, node, &dir);

	if (rc < 0)
		return rc;
	for (uint64_t pos = 0; rc == 0 && (found = ps_dir_read(dir, pos, true, &name, &attr)) > 0; pos++) {
		ps_autostrbuf struct ps_strbuf b = {0};
		bool matches = s->nglobs == 0;

		ps_strbuf_addf(&b, "%s%s%s", prefix, *prefix ? "/" : "", name);
		ps_autofree char *path = ps_need(ps_strbuf_take(&b));
		if (attr.is_dir) {
			rc = list_folder(s, list, attr.node, path, depth + 1);
		} else {
			for (size_t i = 0; i < s->nglobs; i++)
				if (ps_match(s->globs[i], path))
					matches = s->used[i] = true;
			/* An unknown size counts as one byte until the file is started. */
			if (matches)
				ps_warm_add(list, path, attr.complete_attr ? attr.size : 1, attr.node);
		}
	}
	ps_dir_close(dir);
	return rc < 0 ? rc : PS_MIN(found, 0);
}

static int source_list_files(void *ctx, struct ps_warm_list *list, struct ps_error *err)
{
	struct sourced *s = ctx;
	int rc = list_folder(s, list, ps_dataset_root(s->dataset), "", 0);

	if (rc < 0)
		return ps_error_set(err, -rc, "%s: %s", ps_dataset_source(s->dataset), strerror(-rc));
	return ps_walk_check_used(s->globs, s->nglobs, s->used, err);
}

/* Waits for a callback. */
struct wait {
	sem_t done;
	int errnum;
	struct ps_handle *handle;
	struct ps_attr attr;
};

static void opened(void *arg, int errnum, struct ps_handle *handle)
{
	struct wait *w = arg;

	w->errnum = errnum;
	w->handle = handle;
	sem_post(&w->done);
}

static void answered(void *arg, int errnum, const struct ps_attr *attr)
{
	struct wait *w = arg;

	w->errnum = errnum;
	if (!errnum)
		w->attr = *attr;
	sem_post(&w->done);
}

static int wait_for(struct wait *w)
{
	while (sem_wait(&w->done) < 0 && errno == EINTR) {
	}
	return -w->errnum;
}

/* Finds the node that the item's path names now, after getattr or open failed with ESTALE. */
static int find_again(struct sourced *s, struct ps_warm_item *item, struct wait *w)
{
	uint64_t node = ps_dataset_root(s->dataset);
	ps_autofree char *copy = ps_need(strdup(item->path));
	char *save = NULL;

	for (char *part = strtok_r(copy, "/", &save); part; part = strtok_r(NULL, "/", &save)) {
		ps_dataset_lookup(s->dataset, node, part, answered, w);
		int rc = wait_for(w);
		if (rc < 0)
			return rc;
		node = w->attr.node;
	}
	item->node = node;
	item->size = w->attr.complete_attr ? w->attr.size : 1;
	return 0;
}

static int source_start_file(void *ctx, struct ps_warm_item *item)
{
	struct sourced *s = ctx;
	struct wait w = {0};
	int rc;

	if (item->handle)
		return ps_handle_warm(item->handle);
	sem_init(&w.done, 0, 0);
	ps_dataset_getattr(s->dataset, item->node, answered, &w);
	rc = wait_for(&w);
	if (rc == 0) {
		item->size = w.attr.size;
		ps_handle_open(s->dataset, item->node, opened, &w);
		rc = wait_for(&w);
	}
	if (rc == -ESTALE) {
		rc = find_again(s, item, &w);
		if (rc == 0) {
			ps_handle_open(s->dataset, item->node, opened, &w);
			rc = wait_for(&w);
		}
	}
	if (rc == 0) {
		item->handle = w.handle;
		rc = ps_handle_warm(w.handle);
	}
	sem_destroy(&w.done);
	return rc;
}

static void source_end_file(void *ctx, struct ps_warm_item *item)
{
	(void)ctx;
	if (item->handle)
		ps_handle_close(item->handle);
	item->handle = NULL;
}

static int source_look_at_file(void *ctx, struct ps_warm_item *item, char **ret_error)
{
	struct sourced *s = ctx;
	struct ps_node_info info = {0};
	int rc = ps_node_info_get(s->dataset, item->node, &info);

	if (rc < 0)
		return rc;
	item->cached = info.cached_nbytes;
	*ret_error = info.error;
	info.error = NULL;
	ps_node_info_fini(&info);
	return 0;
}

static json_t *source_stats_of(void *ctx)
{
	const struct sourced *s = ctx;

	return ps_cache_stats(s->cache);
}

static json_t *source_members_of(void *members)
{
	return ps_members_stats(members);
}

static void no_name_shown(void *arg, const char *name)
{
	(void)arg, (void)name;
}

static int warm_source_members(struct ps_dataset *dataset, bool merges, const struct ps_warm_options *options)
{
	struct ps_members *members;

	if (ps_members_new(dataset, merges, no_name_shown, NULL, &members) < 0)
		ps_need(NULL);
	ps_members_make_all(members);
	int code = ps_warm_members(source_members_of, members, merges, options);
	ps_members_stop(members);
	ps_members_free(members);
	return code;
}

static int open_cache(struct ps_mount_options *mount, struct ps_cache **ret, struct ps_error *err)
{
	struct ps_cache_options options;
	int rc = ps_mount_options_cache(mount, &options, err);

	if (rc == 0)
		rc = ps_cache_open(&options, ret, err);
	ps_autofree char *mountpoint = rc == -EBUSY ? ps_mounts_of_cache(mount->cache_dir) : NULL;
	if (mountpoint)
		ps_error_set(err, EBUSY,
		        "the cache %s is served by the mount on %s; warm that mount: penstock warm %s",
		        mount->cache_dir, mountpoint, mountpoint);
	return rc;
}

static int warm_source(const char *source, const char *const *globs, size_t nglobs,
        struct ps_mount_options *mount, const struct ps_warm_options *options)
{
	struct sourced s = {.globs = globs, .nglobs = nglobs};
	struct ps_dataset_options dataset_options;
	struct ps_error err = {0};
	struct ps_cache *cache;
	ps_autofree bool *used = ps_need(calloc(nglobs ? nglobs : 1, sizeof(*used)));

	s.used = used;
	int rc = open_cache(mount, &cache, &err);
	if (rc < 0)
		return ps_cli_fail("warm", rc == -EBUSY ? PS_EXIT_BUSY : PS_EXIT_FAILED, "%s", err.text);
	s.cache = cache;
	ps_mount_options_dataset(mount, &dataset_options);
	int code;
	rc = ps_dataset_attach(cache, source, &dataset_options, &s.dataset, &err);
	if (rc < 0) {
		bool final = rc == -ENOENT || rc == -EACCES || rc == -EINVAL;

		code = ps_cli_fail("warm", final ? PS_EXIT_FINAL : PS_EXIT_FAILED, "%s", err.text);
	} else {
		const struct ps_warm_target target = {.ctx = &s,
		        .list = source_list_files,
		        .start = source_start_file,
		        .look = source_look_at_file,
		        .end = source_end_file,
		        .stats = source_stats_of};

		code = mount->members ? warm_source_members(
		                                s.dataset, mount->members == PS_SHOW_MEMBERS_MERGED, options)
		                      : ps_warm_run(&target, options);
		ps_dataset_detach(s.dataset);
	}
	ps_cache_close(cache);
	return code;
}

/* The command -------------------------------------------------------------------------------------------- */

static _Atomic int stop;

static void on_signal(int signo)
{
	(void)signo;
	stop = 1;
}

#define GRACE_S 2

/* A handled signal does not end a call that waits in a mount (penstock-mount(1), SIGNALS). So a thread takes the
 * signals, and ends the process if the main thread has not ended it soon. */
static void *end_by_signal(void *signals)
{
	int signo;

	sigwait(signals, &signo);
	stop = 1;
	sleep(GRACE_S);
	ps_cli_fail("warm", PS_EXIT_FAILED, PS_WARM_INTERRUPTED);
	_exit(PS_EXIT_FAILED);
}

static void take_signals(void)
{
	static sigset_t signals;
	pthread_t thread;

	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	if (ps_thread_start(&thread, "signals", end_by_signal, &signals) < 0)
		return;
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	pthread_detach(thread);
}

/* -EINVAL and a text if an option of cache or origin was given for an existing mount. */
static int check_no_source(const struct ps_given *given, const char *mountpoint, struct ps_error *err)
{
	const char *option = NULL;

	for (size_t i = 0; i < given->n; i++)
		if (!option && ps_options_find(given->v[i].name) && strcmp(given->v[i].name, "members") != 0)
			option = given->v[i].name;
	return option ? ps_error_set(err, EINVAL,
	                        "option %s: it is for a SOURCE, but %s is a mount, which has its own "
	                        "options; leave it out",
	                        option, mountpoint)
	              : 0;
}

/* args: SOURCE [GLOB...]. */
static int warm_given_source(
        char **args, size_t nglobs, struct ps_mount_options *o, const struct ps_warm_options *options)
{
	struct ps_mount_request request = {0}; /* only its source is used */
	struct ps_error err = {0};
	int code;

	o->foreground = true; /* log to stderr */
	int rc = ps_request_add_source(&request, "", args[0], &err);
	ps_source_wipe(args[0]);
	if (rc == 0)
		rc = ps_options_check_sources(&o->given, o->given.n, request.sources, 1, &err);
	if (rc == 0)
		rc = ps_mount_options_finish(o, &err);
	if (rc < 0)
		code = ps_cli_fail(
		        "warm", err.err == ENOMEM ? PS_EXIT_FAILED : PS_EXIT_USAGE, "%s", err.text);
	else
		code = warm_source(
		        request.sources[0].source, (const char *const *)args + 1, nglobs, o, options);
	ps_request_fini(&request);
	return code;
}

static int run(struct ps_mount_options *o, char **args, int nargs)
{
	const struct ps_warm_options options = {.jobs = o->jobs, .quiet = o->quiet, .stop = &stop};
	const struct sigaction act = {.sa_handler = on_signal};
	const struct ps_mount_info *info;
	struct ps_error err = {0};
	ps_automounts struct ps_mounts mounts = {0};
	size_t nglobs = (size_t)nargs - 1;

	sigaction(SIGINT, &act, NULL);
	sigaction(SIGTERM, &act, NULL);
	/* A path is an existing mount, or else a source. */
	if (strstr(args[0], "://") || args[0][0] == '@')
		return warm_given_source(args, nglobs, o, &options);
	if (ps_mounts_lookup(args[0], &mounts, &info, &err) < 0)
		return args[0][strlen(args[0]) - 1] == '/'
		               ? warm_given_source(args, nglobs, o, &options)
		               : ps_cli_fail("warm", PS_EXIT_FAILED, "%s", err.text);
	take_signals();
	if (check_no_source(&o->given, info->mountpoint, &err) < 0)
		return ps_cli_fail("warm", PS_EXIT_USAGE, "%s", err.text);
	return o->members ? warm_mount_members(info, &options)
	                  : warm_mount(info, (const char *const *)args + 1, nglobs, &options);
}

const struct ps_opts ps_cmd_warm = {
        .command = "warm",
        .id = PS_CMD_WARM,
        .usage = "MOUNTPOINT|SOURCE [GLOB...] [OPTION...]",
        .about = "Fetches files into the cache: those that match a GLOB, or all. Run it again after an "
                 "interruption; it\n"
                 "resumes. With a SOURCE (https://..., s3://BUCKET/PREFIX/ ...) it needs no mount, fills the "
                 "cache itself, and\n"
                 "accepts the options for cache and origin below.",
        .lists = true,
        .words = {{"members", "read the tables of contents of tar shards, and fetch no files"}},
        .min = 1,
        .max = PS_ARGS_ANY,
        .run = run,
};
