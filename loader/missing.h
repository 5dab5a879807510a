/* Shards of local files that are not there, found before anything is read: a name that was spelled wrong is
 * an error at once, and not in the middle of an epoch.
 *
 * Looked at are those that this rank reads in the epoch that it begins with, from where it begins: another
 * node's files may be on another node, and what was used up may be gone. Those on FUSE mounts are left alone:
 * asking for a file there may ask its origin. Of many in one folder the folder is listed; and after
 * PS_MISSING_FREE names no more than PS_MISSING_MS are spent: what was not looked at shows when it is read,
 * as ever.
 *
 * Threads: any.   Ownership: borrows all.   Blocks: on the disk.   Errors: -ENOENT with a text that names the
 * first in the list's order; -ENOMEM. */
#ifndef PS_MISSING_H
#define PS_MISSING_H

#include "base/load_error.h"
#include "order/order.h"
#include "pipeline/position.h"

#define PS_MISSING_LIST 512 /* names of one folder: from so many on it is listed */
#define PS_MISSING_FREE 1024
#define PS_MISSING_MS 1000

int ps_missing_check(struct ps_order *order, const struct ps_position *at, char *const *shards,
        uint32_t nshards, struct ps_load_error *err) PS_MUST_USE;

#endif
