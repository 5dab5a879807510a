/* Threads, and conditions that can be waited for until a time.
 *
 * Threads: as each function says. Errors: -errno. */
#ifndef PS_BASE_THREAD_H
#define PS_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/clock.h"

/* 0 or -errno. Signals are the main thread's business. */
static inline int ps_thread_start(pthread_t *ret, const char *name, void *(*fn)(void *arg), void *arg)
{
	sigset_t all, old;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int rc = pthread_create(ret, NULL, fn, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc == 0)
		pthread_setname_np(*ret, name);
	return -rc;
}

/* A condition that goes by the monotonic clock, for ps_cond_wait_until(). */
static inline void ps_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t monotonic;

	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &monotonic);
	pthread_condattr_destroy(&monotonic);
}

/* Returns when it is signalled, or at that time at the latest. The lock is held. */
static inline void ps_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t mono_ns)
{
	struct timespec ts = {
	        .tv_sec = (time_t)(mono_ns / PS_NS_PER_S), .tv_nsec = (long)(mono_ns % PS_NS_PER_S)};

	pthread_cond_timedwait(cond, lock, &ts);
}

/* A thread that works off a queue of the caller's, which a lock of the caller's guards. */
struct ps_worker {
	pthread_t thread;
	pthread_cond_t wake;
	bool started;
	bool stopping; /* it ends as soon as it sees this */
};

static inline void ps_worker_init(struct ps_worker *worker)
{
	ps_cond_init(&worker->wake);
}

static inline void ps_worker_fini(struct ps_worker *worker)
{
	pthread_cond_destroy(&worker->wake);
}

/* 0 or -errno. */
static inline int ps_worker_start(
        struct ps_worker *worker, const char *name, void *(*fn)(void *arg), void *arg)
{
	int rc = ps_thread_start(&worker->thread, name, fn, arg);

	worker->started = rc == 0;
	return rc;
}

/* Until it has ended; nothing if it was not started. lock: what protects `stopping`, not held. */
static inline void ps_worker_stop(struct ps_worker *worker, pthread_mutex_t *lock)
{
	if (!worker->started)
		return;
	pthread_mutex_lock(lock);
	worker->stopping = true;
	pthread_cond_signal(&worker->wake);
	pthread_mutex_unlock(lock);
	pthread_join(worker->thread, NULL);
	worker->started = false;
}

#endif
