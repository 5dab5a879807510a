#include "config.h"

#include "image/gate.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "base/cleanup.h"

#define TRIM_NBYTES (4UL << 20)

void ps_image_gate_init(struct ps_image_gate *g, uint64_t limit)
{
	pthread_mutex_init(&g->lock, NULL);
	pthread_cond_init(&g->room, NULL);
	g->limit = limit;
	g->used = 0;
}

void ps_image_gate_fini(struct ps_image_gate *g)
{
	pthread_cond_destroy(&g->room);
	pthread_mutex_destroy(&g->lock);
}

void ps_image_ticket_take(struct ps_image_ticket *t, uint64_t nbytes)
{
	struct ps_image_gate *g = t ? t->gate : NULL;

	if (!g)
		return;
	PS_LOCK_SCOPE(&g->lock);
	/* who holds something does not wait: two such would wait for each other */
	while (t->held == 0 && g->used > 0 && (nbytes > g->limit || g->used > g->limit - nbytes))
		pthread_cond_wait(&g->room, &g->lock);
	g->used += nbytes;
	t->held += nbytes;
}

void ps_image_ticket_give(struct ps_image_ticket *t)
{
	if (!t->gate || t->held == 0)
		return;
#ifdef __GLIBC__
	/* freed, but kept by malloc for this thread alone, unless told otherwise */
	if (t->held >= TRIM_NBYTES)
		malloc_trim(TRIM_NBYTES);
#endif
	PS_LOCK_SCOPE(&t->gate->lock);
	t->gate->used -= t->held;
	t->held = 0;
	pthread_cond_broadcast(&t->gate->room);
}
