/* The queue of objects whose rows are behind: a thread writes them to the index, a batch every
 * PS_STORE_COMMIT_MS or sooner when much has come together.
 *
 * When the index takes no more (a full disk), store->index_failed stops admissions, the queue waits, and the
 * thread tries again every few seconds, opening the index anew; what is on the queue stays in memory until
 * then.
 *
 * Threads: any. Locks: takes store->lock, then object->lock, neither over the index. */
#ifndef PS_STORE_COMMIT_H
#define PS_STORE_COMMIT_H

#include "store/store_private.h"

int ps_commit_start(struct ps_store *store) PS_MUST_USE;
/* Writes what is left and ends the thread. 0: the index has everything. */
int ps_commit_stop(struct ps_store *store) PS_MUST_USE;

/* The object's rows are behind by so many blocks (0: the object row alone). store->lock held. */
void ps_commit_queue_locked(struct ps_object *object, uint64_t nblocks);

/* Is all in the index? store->lock held. */
bool ps_commit_done_locked(const struct ps_store *store);

/* A pin's row is behind. store->lock held. */
void ps_commit_pins_locked(struct ps_store *store);

/* Takes an evicted object off the queue, so that nothing but its holders keeps its bytes. store->lock held,
 * and the caller has a ref of its own; no batch has it. */
void ps_commit_unqueue_locked(struct ps_object *object);

/* The index refused something: nothing is admitted until a later try succeeds. store->lock held. */
void ps_commit_retry_locked(struct ps_store *store);

#endif
