/* Runs: requests for contiguous missing blocks. Which want is served next, with how much memory and over how
 * many connections; attempts, backoff, and what becomes of blocks that cannot be had. */
#include "fetch/fill_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define RUN_MAX_ATTEMPTS 8   /* without progress, while somebody waits */
#define RUN_AHEAD_ATTEMPTS 4 /* while nobody does */
#define RUN_UNRANGED_ATTEMPTS \
	3 /* a whole body in answer to a range: one of several servers may do that, mostly all do */
#define BACKOFF_FIRST_MS 100
#define BACKOFF_MAX_MS 10000
#define RETRY_TICK_NS (50 * PS_NS_PER_MS) /* a due one for which there is no connection */

struct ps_run {
	struct ps_get get;         /* first: done() gets back to the run from it */
	struct ps_list link;       /* fill->running or fill->retries; the engine's lock */
	struct ps_fill_file *file; /* a reference */
	uint64_t first;            /* block */
	unsigned nblocks;
	size_t nbytes;     /* of the whole run */
	size_t base;       /* bytes that earlier attempts have brought */
	size_t filled;     /* bytes in place, base included */
	unsigned attempts; /* since the last progress */
	uint64_t started_ns, retry_ns;
	bool checked, other_version; /* of this attempt's response */
	struct ps_buf *bufs[PS_RUN_MAX_BLOCKS];
	struct iovec iov[PS_RUN_MAX_BLOCKS];
};

static void progress_cb(struct ps_get *get, size_t nbytes_so_far);
static void done_cb(struct ps_get *get, const struct ps_error *err);

/* Starting --------------------------------------------------------------------------------------- */

static void run_submit(struct ps_run *run)
{
	struct ps_fill_file *file = run->file;
	size_t skip = run->base;

	run->get.url = ps_object_url(file->object);
	run->get.offset = run->first * PS_BLOCK_SIZE + run->base;
	run->get.nbytes = run->nbytes - run->base;
	run->get.progress = progress_cb;
	run->get.done = done_cb;
	run->checked = run->other_version = false;
	run->get.iov = run->iov;
	run->get.niov = 0;
	for (unsigned i = 0; i < run->nblocks; i++) {
		size_t len = ps_object_block_nbytes(file->object, run->first + i);

		if (skip >= len) {
			skip -= len;
			continue;
		}
		run->iov[run->get.niov++] =
		        (struct iovec){.iov_base = run->bufs[i]->data + skip, .iov_len = len - skip};
		skip = 0;
	}
	{
		PS_LOCK_SCOPE(&file->lock);
		run->get.expect = file->remote;
	}
	atomic_fetch_add(&file->fill->origin_requests, 1);
	file->origin->ops->get(file->origin, &run->get);
}

/* Runs of the file more or less. The engine's lock is held. */
static void count_runs(struct ps_fill_file *file, int more)
{
	bool was_busy = file->nruns > 0;

	file->nruns += (unsigned)more;
	file->fill->nbusy_files += (unsigned)(file->nruns > 0) - (unsigned)was_busy;
}

static void run_free(struct ps_run *run)
{
	{
		PS_LOCK_SCOPE(&run->file->fill->lock);
		count_runs(run->file, -1);
	}
	for (unsigned i = 0; i < run->nblocks; i++)
		ps_buf_unref(run->bufs[i]);
	ps_fill_file_put(run->file);
	free(run);
}

/* A run over blocks [first, first + n), which nobody else has claimed; takes the buffers. The file's lock is
 * held. */
static struct ps_run *run_claim(struct ps_fill_file *file, uint64_t first, unsigned n, struct ps_buf **bufs)
{
	struct ps_run *run = calloc(1, sizeof *run);

