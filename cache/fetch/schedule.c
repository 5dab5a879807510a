/* The schedule: which demand is served next, with how much memory and over how many connections. */
#include "fetch/fill_private.h"

#include "base/size.h"

/* a demand waits this long before another file's request is pre-empted */
#define WAIT_NS (300 * PS_NS_PER_MS)
#define PATIENCE_NS (400 * PS_NS_PER_MS) /* minimum time without progress before a request is pre-empted */
#define PATIENCE_FIRST_BYTES 4           /* the same, as a multiple of the origin's latency */
#define PATIENCE_DOUBLINGS 5             /* each pre-emption doubles the file's time, up to 2^5 */
/* After a pause of this length TCP begins each connection slowly again. */
#define COLD_AFTER_NS PS_NS_PER_S
#define COLD_NBYTES (512 * PS_KIB) /* a far origin's connection is new until it has received these bytes */
#define COLD_MIN_CHUNKS 2          /* minimum length of a request over such a connection */
#define TAIL_MIN_CHUNKS PS_BLOCK_CHUNKS
#define RETRY_TICK_NS (50 * PS_NS_PER_MS) /* when a due retry without a connection is looked at again */

/* The maximum number of transfers for work of this class. The engine's lock is held. */
static unsigned limit_of(const struct ps_fill *fill, enum ps_demand_class cls)
{
	return cls == PS_DEMAND_READ ? fill->concurrency.demand : fill->concurrency.limit;
}

/* How many of `limit` connections one file may have. */
static unsigned of_one_file(unsigned limit)
{
	return limit - limit / 4;
}

/* Makes requests for the missing chunks of the turn, at most PS_TURN_MAX_REQUESTS. The file's lock is
 * held. */
static unsigned claim_requests(struct ps_turn *t, uint64_t now_ns, struct ps_range_request **requests)
{
	uint16_t missing[PS_REQUEST_MAX_BLOCKS]; /* chunks of the turn that may be claimed, by block */
	uint64_t block = t->from / PS_BLOCK_CHUNKS, stop;
	unsigned n = 0;
	size_t more;

	if (ps_demand_is_vain(t->cls, t->file))
		return 0;
	if (t->file->changed || (t->cls != PS_DEMAND_READ && now_ns < t->file->refused_until_ns))
		return 0;
	if (t->cls == PS_DEMAND_READ &&
	        !ps_waiters_first(t->file, t->from * PS_CHUNK_SIZE, t->end * PS_CHUNK_SIZE))
		return 0; /* the reader has given up meanwhile, or has all bytes */
	for (uint64_t b = block; b * PS_BLOCK_CHUNKS < t->end; b++)
		missing[b - block] = ps_block_buffer_missing(t->file, b, now_ns);
	for (uint64_t c = t->from; c < t->end; c = PS_MAX(stop, c + 1)) {
		for (stop = c; stop < t->end && stop - c < t->most; stop++)
			if (!(missing[stop / PS_BLOCK_CHUNKS - block] >> (stop % PS_BLOCK_CHUNKS) & 1))
				break;
		if (stop == c)
			continue;
		struct ps_range_request *request = ps_range_request_claim(
		        t->file, c, stop, t->bufs + t->nused, t->nbufs - t->nused, &more);

		t->nused += more;
		if (request)
			requests[n++] = request;
		t->stuck = t->stuck || !request || request->nchunks < stop - c;
		for (uint64_t b = c / PS_BLOCK_CHUNKS; request && b * PS_BLOCK_CHUNKS < stop; b++)
			if (t->cls != PS_DEMAND_WARM && t->file->buffers[b])
				t->file->buffers[b]->awaited = true;
	}
	return n;
}

void ps_schedule_claim(struct ps_fill *fill, struct ps_turn *t, struct ps_outcome *outcome)
{
	uint64_t now = ps_clock_mono_ns(), nbytes = 0;
	unsigned nrequests;

	{
		PS_LOCK_SCOPE(&t->file->lock);
		nrequests = claim_requests(t, now, t->requests);
		/* The demand is over. Its waiters are looked at: their bytes may have come in another way
		 * (the store has other writers), or have failed with the file, or must be demanded
		 * again. */
		if (t->cls == PS_DEMAND_READ)
			ps_waiters_look(t->file, t->from * PS_CHUNK_SIZE, t->end * PS_CHUNK_SIZE, outcome);
	}
	for (size_t i = t->nused; i < t->nbufs; i++)
		ps_block_memory_unref(t->bufs[i]);
	for (unsigned i = 0; i < nrequests; i++)
		nbytes += t->requests[i]->nbytes;
	PS_LOCK_SCOPE(&fill->lock);
	t->file->refs += nrequests;
	ps_range_request_count(t->file, (int)nrequests - 1);
	fill->active--;
	for (; t->nrequests < nrequests && (t->nrequests == 0 || fill->active < limit_of(fill, t->cls));
	        t->nrequests++) {
		fill->active++;
		ps_list_append(&fill->running, &t->requests[t->nrequests]->link);
	}
	/* A range with gaps may become more requests than there are connections: the rest waits among the
	 * retries. */
	for (unsigned i = t->nrequests; i < nrequests; i++) {
		t->requests[i]->retry_ns = now;
		ps_tree_insert(&fill->retries, &t->requests[i]->retry, now);
	}
	if (fill->max_bytes_per_s)
		fill->next_start_ns =
		        PS_MAX(fill->next_start_ns, now) + nbytes * PS_NS_PER_S / fill->max_bytes_per_s;
}

