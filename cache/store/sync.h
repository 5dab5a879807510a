/* Brings what the index names to the disk itself, in the background, so that a power cut costs seconds: a
 * thread syncs the data files that were written to, then the index's log, PS_STORE_SYNC_MS after the first
 * batch that is not yet safe. Nobody waits for it, and what it has not reached is found by checksum
 * (block.h).
 *
 * Threads: any. Locks: takes store->lock, not over the disk. */
#ifndef PS_STORE_SYNC_H
#define PS_STORE_SYNC_H

#include "store/store_private.h"

#define PS_STORE_SYNC_MS 2000

int ps_sync_start(struct ps_store *store) PS_MUST_USE;
/* Ends the thread; what is left is the caller's to sync. */
void ps_sync_stop(struct ps_store *store);

/* A batch with rows of this object is in the index. store->lock held. */
void ps_sync_queue_locked(struct ps_object *object);
/* Is all that is in the index safe? store->lock held. */
bool ps_sync_done_locked(const struct ps_store *store);
/* An evicted object need not be safe. store->lock held, and the caller has a ref of its own. */
void ps_sync_unqueue_locked(struct ps_object *object);

#endif
