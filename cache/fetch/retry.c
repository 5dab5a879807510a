/* How runs end: further attempts after a backoff, and what becomes of chunks that cannot be had. */
#include "fetch/fill_private.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

/* Without progress. While somebody waits they go on until his time is up, unless the answers are lies. */
#define RUN_LIES_ATTEMPTS 8
#define RUN_AHEAD_ATTEMPTS 4 /* while nobody waits */
#define RUN_UNRANGED_ATTEMPTS \
	3 /* a whole body in answer to a range: one of several servers may do that, mostly all do */
#define REFUSED_MAX_MS 60000u /* of a Retry-After, for what nobody waits for */
#define BACKOFF_FIRST_MS 100
#define BACKOFF_MAX_MS 10000

static uint64_t backoff_ns(unsigned attempts, uint32_t retry_after_ms)
{
	uint64_t ms = BACKOFF_FIRST_MS;
	uint32_t noise = 0;

	for (unsigned i = 1; i < attempts && ms < BACKOFF_MAX_MS; i++)
		ms *= 2;
	ms = PS_MAX(PS_MIN(ms, BACKOFF_MAX_MS), retry_after_ms);
	/* Jitter: many clients that failed together must not come back together. It is added, so that nobody comes
	 * before the time that the server asked for. */
	if (getrandom(&noise, sizeof noise, GRND_NONBLOCK) != sizeof noise)
		noise = (uint32_t)ps_clock_mono_ns();
	return (ms + ms * (noise % 1000) / 2000) * PS_NS_PER_MS;
}

static bool run_has_waiter(struct ps_run *run)
{
	PS_LOCK_SCOPE(&run->file->lock);
	return ps_fill_has_waiter(run->file, ps_run_offset(run), ps_run_offset(run) + run->nbytes);
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
	run->get.fresh = err->err == ETIMEDOUT || !err->http_status;
	run->get.priv = NULL; /* cancel() may come before the next submission */
	unsigned most = !waited ? RUN_AHEAD_ATTEMPTS : err->err == EPROTO ? RUN_LIES_ATTEMPTS : UINT_MAX;

	if (err->err == EPROTO && err->http_status == 200)
		most = RUN_UNRANGED_ATTEMPTS;
	/* Longer than any reader waits: who comes later must not wait for this one either. */
	if (err->retry_after_ms * PS_NS_PER_MS > fill->timeout_ns)
		most = 0;
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

/* Gives up what of the run's part of a block has not come: failed for those who wait, forgotten otherwise.
 * The file's lock is held. True: what did come is to be queued for the disk. */
static bool give_up(struct ps_run *run, uint64_t block, int errnum, uint64_t until_ns)
{
	struct ps_slot *slot = run->file->slots[block];
	uint64_t end = ps_run_offset(run) + run->nbytes;
	uint16_t mine = ps_chunks_touched(block, ps_run_offset(run) + run->filled, end);

	for (unsigned c = 0; c < PS_BLOCK_CHUNKS; c++) {
		uint64_t start = block * PS_BLOCK_SIZE + c * PS_CHUNK_SIZE;

		if (!(mine >> c & 1))
			continue;
		ps_slot_release(slot, c);
		if (errnum && ps_fill_has_waiter(run->file, start, PS_MIN(start + PS_CHUNK_SIZE, end)))
			ps_slot_fail(slot, (uint16_t)(1u << c), errnum, until_ns);
	}
	return ps_slot_settle(slot);
}

/* Somebody else needs its place more: what came stays, the rest is wanted again if somebody waits for it. */
static void run_yield(struct ps_run *run)
{
	struct ps_fill_file *file = run->file;
	uint64_t from = ps_run_offset(run) + run->filled, end = ps_run_offset(run) + run->nbytes;
	struct ps_slot *whole[PS_RUN_MAX_BLOCKS];
	unsigned nwhole = 0;
	bool waited;
	{
		PS_LOCK_SCOPE(&file->lock);
		waited = ps_fill_has_waiter(file, from, end);
		for (uint64_t b = from / PS_BLOCK_SIZE; b * PS_BLOCK_SIZE < end; b++)
			if (give_up(run, b, 0, 0))
				whole[nwhole++] = file->slots[b];
	}
	for (unsigned i = 0; i < nwhole; i++)
		ps_writeback_queue(file->fill, whole[i]);
	if (waited)
		ps_fill_demand(file, from / PS_CHUNK_SIZE, (end + PS_CHUNK_SIZE - 1) / PS_CHUNK_SIZE);
}

static void run_fail(struct ps_run *run, const struct ps_error *err)
{
	struct ps_fill_file *file = run->file;
	uint64_t now = ps_clock_mono_ns(), until = now + PS_FILL_FAILED_MS * PS_NS_PER_MS;
	uint64_t from = ps_run_offset(run) + run->filled, end = ps_run_offset(run) + run->nbytes;
	struct ps_slot *whole[PS_RUN_MAX_BLOCKS];
	unsigned nwhole = 0;
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
		/* The origin refuses this object. For a while only what readers wait for is asked for: read-ahead
		 * and warming would be refused again and again. */
		if (err->err == ENOENT || err->err == EACCES)
			file->refused_until_ns = until;
		if (err->err == EAGAIN)
			file->refused_until_ns = now + PS_MAX(PS_MIN(err->retry_after_ms, REFUSED_MAX_MS),
			                                       (uint64_t)PS_FILL_FAILED_MS) *
			                                       PS_NS_PER_MS;
		tell = err->err != ECANCELED && ps_fill_may_tell(file, now);
		/* give_up() leaves whole chunks alone: they are no longer this run's. */
		for (uint64_t b = from / PS_BLOCK_SIZE; b * PS_BLOCK_SIZE < end; b++)
			if (give_up(run, b, errnum, until))
				whole[nwhole++] = file->slots[b];
		ps_fill_collect(file, from, end, &ready);
	}
	if (err->err != ECANCELED)
		ps_fill_note_error(file->fill, err->text);
	if (tell)
		ps_log_warning("fetch: %s: bytes %" PRIu64 "-%" PRIu64 ": %s", ps_object_url(file->object),
		        from, end - 1, err->text);
	ps_fill_answer(file->fill, &ready);
	for (unsigned i = 0; i < nwhole; i++)
		ps_writeback_queue(file->fill, whole[i]);
}

