/* Private to this folder: the pipeline's own data, and the functions that its files share. */
#ifndef PS_PIPELINE_CORE_H
#define PS_PIPELINE_CORE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "image/image.h"
#include "order/order.h"
#include "pipeline/pipeline.h"
#include "shard/index/index.h"
#include "shard/shard.h"

/* Waits of stages ---------------------------------------------------------------------------------------- */

/* The time that a stage's threads wait, and what for.
 *
 * Threads and locks: guarded by the pipeline's lock, as the waiting itself is. */

struct ps_stage {
	uint32_t nthreads;      /* that run now ... */
	uint64_t began_ns;      /* ... and the sum of the times they began at, less those that ended: below */
	uint64_t ns[PS_NWAITS]; /* of waits that are over */
	uint32_t now[PS_NWAITS];   /* threads that wait now ... */
	uint64_t since[PS_NWAITS]; /* ... and the sum of the times they began at */
};

/* A thread of the stage begins or ends, or is parked: what it does between is no time of the stage. */
static inline void ps_stage_enter(struct ps_stage *stage)
{
	stage->nthreads++;
	stage->began_ns += ps_clock_mono_ns();
}

static inline void ps_stage_leave(struct ps_stage *stage)
{
	stage->nthreads--;
	stage->began_ns -= ps_clock_mono_ns(); /* may wrap; the sum below is right all the same */
}

/* Waits on the condition once, and counts it. until_ns: of the monotonic clock, as the condition's must be
 * then; NULL: without end. */
static inline void ps_stage_wait(struct ps_stage *stage, enum ps_wait why, pthread_cond_t *cond,
        pthread_mutex_t *lock, const uint64_t *until_ns)
{
	uint64_t start = ps_clock_mono_ns();

	stage->now[why]++;
	stage->since[why] += start;
	if (until_ns) {
		const struct timespec until = {.tv_sec = (time_t)(*until_ns / 1000000000u),
		        .tv_nsec = (long)(*until_ns % 1000000000u)};

		pthread_cond_timedwait(cond, lock, &until);
	} else {
		pthread_cond_wait(cond, lock);
	}
	stage->now[why]--;
	stage->since[why] -= start;
	stage->ns[why] += ps_clock_mono_ns() - start;
}

/* Time spent in one kind of wait until `now`. */
static inline uint64_t ps_stage_waited(const struct ps_stage *stage, enum ps_wait why, uint64_t now)
{
	return stage->ns[why] + stage->now[why] * now - stage->since[why];
}

/* Time of all threads until `now`: those that ended count with what they had. */
static inline uint64_t ps_stage_total(const struct ps_stage *stage, uint64_t now)
{
	return stage->nthreads * now - stage->began_ns;
}

/* Tuning ------------------------------------------------------------------------------------------------- */

/* Measurements that the pipeline adapts to: the time of a row, so that a unit of work takes 50 to 100 us; and
 * the number of threads of a stage, where the caller left that to us.
 *
 * Threads and locks: guarded by the pipeline's lock.   Blocks: never. */

#define PS_UNIT_NS 50000     /* a unit is closed once its rows are expected to take this long ... */
#define PS_UNIT_MAX_ROWS 256 /* ... or has this many */

/* With a transform of units each call is dear (an interpreter's lock that its consumer holds is let go after
 * 5 ms), so they are longer: but no thread shall wait for rows that another one keeps. */
#define PS_UNIT_CALL_NS 20000000

/* The cost of a row grows with its bytes, from a constant on. */
#define PS_ROW_WEIGHT 512

struct ps_cost {
	double ns_per_weight; /* a mean of the last units; begin with ps_cost_init() */
	double unit_ns;
	uint32_t unit_rows;
};

void ps_cost_init(struct ps_cost *cost);

/* Units of a transform: long, but of a share of what all batches hold. */
void ps_cost_init_calls(struct ps_cost *cost, uint32_t rows, uint32_t depth, uint32_t threads);

/* True if a unit of that many rows and bytes is large enough. */
bool ps_cost_is_unit(const struct ps_cost *cost, uint32_t rows, uint64_t nbytes);

/* Rows of that many bytes took ns. */
void ps_cost_learn(struct ps_cost *cost, uint32_t rows, uint64_t nbytes, uint64_t ns);

