#include "http/http.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <curl/curl.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"

#define THREAD_MIN 8        /* concurrent transfers that justify one more thread */
#define SPREAD_FROM 4       /* transfers a thread has before the next thread is started */
#define IDLE_EASY_MAX 64    /* CURL handles that each thread keeps for reuse */
#define KEPT_CONNECTIONS 64 /* connections that each thread keeps open if max_active is 0 */
#define TICK_MS 100        /* interval of looking for stalls; a stall is noticed this much too late at most */
#define IDLE_POLL_MS 60000 /* longest wait of a thread without transfers; a wake ends the wait */

/* States of a transfer:
 *   submit → queued → begin → active → (curl is done | cancelled | stalled) → end → done
 *              ↑__________________________________________________________________|  end returned true
 * `queued` and the flags busy, cancelled, any_cancelled, aborted and stop are protected by the engine's
 * lock; `active`, `later`, `easies` and the multi belong to the thread. */
struct ps_transfer_thread {
	struct ps_transfers *all;
	pthread_t id;
	CURLM *multi;
	struct ps_list queued;
	bool any_cancelled;
	/* nbusy: transfers that are queued or active now; most_busy: the largest nbusy so far. Up to
	 * most_busy connections may be open. */
	unsigned nbusy, most_busy;

	struct ps_list active;
	struct ps_list later; /* to be flushed */
	unsigned nrounds;     /* since the last flush */
	CURL *easies[IDLE_EASY_MAX];
	unsigned neasies;
	uint64_t tick_ns;
};

struct ps_transfers {
	pthread_mutex_t lock;
	char name[12];
	bool aborted; /* every transfer is cancelled */
	bool stop;    /* threads end once they have no transfers left */
	unsigned nthreads, max_threads;
	unsigned nactive, max_active; /* begun and not ended, in all threads; 0: no limit */
	struct ps_transfer_thread threads[PS_TRANSFER_MAX_THREADS];
};

/* Ends the thread's present wait, or its next one. From any thread. */
static void wake(const struct ps_transfer_thread *th)
{
	CURLMcode mc = curl_multi_wakeup(th->multi);

	if (mc != CURLM_OK)
		ps_log_warning("transfer: cannot wake a thread: %s", curl_multi_strerror(mc));
}

static CURL *easy_take(struct ps_transfer_thread *th)
{
	CURL *easy = th->neasies ? th->easies[--th->neasies] : curl_easy_init();

	if (!easy)
		return NULL;
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(easy, CURLOPT_TCP_NODELAY, 1L);
	curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
#if LIBCURL_VERSION_NUM >= 0x075700
	/* Without it, removing a transfer whose host name is being resolved would block this thread, and all
	 * of its transfers, until the resolver is done. */
	curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
#endif
	return easy;
}

static void easy_give(struct ps_transfer_thread *th, CURL *easy)
{
	if (!easy)
		return;
	if (th->neasies == IDLE_EASY_MAX) {
		curl_easy_cleanup(easy);
		return;
	}
	curl_easy_reset(easy);
	th->easies[th->neasies++] = easy;
}

static void finish(struct ps_transfer_thread *th, struct ps_transfer *t, int rc)
{
	struct ps_transfers *all = th->all;
	CURL *easy = t->curl;

	ps_list_remove(&t->link);
	if (easy)
		curl_multi_remove_handle(th->multi, easy);
	ps_list_remove(&t->later);
	bool again = t->ops->end && t->ops->end(t, easy, rc);

	easy_give(th, easy);
	t->curl = NULL;
	{
		PS_LOCK_SCOPE(&all->lock);
		/* If the limit was reached, threads with queued transfers are woken. */
		if (all->nactive-- == all->max_active)
			for (unsigned i = 0; i < all->nthreads; i++)
				if (!ps_list_empty(&all->threads[i].queued))
					wake(&all->threads[i]);
		if (again) {
			ps_list_append(&th->queued, &t->link);
		} else {
			t->busy = false;
			th->nbusy--;
		}
	}
	if (again)
		wake(th); /* the queue is looked at in the next round */
	else
		t->ops->done(t);
}

