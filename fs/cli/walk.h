/* The files of a mount, as warm and evict go through them. Threads: one. Blocks: on the mount, also on its
 * origin. */
#ifndef PS_CLI_WALK_H
#define PS_CLI_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* path: below the mount. Return 0 to go on, -errno to stop with it. */
typedef int (*ps_walk_fn)(void *arg, const char *path, uint64_t size);

/* Calls fn for every file that matches (ps_match()), in order of names. Errors: fn's; a folder that cannot be
 * read; and ENOENT with a text that names the first glob that matched nothing. */
int ps_walk_mount(const char *mountpoint, const char *const *globs, size_t nglobs, ps_walk_fn fn, void *arg,
        struct ps_error *err) PS_MUST_USE;

/* Has the file this value of user.penstock.NAME? Unlike an open that asks nothing of the origin, and is
 * counted nowhere. */
bool ps_walk_is(const char *file, const char *name, const char *value);

/* For other ways to walk: ENOENT and a text of the first glob that is not marked as used. */
int ps_walk_check_used(
        const char *const *globs, size_t nglobs, const bool *used, struct ps_error *err) PS_MUST_USE;

/* Globs of a command line against the files of a mount. Threads: any. */
/* True if the glob matches the path below the mount, or its last part; "*" matches "/" too. */
bool ps_match(const char *glob, const char *path);

#endif