/* How a stage's threads spent a span of time. */
struct ps_usage {
	double idle;    /* share in which they waited for the other stages */
	double starved; /* share in which the next stage waited for them */
};

struct ps_tune {
	bool fixed;           /* the caller said how many */
	uint32_t least, most; /* threads */
	uint32_t now;         /* that may run */
};

/* How many threads may run from now on: fewer when they mostly wait, more while they are busy and the next
 * stage waits for them. */
uint32_t ps_tune_next(const struct ps_tune *tune, const struct ps_usage *usage);

/* Lanes -------------------------------------------------------------------------------------------------- */

/* A lane: a sequence of shards, read as blocks of samples.
 *
 * A reader thread fills one block of a lane at a time (ps_lane_fill()); the queue of filled blocks, and which
 * thread may fill, are the pipeline's, under its lock. A lane runs on from epoch to epoch.
 *
 * Lengths not known: the last block of an epoch says so (it may be empty), and the next one begins the next
 * epoch. Lengths known: ps_lane_seek() says by arithmetic which block is the next that holds a sample of this
 * rank, and moves on to the next epoch after the last; a block that holds none is never read. Places of
 * samples that are not wanted, of other ranks or delivered before a resume, hold NULL.
 *
 * Ownership: a lane owns its open shard and its queued blocks; a block owns its samples that were not taken
 * (at..n). Threads: ps_lane_seek() and ps_lane_fill() one at a time for one lane.   Locks: none. Errors:
 * -ENOMEM, -EMFILE, -ENFILE, -ECANCELED, -ESTALE (the position is not in these shards, or an index is wrong),
 * -ENODATA (a lane that is read for ever has no samples); damage comes as bad samples. Blocks: fill on
 * reading; seek on the making of an epoch. */

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
	uint64_t copy;         /* ... this many copies of it were given */
	uint64_t offset;       /* of that sample, where it is known; else 0 */
	uint64_t nbytes;       /* that the shard's file must have, as the state says; 0: any */
	uint64_t from;         /* samples before this place are not wanted any more */
	uint64_t empty;        /* consecutive shards that gave no sample */
	bool gave;             /* the open shard gave one */
	struct ps_shard *shard;
	struct ps_shard_byproduct begun;   /* of the shard that rests: of `number`, while `shard` is closed */
	struct ps_shard_index *check;      /* what the open shard is compared with; NULL: nothing */
	struct ps_shard_indexes *check_of; /* the set that has it */
	struct ps_select_view *view;       /* of the open shard; NULL: all samples come once */
	struct ps_sample *drawn;           /* the sample `ordinal`, of which more copies come */
	struct ps_open_files *files;       /* that `shard` counts in; NULL: nowhere */
	struct ps_stream_meter meter;

	/* Guarded by the pipeline's lock. */
	struct ps_block *head, *tail;
	uint32_t nqueued;
	bool waits;    /* to be read (claim.c); else a thread reads it, or it has ended */
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
	struct ps_shard_indexes *indexes; /* NULL: not to be asked */
	struct ps_select *select;         /* NULL: all samples come once */
	struct ps_open_files *files;      /* NULL: not counted */
	struct ps_shard_options options;  /* stream.meter is set for each lane */
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

/* A lane's samples --------------------------------------------------------------------------------------- */

/* A lane's samples one after the other: shards opened in their order, places found again.
 *
 * Ownership, threads, errors: as pipeline/core.h says. */

/* The sample at lane->at: 1, or 0 at the end of the lane's epoch. `hold`: with its bytes; without them there
 * may be none (NULL). */
int ps_lane_read(struct ps_lane *lane, const struct ps_lane_source *source, bool hold,
        struct ps_sample **ret_sample, struct ps_load_error *err) PS_MUST_USE;

/* A walk over this many samples costs less than finding a place and opening the file there. */
#define PS_LANE_WALK_MAX 16

/* Closes what is open of the lane's shard; where it stands remains. */
void ps_lane_close(struct ps_lane *lane);

/* Closes the lane's shard if too many are open, and continues later at the same place. A shard that can
 * only be read on stays open. */
int ps_lane_rest(
        struct ps_lane *lane, const struct ps_lane_source *source, struct ps_load_error *err) PS_MUST_USE;

