/* Shards that could not be opened or read at all: a file that is gone, a mount or an origin that does not
 * answer. A batch shows each as a bad row or more; nothing in the shard is wrong.
 *
 * Ownership: the caller's, until fini.   Threads: any.   Locks: its own, a leaf.
 * Blocks: hint and is_on_mount alone, on a stat of the shard. */
#ifndef PS_SHARD_ERRORS_H
#define PS_SHARD_ERRORS_H

#include <pthread.h>

#include "base/error.h"
#include "batch/batch.h"
#include "order/order.h"
#include "penstock.h"

struct ps_shard_errors {
	pthread_mutex_t lock; /* all below */
	uint8_t *is_lost;     /* of each shard */
	uint64_t n;
	struct {
		const char *shard; /* borrowed from the list of shards */
		char *reason;
	} kept[PENSTOCK_LOST_KEPT]; /* the first ones */
};

/* -ENOMEM. */
int ps_shard_errors_init(struct ps_shard_errors *lost, size_t nshards) PS_MUST_USE;
void ps_shard_errors_fini(struct ps_shard_errors *lost); /* also of one that is all zeros */

/* Notes the shards of the batch's bad rows, each once. */
void ps_shard_errors_note(struct ps_shard_errors *lost, const struct penstock_batch *batch);

uint64_t ps_shard_errors_count(struct ps_shard_errors *lost);

/* The nth that was noted, up to PENSTOCK_LOST_KEPT; -ENOENT: there is none. */
int ps_shard_errors_get(struct ps_shard_errors *lost, uint64_t n, struct penstock_lost *ret_lost);

/* What to do about a lost shard, for the end of a line. */
const char *ps_shard_error_hint(const char *shard, int errnum);

/* Shards that are not there ------------------------------------------------------------------------------ */

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
#define PS_MISSING_LIST 512 /* names of one folder: with this many or more it is listed */
#define PS_MISSING_FREE 1024
#define PS_MISSING_MS 1000

int ps_shards_missing_check(struct ps_order *order, const struct ps_position *at, char *const *shards,
        uint32_t nshards, struct ps_load_error *err) PS_MUST_USE;

#endif
