/* Which files of a listing are shown: --include and --exclude, the same for every kind of source.
 *
 * A pattern is compared with a file's path below its source and with its last part, as the origin calls it ("a/x.tar.zst").
 * "*" and "?" also stand for "/", "[...]" is a set, braces are those of braces.h. Shown is what matches an include, or
 * anything if there is none, and no exclude.
 *
 * Ownership: ps_filter_new() ... ps_filter_free(). Threads: any; it does not change. Blocks: never. */
#ifndef PS_LISTING_FILTER_H
#define PS_LISTING_FILTER_H

#include <stdbool.h>

#include "base/error.h"

#define PS_FILTER_MAX_NAMES 1000000 /* that the braces of one pattern stand for */
#define PS_FILTER_MAX_WILD 1000     /* of these with "*", "?" or "["; each is tried for each file */

struct ps_filter;

/* NULL-terminated lists, or NULL. *ret is NULL if both are empty: all is shown. -EINVAL, -E2BIG, -ENOMEM with the pattern. */
int ps_filter_new(const char *const *include, const char *const *exclude, struct ps_filter **ret,
        struct ps_error *err) PS_MUST_USE;
void ps_filter_free(struct ps_filter *filter);

/* filter NULL: all is. */
bool ps_filter_shows(const struct ps_filter *filter, const char *path);
/* False: nothing below this folder is shown, so that it need not be listed. dir ends in "/". */
bool ps_filter_enters(const struct ps_filter *filter, const char *dir);

#endif
