/* The engine: handles events. Origins, the disk threads, the timer and readers call into this file. The
 * lower files return what an event leads to (struct ps_outcome); this file carries it out and starts new
 * requests, in one place.
 *
 * The files are in layers, from the top down: each uses those below it, none calls up:
 *
 *   fill.c             the engine: events, the pump, the timer, draining
 *   schedule.c         which demand is served next, with how much memory, how many connections; pre-emption
 *   hedge.c            hedged requests
 *   range_request.c    range requests, from the claim to the end: progress, retries, failures
 *   writeback.c        writing and checking blocks, on the disk threads
 *   waiters.c          finding the bytes of reads; waiting reads; deadlines
 *   demand_queue.c     demands, by class
 *   fill_file.c        a file: references, block buffers, retained blocks, failures
 *   concurrency.c      the number of concurrent transfers
 *   fill_stats.c       statistics
 *   budget.c           memory */
#include "fetch/fill_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/thread.h"

#define DRAIN_TICK_NS (50 * PS_NS_PER_MS)
#define TIMER_BUSY_NS (50 * PS_NS_PER_MS) /* maximum delay after a deadline */
#define TIMER_IDLE_NS PS_NS_PER_S
#define STORED_MAX_FILES 8 /* looked at in one call: an object has a file for each of its origins */
#define TRIM_AFTER_NS (30 * PS_NS_PER_S)

/* Outcomes ----------------------------------------------------------------------------------------------- */

/* Carries out an outcome; the caller has a reference of the file. True: the pump has to start new demands.
 * No lock held. */
static bool carry_out(struct ps_fill_file *file, struct ps_outcome *outcome)
{
	ps_waiters_answer(file->fill, &outcome->ready);
	ps_writeback_queue(file->fill, &outcome->disk);
	for (unsigned i = 0; i < outcome->nmissing; i++)
		ps_fill_demand(file, outcome->missing[i].from, outcome->missing[i].end);
	if (outcome->again)
		ps_fill_look_later(file);
	return outcome->nmissing > 0;
}

/* Returns when the next retry is due, or UINT64_MAX. */
static uint64_t start_retries(struct ps_fill *fill)
{
	uint64_t next_ns;

	for (struct ps_range_request *request;
	        (request = ps_schedule_retry(fill, ps_clock_mono_ns(), &next_ns));)
		ps_range_request_submit(request);
	return next_ns;
}

void ps_fill_pump(struct ps_fill *fill)
{
	struct ps_fill_file *unref;
	struct ps_outcome outcome;
	struct ps_turn turn;

	/* Retries come before demands: they hold memory, and are older. */
	(void)start_retries(fill);
	for (bool more = true; more;) {
		more = ps_schedule_next(fill, &turn, &unref);
		if (more) {
			ps_outcome_init(&outcome);
			ps_schedule_claim(fill, &turn, &outcome);
			for (unsigned i = 0; i < turn.nrequests; i++)
				ps_range_request_submit(turn.requests[i]);
			(void)carry_out(turn.file, &outcome);
			/* after a stuck turn, the timer starts the demands that were queued again */
			more = !turn.stuck;
			ps_fill_file_put(turn.file);
		}
		ps_fill_file_put(unref);
	}
}

/* Events of origins; no lock held ------------------------------------------------------------------------ */

/* Adapts the number of connections to the latency of the first answer. True: more connections may be used
 * now. */
static bool learn_distance(struct ps_range_request *request, uint64_t first_byte_ns)
{
	struct ps_fill *fill = request->file->fill;

	PS_LOCK_SCOPE(&fill->lock);
	unsigned before = fill->concurrency.limit;

	ps_hedge_answered(
	        fill, request->file->origin, ps_clock_mono_ns() - atomic_load(&request->touched_ns));
	ps_concurrency_first_byte(&fill->concurrency, ps_clock_mono_ns(), first_byte_ns);
	ps_fill_publish(fill);
	return fill->concurrency.limit > before;
}

