#include "daemon/mountpoint.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "daemon/timed_call.h"
#include "daemon/mountfd.h"
#include "daemon/mounts.h"

/* A penstock mount is there already: alive, wedged, or dead and to be cleared away. */
static int check_mounted(const char *arg, const struct ps_mount_info *info, struct ps_error *err)
{
	struct ps_mount_id id = ps_mounts_id(info->mountpoint);
	json_t *stats = NULL;
	/* An open must ask the daemon; stat of the root is answered from the kernel's memory long after it
	 * died. */
	int rc = ps_mounts_stats(info, PS_GUARDED_TIMEOUT_MS, &stats);

	json_decref(stats);
	if (rc == 0)
		return ps_error_set(err, EBUSY,
		        "%s: already a penstock mount; unmount it first (penstock umount %s)", arg, arg);
	if (rc == -ETIMEDOUT)
		return ps_error_set(err, EBUSY,
		        "%s: a penstock mount that does not answer; penstock umount --force %s clears it "
		        "away",
		        arg, arg);
	if (rc != -ENOTCONN && rc != -ECONNABORTED)
		return ps_error_set(err, -rc, "%s: %s", arg, strerror(-rc));
	rc = ps_mountfd_detach(info->mountpoint, id);
	if (rc < 0)
		return ps_error_set(err, -rc,
		        "%s: the mount of a dead daemon is in the way; unmount it as root (umount -l %s)",
		        arg, arg);
	return 0;
}

static int check_empty(const char *path, bool *ret_empty)
{
	DIR *d = opendir(path);
	const struct dirent *e;

	if (!d)
		return -errno;
	*ret_empty = true;
	while (*ret_empty && (e = readdir(d)))
		*ret_empty = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
	closedir(d);
	return 0;
}

int ps_mountpoint_check(const char *arg, bool nonempty, char **ret_path, struct ps_error *err)
{
	struct ps_mounts mounts;
	ps_autofree char *path = NULL;
	mode_t mode = 0;
	bool empty = false;
	int rc = ps_mounts_resolve(arg, &path, err);

	if (rc < 0)
		return rc;
	/* More than one dead mount may be stacked here; each round clears one. */
	for (int round = 0; round < 8; round++) {
		rc = ps_mounts_read(NULL, false, &mounts);
		if (rc < 0)
			return ps_error_set(err, -rc, "/proc/self/mountinfo: %s", strerror(-rc));
		const struct ps_mount_info *info = ps_mounts_find(&mounts, path);
		bool mounted = info;
		rc = info ? check_mounted(arg, info, err) : 0;
		ps_mounts_fini(&mounts);
		if (rc < 0)
			return rc;
		if (!mounted)
			break;
	}
	rc = ps_guarded_stat(path, PS_GUARDED_TIMEOUT_MS, &mode);
	if (rc == -ENOENT)
		return ps_error_set(
		        err, ENOENT, "%s: there is no such folder; make it first (mkdir %s)", arg, arg);
	if (rc < 0)
		return ps_error_set(err, -rc, "%s: %s", arg, strerror(-rc));
	if (!S_ISDIR(mode))
		return ps_error_set(err, ENOTDIR, "%s: not a folder", arg);
	*ret_path = realpath(path, NULL);
	if (!*ret_path)
		return ps_error_set(err, errno, "%s: %s", arg, strerror(errno));
	rc = nonempty ? 0 : check_empty(*ret_path, &empty);
	if (rc < 0)
		ps_error_set(err, -rc, "%s: %s", arg, strerror(-rc));
	else if (!nonempty && !empty)
		rc = ps_error_set(err, ENOTEMPTY,
		        "%s: not empty; choose another folder, or hide its files with -o nonempty", arg);
	if (rc < 0) {
		free(*ret_path);
		*ret_path = NULL;
	}
	return rc;
}

/* Is `path` the folder `top` or below it? Both absolute. */
static bool within(const char *path, const char *top)
{
	size_t n = strlen(top);

	while (n > 1 && top[n - 1] == '/')
		n--;
	return strncmp(path, top, n) == 0 && (path[n] == '/' || !path[n] || n == 1);
}

int ps_mountpoint_apart(
        const char *mountpoint, const char *source, const char *cache_dir, struct ps_error *err)
{
	const char *local = strncmp(source, "file://", 7) == 0 ? source + 7 : source;
	ps_autofree char *top = local[0] == '/' ? realpath(local, NULL) : NULL;
	ps_autofree char *cache = realpath(cache_dir, NULL);

	if (top && within(mountpoint, top))
		return ps_error_set(err, EINVAL, "%s lies within its own source %s; choose another folder",
		        mountpoint, top);
	if (within(cache ? cache : cache_dir, mountpoint))
		return ps_error_set(err, EINVAL,
		        "the cache %s would be hidden by the mount on %s; choose another --cache-dir",
		        cache_dir, mountpoint);
	return 0;
}
