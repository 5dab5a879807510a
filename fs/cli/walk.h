/* Walks the files of a mount, for warm, evict and pin. Threads: one. Blocks: on the mount, and so also on its
 * origin. */
#ifndef PS_CLI_WALK_H
#define PS_CLI_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* file: the whole path; path: the part below the mount. Returns 0 to continue, -errno to stop with that
 * error. */
typedef int (*ps_walk_fn)(void *arg, const char *file, const char *path, uint64_t size);

/* Calls fn, in order of names, for every file that matches (ps_match()). The folder of a shard's members
 * counts as one file, unless the shard is shown beside it. Errors: fn's; that of a folder that cannot be
 * read; -EOPNOTSUPP for a merged tree; -ENOENT with a text that names the first glob without a match. */
int ps_walk_mount(const char *mountpoint, const char *const *globs, size_t nglobs, ps_walk_fn fn, void *arg,
        struct ps_error *err) PS_MUST_USE;

/* True if the attribute user.penstock.NAME of the file has this value. Unlike an open, this does not ask
 * the origin, and no statistics count it. */
bool ps_walk_is(const char *file, const char *name, const char *value);

/* For other kinds of walk: -ENOENT and a text with the first glob that is not marked as used. */
int ps_walk_check_used(
        const char *const *globs, size_t nglobs, const bool *used, struct ps_error *err) PS_MUST_USE;

/* True if the glob matches the path below the mount, or its last part; "*" matches "/" too. Threads: any. */
bool ps_match(const char *glob, const char *path);

#endif
