/* Where the consumer stands: what has been delivered, lane by lane; what a run is resumed from.
 *
 * A lane's position is its block and how many of the block's samples were delivered; a block is found again
 * by the place of the first sample that was read for it. So resuming reads the blocks under way and nothing
 * before them. Whose turn it is follows from the last row; which lanes have ended is found again, since they
 * give no more samples.
 *
 * Where the lanes' lengths are known (order/epoch.h), the number of batches says all; the lanes' places only
 * spare the search for them.
 *
 * Ownership: a position owns its lanes.   Threads: one at a time.   Locks: none.   Blocks: never. */
#ifndef PS_PIPELINE_POSITION_H
#define PS_PIPELINE_POSITION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"

#define PS_PLACE_UNKNOWN UINT64_MAX /* found by counting, from the lane's beginning */

struct ps_lane_position {
	uint64_t block; /* in the lane's epoch */
	uint64_t k;     /* of the lane's shards: that of the block's first sample, or PS_PLACE_UNKNOWN ... */
	uint64_t ordinal; /* ... its place in that shard ... */
	uint64_t offset;  /* ... and in the file; 0: only to be found from the shard's beginning */
	uint32_t taken;   /* samples of the block that were delivered */
	uint32_t copy;    /* of the block's first sample, where a sample comes more than once */
	uint64_t nbytes;  /* of that shard's file; 0: not known */
};

struct ps_position {
	uint64_t epoch;
	uint64_t batches; /* of the epoch that were delivered */
	uint32_t turn;    /* the lane of the next row, or before it if that has ended */
	uint32_t nlanes;
	bool known; /* it was found by lengths: the run goes on by them */
	struct ps_lane_position *lanes;
};

int ps_position_init(struct ps_position *position, uint32_t nlanes) PS_MUST_USE; /* -ENOMEM */
void ps_position_fini(struct ps_position *position);

/* Puts it at the beginning of an epoch. */
void ps_position_begin(struct ps_position *position, uint64_t epoch);

/* The next row that was delivered stood in `lane`, at `at`. */
static inline void ps_position_take(
        struct ps_position *position, uint32_t lane, const struct ps_lane_position *at)
{
	position->lanes[lane] = *at;
	position->turn = lane + 1 == position->nlanes ? 0 : lane + 1;
}

#endif
