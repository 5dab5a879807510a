#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/cleanup.h"
#include "cli/commands.h"
#include "fuse/fuse.h"
#include "daemon/daemon.h"

#define STATS_TIMEOUT_MS 5000

/* The daemon's error text of the failed listing, or NULL. The caller frees it. */
static char *listing_error(const struct ps_mount_info *info)
{
	json_t *stats = NULL;

	if (ps_mounts_stats(info, STATS_TIMEOUT_MS, &stats) < 0)
		return NULL;
	const json_t *mount = json_array_get(json_object_get(stats, "mounts"), 0);
	const char *text = json_string_value(json_object_get(mount, "listing_error"));
	char *copy = text && *text ? strdup(text) : NULL;
	json_decref(stats);
	return copy;
}

static int refuse(const struct ps_mount_info *info, int errnum)
{
	const char *where = info->mountpoint;

	if (errnum == EPERM)
		return ps_cli_fail("refresh", PS_EXIT_FAILED,
		        "%s: only root and the owner of the mount may do this", where);
	if (errnum == EINTR)
		return ps_cli_fail(
		        "refresh", PS_EXIT_FAILED, "%s: interrupted; the listing continues", where);
	if (errnum == ENOTTY)
		return ps_cli_fail("refresh", PS_EXIT_FAILED,
		        "%s: its daemon has an older version, which cannot list a source again; unmount and "
		        "mount again",
		        where);
	ps_autofree char *why = listing_error(info);
	return ps_cli_fail("refresh", PS_EXIT_FAILED, "%s: the listing failed, and no name was removed: %s",
	        where, why ? why : strerror(errnum));
}

/* True if a source may be listed without versions: web servers' pages and lists usually have names only;
 * buckets, the Hub and folders have versions. */
static bool may_lack_versions(const char *sources)
{
	for (const char *one = sources; one; one = strchr(one, ' ')) {
		one += *one == ' ';
		size_t word = strcspn(one, " "), name = strcspn(one, "=:/@");
		const char *source = name < word && one[name] == '=' ? one + name + 1 : one;

		if (*source == '@' || strncmp(source, "http://", 7) == 0 ||
		        strncmp(source, "https://", 8) == 0)
			return true;
	}
	return false;
}

static int refresh(const struct ps_mount_info *info)
{
	struct ps_ioc_refreshed r;
	ps_autofd int fd = open(info->mountpoint, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return ps_cli_fail("refresh", PS_EXIT_FAILED, "%s: %s", info->mountpoint, strerror(errno));
	if (ioctl(fd, PS_IOC_REFRESH, &r) < 0)
		return refuse(info, errno);
	printf("%s listed, %llu new, %llu gone\n", PS_COUNTED(r.nfiles, "file"), (unsigned long long)r.nadded,
	        (unsigned long long)r.nvanished);
	if (may_lack_versions(info->source))
		puts("this listing contains no versions: a changed file shows its new contents after "
		     "--revalidate, or at the next open after penstock evict");
	return fflush(stdout) ? PS_EXIT_FAILED : PS_EXIT_OK;
}

static int run(struct ps_mount_options *o, char **args, int nargs)
{
	const struct ps_mount_info *info;
	struct ps_error err = {0};
	ps_automounts struct ps_mounts mounts = {0};

	(void)o, (void)nargs;
	if (ps_mounts_lookup(args[0], &mounts, &info, &err) < 0)
		return ps_cli_fail("refresh", PS_EXIT_FAILED, "%s", err.text);
	return refresh(info);
}

const struct ps_opts ps_cmd_refresh = {
        .command = "refresh",
        .id = PS_CMD_REFRESH,
        .usage = "MOUNTPOINT",
        .about = "Lists the sources of a mount again: new files appear, and deleted files disappear. "
                 "Programs can continue to\n"
                 "read open files. Changed files show their new contents if the listing has versions "
                 "(buckets, the Hub,\n"
                 "folders, JSON); otherwise after --revalidate, or at the next open after penstock evict.",
        .min = 1,
        .max = 1,
        .run = run,
};
