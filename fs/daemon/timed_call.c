#include "daemon/daemon.h"

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
#include "base/process.h"
#include "base/strbuf.h"

#define EXIT_NO_PROGRAM 255 /* above every errno and the usual exit codes */

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

/* Closes all descriptors of a child but `out`. A child that hangs in a file system cannot be killed, and
 * would keep the caller's pipes and terminal open. Returns the new descriptor of `out`, or -errno. */
static int let_go(int out)
{
	ps_autofd int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0 ||
	        dup2(null, STDERR_FILENO) < 0)
		return -errno;
	(void)ps_steal_fd(&null);
	if (out != STDERR_FILENO + 1 && dup3(out, STDERR_FILENO + 1, O_CLOEXEC) < 0)
		return -errno;
	closefrom(STDERR_FILENO + 2);
	return STDERR_FILENO + 1;
}

static int begin(struct ps_timed_call *call)
{
	int ends[2];

	call->out = -1;
	call->text = (struct ps_strbuf){.max = PS_TIMED_MAX_NBYTES};
	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	fflush(NULL);
	call->pid = fork();
	if (call->pid == 0) {
		int out = let_go(ends[1]);
		int rc = out < 0 ? out : call->fn(call->arg, out);

		_exit(rc < 0 ? -rc & 0xff : 0);
	}
	int rc = call->pid < 0 ? -errno : 0;
	close(ends[1]);
	if (rc < 0)
		close(ends[0]);
	else
		call->out = ends[0];
	return rc;
}

/* Collects output. True: the output has ended, or call->rc has an error. */
static bool collect(struct ps_timed_call *call)
{
	char buf[8192];
	ssize_t got = read(call->out, buf, sizeof(buf));

	if (got > 0)
		ps_strbuf_addn(&call->text, buf, (size_t)got);
	if (got < 0 && errno != EINTR)
		call->rc = -errno;
	else if (got == 0 && call->text.failed)
		call->rc = call->text.len < PS_TIMED_MAX_NBYTES - sizeof(buf) ? -ENOMEM : -EFBIG;
	return got == 0 || call->rc < 0;
}

static void end(struct ps_timed_call *call, uint64_t deadline_ns)
{
	close(call->out);
	if (call->rc < 0)
		kill(call->pid, SIGKILL);
	int status = wait_child(call->pid, call->rc < 0 ? 0 : deadline_ns);
	if (call->rc == 0)
		call->rc = status;
}

void ps_timed_run_all(struct ps_timed_call *calls, size_t n, int timeout_ms)
{
	uint64_t deadline_ns = ps_clock_mono_ns() + (uint64_t)timeout_ms * PS_NS_PER_MS, now;
	ps_autofree struct pollfd *p = calloc(n ? n : 1, sizeof(*p));
	size_t open = 0;

	for (size_t i = 0; i < n; i++) {
		calls[i].rc = p ? begin(&calls[i]) : -ENOMEM;
		open += calls[i].rc == 0;
		if (p)
			p[i] = (struct pollfd){.fd = calls[i].rc == 0 ? calls[i].out : -1, .events = POLLIN};
	}
	while (open > 0 && (now = ps_clock_mono_ns()) < deadline_ns) {
		if (poll(p, n, (int)((deadline_ns - now) / PS_NS_PER_MS) + 1) <= 0)
			continue;
		for (size_t i = 0; i < n; i++) {
			if (p[i].fd < 0 || !p[i].revents || !collect(&calls[i]))
				continue;
			end(&calls[i], deadline_ns);
			p[i].fd = -1;
			open--;
		}
	}
	for (size_t i = 0; p && i < n; i++) {
		if (p[i].fd < 0)
			continue;
		calls[i].rc = -ETIMEDOUT;
		end(&calls[i], 0);
	}
}

char *ps_timed_take(struct ps_timed_call *call)
{
	ps_strbuf_add(&call->text, "");
	char *text = ps_strbuf_take(&call->text);

	if (!text && call->rc == 0)
		call->rc = -ENOMEM;
	return text;
}

int ps_timed_run(int (*fn)(void *arg, int out), void *arg, int timeout_ms, char **ret_text)
{
	struct ps_timed_call call = {.fn = fn, .arg = arg};

	ps_timed_run_all(&call, 1, timeout_ms);
	if (ret_text)
		*ret_text = ps_timed_take(&call);
	else
		ps_strbuf_fini(&call.text);
	return call.rc;
}

static int stat_file(void *arg, int out)
{
	struct stat st;

	if (stat(arg, &st) < 0)
		return -errno;
	return write(out, &st.st_mode, sizeof(st.st_mode)) == (ssize_t)sizeof(st.st_mode) ? 0 : -EIO;
}

int ps_timed_stat(const char *path, int timeout_ms, mode_t *ret_mode)
{
	ps_autofree char *text = NULL;
	int rc = ps_timed_run(stat_file, (void *)(uintptr_t)path, timeout_ms, &text);

	if (rc == 0 && ret_mode)
		memcpy(ret_mode, text, sizeof(*ret_mode));
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

int ps_timed_realpath(const char *path, int timeout_ms, char **ret_path)
{
	int rc = ps_timed_run(real_path, (void *)(uintptr_t)path, timeout_ms, ret_path);

	if (rc < 0)
		free(ps_steal_ptr(ret_path)); /* callers must not see a part */
	return rc;
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

int ps_timed_umount(const char *path, int flags, int timeout_ms)
{
	return ps_timed_run(call_umount, &(struct umount_args){path, flags}, timeout_ms, NULL);
}

static int exec_program(void *arg, int out)
{
	char *const *argv = arg;

	if (dup2(out, STDOUT_FILENO) < 0 || dup2(out, STDERR_FILENO) < 0)
		return -errno;
	ps_process_give_back();
	execvp(argv[0], argv);
	return errno == ENOENT ? -EXIT_NO_PROGRAM : -errno;
}

int ps_timed_exec(char *const argv[], int timeout_ms, char **ret_text)
{
	int rc = ps_timed_run(exec_program, (void *)(uintptr_t)argv, timeout_ms, ret_text);

	if (rc == -EXIT_NO_PROGRAM)
		return -ENOENT;
	return rc == 0 || rc == -ETIMEDOUT ? rc : -EIO;
}
