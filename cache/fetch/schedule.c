/* The schedule: which want is served next, with how much memory and over how many connections. */
#include "fetch/fill_private.h"

#define RETRY_TICK_NS (50 * PS_NS_PER_MS) /* a due one for which there is no connection */

/* What one turn of a want takes off it. */
struct turn {
	struct ps_fill_file *file; /* a reference */
	enum ps_want_class cls;
	uint64_t from, end; /* chunks */
	size_t nbufs;       /* one for each block of it, at most */
	size_t nused;       /* the first of them, which runs have taken */
	struct ps_buf *bufs[PS_RUN_MAX_BLOCKS];
};
#define TURN_MAX_RUNS (PS_RUN_MAX_CHUNKS / 2)

/* What of the turn's chunks may be claimed, block by block. */
struct claimable {
	uint64_t block;
	uint16_t missing[PS_RUN_MAX_BLOCKS];
};

static void find_claimable(const struct turn *t, uint64_t now_ns, struct claimable *ret)
{
	ret->block = t->from / PS_BLOCK_CHUNKS;
	for (uint64_t b = ret->block; b * PS_BLOCK_CHUNKS < t->end; b++)
		ret->missing[b - ret->block] = ps_slot_missing(t->file, b, now_ns);
}

static bool is_missing(const struct claimable *c, uint64_t chunk)
{
	return c->missing[chunk / PS_BLOCK_CHUNKS - c->block] >> (chunk % PS_BLOCK_CHUNKS) & 1;
}

/* How many transfers at once work of this class may come to. The engine's lock is held. */
static unsigned limit_of(const struct ps_fill *fill, enum ps_want_class cls)
{
	return cls == PS_WANT_DEMAND ? fill->concurrency.demand : fill->concurrency.limit;
}

/* Turns what of the turn is missing into runs, at most TURN_MAX_RUNS. The file's lock is held. */
static unsigned claim_runs(struct turn *t, uint64_t now_ns, struct ps_run **runs)
{
	struct claimable claimable;
	unsigned n = 0;
	size_t more;

	if (ps_want_is_vain(t->cls, t->file))
		return 0;
	if (t->file->changed || (t->cls != PS_WANT_DEMAND && now_ns < t->file->refused_until_ns))
		return 0;
	if (t->cls == PS_WANT_DEMAND &&
	        !ps_fill_has_waiter(t->file, t->from * PS_CHUNK_SIZE, t->end * PS_CHUNK_SIZE))
		return 0; /* it gave up meanwhile, or has all */
	find_claimable(t, now_ns, &claimable);
	for (uint64_t c = t->from; c < t->end; c++) {
		if (!is_missing(&claimable, c))
			continue;
		uint64_t stop = c + 1;
		while (stop < t->end && is_missing(&claimable, stop))
			stop++;
		struct ps_run *run =
		        ps_run_claim(t->file, c, stop, t->bufs + t->nused, t->nbufs - t->nused, &more);

		t->nused += more;
		if (run)
			runs[n++] = run;
		for (uint64_t b = c / PS_BLOCK_CHUNKS; run && b * PS_BLOCK_CHUNKS < stop; b++)
			if (t->cls != PS_WANT_WARM && t->file->slots[b])
				t->file->slots[b]->awaited = true;
		c = stop - 1;
	}
	return n;
}

