#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include "base/clock.h"
#include "base/strbuf.h"
#include "cli/commands.h"
#include "cli/conf_file.h"
#include "daemon/timed_call.h"
#include "cli/busy.h"
#include "daemon/control_client.h"
#include "daemon/mounts.h"

/* All of it together takes at most 5 s: asking the daemon for its pid, the call itself, and waiting for the
 * daemon. */
#define ASK_TIMEOUT_MS 700
#define CALL_TIMEOUT_MS 1500
#define TOTAL_MS 4800
#define BUSY_RETRIES 6
#define BUSY_RETRY_MS 50

struct umount {
	bool lazy, force, all;
	char *config;
	uint64_t deadline_ns;
};

static const struct ps_opt options[] = {
        {"lazy", 'l', PS_OPT_FLAG, offsetof(struct umount, lazy), NULL,
                "detach now; open files stay readable until they are closed"},
        {"force", 0, PS_OPT_FLAG, offsetof(struct umount, force), NULL,
                "end all use at once, also where the daemon does not answer"},
        {"all", 'a', PS_OPT_FLAG, offsetof(struct umount, all), NULL, "what of penstock.conf(5) is mounted"},
        {"config", 0, PS_OPT_PATH, offsetof(struct umount, config), "FILE",
                "where NAME is looked up: see penstock mount --help"},
        {0},
};
static const struct ps_opts opts = {
        .command = "umount",
        .usage = "[OPTION...] MOUNTPOINT|NAME",
        .about = "Takes a penstock mount away, and waits until its daemon has let go of it; with the last one, of the "
                 "cache.\nNAME: a mount of penstock.conf(5).",
        .tables = {options},
};

static int left_ms(const struct umount *u, int at_most)
{
	uint64_t now = ps_clock_mono_ns();
	uint64_t left = u->deadline_ns > now ? (u->deadline_ns - now) / PS_NS_PER_MS : 0;

	return (int)PS_MIN(left + 1, (uint64_t)at_most);
}

/* Is it in use by nobody that can be seen, or by a program of ours? Somebody looks at it just now: a df, a status. */
static bool passing_by(const struct ps_mount_info *info)
{
	struct ps_holder holders[PS_HOLDERS_MAX];
	size_t n = ps_holders_find(info, holders);

	for (size_t i = 0; i < PS_MIN(n, (size_t)PS_HOLDERS_MAX); i++)
		if (strcmp(holders[i].comm, "penstock") != 0)
			return false;
	return n <= PS_HOLDERS_MAX;
}

static int busy(const struct ps_mount_info *info, const char *arg)
{
	struct ps_holder holders[PS_HOLDERS_MAX];
	size_t n = ps_holders_find(info, holders);
	ps_autostrbuf struct ps_strbuf b = {0};

	for (size_t i = 0; i < PS_MIN(n, (size_t)PS_HOLDERS_MAX); i++)
		ps_strbuf_addf(&b, "%s%d (%s, %s)", i ? ", " : "", (int)holders[i].pid, holders[i].comm,
		        holders[i].how);
	if (n > PS_HOLDERS_MAX)
		ps_strbuf_addf(&b, " and %zu more", n - PS_HOLDERS_MAX);
	if (n == 0)
		return ps_cli_fail("umount", PS_EXIT_FAILED,
		        "%s is busy: in use by a mount, or a process of another user; try as root, or --lazy",
		        arg);
	return ps_cli_fail("umount", PS_EXIT_FAILED, "%s is busy: in use by %s; end them, or use --lazy", arg,
	        ps_strbuf_peek(&b));
}

/* fusermount3, for users to whom umount(2) is not permitted. */
static int umount_by_helper(const struct umount *u, const char *mountpoint)
{
	ps_autofree char *words = NULL;
	char name[] = "fusermount3", flags[] = "-u", lazy[] = "-z", dashes[] = "--";
	char *argv[6] = {name, flags};
	int n = 2;

	if (u->lazy || u->force)
		argv[n++] = lazy;
	argv[n++] = dashes;
	argv[n] = (char *)(uintptr_t)mountpoint;
	int rc = ps_guarded_exec(argv, left_ms(u, CALL_TIMEOUT_MS), &words);
	if (rc == -EIO && words && strstr(words, "usy"))
		return -EBUSY;
	return rc == -ENOENT || rc == -EIO ? -EPERM : rc;
}

