/* How the default order deals an epoch to many ranks, by the order's own code and the shards' counts alone: nothing is
 * read, and no rank runs.
 *
 * Ownership: borrows everything.   Threads: one.   Errors: -ENOMEM, or what the order refuses, with a text. */
#ifndef PS_TOOLS_SHUFFLE_RANKS_H
#define PS_TOOLS_SHUFFLE_RANKS_H

#include "base/load_error.h"
#include "penstock.h"

struct ps_ranks_quality {
	double shards;        /* different ones in a batch of rank 0, on average ... */
	uint32_t shards_whole; /* ... and at least in a full one, while no lane has ended; 0: there is none */
	double overlap;     /* share of them that the batch before has, too; below 0: no batch follows another */
	double distance;    /* mean way of rank 0's samples from their place in the list, as a share of a permutation's */
	double correlation; /* of the samples' times in this epoch and in the next */
	double opens;       /* ranks that read of a shard, on average */
	uint32_t lanes, window;
	uint64_t samples; /* of the epoch */
	uint64_t held; /* of them rank 0 holds so many to shuffle them */
};

/* `o`: order, batch, world, seed, lanes, shuffle_window, ranks_per_node, homes. */
int ps_ranks_look(const struct penstock_options *o, const uint32_t *counts, uint32_t nshards,
        struct ps_ranks_quality *ret_quality, struct ps_load_error *err) PS_MUST_USE;

#endif