static void start(struct ps_transfer_thread *th, struct ps_transfer *t, bool cancelled)
{
	int rc = cancelled ? -ECANCELED : 0;

	if (!rc) {
		t->curl = easy_take(th);
		rc = t->curl ? 0 : -ENOMEM;
	}
	if (!rc) {
		curl_easy_setopt(t->curl, CURLOPT_PRIVATE, t);
		rc = t->ops->begin(t, t->curl);
	}
	ps_list_append(&th->active, &t->link);
	ps_list_init(&t->later);
	ps_transfer_touch(t);
	if (!rc && curl_multi_add_handle(th->multi, t->curl) != CURLM_OK)
		rc = -ENOMEM;
	if (rc)
		finish(th, t, rc);
}

/* The first queued transfer that may start; one that is cancelled always may. Under all->lock. */
static struct ps_transfer *next_queued(const struct ps_transfer_thread *th, bool aborted)
{
	const struct ps_transfers *all = th->all;
	bool full = all->max_active && all->nactive >= all->max_active && !aborted;

	for (struct ps_list *l = th->queued.next; l != &th->queued; l = l->next) {
		struct ps_transfer *t = PS_CONTAINER_OF(l, struct ps_transfer, link);

		if (!full || t->cancelled || t->beyond)
			return t;
	}
	return NULL;
}

/* Starts queued transfers and ends cancelled ones. False: stopped, and no transfer is left. */
static bool take_orders(struct ps_transfer_thread *th)
{
	struct ps_transfers *all = th->all;
	struct ps_list cancelled;
	struct ps_transfer *t;

	ps_list_init(&cancelled);
	pthread_mutex_lock(&all->lock);
	bool stop = all->stop, aborted = all->aborted;
	if (th->any_cancelled || aborted) {
		for (struct ps_list *l = th->active.next, *next; l != &th->active; l = next) {
			next = l->next;
			t = PS_CONTAINER_OF(l, struct ps_transfer, link);
			if (t->cancelled || aborted) {
				ps_list_remove(l);
				ps_list_append(&cancelled, l);
			}
		}
		th->any_cancelled = false;
	}
	while ((t = next_queued(th, aborted))) {
		bool dead = t->cancelled || aborted;

		ps_list_remove(&t->link);
		all->nactive++;
		pthread_mutex_unlock(&all->lock);
		start(th, t, dead);
		pthread_mutex_lock(&all->lock);
	}
	pthread_mutex_unlock(&all->lock);

	while (!ps_list_empty(&cancelled))
		finish(th, PS_CONTAINER_OF(cancelled.next, struct ps_transfer, link), -ECANCELED);
	if (!stop)
		return true;
	PS_LOCK_SCOPE(&all->lock);
	return th->nbusy > 0;
}

static void end_late(struct ps_transfer_thread *th)
{
	uint64_t now = ps_clock_mono_ns();

	if (now < th->tick_ns)
		return;
	th->tick_ns = now + TICK_MS * PS_NS_PER_MS;
	for (struct ps_list *l = th->active.next, *next; l != &th->active; l = next) {
		struct ps_transfer *t = PS_CONTAINER_OF(l, struct ps_transfer, link);

		next = l->next;
		bool stalls = t->stall_ns && now - t->touched_ns > t->stall_ns &&
		              (!t->ops->stalled || t->ops->stalled(t));
		if (stalls || (t->ops->slow && t->ops->slow(t, now)))
			finish(th, t, -ETIMEDOUT);
	}
}

static void flush(struct ps_transfer_thread *th)
{
	th->nrounds = 0;
	while (!ps_list_empty(&th->later)) {
		struct ps_transfer *t = PS_CONTAINER_OF(th->later.next, struct ps_transfer, later);

		ps_list_remove(&t->later);
		t->ops->flush(t);
	}
}

