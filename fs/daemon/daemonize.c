#include "daemon/daemonize.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "options/command_line.h"

/* What goes through the pipe: nothing for success, else the reason. Success is one NUL byte, since the end of
 * the pipe alone is what a crash looks like. */
static const char ok_byte = '\0';

/* The parent: never returns. */
static void await_child(const char *command, pid_t child, int in)
{
	char text[PS_ERROR_TEXT_LEN + 64] = "";
	size_t n = 0;
	ssize_t got;
	int status = 0;

	while (n < sizeof text - 1 &&
	        ((got = read(in, text + n, sizeof text - 1 - n)) > 0 || (got < 0 && errno == EINTR))) {
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
		        "the daemon died before the mount was there (signal %d)", WTERMSIG(status)));
	_exit(ps_cli_fail(
	        command, PS_EXIT_FAILED, "the daemon ended before the mount was there (see the log)"));
}

/* Ours are closed by exec; what is not came from outside. */
static void note_inherited(struct ps_launch *launch)
{
	DIR *dir = opendir("/proc/self/fd");

	for (const struct dirent *d; dir && launch->ninherited < PS_LAUNCH_INHERITED && (d = readdir(dir));) {
		int fd = atoi(d->d_name), flags = fcntl(fd, F_GETFD);

		if (fd > STDERR_FILENO && flags >= 0 && !(flags & FD_CLOEXEC))
			launch->inherited[launch->ninherited++] = fd;
	}
	if (dir)
		closedir(dir);
}

int ps_launch_start(struct ps_launch *launch, const char *command, bool background, struct ps_error *err)
{
	int ends[2];

	*launch = (struct ps_launch){.background = background, .pipe = -1};
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
	launch->pipe = ends[1];
	note_inherited(launch);
	setsid();
	return 0;
}

void ps_launch_tie(const struct ps_launch *launch, bool tied)
{
	if (launch->pipe < 0)
		return;
	prctl(PR_SET_PDEATHSIG, tied ? SIGTERM : 0);
	if (tied && ps_launch_abandoned(launch))
		_exit(PS_EXIT_FAILED);
}

bool ps_launch_abandoned(const struct ps_launch *launch)
{
	struct pollfd p = {.fd = launch->pipe};

	return launch->pipe >= 0 &&
	       poll(&p, 1, 0) > 0; /* the pipe has a reader as long as the parent lives */
}

/* "READY=1" to the service manager that started us with Type=notify, if one did. */
static void notify(void)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	static const char message[] = "READY=1";

	if (!path || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof addr.sun_path)
		return;
	ps_autofd int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	memcpy(addr.sun_path, path, strlen(path));
	socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
	if (addr.sun_path[0] == '@')
		addr.sun_path[0] = '\0';
	if (fd >= 0 &&
	        sendto(fd, message, sizeof message - 1, MSG_NOSIGNAL, (struct sockaddr *)&addr, len) < 0)
		return; /* it is gone, and will find out by itself */
}

/* First the terminal and all the rest, so that it is let go of when the parent has ended; then the parent. */
static void let_go(struct ps_launch *launch, const char *word, size_t nbytes)
{
	if (chdir("/") < 0) {
		/* Then it stays where it was: a folder kept busy, no more. */
	}
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int fd = 0; null >= 0 && fd <= 2; fd++)
		dup2(null, fd);
	if (null > 2)
		close(null);
	while (launch->ninherited > 0)
		close(launch->inherited[--launch->ninherited]);
	if (launch->pipe >= 0 && write(launch->pipe, word, nbytes) < 0) {
		/* The parent was killed: nobody is left to tell, and a mount is there all the same. */
	}
	if (launch->pipe >= 0)
		close(launch->pipe);
	launch->pipe = -1;
}

void ps_launch_ready(struct ps_launch *launch)
{
	if (launch->background)
		let_go(launch, &ok_byte, 1);
	else
		notify();
}

int ps_launch_failed(struct ps_launch *launch, const char *command, const char *text)
{
	if (launch->pipe < 0)
		return ps_cli_fail(command, PS_EXIT_FAILED, "%s", text);
	let_go(launch, text, strlen(text));
	return PS_EXIT_FAILED;
}
