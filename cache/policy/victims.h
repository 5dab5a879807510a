/* The items that go first, as many as it takes, without sorting them all.
 *
 * Each item has a rank (policies differ in it), and those that may go form a heap: n to make it, log n for
 * each taken. Beyond PS_VICTIMS_EXACT items the heap is kept from one choice to the next, so that a choice
 * does not look at every item: what is taken from it is ranked anew, and put back if it has come to be worth
 * more. What came, or became worth less, since the heap was made is seen when it is made again: after a
 * second (six of 100,000 items), or when a sixteenth of it was used. That nothing may go is remembered as
 * long. RESULTS.md has what that costs.
 *
 * Ownership: the caller's (zeroed to begin with, ps_victims_fini() at the end). Threads: one at a time.
 * Blocks: never. */
#ifndef PS_POLICY_VICTIMS_H
#define PS_POLICY_VICTIMS_H

#include "policy/policy.h"

#define PS_VICTIMS_EXACT 1024

/* What has the larger `when` goes first; among equals, what has the smaller `order`, then seq. */
struct ps_rank {
	double when;
	uint64_t order;
};

/* False: the item must stay. Busy ones are not asked for. */
typedef bool (*ps_rank_fn)(void *arg, const struct ps_policy_query *query, const struct ps_policy_item *item,
        struct ps_rank *ret);

struct ps_candidate {
	struct ps_rank rank;
	uint64_t seq;
	uint32_t slot;
};
struct ps_victims {
	struct ps_candidate *heap;
	size_t n, cap;
	size_t made;    /* n when it was made */
	int64_t made_s; /* 0: never */
	/* Since then so much could not be had; UINT64_MAX: nothing was refused. */
	uint64_t refused_nbytes;
	double refused_later_than;
};

/* As ps_policy_ops.choose(); only items whose `when` is above later_than are chosen. */
size_t ps_victims_choose(struct ps_victims *v, const struct ps_policy_query *query, ps_rank_fn rank,
        void *arg, double later_than, size_t *victims);
void ps_victims_fini(struct ps_victims *v);

/* Ranks by the last open, the oldest first. */
void ps_rank_by_age(const struct ps_policy_item *item, struct ps_rank *ret);

#endif