	if (!run)
		return NULL;
	run->file = file;
	run->first = first;
	run->started_ns = ps_clock_mono_ns();
	ps_list_init(&run->link);
	for (unsigned i = 0; i < n; i++) {
		struct ps_slot *slot = ps_slot_new(file, first + i, PS_SLOT_FETCHING);

		if (!slot)
			break;
		slot->buf = ps_buf_ref(bufs[i]);
		run->bufs[run->nblocks++] = bufs[i];
		run->nbytes += ps_object_block_nbytes(file->object, first + i);
	}
	if (run->nblocks == 0) {
		free(run);
		return NULL;
	}
	return run;
}

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

struct chunk {
	struct ps_fill_file *file; /* a reference */
	enum ps_want_class cls;
	uint64_t from, end;
	struct ps_buf *bufs[PS_RUN_MAX_BLOCKS];
};

/* Turns what of the chunk is missing into runs and starts them; the chunk's one place among the active is
 * used up. */
static void start_chunk(struct ps_fill *fill, struct chunk *c)
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
			        stop > b ? run_claim(c->file, b, (unsigned)(stop - b), c->bufs + used) : NULL;

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
		count_runs(c->file, (int)nruns - 1);
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
		run_submit(runs[i]);
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
static bool next_chunk(struct ps_fill *fill, struct chunk *c, struct ps_fill_file **ret_unref)
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
			ps_want_unqueue(want); /* the chunk takes over its reference */
		}
		count_runs(c->file, 1);
		fill->active++;
		return true;
	}
	return false;
}

void ps_fill_pump(struct ps_fill *fill)
{
	struct ps_fill_file *unref;
	struct chunk c;
	bool more;

	/* First: they hold memory, and were first. */
	(void)ps_run_retry_due(fill, ps_clock_mono_ns());
	do {
		more = next_chunk(fill, &c, &unref);
		if (more)
			start_chunk(fill, &c);
		ps_fill_file_put(unref);
	} while (more);
}

/* Progress --------------------------------------------------------------------------------------- */

/* Bytes [0, filled) of the run are in place: readers are answered, whole blocks go to disk. */
static void run_advance(struct ps_run *run, size_t filled)
{
	struct ps_fill_file *file = run->file;
	struct ps_slot *whole[PS_RUN_MAX_BLOCKS];
	unsigned nwhole = 0;
	struct ps_list ready;
	size_t start = 0;

	if (filled <= run->filled)
		return;
	atomic_fetch_add(&file->fill->arrived_bytes, filled - run->filled);
	ps_list_init(&ready);
	{
		PS_LOCK_SCOPE(&file->lock);
		for (unsigned i = 0; i < run->nblocks && start < filled; i++) {
			size_t len = ps_object_block_nbytes(file->object, run->first + i);

			if (start + len > run->filled) {
				struct ps_slot *slot = file->slots[run->first + i];

				slot->filled = PS_MIN(len, filled - start);
				if (slot->filled == len) {
					slot->state = PS_SLOT_WRITING;
					whole[nwhole++] = slot;
				}
			}
			start += len;
		}
		ps_fill_collect(file, run->first + run->filled / PS_BLOCK_SIZE,
		        run->first + (filled + PS_BLOCK_SIZE - 1) / PS_BLOCK_SIZE, &ready);
		run->filled = filled;
	}
	ps_fill_answer(file->fill, &ready);
	for (unsigned i = 0; i < nwhole; i++) {
		ps_fill_file_ref(file);
		ps_writeback_queue(file->fill, whole[i]);
	}
}

/* Where the listing told no ETag, the first response of all does. Those that were under way with it could not
 * ask for it, so they are compared here, before anything of them is used. */
static void check_version(struct ps_run *run)
{
	struct ps_fill_file *file = run->file;
	const char *seen = run->get.seen.etag;

	if (run->checked)
		return;
	run->checked = true;
	PS_LOCK_SCOPE(&file->lock);
	if (!file->remote.etag[0])
		memcpy(file->remote.etag, seen, sizeof file->remote.etag);
	else if (seen[0] == '"' && file->remote.etag[0] == '"')
		run->other_version = strcmp(seen, file->remote.etag) != 0;
}