/* Every waiting and future request of the mount ends with ENOTCONN. */
static void abort_connection(const struct ps_mount_info *info)
{
	char path[80];

	snprintf(path, sizeof path, "/sys/fs/fuse/connections/%u/abort", info->dev_minor);
	ps_autofd int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd >= 0 && write(fd, "1", 1) < 0)
		return; /* umount2(MNT_FORCE) aborts too, where it is permitted */
}

static int call_umount(const struct umount *u, const struct ps_mount_info *info)
{
	int flags = UMOUNT_NOFOLLOW | (u->lazy || u->force ? MNT_DETACH : 0) | (u->force ? MNT_FORCE : 0);

	if (u->force && info->dev_major == 0)
		abort_connection(info);
	int rc = ps_guarded_umount(info->mountpoint, flags, left_ms(u, CALL_TIMEOUT_MS));
	return rc == -EPERM ? umount_by_helper(u, info->mountpoint) : rc;
}

/* The daemon of a mount, asked for before unmounting, since only the mount knows it. */
struct server {
	pid_t pid;       /* 0: not known */
	int fd;          /* becomes readable when it has ended; -1: not known */
	char *cache_dir; /* where its socket is; NULL: not known */
	size_t nmounts;
};

static void find_server(const struct umount *u, const struct ps_mount_info *info, struct server *ret)
{
	json_t *stats = NULL;

	*ret = (struct server){.fd = -1};
	if (ps_mounts_stats(info, left_ms(u, ASK_TIMEOUT_MS), &stats) < 0)
		return;
	const char *dir = json_string_value(json_object_get(json_object_get(stats, "cache"), "dir"));
	ret->cache_dir = dir ? strdup(dir) : NULL;
	ret->nmounts = json_array_size(json_object_get(stats, "mounts"));
	ret->pid = ps_mounts_pid(stats);
	json_decref(stats);
	if (ret->pid > 0)
		ret->fd = (int)syscall(SYS_pidfd_open, ret->pid, 0);
}

static void server_fini(struct server *s)
{
	if (s->fd >= 0)
		close(s->fd);
	free(s->cache_dir);
}

/* Waits until the daemon has let go of the mount and, if that was its last, of the cache. */
static int await_server(const struct umount *u, const struct ps_mount_info *info, const struct server *s,
        const char *arg)
{
	const dev_t dev = makedev(info->dev_major, info->dev_minor);
	struct ps_error err = {0};
	unsigned others = 0;

	/* It may be out of our reach, in another mount namespace: then its end is all that can be seen. */
	int rc = s->cache_dir ? ps_join_await_end(s->cache_dir, dev, left_ms(u, TOTAL_MS), &others, &err) : -ENOENT;
	bool waits = s->fd >= 0 && (rc == 0 ? others == 0 : s->nmounts <= 1);
	struct pollfd p = {.fd = s->fd, .events = POLLIN};

	if (rc != -ETIMEDOUT && (!waits || poll(&p, 1, left_ms(u, TOTAL_MS)) > 0))
		return PS_EXIT_OK;
	return ps_cli_fail("umount", PS_EXIT_FAILED,
	        "%s is unmounted, but its daemon (pid %d) still %s; a container may still have the mount (another "
	        "mount namespace)",
	        arg, (int)s->pid, s->nmounts > 1 ? "serves it" : "holds the cache");
}