void ps_transfer_later(struct ps_transfer *t)
{
	if (ps_list_empty(&t->later))
		ps_list_append(&t->thread->later, &t->later);
}

static void *thread_main(void *arg)
{
	struct ps_transfer_thread *th = arg;
	int nready = 0, nrunning, left;

	while (take_orders(th)) {
		/* While transfers are to be flushed, the thread does not wait. */
		uint64_t wait_ms = !ps_list_empty(&th->later)   ? 0
		                   : ps_list_empty(&th->active) ? IDLE_POLL_MS
		                                                : TICK_MS;
		/* Waits for sockets, curl's timers or a wake, then lets curl act, which asks the kernel about each
		 * transfer's socket. When nothing has come since bytes were taken, they are flushed first. */
		CURLMcode mc = curl_multi_poll(th->multi, NULL, 0, (int)wait_ms, &nready);
		if (mc == CURLM_OK && (nready > 0 || wait_ms > 0))
			mc = curl_multi_perform(th->multi, &nrunning);
		if (mc != CURLM_OK) {
			/* Probably out of memory: pauses; the stall timeout ends transfers that cannot continue. */
			ps_log_warning("transfer: %s", curl_multi_strerror(mc));
			nanosleep(&(struct timespec){.tv_nsec = (long)(TICK_MS * PS_NS_PER_MS)}, NULL);
		}
		if (mc != CURLM_OK || nready == 0 || ++th->nrounds >= PS_TRANSFER_ROUNDS)
			flush(th);
		for (CURLMsg *msg; (msg = curl_multi_info_read(th->multi, &left));) {
			int code = (int)msg->data.result;
			void *t = NULL;

			if (msg->msg != CURLMSG_DONE)
				continue;
			curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, &t);
			finish(th, t, code);
		}
		end_late(th);
	}
	while (th->neasies)
		curl_easy_cleanup(th->easies[--th->neasies]);
	return NULL;
}

/* The functions below need all->lock held ---------------------------------------------------------------- */

