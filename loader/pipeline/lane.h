/* A lane: a sequence of shards, read as blocks of samples.
 *
 * A reader thread fills one block of a lane at a time (ps_lane_fill()); the queue of filled blocks, and who
 * may fill, are the pipeline's, under its lock. A lane runs on from epoch to epoch: the last block of an
 * epoch says so (it may be empty), and the next one begins the next epoch.
 *
 * Ownership: a lane owns its open shard and its queued blocks; a block owns its samples that were not taken
 * (at..n). Threads: ps_lane_fill() one at a time for one lane.   Locks: none. Errors: -ENOMEM, -EMFILE,
 * -ENFILE, -ECANCELED, -ESTALE (the position is not in these shards); damage comes as bad samples. Blocks: on
 * reading. */
#ifndef PS_PIPELINE_LANE_H
#define PS_PIPELINE_LANE_H

#include "order/order.h"
#include "pipeline/position.h"
#include "shard/shard.h"

struct ps_block {
	struct ps_block *next;
	uint64_t epoch;
	uint32_t n, at;
	bool last;                     /* of the lane's epoch */
	struct ps_lane_position where; /* of its first sample as it was read; taken: those before `at` */
	struct ps_sample *samples[];
};

struct ps_lane {
	/* The filling thread's. */
	uint32_t index;
	uint64_t epoch;
	uint64_t block; /* of the next block in the epoch */
	uint64_t k;     /* of the next shard in the lane's epoch */
	struct ps_shard *shard;
	struct ps_lane_position resume; /* of the block that is filled next; taken, ordinal: 0 in most */
	struct ps_stream_meter meter;

	/* Guarded by the pipeline's lock. */
	struct ps_block *head, *tail;
	uint32_t nqueued;
	bool busy;  /* a thread fills it */
	bool ended; /* no further epoch is wanted */
};

struct ps_lane_source {
	struct ps_order *order;
	char *const *shards;             /* paths, by their place in the list */
	struct ps_shard_options options; /* stream.meter is set for each lane */
};

/* Puts a lane at the beginning of an epoch, or at a position in it (NULL: none); frees what it held. */
void ps_lane_reset(
        struct ps_lane *lane, uint32_t index, uint64_t epoch, const struct ps_lane_position *position);

int ps_lane_fill(struct ps_lane *lane, const struct ps_lane_source *source, struct ps_block **ret_block,
        struct ps_load_error *err) PS_MUST_USE;

void ps_block_free(struct ps_block *block); /* NULL is allowed */

#endif
