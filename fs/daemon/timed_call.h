/* System calls that a wedged mount could hang, made in a child process and given up after a while.
 *
 * A child that hangs in the kernel is killed and left to init; the caller goes on. Threads: call from a
 * process without other threads (it forks and then runs ordinary code in the child). */
#ifndef PS_DAEMON_TIMED_CALL_H
#define PS_DAEMON_TIMED_CALL_H

#include <stddef.h>
#include <sys/types.h>

#include "base/cleanup.h"
#include "base/strbuf.h"

#define PS_GUARDED_TIMEOUT_MS 2000
#define PS_GUARDED_MAX_NBYTES (4u << 20) /* of output; more is -EFBIG */

/* Runs fn(arg, out) in a child. What it writes to the descriptor `out` becomes *ret_text (NUL-terminated, the
 * caller frees it; ret_text may be NULL). fn returns 0 or -errno, and so does this; -ETIMEDOUT: not within
 * timeout_ms. */
int ps_guarded_run(int (*fn)(void *arg, int out), void *arg, int timeout_ms, char **ret_text) PS_MUST_USE;

/* Several at once, all within timeout_ms. The caller fills fn and arg, finds rc, and takes each text, which frees the
 * call. */
struct ps_guarded_call {
	int (*fn)(void *arg, int out);
	void *arg;
	int rc;
	pid_t pid; /* private, as what follows */
	int out;
	struct ps_strbuf text;
};
void ps_guarded_run_all(struct ps_guarded_call *calls, size_t n, int timeout_ms);
char *ps_guarded_take(struct ps_guarded_call *call);

/* stat(); st_mode in *ret_mode (may be NULL). */
int ps_guarded_stat(const char *path, int timeout_ms, mode_t *ret_mode) PS_MUST_USE;
/* realpath(); the caller frees it. */
int ps_guarded_realpath(const char *path, int timeout_ms, char **ret_path) PS_MUST_USE;
/* umount2(). */
int ps_guarded_umount(const char *path, int flags, int timeout_ms) PS_MUST_USE;
/* Runs a program with its words on stderr caught: 0, or -EIO with them in *ret_text. -ENOENT: no such
 * program. */
int ps_guarded_exec(char *const argv[], int timeout_ms, char **ret_text) PS_MUST_USE;

#endif