/* True if this file may have another request. A file whose requests stall keeps its connections for long,
 * and would take over those of all others one by one. So each file has a share, and the last quarter of the
 * connections is for files with less than their share. A file with a pre-empted request does not get a
 * connection of that quarter until some of its bytes arrive. The engine's lock is held. */
static bool file_may_start(
        const struct ps_fill *fill, const struct ps_fill_file *file, enum ps_demand_class cls)
{
	unsigned max = limit_of(fill, cls), nfiles = fill->nbusy_files + (file->nrequests == 0);
	unsigned share = PS_MIN(PS_MAX(max / nfiles, 1u), of_one_file(max));

	if (fill->active < of_one_file(max))
		return file->nrequests < of_one_file(max);
	return file->nrequests < share && file->npreempted == 0;
}

void ps_schedule_adapt(struct ps_fill *fill, uint64_t now_ns)
{
	PS_LOCK_SCOPE(&fill->lock);
	bool demanded = false;

	for (size_t cls = 0; cls < PS_ARRAY_LEN(fill->queues); cls++)
		demanded = demanded || !ps_tree_empty(&fill->queues[cls]);
	/* 5/8, because a single file may take only three quarters of the connections. */
	ps_concurrency_tick(&fill->concurrency, now_ns, atomic_load(&fill->arrived_bytes),
	        demanded && fill->active >= fill->concurrency.limit * 5 / 8);
	ps_fill_publish(fill);
}

/* The oldest demand of the file with the fewest requests that may have another one. With few connections
 * left, a pre-empted file may not have another one. The engine's lock is held. */
static struct ps_demand *first_demand(const struct ps_fill *fill, enum ps_demand_class cls)
{
	struct ps_fill_file *file = ps_demand_first_file(fill, cls, false);
	struct ps_fill_file *preempted = ps_demand_first_file(fill, cls, true);

	if (preempted && (!file || preempted->nrequests < file->nrequests) &&
	        file_may_start(fill, preempted, cls))
		file = preempted;
	/* Files with more requests than this one may not have another, either. */
	if (!file || !file_may_start(fill, file, cls))
		return NULL;
	return PS_CONTAINER_OF(file->demands[cls].demands.next, struct ps_demand, link);
}

static enum ps_budget_class budget_class(const struct ps_demand *demand)
{
	if (demand->cls == PS_DEMAND_READ && demand->file->npreempted == 0)
		return PS_BUDGET_DEMAND;
	/* A pre-empted file does not get the last memory, either: if its next request stalls, too, it would
	 * hold that memory for long. */
	return demand->cls == PS_DEMAND_WARM ? PS_BUDGET_LATER : PS_BUDGET_AHEAD;
}

/* If there was no traffic for a while, the connections count as new again: sets cold_below_bytes. The
 * engine's lock is held. */
static void look_if_cold(struct ps_fill *fill)
{
	if (fill->active || ps_clock_mono_ns() - fill->ended_ns < COLD_AFTER_NS)
		return;
	fill->ended_ns = ps_clock_mono_ns();
	atomic_store(&fill->cold_below_bytes,
	        atomic_load(&fill->arrived_bytes) + fill->concurrency.limit * COLD_NBYTES);
}

/* The length of a request -------------------------------------------------------------------------------- */

/* It is decided here, and take_turn() cuts the demand. A request is shorter where chunks are there already, where
 * memory ends, or if the server's answers are not sized (PS_HTTP_UNSIZED_NBYTES). */

/* In chunks. When connections share chunks, a request still has `least`, as a shorter one costs more than it
 * brings. */
