#include "fuse/requests_in_flight.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "fuse/requester.h"

#define LOOK_AGAIN_NS (200 * PS_NS_PER_MS)

/* The inflight for which this thread calls cancel_fn, with the inflight's lock held. cancel_fn may call back
 * into this file. */
static __thread struct ps_inflight *held;

void ps_inflight_table_init(struct ps_inflight_table *table)
{
	*table = (struct ps_inflight_table){0};
	pthread_mutex_init(&table->lock, NULL);
	ps_list_init(&table->list);
	ps_list_init(&table->news);
	ps_list_init(&table->watched);
	ps_worker_init(&table->watcher);
	atomic_init(&table->outstanding, 0);
	atomic_init(&table->cancellable, 0);
}

void ps_inflight_table_fini(struct ps_inflight_table *table)
{
	ps_worker_fini(&table->watcher);
	pthread_mutex_destroy(&table->lock);
}

void *ps_inflight_new(size_t nbytes, struct ps_inflight_table *table, fuse_req_t req,
        void (*cancel_fn)(struct ps_inflight *inflight))
{
	struct ps_inflight *p = malloc(nbytes);

	if (!p) {
		fuse_reply_err(req, ENOMEM);
		return NULL;
	}
	*p = (struct ps_inflight){
	        .table = table, .req = req, .tid = fuse_req_ctx(req)->pid, .cancel_fn = cancel_fn};
	ps_list_init(&p->link);
	ps_list_init(&p->watch_link);
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->was_armed, NULL);
	atomic_init(&p->refs, 2);
	atomic_fetch_add(&table->outstanding, 1);
	if (cancel_fn)
		atomic_fetch_add(&table->cancellable, 1);
	return p;
}

static void unref(struct ps_inflight *p)
{
	if (atomic_fetch_sub(&p->refs, 1) > 1)
		return;
	struct ps_inflight_table *table = p->table;
	bool cancellable = p->cancel_fn;
	pthread_mutex_destroy(&p->lock);
	pthread_cond_destroy(&p->was_armed);
	free(p);
	if (cancellable)
		atomic_fetch_sub(&table->cancellable, 1);
	/* Last: the thread that drains the table may free everything around us after this. */
	atomic_fetch_sub(&table->outstanding, 1);
}

/* Called by libfuse, once, with the request's lock held: by the thread that received the kernel's INTERRUPT, or
 * from inside arming if the INTERRUPT came first. p is alive until this returns: the thread that answers
 * disarms first, and so waits for this function. */
static void interrupted(fuse_req_t req, void *arg)
{
	struct ps_inflight *p = arg;
	struct ps_inflight_table *table = p->table;

	(void)req;
	PS_LOCK_SCOPE(&table->lock);
	p->interrupted = true;
	ps_list_remove(&p->watch_link);
	ps_list_append(&table->news, &p->watch_link);
	pthread_cond_signal(&table->watcher.wake);
}

/* Adds p to the table and makes claims wait until p is armed; false: p is answered already. */
static bool begin_arming(struct ps_inflight *p)
{
	PS_LOCK_SCOPE(&p->lock);
	if (p->answered)
		return false;
	p->arming = true;
	PS_LOCK_SCOPE(&p->table->lock);
	ps_list_append(&p->table->list, &p->link);
	if (p->silent) {
		if (p->table->watcher_idles)
			pthread_cond_signal(&p->table->watcher.wake);
		ps_list_append(&p->table->watched, &p->watch_link);
	}
	return true;
}

static void end_arming(struct ps_inflight *p, bool armed)
{
	PS_LOCK_SCOPE(&p->lock);
	p->arming = false;
	p->armed = armed;
	pthread_cond_broadcast(&p->was_armed);
}

void ps_inflight_issued(struct ps_inflight *p)
{
	if (begin_arming(p)) {
		fuse_req_interrupt_func(p->req, interrupted, p);
		end_arming(p, true);
	}
	unref(p);
}

bool ps_inflight_claim(struct ps_inflight *p)
{
	bool inside = held == p;

	if (!inside) {
		pthread_mutex_lock(&p->lock);
		while (p->arming) /* short: only libfuse's setter runs meanwhile */
			pthread_cond_wait(&p->was_armed, &p->lock);
	}
	bool first = !p->answered, armed = p->armed;
	p->answered = true;
	if (!inside)
		pthread_mutex_unlock(&p->lock);
	/* Disarming waits for an interrupt function that runs now. A thread that cancels has disarmed, or no
	 * interrupt can come any more. */
	if (first && armed && !inside)
		fuse_req_interrupt_func(p->req, NULL, NULL);
	return first;
}

void ps_inflight_put(struct ps_inflight *p)
{
	pthread_mutex_lock(&p->table->lock);
	ps_list_remove(&p->link);
	ps_list_remove(&p->watch_link);
	pthread_mutex_unlock(&p->table->lock);
	unref(p);
}

/* Calls the cancel function, unless the request is answered. The caller holds the lock and a reference of its
 * own. A callback from inside cancel_fn answers without disarming. */
static void cancel_locked(struct ps_inflight *p)
{
	if (p->answered || !p->cancel_fn)
		return;
	held = p;
	p->cancel_fn(p);
	held = NULL;
}

