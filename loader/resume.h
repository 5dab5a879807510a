/* Conversion of the pipeline's positions to states and back. A state may come from another rank or another
 * world size.
 *
 * A state has the number p of rows that were delivered on all ranks, lanes and window, and the global batch
 * of the run's first opening. From these the order is made again, for later epochs too: so a run can go on
 * with another number of ranks and another global batch G. In the state's epoch the samples after position p
 * are cut into steps of G like an epoch of their own: step t (counted from the state) begins at p + t G.
 * `steps=` keeps the number of samples: steps times the first global batch.
 *
 * Where the lanes' lengths are known, p gives the number of samples of each lane before it. Where they are
 * not known, that number follows from the turns of the lanes as long as no lane has ended; the progress of
 * the saving rank's lanes, which the state has, shows whether one has. The state also has the places (shard,
 * offset) of these lanes, which need not be searched for. The places of other lanes are found from the
 * indexes' counts, or by a walk over the headers of the preceding shards.
 *
 * A single rank that works without counts switches to counts when it loads a state of ranks that had them.
 *
 * A mix goes on if its stages give the place of each dataset that the state has, or begins at that place with
 * new ones (PENSTOCK_STATE_NEW_MIX).
 *
 * States that cannot be continued exactly are refused (-ESTALE, with the reason): another rank's state in
 * which lanes had ended, if lengths are not known; and sample numbers with another world.
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

/* Datasets in a state; 0: no mix. */
uint32_t ps_resume_nsets(const struct ps_schedule *schedule);

/* Makes what this rank continues with: the run, its order (NULL: that of the schedule), and the position. The
 * schedule is not changed; ps_schedule_resume() takes them. */
int ps_resume(const struct ps_schedule *schedule, const struct ps_options *options,
        const struct ps_state *state, uint32_t flags, struct ps_run *ret_run, struct ps_order **ret_order,
        struct ps_position *ret_position, struct ps_error *err) PS_MUST_USE;

#endif
