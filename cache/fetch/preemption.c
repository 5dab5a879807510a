/* Giving way: readers of one file must not starve because others, that stall, hold the connections or the
 * memory. A run from which nothing came for long gives up its place to a file that has none; its own readers
 * are queued again. */
#include "fetch/fill_private.h"

#define WAIT_NS (300 * PS_NS_PER_MS)     /* of a demand, before a run has to go for it */
#define PATIENCE_NS (400 * PS_NS_PER_MS) /* with a run, at least */
#define PATIENCE_FIRST_BYTES 4           /* times what the origin mostly takes to answer */
#define PATIENCE_DOUBLINGS 5             /* a file whose runs have gone in vain gets more and more */

/* For how long nothing may come of the file's runs. The engine's lock is held in all of these. */
static uint64_t patience_ns(const struct ps_fill *fill, const struct ps_fill_file *file)
{
	uint64_t ns = PS_MAX(PATIENCE_NS, PATIENCE_FIRST_BYTES * fill->first_byte_ns);

	return ns << PS_MIN(file->nyields, (unsigned)PATIENCE_DOUBLINGS);
}

/* Demands of files that have waited without a single run; at most cap are counted. */
static unsigned count_starving(const struct ps_fill *fill, uint64_t now_ns, unsigned cap)
{
	const struct ps_list *queue = &fill->wants[PS_WANT_DEMAND];
	unsigned n = 0;

	for (const struct ps_list *l = queue->next; l != queue && n < cap; l = l->next) {
		const struct ps_want *want = PS_CONTAINER_OF(l, struct ps_want, link);

		n += want->file->nruns == 0 && now_ns - want->queued_ns > WAIT_NS;
	}
	return n;
}

static bool has_stalled(const struct ps_fill *fill, struct ps_run *run, uint64_t now_ns)
{
	uint64_t touched = atomic_load(&run->touched_ns);

	return !run->yields && touched < now_ns && now_ns - touched > patience_ns(fill, run->file);
}

void ps_run_make_room(struct ps_fill *fill, uint64_t now_ns)
{
	PS_LOCK_SCOPE(&fill->lock);
	unsigned starving = count_starving(fill, now_ns, fill->concurrency.demand);

	/* The longest running come first. cancel() neither blocks nor calls back from here. */
	for (struct ps_list *l = fill->running.next; starving && l != &fill->running; l = l->next) {
		struct ps_run *run = PS_CONTAINER_OF(l, struct ps_run, link);

		starving -= run->yields; /* on its way */
		if (!starving || !has_stalled(fill, run, now_ns))
			continue;
		run->yields = true;
		run->file->nyields++;
		run->file->origin->ops->cancel(run->file->origin, &run->get);
		starving--;
	}
}
