/* Which datasets are in use, as their opens tell.
 *
 * In use is what was opened within the last PS_INUSE_EPOCHS epoch times of its dataset, or within
 * PS_INUSE_UNKNOWN_S where none is known yet.
 *
 * Epoch times are learned from opens alone. A round of a dataset begins with an open, and ends when an object
 * that was opened in it is opened again after at least half of the dataset's other known objects were opened
 * in it for the first time (known: opened within the time that counts as in use). So eight workers that open
 * the same shard within seconds, or a reader that goes back to a few of many, end no round. A round's length
 * is a sample, the mean of the last four is the epoch time. A round is never shorter than a minute: epochs
 * of seconds need no sharper estimate, and one that is too short would give up what is in use, while one too
 * long only keeps it a little longer.
 *
 * Ownership: the policy's. Threads: one at a time. Blocks: never. Errors: out of memory, an open teaches
 * nothing. */
#ifndef PS_POLICY_INUSE_H
#define PS_POLICY_INUSE_H

#include <stdint.h>

#include "base/hash.h"

#define PS_INUSE_EPOCHS 3
#define PS_INUSE_UNKNOWN_S (24 * 3600)

struct ps_inuse;

struct ps_inuse *ps_inuse_new(void); /* NULL: out of memory */
void ps_inuse_free(struct ps_inuse *inuse);

void ps_inuse_opened(struct ps_inuse *inuse, uint32_t dataset, const struct ps_id *id, int64_t now_s);

struct ps_inuse_times {
	int64_t window_s; /* for which an open counts as use */
	int64_t epoch_s;  /* 0: not known yet */
};
void ps_inuse_times(const struct ps_inuse *inuse, uint32_t dataset, struct ps_inuse_times *ret);

#endif
