#ifndef PS_POLICY_POLICY_PRIVATE_H
#define PS_POLICY_POLICY_PRIVATE_H

#include <stdint.h>

#include "base/hash.h"
#include "policy/policy.h"

/* Objects in use ----------------------------------------------------------------------------------------- */

/* Determines which objects are in use, from the opens of their datasets. An object is in use if it was
 * opened within the last PS_INUSE_EPOCHS epoch times of its dataset, or within PS_INUSE_UNKNOWN_S if the
 * epoch time is not known yet.
 *
 * Epoch times are learned only from opens. A round of a dataset begins with an open. It ends when an object
 * is opened for a second time in the round, if at least half of the dataset's other known objects were
 * first opened in the round after that object's first open (known: opened within the time that counts as in
 * use). So eight workers that open the same shard within seconds do not end a round, nor does a reader that
 * returns to a few of many objects. The epoch time is the mean length of the last four rounds. A round
 * lasts at least a minute: an estimate that is too short would evict objects in use, while one that is too
 * long only keeps them a little longer.
 *
 * Ownership: the policy's. Threads: one at a time. Never blocks. Errors: without memory, an open is
 * ignored. */

#define PS_INUSE_EPOCHS 3
#define PS_INUSE_UNKNOWN_S (24 * 3600)

struct ps_inuse;

struct ps_inuse *ps_inuse_new(void); /* NULL: out of memory */
void ps_inuse_free(struct ps_inuse *inuse);

void ps_inuse_opened(struct ps_inuse *inuse, uint32_t dataset, const struct ps_id *id, int64_t now_s);

struct ps_inuse_times {
	int64_t window_s; /* how long an object is in use after an open */
	int64_t epoch_s;  /* 0: not known yet */
};
void ps_inuse_times(const struct ps_inuse *inuse, uint32_t dataset, struct ps_inuse_times *ret);

/* Victims ------------------------------------------------------------------------------------------------ */

/* Chooses the items to evict first, as many as necessary, without sorting all of them.
 *
 * Each item has a rank, which depends on the policy. Items that may be evicted form a heap: building it
 * costs n, each item that is taken log n. With more than PS_VICTIMS_EXACT items the heap is kept from one
 * choice to the next, so that a choice does not look at every item. An item that is taken from the heap is
 * ranked again, and put back if it is worth more by now. New items, and items that are worth less by now,
 * are seen only when the heap is rebuilt: after a second (six seconds with 100,000 items), or when a
 * sixteenth of the heap was used. If a choice finds nothing to evict, that result is kept until the heap is
 * rebuilt, too. tests/bench/RESULTS.md has the cost.
 *
 * Ownership: the caller's (zeroed at first, victims_fini() at the end). Threads: one at a time. Never
 * blocks. */

#define PS_VICTIMS_EXACT 1024

/* Items with a larger `when` are evicted first; among equals, those with a smaller `order`, then those with
 * a smaller seq. */
struct ps_rank {
	double when;
	uint64_t order;
};

/* False: the item must not be evicted. Not called for busy items. */
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
	size_t made;    /* n when the heap was built */
	int64_t made_s; /* when the heap was built; 0: never */
	/* The smallest number of bytes that a choice failed to find since the heap was built; UINT64_MAX:
	 * no choice failed. */
	uint64_t refused_nbytes;
	double refused_later_than;
};

#endif
