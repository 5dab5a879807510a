/* An epoch cut into steps: how many samples each rank's batch of each step holds.
 *
 * A step is one global batch: G = batch * world positions of the canonical sequence, of which each rank has as
 * many, the lower ones one more where that is not even (which they are, order/deal.h says). Of M positions
 * F = floor(M / G) steps are full, R are left:
 *
 *   UNEVEN      F full, then R; ranks without a sample of these have a step less
 *   DROP_LAST   F full; R samples are not given
 *   PAD         F full, then R, each rank's batch filled up with rows that are not valid
 *   SPLIT       F full, then R, dealt so that every rank has one more batch; where R < world, the last full
 *               step gives `world` of its samples to the one behind it, so that nobody's is empty. With
 *               batch 1, or less samples than ranks, that cannot be: who has none gets one row, not valid.
 *
 * So sizes differ by at most one, and each sample comes once.
 * Ownership: none.   Threads: any.   Locks: none.   Blocks: never. */
#ifndef PS_ORDER_STEPS_H
#define PS_ORDER_STEPS_H

#include <stdbool.h>
#include <stdint.h>

#include "order/sequence.h"
#include "penstock.h"

struct ps_steps {
	uint64_t samples; /* M; PS_ENDLESS: as many as `most` steps take */
	uint64_t most;    /* steps; PS_ENDLESS: as there are samples */
	uint32_t batch, world;
	enum penstock_end end;
};

/* Steps of a rank's epoch. */
uint64_t ps_steps_count(const struct ps_steps *steps, uint32_t rank);

/* The first position of a step, and that behind its last; step < ps_steps_count() of any rank, or one more.
 */
uint64_t ps_steps_begin(const struct ps_steps *steps, uint64_t step);

/* Samples of a rank in a step: 0 to batch. */
uint32_t ps_steps_rows(const struct ps_steps *steps, uint64_t step, uint32_t rank);

/* Positions that are given at all. */
uint64_t ps_steps_end(const struct ps_steps *steps);

#endif
