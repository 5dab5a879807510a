/* Memory of many small samples at once: a malloc and a free for a hundred of them, not for each.
 *
 *   maker: ps_slab_new, [ps_slab_take ..., ps_slab_share]..., ps_slab_retire
 *   users: ps_slab_put
 *
 * Ownership: a slab lives until its maker has retired it and each user has put it back. A pool outlives its
 * slabs.   Threads: the maker is one thread at a time; put on any; a pool on any.
 * Locks: the pool's, a leaf.   Blocks: never.   Errors: NULL: out of memory, or beyond the budget. */
#ifndef PS_SHARD_SLAB_H
#define PS_SHARD_SLAB_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "shard/budget.h"

#define PS_SLAB_NBYTES (64UL << 10) /* of a slab, with its head */

struct ps_slab;

/* Slabs that nobody uses, kept for the next one who asks: fresh memory costs more than what is put into it.
 */
struct ps_slab_pool {
	pthread_mutex_t lock; /* all below */
	struct ps_slab *free;
	uint32_t nfree, keep;
};

void ps_slab_pool_init(struct ps_slab_pool *pool, uint32_t keep);
void ps_slab_pool_fini(struct ps_slab_pool *pool);

/* Counts against the budget; NULL: no budget, no pool. */
struct ps_slab *ps_slab_new(struct ps_slab_pool *pool, struct ps_budget *budget);

/* n bytes, aligned for any object; NULL: there is no room. */
void *ps_slab_take(struct ps_slab *slab, size_t n);

/* How many bytes are taken; and back to that. */
size_t ps_slab_used(const struct ps_slab *slab);
void ps_slab_rewind(struct ps_slab *slab, size_t used);

/* One more user. */
void ps_slab_share(struct ps_slab *slab);

void ps_slab_retire(struct ps_slab *slab); /* NULL is allowed */
void ps_slab_put(struct ps_slab *slab);    /* NULL is allowed */

#endif
