#include "config.h"

#include "shard/slab.h"

#include <stdlib.h>

#define ALIGN 16
#define AHEAD 4096 /* references taken at once */

struct ps_slab {
	_Atomic uint32_t refs; /* users, those in hand, and the maker */
	uint32_t in_hand;      /* the maker's: taken ahead, so that not each user costs an atomic operation */
	uint32_t used;         /* the maker's */
	struct ps_slab_pool *pool;
	struct ps_budget *budget;
	struct ps_slab *next; /* the pool's */
	_Alignas(ALIGN) uint8_t bytes[];
};

#define ROOM (PS_SLAB_NBYTES - sizeof(struct ps_slab))

void ps_slab_pool_init(struct ps_slab_pool *pool, uint32_t keep)
{
	*pool = (struct ps_slab_pool){.keep = keep};
	pthread_mutex_init(&pool->lock, NULL);
}

void ps_slab_pool_fini(struct ps_slab_pool *pool)
{
	while (pool->free) {
		struct ps_slab *slab = pool->free;

		pool->free = slab->next;
		free(slab);
	}
	pthread_mutex_destroy(&pool->lock);
}

static struct ps_slab *pool_take(struct ps_slab_pool *pool)
{
	struct ps_slab *slab;

	PS_LOCK_SCOPE(&pool->lock);
	slab = pool->free;
	if (slab) {
		pool->free = slab->next;
		pool->nfree--;
	}
	return slab;
}

struct ps_slab *ps_slab_new(struct ps_slab_pool *pool, struct ps_budget *budget)
{
	struct ps_slab *slab;

	if (budget && !ps_budget_take(budget, PS_SLAB_NBYTES))
		return NULL;
	slab = pool ? pool_take(pool) : NULL;
	if (!slab)
		slab = malloc(PS_SLAB_NBYTES);
	if (!slab) {
		if (budget)
			ps_budget_give(budget, PS_SLAB_NBYTES);
		return NULL;
	}
	atomic_init(&slab->refs, 1 + AHEAD);
	slab->in_hand = AHEAD;
	slab->used = 0;
	slab->pool = pool;
	slab->budget = budget;
	return slab;
}

void *ps_slab_take(struct ps_slab *slab, size_t n)
{
	uint8_t *p = slab->bytes + slab->used;

	if (n > ROOM - slab->used)
		return NULL;
	slab->used += (uint32_t)PS_MIN((n + ALIGN - 1) & ~(size_t)(ALIGN - 1), ROOM - slab->used);
	return p;
}

size_t ps_slab_used(const struct ps_slab *slab)
{
	return slab->used;
}

void ps_slab_rewind(struct ps_slab *slab, size_t used)
{
	slab->used = (uint32_t)used;
}

void ps_slab_share(struct ps_slab *slab)
{
	if (slab->in_hand == 0) {
		atomic_fetch_add_explicit(&slab->refs, AHEAD, memory_order_relaxed);
		slab->in_hand = AHEAD;
	}
	slab->in_hand--;
}

static void slab_free(struct ps_slab *slab)
{
	struct ps_slab_pool *pool = slab->pool;

	if (slab->budget)
		ps_budget_give(slab->budget, PS_SLAB_NBYTES);
	if (pool) {
		PS_LOCK_SCOPE(&pool->lock);
		if (pool->nfree < pool->keep) {
			slab->next = pool->free;
			pool->free = slab;
			pool->nfree++;
			return;
		}
	}
	free(slab);
}

static void refs_drop(struct ps_slab *slab, uint32_t n)
{
	/* acq_rel: whoever frees it sees all that others did with it */
	if (atomic_fetch_sub_explicit(&slab->refs, n, memory_order_acq_rel) == n)
		slab_free(slab);
}

void ps_slab_retire(struct ps_slab *slab)
{
	if (slab)
		refs_drop(slab, slab->in_hand + 1);
}

void ps_slab_put(struct ps_slab *slab)
{
	if (slab)
		refs_drop(slab, 1);
}
