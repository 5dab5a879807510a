/* A FUSE request that a thread of the cache answers. It is answered once: by the cache's callback, or because
 * the process that made it ends, whichever comes first.
 *
 *   struct op { struct ps_inflight inflight; ... };
 *   struct op *op = ps_inflight_new(sizeof(*op), table, req, cancel_fn);
 *   ps_handle_read(...);                 the callback may run before this returns
 *   ps_inflight_issued(&op->inflight);     interrupts count from here on; drops the issuer's reference
 *   ... in the callback:
 *   if (ps_inflight_claim(&op->inflight)) fuse_reply_...(op->inflight.req, ...);
 *   ps_inflight_put(&op->inflight);        drops the callback's reference
 *
 * A signal must not end a read of a file early, unless it ends the process. But the kernel sends INTERRUPT for
 * the first signal of any kind that reaches the waiting thread, and nothing for later ones, not even for
 * SIGKILL. So the table's watcher, a thread, looks for a signal that ends the process (requester.h): when
 * INTERRUPT comes, and then every 200 ms while the request waits. For pages that the kernel reads ahead it
 * sends no INTERRUPT, although a thread may wait for them; the watcher looks at such requests, too, once they
 * have waited that long. If nothing can be known of the thread, INTERRUPT ends the request.
 *
 * To end a request that has a cancel function, the watcher calls it, and the callback answers soon. Otherwise
 * the watcher answers EINTR at once, and the callback finds the request claimed.
 *
 * Ownership: two references, the issuer's and the callback's; the last one frees the op. Threads: any. Locks:
 * libfuse's request lock (it calls our interrupt function with it held) or inflight.lock, then table.lock.
 * No interrupt function is armed or disarmed with inflight.lock held; instead an answer waits while the
 * request is being armed or disarmed, since an answer frees libfuse's request.
 * cancel_fn is called with inflight.lock held and may call the callback. */
#ifndef PS_FUSE_REQUESTS_IN_FLIGHT_H
#define PS_FUSE_REQUESTS_IN_FLIGHT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/cleanup.h"
#include "base/list.h"
#include "base/thread.h"
#include "fuse/handshake.h"

/* All requests whose callback has not run yet. */
struct ps_inflight_table {
	pthread_mutex_t lock; /* all but the counters */
	struct ps_list list;
	/* news: requests that the watcher looks at now; watched: those that it looks at again */
	struct ps_list news, watched;
	struct ps_worker watcher;
	bool watcher_idles;
	_Atomic long outstanding, cancellable; /* cancellable: those with a cancel function */
};

struct ps_inflight {
	struct ps_list link, watch_link;
	struct ps_inflight_table *table;
	fuse_req_t req;
	pid_t tid;                /* the thread that waits; 0: not known */
	bool silent;              /* set it before ps_inflight_issued(): the kernel may send no INTERRUPT */
	bool interrupted, waited; /* table.lock; waited: for 200 ms or more */
	pthread_mutex_t lock;     /* the condition and the flags below */
	pthread_cond_t was_armed;
	bool answered, arming, armed;
	_Atomic int refs;
	void (*cancel_fn)(struct ps_inflight *inflight); /* or NULL */
};

void ps_inflight_table_init(struct ps_inflight_table *table);
void ps_inflight_table_fini(struct ps_inflight_table *table);
/* Starts the watcher; 0 or -errno. Stopping it waits for its end: call it before libfuse's session is freed. */
int ps_inflight_watch(struct ps_inflight_table *table) PS_MUST_USE;
void ps_inflight_unwatch(struct ps_inflight_table *table);
/* Calls the cancel function of every request that has one. Call when no new request can come. */
void ps_inflight_cancel_all(struct ps_inflight_table *table);
/* Waits until every callback has run (cancellable: only those of requests with a cancel function), at most
 * timeout_ms; false: some have not. */
bool ps_inflight_drain(struct ps_inflight_table *table, bool cancellable, unsigned timeout_ms);

/* An op of nbytes, which begins with its struct ps_inflight; only that is initialised. NULL: out of memory, and
 * the request was answered. */
void *ps_inflight_new(size_t nbytes, struct ps_inflight_table *table, fuse_req_t req,
        void (*cancel_fn)(struct ps_inflight *inflight));
void ps_inflight_issued(struct ps_inflight *inflight);
/* True for the first caller, which then answers inflight->req. */
bool ps_inflight_claim(struct ps_inflight *inflight);
void ps_inflight_put(struct ps_inflight *inflight);

/* A thread for requests that block on the cache disk for longer than a FUSE worker should: eviction, and
 * admission of a file, which may unlink others.
 *
 * Ownership: part of a ps_fs; a job belongs to its run function, which frees it. Jobs run one after another,
 * in order.
 * Threads: add from any; start and stop from the session's. Locks: one, a leaf. */
struct ps_job {
	struct ps_list link;
	void (*run)(struct ps_job *job);
};

struct ps_background {
	pthread_mutex_t lock; /* the members below */
	struct ps_list jobs;
	struct ps_worker worker;
};

void ps_background_init(struct ps_background *bg);
void ps_background_fini(struct ps_background *bg);
int ps_background_start(struct ps_background *bg) PS_MUST_USE;
/* Runs the jobs that were added, then ends the thread. */
void ps_background_stop(struct ps_background *bg);
void ps_background_add(struct ps_background *bg, struct ps_job *job);

#endif