/* Moves to the sample `at` of the epoch, at or after lane->at: over whole shards where counts are known,
 * else by walking. At the end of the lane's epoch it stops there. */
int ps_lane_go(struct ps_lane *lane, const struct ps_lane_source *source, uint64_t at,
        struct ps_load_error *err) PS_MUST_USE;

/* The pipeline ------------------------------------------------------------------------------------------- */

/* The pipeline's own data: what its files share, and no other folder sees.
 *
 *   pipeline.c   made, restarted, freed; the consumer's side
 *   threads.c    readers that fill lanes, workers that decode what they claimed
 *   claim.c      which rows come next, of which lane; which lane is read next
 *   lane.c       a lane's shards, read as blocks of samples
 *   core.c       failures, times of stages, how many threads are worth having
 *
 * Locks: `lock` as marked. The functions below the ruled line need it held. */

/* Blocks queued for a lane, with the one that rows are taken from. Those that are not shuffled are small. */
#define PS_AHEAD_SHUFFLED 2
#define PS_AHEAD_PLAIN 8
#define PS_AHEAD_PLAIN_SAMPLES 8192 /* of all lanes, where that is more than two blocks of each */

enum {
	PS_STAGE_READ,
	PS_STAGE_DECODE,
	PS_STAGE_CONSUMER,
};

struct ps_pipeline {
	struct ps_pipeline_options o;
	struct ps_byte_budget window;
	struct ps_image_gate gate; /* of what images hold while they are decoded */
	struct ps_slab_pool slabs;
	struct ps_lane_source source;
	struct ps_open_files files;
	struct ps_offload_times times; /* of the engines */
	atomic_bool stop;              /* also read without the lock, by streams */
	int wake_fd;                   /* readable once stop is set */
	pthread_t *threads;
	uint32_t nthreads;

	struct ps_position position; /* the consumer's: after what was delivered */
	/* Where lengths are not known: the lanes' places after what an epoch skips at its beginning, by epoch
	 * & 1. All of it is skipped before the first row is claimed, so no thread writes them once a batch is
	 * delivered. */
	struct ps_lane_position *skipped[2];

	pthread_mutex_t lock; /* all below */
	pthread_cond_t work;  /* workers: a block was queued, a batch became free, an epoch was delivered */
	pthread_cond_t room;  /* readers: a lane's queue became shorter */
	/* the consumer: a batch is finished, or free after all were held, an epoch has ended, something
	 * failed */
	pthread_cond_t ready;
	struct ps_lane *lanes;
	uint32_t nlanes;
	const struct ps_lane_set *sets; /* the order's */
	uint32_t nsets;
	uint32_t ahead;          /* most blocks queued for a lane */
	bool known;              /* the lengths of lanes are */
	struct ps_numbers *feed; /* the epochs'; NULL: nothing is fed */
	struct {
		uint32_t *lanes; /* heaps (claim.c) */
		uint32_t *n;     /* lanes in each */
	} due;
	struct ps_turns turns; /* of the row claimed next; of several ranks' rows: of the step's first */
	/* The rows of `filling`, where ranks share lanes: */
	struct ps_dealt *dealt;
	uint32_t dealt_at;         /* the next one */
	struct ps_epoch *claiming; /* of claim_epoch; NULL: to be asked for */
	bool asking;               /* a worker does */
	struct penstock_batch **batches;
	uint32_t nbatches;              /* `depth`, and those that were added */
	struct penstock_batch *filling; /* rows are claimed in it; NULL: none yet */
	uint64_t claim_epoch;           /* of the rows claimed next */
	uint64_t claim_seq;             /* of the next batch to be filled */
	uint64_t epoch_seq;             /* of the first batch of claim_epoch */
	struct {
		bool known;
		uint64_t seq; /* after the epoch's last batch */
	} ends[2];            /* of the epochs that were claimed but not delivered, by epoch & 1 */
	uint64_t deliver_epoch, deliver_seq;
	uint64_t first_seq; /* of deliver_epoch */
	uint32_t nheld;
	pthread_cond_t left; /* the copier: a batch was left */
	int failed;
	struct ps_load_error why; /* of failed */
	struct ps_stage stages[PENSTOCK_NSTAGES];
	struct ps_stream_meter meter;
	struct {
		uint64_t epoch, nbytes;
	} read_of[4]; /* what of `meter` is of the last epochs, by epoch & 3 */
	uint64_t reread;
	uint64_t empty_epochs;                /* delivered without a batch */
	struct ps_offload offload;            /* which images the GPU decodes, and, while that is tuned: */
	struct ps_offload_meter offload_from; /* the engines' times when they had got going */
	uint64_t nfinished;                   /* batches */
	struct ps_cost cost;                  /* of rows */
	struct ps_tune tunes[2];              /* of readers and workers */
	uint32_t started[2];                  /* of them, so far */
	double blame_ns[PS_NBLAMES];          /* what the consumer waited for; waits that are over */
	pthread_cond_t unpark;                /* threads beyond tunes[].now: it has grown */
	struct ps_tune_mark {
		uint64_t ns, total_ns[PENSTOCK_NSTAGES], wait_ns[PENSTOCK_NSTAGES][PS_NWAITS];
	} tuned; /* when the tunes were looked at last, and the stages' times then */
};