static const struct {
	unsigned least, most;
} lengths[PS_DEMAND_CLASSES] = {
        [PS_DEMAND_READ] = {PS_REQUEST_MAX_CHUNKS, PS_REQUEST_MAX_CHUNKS},
        [PS_DEMAND_AHEAD] = {2 * PS_BLOCK_CHUNKS, PS_REQUEST_MAX_CHUNKS},
        [PS_DEMAND_NEXT] = {4 * PS_BLOCK_CHUNKS, 8 * PS_BLOCK_CHUNKS},
        [PS_DEMAND_WARM] = {8 * PS_BLOCK_CHUNKS, 8 * PS_BLOCK_CHUNKS},
};

static uint64_t shared_out(
        const struct ps_fill_file *file, enum ps_demand_class cls, uint64_t nchunks, unsigned nconnections)
{
	const struct ps_fill *fill = file->fill;
	uint64_t least = lengths[cls].least, each = (nchunks + nconnections - 1) / nconnections;

	/* TCP sends the first bytes of a new connection slowly. From a far origin, many short requests then
	 * bring more bytes than few long ones. A decompressing origin makes requests of its own, and the tiers
	 * of an origin with slices are near. */
	if (cls <= PS_DEMAND_AHEAD && !file->origin->base && !file->origin->slice_nbytes &&
	        atomic_load(&fill->far) &&
	        atomic_load(&fill->arrived_bytes) < atomic_load(&fill->cold_below_bytes))
		least = COLD_MIN_CHUNKS;
	return PS_MIN(PS_MAX(each, least), (uint64_t)lengths[cls].most);
}

uint64_t ps_request_chunks(const struct ps_fill_file *file, enum ps_demand_class cls, uint64_t together)
{
	return together ? shared_out(file, cls, together, of_one_file(atomic_load(&file->fill->connections)))
	                : lengths[cls].most;
}

/* The maximum length of the demand's next request, in chunks. The engine's lock is held. */
static uint64_t request_chunks(const struct ps_fill *fill, const struct ps_demand *demand)
{
	const struct ps_fill_file *file = demand->file;
	unsigned all = of_one_file(limit_of(fill, demand->cls)), used = PS_MAX(fill->active, file->nrequests);
	uint64_t left = demand->end - demand->next, most;

	/* A reader waits for the last of its bytes. */
	if (demand->cls == PS_DEMAND_READ)
		return shared_out(file, demand->cls, left, used < all ? all - used : 1);
	most = ps_request_chunks(file, demand->cls, demand->together);
	/* The end of a file is divided among the connections, so that its last requests end together. */
	if (demand->cls == PS_DEMAND_AHEAD && fill->concurrency.far && !file->origin->slice_nbytes &&
	        demand->end >= ps_object_nblocks(file->object) * PS_BLOCK_CHUNKS)
		most = PS_MIN(most, PS_MAX(left / all, (uint64_t)TAIL_MIN_CHUNKS));
	return most;
}

/* Takes memory for a demand, and the chunks that fit into it for the turn. For a waiting reader it drops
 * retained or held blocks. False: there is no memory. The engine's lock is held. */
static bool take_turn(
        struct ps_fill *fill, struct ps_demand *demand, struct ps_turn *t, struct ps_fill_file **ret_unref)
{
	enum ps_budget_class cls = budget_class(demand);
	uint64_t slice = demand->file->origin->slice_nbytes / PS_CHUNK_SIZE, end;

	look_if_cold(fill);
	t->from = demand->next;
	t->most = request_chunks(fill, demand);
	/* A reader's turn takes all of the demand, though it may become several requests: its waiters may
	 * touch only some of the chunks, and the others are fetched with them. */
	end = t->from + (demand->cls == PS_DEMAND_READ ? PS_REQUEST_MAX_CHUNKS : t->most);
	if (end - t->from >= PS_BLOCK_CHUNKS)
		end -= end % PS_BLOCK_CHUNKS;
	if (slice)
		end = PS_MIN(end, t->from - t->from % slice + slice);
	end = PS_MIN(end, demand->end);
	uint64_t first = t->from / PS_BLOCK_CHUNKS;
	size_t n = (end + PS_BLOCK_CHUNKS - 1) / PS_BLOCK_CHUNKS - first;
	t->nbufs = ps_budget_take(fill->budget, cls, n, t->bufs);
	if (t->nbufs == 0 && demand->cls == PS_DEMAND_READ && ps_retained_reclaim(fill, ret_unref))
		t->nbufs = ps_budget_take(fill->budget, cls, n, t->bufs);
	if (t->nbufs == 0)
		return false;
	t->nused = 0;
	t->nrequests = 0;
	t->stuck = false;
	t->file = demand->file;
	t->cls = demand->cls;
	t->end = PS_MIN(end, (first + t->nbufs) * PS_BLOCK_CHUNKS);
	ps_demand_take(demand, t->end);
	return true;
}

