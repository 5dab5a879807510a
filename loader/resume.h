/* Conversion of the pipeline's positions to states and back. A state may come from another rank or another
 * world size.
 *
 * A state needs only the number of steps: position p = steps * global_batch of the canonical sequence. Where
 * the lanes' lengths are known, p gives the number of samples of each lane before it. Where they are not
 * known, that number follows from the turns of the lanes as long as no lane has ended; the progress of the
 * saving rank's lanes, which the state has, shows whether one has. The state also has the places (shard,
 * offset) of these lanes, which need not be searched for. The places of other lanes are found from the
 * indexes' counts, or by a walk over the headers of the preceding shards.
 *
 * A single rank that works without counts switches to counts when it loads a state of ranks that had them.
 *
 * States that cannot be continued exactly are refused (-ESTALE, with the reason): another rank's state in
 * which lanes had ended, if lengths are not known; or a state of another world size within the steps at the
 * end of an epoch, which depend on the world size.
 *
 * Ownership: as state.h and order/order.h say.   Threads: one at a time.   Blocks: while an epoch is made. */
#ifndef PS_RESUME_H
#define PS_RESUME_H

#include "schedule.h"
#include "state.h"

/* Number of lanes in a state of this position: all of the rank; if lengths are known, only those that gave a
 * row; none if shards are not read front to back (permutation). */
uint32_t ps_resume_nlanes(const struct ps_schedule *schedule, const struct ps_position *position);
uint32_t ps_resume_most(const struct ps_schedule *schedule); /* the most for any position */

/* Makes a state, which borrows nothing. -ENOMEM. */
int ps_resume_state(const struct ps_schedule *schedule, const struct ps_position *position, uint32_t bad_run,
        struct ps_state *ret_state, struct ps_error *err) PS_MUST_USE;

/* Sets the position at which this rank continues. `position` must have been made for its lanes. */
int ps_resume_position(const struct ps_schedule *schedule, const struct ps_state *state,
        struct ps_position *position, struct ps_error *err) PS_MUST_USE;

#endif
