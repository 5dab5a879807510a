/* The public budget that several loaders share: a count with a limit, as long as somebody refers to it.
 *
 * Ownership: references are counted; whoever made it has one, each loader another.
 * Threads: any. */
#ifndef PS_BUDGET_H
#define PS_BUDGET_H

#include "penstock.h"
#include "shard/budget.h"

struct penstock_budget {
	struct ps_budget count;
	_Atomic uint32_t refs;
};

struct penstock_budget *ps_public_budget_ref(struct penstock_budget *budget); /* NULL is allowed, and given */
void ps_public_budget_unref(struct penstock_budget *budget);                  /* NULL is allowed */

#endif
