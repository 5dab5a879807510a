/* Threads, and condition variables with deadlines.
 *
 * Errors: -errno. */
#ifndef PS_BASE_THREAD_H
#define PS_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/clock.h"

/* Starts a thread that blocks all signals: the main thread handles them. 0 or -errno. */
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

/* A condition variable on the monotonic clock, for ps_cond_wait_until(). */
static inline void ps_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t monotonic;

	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &monotonic);
	pthread_condattr_destroy(&monotonic);
}

/* Waits until the condition is signalled, or until mono_ns. The caller holds the lock. */
static inline void ps_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t mono_ns)
{
	struct timespec ts = {
	        .tv_sec = (time_t)(mono_ns / PS_NS_PER_S), .tv_nsec = (long)(mono_ns % PS_NS_PER_S)};

	pthread_cond_timedwait(cond, lock, &ts);
}

/* A thread that processes a queue of the caller's. A lock of the caller's covers the queue. */
struct ps_worker {
	pthread_t thread;
	pthread_cond_t wake;
	bool started;
	bool stopping; /* the thread ends when it sees this */
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

/* Stops the thread and waits for its end; does nothing if it was not started. lock: covers `stopping`; the
 * caller does not hold it. */
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