static void on_progress(struct ps_origin_get *get, size_t nbytes_so_far)
{
	struct ps_range_request *request = (struct ps_range_request *)get;
	bool more = !request->checked && learn_distance(request, get->first_byte_ns);
	struct ps_outcome outcome;

	/* Decoded bytes are not counted: the compressed ones were, when they came from the base origin. */
	if (!request->file->origin->base)
		ps_range_request_count_bytes(request, nbytes_so_far);
	ps_range_request_check_version(request);
	ps_outcome_init(&outcome);
	if (!request->other_version)
		ps_range_request_advance(request, request->base + nbytes_so_far, &outcome);
	if (carry_out(request->file, &outcome) || more)
		ps_fill_pump(request->file->fill);
}

/* The last call in a callback: once no callback is running, ps_fill_drain() may return, and the engine may
 * be freed. */
static void end_callback(struct ps_fill *fill)
{
	PS_LOCK_SCOPE(&fill->lock);
	if (--fill->nending == 0)
		pthread_cond_broadcast(&fill->files_cond);
}

/* Takes an ended request off the active ones, and learns from its result. Returns true if its file is
 * draining. */
static bool take_off(struct ps_range_request *request, int errnum)
{
	struct ps_fill *fill = request->file->fill;
	const struct ps_origin_get *get = &request->get;

	PS_LOCK_SCOPE(&fill->lock);
	ps_list_remove(&request->link);
	if (--fill->active == 0)
		fill->ended_ns = ps_clock_mono_ns();
	fill->nending++;
	if (get->first_byte_ns)
		fill->first_byte_ns = fill->first_byte_ns ? (7 * fill->first_byte_ns + get->first_byte_ns) / 8
		                                          : get->first_byte_ns;
	if (get->nbytes_done > 0) {
		request->file->npreempted = 0;
		ps_demand_requeue(request->file);
	}
	if (errnum == EAGAIN) {
		fill->hedge.pushback_ns = ps_clock_mono_ns();
		ps_concurrency_pushback(&fill->concurrency, fill->hedge.pushback_ns);
	}
	return request->file->draining;
}

static void on_done(struct ps_origin_get *get, const struct ps_error *err)
{
	struct ps_range_request *request = (struct ps_range_request *)get;
	struct ps_fill *fill = request->file->fill;
	struct ps_error ended = *err;
	struct ps_outcome outcome;

	struct ps_hedge *hedge = ps_hedge_take(request);
	ps_outcome_init(&outcome);
	if (get->nbytes_done > 0)
		ps_range_request_check_version(request);
	if (request->other_version)
		ps_error_set(&ended, ESTALE, "%s: the origin has another version", get->url);
	else
		ps_range_request_advance(request, request->base + get->nbytes_done, &outcome);
	/* A complete hedge has cancelled the request; that holds even if the request itself received the
	 * hedged bytes meanwhile. */
	bool hedged = hedge;
	if (hedge)
		ps_hedge_use(hedge, request, &outcome);
	(void)carry_out(request->file, &outcome);
	ps_range_request_count_bytes(request, get->wire_nbytes);
	/* A decompressing origin's latency is not counted: that of its own requests to the base origin is. */
	if (!request->file->origin->base)
		ps_fill_count_answer(fill, get->first_byte_ns);
	if (request->filled == request->nbytes) {
		/* All bytes have arrived, and may be in use already: a cancel, a stall or an excess byte
		 * after them does not matter. */
		ended = (struct ps_error){0};
	} else if (!ended.err) {
		ps_error_set(&ended, EPROTO, "the origin ended %zu bytes early",
		        request->nbytes - request->filled);
		ended.retryable = true;
	}
	bool draining = take_off(request, ended.err);
	bool gives_way = (request->preempted || hedged) && ended.err == ECANCELED && !draining;
	ps_outcome_init(&outcome);
	/* False: the request is queued for a retry, and another thread may be using it already. */
	if (ps_range_request_end(request, &ended, gives_way, &outcome)) {
		(void)carry_out(request->file, &outcome);
		ps_range_request_free(request);
	}
	ps_fill_pump(fill);
	end_callback(fill);
}