static void progress_cb(struct ps_get *get, size_t nbytes_so_far)
{
	struct ps_run *run = (struct ps_run *)get;

	check_version(run);
	if (!run->other_version)
		run_advance(run, run->base + nbytes_so_far);
}

/* Endings ---------------------------------------------------------------------------------------- */

static uint64_t backoff_ns(unsigned attempts, uint32_t retry_after_ms)
{
	uint64_t ms = BACKOFF_FIRST_MS;
	uint32_t noise = 0;

	for (unsigned i = 1; i < attempts && ms < BACKOFF_MAX_MS; i++)
		ms *= 2;
	ms = PS_MAX(PS_MIN(ms, BACKOFF_MAX_MS), retry_after_ms);
	/* Jitter: many clients that failed together must not come back together. Not later than asked to be
	 * short of. */
	if (getrandom(&noise, sizeof noise, GRND_NONBLOCK) != sizeof noise)
		noise = (uint32_t)ps_clock_mono_ns();
	return (ms + ms * (noise % 1000) / 2000) * PS_NS_PER_MS;
}

static bool run_has_waiter(struct ps_run *run)
{
	PS_LOCK_SCOPE(&run->file->lock);
	for (unsigned i = 0; i < run->nblocks; i++)
		if (ps_fill_has_waiter(run->file, run->first + i))
			return true;
	return false;
}

/* Puts a failed run on the list of retries, if another attempt is worth it. */
static bool run_retry(struct ps_run *run, const struct ps_error *err)
{
	struct ps_fill *fill = run->file->fill;
	bool waited = run_has_waiter(run);

	if (!err->retryable)
		return false;
	run->attempts = run->filled > run->base ? 1 : run->attempts + 1;
	run->base = run->filled;
	run->get.priv = NULL; /* cancel() may come before the next submission */
	unsigned most = waited ? RUN_MAX_ATTEMPTS : RUN_AHEAD_ATTEMPTS;

	if (err->err == EPROTO && err->http_status == 200)
		most = RUN_UNRANGED_ATTEMPTS;
	if (run->attempts > most)
		return false;
	run->retry_ns = ps_clock_mono_ns() + backoff_ns(run->attempts, err->retry_after_ms);
	{
		PS_LOCK_SCOPE(&run->file->lock);
		snprintf(run->file->attempt, sizeof run->file->attempt, "%s", err->text);
	}
	PS_LOCK_SCOPE(&fill->lock);
	if (run->file->draining)
		return false;
	atomic_fetch_add(&fill->origin_retries, 1);
	ps_list_append(&fill->retries, &run->link);
	pthread_cond_signal(&fill->timer_cond);
	return true;
}

/* Blocks that were not had: FAILED for those who wait, forgotten otherwise. */
static void run_fail(struct ps_run *run, const struct ps_error *err)
{
	struct ps_fill_file *file = run->file;
	uint64_t now = ps_clock_mono_ns();
	struct ps_list ready;
	bool tell;
	int errnum = err->err == EAGAIN || err->err == EPROTO || err->err == EHOSTUNREACH ? EIO : err->err;

	ps_list_init(&ready);
	{
		PS_LOCK_SCOPE(&file->lock);
		snprintf(file->error, sizeof file->error, "%s", err->text);
		if (err->err == ESTALE)
			file->changed = true;
		if (err->err == ESTALE || err->err == ENOENT)
			file->doubted = true;
		/* Neither does the rest of it come, asked for a million times. */
		if (err->err == ENOENT || err->err == EACCES)
			file->refused_until_ns = now + PS_FILL_FAILED_MS * PS_NS_PER_MS;
		tell = err->err != ECANCELED && ps_fill_may_tell(file, now);
		/* Whole blocks are no longer this run's. */
		for (unsigned i = (unsigned)(run->filled / PS_BLOCK_SIZE); i < run->nblocks; i++) {
			uint64_t block = run->first + i;
			struct ps_slot *slot = file->slots[block];

			if (!ps_fill_has_waiter(file, block)) {
				ps_slot_free(slot);
				continue;
			}
			slot->state = PS_SLOT_FAILED;
			slot->errnum = errnum;
			slot->failed_until_ns = now + PS_FILL_FAILED_MS * PS_NS_PER_MS;
			ps_buf_unref(slot->buf);
			slot->buf = NULL;
			slot->filled = 0;
		}
		ps_fill_collect(file, run->first, run->first + run->nblocks, &ready);
	}
	if (tell)
		ps_log_warning("fetch: %s: bytes %" PRIu64 "-%" PRIu64 ": %s", ps_object_url(file->object),
		        run->first * PS_BLOCK_SIZE + run->filled,
		        run->first * PS_BLOCK_SIZE + run->nbytes - 1, err->text);
	ps_fill_answer(file->fill, &ready);
}

