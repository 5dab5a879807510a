/* Large objects, cached and evicted by extents of 64 blocks: those that take more than a quarter of the
 * quota, so that no file need be evicted as a whole to make room for a part of another.
 *
 * Each block takes its room when it is written; the policy sees an extent as it sees a file: its "opens" are
 * its uses, noted once a second. Evicting an extent deletes its row, then punches a hole into the data file.
 * Whoever may look at the bytes meanwhile holds the extent:
 *
 *   reader, verifier   hold, look if the block is present, read, release
 *   writer             take (room, and a hold), write, present, release
 *   eviction           leaving (none of its blocks is present from now on, none is written), wait until
 *                      nobody holds it and no batch with its row is under way, delete the row, punch, gone
 *
 * A hole in a file that the kernel reads by itself gives zeros to its readers, silently: so a file that was
 * ever passed through is cached as a whole from then on, and evicted by unlinking (ps_object_pass_fd()). The
 * object's row remembers: readers outlive a killed daemon, but no reboot.
 *
 * A kill between row and hole leaves bytes that no row tells of; the next start punches them out.
 *
 * Threads: any. Locks: takes store->lock, then object->lock; neither over disk or index. */
#ifndef PS_STORE_EXTENT_H
#define PS_STORE_EXTENT_H

#include "store/store_private.h"

#define PS_EXTENT_NBYTES (PS_EXTENT_BLOCKS * PS_BLOCK_SIZE)

/* Is a file of so many bytes cached by extents? Not one that has a single extent and fits: by that there is
 * nothing to gain, and it could not be passed through. */
bool ps_extents_apply(const struct ps_store *store, uint64_t size);

/* Of the file system's map of a file, the share of one extent at most. */
#define PS_EXTENT_MAP_NBYTES UINT64_C(16384)

/* At the start, store->lock held: the item of an extent, charged with what its row tells. */
int ps_extent_add(struct ps_store *store, struct ps_entry *entry, const struct ps_object_row *object,
        uint32_t extent, const struct ps_extent_row *row) PS_MUST_USE;

/* Room for chunks of a block that are about to be written, and a hold of their extent, *ret_extent. -ENOSPC:
 * no room, which is remembered for PS_STORE_REFUSED_MS. -ENOMEM. The object is admitted; one that is not
 * cached by extents has its room already. Blocks on evictions: index and disk. */
int ps_extent_take(
        struct ps_object *object, uint64_t block, uint16_t chunks, struct ps_extent **ret_extent) PS_MUST_USE;
void ps_extent_release(struct ps_object *object, struct ps_extent *extent);

/* What these chunks of a block take of the disk, in a file of `size` bytes. */
uint64_t ps_chunks_disk_nbytes(uint64_t size, uint64_t block, uint16_t set);

/* extent_out.c: an extent on its way out. */
struct ps_extent_out {
	struct ps_entry *entry; /* stays while entry->nleaving > 0 */
	struct ps_object
	        *object; /* holds a ref, or NULL: nobody has it open, and nobody can until we are done */
	uint32_t extent;
	uint64_t nbytes;
	struct ps_extent_out *next;
	bool done;
};
/* An extent that has an item and is not leaving, of an object that is READY or not in memory. store->lock
 * held. NULL: out of memory. The caller then passes it, or a list of such, to ps_extent_out_finish(). */
struct ps_extent_out *ps_extent_out_begin(
        struct ps_store *store, struct ps_entry *entry, uint32_t extent) PS_MUST_USE;
/* Waits for holders; deletes rows, punches, gives the room back. An extent whose row cannot be deleted stays.
 * Without store->lock. */
void ps_extent_out_finish(struct ps_store *store, struct ps_extent_out *list);
/* All extents of an object that is held; *ret_nbytes: what they occupied. */
int ps_extents_evict(struct ps_object *object, uint64_t *ret_nbytes) PS_MUST_USE;

/* At the start, with the table filled from the rows: what a data file has beyond its rows is punched out. */
int ps_extents_recover(struct ps_store *store, const struct ps_entry *entry) PS_MUST_USE;

#endif
