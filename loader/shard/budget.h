/* A count of bytes held, with a limit, and perhaps a parent whose limit it shares with others. Threads: any. */
#ifndef PS_SHARD_BUDGET_H
#define PS_SHARD_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ps_budget {
	uint64_t limit;
	_Atomic uint64_t used;    /* relaxed: a count, it guards nothing else */
	struct ps_budget *parent; /* counts what this one does; NULL: none. It has no parent itself */
};

/* Takes n bytes if they are within this limit alone. */
static inline bool ps_budget_take_own(struct ps_budget *b, uint64_t n)
{
	uint64_t used = atomic_load_explicit(&b->used, memory_order_relaxed);

	do {
		if (n > b->limit || used > b->limit - n)
			return false;
	} while (!atomic_compare_exchange_weak_explicit(
	        &b->used, &used, used + n, memory_order_relaxed, memory_order_relaxed));
	return true;
}

/* Takes n bytes whatever the limit: for what must be held to go on at all. */
static inline void ps_budget_force(struct ps_budget *b, uint64_t n)
{
	atomic_fetch_add_explicit(&b->used, n, memory_order_relaxed);
	if (b->parent)
		atomic_fetch_add_explicit(&b->parent->used, n, memory_order_relaxed);
}

static inline void ps_budget_give(struct ps_budget *b, uint64_t n)
{
	atomic_fetch_sub_explicit(&b->used, n, memory_order_relaxed);
	if (b->parent)
		atomic_fetch_sub_explicit(&b->parent->used, n, memory_order_relaxed);
}

/* Takes n bytes if they are within the limits. */
static inline bool ps_budget_take(struct ps_budget *b, uint64_t n)
{
	if (b->parent && !ps_budget_take_own(b->parent, n))
		return false;
	if (ps_budget_take_own(b, n))
		return true;
	if (b->parent)
		ps_budget_give(b->parent, n);
	return false;
}

#endif
