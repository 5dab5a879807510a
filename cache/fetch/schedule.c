/* The schedule: which want is served next, with how much memory and over how many connections. */
#include "fetch/fill_private.h"

#define RETRY_TICK_NS (50 * PS_NS_PER_MS) /* a due one for which there is no connection */

/* The end of the stretch of blocks from `b` that are missing, unclaimed and (for demand) still waited for. */
static uint64_t claimable_end(
        struct ps_fill_file *file, uint64_t b, uint64_t end, enum ps_want_class cls, uint64_t now_ns)
{
	for (; b < end; b++) {
		struct ps_slot *slot = file->slots[b];

		if (slot && slot->state == PS_SLOT_FAILED && slot->failed_until_ns <= now_ns) {
			ps_slot_free(slot);
			slot = NULL;
		}
		if (slot || ps_object_block(file->object, b) != PS_BLOCK_ABSENT)
			break;
		if (cls == PS_WANT_DEMAND && !ps_fill_has_waiter(file, b))
			break;
	}
	return b;
}

struct turn {
	struct ps_fill_file *file; /* a reference */
	enum ps_want_class cls;
	uint64_t from, end;
	struct ps_buf *bufs[PS_RUN_MAX_BLOCKS];
};

/* Turns what of the turn is missing into runs and starts them; the turn's one place among the active is
 * used up. */
static void start_turn(struct ps_fill *fill, struct turn *c)
{
	struct ps_run *runs[PS_RUN_MAX_BLOCKS];
	uint64_t now = ps_clock_mono_ns(), nbytes = 0;
	unsigned nruns = 0, nnow = 0, used = 0;

	{
		PS_LOCK_SCOPE(&c->file->lock);
		bool refused =
		        c->file->changed || (c->cls != PS_WANT_DEMAND && now < c->file->refused_until_ns);

		for (uint64_t b = c->from; b < c->end && !refused;) {
			uint64_t stop = claimable_end(c->file, b, c->end, c->cls, now);
			struct ps_run *run =
			        stop > b ? ps_run_claim(c->file, b, (unsigned)(stop - b), c->bufs + used)
			                 : NULL;

			if (run) {
				used += run->nblocks;
				nbytes += run->nbytes;
				runs[nruns++] = run;
			}
			b = stop + 1;
		}
	}
	for (unsigned i = used; i < c->end - c->from; i++)
		ps_buf_unref(c->bufs[i]);
	for (unsigned i = 0; i < nruns; i++)
		ps_fill_file_ref(c->file);
	{
		PS_LOCK_SCOPE(&fill->lock);
		ps_run_count(c->file, (int)nruns - 1);
		fill->active--;
		for (; nnow < nruns && (nnow == 0 || fill->active < fill->concurrency.limit); nnow++) {
			fill->active++;
			ps_list_append(&fill->running, &runs[nnow]->link);
		}
		/* A stretch with holes became more requests than there are connections. */
		for (unsigned i = nnow; i < nruns; i++) {
			runs[i]->retry_ns = now;
			ps_list_append(&fill->retries, &runs[i]->link);
		}
		if (fill->max_bytes_per_s)
			fill->next_start_ns = PS_MAX(fill->next_start_ns, now) +
			                      nbytes * PS_NS_PER_S / fill->max_bytes_per_s;
	}
	for (unsigned i = 0; i < nnow; i++)
		ps_run_submit(runs[i]);
	ps_fill_file_put(c->file);
}

/* Room for another transfer of this class? Demand keeps some connections to itself. The engine's lock is
 * held. */
static bool may_start(const struct ps_fill *fill, enum ps_want_class cls)
{
	unsigned spare = cls == PS_WANT_DEMAND ? 0 : PS_MAX(1u, fill->concurrency.limit / 8);

	if (fill->concurrency.limit <= spare)
		spare = fill->concurrency.limit - 1;
	return fill->active < fill->concurrency.limit - spare;
}

/* Room for another run of this file? One that stalls keeps what it has for long, and would collect the places
 * of all others one by one. So each file has its share, but no less than a quarter; alone it may take three
 * quarters, for another may come at any time. The engine's lock is held. */
static bool file_may_start(const struct ps_fill *fill, const struct ps_fill_file *file)
{
	unsigned max = fill->concurrency.limit, nfiles = fill->nbusy_files + (file->nruns == 0);
	unsigned share = PS_MIN(PS_MAX(max / nfiles, max / 4), max - max / 4);

	return file->nruns < PS_MAX(share, 1u);
}