void ps_run_done(struct ps_get *get, const struct ps_error *err)
{
	struct ps_run *run = (struct ps_run *)get;
	struct ps_fill *fill = run->file->fill;
	struct ps_error ended = *err;

	struct ps_hedge *hedge = ps_hedge_take(run);
	if (get->nbytes_done > 0)
		ps_run_check_version(run);
	if (run->other_version)
		ps_error_set(&ended, ESTALE, "%s: the origin has another version", get->url);
	else
		ps_run_advance(run, run->base + get->nbytes_done);
	bool won = hedge && ps_hedge_use(hedge, run);
	ps_run_count_bytes(run, get->wire_nbytes);
	/* Where it is decoded here, its origin answers others. */
	if (!run->file->origin->base)
		ps_fill_count_answer(fill, get->first_byte_ns);
	if (run->filled == run->nbytes) {
		/* Whole, and so no longer this run's: that the end was a cancel, a stall or a byte too much
		 * changes nothing. */
		ended = (struct ps_error){0};
	} else if (!ended.err) {
		ps_error_set(&ended, EPROTO, "the origin ended %zu bytes early", run->nbytes - run->filled);
		ended.retryable = true;
	}
	bool draining;
	{
		PS_LOCK_SCOPE(&fill->lock);
		draining = run->file->draining;
		ps_list_remove(&run->link);
		fill->active--;
		fill->nending++;
		if (get->first_byte_ns)
			fill->first_byte_ns = fill->first_byte_ns
			                              ? (7 * fill->first_byte_ns + get->first_byte_ns) / 8
			                              : get->first_byte_ns;
		if (get->nbytes_done > 0)
			run->file->nyields = 0;
		if (ended.err == EAGAIN)
			ps_concurrency_pushback(&fill->concurrency, ps_clock_mono_ns());
		if (ended.err == EAGAIN)
			fill->pushback_ns = ps_clock_mono_ns();
	}
	if (!ended.err) {
		PS_LOCK_SCOPE(&run->file->lock);
		run->file->attempt[0] = '\0';
	} else if ((run->yields || won) && ended.err == ECANCELED && !draining) {
		run_yield(run);
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
		ps_run_free(run);
	ps_fill_pump(fill);
	/* Last: ps_fill_drain() may return, and the engine go, once nobody is in here. */
	PS_LOCK_SCOPE(&fill->lock);
	if (--fill->nending == 0)
		pthread_cond_broadcast(&fill->files_cond);
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
			if (!ps_origin_is(run->file->origin, origin))
				continue;
			ps_list_remove(l);
			ps_list_append(&ended, l);
		}
		/* cancel() neither blocks nor calls back from here; a run cannot end under us while the lock
		 * that ps_run_done() needs is held. */
		ps_hedge_cancel_all(fill, origin);
		for (struct ps_list *l = fill->running.next; l != &fill->running; l = l->next) {
			struct ps_run *run = PS_CONTAINER_OF(l, struct ps_run, link);

			if (ps_origin_is(run->file->origin, origin))
				run->file->origin->ops->cancel(run->file->origin, &run->get);
		}
	}
	while (!ps_list_empty(&ended)) {
		struct ps_run *run = PS_CONTAINER_OF(ended.next, struct ps_run, link);

		ps_list_remove(&run->link);
		run_fail(run, &cancelled);
		ps_run_free(run);
	}
}
