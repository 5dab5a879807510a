#include "fault_origin.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/list.h"

#define LOOK_MS 2

/* A get that waits until it is due and then runs as a get of the inner origin. The end of the inner get
 * calls the outer get's done(). */
struct job {
	struct ps_list link;
	struct ps_fault_impl *impl;
	struct ps_origin_get *outer;
	struct ps_origin_get inner;
	uint64_t due_ns;
	/* taken: the thread runs it; running: the inner get can be cancelled */
	bool fails, cancelled, taken, running;
};

/* `lock` guards jobs, their flags, aborted and stop. */
struct ps_fault_impl {
	struct ps_fault_origin *origin;
	struct ps_origin *inner;
	pthread_mutex_t lock;
	struct ps_list jobs;
	bool aborted, stop;
	pthread_t thread;
};

static struct ps_fault_impl *impl_of(struct ps_origin *o)
{
	return ((struct ps_fault_origin *)o)->impl;
}

static void end_job(struct job *job, const struct ps_error *err)
{
	struct ps_origin_get *outer = job->outer;

	{
		PS_LOCK_SCOPE(&job->impl->lock);
		ps_list_remove(&job->link);
	}
	outer->nbytes_done = job->inner.nbytes_done;
	outer->wire_nbytes = job->inner.wire_nbytes;
	outer->first_byte_ns = job->inner.first_byte_ns;
	outer->seen = job->inner.seen;
	free(job);
	outer->done(outer, err);
}

static void inner_progress(struct ps_origin_get *inner, size_t n)
{
	struct job *job = PS_CONTAINER_OF(inner, struct job, inner);

	job->outer->nbytes_done = n;
	if (job->outer->progress)
		job->outer->progress(job->outer, n);
}

static void inner_done(struct ps_origin_get *inner, const struct ps_error *err)
{
	end_job(PS_CONTAINER_OF(inner, struct job, inner), err);
}

/* Called after the inner get was submitted: marks the job as running, unless it has ended already. If it was
 * cancelled meanwhile, cancels the inner get. */
static void note_running(struct ps_fault_impl *impl, struct job *job)
{
	PS_LOCK_SCOPE(&impl->lock);
	for (struct ps_list *l = impl->jobs.next; l != &impl->jobs; l = l->next) {
		/* A later job may have the address of a job that has ended. It is not taken yet. */
		if (l != &job->link || !job->taken)
			continue;
		job->running = true;
		if (job->cancelled)
			impl->inner->ops->cancel(impl->inner, &job->inner);
	}
}

static void run(struct ps_fault_impl *impl, struct job *job, bool cancelled)
{
	struct ps_fault_origin *o = impl->origin;
	struct ps_error err = {0};

	if (cancelled) {
		ps_error_set(&err, ECANCELED, "cancelled");
	} else if (job->fails) {
		ps_error_set(&err, atomic_load(&o->fail_errno), "as the test wants");
		err.retryable = atomic_load(&o->fail_retryable);
	} else if (atomic_load(&o->other_version)) {
		ps_error_set(&err, ESTALE, "as the test wants");
		strcpy(job->inner.seen.etag, "\"another\"");
	}
	if (err.err) {
		end_job(job, &err);
		return;
	}
	impl->inner->ops->get(impl->inner, &job->inner);
	note_running(impl, job);
}

/* Marks the next job that is due as taken, and returns it; NULL: none is due. */
static struct job *next_due(struct ps_fault_impl *impl, bool *ret_cancelled)
{
	bool stalled = atomic_load(&impl->origin->stalled);
	uint64_t now = ps_clock_mono_ns();

	PS_LOCK_SCOPE(&impl->lock);
	for (struct ps_list *l = impl->jobs.next; l != &impl->jobs; l = l->next) {
		struct job *job = PS_CONTAINER_OF(l, struct job, link);
		bool cancelled = job->cancelled || impl->aborted || impl->stop;

		if (job->taken || (!cancelled && (stalled || now < job->due_ns)))
			continue;
		job->taken = true;
		*ret_cancelled = cancelled;
		return job;
	}
	return NULL;
}

static void *thread_main(void *arg)
{
	struct ps_fault_impl *impl = arg;

	for (;;) {
		bool cancelled = false, stop;
		struct job *job;

		while ((job = next_due(impl, &cancelled)))
			run(impl, job, cancelled);
		{
			PS_LOCK_SCOPE(&impl->lock);
			stop = impl->stop && ps_list_empty(&impl->jobs);
		}
		if (stop)
			return NULL;
		nanosleep(&(struct timespec){.tv_nsec = (long)(LOOK_MS * PS_NS_PER_MS)}, NULL);
	}
}

