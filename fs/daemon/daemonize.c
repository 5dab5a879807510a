#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "daemon/daemon.h"
#include "options/options.h"

/* The child writes one NUL byte into the pipe for success, else the reason. End of file without a byte
 * means a crash. */
static const char ok_byte = '\0';

/* The parent: never returns. */
static void await_child(const char *command, pid_t child, int in)
{
	char text[PS_ERROR_TEXT_LEN + 64] = "";
	size_t n = 0;
	ssize_t got;
	int status = 0;

	ps_cli_wait(in, command, "the source to be listed");
	while (n < sizeof(text) - 1 &&
	        ((got = read(in, text + n, sizeof(text) - 1 - n)) > 0 || (got < 0 && errno == EINTR))) {
		n += got > 0 ? (size_t)got : 0;
		if (n > 0 && text[0] == ok_byte)
			_exit(PS_EXIT_OK);
	}
	if (n > 0)
		_exit(ps_cli_fail(command, PS_EXIT_FAILED, "%s", text));
	while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
	}
	if (WIFSIGNALED(status))
		_exit(ps_cli_fail(command, PS_EXIT_FAILED,
		        "the daemon died before the mount was ready (signal %d)", WTERMSIG(status)));
	_exit(ps_cli_fail(
	        command, PS_EXIT_FAILED, "the daemon exited before the mount was ready (see the log)"));
}

/* Notes inherited descriptors: those without close-on-exec, a flag that all our own descriptors have. */
static void note_inherited(struct ps_daemonize *daemonize)
{
	DIR *dir = opendir("/proc/self/fd");

	for (const struct dirent *d;
	        dir && daemonize->ninherited < PS_DAEMONIZE_INHERITED && (d = readdir(dir));) {
		int fd = atoi(d->d_name), flags = fcntl(fd, F_GETFD);

		if (fd > STDERR_FILENO && flags >= 0 && !(flags & FD_CLOEXEC))
			daemonize->inherited[daemonize->ninherited++] = fd;
	}
	if (dir)
		closedir(dir);
}

int ps_daemonize_start(
        struct ps_daemonize *daemonize, const char *command, bool background, struct ps_error *err)
{
	int ends[2];

	*daemonize = (struct ps_daemonize){.background = background, .pipe = -1, .notify = -1};
	if (!background)
		return 0;
	fflush(NULL);
	if (pipe2(ends, O_CLOEXEC) < 0)
		return ps_error_set(err, errno, "pipe: %s", strerror(errno));
	pid_t child = fork();
	if (child < 0) {
		int rc = ps_error_set(err, errno, "fork: %s", strerror(errno));

		close(ends[0]);
		close(ends[1]);
		return rc;
	}
	if (child > 0) {
		close(ends[1]);
		await_child(command, child, ends[0]);
	}
	close(ends[0]);
	daemonize->pipe = ends[1];
	note_inherited(daemonize);
	setsid();
	return 0;
}

void ps_daemonize_let_go_of(struct ps_daemonize *daemonize, int fd)
{
	if (daemonize->ninherited < PS_DAEMONIZE_INHERITED)
		daemonize->inherited[daemonize->ninherited++] = fd;
}

void ps_daemonize_tie(const struct ps_daemonize *daemonize, bool tied)
{
	if (daemonize->pipe < 0)
		return;
	prctl(PR_SET_PDEATHSIG, tied ? SIGTERM : 0);
	if (tied && ps_daemonize_abandoned(daemonize))
		_exit(PS_EXIT_FAILED);
}

void ps_daemonize_sandboxed(struct ps_daemonize *daemonize)
{
	if (!daemonize->background && getenv("NOTIFY_SOCKET"))
		daemonize->notify = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
}

bool ps_daemonize_abandoned(const struct ps_daemonize *daemonize)
{
	struct pollfd p = {.fd = daemonize->pipe};

	return daemonize->pipe >= 0 &&
	       poll(&p, 1, 0) > 0; /* POLLERR: the pipe's reader, the parent, has ended */
}

/* Sends "READY=1" to the service manager, if one started us with Type=notify. */
static void notify(int sock)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	static const char message[] = "READY=1";

	if (!path || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof(addr.sun_path))
		return;
	ps_autofd int fd = sock >= 0 ? sock : socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	memcpy(addr.sun_path, path, strlen(path));
	socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
	if (addr.sun_path[0] == '@')
		addr.sun_path[0] = '\0';
	if (fd >= 0 &&
	        sendto(fd, message, sizeof(message) - 1, MSG_NOSIGNAL, (struct sockaddr *)&addr, len) < 0)
		return; /* the service manager has ended */
}

/* Gives up folder, terminal and inherited descriptors first, then reports to the parent: when the parent
 * has exited, all of them are free. */
static void let_go(struct ps_daemonize *daemonize, const char *word, size_t nbytes)
{
	if (chdir("/") < 0) {
		/* The daemon stays in its folder, which only keeps that file system busy. */
	}
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int fd = 0; null >= 0 && fd <= 2; fd++)
		dup2(null, fd);
	if (null > 2)
		close(null);
	while (daemonize->ninherited > 0)
		close(daemonize->inherited[--daemonize->ninherited]);
	if (daemonize->pipe >= 0 && write(daemonize->pipe, word, nbytes) < 0) {
		/* The parent was killed: there is no process to report to, and the mount stays. */
	}
	if (daemonize->pipe >= 0)
		close(daemonize->pipe);
	daemonize->pipe = -1;
}

