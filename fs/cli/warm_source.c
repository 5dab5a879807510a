#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>

#include "base/strbuf.h"
#include "cli/walk.h"
#include "daemon/mounts.h"
#include "cli/warm.h"

#define DEPTH_MAX 64 /* of folders; a listing's own limit is lower */

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
		ps_autofree char *path = ps_strbuf_take(&b);
		if (!path) {
			rc = -ENOMEM;
		} else if (attr.is_dir) {
			rc = list_folder(s, list, attr.node, path, depth + 1);
		} else {
			for (size_t i = 0; i < s->nglobs; i++)
				if (ps_match(s->globs[i], path))
					matches = s->used[i] = true;
			/* An unknown size counts as one byte until the first look after the open. */
			if (matches)
				rc = ps_warm_add(list, path, attr.complete_attr ? attr.size : 1, attr.node);
		}
	}
	ps_dir_close(dir);
	return rc < 0 ? rc : PS_MIN(found, 0);
}

static int list_files(void *ctx, struct ps_warm_list *list, struct ps_error *err)
{
	struct sourced *s = ctx;
	int rc = list_folder(s, list, ps_dataset_root(s->dataset), "", 0);

	if (rc < 0)
		return ps_error_set(err, -rc, "%s: %s", ps_dataset_source(s->dataset), strerror(-rc));
	return ps_walk_check_used(s->globs, s->nglobs, s->used, err);
}

/* A callback made to wait for. */
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

static void told(void *arg, int errnum, const struct ps_attr *attr)
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

/* The node that stands for the item's path now: what an ESTALE from an open asks for. */
static int find_again(struct sourced *s, struct ps_warm_item *item, struct wait *w)
{
	uint64_t node = ps_dataset_root(s->dataset);
	ps_autofree char *copy = strdup(item->path);
	char *save = NULL;

	if (!copy)
		return -ENOMEM;
	for (char *part = strtok_r(copy, "/", &save); part; part = strtok_r(NULL, "/", &save)) {
		ps_dataset_lookup(s->dataset, node, part, told, w);
		int rc = wait_for(w);
		if (rc < 0)
			return rc;
		node = w->attr.node;
	}
	item->node = node;
	item->size = w->attr.complete_attr ? w->attr.size : 1;
	return 0;
}

static int start_file(void *ctx, struct ps_warm_item *item)
{
	struct sourced *s = ctx;
	struct wait w = {0};
	int rc;

	if (item->handle)
		return ps_handle_warm(item->handle);
	sem_init(&w.done, 0, 0);
	ps_dataset_getattr(s->dataset, item->node, told, &w);
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

static void end_file(void *ctx, struct ps_warm_item *item)
{
	(void)ctx;
	if (item->handle)
		ps_handle_close(item->handle);
	item->handle = NULL;
}

static int look_at_file(void *ctx, struct ps_warm_item *item, char **ret_error)
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

static json_t *stats_of(void *ctx)
{
	const struct sourced *s = ctx;

	return ps_cache_stats(s->cache);
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
		        "the cache %s is served by the mount on %s; warm that: penstock warm %s",
		        mount->cache_dir, mountpoint, mountpoint);
	return rc;
}

int ps_warm_source(const char *source, const char *const *globs, size_t nglobs,
        struct ps_mount_options *mount, const struct ps_warm_options *options)
{
	struct sourced s = {.globs = globs, .nglobs = nglobs};
	struct ps_dataset_options dataset_options;
	struct ps_error err = {0};
	struct ps_cache *cache;
	ps_autofree bool *used = calloc(nglobs ? nglobs : 1, sizeof *used);

	if (!used)
		return ps_cli_fail("warm", PS_EXIT_FAILED, "out of memory");
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
		        .list = list_files,
		        .start = start_file,
		        .look = look_at_file,
		        .end = end_file,
		        .stats = stats_of};

		code = ps_warm_run(&target, options);
		ps_dataset_detach(s.dataset);
	}
	ps_cache_close(cache);
	return code;
}
