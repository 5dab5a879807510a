/* Sources that name their objects one by one, braces and manifests: to a listing, for every scheme alike.
 *
 * Two passes: what all names share is cut off, and that is known only after the last one. */
#ifndef PS_ORIGIN_ENUMERATE_H
#define PS_ORIGIN_ENUMERATE_H

#include "listing/names.h"
#include "origin/source.h"

/* Told of every URL with signature parameters of its own. -errno ends it. */
typedef int (*ps_sign_fn)(void *arg, const char *url, const char *signature);

/* text: the manifest's, of a source of that kind; else NULL. An entry that is another origin's business (a
 * file in a list of URLs) is an error; what is wrong with a manifest is told with its name and the line. */
int ps_expand(const struct ps_source *source, const struct ps_packed *text, ps_sign_fn sign, void *sign_arg,
        struct ps_names *names) PS_MUST_USE;

#endif
