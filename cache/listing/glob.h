/* Patterns over the paths of a listing: "*" and "?" stay within a part, "[...]" is a set, a part of "**" stands for any
 * number of parts, braces as in braces.h. "[*]" is a "*".
 *
 * Ownership: ps_glob_new() ... ps_glob_free(). Threads: one. Blocks: never. Errors: -EINVAL, -E2BIG, -ENOMEM. */
#ifndef PS_LISTING_GLOB_H
#define PS_LISTING_GLOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct ps_glob;

bool ps_glob_is_pattern(const char *text);

int ps_glob_new(const char *text, struct ps_glob **ret, struct ps_error *err) PS_MUST_USE;
void ps_glob_free(struct ps_glob *glob);

/* The folder, without "/" at its end, below which all that matches lies; "" is the top. */
const char *ps_glob_dir(const struct ps_glob *glob);
/* Can something match in folders below that one? */
bool ps_glob_is_deep(const struct ps_glob *glob);

bool ps_glob_match(struct ps_glob *glob, const char *path);

/* Names that the braces spell out and that have not been matched, and the first of them in ret (NULL if none); to
 * free(). */
uint64_t ps_glob_unmatched(struct ps_glob *glob, char **ret_first);

#endif