static void on_hedge_done(struct ps_origin_get *get, const struct ps_error *err)
{
	struct ps_fill *fill = ps_hedge_end(get, err);

	ps_fill_pump(fill);
	end_callback(fill);
}

/* Readers ------------------------------------------------------------------------------------------------ */

bool ps_fill_read(struct ps_fill_file *file, struct ps_read *read)
{
	struct ps_outcome outcome;

	ps_outcome_init(&outcome);
	bool waits = ps_waiters_join(file, read, &outcome);
	/* From here on the read may be answered and freed; the caller's handle keeps the file. */
	if (carry_out(file, &outcome))
		ps_fill_pump(file->fill);
	return waits;
}

void ps_fill_cancel(struct ps_fill_file *file, struct ps_read *read)
{
	struct ps_fill *fill = file->fill;
	struct ps_outcome outcome;

	ps_outcome_init(&outcome);
	ps_waiters_cancel(file, read, &outcome);
	ps_waiters_answer(fill, &outcome.ready); /* this may free the file, too */
}

void ps_fill_warm(struct ps_fill_file *file)
{
	/* Blocks that came from a tier on this node are only in memory. Now the store must have them: they
	 * are dropped here, and fetched again. */
	if (file->origin->tiers) {
		{
			PS_LOCK_SCOPE(&file->lock);
			file->warmed = true;
		}
		PS_LOCK_SCOPE(&file->fill->lock);
		ps_retained_drop(file->fill, file);
	}
	if (ps_demand_warm(file))
		ps_fill_pump(file->fill);
}

void ps_fill_stored(struct ps_fill *fill, const struct ps_object *object, uint64_t from, uint64_t end)
{
	struct ps_fill_file *files[STORED_MAX_FILES];
	bool demanded = false;
	size_t n = 0;
	{
		PS_LOCK_SCOPE(&fill->lock);
		for (struct ps_fill_file *f = ps_fill_file_first(fill, object); f; f = ps_fill_file_next(f)) {
			if (f->refs == 0 || n == PS_ARRAY_LEN(files))
				continue;
			f->refs++;
			files[n++] = f;
		}
	}
	for (size_t i = 0; i < n; i++) {
		struct ps_outcome outcome;

		ps_outcome_init(&outcome);
		{
			PS_LOCK_SCOPE(&files[i]->lock);
			ps_waiters_look(files[i], from, end, &outcome);
		}
		demanded = carry_out(files[i], &outcome) || demanded;
		ps_fill_file_put(files[i]);
	}
	if (demanded)
		ps_fill_pump(fill);
}

/* The timer ---------------------------------------------------------------------------------------------- */

/* Some of the file's requests may have to be sent again, because their readers wait for long. */
static void hurry(struct ps_fill_file *file, uint64_t now_ns)
{
	uint64_t from, end;

	for (bool more = true; more;) {
		{
			PS_LOCK_SCOPE(&file->lock);
			more = ps_waiters_overdue(file, now_ns, &from, &end);
		}
		if (more)
			ps_range_requests_overdue(file, from, end);
	}
}

/* True: the pump has to start new demands. */
static bool attend(struct ps_fill_file *file, uint64_t now_ns)
{
	bool look = atomic_exchange(&file->look, false), tell;
	struct ps_outcome outcome;
	uint64_t offset;

	ps_outcome_init(&outcome);
	hurry(file, now_ns);
	{
		PS_LOCK_SCOPE(&file->lock);
		tell = ps_waiters_expire(file, now_ns, &outcome, &offset);
		if (look)
			ps_waiters_look(file, 0, UINT64_MAX, &outcome);
		if (!ps_list_empty(&file->waiters))
			(void)ps_fill_file_due(file, ps_waiters_due_ns(file));
	}
	if (tell) {
		char error[PS_ERROR_TEXT_LEN];

		ps_fill_file_error(file, error, sizeof(error));
		ps_fill_note_error(file->fill, error);
		ps_log_warning(
		        "read: %s: offset %" PRIu64 ": %s", ps_object_url(file->object), offset, error);
	}
	return carry_out(file, &outcome);
}

