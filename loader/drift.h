/* What became different between two profiles (penstock_loader_profile()).
 *
 * Ownership: the caller's.   Threads: any.   Locks: none.   Blocks: never.
 * Errors: 0 or -errno with a text. -EINVAL: `was` or `now` is no profile. */
#ifndef PS_DRIFT_H
#define PS_DRIFT_H

#include "base/buf.h"
#include "base/error.h"

/* A line for each difference, ended by a newline; none: there is none worth a warning. */
int ps_drift_find(
        const char *was, const char *now, struct ps_buf *ret_lines, struct ps_load_error *err) PS_MUST_USE;

#endif
