/* Hedged requests, against the slow tail. A request is late if no byte of it has arrived for far longer
 * than most answers take (a dead connection, a sick server behind a balancer). If a reader waits for a late
 * request, a duplicate is sent over a new connection; the bytes of the first to finish are used, and the
 * other is cancelled.
 *
 * a request is late ──▶ hedge under way ──its bytes are there──▶ request cancelled ─it ends─▶ gets the bytes
 *                            │                                                               that it lacks
 *                            └──request ends by itself──▶ hedge cancelled, discarded
 *
 * The hedge has a buffer of its own: two transfers never write to the same memory. Requests are hedged only
 * if they are a tail: most requests of the origin were answered sooner, and few are late now. At most 1 %
 * of the bytes from origins are requested twice, and none for a while after an origin has pushed back. */
#include "fetch/fill_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* minimum of late_ns: sooner, a duplicate would save little time */
#define HEDGE_MIN_NS (100 * PS_NS_PER_MS)
#define HEDGE_FACTOR 2  /* times the p95 latency */
#define HEDGE_SHARE 100 /* at most 1 / HEDGE_SHARE of the bytes */
/* if more than 1 / HEDGE_LATE_SHARE of the requests in flight are late, they are not a tail */
#define HEDGE_LATE_SHARE 8
#define HEDGE_PUSHBACK_NS (30 * PS_NS_PER_S)
#define TAIL_MIN 32 /* answers, before late_ns is known */
#define TAIL_MAX 128u

struct ps_hedge {
	struct ps_origin_get get;         /* first: done() casts it to the hedge */
	struct ps_list link;              /* fill->hedge.running; the engine's lock */
	struct ps_fill_file *file;        /* a reference */
	struct ps_range_request *request; /* NULL: the request has ended; the engine's lock */
	bool ready;    /* all bytes are in memory, and the request is being cancelled; the engine's lock */
	uint64_t from; /* in the file */
	struct ps_block_memory *memory;
	struct iovec iov;
};

/* The latencies of one origin's answers. */
struct ps_tail {
	struct ps_list link; /* fill->hedge.tails */
	struct ps_origin *origin;
	uint64_t ns[TAIL_MAX]; /* of the last answers */
	unsigned n;
	uint64_t late_ns; /* UINT64_MAX: not known */
};

/* Below: the engine's lock is held. ---------------------------------------------------------------------- */

static struct ps_tail *tail_of(struct ps_fill *fill, struct ps_origin *origin, bool make)
{
	PS_LIST_EACH (struct ps_tail, known, &fill->hedge.tails, link)
		if (known->origin == origin)
			return known;
	struct ps_tail *tail = make ? calloc(1, sizeof(*tail)) : NULL;
	if (!tail)
		return NULL;
	tail->origin = origin;
	tail->late_ns = UINT64_MAX;
	ps_list_append(&fill->hedge.tails, &tail->link);
	return tail;
}

/* The p95 of ns[0..n). `top` has the highest values so far, in rising order. */
static uint64_t p95_ns(const uint64_t *ns, size_t n)
{
	uint64_t top[TAIL_MAX / 20 + 1] = {0};
	size_t ntop = n - n * 95 / 100;

	for (size_t i = 0; i < n; i++) {
		size_t at = 0;

		for (; at + 1 < ntop && top[at + 1] < ns[i]; at++)
			top[at] = top[at + 1];
		if (top[at] < ns[i])
			top[at] = ns[i];
	}
	return top[0];
}

void ps_hedge_answered(struct ps_fill *fill, struct ps_origin *origin, uint64_t ns)
{
	/* A decompressing origin (with a base) computes its answers: a duplicate does not help. Such an
	 * origin may also be freed while its tail still refers to it. */
	struct ps_tail *tail = origin->base ? NULL : tail_of(fill, origin, true);

	if (!tail)
		return;
	tail->ns[tail->n++ % PS_ARRAY_LEN(tail->ns)] = ns;
	if (tail->n < TAIL_MIN || tail->n % (TAIL_MIN / 4) != 0)
		return;
	tail->late_ns = PS_MAX(HEDGE_FACTOR * p95_ns(tail->ns, PS_MIN(tail->n, TAIL_MAX)), HEDGE_MIN_NS);
}

