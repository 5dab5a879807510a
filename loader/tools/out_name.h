/* Names of shards that are written: a pattern with one number in it, "train-%06d.tar".
 *
 * Threads: any.   Errors: complains on stderr and returns false, or NULL when memory is short; or -errno. */
#ifndef PS_TOOLS_OUT_NAME_H
#define PS_TOOLS_OUT_NAME_H

#include <stdbool.h>
#include <stdint.h>

#include "base/load_error.h"

/* True if there is exactly one %d or %0Nd, and no other %. */
bool ps_out_pattern_check(const char *pattern);

/* The nth name, which the caller frees. */
char *ps_out_name(const char *pattern, uint64_t n);

/* The zstd level for a name: `level`, or 3 where that is 0 and the name ends in .zst. Complains if the name
 * and the level contradict each other. */
bool ps_out_level(const char *pattern, int level, int *ret_level);

/* Makes the directory of the nth name, and refuses to write over the name itself unless `force`. */
int ps_out_prepare(const char *name, bool force, struct ps_load_error *err) PS_MUST_USE;

#endif
