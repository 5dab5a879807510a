/* Checks what came unverified from the index, in the background, once somebody has opened the object: its
 * readers are served by the daemon meanwhile, which checks the blocks they ask for first, and who opens it
 * afterwards gets it passed through.
 *
 * Threads: any. Locks: takes store->lock, not over the disk. */
#ifndef PS_STORE_CHECK_H
#define PS_STORE_CHECK_H

#include "store/store_private.h"

int ps_check_start(struct ps_store *store) PS_MUST_USE;
void ps_check_stop(struct ps_store *store);

/* The object was opened. store->lock held. */
void ps_check_queue_locked(struct ps_object *object);

#endif
