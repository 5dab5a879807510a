/* Whether the disk takes data: what a write, a reservation or the index last heard of it.
 *
 * Threads: any. Locks: none. */
#ifndef PS_STORE_DISK_H
#define PS_STORE_DISK_H

#include "store/store_private.h"

/* It does not, for want of wanted_nbytes or for another reason. e: -errno. */
void ps_disk_refused(struct ps_store *store, int e, uint64_t wanted_nbytes);
/* It did. */
void ps_disk_took(struct ps_store *store);
/* 0, or the errno, and since when in seconds since 1970. Looks at the disk: what was full may have room by now. */
int ps_disk_error(struct ps_store *store, int64_t *ret_since_s);

#endif