/* What the engines did so far. Takes the lock of the GPU's decoder, which may be held while images are
 * parsed. */
struct ps_offload_meter ps_pipeline_meter(struct ps_pipeline *pipeline);

/* Stops and joins all threads. */
void ps_threads_stop(struct ps_pipeline *pipeline);

/* Starts them with all signals blocked: they belong to the program. */
int ps_threads_start(struct ps_pipeline *pipeline, struct ps_load_error *err) PS_MUST_USE;

/* The lock must be held below this line ------------------------------------------------------------------ */

/* The stages' times until now. */
void ps_tune_mark(struct ps_pipeline *pipeline, struct ps_tune_mark *ret_mark);

/* The first failure is the one that next() gives. */
void ps_pipeline_fail(struct ps_pipeline *pipeline, int r, const struct ps_load_error *why);

/* The batch is free again. */
void ps_batch_give(struct ps_pipeline *pipeline, struct penstock_batch *batch);

/* A run of rows of one batch, for one worker. Without rows (n 0) it says that the batch is closed and all of
 * its rows are decoded, so that this worker is the one to finish it. */
struct ps_unit {
	struct penstock_batch *batch;
	uint32_t first, n;
	uint64_t nbytes; /* of its samples */
};

enum ps_claim {
	PS_CLAIMED,
	PS_NO_INPUT,
	PS_NO_ROOM,
	PS_NO_EPOCH, /* claim_epoch is to be asked for, and begun */
};

/* The step of a position of an epoch was fed. */
static inline bool ps_feed_has(const struct ps_pipeline *p, uint64_t epoch, uint64_t position)
{
	return p->feed->epoch == epoch && position / p->feed->batch < p->feed->fed;
}

/* Takes over what is known of claim_epoch, and wakes those that waited for it. */
void ps_epoch_begin(struct ps_pipeline *pipeline, struct ps_epoch *epoch);

/* The row claimed next, where ranks share lanes; NULL: no batch is being filled, or they do not. */
const struct ps_dealt *ps_row_due(const struct ps_pipeline *pipeline);

/* Lanes that no thread reads or is about to read: all but those that have ended. */
int ps_due_init(struct ps_pipeline *pipeline) PS_MUST_USE; /* -1: no memory */
void ps_due_fini(struct ps_pipeline *pipeline);
void ps_due_clear(struct ps_pipeline *pipeline);
void ps_due_put(struct ps_pipeline *pipeline, struct ps_lane *lane);
bool ps_due_any(const struct ps_pipeline *pipeline);       /* one of them is to be read now */
struct ps_lane *ps_due_take(struct ps_pipeline *pipeline); /* that one, or NULL */

/* Queues a block that was read; one of an epoch that was closed meanwhile is dropped. */
void ps_block_push(struct ps_pipeline *pipeline, struct ps_lane *lane, struct ps_block *block);

/* A block that nothing more is taken from: the first of a lane's queue. */
void ps_block_pop(struct ps_pipeline *pipeline, struct ps_lane *lane);

/* Claims the next rows of the epoch. */
enum ps_claim ps_unit_claim(struct ps_pipeline *pipeline, struct ps_unit *ret_unit) PS_MUST_USE;

#endif
