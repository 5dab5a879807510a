#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include "base/clock.h"
#include "base/process.h"
#include "base/strbuf.h"
#include "cli/commands.h"
#include "cli/conf_file.h"
#include "daemon/daemon.h"

/* Each unmount takes at most 5 s in all: asking the daemon for its pid, the unmount itself, and waiting for
 * the daemon. */
#define ASK_TIMEOUT_MS 700
#define CALL_TIMEOUT_MS 1500
#define TOTAL_MS 4800
#define BUSY_RETRIES 6
#define BUSY_RETRY_MS 50

struct umount {
	const struct ps_mount_options *options;
	uint64_t deadline_ns;
	char why[256]; /* what fusermount3 said */
};

static int left_ms(const struct umount *u, int at_most)
{
	uint64_t now = ps_clock_mono_ns();
	uint64_t left = u->deadline_ns > now ? (u->deadline_ns - now) / PS_NS_PER_MS : 0;

	return (int)PS_MIN(left + 1, (uint64_t)at_most);
}

/* Processes that keep a mount busy ----------------------------------------------------------------------- */

/* A process that has a file of the mount open or mapped, or uses it as working folder, root or program. The
 * mount's daemon is never asked: links in /proc are examined without asking their file system
 * (AT_STATX_DONT_SYNC). Processes that the caller may not inspect are missed; the caller itself is left
 * out. */
struct process {
	pid_t pid;
	char comm[32];
	const char *how; /* "open file", "mapped file", "working folder", "root folder", "program" */
};

#define PROCESSES_MAX 16 /* further ones are counted, not named */

/* True if the link at `path` below dirfd leads into the mount. */
static bool leads_into(int dirfd, const char *path, const struct ps_mount_info *mount)
{
	struct statx stx;

	if (statx(dirfd, path, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_TYPE | STATX_MNT_ID, &stx) < 0)
		return false;
	if (stx.stx_dev_major != mount->dev_major || stx.stx_dev_minor != mount->dev_minor)
		return false;
	/* The same device mounted a second time, or in another namespace, does not keep this mount busy. */
	return !(stx.stx_mask & STATX_MNT_ID) || stx.stx_mnt_id == mount->mnt_id;
}

