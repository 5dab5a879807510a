/* Between a position of the pipeline and a state, which may be of another rank or another world.
 *
 * All that a state must say is how many steps were made: position p = steps * global_batch of the canonical
 * sequence. Where the lanes' lengths are known, p says how many samples of each lane come before it. Where
 * they are not, that is arithmetic as long as no lane has ended, and a state says of each of its rank's
 * lanes how far it was, so that it is found out if one has. Places of lanes (shard, offset) that a state
 * has spare the search, with counts, too; the others are found by the indexes' counts, or by walking over the
 * headers of the shards before.
 *
 * A rank alone that does without counts takes them for a state of ranks that had them, and has them from then
 * on.
 *
 * Refused (-ESTALE, with the reason) is what could not go on exactly: another rank's state whose lanes had
 * begun to end while lengths are not known, or another world in the steps at the end of an epoch that worlds
 * cut differently.
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

/* Where this rank goes on. `position` was made for its lanes. */
int ps_resume_position(const struct ps_schedule *schedule, const struct ps_state *state,
        struct ps_position *position, struct ps_load_error *err) PS_MUST_USE;

#endif
