/* Threads that nobody waits for one by one, and that are all really gone in the end: a thread that has only
 * said that it goes still frees what belongs to it, at an exit as late as when what it needs for that is
 * gone.
 *
 * Each joins the one that went before it, and the last is joined by ps_threads_join().
 *
 * Ownership: in the caller's memory. Threads: any; a lock of its own, a leaf. Errors: -errno. */
#ifndef PS_DAEMON_THREAD_GROUP_H
#define PS_DAEMON_THREAD_GROUP_H

#include <pthread.h>
#include <stdbool.h>

#include "base/cleanup.h"

struct ps_threads {
	pthread_mutex_t lock; /* over all below */
	unsigned n;           /* that have not gone */
	bool any_gone;
	pthread_t gone; /* the last one that went, which nobody has joined */
};

void ps_threads_init(struct ps_threads *threads);
void ps_threads_fini(struct ps_threads *threads);
/* Runs fn(arg), which calls ps_threads_go() last. Blocks: no. */
int ps_threads_start(struct ps_threads *threads, void *(*fn)(void *), void *arg) PS_MUST_USE;
/* The calling thread goes; `leaves` is called once it counts no more. Blocks until the one that went before
 * it has ended. */
void ps_threads_go(struct ps_threads *threads, void (*leaves)(void *arg), void *arg);
unsigned ps_threads_count(struct ps_threads *threads);
/* None counts any more: blocks until the last one has ended. */
void ps_threads_join(struct ps_threads *threads);

#endif
