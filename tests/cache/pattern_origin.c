#include "tests/cache/pattern_origin.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/list.h"

#define PIECE (128 * 1024) /* bytes for each progress(), as with curl */

struct job {
	struct ps_list link;
	struct ps_origin_get *get;
	bool cancelled, stalled, held, other;
	size_t at; /* bytes delivered */
};

struct impl {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	struct ps_list jobs;
	bool stop, aborted;
};

static void copy_pattern(const struct ps_origin_get *get, size_t from, size_t to, bool other)
{
	size_t at = 0;

	for (int i = 0; i < get->niov; i++) {
		uint8_t *base = get->iov[i].iov_base;

		size_t len = get->iov[i].iov_len;

		for (size_t k = from > at ? from - at : 0; k < len && at + k < to; k++)
			base[k] = ps_pattern_byte(get->offset + at + k) ^ (other ? 0xff : 0);
		at += len;
	}
}

static void finish(struct ps_pattern_origin *o, struct job *job, size_t done, int errnum, bool retryable)
{
	struct ps_error err = {.err = errnum, .retryable = retryable, .text = "as the test wants"};

	job->get->nbytes_done = done;
	job->get->wire_nbytes = done;
	atomic_fetch_sub(&o->nactive, 1);
	job->get->done(job->get, &err);
	free(job);
}

/* Serves one get. False: it stalls, and the caller puts the job back on the list. */
static bool serve(struct ps_pattern_origin *o, struct impl *impl, struct job *job)
{
	struct ps_origin_get *get = job->get;
	size_t stop = get->nbytes, stall = atomic_load(&o->stall_after);
	bool cancelled;

	const char *version = atomic_load(&o->version);
	get->seen = get->expect;
	if (version || job->other)
		snprintf(get->seen.etag, sizeof(get->seen.etag), "%s", version ? version : "\"other\"");
	{
		PS_LOCK_SCOPE(&impl->lock);
		cancelled = job->cancelled || impl->aborted;
	}
	if (cancelled) {
		finish(o, job, job->at, ECANCELED, false);
		return true;
	}
	if (!job->stalled && !job->held && atomic_load(&o->stall_next) > 0) {
		atomic_fetch_sub(&o->stall_next, 1);
		job->held = true;
	}
	if (job->held)
		return false;
	if (!job->at && !job->other && atomic_load(&o->other_next) > 0)
		job->other = atomic_fetch_sub(&o->other_next, 1) > 0;
	if (job->other)
		memcpy(get->seen.etag, "\"other\"", sizeof "\"other\"");
	bool fail = !job->stalled && atomic_load(&o->fail_next) > 0;
	if (fail) {
		atomic_fetch_sub(&o->fail_next, 1);
		stop = PS_MIN(stop, atomic_load(&o->fail_after));
	}
	const char *only = atomic_load(&o->stall_url);
	const char *prefix = atomic_load(&o->stall_prefix);
	bool stalls = !fail && stall < stop && !atomic_load(&o->released) &&
	              (!only || strcmp(only, get->url) == 0) &&
	              (!prefix || strncmp(prefix, get->url, strlen(prefix)) == 0);
	if (stalls)
		stop = PS_MAX(stall, job->at);
	while (job->at < stop) {
		size_t from = job->at;

		job->at = PS_MIN(from + PIECE, stop);
		copy_pattern(get, from, job->at, job->other);
		get->progress(get, job->at);
	}
	if (stalls) {
		job->stalled = true;
		return false;
	}
	finish(o, job, stop, fail ? atomic_load(&o->fail_errno) : 0, atomic_load(&o->fail_retryable));
	return true;
}

