#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/xattr.h>

#include "base/strbuf.h"
#include "fuse/ioctl.h"
#include "cli/walk.h"
#include "cli/warm.h"

#define STATS_TIMEOUT_MS 5000

struct mounted {
	const struct ps_mount_info *info;
	const char *const *globs;
	size_t nglobs;
};

static char *path_of(const struct mounted *m, const struct ps_warm_item *item)
{
	ps_autostrbuf struct ps_strbuf b = {0};

	ps_strbuf_addf(&b, "%s/%s", strcmp(m->info->mountpoint, "/") == 0 ? "" : m->info->mountpoint,
	        item->path);
	return ps_strbuf_take(&b);
}

static int add_file(void *arg, const char *path, uint64_t size)
{
	return ps_warm_add(arg, path, size, 0);
}

static int list_files(void *ctx, struct ps_warm_list *list, struct ps_error *err)
{
	struct mounted *m = ctx;

	return ps_walk_mount(m->info->mountpoint, m->globs, m->nglobs, add_file, list, err);
}

static int start_file(void *ctx, struct ps_warm_item *item)
{
	ps_autofree char *path = path_of(ctx, item);

	if (!path)
		return -ENOMEM;
	if (item->fd < 0)
		item->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	return item->fd < 0 || ioctl(item->fd, PS_IOC_WARM) < 0 ? -errno : 0;
}

static void end_file(void *ctx, struct ps_warm_item *item)
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

static int look_at_file(void *ctx, struct ps_warm_item *item, char **ret_error)
{
	ps_autofree char *path = path_of(ctx, item);
	char number[32], text[PS_ERROR_TEXT_LEN];

	if (!path)
		return -ENOMEM;
	int rc = get_attribute(path, "user.penstock.cached", number, sizeof number);
	if (rc < 0)
		return rc;
	item->cached = strtoull(number, NULL, 10);
	/* One that cannot be decoded has no size. */
	if ((item->cached < item->size || item->size == 0) &&
	        get_attribute(path, "user.penstock.error", text, sizeof text) == 0)
		*ret_error = strdup(text);
	return 0;
}

static json_t *stats_of(void *ctx)
{
	const struct mounted *m = ctx;
	json_t *stats;

	return ps_mounts_stats(m->info, STATS_TIMEOUT_MS, &stats) == 0 ? stats : NULL;
}

int ps_warm_mount(const struct ps_mount_info *info, const char *const *globs, size_t nglobs,
        const struct ps_warm_options *options)
{
	struct mounted m = {.info = info, .globs = globs, .nglobs = nglobs};
	const struct ps_warm_target target = {.ctx = &m,
	        .list = list_files,
	        .start = start_file,
	        .look = look_at_file,
	        .end = end_file,
	        .stats = stats_of};

	return ps_warm_run(&target, options);
}
