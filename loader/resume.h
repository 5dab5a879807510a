/* Positions of the pipeline to states and back; a state may be of another rank or another world size.
 *
 * A state needs only the number of steps: position p = steps * global_batch of the canonical sequence. Where
 * the lanes' lengths are known, p gives the number of samples of each lane before it. Where they are not
 * known, that is arithmetic as long as no lane has ended; a state has the progress of each of its rank's
 * lanes, which shows whether one has. Places of lanes (shard, offset) in a state save a search, with counts,
 * too; other places are found by the indexes' counts, or by a walk over the headers of the shards before.
 *
 * A single rank without counts uses them for a state of ranks that had them, and from then on.
 *
 * States that cannot be continued exactly are refused (-ESTALE, with the reason): another rank's state whose
 * lanes had begun to end while lengths are not known, or another world size in the steps at the end of an
 * epoch, which world sizes cut differently.
 *
 * Ownership: as state.h and order/order.h say.   Threads: one at a time.   Blocks: on the making of an
 * epoch. */
#ifndef PS_RESUME_H
#define PS_RESUME_H

#include "schedule.h"
#include "state.h"

/* Lanes that a state of this place has: where lengths are known, those that gave a row; none where they are
 * not read front to back (permutation). */
uint32_t ps_resume_nlanes(const struct ps_schedule *schedule, const struct ps_position *position);
uint32_t ps_resume_most(const struct ps_schedule *schedule); /* of any place */

/* Borrows nothing. -ENOMEM. */
int ps_resume_state(const struct ps_schedule *schedule, const struct ps_position *position, uint32_t bad_run,
        struct ps_state *ret_state, struct ps_load_error *err) PS_MUST_USE;

/* Where this rank continues. `position` was made for its lanes. */
int ps_resume_position(const struct ps_schedule *schedule, const struct ps_state *state,
        struct ps_position *position, struct ps_load_error *err) PS_MUST_USE;

#endif
