#include "guarded.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/strbuf.h"

#define EXIT_NO_PROGRAM 255 /* past every errno, and past what programs return by custom */

static int wait_child(pid_t pid, uint64_t deadline_ns)
{
	int status;

	for (;;) {
		pid_t r = waitpid(pid, &status, WNOHANG);

		if (r == pid)
			return WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
		if (r < 0 && errno != EINTR)
			return -errno;
		if (ps_clock_mono_ns() >= deadline_ns) {
			kill(pid, SIGKILL);
			waitpid(pid, &status, WNOHANG);
			return -ETIMEDOUT;
		}
		poll(NULL, 0, 5);
	}
}

static int collect(int fd, struct ps_strbuf *b, uint64_t deadline_ns)
{
	char buf[8192];

	for (;;) {
		uint64_t now = ps_clock_mono_ns();
		struct pollfd p = {.fd = fd, .events = POLLIN};

		if (now >= deadline_ns)
			return -ETIMEDOUT;
		int n = poll(&p, 1, (int)((deadline_ns - now) / PS_NS_PER_MS) + 1);
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n <= 0)
			continue;
		ssize_t got = read(fd, buf, sizeof buf);
		if (got < 0 && errno != EINTR)
			return -errno;
		if (got == 0)
			return b->failed ? -EFBIG : 0;
		if (got > 0)
			ps_strbuf_addn(b, buf, (size_t)got);
	}
}

int ps_guarded_run(int (*fn)(void *arg, int out), void *arg, int timeout_ms, char **ret_text)
{
	uint64_t deadline_ns = ps_clock_mono_ns() + (uint64_t)timeout_ms * PS_NS_PER_MS;
	ps_autostrbuf struct ps_strbuf b = {.max = PS_GUARDED_MAX_NBYTES};
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	ps_autofd int in = ends[0];
	fflush(NULL);
	pid_t pid = fork();
	if (pid < 0) {
		int rc = -errno;

		close(ends[1]);
		return rc;
	}
	if (pid == 0) {
		int rc = fn(arg, ends[1]);

		_exit(rc < 0 ? -rc & 0xff : 0);
	}
	close(ends[1]);
	int rc = collect(in, &b, deadline_ns);
	if (rc < 0)
		kill(pid, SIGKILL);
	int status = wait_child(pid, rc < 0 ? 0 : deadline_ns);
	if (rc == 0)
		rc = status;
	if (ret_text) {
		ps_strbuf_add(&b, "");
		*ret_text = ps_strbuf_take(&b);
		if (!*ret_text && rc == 0)
			rc = -ENOMEM;
	}
	return rc;
}

/* For callers that must not see a text after a failure. */
static int drop_on_error(int rc, char **text)
{
	if (rc < 0) {
		free(*text);
		*text = NULL;
	}
	return rc;
}

static int read_file(void *arg, int out)
{
	char buf[65536];
	int fd = open(arg, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	ssize_t n = 0;

	if (fd < 0)
		return -errno;
	while ((n = read(fd, buf, sizeof buf)) > 0)
		if (write(out, buf, (size_t)n) != n)
			return -EIO;
	return n < 0 ? -errno : 0;
}

int ps_guarded_read(const char *path, int timeout_ms, char **ret_text)
{
	return drop_on_error(
	        ps_guarded_run(read_file, (void *)(uintptr_t)path, timeout_ms, ret_text), ret_text);
}

static int stat_file(void *arg, int out)
{
	struct stat st;

	if (stat(arg, &st) < 0)
		return -errno;
	return write(out, &st.st_mode, sizeof st.st_mode) == (ssize_t)sizeof st.st_mode ? 0 : -EIO;
}

int ps_guarded_stat(const char *path, int timeout_ms, mode_t *ret_mode)
{
	ps_autofree char *text = NULL;
	int rc = ps_guarded_run(stat_file, (void *)(uintptr_t)path, timeout_ms, &text);

	if (rc == 0 && ret_mode)
		memcpy(ret_mode, text, sizeof *ret_mode);
	return rc;
}

static int real_path(void *arg, int out)
{
	char *path = realpath(arg, NULL);

	if (!path)
		return -errno;
	ssize_t n = (ssize_t)strlen(path);
	return write(out, path, (size_t)n) == n ? 0 : -EIO;
}

int ps_guarded_realpath(const char *path, int timeout_ms, char **ret_path)
{
	return drop_on_error(
	        ps_guarded_run(real_path, (void *)(uintptr_t)path, timeout_ms, ret_path), ret_path);
}

struct umount_args {
	const char *path;
	int flags;
};

static int call_umount(void *arg, int out)
{
	const struct umount_args *a = arg;

	(void)out;
	return umount2(a->path, a->flags) < 0 ? -errno : 0;
}

int ps_guarded_umount(const char *path, int flags, int timeout_ms)
{
	return ps_guarded_run(call_umount, &(struct umount_args){path, flags}, timeout_ms, NULL);
}

static int exec_program(void *arg, int out)
{
	char *const *argv = arg;
	int null = open("/dev/null", O_RDWR);

	if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 ||
	        dup2(out, STDERR_FILENO) < 0)
		return -errno;
	execvp(argv[0], argv);
	return errno == ENOENT ? -EXIT_NO_PROGRAM : -errno;
}

int ps_guarded_exec(char *const argv[], int timeout_ms, char **ret_text)
{
	int rc = ps_guarded_run(exec_program, (void *)(uintptr_t)argv, timeout_ms, ret_text);

	if (rc == -EXIT_NO_PROGRAM)
		return -ENOENT;
	return rc == 0 || rc == -ETIMEDOUT ? rc : -EIO;
}
