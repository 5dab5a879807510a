/* The public budget that several loaders share: a count with a limit, as long as somebody refers to it.
 *
 * Ownership: references are counted; whoever made it has one, each loader another.
 * Threads: any. */
#ifndef PS_BUDGET_H
#define PS_BUDGET_H

#include "base/load_error.h"
#include "penstock.h"
#include "shard/budget.h"

struct penstock_budget {
	struct ps_budget count;    /* of all that loaders hold */
	struct ps_budget reserved; /* of it what they hold as long as they are open */
	_Atomic uint32_t refs;
};

/* Takes what a loader holds as long as it is open. Windows of others may have filled the rest: they give way
 * as their samples are delivered. -E2BIG with a text: what is reserved alone would be beyond the limit. */
int ps_public_budget_reserve(
        struct penstock_budget *budget, uint64_t nbytes, struct ps_load_error *err) PS_MUST_USE;
void ps_public_budget_release(struct penstock_budget *budget, uint64_t nbytes);

struct penstock_budget *ps_public_budget_ref(struct penstock_budget *budget); /* NULL is allowed, and given */
void ps_public_budget_unref(struct penstock_budget *budget);                  /* NULL is allowed */

#endif
