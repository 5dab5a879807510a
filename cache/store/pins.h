/* Pins: what must stay in the cache though the policy would let it go.
 *
 * A pin is of a URL, and stands for the version of it that was opened last: when the origin has a new one,
 * the first open of that takes the pin over, and the old version may go. It outlives the data: what was
 * pinned and lost (a bad disk, a lowered quota) is pinned again when it comes back. All pins together fit
 * under the quota when they are made.
 *
 * Threads: any. Locks: "locked" functions need store->lock. Durability: rows go to the index with the next
 * batch. */
#ifndef PS_STORE_PINS_H
#define PS_STORE_PINS_H

#include "store/store_private.h"

struct ps_pin {
	UT_hash_handle hh;
	struct ps_pin_row row;
	bool deleted;   /* goes when its row has gone */
	bool dirty;     /* the row is behind */
	bool collected; /* the batch under way has it */
};

/* At the start: reads the rows and marks the entries. */
int ps_pins_load(struct ps_store *store) PS_MUST_USE;
void ps_pins_free(struct ps_store *store);

/* Locked: is this version pinned? */
bool ps_pin_holds(const struct ps_object *object);
/* Locked: this version was opened. */
void ps_pin_follow(struct ps_object *object);
/* Locked. */
unsigned ps_pins_count(const struct ps_store *store);

/* Unpins what matches; without the lock. */
int ps_store_unpin(struct ps_store *store, bool (*matches)(const void *arg, const char *url), const void *arg,
        uint64_t *ret_objects, uint64_t *ret_nbytes);

/* The rows that are behind; then, whether the batch came to the index. One thread at a time. */
void ps_pins_collect(struct ps_store *store, struct ps_index_batch *batch);
void ps_pins_collected(struct ps_store *store, bool written);

#endif
