/* Secrets: strings that must not stay in memory once they are done with, and where they come from:
 * environments, and small files (tokens, passwords, keys) that are read whole.
 *
 * A file must be a regular one, of text, and no longer than its kind may be. World-readable or
 * world-writable files are reported in the log, once a process and mode.
 *
 * Ownership: the caller's; texts are for ps_secret_free(). Threads: any. Blocks: on disk.
 * Errors: -errno, and a text that begins with the file's name and holds nothing of what is in it. */
#ifndef PS_BASE_SECRET_H
#define PS_BASE_SECRET_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

/* free(), wiped. NULL is allowed. */
void ps_secret_free(char *secret);

#define ps_autosecret __attribute__((cleanup(ps_cleanup_secret)))
void ps_cleanup_secret(char **secret);

struct ps_secret_file {
	const char *what;  /* stands before the path in messages: "token file"; NULL: nothing does */
	size_t max_nbytes; /* a multiple of 1024; longer is -EFBIG */
	bool is_shared;    /* usually readable by every user, without a warning: a token that a cluster lays
	                   down */
	bool may_be_pipe;  /* a shell's <(command) */
};

/* The file's bytes, NUL-terminated. -EINVAL: no regular file, or no text. ret_nbytes may be NULL. */
int ps_secret_file_read(const char *path, const struct ps_secret_file *kind, char **ret, size_t *ret_nbytes,
        struct ps_error *err) PS_MUST_USE;

/* Its first line alone. */
int ps_secret_file_line(
        const char *path, const struct ps_secret_file *kind, char **ret, struct ps_error *err) PS_MUST_USE;
/* The same warning for a file that another library reads; nothing if it is not there. */
void ps_secret_file_warn(const char *path, const char *what);

/* A copy of text without the blanks and line ends around it; NULL: nothing is left. -EINVAL: what is left can
 * be no token, as there are blanks, control characters or what is not ASCII in it. */
int ps_secret_token(const char *text, char **ret) PS_MUST_USE;

/* A variable of env ("NAME=value", NULL-terminated; NULL: the process's own), borrowed; NULL if it is not set
 * or empty. A daemon mounts for others, so what an origin asks for is in their environment, not in its own.
 * Blocks: never. */
const char *ps_env_get(const char *const *env, const char *name);

#endif