void ps_inflight_cancel_all(struct ps_inflight_table *table)
{
	for (;;) {
		pthread_mutex_lock(&table->lock);
		if (ps_list_empty(&table->list)) {
			pthread_mutex_unlock(&table->lock);
			return;
		}
		struct ps_inflight *p = PS_CONTAINER_OF(table->list.next, struct ps_inflight, link);
		ps_list_remove(&p->link);
		atomic_fetch_add(&p->refs, 1);
		pthread_mutex_unlock(&table->lock);
		pthread_mutex_lock(&p->lock);
		cancel_locked(p);
		pthread_mutex_unlock(&p->lock);
		unref(p);
	}
}

bool ps_inflight_drain(struct ps_inflight_table *table, bool cancellable, unsigned timeout_ms)
{
	uint64_t deadline_ns = ps_clock_mono_ns() + timeout_ms * PS_NS_PER_MS;

	while (atomic_load(cancellable ? &table->cancellable : &table->outstanding) > 0) {
		if (ps_clock_mono_ns() >= deadline_ns)
			return false;
		poll(NULL, 0, 2);
	}
	return true;
}

/* The watcher -------------------------------------------------------------------------------------------- */

/* Ends a request whose process ends. The caller has its own reference. */
static void end(struct ps_inflight *p)
{
	{
		PS_LOCK_SCOPE(&p->lock);
		while (p->arming) /* short: only libfuse's setter runs meanwhile */
			pthread_cond_wait(&p->was_armed, &p->lock);
		if (p->answered)
			return;
		p->arming = true; /* no other thread answers while this one disarms */
	}
	fuse_req_interrupt_func(p->req, NULL, NULL);
	end_arming(p, false);
	pthread_mutex_lock(&p->lock);
	cancel_locked(p);
	bool answer = !p->cancel_fn && !p->answered;
	p->answered |= answer;
	pthread_mutex_unlock(&p->lock);
	if (answer)
		fuse_reply_err(p->req, EINTR);
}

/* Looks at the first of the news. The table's lock is held, and dropped meanwhile. */
static void look_at_next(struct ps_inflight_table *table)
{
	struct ps_inflight *p = PS_CONTAINER_OF(table->news.next, struct ps_inflight, watch_link);
	bool interrupted = p->interrupted, waited = p->waited;

	ps_list_remove(&p->watch_link);
	ps_list_append(&table->watched, &p->watch_link);
	p->waited = true;
	if (!interrupted && !waited)
		return;
	atomic_fetch_add(&p->refs, 1);
	pthread_mutex_unlock(&table->lock);
	enum ps_requester requester = ps_requester_of(p->tid);
	if (requester == PS_REQUESTER_ENDS || (requester == PS_REQUESTER_UNKNOWN && interrupted))
		end(p);
	unref(p);
	pthread_mutex_lock(&table->lock);
}

static void *watcher_main(void *arg)
{
	struct ps_inflight_table *table = arg;
	uint64_t again_ns = 0;

	PS_LOCK_SCOPE(&table->lock);
	while (!table->watcher.stopping) {
		uint64_t now_ns = ps_clock_mono_ns();

		if (!ps_list_empty(&table->news)) {
			look_at_next(table);
		} else if (ps_list_empty(&table->watched)) {
			table->watcher_idles = true;
			pthread_cond_wait(&table->watcher.wake, &table->lock);
			table->watcher_idles = false;
		} else if (now_ns < again_ns) {
			ps_cond_wait_until(&table->watcher.wake, &table->lock, again_ns);
		} else {
			again_ns = now_ns + LOOK_AGAIN_NS;
			ps_list_splice(&table->news, &table->watched);
		}
	}
	return NULL;
}

int ps_inflight_watch(struct ps_inflight_table *table)
{
	return ps_worker_start(&table->watcher, "fs-watcher", watcher_main, table);
}

void ps_inflight_unwatch(struct ps_inflight_table *table)
{
	ps_worker_stop(&table->watcher, &table->lock);
}

/* The background thread ---------------------------------------------------------------------------------- */

void ps_background_init(struct ps_background *bg)
{
	*bg = (struct ps_background){0};
	pthread_mutex_init(&bg->lock, NULL);
	ps_list_init(&bg->jobs);
	ps_worker_init(&bg->worker);
}

void ps_background_fini(struct ps_background *bg)
{
	ps_worker_fini(&bg->worker);
	pthread_mutex_destroy(&bg->lock);
}

static void *background_main(void *arg)
{
	struct ps_background *bg = arg;

	PS_LOCK_SCOPE(&bg->lock);
	for (;;) {
		if (!ps_list_empty(&bg->jobs)) {
			struct ps_job *job = PS_CONTAINER_OF(bg->jobs.next, struct ps_job, link);

			ps_list_remove(&job->link);
			pthread_mutex_unlock(&bg->lock);
			job->run(job);
			pthread_mutex_lock(&bg->lock);
		} else if (bg->worker.stopping) {
			return NULL;
		} else {
			pthread_cond_wait(&bg->worker.wake, &bg->lock);
		}
	}
}

int ps_background_start(struct ps_background *bg)
{
	return ps_worker_start(&bg->worker, "fs-background", background_main, bg);
}

void ps_background_stop(struct ps_background *bg)
{
	ps_worker_stop(&bg->worker, &bg->lock);
}

void ps_background_add(struct ps_background *bg, struct ps_job *job)
{
	PS_LOCK_SCOPE(&bg->lock);
	ps_list_append(&bg->jobs, &job->link);
	pthread_cond_signal(&bg->worker.wake);
}
