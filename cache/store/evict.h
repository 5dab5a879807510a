/* Room on disk: what fits under the quota and the floor of free space, and who goes when it does not.
 *
 * The quota counts, for each data file, what it may grow to while it is being filled (reserved at admission)
 * and what it occupies otherwise, and goes on counting an evicted file until its last holder has put it. Room
 * is taken before the first byte is written and given back after the file is unlinked and closed, so that the
 * limit holds at every instant. The floor is checked against statvfs less what is reserved and not yet
 * written.
 *
 * Threads: any. Locks: takes store->lock, never over disk. Blocks: on the index and on unlink. */
#ifndef PS_STORE_EVICT_H
#define PS_STORE_EVICT_H

#include "store/store_private.h"

/* What somebody wants room for. */
struct ps_wish {
	uint64_t add;       /* not yet counted by the quota */
	uint64_t unwritten; /* not yet on disk, and not yet in store->unwritten */
	const struct ps_object *object; /* whose data it is for; NULL: nobody's */
	bool pinned;        /* may drive out what is in use, but not open */
};
/* A try at it: rounds of look (without the lock) and try (with it). */
struct ps_room {
	uint64_t disk, first_disk, freed;
	bool looked;
};
void ps_room_look(struct ps_store *store, struct ps_room *room);
/* 0: there is room, as long as store->lock stays held. -EAGAIN: something went, look again. -ENOSPC: no.
 * store->lock held; dropped over evictions. */
int ps_room_try(struct ps_store *store, struct ps_room *room, const struct ps_wish *wish) PS_MUST_USE;

/* Reserves for the object's whole size (its entry is made if need be), evicting by policy. -ENOSPC: no room.
 * The object is held and marked as admitting by the caller. Without store->lock. */
int ps_room_take(struct ps_object *object) PS_MUST_USE;

/* The last holder is gone: from now on the object counts what it occupies. Without store->lock; the caller
 * has a ref.
 */
void ps_room_settle(struct ps_object *object);

/* Takes an entry, none of whose extents is leaving, out of the table; its object (if any) becomes EVICTING.
 * store->lock held. NULL: out of memory. The caller then passes it, or a list of such (by next), to
 * ps_leaving_finish(). */
struct ps_leaving *ps_leaving_begin(struct ps_store *store, struct ps_entry *entry) PS_MUST_USE;
/* Deletes rows, unlinks files, gives the room back. Without store->lock. */
void ps_leaving_finish(struct ps_store *store, struct ps_leaving *list);

/* Evicts what nobody holds until the limit holds, whether in use or not, and pinned last: when it was lowered
 * between two runs. */
void ps_room_trim(struct ps_store *store);

/* Is this the id of an evicted object whose rows or file are still there? Who gets it then is streamed.
 * store->lock held. */
bool ps_tomb_find(struct ps_store *store, const struct ps_id *id);
/* Of an evicted object without refs whose file has its name still: now it goes. store->lock held, and let go
 * meanwhile. */
void ps_named_unlink_locked(struct ps_object *object);
/* Tries again to delete those rows. One thread at a time (the one that commits). Without store->lock. */
int ps_tombs_clear(struct ps_store *store);

#endif