void ps_hedge_forget(struct ps_fill *fill, struct ps_origin *origin)
{
	PS_LIST_EACH (struct ps_tail, tail, &fill->hedge.tails, link) {
		if (origin && !ps_origin_is(tail->origin, origin))
			continue;
		ps_list_remove(&tail->link);
		free(tail);
	}
}

static bool is_late(struct ps_fill *fill, const struct ps_range_request *request, uint64_t now_ns)
{
	const struct ps_tail *tail = tail_of(fill, request->file->origin, false);
	uint64_t touched = atomic_load(&request->touched_ns);

	return tail && touched < now_ns && now_ns - touched > tail->late_ns;
}

/* The number of bytes that readers need from *ret_from, the next byte of the request, if they fit in one
 * block's memory; 0: no reader waits for these bytes, or they do not fit. */
static size_t needed_nbytes(
        struct ps_range_request *request, uint64_t *ret_from, struct ps_remote *ret_expect)
{
	struct ps_fill_file *file = request->file;

	PS_LOCK_SCOPE(&file->lock);
	uint64_t from = ps_range_request_offset(request) + request->filled,
	         end = ps_range_request_offset(request) + request->nbytes, need = 0;
	for (struct ps_read *read = ps_waiters_first(file, from, end); read;
	        read = ps_waiters_next(read, from, end)) {
		uint64_t stop = PS_MIN(read->offset + read->nbytes, end);

		if (stop - from <= PS_BLOCK_SIZE)
			need = PS_MAX(need, stop - from);
	}
	*ret_from = from;
	*ret_expect = file->remote;
	return need;
}

/* Progress has no effect: a hedge is used only when it is complete. */
static void hedge_progress(struct ps_origin_get *get, size_t nbytes_so_far)
{
	(void)get, (void)nbytes_so_far;
}

static struct ps_hedge *hedge_new(struct ps_fill *fill, struct ps_range_request *request)
{
	struct ps_remote expect;
	uint64_t from;
	size_t nbytes = needed_nbytes(request, &from, &expect);

	if (nbytes == 0 || (atomic_load(&fill->origin.hedged_bytes) + nbytes) * HEDGE_SHARE >
	                           atomic_load(&fill->origin.bytes))
		return NULL;
	struct ps_hedge *hedge = calloc(1, sizeof(*hedge));
	if (!hedge)
		return NULL;
	if (ps_budget_take(fill->budget, PS_BUDGET_AHEAD, 1, &hedge->memory) == 0) {
		free(hedge);
		return NULL;
	}
	hedge->request = request;
	hedge->file = request->file;
	hedge->from = from;
	hedge->iov = (struct iovec){.iov_base = hedge->memory->data, .iov_len = nbytes};
	hedge->get = (struct ps_origin_get){.url = ps_object_url(request->file->object),
	        .expect = expect,
	        .offset = from,
	        .nbytes = nbytes,
	        .iov = &hedge->iov,
	        .niov = 1,
	        .fresh = true,
	        .direct = true,
	        .progress = hedge_progress,
	        .done = fill->events.hedge_done};
	hedge->file->refs++;
	request->hedge = hedge;
	ps_list_append(&fill->hedge.running, &hedge->link);
	fill->active++;
	atomic_fetch_add(&fill->origin.requests, 1);
	atomic_fetch_add(&fill->origin.hedged_requests, 1);
	atomic_fetch_add(&fill->origin.hedged_bytes, nbytes);
	return hedge;
}

/* Hedges the first late request, if few others are late. */
static struct ps_hedge *find_late(struct ps_fill *fill, uint64_t now_ns)
{
	unsigned nlate = 0;