static bool has_open(int proc, const struct ps_mount_info *mount)
{
	int fd = openat(proc, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	const struct dirent *e;
	bool found = false;

	if (!d) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	while (!found && (e = readdir(d)))
		found = e->d_name[0] != '.' && leads_into(fd, e->d_name, mount);
	closedir(d);
	return found;
}

static bool has_mapped(int proc, const struct ps_mount_info *mount)
{
	ps_autofree char *line = NULL;
	size_t cap = 0;
	bool found = false;
	int fd = openat(proc, "maps", O_RDONLY | O_CLOEXEC);
	FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;

	if (!f) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	while (!found && getline(&line, &cap, f) > 0) {
		unsigned major, minor;

		found = sscanf(line, "%*s %*s %*s %x:%x", &major, &minor) == 2 && major == mount->dev_major &&
		        minor == mount->dev_minor;
	}
	fclose(f);
	return found;
}

static const char *how_it_uses(int proc, const struct ps_mount_info *mount)
{
	static const struct {
		const char *link, *how;
	} links[] = {{"cwd", "working folder"}, {"root", "root folder"}, {"exe", "program"}};

	for (size_t i = 0; i < PS_ARRAY_LEN(links); i++)
		if (leads_into(proc, links[i].link, mount))
			return links[i].how;
	if (has_open(proc, mount))
		return "open file";
	return has_mapped(proc, mount) ? "mapped file" : NULL;
}

static void read_comm(int proc, char comm[static 32])
{
	ps_autofd int fd = openat(proc, "comm", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, comm, 31) : 0;

	comm[n > 0 ? n : 0] = '\0';
	comm[strcspn(comm, "\n")] = '\0';
}

/* Fills processes[0..min(result, PROCESSES_MAX)); returns how many processes use the mount. */
static size_t busy_find(const struct ps_mount_info *mount, struct process processes[static PROCESSES_MAX])
{
	DIR *d = opendir("/proc");
	const struct dirent *e;
	size_t n = 0;

	if (!d)
		return 0;
	while ((e = readdir(d))) {
		if (!isdigit((unsigned char)e->d_name[0]) || atoi(e->d_name) == (int)getpid())
			continue;
		ps_autofd int proc = openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		const char *how = proc >= 0 ? how_it_uses(proc, mount) : NULL;

		if (!how)
			continue;
		if (n < PROCESSES_MAX) {
			processes[n] = (struct process){.pid = (pid_t)atoi(e->d_name), .how = how};
			read_comm(proc, processes[n].comm);
		}
		n++;
	}
	closedir(d);
	return n;
}

/* True if no process that we can see uses the mount, or only penstock processes do: a short-lived user, such
 * as df or penstock status, then keeps it busy. */
static bool passing_by(const struct ps_mount_info *info)
{
	struct process processes[PROCESSES_MAX];
	size_t n = busy_find(info, processes);

	for (size_t i = 0; i < PS_MIN(n, (size_t)PROCESSES_MAX); i++) {
		/* a command, or the child penstock-NUMBER with which it asks a mount */
		const char *comm = processes[i].comm;
		const char *number = strncmp(comm, "penstock-", 9) == 0 ? comm + 9 : "-";

		if (strcmp(comm, "penstock") != 0 && number[strspn(number, "0123456789abcdef")])
			return false;
	}
	return n <= PROCESSES_MAX;
}

static int busy(const struct ps_mount_info *info, const char *arg)
{
	struct process processes[PROCESSES_MAX];
	size_t n = busy_find(info, processes);
	ps_autostrbuf struct ps_strbuf b = {0};

	for (size_t i = 0; i < PS_MIN(n, (size_t)PROCESSES_MAX); i++)
		ps_strbuf_addf(&b, "%s%d (%s, %s)", i ? ", " : "", (int)processes[i].pid, processes[i].comm,
		        processes[i].how);
	if (n > PROCESSES_MAX)
		ps_strbuf_addf(&b, " and %zu more", n - PROCESSES_MAX);
	if (n == 0)
		return ps_cli_fail("umount", PS_EXIT_FAILED,
		        "%s is busy: in use by a mount or a process of another user; run this as root, or "
		        "use --lazy",
		        arg);
	return ps_cli_fail("umount", PS_EXIT_FAILED, "%s is busy: in use by %s; end them, or use --lazy", arg,
	        ps_strbuf_peek(&b));
}

/* Unmounting --------------------------------------------------------------------------------------------- */

/* fusermount3, for users to whom umount(2) is not permitted. */
static int umount_by_helper(struct umount *u, const char *mountpoint)
{
	ps_autofree char *words = NULL;
	char name[] = "fusermount3", flags[] = "-u", lazy[] = "-z", dashes[] = "--";
	char *argv[6] = {name, flags};
	int n = 2;

	if (u->options->lazy || u->options->force)
		argv[n++] = lazy;
	argv[n++] = dashes;
	argv[n] = (char *)(uintptr_t)mountpoint;
	int rc = ps_timed_exec(argv, left_ms(u, CALL_TIMEOUT_MS), &words);
	if (rc == -EIO && words && strstr(words, "usy"))
		return -EBUSY;
	if (rc == -EIO && words) {
		const char *said = strncmp(words, "fusermount3: ", 13) == 0 ? words + 13 : words;

		snprintf(u->why, sizeof(u->why), "%.*s%s", (int)strcspn(said, "\n"), said,
		        ps_fusermount_advice(words));
	} else if (rc == -ENOENT) {
		snprintf(u->why, sizeof(u->why), "run as root, or install fusermount3 (package fuse3)");
	}
	return rc == -ENOENT || rc == -EIO ? -EPERM : rc;
}

/* Aborts the mount's connection: waiting requests end with ECONNABORTED, later ones with ENOTCONN. */
static void abort_connection(const struct ps_mount_info *info)
{
	char path[80];

	snprintf(path, sizeof(path), "/sys/fs/fuse/connections/%u/abort", info->dev_minor);
	ps_autofd int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd >= 0 && write(fd, "1", 1) < 0)
		return; /* umount2(MNT_FORCE) aborts too, if permitted */
}

/* True if another process has unmounted the mount since it was looked up. */
static bool is_gone(const struct ps_mount_info *info)
{
	struct ps_mounts now;
	bool found = false;

	if (ps_mounts_read(NULL, true, &now) < 0)
		return false;
	for (size_t i = 0; i < now.n && !found; i++)
		found = now.v[i].mnt_id == info->mnt_id;
	ps_mounts_fini(&now);
	return !found;
}

