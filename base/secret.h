/* Secrets: strings that are wiped from memory after use. Their sources: environments, and small files
 * (tokens, passwords, keys) that are read whole.
 *
 * A file must be a regular text file within the size limit of its kind. A world-readable or world-writable
 * file is reported in the log, once for each mode and process.
 *
 * Ownership: the caller's; free texts with ps_secret_free(). Threads: any. Blocks: on disk. Errors: -errno,
 * and a text that names the file and contains nothing of its content. */
#ifndef PS_BASE_SECRET_H
#define PS_BASE_SECRET_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

/* Wipes and frees. NULL is allowed. */
void ps_secret_free(char *secret);

#define ps_autosecret __attribute__((cleanup(ps_cleanup_secret)))
void ps_cleanup_secret(char **secret);

/* A file in memory, close-on-exec. From Linux 6.3 on it cannot be executed. -errno: as memfd_create(2). */
int ps_secret_memfd(const char *name) PS_MUST_USE;

struct ps_secret_file {
	const char *what;  /* precedes the path in messages: "token file"; NULL: nothing */
	size_t max_nbytes; /* a multiple of 1024; longer is -EFBIG */
	bool is_shared;    /* every user may read it, without a warning: a token that a cluster provides */
	bool may_be_pipe;  /* may also be a pipe: a shell's <(command) */
};

/* The file's bytes, NUL-terminated. -EINVAL: not a regular file, or not text. ret_nbytes may be NULL. */
int ps_secret_file_read(const char *path, const struct ps_secret_file *kind, char **ret, size_t *ret_nbytes,
        struct ps_error *err) PS_MUST_USE;

/* The file's first line only. */
int ps_secret_file_line(
        const char *path, const struct ps_secret_file *kind, char **ret, struct ps_error *err) PS_MUST_USE;
/* For a file that another library reads: logs that it is world-readable or world-writable, as above. Does
 * nothing if the file is missing. */
void ps_secret_file_warn(const char *path, const char *what);

/* *ret: a copy of text without surrounding blanks and line ends; NULL: nothing is left. -EINVAL: not a
 * token, because it contains blanks, control characters or bytes that are not ASCII. */
int ps_secret_token(const char *text, char **ret) PS_MUST_USE;

/* The value of a variable in env ("NAME=value", NULL-terminated; env NULL: the process's own), borrowed;
 * NULL if the variable is not set or empty. The daemon mounts for other processes: credentials and settings
 * come from their environments, not from its own. Blocks: never. */
const char *ps_env_get(const char *const *env, const char *name);

#endif