void ps_run_adapt(struct ps_fill *fill, uint64_t now_ns)
{
	PS_LOCK_SCOPE(&fill->lock);
	bool wanted = false;

	for (size_t cls = 0; cls < PS_ARRAY_LEN(fill->wants); cls++)
		wanted = wanted || !ps_list_empty(&fill->wants[cls]);
	/* A single file may take three quarters. */
	ps_concurrency_tick(&fill->concurrency, now_ns, atomic_load(&fill->arrived_bytes),
	        wanted && fill->active >= fill->concurrency.limit * 5 / 8);
	atomic_store(&fill->connections, fill->concurrency.limit);
}

/* The first want of a queue whose file has room. The engine's lock is held. */
static struct ps_want *first_want(struct ps_fill *fill, enum ps_want_class cls)
{
	for (struct ps_list *l = fill->wants[cls].next; l != &fill->wants[cls]; l = l->next) {
		struct ps_want *want = PS_CONTAINER_OF(l, struct ps_want, link);

		if (file_may_start(fill, want->file))
			return want;
	}
	return NULL;
}

/* Takes memory for a want; drops held blocks for a reader that waits. The engine's lock is held.
 */
static size_t take_buffers(struct ps_fill *fill, const struct ps_want *want, struct ps_buf **bufs,
        struct ps_fill_file **ret_unref)
{
	size_t n = PS_MIN(
	        want->end - want->next, PS_MIN(PS_MAX(want->run_blocks, 1u), (unsigned)PS_RUN_MAX_BLOCKS));
	enum ps_budget_class cls = want->cls == PS_WANT_DEMAND ? PS_BUDGET_DEMAND : PS_BUDGET_AHEAD;
	size_t got = ps_budget_take(fill->budget, cls, n, bufs);

	if (got == 0 && cls == PS_BUDGET_DEMAND && ps_writeback_reclaim(fill, ret_unref))
		got = ps_budget_take(fill->budget, cls, n, bufs);
	return got;
}

/* Takes the next piece of work off the queues. *ret_unref: a file to put without the lock, or NULL. */
static bool next_turn(struct ps_fill *fill, struct turn *c, struct ps_fill_file **ret_unref)
{
	*ret_unref = NULL;
	PS_LOCK_SCOPE(&fill->lock);
	if (fill->stopping)
		return false;
	if (fill->max_bytes_per_s && fill->next_start_ns > ps_clock_mono_ns()) {
		for (size_t i = 0; i < PS_ARRAY_LEN(fill->wants); i++)
			fill->paced = fill->paced || !ps_list_empty(&fill->wants[i]);
		if (fill->paced)
			pthread_cond_signal(&fill->timer_cond);
		return false;
	}
	for (int cls = PS_WANT_DEMAND; cls <= PS_WANT_WARM; cls++) {
		if (ps_list_empty(&fill->wants[cls]))
			continue;
		if (!may_start(fill, (enum ps_want_class)cls))
			return false;
		struct ps_want *want = first_want(fill, (enum ps_want_class)cls);
		if (!want)
			continue;
		size_t n = take_buffers(fill, want, c->bufs, ret_unref);

		if (n == 0)
			return false;
		c->file = want->file;
		c->cls = want->cls;
		c->from = want->next;
		c->end = want->next += n;
		if (want->next < want->end) {
			ps_list_remove(&want->link);
			ps_list_append(&fill->wants[cls], &want->link); /* files take turns */
			c->file->refs++;
		} else {
			ps_want_unqueue(want); /* the turn takes over its reference */
		}
		ps_run_count(c->file, 1);
		fill->active++;
		return true;
	}
	return false;
}

uint64_t ps_run_retry_due(struct ps_fill *fill, uint64_t now_ns)
{
	for (;;) {
		struct ps_run *due = NULL;
		uint64_t next = UINT64_MAX;
		{
			PS_LOCK_SCOPE(&fill->lock);
			for (struct ps_list *l = fill->retries.next; l != &fill->retries; l = l->next) {
				struct ps_run *run = PS_CONTAINER_OF(l, struct ps_run, link);

				if (run->retry_ns <= now_ns) {
					due = run;
					break;
				}
				next = PS_MIN(next, run->retry_ns);
			}
			if (!due)
				return next;
			if (fill->active >= fill->concurrency.limit)
				return now_ns + RETRY_TICK_NS; /* or when one ends: ps_fill_pump() */
			ps_list_remove(&due->link);
			ps_list_append(&fill->running, &due->link);
			fill->active++;
		}
		ps_run_submit(due);
	}
}

void ps_fill_pump(struct ps_fill *fill)
{
	struct ps_fill_file *unref;
	struct turn c;
	bool more;

	/* First: they hold memory, and were first. */
	(void)ps_run_retry_due(fill, ps_clock_mono_ns());
	do {
		more = next_turn(fill, &c, &unref);
		if (more)
			start_turn(fill, &c);
		ps_fill_file_put(unref);
	} while (more);
}