/* Attends to the files with a reader whose time is up, or with `look` set. */
static void attend_to_due(struct ps_fill *fill, uint64_t now_ns)
{
	struct ps_tree_item *first;
	bool demanded = false;
	struct ps_list due;

	if (atomic_load(&fill->due.first_ns) > now_ns)
		return;
	ps_list_init(&due);
	{
		PS_LOCK_SCOPE(&fill->lock);
		PS_LOCK_SCOPE(&fill->due.lock);
		while ((first = ps_tree_first(&fill->due.files)) && first->key <= now_ns) {
			struct ps_fill_file *file = PS_CONTAINER_OF(first, struct ps_fill_file, due);

			ps_tree_remove(&fill->due.files, first);
			if (file->refs == 0)
				continue; /* the file is being freed: it has no handle and no reader */
			file->refs++;
			ps_list_append(&due, &file->due_link);
		}
		atomic_store(&fill->due.first_ns, first ? first->key : UINT64_MAX);
	}
	while (!ps_list_empty(&due)) {
		struct ps_fill_file *file =
		        PS_CONTAINER_OF(ps_list_take(&due), struct ps_fill_file, due_link);
		demanded = attend(file, now_ns) || demanded;
		ps_fill_file_put(file);
	}
	if (demanded)
		ps_fill_pump(fill);
}

/* One round of the timer; *ret_busy: there is traffic. False: the engine stops. */
static bool tick(struct ps_fill *fill, uint64_t now, bool *ret_busy)
{
	unsigned nwaiting;

	ps_waits_ns(&fill->reads.waits, &nwaiting);
	bool busy = nwaiting > 0;

	attend_to_due(fill, now);
	ps_schedule_adapt(fill, now);
	ps_schedule_make_room(fill, now);
	if (busy)
		ps_hedge_look(fill, now);
	ps_retained_drop_stale(fill, now);
	/* Writing held blocks again does not count as traffic. */
	bool retried = ps_retained_retry_held(fill, now);
	if (retried)
		ps_demand_drop(fill, NULL);
	uint64_t due = start_retries(fill);
	PS_LOCK_SCOPE(&fill->lock);
	if (fill->stopping)
		return false;
	busy = busy || fill->active || (!retried && (fill->disk.nbusy || !ps_list_empty(&fill->disk.queue)));
	uint64_t wake = PS_MIN(now + (busy ? TIMER_BUSY_NS : TIMER_IDLE_NS), due);

	if (!busy)
		wake = PS_MIN(wake, atomic_load(&fill->due.first_ns));
	if (fill->paced)
		wake = PS_MIN(wake, fill->next_start_ns);
	fill->paced = false;
	if (wake > now)
		ps_cond_wait_until(&fill->timer_cond, &fill->lock, wake);
	*ret_busy = busy;
	return true;
}

static void *timer_main(void *arg)
{
	struct ps_fill *fill = arg;
	uint64_t busy_ns = ps_clock_mono_ns(), now = busy_ns;

	for (bool busy = false; tick(fill, now, &busy); now = ps_clock_mono_ns()) {
		ps_fill_pump(fill); /* the bandwidth limit may allow more by now */
		if (!busy && now - busy_ns <= TRIM_AFTER_NS)
			continue;
		busy_ns = now;
		if (busy)
			continue;
		/* Gives memory back to the system, also that of held and retained blocks: a reader that
		 * needs a held block later demands it again. */
		ps_retained_drop_held(fill, NULL);
		{
			PS_LOCK_SCOPE(&fill->lock);
			ps_retained_drop(fill, NULL);
		}
		ps_budget_trim(fill->budget);
	}
	return NULL;
}

/* Disk threads ------------------------------------------------------------------------------------------- */

