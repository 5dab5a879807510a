/* Memory of loaders: the public budget that several share, and how one loader divides its own budget.
 *
 * Ownership: references to a budget are counted; its creator has one, each loader another. Threads: any. */
#ifndef PS_MEMORY_H
#define PS_MEMORY_H

#include "base/error.h"
#include "penstock.h"
#include "shard/file/file.h"

struct penstock_budget {
	struct ps_byte_budget count; /* bytes that loaders hold */
	/* the part of these bytes that a loader holds as long as it is open */
	struct ps_byte_budget reserved;
	_Atomic uint32_t refs;
};

/* Takes the bytes that a loader holds as long as it is open, even if sample windows of other loaders have
 * filled the rest of the budget: the windows shrink as their samples are delivered. -E2BIG with a text: the
 * reserved bytes alone would exceed the limit. */
int ps_public_budget_reserve(
        struct penstock_budget *budget, uint64_t nbytes, struct ps_error *err) PS_MUST_USE;
void ps_public_budget_release(struct penstock_budget *budget, uint64_t nbytes);

/* NULL is allowed, and then returned */
struct penstock_budget *ps_public_budget_ref(struct penstock_budget *budget);
void ps_public_budget_unref(struct penstock_budget *budget); /* NULL is allowed */

/* How a loader's budget is shared out -------------------------------------------------------------------- */

struct ps_memory {
	uint32_t depth;
	uint32_t open_files;    /* shards that stay open */
	size_t buf_nbytes;      /* size of each shard's read buffer */
	uint64_t image_nbytes;  /* limit of memory for images being decoded */
	uint64_t window_nbytes; /* the rest, for samples */
};

/* -E2BIG with a text that says how much is needed. */
int ps_memory_plan(const struct penstock_options *o, size_t batch_nbytes, uint32_t nlanes,
        struct ps_memory *ret_memory, struct ps_error *err) PS_MUST_USE;

#endif
