/* Shards that could not be opened or read at all: a file that is gone, a mount or an origin that does not
 * answer. A batch shows each as a bad row or more; nothing in the shard is wrong.
 *
 * Ownership: the caller's, until fini.   Threads: any.   Locks: its own, a leaf.
 * Blocks: hint and is_on_mount alone, on a stat of the shard. */
#ifndef PS_LOST_H
#define PS_LOST_H

#include <pthread.h>

#include "batch/batch.h"
#include "penstock.h"

struct ps_lost {
	pthread_mutex_t lock; /* all below */
	uint8_t *is_lost;     /* of each shard */
	uint64_t n;
	struct {
		const char *shard; /* borrowed from the list of shards */
		char *reason;
	} kept[PENSTOCK_LOST_KEPT]; /* the first ones */
};

/* -ENOMEM. */
int ps_lost_init(struct ps_lost *lost, size_t nshards) PS_MUST_USE;
void ps_lost_fini(struct ps_lost *lost); /* also of one that is all zeros */

/* Notes the shards that bad rows of the batch tell of, each once. */
void ps_lost_note(struct ps_lost *lost, const struct penstock_batch *batch);

uint64_t ps_lost_count(struct ps_lost *lost);

/* The nth that was noted, up to PENSTOCK_LOST_KEPT; -ENOENT: there is none. */
int ps_lost_get(struct ps_lost *lost, uint64_t n, struct penstock_lost *ret_lost);

/* Whether a file is, or would be, of a FUSE mount. One that has died answers nothing but ENOTCONN. */
bool ps_is_on_mount(const char *path);

/* What to do about a lost shard, for the end of a line. */
const char *ps_lost_hint(const char *shard, int errnum);

#endif