void ps_daemonize_keeper(struct ps_daemonize *daemonize)
{
	if (daemonize->pipe >= 0)
		close(daemonize->pipe);
	daemonize->pipe = -1;
	if (daemonize->background)
		let_go(daemonize, NULL, 0);
}

void ps_daemonize_keeper_ready(const struct ps_daemonize *daemonize)
{
	if (daemonize->background)
		ps_cgroup_leave();
	else
		notify(-1);
}

void ps_daemonize_ready(struct ps_daemonize *daemonize)
{
	if (daemonize->background && ps_log_instead())
		fprintf(stderr, "penstock: %s\n", ps_log_instead());
	if (daemonize->background)
		let_go(daemonize, &ok_byte, 1);
	else if (!daemonize->kept)
		notify(daemonize->notify);
}

int ps_daemonize_failed(struct ps_daemonize *daemonize, const char *command, const char *text)
{
	if (daemonize->pipe < 0)
		return ps_cli_fail(command, PS_EXIT_FAILED, "%s", text);
	let_go(daemonize, text, strlen(text));
	return PS_EXIT_FAILED;
}

/* The control group ------------------------------------------------------------------------------------ */

void ps_cgroup_target(const char *own, uid_t uid, char *ret, size_t room)
{
	char manager[48];

	ret[0] = '\0';
	if (own[0] != '/' || !own[1])
		return;
	if (uid == 0) {
		if (strcmp(own, "/penstock") != 0)
			snprintf(ret, room, "/penstock");
		return;
	}
	snprintf(manager, sizeof(manager), "/user@%u.service/", (unsigned)uid);
	const char *s = strstr(own, manager);
	if (!s || strcmp(s + strlen(manager), "penstock") == 0)
		return;
	size_t n = (size_t)(s - own) + strlen(manager);
	if (n + sizeof("penstock") <= room)
		snprintf(ret, room, "%.*spenstock", (int)n, own);
}

/* The process's group in the cgroup2 hierarchy, or "". */
static void own_group(char *ret, size_t room)
{
	char line[4096];
	FILE *f = fopen("/proc/self/cgroup", "re");

	ret[0] = '\0';
	while (f && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		if (strncmp(line, "0::", 3) == 0)
			snprintf(ret, room, "%s", line + 3);
	}
	if (f)
		fclose(f);
}

/* The mountpoint of the cgroup2 hierarchy; NULL: there is none. */
static const char *hierarchy(void)
{
	static const char *const all[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};

	for (size_t i = 0; i < PS_ARRAY_LEN(all); i++) {
		char path[64];
		struct stat st;

		snprintf(path, sizeof(path), "%s/cgroup.procs", all[i]);
		if (stat(path, &st) == 0)
			return all[i];
	}
	return NULL;
}

static int write_control(const char *group, const char *file, const char *text)
{
	const char *top = hierarchy();
	char path[8192];

	snprintf(path, sizeof(path), "%s%s/%s", top ? top : "", group, file);
	ps_autofd int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd >= 0 && write(fd, text, strlen(text)) >= 0)
		return 0;
	int rc = -errno;
	ps_log_debug("keeper: %s: %s", path, strerror(errno));
	return rc;
}

/* Makes the group if it is not there. */
static int enter(const char *group)
{
	const char *top = hierarchy();
	char path[8192], pid[16];

	snprintf(path, sizeof(path), "%s%s", top ? top : "", group);
	if (!top || (mkdir(path, 0755) < 0 && errno != EEXIST))
		return top ? -errno : -ENOENT;
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	return write_control(group, "cgroup.procs", pid);
}

void ps_cgroup_of_unit(char *ret, size_t room)
{
	size_t n;

	own_group(ret, room);
	n = strlen(ret);
	if (geteuid() != 0 || n < 8 || strcmp(ret + n - 8, ".service") != 0)
		ret[0] = '\0';
}

void ps_cgroup_enter_part(const char *unit, const char *part)
{
	char group[4200];

	snprintf(group, sizeof(group), "%s/%s", unit, part);
	int rc = enter(group);
	if (rc < 0)
		ps_log_debug("keeper: control group %s: %s", group, strerror(-rc));
}

void ps_cgroup_die_together(const char *unit, const char *part)
{
	char group[4200];

	snprintf(group, sizeof(group), "%s/%s", unit, part);
	(void)write_control(unit, "cgroup.subtree_control", "+memory");
	(void)write_control(group, "memory.oom.group", "1");
}

void ps_cgroup_leave(void)
{
	char own[4096], target[4096];

	own_group(own, sizeof(own));
	ps_cgroup_target(own, geteuid(), target, sizeof(target));
	if (*target && enter(target) == 0)
		ps_log_info("mount: the daemon is in the control group %s now", target);
	else if (own[0] && own[1])
		ps_log_info("mount: the daemon stays in the control group %s, and ends with it", own);
}