static int call_umount(struct umount *u, const struct ps_mount_info *info)
{
	int flags = UMOUNT_NOFOLLOW | (u->options->lazy || u->options->force ? MNT_DETACH : 0) |
	            (u->options->force ? MNT_FORCE : 0);

	if (u->options->force && info->dev_major == 0)
		abort_connection(info);
	int rc = ps_timed_umount(info->mountpoint, flags, left_ms(u, CALL_TIMEOUT_MS));
	if (rc == -EINVAL && is_gone(info))
		return 0;
	return rc == -EPERM ? umount_by_helper(u, info->mountpoint) : rc;
}

/* The daemon of a mount. It is looked up before unmounting, since only the mount can name it. */
struct server {
	pid_t pid;       /* 0: not known */
	int fd;          /* readable when the process has ended; -1: not known */
	char *cache_dir; /* the folder of its socket; NULL: not known */
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

struct awaited {
	const char *cache_dir;
	dev_t dev;
	int ms;
};

/* Runs in a child: the cache folder is what the mount says, and may be one that does not answer. */
static int await_end(void *arg, int out)
{
	const struct awaited *a = arg;
	struct ps_error err = {0};
	unsigned others = 0;
	int rc = ps_control_await_end(a->cache_dir, a->dev, a->ms, &others, &err);

	return rc < 0 ? rc : dprintf(out, "%u", others) < 0 ? -errno : 0;
}

/* Waits until the daemon has released the mount and, if that was its last, the cache. */
static int await_server(
        const struct umount *u, const struct ps_mount_info *info, const struct server *s, const char *arg)
{
	const dev_t dev = makedev(info->dev_major, info->dev_minor);
	unsigned others = 0;

	/* The socket may be unreachable, in another mount namespace: then only the end of the process can
	 * be seen. */
	struct awaited awaited = {.cache_dir = s->cache_dir, .dev = dev, .ms = left_ms(u, TOTAL_MS)};
	ps_autofree char *answer = NULL;
	int rc = s->cache_dir ? ps_timed_run(await_end, &awaited, awaited.ms, &answer) : -ENOENT;
	if (rc == 0)
		others = (unsigned)strtoul(answer, NULL, 10);
	bool waits = s->fd >= 0 && (rc == 0 ? others == 0 : s->nmounts <= 1);
	struct pollfd p = {.fd = s->fd, .events = POLLIN};

	if (rc != -ETIMEDOUT && (!waits || poll(&p, 1, left_ms(u, TOTAL_MS)) > 0))
		return PS_EXIT_OK;
	return ps_cli_fail("umount", PS_EXIT_FAILED,
	        "%s is unmounted, but its daemon (pid %d) still %s; a container (another mount namespace) "
	        "may still have the mount",
	        arg, (int)s->pid, s->nmounts > 1 ? "serves it" : "holds the cache");
}

static int unmount(struct umount *u, const char *arg)
{
	const struct ps_mount_info *info;
	struct ps_error err = {0};
	ps_automounts struct ps_mounts mounts = {0};
	struct server server;
	int code = PS_EXIT_OK;

	u->deadline_ns = ps_clock_mono_ns() + TOTAL_MS * PS_NS_PER_MS;
	u->why[0] = '\0';
	if (ps_mounts_lookup(arg, &mounts, &info, &err) < 0)
		return ps_cli_fail("umount", PS_EXIT_FAILED, "%s", err.text);
	/* If called from within the mount, we would keep it busy ourselves. */
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
		bool ours = info->uid == geteuid();

		code = ps_cli_fail("umount", PS_EXIT_FAILED, "%s: %s%s%s", arg,
		        rc != -EPERM ? strerror(-rc)
		        : ours       ? "not permitted"
		                     : "not permitted: the mount belongs to another user; run this as root",
		        rc == -EPERM && ours && *u->why ? ": " : "", rc == -EPERM && ours ? u->why : "");
	} else if (!u->options->lazy) {
		/* A lazily detached mount lasts for as long as a file is open. */
		code = await_server(u, info, &server, arg);
	}
	if (server.fd >= 0)
		close(server.fd);
	free(server.cache_dir);
	return code;
}

