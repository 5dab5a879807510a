/* Options that mean nothing to the sources they were given with: most likely a mistake, and one that shows
 * late.
 *
 * Threads: any. Blocks: never. */
#ifndef PS_VAIN_H
#define PS_VAIN_H

#include "request.h"

/* -EINVAL and a text if an option of a command line is for another kind of source than all of these. A list
 * (@FILE) may name any. */
int ps_options_in_vain(const struct ps_given *given, const struct ps_source_request *sources, size_t nsources,
        struct ps_error *err) PS_MUST_USE;

#endif
