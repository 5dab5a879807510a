/* Conversion of the pipeline's positions to states and back. A state may come from another rank or another
 * world size.
 *
 * A state needs only the number of steps: position p = steps * global_batch of the canonical sequence. Where
 * the lanes' lengths are known, p gives the number of samples of each lane before it. Where they are not
 * known, the number of samples of each lane is arithmetic as long as no lane has ended. A state has the
 * progress of each of its rank's lanes, which shows whether a lane has ended. Places of lanes (shard,
 * offset) in a state save a search, also where counts are known; other places are found by the indexes'
 * counts, or by a walk over the headers of the shards before.
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

/* Number of lanes in a state of this position: if lengths are known, the lanes that gave a row; none if
 * shards are not read front to back (permutation). */
uint32_t ps_resume_nlanes(const struct ps_schedule *schedule, const struct ps_position *position);
uint32_t ps_resume_most(const struct ps_schedule *schedule); /* most, for any position */

/* Makes a state, which borrows nothing. -ENOMEM. */
int ps_resume_state(const struct ps_schedule *schedule, const struct ps_position *position, uint32_t bad_run,
        struct ps_state *ret_state, struct ps_load_error *err) PS_MUST_USE;

/* Sets the position at which this rank continues. `position` must have been made for its lanes. */
int ps_resume_position(const struct ps_schedule *schedule, const struct ps_state *state,
        struct ps_position *position, struct ps_load_error *err) PS_MUST_USE;

#endif