/* Takes the next piece of work off the queues. *ret_unref: a file to put without the lock, or NULL. */
bool ps_schedule_next(struct ps_fill *fill, struct ps_turn *t, struct ps_fill_file **ret_unref)
{
	*ret_unref = NULL;
	PS_LOCK_SCOPE(&fill->lock);
	if (fill->stopping)
		return false;
	if (fill->max_bytes_per_s && fill->next_start_ns > ps_clock_mono_ns()) {
		for (size_t i = 0; i < PS_ARRAY_LEN(fill->queues); i++)
			fill->paced = fill->paced || !ps_tree_empty(&fill->queues[i]);
		if (fill->paced)
			pthread_cond_signal(&fill->timer_cond);
		return false;
	}
	for (int cls = PS_DEMAND_READ; cls <= PS_DEMAND_WARM; cls++) {
		unsigned limit = limit_of(fill, (enum ps_demand_class)cls);
		/* connections that are reserved for demand reads */
		unsigned spare = cls == PS_DEMAND_READ ? 0 : PS_MIN(PS_MAX(1u, limit / 8), limit - 1);

		if (ps_tree_empty(&fill->queues[cls]))
			continue;
		if (fill->active >= limit - spare)
			return false;
		struct ps_demand *demand = first_demand(fill, (enum ps_demand_class)cls);
		if (!demand)
			continue;
		if (!take_turn(fill, demand, t, ret_unref))
			return false;
		ps_range_request_count(t->file, 1);
		fill->active++;
		return true;
	}
	return false;
}

struct ps_range_request *ps_schedule_retry(struct ps_fill *fill, uint64_t now_ns, uint64_t *ret_next_ns)
{
	PS_LOCK_SCOPE(&fill->lock);
	unsigned max = limit_of(fill, PS_DEMAND_READ);

	*ret_next_ns = UINT64_MAX;
	for (struct ps_tree_item *item = ps_tree_first(&fill->retries); item; item = ps_tree_next(item)) {
		struct ps_range_request *request = PS_CONTAINER_OF(item, struct ps_range_request, retry);

		if (request->retry_ns > now_ns) {
			*ret_next_ns = PS_MIN(*ret_next_ns, request->retry_ns);
			break;
		}
		/* One that replaces a slow connection must not wait for others, which may be as slow. */
		if (request->get.work.resend ||
		        fill->active < (request->file->npreempted ? max - max / 4 : max)) {
			request->preempted = false;
			atomic_store(&request->touched_ns, now_ns);
			ps_tree_remove(&fill->retries, item);
			ps_list_append(&fill->running, &request->link);
			fill->active++;
			return request;
		}
		/* A due retry without a connection is looked at again when a request ends (ps_fill_pump()),
		 * and at the next tick. */
		*ret_next_ns = now_ns + RETRY_TICK_NS;
	}
	return NULL;
}

/* Pre-emption -------------------------------------------------------------------------------------------- */

/* Readers of one file must not starve because stalled requests of other files hold the connections or the
 * memory. So a request that makes no progress for long is cancelled in favour of a file that has no
 * request; what its own readers wait for is demanded again. */

/* True if the request has been without progress for longer than a request of its file may be. The engine's
 * lock is held. */
static bool has_stalled(const struct ps_fill *fill, struct ps_range_request *request, uint64_t now_ns)
{
	uint64_t touched = atomic_load(&request->touched_ns);
	uint64_t patience_ns = PS_MAX(PATIENCE_NS, PATIENCE_FIRST_BYTES * fill->first_byte_ns)
	                       << PS_MIN(request->file->npreempted, (unsigned)PATIENCE_DOUBLINGS);

	return !request->preempted && touched < now_ns && now_ns - touched > patience_ns;
}

void ps_schedule_make_room(struct ps_fill *fill, uint64_t now_ns)
{
	PS_LOCK_SCOPE(&fill->lock);
	unsigned starving = ps_demand_count_starving(fill, now_ns - WAIT_NS, fill->concurrency.demand);

	/* fill->running has the oldest requests first. cancel() neither blocks nor calls back from here. */
	PS_LIST_EACH (struct ps_range_request, request, &fill->running, link) {
		if (!starving)
			break;
		starving -= request->preempted; /* its connection will be free soon */
		if (!starving || !has_stalled(fill, request, now_ns))
			continue;
		request->preempted = true;
		request->file->npreempted++;
		ps_demand_requeue(request->file);
		request->file->origin->ops->cancel(request->file->origin, &request->get);
		starving--;
	}
}