	if (fill->stopping || fill->active >= fill->concurrency.demand ||
	        (fill->hedge.pushback_ns && now_ns - fill->hedge.pushback_ns < HEDGE_PUSHBACK_NS))
		return NULL;
	PS_LIST_EACH (struct ps_range_request, request, &fill->running, link)
		nlate += is_late(fill, request, now_ns);
	if (nlate > PS_MAX(fill->active / HEDGE_LATE_SHARE, 1u))
		return NULL;
	PS_LIST_EACH (struct ps_range_request, request, &fill->running, link) {
		struct ps_hedge *hedge;

		if (!request->hedge && !request->preempted && !request->file->draining &&
		        is_late(fill, request, now_ns) && (hedge = hedge_new(fill, request)))
			return hedge;
	}
	return NULL;
}

void ps_hedge_cancel_all(struct ps_fill *fill, struct ps_origin *origin)
{
	PS_LIST_EACH (struct ps_hedge, hedge, &fill->hedge.running, link) {
		if (ps_origin_is(hedge->file->origin, origin))
			hedge->file->origin->ops->cancel(hedge->file->origin, &hedge->get);
	}
}

/* Above: the engine's lock is held. ---------------------------------------------------------------------- */

static void hedge_free(struct ps_hedge *hedge)
{
	ps_block_memory_unref(hedge->memory);
	ps_fill_file_put(hedge->file);
	free(hedge);
}

void ps_hedge_look(struct ps_fill *fill, uint64_t now_ns)
{
	struct ps_hedge *hedge;
	{
		PS_LOCK_SCOPE(&fill->lock);
		hedge = find_late(fill, now_ns);
	}
	/* The request may end before this get is submitted. ps_hedge_take() then clears hedge->request, its
	 * cancel has no effect, and ps_hedge_end() discards the answer. */
	if (hedge)
		hedge->file->origin->ops->get(hedge->file->origin, &hedge->get);
}

struct ps_fill *ps_hedge_end(struct ps_origin_get *get, const struct ps_error *err)
{
	struct ps_hedge *hedge = (struct ps_hedge *)get;
	struct ps_fill *fill = hedge->file->fill;
	bool whole =
	        get->nbytes_done == get->nbytes && ps_range_request_same_version(hedge->file, &get->seen);
	bool kept = false;

	atomic_fetch_add(&fill->origin.bytes, get->wire_nbytes);
	atomic_fetch_add(&fill->origin.hedged_bytes, get->wire_nbytes);
	atomic_fetch_sub(&fill->origin.hedged_bytes, get->nbytes);
	{
		PS_LOCK_SCOPE(&fill->lock);
		struct ps_range_request *request = hedge->request;

		ps_list_remove(&hedge->link);
		fill->active--;
		fill->nending++;
		if (err->err == EAGAIN)
			fill->hedge.pushback_ns = ps_clock_mono_ns();
		if (request && whole) {
			hedge->ready = kept = true;
			request->file->origin->ops->cancel(request->file->origin, &request->get);
		} else if (request) {
			request->hedge = NULL;
		}
	}
	if (!kept)
		hedge_free(hedge);
	return fill;
}

struct ps_hedge *ps_hedge_take(struct ps_range_request *request)
{
	struct ps_fill *fill = request->file->fill;

	PS_LOCK_SCOPE(&fill->lock);
	struct ps_hedge *hedge = ps_steal_ptr(&request->hedge);
	if (!hedge || hedge->ready)
		return hedge;
	hedge->request = NULL;
	request->file->origin->ops->cancel(request->file->origin, &hedge->get);
	return NULL;
}

void ps_hedge_use(struct ps_hedge *hedge, struct ps_range_request *request, struct ps_outcome *outcome)
{
	uint64_t at = ps_range_request_offset(request) + request->filled,
	         end = hedge->from + hedge->get.nbytes;
	bool won = at < end && !request->other_version;

	/* The request's transfer has ended, so no other thread writes to its buffers. */
	for (uint64_t part; won && at < end; at += part) {
		part = PS_MIN(end, (at / PS_BLOCK_SIZE + 1) * PS_BLOCK_SIZE) - at;
		memcpy(request->bufs[at / PS_BLOCK_SIZE - request->first / PS_BLOCK_CHUNKS]->data +
		                at % PS_BLOCK_SIZE,
		        hedge->memory->data + (at - hedge->from), part);
	}
	if (won)
		ps_range_request_advance(request, end - ps_range_request_offset(request), outcome);
	hedge_free(hedge);
}