/* The mountpoint of a section; NULL: it has none, or the section is invalid. */
static char *mountpoint_of(const struct ps_conf *conf, const struct ps_conf_section *section)
{
	struct ps_mount_request request = {0};
	struct ps_conf_mount found = {0};
	struct ps_mount_options o;

	ps_mount_options_init(&o);
	if (ps_conf_apply(conf, section, &o, &request, &found, NULL) < 0)
		found.mountpoint = NULL;
	ps_mount_options_fini(&o);
	ps_request_fini(&request);
	return found.mountpoint;
}

/* Unmounts all mounts of the configuration, the last first: later ones may be inside earlier ones. */
static int run_all(struct umount *u)
{
	struct ps_conf conf = {0};
	struct ps_error err = {0};
	int code = PS_EXIT_OK;

	if (ps_conf_read(u->options->config, &conf, &err) < 0)
		return ps_cli_fail("umount", PS_EXIT_FAILED, "%s", err.text);
	for (size_t i = conf.n; i-- > 0;) {
		ps_autofree char *where =
		        ps_conf_is_mount(&conf.v[i]) ? mountpoint_of(&conf, &conf.v[i]) : NULL;
		ps_autofree char *path = NULL;

		if (!where || ps_mounts_resolve(where, &path, NULL) < 0 || !ps_mounts_id(path).dev)
			continue;
		int one = unmount(u, where);
		code = code ? code : one;
	}
	ps_conf_fini(&conf);
	return code;
}

/* The mountpoint of the section named `arg`, or NULL. An existing file or folder `arg` has priority. If there
 * is neither, and penstock.conf(5) can be read, *err gets a text. */
static char *named_mountpoint(const struct umount *u, const char *arg, struct ps_error *err)
{
	struct ps_conf conf = {0};

	int there = ps_conf_is_name(arg) ? ps_timed_stat(arg, PS_TIMED_TIMEOUT_MS, NULL) : 0;
	if (there == 0)
		return NULL;
	bool missing = there == -ENOENT; /* not the error of a mount whose daemon has ended */
	if (ps_conf_read(u->options->config, &conf, NULL) < 0)
		return NULL;
	const struct ps_conf_section *section = ps_conf_find(&conf, arg);
	char *found = section ? mountpoint_of(&conf, section) : NULL;
	if (!section && missing)
		ps_conf_no_such(&conf, arg, err);
	ps_conf_fini(&conf);
	return found;
}

/* Unmounts all arguments, also after one that fails. */
static int run_each(struct umount *u, char **args, int nargs)
{
	ps_autofree char **paths = ps_need(calloc((size_t)nargs, sizeof(*paths)));
	int code = PS_EXIT_OK;

	/* Before the first changes the working folder. */
	for (int i = 0; i < nargs; i++) {
		struct ps_error err = {0};

		paths[i] = named_mountpoint(u, args[i], &err);
		if (err.err)
			code = ps_cli_fail("umount", PS_EXIT_FAILED, "%s: there is no such folder; %s",
			        args[i], err.text);
		else if (!paths[i])
			paths[i] = nargs > 1 ? ps_path_absolute(args[i]) : strdup(args[i]);
	}
	for (int i = 0; i < nargs; i++) {
		int one = paths[i] ? unmount(u, paths[i]) : code;

		code = code ? code : one;
		free(paths[i]);
	}
	return code;
}

static int run(struct ps_mount_options *o, char **args, int nargs)
{
	struct umount u = {.options = o};

	if (o->all != (nargs == 0))
		return ps_cli_fail("umount", PS_EXIT_USAGE, "%s; usage: penstock umount %s",
		        o->all ? "--all takes no arguments" : "too few arguments", ps_cmd_umount.usage);
	return o->all ? run_all(&u) : run_each(&u, args, nargs);
}

const struct ps_opts ps_cmd_umount = {
        .command = "umount",
        .id = PS_CMD_UMOUNT,
        .usage = "[OPTION...] MOUNTPOINT|NAME...",
        .about = "Unmounts penstock mounts. Waits until the daemon has released each mount and, after its "
                 "last mount, the\n"
                 "cache. NAME is a mount of penstock.conf(5).",
        .words = {{"all", "unmount every mount of penstock.conf(5)"},
                {"config", "read this file instead of ~/.config/penstock.conf or /etc/penstock.conf"}},
        .max = PS_ARGS_ANY,
        .run = run,
};
