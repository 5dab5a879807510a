/* A FUSE request that a thread of the cache will answer: replied to once, by whoever comes first of the
 * cache's callback and the kernel's interrupt (the reader was killed).
 *
 *   struct op { struct ps_pending pending; ... };
 *   ps_pending_init(&op->pending, table, req, free_fn, cancel_fn);
 *   ps_handle_read(...);                 the callback may run before this returns
 *   ps_pending_issued(&op->pending);     from here on an interrupt is heard; gives up the issuer's reference
 *   ... in the callback:
 *   if (ps_pending_claim(&op->pending)) fuse_reply_...(op->pending.req, ...);
 *   ps_pending_put(&op->pending);        gives up the callback's reference
 *
 * An interrupt of a request with a cancel function calls it, and the callback answers soon; one without is
 * answered EINTR at once, and the callback then finds it claimed.
 *
 * Ownership: two references, the issuer's and the callback's; free_fn frees the op.
 * Threads: any.
 * Locks: libfuse's request lock (it calls our interrupt function with it held), then pending.lock, then
 * table.lock. So nothing is armed or disarmed with pending.lock held; instead an answer waits while the
 * request is being armed. Nor does an answer come from within arming, since libfuse goes on to unlock the
 * request that an answer frees. cancel_fn is called with pending.lock held and may call the callback. */
#ifndef PS_FUSE_REQUESTS_IN_FLIGHT_H
#define PS_FUSE_REQUESTS_IN_FLIGHT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/list.h"
#include "fuse/fuse_api.h"

/* All requests whose callback has not come yet. */
struct ps_pending_table {
	pthread_mutex_t lock; /* list */
	struct ps_list list;
	_Atomic long outstanding, cancellable; /* the latter: of them with a cancel function */
};

struct ps_pending {
	struct ps_list link;
	struct ps_pending_table *table;
	fuse_req_t req;
	pthread_mutex_t lock; /* the four below */
	pthread_cond_t was_armed;
	bool answered, arming, armed, interrupted;
	_Atomic int refs;
	void (*free_fn)(struct ps_pending *pending);
	void (*cancel_fn)(struct ps_pending *pending); /* or NULL */
};

void ps_pending_table_init(struct ps_pending_table *table);
void ps_pending_table_fini(struct ps_pending_table *table);
/* Cancels what can be cancelled. Call when no new request can come. */
void ps_pending_cancel_all(struct ps_pending_table *table);
/* Waits until every callback has come (or of those that can be cancelled only), at most timeout_ms; false:
 * some have not. */
bool ps_pending_drain(struct ps_pending_table *table, bool cancellable, unsigned timeout_ms);

void ps_pending_init(struct ps_pending *pending, struct ps_pending_table *table, fuse_req_t req,
        void (*free_fn)(struct ps_pending *pending), void (*cancel_fn)(struct ps_pending *pending));
void ps_pending_issued(struct ps_pending *pending);
/* True for the first caller, who answers pending->req. */
bool ps_pending_claim(struct ps_pending *pending);
void ps_pending_put(struct ps_pending *pending);

#endif