static int thread_start(struct ps_transfers *all)
{
	struct ps_transfer_thread *th = &all->threads[all->nthreads];
	char name[16];

	snprintf(name, sizeof(name), "%s-%u", all->name, all->nthreads);
	*th = (struct ps_transfer_thread){.all = all};
	th->multi = curl_multi_init();
	if (!th->multi)
		return -ENOMEM;
	/* Without descriptors left, curl makes a multi whose poll no wake ends. */
	if (curl_multi_wakeup(th->multi) != CURLM_OK) {
		curl_multi_cleanup(th->multi);
		return -EMFILE;
	}
	curl_multi_setopt(th->multi, CURLMOPT_MAXCONNECTS,
	        (long)(all->max_active ? PS_MAX(all->max_active / all->max_threads, 1u) : KEPT_CONNECTIONS));
	curl_multi_setopt(th->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
	ps_list_init(&th->queued);
	ps_list_init(&th->active);
	ps_list_init(&th->later);
	int rc = ps_thread_start(&th->id, name, thread_main, th);
	if (rc < 0) {
		curl_multi_cleanup(th->multi);
		return rc;
	}
	all->nthreads++;
	return 0;
}

/* Prefers a thread with an open connection, which saves a round trip or two and is past its slow start; then
 * the one with fewer transfers. */
static bool better(const struct ps_transfer_thread *a, const struct ps_transfer_thread *b)
{
	bool a_open = a->nbusy < a->most_busy, b_open = b->nbusy < b->most_busy;

	return a_open != b_open ? a_open : a->nbusy < b->nbusy;
}

/* The best thread for another transfer. If all have several, one more is started; a failure to start it is
 * ignored. */
static struct ps_transfer_thread *thread_choose(struct ps_transfers *all)
{
	struct ps_transfer_thread *best = &all->threads[0];

	if (all->stop) {
		/* After the stop only a done() may submit. The thread in which it runs is the only one that
		 * certainly still exists. */
		for (unsigned i = 0; i < all->nthreads; i++)
			if (pthread_equal(all->threads[i].id, pthread_self()))
				return &all->threads[i];
	}
	for (unsigned i = 1; i < all->nthreads; i++)
		if (better(&all->threads[i], best))
			best = &all->threads[i];
	if (best->nbusy >= SPREAD_FROM && all->nthreads < all->max_threads && !thread_start(all))
		best = &all->threads[all->nthreads - 1];
	return best;
}

/* The functions above need all->lock held ---------------------------------------------------------------- */

void ps_transfer_submit(struct ps_transfers *all, struct ps_transfer *t)
{
	struct ps_transfer_thread *th;

	t->curl = NULL;
	{
		/* `cancelled` is reset under the lock. So a cancel from another thread that comes before
		 * this has no effect, and there is no data race. */
		PS_LOCK_SCOPE(&all->lock);
		th = thread_choose(all);
		t->thread = th;
		t->busy = true;
		t->cancelled = false;
		th->nbusy++;
		th->most_busy = PS_MAX(th->most_busy, th->nbusy);
		ps_list_init(&t->link);
		ps_list_append(&th->queued, &t->link);
	}
	wake(th);
}

void ps_transfer_cancel(struct ps_transfers *all, struct ps_transfer *t)
{
	struct ps_transfer_thread *th;

	{
		PS_LOCK_SCOPE(&all->lock);
		if (!t->busy)
			return;
		t->cancelled = true;
		th = t->thread;
		th->any_cancelled = true;
	}
	wake(th);
}

void ps_transfer_touch(struct ps_transfer *t)
{
	t->touched_ns = ps_clock_mono_ns();
}

static void global_init(void)
{
	curl_global_init(CURL_GLOBAL_DEFAULT);
}

int ps_transfers_new(const char *name, unsigned max, struct ps_transfers **ret, struct ps_error *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct ps_transfers *all = calloc(1, sizeof(*all));
	long cores = sysconf(_SC_NPROCESSORS_ONLN);

	if (!all)
		return ps_no_memory(err);
	pthread_once(&once, global_init);
	pthread_mutex_init(&all->lock, NULL);
	snprintf(all->name, sizeof(all->name), "%s", name);
	all->max_active = max;
	all->max_threads = cores < 1 ? 1 : (unsigned)PS_MIN(cores, PS_TRANSFER_MAX_THREADS);
	if (max)
		all->max_threads = PS_MIN(all->max_threads, PS_MAX(max / THREAD_MIN, 1u));

	pthread_mutex_lock(&all->lock);
	int rc = thread_start(all);
	pthread_mutex_unlock(&all->lock);
	if (rc) {
		pthread_mutex_destroy(&all->lock);
		free(all);
		return ps_error_set(err, -rc, "cannot start a thread for transfers: %s", strerror(-rc));
	}
	*ret = all;
	return 0;
}

static void abort_all(struct ps_transfers *all, bool stop)
{
	pthread_mutex_lock(&all->lock);
	all->aborted = true;
	all->stop = all->stop || stop;
	unsigned n = all->nthreads;
	pthread_mutex_unlock(&all->lock);
	for (unsigned i = 0; i < n; i++)
		wake(&all->threads[i]);
}

void ps_transfers_abort(struct ps_transfers *all)
{
	abort_all(all, false);
}

void ps_transfers_free(struct ps_transfers *all)
{
	if (!all)
		return;
	abort_all(all, true);
	unsigned n = all->nthreads; /* no thread is added after stop: only our own threads submit */
	for (unsigned i = 0; i < n; i++)
		pthread_join(all->threads[i].id, NULL);
	/* Not before all threads have ended: until then a done() in one thread may submit to another, which
	 * wakes the other's loop. */
	for (unsigned i = 0; i < n; i++)
		curl_multi_cleanup(all->threads[i].multi);
	pthread_mutex_destroy(&all->lock);
	free(all);
}
