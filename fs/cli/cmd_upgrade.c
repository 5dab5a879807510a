#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/strbuf.h"
#include "cli/commands.h"
#include "config.h"
#include "daemon/daemon.h"

#define UPGRADE_MS 60000
#define STATS_TIMEOUT_MS 5000

/* The cache of a mount; the caller frees it. */
static int cache_of(const char *mountpoint, char **ret, struct ps_error *err)
{
	const struct ps_mount_info *info;
	ps_automounts struct ps_mounts mounts = {0};
	json_auto_t *stats = NULL;
	int rc = ps_mounts_lookup(mountpoint, &mounts, &info, err);

	if (rc < 0)
		return rc;
	rc = ps_mounts_stats(info, STATS_TIMEOUT_MS, &stats);
	if (rc < 0)
		ps_error_set(err, -rc, "%s: %s", mountpoint, ps_mounts_why_not(rc));
	const char *dir = json_string_value(json_object_get(json_object_get(stats, "cache"), "dir"));
	if (rc == 0 && !(*ret = dir ? strdup(dir) : NULL))
		rc = ps_error_set(err, EIO, "%s: its daemon does not say which cache it has", mountpoint);
	return rc;
}

static int upgrade(struct ps_mount_options *o, const char *mountpoint, struct ps_error *err)
{
	ps_autofd int exe = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	ps_autofree char *dir = NULL;
	pid_t pid;
	int rc = 0;

	if (exe < 0)
		return ps_error_set(err, errno, "/proc/self/exe: %s", strerror(errno));
	if (mountpoint)
		rc = cache_of(mountpoint, &dir, err);
	else if (!o->cache_dir)
		o->cache_dir = ps_cache_dir_default(err);
	if (rc == 0 && !dir && !o->cache_dir)
		return -EINVAL;
	if (rc == 0)
		rc = ps_control_upgrade(dir ? dir : o->cache_dir, exe, UPGRADE_MS, &pid, err);
	if (rc == 0) {
		ps_autostrbuf struct ps_strbuf name = {0};

		ps_strbuf_add_printable(&name, dir ? dir : o->cache_dir);
		printf("%s: process %d serves it now (penstock %s)\n", ps_strbuf_peek(&name), (int)pid,
		        PACKAGE_VERSION);
	}
	return rc;
}

static int run(struct ps_mount_options *o, char **args, int nargs)
{
	struct ps_error err = {0};

	if (nargs == 1 && o->cache_dir)
		return ps_cli_fail("upgrade", PS_EXIT_USAGE, "name a MOUNTPOINT or a --cache-dir, not both");
	if (upgrade(o, nargs == 1 ? args[0] : NULL, &err) < 0)
		return ps_cli_fail("upgrade", PS_EXIT_FAILED, "%s", err.text);
	return fflush(stdout) != 0 ? PS_EXIT_FAILED : PS_EXIT_OK;
}

const struct ps_opts ps_cmd_upgrade = {
        .command = "upgrade",
        .id = PS_CMD_UPGRADE,
        .usage = "[MOUNTPOINT] [OPTION...]",
        .about = "Replaces the daemon of a cache by one of this program, without unmounting. Files stay "
                 "open; reads wait for\n"
                 "a moment. The cache is that of MOUNTPOINT or --cache-dir.",
        .max = 1,
        .run = run,
};

/* `penstock resume FD` is run by a keeper, not by users. */
int ps_cmd_resume(int argc, char **argv)
{
	char *end = NULL;
	long fd = argc == 2 ? strtol(argv[1], &end, 10) : -1;

	if (fd < 3 || *end || fcntl((int)fd, F_SETFD, FD_CLOEXEC) < 0)
		return ps_cli_fail("resume", PS_EXIT_USAGE, "only the keeper of a daemon runs this");
	return ps_daemon_resume((int)fd);
}
