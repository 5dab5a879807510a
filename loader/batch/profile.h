/* What passed through the batches: sizes, means and deviations, labels. For a look at a data set, and to see
 * that one has changed.
 *
 * Ownership: belongs to its creator, and borrows the plan.   Threads: any.   Locks: its own, a leaf.
 * Errors: what cannot be counted for want of memory is left out.   Blocks: never. */
#ifndef PS_BATCH_PROFILE_H
#define PS_BATCH_PROFILE_H

#include "batch/batch.h"

struct ps_profile;

struct ps_profile *ps_profile_new(const struct ps_plan *plan); /* NULL: no memory */
void ps_profile_free(struct ps_profile *profile);              /* NULL is allowed */

/* Counts a finished batch, whose samples still know their members' sizes. */
void ps_profile_batch(struct ps_profile *profile, const struct penstock_batch *batch);

/* All of it as JSON, a text that the caller frees; -ENOMEM. */
int ps_profile_json(struct ps_profile *profile, char **ret_text, size_t *ret_nbytes,
        struct ps_load_error *err) PS_MUST_USE;

#endif
