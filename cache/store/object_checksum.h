/* Checksums of whole objects that their origin told: compared once all blocks are there, by a thread of low priority,
 * so that no read waits for it; an object that has one is not passed through before it has matched.
 *
 *                complete                 equal
 *   (unknown) ──────────────▶ queued ───────────────▶ matched (in its row; until a block is dropped)
 *       ▲                        │ unequal
 *       └── another is told      ▼
 *                             corrupt: retired, its holders' reads fail, nothing of its id is fetched for a while,
 *                             longer each time: PS_SUM_RETRY_MS, doubled up to PS_SUM_RETRY_MAX_MS
 *
 * An object that is cached by extents is compared if all of it ever is there at once.
 *
 * Threads: any. Locks: store->lock. */
#ifndef PS_STORE_OBJECT_CHECKSUM_H
#define PS_STORE_OBJECT_CHECKSUM_H

#include "store/store_private.h"

#define PS_SUM_RETRY_MS 60000
#define PS_SUM_RETRY_MAX_MS (3600 * 1000)
#define PS_SUM_REFUSED 4096 /* ids remembered; beyond, the oldest is tried again at once */

/* Blocks of the object came or went: is there something to compare? store->lock held. */
void ps_sum_look(struct ps_object *object);
/* Compares now, if the object is complete and has not matched yet: 0, also if there is nothing to compare; -EBADMSG: it
 * is corrupt, and retired. Blocks on disk. */
int ps_sum_check(struct ps_object *object);
/* Ends the thread; what is queued is compared when it is loaded again. */
void ps_sum_stop(struct ps_store *store);
void ps_sum_free(struct ps_store *store);

#endif