static void *disk_main(void *arg)
{
	struct ps_fill *fill = arg;
	void *scratch = NULL;

	{
		PS_LOCK_SCOPE(&fill->lock);
		for (unsigned i = 0; i < PS_DISK_THREADS && !scratch; i++)
			scratch = ps_steal_ptr(&fill->disk.scratch[i]);
	}
	for (struct ps_block_buffer *buffer; (buffer = ps_writeback_next(fill));) {
		struct ps_outcome outcome;

		ps_outcome_init(&outcome);
		struct ps_fill_file *file = ps_writeback_do(fill, buffer, scratch, &outcome);
		if (file) {
			(void)carry_out(file, &outcome);
			ps_fill_file_put(file);
		}
		ps_fill_pump(fill); /* a buffer may be free now */
	}
	free(scratch);
	return NULL;
}

static int start_threads(struct ps_fill *fill)
{
	for (; fill->disk.nthreads < PS_DISK_THREADS; fill->disk.nthreads++) {
		void **scratch = &fill->disk.scratch[fill->disk.nthreads];

		if (posix_memalign(scratch, 4096, PS_BLOCK_SIZE) != 0)
			return -ENOMEM;
		int rc = ps_thread_start(
		        &fill->disk.threads[fill->disk.nthreads], "fill-disk", disk_main, fill);
		if (rc < 0) {
			free(ps_steal_ptr(scratch));
			return rc;
		}
	}
	int rc = ps_thread_start(&fill->timer_thread, "fill-timer", timer_main, fill);
	fill->timer_started = rc == 0;
	return rc;
}

/* Beginning and end -------------------------------------------------------------------------------------- */

int ps_fill_new(const struct ps_fill_options *options, struct ps_fill **ret)
{
	struct ps_fill *fill = calloc(1, sizeof(*fill));

	if (!fill)
		return -ENOMEM;
	fill->budget =
	        ps_budget_new(options->memory_bytes ? options->memory_bytes : ps_budget_default_bytes());
	ps_concurrency_init(&fill->concurrency,
	        options->max_connections ? options->max_connections : PS_FILL_CONNECTIONS);
	atomic_init(&fill->connections, fill->concurrency.limit);
	atomic_init(&fill->due.first_ns, UINT64_MAX);
	fill->events = (struct ps_fill_events){
	        .progress = on_progress, .done = on_done, .hedge_done = on_hedge_done};
	fill->max_bytes_per_s = options->max_bytes_per_s;
	fill->timeout_ns = (options->timeout_ms ? options->timeout_ms : PS_FILL_TIMEOUT_MS) * PS_NS_PER_MS;
	struct ps_list *lists[] = {&fill->running, &fill->parked.read, &fill->hedge.running,
	        &fill->hedge.tails, &fill->disk.queue, &fill->parked.retained, &fill->parked.held};
	for (size_t i = 0; i < PS_ARRAY_LEN(lists); i++)
		ps_list_init(lists[i]);
	pthread_mutex_init(&fill->lock, NULL);
	pthread_mutex_init(&fill->due.lock, NULL);
	pthread_mutex_init(&fill->parked.read_lock, NULL);
	ps_read_stats_init(&fill->reads);
	ps_cond_init(&fill->disk.wake);
	ps_cond_init(&fill->timer_cond);
	ps_cond_init(&fill->files_cond);

	int rc = fill->budget ? start_threads(fill) : -ENOMEM;
	if (rc < 0) {
		ps_fill_free(fill);
		return rc;
	}
	*ret = fill;
	return 0;
}

void ps_fill_free(struct ps_fill *fill)
{
	if (!fill)
		return;
	{
		PS_LOCK_SCOPE(&fill->lock);
		fill->stopping = true;
		pthread_cond_broadcast(&fill->disk.wake);
		pthread_cond_broadcast(&fill->timer_cond);
	}
	/* The disk threads write the queued blocks before they end. */
	for (unsigned i = 0; i < fill->disk.nthreads; i++)
		pthread_join(fill->disk.threads[i], NULL);
	if (fill->timer_started)
		pthread_join(fill->timer_thread, NULL);
	ps_hedge_forget(fill, NULL);
	pthread_cond_destroy(&fill->disk.wake);
	pthread_cond_destroy(&fill->timer_cond);
	pthread_cond_destroy(&fill->files_cond);
	ps_read_stats_fini(&fill->reads);
	pthread_mutex_destroy(&fill->lock);
	pthread_mutex_destroy(&fill->due.lock);
	pthread_mutex_destroy(&fill->parked.read_lock);
	ps_budget_free(fill->budget);
	free(fill);
}

