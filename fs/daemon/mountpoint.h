/* Is a folder fit to be mounted on? Recovers the stale mount of a daemon that died.
 *
 * Threads: one, before any is made (it forks). Blocks: at most a few seconds, whatever is mounted there.
 * Errors: -errno and a text that says what to do. */
#ifndef PS_DAEMON_MOUNTPOINT_H
#define PS_DAEMON_MOUNTPOINT_H

#include <stdbool.h>

#include "base/error.h"

/* *ret_path: the folder's real path; the caller frees it. */
int ps_mountpoint_check(const char *arg, bool nonempty, char **ret_path, struct ps_error *err) PS_MUST_USE;

/* A mount within its own source would list itself for ever; a cache below its mount would be hidden by it.
 * `source` is absolute if it is local; cache_dir need not exist. */
int ps_mountpoint_apart(
        const char *mountpoint, const char *source, const char *cache_dir, struct ps_error *err) PS_MUST_USE;

#endif