static void done_cb(struct ps_get *get, const struct ps_error *err)
{
	struct ps_run *run = (struct ps_run *)get;
	struct ps_fill *fill = run->file->fill;
	struct ps_error ended = *err;

	if (get->nbytes_done > 0)
		check_version(run);
	if (run->other_version)
		ps_error_set(&ended, ESTALE, "%s: the origin has another version", get->url);
	else
		run_advance(run, run->base + get->nbytes_done);
	atomic_fetch_add(&fill->origin_bytes, get->wire_nbytes);
	if (run->filled == run->nbytes) {
		/* Whole, and so no longer this run's: that the end was a cancel, a stall or a byte too much
		 * changes nothing. */
		ended = (struct ps_error){0};
	} else if (!ended.err) {
		ps_error_set(&ended, EPROTO, "the origin ended %zu bytes early", run->nbytes - run->filled);
		ended.retryable = true;
	}
	{
		PS_LOCK_SCOPE(&fill->lock);
		ps_list_remove(&run->link);
		fill->active--;
		fill->nending++;
		if (ended.err == EAGAIN)
			ps_concurrency_pushback(&fill->concurrency, ps_clock_mono_ns());
	}
	if (!ended.err) {
		PS_LOCK_SCOPE(&run->file->lock);
		run->file->attempt[0] = '\0';
	} else {
		if (ended.err != ECANCELED)
			atomic_fetch_add(&fill->origin_errors, 1);
		ps_log_debug("fetch: %s: attempt failed: %s", ps_object_url(run->file->object), ended.text);
		if (run_retry(run, &ended))
			run = NULL;
		else
			run_fail(run, &ended);
	}
	if (run)
		run_free(run);
	ps_fill_pump(fill);
	/* Last: ps_fill_drain() may return, and the engine go, once nobody is in here. */
	PS_LOCK_SCOPE(&fill->lock);
	if (--fill->nending == 0)
		pthread_cond_broadcast(&fill->files_cond);
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
		run_submit(due);
	}
}

void ps_run_cancel_all(struct ps_fill *fill, struct ps_origin *origin)
{
	const struct ps_error cancelled = {.err = ECANCELED, .text = "cancelled"};
	struct ps_list ended;

	ps_list_init(&ended);
	{
		PS_LOCK_SCOPE(&fill->lock);
		for (struct ps_list *l = fill->retries.next, *next; l != &fill->retries; l = next) {
			struct ps_run *run = PS_CONTAINER_OF(l, struct ps_run, link);

			next = l->next;
			if (run->file->origin != origin)
				continue;
			ps_list_remove(l);
			ps_list_append(&ended, l);
		}
		/* cancel() neither blocks nor calls back from here; a run cannot end under us while the lock
		 * that done_cb() needs is held. */
		for (struct ps_list *l = fill->running.next; l != &fill->running; l = l->next) {
			struct ps_run *run = PS_CONTAINER_OF(l, struct ps_run, link);

			if (run->file->origin == origin)
				origin->ops->cancel(origin, &run->get);
		}
	}
	while (!ps_list_empty(&ended)) {
		struct ps_run *run = PS_CONTAINER_OF(ended.next, struct ps_run, link);

		ps_list_remove(&run->link);
		run_fail(run, &cancelled);
		run_free(run);
	}
}