/* Starts the runs of the turn; its one place among the active is used up. */
static void start_turn(struct ps_fill *fill, struct turn *t)
{
	struct ps_run *runs[TURN_MAX_RUNS];
	uint64_t now = ps_clock_mono_ns(), nbytes = 0;
	unsigned nruns, nnow = 0;

	{
		PS_LOCK_SCOPE(&t->file->lock);
		nruns = claim_runs(t, now, runs);
	}
	for (size_t i = t->nused; i < t->nbufs; i++)
		ps_buf_unref(t->bufs[i]);
	for (unsigned i = 0; i < nruns; i++)
		nbytes += runs[i]->nbytes;
	for (unsigned i = 0; i < nruns; i++)
		ps_fill_file_ref(t->file);
	{
		PS_LOCK_SCOPE(&fill->lock);
		ps_run_count(t->file, (int)nruns - 1);
		fill->active--;
		for (; nnow < nruns && (nnow == 0 || fill->active < limit_of(fill, t->cls)); nnow++) {
			fill->active++;
			ps_list_append(&fill->running, &runs[nnow]->link);
		}
		/* A stretch with holes may have become more requests than there are connections: what is left over
		 * waits among the retries. */
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
	ps_fill_file_put(t->file);
}

/* Room for another transfer of this class? Demand keeps some connections to itself. The engine's lock is
 * held. */
static bool may_start(const struct ps_fill *fill, enum ps_want_class cls)
{
	unsigned limit = limit_of(fill, cls), spare = cls == PS_WANT_DEMAND ? 0 : PS_MAX(1u, limit / 8);

	if (limit <= spare)
		spare = limit - 1;
	return fill->active < limit - spare;
}

/* Room for another run of this file? One that stalls keeps what it has for long, and would collect the places
 * of all others one by one. So each file has its share, and the last quarter of all is for files that have
 * less than that. One of which a run had to give way (preemption.c) does not get into that quarter until something
 * comes of it. The engine's lock is held. */
static bool file_may_start(
        const struct ps_fill *fill, const struct ps_fill_file *file, enum ps_want_class cls)
{
	unsigned max = limit_of(fill, cls), nfiles = fill->nbusy_files + (file->nruns == 0);
	unsigned share = PS_MIN(PS_MAX(max / nfiles, 1u), max - max / 4);

	if (fill->active < max - max / 4)
		return file->nruns < max - max / 4;
	return file->nruns < share && file->nyields == 0;
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

/* The want of a queue whose file has room and the fewest runs; of these, the first. The engine's lock is
 * held. */
static struct ps_want *first_want(struct ps_fill *fill, enum ps_want_class cls)
{
	struct ps_want *best = NULL;

	for (struct ps_list *l = fill->wants[cls].next; l != &fill->wants[cls]; l = l->next) {
		struct ps_want *want = PS_CONTAINER_OF(l, struct ps_want, link);

		if (file_may_start(fill, want->file, cls) && (!best || want->file->nruns < best->file->nruns))
			best = want;
		if (best && best->file->nruns == 0)
			break;
	}
	return best;
}

static enum ps_budget_class budget_class(const struct ps_want *want)
{
	if (want->cls == PS_WANT_DEMAND && want->file->nyields == 0)
		return PS_BUDGET_DEMAND;
	/* A file that had to give way does not get the last memory either: its next run, if it stalls, too, would
	 * hold it for long. */
	return want->cls == PS_WANT_WARM ? PS_BUDGET_LATER : PS_BUDGET_AHEAD;
}

/* Takes memory for a want, and what of it the turn is to fetch with that; drops held blocks for a reader that
 * waits. False: none is to be had. The engine's lock is held. */
static bool take_turn(
        struct ps_fill *fill, struct ps_want *want, struct turn *t, struct ps_fill_file **ret_unref)
{
	uint64_t first = want->next / PS_BLOCK_CHUNKS;
	uint64_t end = (want->end + PS_BLOCK_CHUNKS - 1) / PS_BLOCK_CHUNKS;
	size_t n = PS_MIN(end - first, PS_MIN(PS_MAX(want->run_blocks, 1u), (unsigned)PS_RUN_MAX_BLOCKS));
	enum ps_budget_class cls = budget_class(want);

	t->nbufs = ps_budget_take(fill->budget, cls, n, t->bufs);
	if (t->nbufs == 0 && want->cls == PS_WANT_DEMAND && ps_keep_reclaim(fill, ret_unref))
		t->nbufs = ps_budget_take(fill->budget, cls, n, t->bufs);
	if (t->nbufs == 0)
		return false;
	t->nused = 0;
	t->file = want->file;
	t->cls = want->cls;
	t->from = want->next;
	t->end = want->next = PS_MIN(want->end, (first + t->nbufs) * PS_BLOCK_CHUNKS);
	return true;
}

/* Takes the next piece of work off the queues. *ret_unref: a file to put without the lock, or NULL. */
static bool next_turn(struct ps_fill *fill, struct turn *t, struct ps_fill_file **ret_unref)
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
		if (!take_turn(fill, want, t, ret_unref))
			return false;
		if (want->next < want->end) {
			ps_list_remove(&want->link);
			ps_list_append(&fill->wants[cls], &want->link); /* files take turns */
			t->file->refs++;
		} else {
			ps_want_unqueue(want); /* the turn takes over its reference */
		}
		ps_run_count(t->file, 1);
		fill->active++;
		return true;
	}
	return false;
}

/* The engine's lock is held. */
static bool may_retry(const struct ps_fill *fill, const struct ps_run *run)
{
	unsigned max = limit_of(fill, PS_WANT_DEMAND);

	return fill->active < (run->file->nyields ? max - max / 4 : max);
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

				if (run->retry_ns <= now_ns && may_retry(fill, run)) {
					due = run;
					break;
				}
				/* One that is due but finds no connection is looked at again when a run ends
				 * (ps_fill_pump()), and at the next tick. */
				next = PS_MIN(next,
				        run->retry_ns > now_ns ? run->retry_ns : now_ns + RETRY_TICK_NS);
			}
			if (!due)
				return next;
			due->yields = false;
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
	struct turn t;
	bool more;

	/* Retries come first: they hold memory, and were asked for before what is queued. */
	(void)ps_run_retry_due(fill, ps_clock_mono_ns());
	do {
		more = next_turn(fill, &t, &unref);
		if (more)
			start_turn(fill, &t);
		ps_fill_file_put(unref);
	} while (more);
}
