#include "http/http.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <curl/curl.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"

/* An event loop around one curl_multi. It uses epoll, so that idle sockets cost nothing.
 *
 * Ownership: one thread's. Threads: that thread; loop_wake() from any. Locks: none. Blocks: loop_run()
 * only. Errors: -errno. */
struct ps_loop {
	CURLM *multi;
	int epoll, event;
	uint64_t timer_ns; /* when curl wants to be called; UINT64_MAX: never */
};

static int loop_init(struct ps_loop *loop) PS_MUST_USE;
/* All handles must have been removed from the multi. */
static void loop_fini(struct ps_loop *loop);
/* Waits for sockets, curl's timer or a wake until deadline_ns (monotonic; 0: does not wait), then lets curl
 * act. *ret_idle: nothing had happened. -EIO: curl failed; the log has its error. */
static int loop_run(struct ps_loop *loop, uint64_t deadline_ns, bool *ret_idle) PS_MUST_USE;
/* Ends the present wait, or the next one. */
static void loop_wake(struct ps_loop *loop);

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
 * lock; `active`, `later`, `easies` and the loop belong to the thread. */
struct ps_transfer_thread {
	struct ps_transfers *all;
	pthread_t id;
	struct ps_loop loop;
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

/* A transfer has ended: if the limit was reached, threads with queued transfers are woken. Under
 * all->lock. */
static void place_free(struct ps_transfers *all)
{
	if (all->nactive-- != all->max_active)
		return;
	for (unsigned i = 0; i < all->nthreads; i++)
		if (!ps_list_empty(&all->threads[i].queued))
			loop_wake(&all->threads[i].loop);
}

static void finish(struct ps_transfer_thread *th, struct ps_transfer *t, int rc)
{
	struct ps_transfers *all = th->all;
	CURL *easy = t->curl;

	ps_list_remove(&t->link);
	if (easy)
		curl_multi_remove_handle(th->loop.multi, easy);
	ps_list_remove(&t->later);
	bool again = t->ops->end(t, easy, rc);

	easy_give(th, easy);
	t->curl = NULL;
	{
		PS_LOCK_SCOPE(&all->lock);
		place_free(all);
		if (again) {
			ps_list_append(&th->queued, &t->link);
		} else {
			t->busy = false;
			th->nbusy--;
		}
	}
	if (again)
		loop_wake(&th->loop); /* the queue is looked at in the next round */
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
	if (!rc && curl_multi_add_handle(th->loop.multi, t->curl) != CURLM_OK)
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

static void end_finished(struct ps_transfer_thread *th)
{
	CURLMsg *msg;
	int left;

	while ((msg = curl_multi_info_read(th->loop.multi, &left))) {
		void *t = NULL;
		CURLcode rc = msg->data.result;

		if (msg->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, &t);
		finish(th, t, (int)rc);
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

	while (take_orders(th)) {
		/* While transfers are to be flushed, the loop does not wait. */
		uint64_t sleep_ms = ps_list_empty(&th->active) ? IDLE_POLL_MS : TICK_MS;
		uint64_t deadline =
		        ps_list_empty(&th->later) ? ps_clock_mono_ns() + sleep_ms * PS_NS_PER_MS : 0;
		bool idle = true;

		if (loop_run(&th->loop, deadline, &idle) < 0)
			/* Probably out of memory: pauses; the stall timeout ends transfers that cannot
			 * continue. */
			nanosleep(&(struct timespec){.tv_nsec = (long)(TICK_MS * PS_NS_PER_MS)}, NULL);
		if (idle || ++th->nrounds >= PS_TRANSFER_ROUNDS)
			flush(th);
		end_finished(th);
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
	int rc = loop_init(&th->loop);
	if (rc)
		return rc;
	curl_multi_setopt(th->loop.multi, CURLMOPT_MAXCONNECTS,
	        (long)(all->max_active ? PS_MAX(all->max_active / all->max_threads, 1u) : KEPT_CONNECTIONS));
	curl_multi_setopt(th->loop.multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
	ps_list_init(&th->queued);
	ps_list_init(&th->active);
	ps_list_init(&th->later);
	rc = ps_thread_start(&th->id, name, thread_main, th);
	if (rc < 0) {
		loop_fini(&th->loop);
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
	struct ps_loop *loop;

	t->curl = NULL;
	{
		/* `cancelled` is reset under the lock. So a cancel from another thread that comes before
		 * this has no effect, and there is no data race. */
		PS_LOCK_SCOPE(&all->lock);
		struct ps_transfer_thread *th = thread_choose(all);

		t->thread = th;
		t->busy = true;
		t->cancelled = false;
		th->nbusy++;
		th->most_busy = PS_MAX(th->most_busy, th->nbusy);
		ps_list_init(&t->link);
		ps_list_append(&th->queued, &t->link);
		loop = &th->loop;
	}
	loop_wake(loop);
}

void ps_transfer_cancel(struct ps_transfers *all, struct ps_transfer *t)
{
	struct ps_loop *loop;

	{
		PS_LOCK_SCOPE(&all->lock);
		if (!t->busy)
			return;
		t->cancelled = true;
		t->thread->any_cancelled = true;
		loop = &t->thread->loop;
	}
	loop_wake(loop);
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
		return ps_error_set(err, ENOMEM, "out of memory");
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
		loop_wake(&all->threads[i].loop);
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
		loop_fini(&all->threads[i].loop);
	pthread_mutex_destroy(&all->lock);
	free(all);
}

/* The loop of one thread --------------------------------------------------------------------------------- */

#define EVENTS 64

/* Curl names the events of a socket that it waits for. Level-triggered: bytes that a read leaves are
 * reported again. */
static int on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *known)
{
	struct ps_loop *loop = arg;
	struct epoll_event ev = {.data.fd = fd};

	(void)easy;
	if (what == CURL_POLL_REMOVE) {
		(void)epoll_ctl(loop->epoll, EPOLL_CTL_DEL, fd, NULL);
		return 0;
	}
	if (what & CURL_POLL_IN)
		ev.events |= EPOLLIN;
	if (what & CURL_POLL_OUT)
		ev.events |= EPOLLOUT;
	if (epoll_ctl(loop->epoll, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &ev) < 0 &&
	        epoll_ctl(loop->epoll, known ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &ev) < 0)
		ps_log_warning("transfer: epoll: %s", strerror(errno));
	curl_multi_assign(loop->multi, fd, loop); /* any pointer: the next call gets it as `known` */
	return 0;
}

static int on_timer(CURLM *multi, long timeout_ms, void *arg)
{
	struct ps_loop *loop = arg;

	(void)multi;
	loop->timer_ns =
	        timeout_ms < 0 ? UINT64_MAX : ps_clock_mono_ns() + (uint64_t)timeout_ms * PS_NS_PER_MS;
	return 0;
}

static int loop_init(struct ps_loop *loop)
{
	struct epoll_event ev = {.events = EPOLLIN};

	*loop = (struct ps_loop){.epoll = -1, .event = -1, .timer_ns = UINT64_MAX};
	loop->multi = curl_multi_init();
	loop->epoll = epoll_create1(EPOLL_CLOEXEC);
	loop->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	ev.data.fd = loop->event;
	int rc = !loop->multi ? -ENOMEM : loop->epoll < 0 || loop->event < 0 ? -errno : 0;
	if (!rc && epoll_ctl(loop->epoll, EPOLL_CTL_ADD, loop->event, &ev) < 0)
		rc = -errno;
	if (rc) {
		loop_fini(loop);
		return rc;
	}
	curl_multi_setopt(loop->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
	curl_multi_setopt(loop->multi, CURLMOPT_SOCKETDATA, loop);
	curl_multi_setopt(loop->multi, CURLMOPT_TIMERFUNCTION, on_timer);
	curl_multi_setopt(loop->multi, CURLMOPT_TIMERDATA, loop);
	return 0;
}

static void loop_fini(struct ps_loop *loop)
{
	curl_multi_cleanup(loop->multi); /* closes connections, which calls on_socket() */
	if (loop->epoll >= 0)
		close(loop->epoll);
	if (loop->event >= 0)
		close(loop->event);
}

static int act(struct ps_loop *loop, curl_socket_t fd, int what)
{
	int running;
	CURLMcode mc = curl_multi_socket_action(loop->multi, fd, what, &running);

	if (mc == CURLM_OK)
		return 0;
	ps_log_warning("transfer: %s", curl_multi_strerror(mc));
	return -EIO;
}

static int take_event(struct ps_loop *loop, const struct epoll_event *ev)
{
	uint64_t count;
	int what = 0;

	if (ev->data.fd == loop->event)
		return read(loop->event, &count, sizeof(count)) < 0 && errno != EAGAIN ? -errno : 0;
	if (ev->events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		what |= CURL_CSELECT_IN;
	if (ev->events & EPOLLOUT)
		what |= CURL_CSELECT_OUT;
	if (ev->events & EPOLLERR)
		what |= CURL_CSELECT_ERR;
	return act(loop, ev->data.fd, what);
}

static int loop_run(struct ps_loop *loop, uint64_t deadline_ns, bool *ret_idle)
{
	struct epoll_event events[EVENTS];
	uint64_t now = ps_clock_mono_ns(),
	         until = deadline_ns < loop->timer_ns ? deadline_ns : loop->timer_ns;
	uint64_t wait_ms = until > now ? (until - now + PS_NS_PER_MS - 1) / PS_NS_PER_MS : 0;
	int n = epoll_wait(loop->epoll, events, EVENTS, wait_ms > INT_MAX ? INT_MAX : (int)wait_ms);
	int rc = n < 0 && errno != EINTR ? -errno : 0;

	*ret_idle = n <= 0;
	for (int i = 0; i < n && !rc; i++)
		rc = take_event(loop, &events[i]);
	if (!rc && loop->timer_ns <= ps_clock_mono_ns()) {
		loop->timer_ns = UINT64_MAX; /* one-shot; curl may set it again within act() */
		rc = act(loop, CURL_SOCKET_TIMEOUT, 0);
		*ret_idle = false;
	}
	return rc;
}

static void loop_wake(struct ps_loop *loop)
{
	uint64_t one = 1;

	if (write(loop->event, &one, sizeof(one)) < 0 && errno != EAGAIN)
		ps_log_warning("transfer: cannot wake a thread: %s", strerror(errno));
}
