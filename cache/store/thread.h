/* What the store's threads share. */
#ifndef PS_STORE_THREAD_H
#define PS_STORE_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <time.h>

#include "base/clock.h"

/* 0 or -errno. Signals are the main thread's business. */
static inline int ps_thread_start(pthread_t *ret, const char *name, void *(*fn)(void *arg), void *arg)
{
	sigset_t all, old;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int e = pthread_create(ret, NULL, fn, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (e == 0)
		pthread_setname_np(*ret, name);
	return -e;
}

/* On a condition that goes by the monotonic clock. */
static inline void ps_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t mono_ns)
{
	struct timespec ts = {
	        .tv_sec = (time_t)(mono_ns / PS_NS_PER_S), .tv_nsec = (long)(mono_ns % PS_NS_PER_S)};

	pthread_cond_timedwait(cond, lock, &ts);
}

#endif
