/* A lane's samples one after the other: shards opened in their order, places found again.
 *
 * Ownership, threads, errors: as pipeline/lane.h says. */
#ifndef PS_PIPELINE_READ_H
#define PS_PIPELINE_READ_H

#include "pipeline/lane.h"

/* The sample at lane->at: 1, or 0 at the end of the lane's epoch. `hold`: with its bytes; without them there
 * may be none (NULL). */
int ps_lane_read(struct ps_lane *lane, const struct ps_lane_source *source, bool hold,
        struct ps_sample **ret_sample, struct ps_load_error *err) PS_MUST_USE;

/* A walk over so many samples costs less than finding a place and opening the file there. */
#define PS_LANE_WALK_MAX 16

/* Closes what is open of the lane's shard; where it stands remains. */
void ps_lane_close(struct ps_lane *lane);

/* Closes the lane's shard, if more are open than may be, and goes on later where it stands. A shard that can only be
 * read on stays open. */
int ps_lane_rest(struct ps_lane *lane, const struct ps_lane_source *source, struct ps_load_error *err) PS_MUST_USE;

/* Moves to the sample `at` of the epoch, at or behind lane->at: over whole shards where counts are known,
 * else by walking. At the end of the lane's epoch it stops there. */
int ps_lane_go(struct ps_lane *lane, const struct ps_lane_source *source, uint64_t at,
        struct ps_load_error *err) PS_MUST_USE;

#endif
