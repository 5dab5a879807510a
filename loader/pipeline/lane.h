/* A lane: a sequence of shards, read as blocks of samples.
 *
 * A reader thread fills one block of a lane at a time (ps_lane_fill()); the queue of filled blocks, and who
 * may fill, are the pipeline's, under its lock. A lane runs on from epoch to epoch.
 *
 * Lengths not known: the last block of an epoch says so (it may be empty), and the next one begins the next
 * epoch. Lengths known: ps_lane_seek() says by arithmetic which block is the next that holds a sample of this
 * rank, and moves on to the next epoch behind the last; a block that holds none is never read. Places of
 * samples that are not wanted, of other ranks or delivered before a resume, hold NULL.
 *
 * Ownership: a lane owns its open shard and its queued blocks; a block owns its samples that were not taken
 * (at..n). Threads: ps_lane_seek() and ps_lane_fill() one at a time for one lane.   Locks: none. Errors:
 * -ENOMEM, -EMFILE, -ENFILE, -ECANCELED, -ESTALE (the position is not in these shards, or an index is wrong),
 * -ENODATA (a lane that is read for ever has no samples); damage comes as bad samples. Blocks: fill on
 * reading; seek on the making of an epoch. */
#ifndef PS_PIPELINE_LANE_H
#define PS_PIPELINE_LANE_H

#include "order/epoch.h"
#include "order/order.h"
#include "order/select.h"
#include "pipeline/position.h"
#include "shard/index.h"
#include "shard/shard.h"

struct ps_block {
	struct ps_block *next;
	uint64_t epoch;
	uint64_t begin; /* its first sample's place in the lane's epoch */
	uint32_t n, at;
	uint32_t left;                 /* samples that are wanted, from `at` on */
	bool last;                     /* of the lane's epoch; lengths not known */
	struct ps_lane_position where; /* of its first sample as it was read; taken: those before `at` */
	struct ps_sample *samples[];
};

struct ps_lane {
	/* The filling thread's. */
	uint32_t index;
	uint64_t epoch;
	struct ps_epoch *info; /* of that epoch; NULL: not asked for yet */
	uint64_t at;           /* place in the lane's epoch of the sample that is read next: */
	uint64_t k;            /* its shard among the lane's ... */
	uint64_t pass;         /* ... in which pass of them */
	uint32_t number;       /* that shard's place in the list, if `shard` is open */
	uint64_t ordinal;      /* in the shard; ... */
	uint64_t copy;         /* ... so many copies of it were given */
	uint64_t offset;       /* of that sample, where it is known; else 0 */
	uint64_t nbytes;       /* that the shard's file must have, as the state says; 0: any */
	uint64_t from;         /* samples before this place are not wanted any more */
	uint64_t barren;       /* shards that gave no sample, behind each other */
	bool gave;             /* the open shard gave one */
	struct ps_shard *shard;
	struct ps_shard_byproduct begun; /* of the shard that rests: of `number`, while `shard` is closed */
	struct ps_index *check;      /* what the open shard is compared with; NULL: nothing */
	struct ps_indexes *check_of; /* whose it is */
	struct ps_select_view *view; /* of the open shard; NULL: all samples come once */
	struct ps_sample *drawn;     /* the sample `ordinal`, of which more copies come */
	struct ps_open_files *files; /* that `shard` counts in; NULL: nowhere */
	struct ps_stream_meter meter;

	/* Guarded by the pipeline's lock. */
	struct ps_block *head, *tail;
	uint32_t nqueued;
	bool waits;    /* to be read (due.c); else somebody reads it, or it has ended */
	bool sought;   /* lengths known: `next` is where a block begins that is to be read */
	uint64_t next; /* no sample before this place is to be read */
};

/* How many shards are open. */
struct ps_open_files {
	_Atomic uint32_t n;
	uint32_t most; /* a lane that was read is closed where there are more */
};

struct ps_lane_source {
	struct ps_order *order;
	struct ps_epochs *epochs;
	char *const *shards; /* paths, by their place in the list */
	uint32_t nshards;
	struct ps_indexes *indexes;      /* NULL: not to be asked */
	struct ps_select *select;        /* NULL: all samples come once */
	struct ps_open_files *files;     /* NULL: not counted */
	struct ps_shard_options options; /* stream.meter is set for each lane */
};

/* Puts a lane at the beginning of an epoch; frees what it held. `hint`: a place to begin reading at, at or
 * before the sample `from`; NULL: none is known. */
void ps_lane_reset(struct ps_lane *lane, const struct ps_order *order, uint32_t index, uint64_t epoch,
        uint64_t from, const struct ps_lane_position *hint);

/* Goes to the beginning of a later epoch; what is left of this one is not wanted. Its queue is left alone. */
void ps_lane_leave(struct ps_lane *lane, uint64_t epoch);

/* Finds where the lane's next block begins: 1 and *ret_next; 0: no sample before lane->from is wanted, or its
 * epoch has none any more, and it stands at the beginning of the next. Lengths must be known. */
int ps_lane_seek(struct ps_lane *lane, const struct ps_lane_source *source, uint64_t *ret_next,
        struct ps_load_error *err) PS_MUST_USE;

int ps_lane_fill(struct ps_lane *lane, const struct ps_lane_source *source, struct ps_block **ret_block,
        struct ps_load_error *err) PS_MUST_USE;

void ps_block_free(struct ps_block *block); /* NULL is allowed */

#endif
