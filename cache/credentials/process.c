/* Keys that a command prints: credential_process of a profile. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>

#include <openssl/crypto.h>

#include "base/clock.h"
#include "credentials/key_source.h"

#define LIMIT_MS 30000u
#define OUTPUT_MAX_NBYTES ((size_t)64 * 1024)
#define LOOK_MS 50 /* for the wish to stop */

/* A session of its own, so that all of it can be killed; of our descriptors it has none, and what it says on
 * stderr may be a secret. */
static int start(const struct ps_key_context *x, const char *command, int out, pid_t *ret_pid)
{
	char *argv[] = {(char *)"sh", (char *)"-c", (char *)command, NULL};
	posix_spawn_file_actions_t files;
	posix_spawnattr_t how;
	sigset_t none, all;

	sigemptyset(&none);
	sigfillset(&all);
	posix_spawn_file_actions_init(&files);
	posix_spawnattr_init(&how);
	int rc = posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
	if (!rc)
		rc = posix_spawn_file_actions_adddup2(&files, out, 1);
	if (!rc)
		rc = posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
	if (!rc)
		rc = posix_spawn_file_actions_addclosefrom_np(&files, 3);
	if (!rc && x->cwd)
		rc = posix_spawn_file_actions_addchdir_np(&files, x->cwd);
	if (!rc)
		rc = posix_spawnattr_setsigmask(&how, &none);
	if (!rc)
		rc = posix_spawnattr_setsigdefault(&how, &all);
	if (!rc)
		rc = posix_spawnattr_setflags(
		        &how, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	if (!rc)
		rc = posix_spawn(ret_pid, "/bin/sh", &files, &how, argv, x->env);
	posix_spawnattr_destroy(&how);
	posix_spawn_file_actions_destroy(&files);
	return -rc;
}

struct output {
	char *text; /* of OUTPUT_MAX_NBYTES + 1 */
	size_t n;
};

/* Until the end of the output. */
static int read_output(const struct ps_key_context *x, int in, struct output *out, struct ps_error *err)
{
	uint64_t until = ps_clock_mono_ns() + LIMIT_MS * PS_NS_PER_MS;

	for (;;) {
		struct pollfd p = {.fd = in, .events = POLLIN};

		if (atomic_load(&x->stop))
			return ps_error_set(err, ECANCELED, "cancelled");
		if (ps_clock_mono_ns() >= until)
			return ps_error_set(
			        err, ETIMEDOUT, "no end of its output within %u s", LIMIT_MS / 1000);
		if (poll(&p, 1, LOOK_MS) <= 0)
			continue;
		ssize_t got = read(in, out->text + out->n, OUTPUT_MAX_NBYTES - out->n);
		if (got == 0)
			break;
		if (got < 0 && errno != EINTR && errno != EAGAIN)
			return ps_error_set(err, errno, "its output: %s", strerror(errno));
		out->n += got > 0 ? (size_t)got : 0;
		if (out->n == OUTPUT_MAX_NBYTES)
			return ps_error_set(err, EFBIG, "more than 64 KiB of output");
	}
	out->text[out->n] = '\0';
	return 0;
}

/* One that has closed its output and yet does not end is ended. */
static int reap(const struct ps_key_context *x, pid_t pid, bool at_once, struct ps_error *err)
{
	uint64_t until = ps_clock_mono_ns() + (at_once ? 0 : LIMIT_MS * PS_NS_PER_MS);
	int status = 0;

	for (;;) {
		pid_t got = waitpid(pid, &status, WNOHANG);

		if (got == pid)
			break;
		if (got < 0 && errno != EINTR)
			return ps_error_set(err, errno, "waiting for its end: %s", strerror(errno));
		if (ps_clock_mono_ns() >= until || atomic_load(&x->stop))
			kill(-pid, SIGKILL);
		struct timespec nap = {.tv_nsec = LOOK_MS / 5 * (long)PS_NS_PER_MS};
		nanosleep(&nap, NULL);
	}
	if (at_once || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
		return 0;
	if (WIFSIGNALED(status))
		return ps_error_set(err, EACCES, "killed by signal %d", WTERMSIG(status));
	if (WEXITSTATUS(status) == 127)
		return ps_error_set(err, EACCES, "no such command (exit status 127)");
	return ps_error_set(err, EACCES, "exit status %d; run it by hand to see why", WEXITSTATUS(status));
}

static int run(const struct ps_key_context *x, const char *command, struct output *out, struct ps_error *err)
{
	int ends[2];
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return ps_error_set(err, errno, "pipe: %s", strerror(errno));
	ps_autofd int in = ends[0];
	int rc = start(x, command, ends[1], &pid);
	close(ends[1]);
	if (rc)
		return ps_error_set(err, -rc, "cannot be started: %s", strerror(-rc));
	rc = read_output(x, in, out, err);
	if (rc)
		kill(-pid, SIGKILL);
	int ended = reap(x, pid, rc, err);
	return rc ? rc : ended;
}

int ps_key_from_process(
        struct ps_key_context *x, const char *command, struct ps_key **ret, struct ps_error *err)
{
	static const struct ps_key_shape shape = {
	        "", "AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration", 1};
	struct output out = {.text = malloc(OUTPUT_MAX_NBYTES + 1)};

	if (!out.text)
		return ps_error_set(err, ENOMEM, "out of memory");
	int rc = run(x, command, &out, err);
	if (!rc)
		rc = ps_key_from_json(out.text, out.n, &shape, ret, err);
	OPENSSL_cleanse(out.text, out.n);
	free(out.text);
	return rc;
}
