/* Which files of a listing are shown: --include and --exclude, the same for every kind of source.
 *
 * A pattern is compared with a file's path below its source and with its last part, as the origin calls it ("a/x.tar.zst"),
 * and so with each folder above the file: it means all below a folder that it matches. "*" and "?" also stand for "/",
 * "[...]" is a set, braces are those of braces.h. Shown is what matches an include, or anything if there is none, and no
 * exclude. Indexes go with what they are of: NAME.psx with NAME; SHARDS.psc is shown where an include could match its
 * neighbours.
 *
 * Ownership: ps_filter_new() ... ps_filter_free(). Threads: any; it notes what has matched, nothing else changes.
 * Blocks: never. */
#ifndef PS_LISTING_FILTER_H
#define PS_LISTING_FILTER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

#define PS_FILTER_MAX_NAMES 1000000 /* that the braces of one pattern stand for */
#define PS_FILTER_MAX_WILD 1000     /* of these with "*", "?" or "["; each is tried for each file */

struct ps_filter;

/* NULL-terminated lists, or NULL. *ret is NULL if both are empty: all is shown. -EINVAL, -E2BIG, -ENOMEM with the pattern. */
int ps_filter_new(const char *const *include, const char *const *exclude, struct ps_filter **ret,
        struct ps_error *err) PS_MUST_USE;
void ps_filter_free(struct ps_filter *filter);

/* filter NULL: all is. */
bool ps_filter_shows(struct ps_filter *filter, const char *path);
/* False: nothing below this folder is shown, so that it need not be listed. dir ends in "/". */
bool ps_filter_enters(struct ps_filter *filter, const char *dir);

/* The file is only there for others: a catalogue of the shards beside it. */
bool ps_filter_is_catalogue(const char *path);

/* All of a listing has been asked of it: from now on ps_filter_unmatched() tells. */
void ps_filter_listed(struct ps_filter *filter);
/* The ith pattern as it was given, includes first; NULL: there are no more (also of filter NULL). *ret_unmatched: no name of a
 * whole listing matched it. */
const char *ps_filter_pattern(const struct ps_filter *filter, size_t i, bool *ret_exclude, bool *ret_unmatched);

#endif
