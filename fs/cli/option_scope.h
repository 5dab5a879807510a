/* Options that mean nothing to the sources they were given with: most likely a mistake, and one that shows
 * late. Whoever takes options and a source asks here, so that all say it in the same words.
 *
 * Threads: any. Blocks: never, but for the disk where a source is a list (@FILE). */
#ifndef PS_CLI_OPTION_SCOPE_H
#define PS_CLI_OPTION_SCOPE_H

#include "daemon/request.h"

/* -EINVAL and a text, with the option and the source, if the option is for another kind of source than all of
 * these. A list (@FILE) may name any. */
int ps_option_in_vain(const char *option, const struct ps_source_request *sources, size_t nsources,
        struct ps_error *err) PS_MUST_USE;
/* The same of the first ngiven of given. */
int ps_options_in_vain(const struct ps_given *given, size_t ngiven, const struct ps_source_request *sources,
        size_t nsources, struct ps_error *err) PS_MUST_USE;
/* -EINVAL and a text if an option of cache, origin or mount was given with a mount that is there already. */
int ps_options_without_source(
        const struct ps_given *given, const char *mountpoint, struct ps_error *err) PS_MUST_USE;

#endif
