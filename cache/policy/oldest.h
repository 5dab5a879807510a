/* The oldest of a set of items, as many as it takes, without sorting them all: n to look at, log n for each
 * taken. */
#ifndef PS_POLICY_OLDEST_H
#define PS_POLICY_OLDEST_H

#include "policy/policy.h"

/* indexes[0..n) are candidates among items. Reorders them so that the first k are the least recently opened,
 * oldest first, with nbytes that sum to at least need_nbytes; returns k, or 0 if all together do not suffice.
 * Blocks never. */
size_t ps_oldest_first(const struct ps_policy_item *items, size_t *indexes, size_t n, uint64_t need_nbytes);

#endif