static void *main_loop(void *arg)
{
	struct ps_pattern_origin *o = arg;
	struct impl *impl = o->impl;

	for (;;) {
		struct ps_list batch;

		ps_list_init(&batch);
		{
			PS_LOCK_SCOPE(&impl->lock);
			if (ps_list_empty(&impl->jobs) && impl->stop)
				return NULL;
			if (ps_list_empty(&impl->jobs))
				pthread_cond_wait(&impl->cond, &impl->lock);
			ps_list_splice(&batch, &impl->jobs);
		}
		for (struct ps_list *l = batch.next, *next; l != &batch; l = next) {
			struct job *job = PS_CONTAINER_OF(l, struct job, link);

			next = l->next;
			ps_list_remove(l);
			if (!serve(o, impl, job)) {
				PS_LOCK_SCOPE(&impl->lock);
				ps_list_append(&impl->jobs, &job->link);
			}
		}
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
}

static void pattern_get(struct ps_origin *origin, struct ps_origin_get *get)
{
	struct ps_pattern_origin *o = (struct ps_pattern_origin *)origin;
	struct impl *impl = o->impl;
	struct job *job = calloc(1, sizeof(*job));
	uint64_t longest = atomic_load(&o->max_asked);

	if (!job)
		abort();
	while (get->nbytes > longest && !atomic_compare_exchange_weak(&o->max_asked, &longest, get->nbytes))
		;
	unsigned now = atomic_fetch_add(&o->nactive, 1) + 1, most = atomic_load(&o->max_active);
	while (now > most && !atomic_compare_exchange_weak(&o->max_active, &most, now))
		;
	atomic_fetch_add(&o->ngets, 1);
	atomic_fetch_add(&o->nbytes, get->nbytes);
	atomic_fetch_add(&o->fresh_nbytes, get->fresh ? get->nbytes : 0);
	job->get = get;
	PS_LOCK_SCOPE(&impl->lock);
	get->priv = job;
	ps_list_append(&impl->jobs, &job->link);
	pthread_cond_signal(&impl->cond);
}

/* Finds jobs on the list only: the cancel of a job that is just being served is lost. */
static void pattern_cancel(struct ps_origin *origin, struct ps_origin_get *get)
{
	struct impl *impl = ((struct ps_pattern_origin *)origin)->impl;

	PS_LOCK_SCOPE(&impl->lock);
	for (struct ps_list *l = impl->jobs.next; l != &impl->jobs; l = l->next) {
		struct job *job = PS_CONTAINER_OF(l, struct job, link);

		if (job->get == get)
			job->cancelled = true;
	}
	pthread_cond_signal(&impl->cond);
}

static void pattern_abort(struct ps_origin *origin)
{
	struct impl *impl = ((struct ps_pattern_origin *)origin)->impl;

	PS_LOCK_SCOPE(&impl->lock);
	impl->aborted = true;
	pthread_cond_signal(&impl->cond);
}

static void pattern_close(struct ps_origin *origin)
{
	struct impl *impl = ((struct ps_pattern_origin *)origin)->impl;
	{
		PS_LOCK_SCOPE(&impl->lock);
		impl->stop = true;
		pthread_cond_signal(&impl->cond);
	}
	pthread_join(impl->thread, NULL);
	pthread_mutex_destroy(&impl->lock);
	pthread_cond_destroy(&impl->cond);
	free(impl);
	free(origin);
}

static const struct ps_origin_ops pattern_ops = {
        .name = "pattern",
        .get = pattern_get,
        .cancel = pattern_cancel,
        .abort = pattern_abort,
        .close = pattern_close,
};

struct ps_pattern_origin *ps_pattern_origin_new(void)
{
	struct ps_pattern_origin *o = calloc(1, sizeof(*o));
	struct impl *impl = calloc(1, sizeof(*impl));

	if (!o || !impl)
		abort();
	o->origin.ops = &pattern_ops;
	o->impl = impl;
	atomic_store(&o->stall_after, SIZE_MAX);
	ps_list_init(&impl->jobs);
	pthread_mutex_init(&impl->lock, NULL);
	pthread_cond_init(&impl->cond, NULL);
	if (pthread_create(&impl->thread, NULL, main_loop, o) != 0)
		abort();
	return o;
}
