/* The plan: which shards a run will read, told to the penstock mount that they lie on, so that it can fetch
 * what comes and keep what comes again.
 *
 * Written to MOUNT/.penstock/plan, or, where the mount is read-only to the kernel as well, told by ioctl on a
 * descriptor of it that is open for reading (fs/fuse/ioctl.h has that). JSON lines:
 *
 *   {"penstock_plan": 1, "job": "NAME", "rank": 0, "world": 8, "epoch": 3, "files": ["a/x.tar", "a/y.tar"]}
 *   {"penstock_position": 1, "job": "NAME", "rank": 0, "epoch": 3, "files_done": 17}
 *
 * A plan line replaces what was told before for the same job, rank and epoch: the files below the mount that
 * the rank reads, in about the order in which it needs them. A position line says how many of the epoch's
 * files it is through with. A reader ignores lines and members that it does not know. Epochs before that of a
 * rank's position are over.
 *
 * Where the order is of sample numbers, the files are those that the numbers are in, by first use: of an array the same in
 * each epoch, and through with as the numbers are; of a feed those of what was fed so far, told again (at most once a
 * second) where more files came, and none through with, since nobody knows what comes.
 *
 * Written by a thread of its own: at the start the epochs that can be named (8 unless told otherwise), one
 * more at the beginning of each epoch, and the position, where it has changed, at most once a second, else every
 * PS_PLANNER_BEAT_S seconds: who pauses for a validation goes on afterwards, so the plan holds as long as the loader
 * lives. A mount that has forgotten (ESTALE: the process was stopped for long) is told anew. Where
 * the shards lie on no such mount, or it takes no plans, nothing is written, and there is no thread.
 *
 * Ownership: a planner belongs to its creator and borrows order and names.
 * Threads: ps_planner_at() one at a time, beside the planner's own.   Locks: its own, a leaf.
 * Errors: none: a run does not need it.   Blocks: new on the file systems of the first shard; at never; free
 * until a write under way is over. */
#ifndef PS_ORDER_PLAN_H
#define PS_ORDER_PLAN_H

#include "order/numbers.h"
#include "order/order.h"
#include "pipeline/position.h"

#define PS_PLANNER_EPOCHS 8
#define PS_PLANNER_BEAT_S 15 /* a quarter of what a mount waits for */
#define PS_PLANNER_MAX_FILES 100000 /* of an epoch; more are left out */

struct ps_planner_options {
	struct ps_order *order;
	char *const *shards;
	uint32_t nshards;
	const char *job; /* copied */
	uint32_t rank, world;
	uint64_t epoch, end_epoch;
	uint32_t epochs; /* that are told at once */
	const struct ps_uses *uses; /* borrowed: of an array of sample numbers, and ... */
	uint32_t batch;             /* ... the places of a batch; NULL: by lanes */
	bool fed;                   /* the files are those that ps_planner_use() names */
};

struct ps_planner;

/* NULL: there is nobody to tell, or no memory. */
struct ps_planner *ps_planner_new(const struct ps_planner_options *options);
void ps_planner_free(struct ps_planner *planner); /* NULL is allowed */

/* The run is there now. Cheap: for each batch. */
void ps_planner_at(struct ps_planner *planner, const struct ps_position *position);

/* Sample numbers of an epoch were fed, in shards that end at these numbers. By the thread that calls ps_planner_at(). */
void ps_planner_use(struct ps_planner *planner, uint64_t epoch, const uint64_t *ends, const int64_t *numbers, uint32_t n);

/* For tests: the texts above, to be freed; NULL: out of memory. `root`: of the mount, with a slash at its
 * end. */
char *ps_plan_text(const struct ps_planner_options *options, const char *root, uint64_t epoch);
char *ps_plan_position_text(const struct ps_planner_options *options, uint64_t epoch, uint64_t files_done);

#endif
