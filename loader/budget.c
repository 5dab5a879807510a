#include "config.h"

#include "budget.h"

#include <errno.h>
#include <stdlib.h>

struct penstock_budget *penstock_budget_new(uint64_t nbytes)
{
	struct penstock_budget *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	b->count.limit = b->reserved.limit = nbytes;
	atomic_store(&b->refs, 1);
	return b;
}

uint64_t penstock_budget_used(const struct penstock_budget *b)
{
	return atomic_load_explicit(&b->count.used, memory_order_relaxed);
}

void penstock_budget_free(struct penstock_budget *b)
{
	ps_public_budget_unref(b);
}

int ps_public_budget_reserve(struct penstock_budget *b, uint64_t nbytes, struct ps_load_error *err)
{
	if (!ps_budget_take(&b->reserved, nbytes))
		return ps_load_error_set(err, E2BIG,
		        "budget of %ju MiB, shared with other loaders: their batches hold %ju MiB, and this "
		        "loader's "
		        "batches and read buffers need %ju MiB; raise it, or lower batch, depth or lanes",
		        (uintmax_t)(b->count.limit >> 20), (uintmax_t)(atomic_load(&b->reserved.used) >> 20),
		        (uintmax_t)((nbytes >> 20) + 1));
	ps_budget_force(&b->count, nbytes);
	return 0;
}

void ps_public_budget_release(struct penstock_budget *b, uint64_t nbytes)
{
	ps_budget_give(&b->reserved, nbytes);
	ps_budget_give(&b->count, nbytes);
}

struct penstock_budget *ps_public_budget_ref(struct penstock_budget *b)
{
	if (b)
		atomic_fetch_add(&b->refs, 1);
	return b;
}

void ps_public_budget_unref(struct penstock_budget *b)
{
	if (b && atomic_fetch_sub(&b->refs, 1) == 1)
		free(b);
}