uint64_t ps_fill_timeout_ns(const struct ps_fill *fill)
{
	return fill->timeout_ns;
}

bool ps_fill_is_far(const struct ps_fill *fill)
{
	return atomic_load(&fill->far);
}

unsigned ps_fill_max_connections(const struct ps_fill *fill)
{
	return fill->concurrency.max;
}

uint64_t ps_fill_memory_bytes(const struct ps_fill *fill)
{
	return ps_budget_limit_bytes(fill->budget);
}

void ps_fill_give_up_memory(struct ps_fill *fill, uint64_t nbytes)
{
	ps_budget_give_up(fill->budget, nbytes);
}

json_t *ps_fill_memory_stats(struct ps_fill *fill)
{
	return ps_budget_stats(fill->budget);
}

/* Ends the requests of this origin: those that wait for another attempt fail, the others are cancelled. */
static void cancel_all(struct ps_fill *fill, struct ps_origin *origin)
{
	const struct ps_error cancelled = {.err = ECANCELED, .text = "cancelled"};
	struct ps_list ended;

	ps_list_init(&ended);
	{
		PS_LOCK_SCOPE(&fill->lock);
		for (struct ps_tree_item *i = ps_tree_first(&fill->retries), *next; i; i = next) {
			struct ps_range_request *request = PS_CONTAINER_OF(i, struct ps_range_request, retry);

			next = ps_tree_next(i);
			if (!ps_origin_is(request->file->origin, origin))
				continue;
			ps_tree_remove(&fill->retries, i);
			ps_list_append(&ended, &request->link);
		}
		/* cancel() neither blocks nor calls back from here. A request cannot end meanwhile, because
		 * on_done() needs the lock that is held. */
		ps_hedge_cancel_all(fill, origin);
		PS_LIST_EACH (struct ps_range_request, request, &fill->running, link) {
			if (ps_origin_is(request->file->origin, origin))
				request->file->origin->ops->cancel(request->file->origin, &request->get);
		}
	}
	while (!ps_list_empty(&ended)) {
		struct ps_range_request *request = PS_CONTAINER_OF(ended.next, struct ps_range_request, link);
		struct ps_outcome outcome;

		ps_list_remove(&request->link);
		ps_outcome_init(&outcome);
		ps_range_request_fail(request, &cancelled, &outcome);
		(void)carry_out(request->file, &outcome);
		ps_range_request_free(request);
	}
}

void ps_fill_drain(struct ps_fill *fill, struct ps_origin *origin)
{
	struct ps_outcome outcome;

	ps_outcome_init(&outcome);
	{
		PS_LOCK_SCOPE(&fill->lock);
		for (struct ps_tree_item *i = ps_tree_first(&fill->files); i; i = ps_tree_next(i)) {
			struct ps_fill_file *file = PS_CONTAINER_OF(i, struct ps_fill_file, place);

			if (!ps_origin_is(file->origin, origin))
				continue;
			file->draining = true;
			PS_LOCK_SCOPE(&file->lock);
			ps_waiters_cancel_all(file, &outcome);
		}
	}
	ps_waiters_answer(fill, &outcome.ready);
	ps_demand_drop(fill, origin);
	for (;;) {
		/* Cancelling is repeated until no request is left, because it has no effect on a request
		 * that was claimed but not submitted yet. */
		cancel_all(fill, origin);
		ps_retained_drop_held(fill, origin);
		PS_LOCK_SCOPE(&fill->lock);
		bool left = fill->nending > 0;
		for (struct ps_tree_item *i = ps_tree_first(&fill->files); i && !left; i = ps_tree_next(i))
			left = ps_origin_is(PS_CONTAINER_OF(i, struct ps_fill_file, place)->origin, origin);
		if (!left) {
			ps_hedge_forget(fill, origin);
			return;
		}
		ps_cond_wait_until(&fill->files_cond, &fill->lock, ps_clock_mono_ns() + DRAIN_TICK_NS);
	}
}