static bool is_chosen(struct ps_fault_origin *o)
{
	unsigned n = atomic_fetch_add(&o->ngets, 1) + 1, every = atomic_load(&o->fail_every);
	unsigned nth = atomic_load(&o->fail_nth);

	while (nth && !atomic_compare_exchange_weak(&o->fail_nth, &nth, nth - 1))
		;
	return nth == 1 || (every && n % every == 0);
}

static void fault_get(struct ps_origin *origin, struct ps_origin_get *get)
{
	struct ps_fault_origin *o = (struct ps_fault_origin *)origin;
	struct ps_fault_impl *impl = o->impl;
	struct job *job = calloc(1, sizeof(*job));

	if (!job)
		abort();
	atomic_fetch_add(&o->nbytes, get->nbytes);
	job->impl = impl;
	job->outer = get;
	job->fails = is_chosen(o);
	job->due_ns = ps_clock_mono_ns() + atomic_load(&o->delay_ms) * PS_NS_PER_MS;
	job->inner = (struct ps_origin_get){.url = get->url,
	        .expect = get->expect,
	        .offset = get->offset,
	        .nbytes = get->nbytes,
	        .iov = get->iov,
	        .niov = get->niov,
	        .progress = inner_progress,
	        .done = inner_done,
	        .seen = PS_REMOTE_UNKNOWN};
	get->nbytes_done = 0;
	PS_LOCK_SCOPE(&impl->lock);
	ps_list_append(&impl->jobs, &job->link);
}

static void fault_cancel(struct ps_origin *origin, struct ps_origin_get *get)
{
	struct ps_fault_impl *impl = impl_of(origin);

	/* While the lock is held, the job cannot end. The inner cancel makes no callback. */
	PS_LOCK_SCOPE(&impl->lock);
	for (struct ps_list *l = impl->jobs.next; l != &impl->jobs; l = l->next) {
		struct job *job = PS_CONTAINER_OF(l, struct job, link);

		if (job->outer != get)
			continue;
		job->cancelled = true;
		if (job->running)
			impl->inner->ops->cancel(impl->inner, &job->inner);
	}
}

static void fault_head(struct ps_origin *origin, struct ps_origin_head *head)
{
	atomic_fetch_add(&((struct ps_fault_origin *)origin)->nheads, 1);
	impl_of(origin)->inner->ops->head(impl_of(origin)->inner, head);
}

static int fault_list(
        struct ps_origin *origin, ps_list_fn fn, void *arg, const _Atomic bool *stop, struct ps_error *err)
{
	struct ps_origin *inner = impl_of(origin)->inner;

	return inner->ops->list(inner, fn, arg, stop, err);
}

static void fault_abort(struct ps_origin *origin)
{
	struct ps_fault_impl *impl = impl_of(origin);

	{
		PS_LOCK_SCOPE(&impl->lock);
		impl->aborted = true;
	}
	impl->inner->ops->abort(impl->inner);
}

static void fault_close(struct ps_origin *origin)
{
	struct ps_fault_impl *impl = impl_of(origin);

	fault_abort(origin);
	{
		PS_LOCK_SCOPE(&impl->lock);
		impl->stop = true;
	}
	pthread_join(impl->thread, NULL);
	impl->inner->ops->close(impl->inner);
	pthread_mutex_destroy(&impl->lock);
	free(impl);
	free(origin);
}

static const struct ps_origin_ops fault_ops = {
        .name = "fault",
        .list = fault_list,
        .head = fault_head,
        .get = fault_get,
        .cancel = fault_cancel,
        .abort = fault_abort,
        .close = fault_close,
};

struct ps_fault_origin *ps_fault_origin_new(struct ps_origin *inner)
{
	struct ps_fault_origin *o = calloc(1, sizeof(*o));
	struct ps_fault_impl *impl = calloc(1, sizeof(*impl));

	if (!o || !impl)
		abort();
	o->origin.ops = &fault_ops;
	o->impl = impl;
	atomic_store(&o->fail_errno, EIO);
	atomic_store(&o->fail_retryable, true);
	impl->origin = o;
	impl->inner = inner;
	pthread_mutex_init(&impl->lock, NULL);
	ps_list_init(&impl->jobs);
	if (pthread_create(&impl->thread, NULL, thread_main, impl))
		abort();
	return o;
}
