/* Whether the disk takes data: what a write, a reservation or the index last heard of it; and what the folder takes
 * besides data files, where the limit is the folder's.
 *
 * That is the index for the most part, which grows with each name, and writes files twice before it deletes what it read.
 * What it may come to is counted by the quota before it is written (index_nbytes), and data is evicted for it.
 *
 * Threads: any. Locks: index_lock, over a look at the folder and evictions; then store.lock. */
#ifndef PS_STORE_DISK_H
#define PS_STORE_DISK_H

#include "store/store_private.h"

/* It does not, for want of wanted_nbytes or for another reason. e: -errno. */
void ps_disk_refused(struct ps_store *store, int e, uint64_t wanted_nbytes);
/* It did. */
void ps_disk_took(struct ps_store *store);
/* 0, or the errno, and since when in seconds since 1970. Looks at the disk: what was full may have room by now. */
int ps_disk_error(struct ps_store *store, int64_t *ret_since_s);

/* Counts what the folder takes and its index may come to. To be called once before others use the store, and before each
 * commit, but with no object marked as committing: evictions wait for those. -EDQUOT: the limit does not allow for it,
 * whatever may be evicted. Blocks on disk. */
int ps_folder_look(struct ps_store *store) PS_MUST_USE;
/* For ps_index_on_growth(). */
int ps_folder_room(void *store, size_t nbytes) PS_MUST_USE;
/* Of the limit, what data files may have. */
uint64_t ps_store_data_limit(const struct ps_store *store);

#endif
