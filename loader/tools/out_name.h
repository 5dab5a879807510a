/* Names of shards that are written: a pattern with one number in it, "train-%06d.tar".
 *
 * Threads: any.   Errors: complains on stderr and returns false, or NULL when memory is short. */
#ifndef PS_TOOLS_OUT_NAME_H
#define PS_TOOLS_OUT_NAME_H

#include <stdbool.h>
#include <stdint.h>

/* True if there is exactly one %d or %0Nd, and no other %. */
bool ps_out_pattern_check(const char *command, const char *pattern);

/* The nth name, which the caller frees. */
char *ps_out_name(const char *pattern, uint64_t n);

/* The zstd level for a name: `level`, or 3 where that is 0 and the name ends in .zst. Complains if the name
 * and the level contradict each other. */
bool ps_out_level(const char *command, const char *pattern, int level, int *ret_level);

/* Refuses to write over the nth name unless `force`. */
bool ps_out_is_free(const char *command, const char *name, bool force);

#endif
