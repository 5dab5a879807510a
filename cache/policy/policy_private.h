#ifndef PS_POLICY_POLICY_PRIVATE_H
#define PS_POLICY_POLICY_PRIVATE_H

#include <stdint.h>

#include "base/hash.h"
#include "policy/policy.h"

/* What is in use ----------------------------------------------------------------------------------------- */

/* Which datasets are in use, by their opens.
 *
 * In use is what was opened within the last PS_INUSE_EPOCHS epoch times of its dataset, or within
 * PS_INUSE_UNKNOWN_S where none is known yet.
 *
 * Epoch times are learned from opens alone. A round of a dataset begins with an open, and ends when an object
 * that was opened in it is opened again after at least half of the dataset's other known objects were opened
 * in it for the first time (known: opened within the time that counts as in use). So eight workers that open
 * the same shard within seconds, or a reader that goes back to a few of many, end no round. A round's length
 * is a sample, the mean of the last four is the epoch time. A round is never shorter than a minute: epochs
 * of seconds need no sharper estimate, and one that is too short would give up what is in use, while one too
 * long only keeps it a little longer.
 *
 * Ownership: the policy's. Threads: one at a time. Blocks: never. Errors: out of memory, an open teaches
 * nothing. */

#define PS_INUSE_EPOCHS 3
#define PS_INUSE_UNKNOWN_S (24 * 3600)

struct ps_inuse;

struct ps_inuse *ps_inuse_new(void); /* NULL: out of memory */
void ps_inuse_free(struct ps_inuse *inuse);

void ps_inuse_opened(struct ps_inuse *inuse, uint32_t dataset, const struct ps_id *id, int64_t now_s);

struct ps_inuse_times {
	int64_t window_s; /* for which an open counts as use */
	int64_t epoch_s;  /* 0: not known yet */
};
void ps_inuse_times(const struct ps_inuse *inuse, uint32_t dataset, struct ps_inuse_times *ret);

/* Victims ------------------------------------------------------------------------------------------------ */

/* The items that go first, as many as it takes, without sorting them all.
 *
 * Each item has a rank (policies differ in it), and those that may go form a heap: n to make it, log n for
 * each taken. Beyond PS_VICTIMS_EXACT items the heap is kept from one choice to the next, so that a choice
 * does not look at every item: what is taken from it is ranked again, and put back if it has come to be worth
 * more. What came, or became worth less, since the heap was made is seen when it is made again: after a
 * second (six of 100,000 items), or when a sixteenth of it was used. That nothing may go is remembered as
 * long. RESULTS.md has what that costs.
 *
 * Ownership: the caller's (zeroed to begin with, ps_victims_fini() at the end). Threads: one at a time.
 * Blocks: never. */

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

#endif
