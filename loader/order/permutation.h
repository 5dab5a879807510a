/* A permutation of 0 ... n - 1 without a table: a Feistel network over pairs, with cycle walking.
 *
 * A number x is the pair (x div b, x mod b) of Z_a x Z_b, a = ceil(sqrt(n)), b = ceil(n / a). Round i of 8
 * adds F(i, second) mod a to the first (i even), or F(i, first) mod b to the second. What comes out at n or
 * above goes in again until it is below: there are less than a such pairs, so once is the rule.
 *
 *   F(i, v) = philox(counter = {v.lo, v.hi, i, pass}, key = {A0, A1}), the first two words
 *   A       = philox(counter = {epoch.lo, epoch.hi, op, 0}, key = {seed.lo, seed.hi})       (order/rng.h)
 *
 * This text is the definition; states depend on it. Threads: any.   Errors: none.   Blocks: never. */
#ifndef PS_ORDER_PERMUTATION_H
#define PS_ORDER_PERMUTATION_H

#include <stdint.h>

struct ps_permutation {
	uint64_t n, a, b;
	uint32_t key[2];
	uint32_t pass;
};

void ps_permutation_init(
        struct ps_permutation *permutation, uint64_t n, uint64_t seed, uint64_t epoch, uint32_t pass);

/* The image of x < n. */
uint64_t ps_permutation_at(const struct ps_permutation *permutation, uint64_t x);

#endif
