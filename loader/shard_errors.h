/* Shards that could not be opened or read at all: a file that is gone, a mount or an origin that does not
 * answer. In batches such a shard gives at least one bad row, although nothing in the shard is damaged.
 *
 * Ownership: the caller's, until fini.   Threads: any.   Locks: its own, a leaf.
 * Blocks: only ps_shard_error_explain() and ps_shard_errno(), on a stat and attributes of the shard. */
#ifndef PS_SHARD_ERRORS_H
#define PS_SHARD_ERRORS_H

#include <pthread.h>

#include "base/error.h"
#include "batch/batch.h"
#include "order/order.h"
#include "penstock.h"

struct ps_shard_errors {
	pthread_mutex_t lock; /* guards all below */
	uint8_t *is_lost;     /* by shard: 1 if it is lost */
	uint64_t n;
	struct {
		const char *shard; /* borrowed from the list of shards */
		char *reason;
	} kept[PENSTOCK_LOST_KEPT]; /* the first shards that were noted */
};

/* -ENOMEM. */
int ps_shard_errors_init(struct ps_shard_errors *lost, size_t nshards) PS_MUST_USE;
void ps_shard_errors_fini(struct ps_shard_errors *lost); /* a struct of zeros is allowed */

/* Notes the lost shards of the batch's bad rows, each shard once. */
void ps_shard_errors_note(struct ps_shard_errors *lost, const struct penstock_batch *batch);

uint64_t ps_shard_errors_count(struct ps_shard_errors *lost);

/* The nth shard that was noted, for n below PENSTOCK_LOST_KEPT; -ENOENT: there is none. */
int ps_shard_errors_get(struct ps_shard_errors *lost, uint64_t n, struct penstock_lost *ret_lost);

/* Appends to an error text on a lost shard what the shard's mount says about it, or else advice. */
void ps_shard_error_explain(const char *shard, int errnum, struct ps_error *err);

/* The errno of the storage that a read of the shard failed with. A penstock mount answers EIO to most failures
 * of its origin, and has their errno in user.penstock.errno. */
int ps_shard_errno(const char *shard, int errnum);

/* Missing shards ----------------------------------------------------------------------------------------- */

/* Finds shards that are missing from local file systems, before anything is read: a misspelled name is an
 * error at once, and not in the middle of an epoch.
 *
 * Only shards that this rank still has to read in its first epoch are checked: other ranks' shards may be
 * on other nodes, and shards already read may have been deleted. Shards on FUSE mounts are not checked,
 * since looking up a file there may cost a request to its origin. If many names are in one folder, the
 * folder is listed. After PS_MISSING_FREE names at most PS_MISSING_MS milliseconds are spent; a missing
 * shard that was not checked is found when it is read.
 *
 * Threads: any.   Ownership: borrows all.   Blocks: on the disk.   Errors: -ENOENT with a text that names
 * the first missing shard of the list; -ENOMEM. */
#define PS_MISSING_LIST 512 /* a folder that has at least this many of the names is listed */
#define PS_MISSING_FREE 1024
#define PS_MISSING_MS 1000

int ps_shards_missing_check(struct ps_order *order, const struct ps_position *at, char *const *shards,
        uint32_t nshards, struct ps_error *err) PS_MUST_USE;

#endif