static int run(struct umount *u, const char *arg)
{
	const struct ps_mount_info *info;
	struct ps_error err = {0};
	struct ps_mounts mounts;
	struct server server;
	int code = PS_EXIT_OK;

	if (ps_mounts_lookup(arg, &mounts, &info, &err) < 0)
		return ps_cli_fail("umount", PS_EXIT_FAILED, "%s", err.text);
	/* Called from within the mount, we would keep it busy ourselves. */
	if (chdir("/") < 0)
		return ps_cli_fail("umount", PS_EXIT_FAILED, "/: %s", strerror(errno));
	find_server(u, info, &server);
	int rc = call_umount(u, info);
	for (int i = 0; rc == -EBUSY && i < BUSY_RETRIES && passing_by(info); i++) {
		poll(NULL, 0, BUSY_RETRY_MS);
		rc = call_umount(u, info);
	}
	if (rc == -EBUSY) {
		code = busy(info, arg);
	} else if (rc == -ETIMEDOUT) {
		code = ps_cli_fail("umount", PS_EXIT_FAILED,
		        "%s: the kernel does not answer; try --force, or --lazy", arg);
	} else if (rc < 0) {
		code = ps_cli_fail("umount", PS_EXIT_FAILED, "%s: %s", arg,
		        rc == -EPERM ? "not permitted: it is another user's; run as root" : strerror(-rc));
	} else if (!u->lazy) {
		/* A lazy one may go on for as long as somebody reads. */
		code = await_server(u, info, &server, arg);
	}
	server_fini(&server);
	ps_mounts_fini(&mounts);
	return code;
}

static int run_timed(struct umount *u, const char *arg)
{
	u->deadline_ns = ps_clock_mono_ns() + TOTAL_MS * PS_NS_PER_MS;
	return run(u, arg);
}

/* Where the configuration says that a section's mount is; NULL: nowhere, or the section makes no sense. */
static char *mountpoint_of(const struct ps_conf *conf, const struct ps_conf_section *section)
{
	struct ps_mount_request request = {0};
	struct ps_conf_mount told = {0};
	struct ps_mount_options o;

	ps_mount_options_init(&o);
	if (ps_conf_apply(conf, section, &o, &request, &told, NULL) < 0)
		told.mountpoint = NULL;
	ps_mount_options_fini(&o);
	ps_request_fini(&request);
	return told.mountpoint;
}

/* What of the configuration is mounted; the last first: others may lie within them. */
static int run_all(struct umount *u)
{
	struct ps_conf conf = {0};
	struct ps_error err = {0};
	int code = PS_EXIT_OK;

	if (ps_conf_read(u->config, &conf, &err) < 0)
		return ps_cli_fail("umount", PS_EXIT_FAILED, "%s", err.text);
	for (size_t i = conf.n; i-- > 0;) {
		ps_autofree char *where = ps_conf_is_mount(&conf.v[i]) ? mountpoint_of(&conf, &conf.v[i]) : NULL;
		ps_autofree char *path = NULL;

		if (!where || ps_mounts_resolve(where, &path, NULL) < 0 || !ps_mounts_id(path).dev)
			continue;
		int one = run_timed(u, where);
		code = code ? code : one;
	}
	ps_conf_fini(&conf);
	return code;
}

/* A folder of that name comes first. NULL: it is none of the configuration; with a text if it most likely was
 * meant to be. */
static char *named_mountpoint(const struct umount *u, const char *arg, struct ps_error *err)
{
	struct ps_conf conf = {0};

	if (!ps_conf_is_name(arg) || access(arg, F_OK) == 0)
		return NULL;
	bool missing = errno == ENOENT; /* and no mount whose daemon is gone */
	if (ps_conf_read(u->config, &conf, NULL) < 0)
		return NULL;
	const struct ps_conf_section *section = ps_conf_find(&conf, arg);
	char *found = section ? mountpoint_of(&conf, section) : NULL;
	if (!section && missing)
		ps_conf_no_such(&conf, arg, err);
	ps_conf_fini(&conf);
	return found;
}

int ps_cmd_umount(int argc, char **argv)
{
	struct umount u = {0};
	struct ps_error err = {0};
	int nargs, code;

	if (!ps_cli_begin(&opts, &u, argc, argv, 0, 1, &nargs, &code)) {
		ps_opts_fini(&opts, &u);
		return code;
	}
	ps_autofree char *named = nargs == 1 ? named_mountpoint(&u, argv[1], &err) : NULL;
	if (u.all != (nargs == 0))
		code = ps_cli_fail("umount", PS_EXIT_USAGE, "%s; usage: penstock umount %s",
		        u.all ? "--all takes no arguments" : "too few arguments", opts.usage);
	else if (u.all)
		code = run_all(&u);
	else if (err.err)
		code = ps_cli_fail(
		        "umount", PS_EXIT_FAILED, "%s: there is no such folder; %s", argv[1], err.text);
	else
		code = run_timed(&u, named ? named : argv[1]);
	ps_opts_fini(&opts, &u);
	return code;
}
