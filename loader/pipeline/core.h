/* Private to this folder: the pipeline's own data, and the functions that its files share. */
#ifndef PS_PIPELINE_CORE_H
#define PS_PIPELINE_CORE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/thread.h"
#include "image/image.h"
#include "order/order.h"
#include "pipeline/pipeline.h"
#include "shard/index/index.h"
#include "shard/shard.h"

/* Waits of stages ---------------------------------------------------------------------------------------- */

/* The time that a stage's threads spend waiting, by cause.
 *
 * Threads and locks: guarded by the pipeline's lock, as the waiting itself is. */

struct ps_stage {
	uint32_t nthreads;         /* threads that run now ... */
	uint64_t began_ns;         /* ... and the sum of the times at which they began */
	uint64_t ns[PS_NWAITS];    /* total of waits that have ended, by cause */
	uint32_t now[PS_NWAITS];   /* threads that wait now, by cause ... */
	uint64_t since[PS_NWAITS]; /* ... and the sum of the times at which those waits began */
};

/* A thread of the stage begins (or is unparked), or ends (or is parked). Time between leave and enter does
 * not count for the stage. */
static inline void ps_stage_enter(struct ps_stage *stage)
{
	stage->nthreads++;
	stage->began_ns += ps_clock_mono_ns();
}

static inline void ps_stage_leave(struct ps_stage *stage)
{
	stage->nthreads--;
	stage->began_ns -= ps_clock_mono_ns(); /* may wrap; ps_tune_mark() is correct nevertheless */
}

/* Waits on the condition once, and counts the wait. until_ns: a time of CLOCK_MONOTONIC, which must be the
 * condition's clock; NULL: no timeout. */
static inline void ps_stage_wait(struct ps_stage *stage, enum ps_wait why, pthread_cond_t *cond,
        pthread_mutex_t *lock, const uint64_t *until_ns)
{
	uint64_t start = ps_clock_mono_ns();

	stage->now[why]++;
	stage->since[why] += start;
	if (until_ns)
		ps_cond_wait_until(cond, lock, *until_ns);
	else
		pthread_cond_wait(cond, lock);
	stage->now[why]--;
	stage->since[why] -= start;
	stage->ns[why] += ps_clock_mono_ns() - start;
}

/* Tuning ------------------------------------------------------------------------------------------------- */

/* Measurements that the pipeline adapts to: the time of a row, so that a unit of work takes 50 to 100 us;
 * and the number of threads of a stage, where the caller has not set it.
 *
 * Threads and locks: guarded by the pipeline's lock.   Blocks: never. */

#define PS_UNIT_NS 50000     /* a unit is closed once its rows are expected to take this long ... */
#define PS_UNIT_MAX_ROWS 256 /* ... or has this many */

/* With a transform_unit each call is expensive (a consumer that holds the interpreter's lock releases it
 * after 5 ms), so units are longer. They are limited so that no thread waits for rows that another one has
 * claimed. */
#define PS_UNIT_CALL_NS 20000000

/* The cost of a row is proportional to its bytes plus this constant. */
#define PS_ROW_WEIGHT 512

struct ps_cost {
	double ns_per_weight; /* mean of the last units; set by ps_cost_init() at first */
	double unit_ns;
	uint32_t unit_rows;
};

void ps_cost_init(struct ps_cost *cost);

/* For a transform_unit: long units, but at most a share of the rows that all batches hold. */
void ps_cost_init_calls(struct ps_cost *cost, uint32_t rows, uint32_t depth, uint32_t threads);

/* True if a unit of that many rows and bytes is large enough. */
bool ps_cost_is_unit(const struct ps_cost *cost, uint32_t rows, uint64_t nbytes);

/* Records that N rows (`rows`) of that many bytes took `ns`. */
void ps_cost_learn(struct ps_cost *cost, uint32_t rows, uint64_t nbytes, uint64_t ns);

/* How a stage's threads spent a span of time. */
struct ps_usage {
	double idle;    /* share in which they waited for the other stages */
	double starved; /* share in which the next stage waited for them */
};

struct ps_tune {
	bool fixed;           /* the caller set the number */
	uint32_t least, most; /* threads */
	uint32_t now;         /* threads that may run now */
};

/* The number of threads that may run from now on: fewer if they mostly wait, more if they are busy and the
 * next stage waits for them. */
uint32_t ps_tune_next(const struct ps_tune *tune, const struct ps_usage *usage);

/* Lanes -------------------------------------------------------------------------------------------------- */

/* A lane: a sequence of shards, read as blocks of samples.
 *
 * A reader thread fills one block of a lane at a time (ps_lane_fill()). The pipeline keeps the queue of
 * filled blocks, and decides which thread may fill, under its lock. A lane continues from epoch to epoch.
 *
 * Lengths not known: the last block of an epoch is marked (it may be empty), and the block after it begins
 * the next epoch. Lengths known: ps_lane_seek() finds by arithmetic the next block that holds a sample of
 * this rank, and moves to the next epoch after the last one; a block without such a sample is never read.
 * Samples that are not wanted (of other ranks, or delivered before a resume) are NULL in a block.
 *
 * Ownership: a lane owns its open shard and its queued blocks; a block owns the samples that were not taken
 * yet (at..n). Threads: ps_lane_seek() and ps_lane_fill() one at a time for one lane.   Locks: none.
 * Errors: -ENOMEM, -EMFILE, -ENFILE, -ECANCELED, -ESTALE (the position is not in these shards, or an index
 * is wrong), -ENODATA (a lane that is repeated without end has no samples); damaged data gives bad samples.
 * Blocks: ps_lane_fill() on reading; ps_lane_seek() while an epoch is made. */

struct ps_block {
	struct ps_block *next;
	uint64_t epoch;
	uint64_t begin; /* place of its first sample in the lane's epoch */
	uint32_t n, at;
	uint32_t left; /* wanted samples from `at` on */
	bool last;     /* last of the lane's epoch; set if lengths are not known */
	/* position of the sample that was read first for this block (before the shuffle), to read the block
	 * again; `taken` is set in the copies that rows get */
	struct ps_lane_position where;
	struct ps_sample *samples[];
};

/*
 * A lane's places count the samples of its epoch from 0. Samples before `from` are not wanted: a resume or a new epoch sets
 * it. `at` is the place that is read next; shard `k`, `ordinal` in that shard and `offset` in its file say where it is.
 * No sample before `next` needs to be read, as those are other ranks':
 *
 *   0 ......... from ......... at ......... next ......... end of the epoch
 *     not wanted    read already   is skipped   to be read
 */
struct ps_lane {
	/* Used by the filling thread alone. */
	uint32_t index;
	uint64_t epoch;
	struct ps_epoch *info; /* that epoch; NULL: not fetched yet */
	uint64_t at;           /* place in the lane's epoch of the sample that is read next; it is in ... */
	uint64_t k;            /* ... the k-th shard of the lane ... */
	uint64_t pass;         /* ... in this pass over the shards */
	uint32_t number;       /* place of that shard in the list, if `shard` is open */
	uint64_t ordinal;      /* the sample's place in the shard; ... */
	uint64_t copy;         /* ... this many copies of it were given */
	uint64_t offset;       /* offset of that sample in the file; 0: not known */
	/* size that the shard's file must still have: from the state of a resumed run, or from when the
	 * shard was closed; 0: any */
	uint64_t nbytes;
	uint64_t from;  /* samples before this place are not wanted any more */
	uint64_t empty; /* number of consecutive shards without a sample */
	bool gave;      /* the open shard gave a sample */
	struct ps_shard *shard;
	struct ps_shard_index *check;      /* index that the open shard is compared with; NULL: none */
	struct ps_shard_indexes *check_of; /* the set that holds `check` */
	struct ps_select_view *view;       /* of the open shard; NULL: each sample is drawn once */
	struct ps_sample *drawn;           /* the sample `ordinal`, if further copies of it follow */
	struct ps_open_files *files;       /* counter that includes `shard`; NULL: none */
	struct ps_stream_meter meter;

	/* Guarded by the pipeline's lock. */
	struct ps_block *head, *tail;
	uint32_t nqueued;
	/* in the heap of lanes to be read (claim.c); if not, a thread reads it, or it has ended */
	bool waits;
	bool sought;   /* lengths known: `next` is the beginning of a block that must be read */
	uint64_t next; /* no sample before this place needs to be read */
};

/* How many shards are open. */
struct ps_open_files {
	_Atomic uint32_t n;
	uint32_t most; /* if more are open, a lane closes its shard after each block */
};

struct ps_lane_source {
	struct ps_order *order;
	struct ps_epochs *epochs;
	char *const *shards; /* paths, by their place in the list */
	uint32_t nshards;
	struct ps_shard_indexes *indexes; /* NULL: indexes are not used */
	struct ps_select *select;         /* NULL: each sample is drawn once */
	struct ps_open_files *files;      /* NULL: not counted */
	struct ps_shard_options options;  /* stream.meter is set for each lane */
};

/* Sets a lane to the beginning of an epoch, and frees its blocks and its open shard. `hint`: a known place
 * of the sample `from` or an earlier one, where reading begins; NULL: none is known. */
void ps_lane_reset(struct ps_lane *lane, const struct ps_order *order, uint32_t index, uint64_t epoch,
        uint64_t from, const struct ps_lane_position *hint);

/* Moves to the beginning of a later epoch, as the rest of this one is not wanted. The queue is not
 * changed. */
void ps_lane_leave(struct ps_lane *lane, uint64_t epoch);

/* Finds the beginning of the lane's next block. 1: found, in *ret_next. 0: not found yet: either lane->from
 * was moved past samples that are not wanted, or the lane has no further sample in its epoch and was moved
 * to the beginning of the next one. Lengths must be known. */
int ps_lane_seek(struct ps_lane *lane, const struct ps_lane_source *source, uint64_t *ret_next,
        struct ps_error *err) PS_MUST_USE;

int ps_lane_fill(struct ps_lane *lane, const struct ps_lane_source *source, struct ps_block **ret_block,
        struct ps_error *err) PS_MUST_USE;

void ps_block_free(struct ps_block *block); /* NULL is allowed */

/* The pipeline ------------------------------------------------------------------------------------------- */

/* The pipeline's private data, shared by its files.
 *
 *   pipeline.c   creation, restart, destruction; the consumer's side
 *   threads.c    readers, which fill lanes; workers, which decode the rows that they claimed
 *   claim.c      which rows are claimed next, and from which lane; which lane is read next
 *   lane.c       a lane's shards, read as blocks of samples
 *   core.c       failures, times of stages, numbers of threads
 *
 * Locks: `lock` as marked. The functions below the ruled line need it held. */

/* Blocks queued for a lane, including the one that rows are taken from. Blocks that are not shuffled are
 * small. */
#define PS_AHEAD_SHUFFLED 2
#define PS_AHEAD_PLAIN 8
#define PS_AHEAD_PLAIN_SAMPLES 8192 /* samples of such blocks in all lanes; but two blocks a lane at least */

enum {
	PS_STAGE_READ,
	PS_STAGE_DECODE,
	PS_STAGE_CONSUMER,
};

/* What is claimed next. */
struct ps_claimed {
	struct {
		uint32_t *lanes; /* heaps (claim.c) */
		uint32_t *n;     /* lanes in each */
	} due;
	/* turn of the row claimed next; where ranks share lanes, of the step's first row */
	struct ps_turns turns;
	struct ps_dealt *dealt;         /* where ranks share lanes: the rows of `filling`, and ... */
	uint32_t dealt_at;              /* ... the index of the next one */
	uint64_t epoch;                 /* epoch of the rows claimed next */
	struct ps_epoch *info;          /* that epoch; NULL: not fetched yet */
	uint64_t seq;                   /* number of the next batch to be filled */
	uint64_t first_seq;             /* number of the first batch of `epoch` */
	struct penstock_batch *filling; /* the batch whose rows are being claimed; NULL: none yet */
};

/* What the consumer gets next, and what it waited for. */
struct ps_delivery {
	uint64_t epoch, seq;
	uint64_t first_seq;          /* number of the first batch of `epoch` */
	uint32_t nheld;              /* batches that the consumer holds */
	uint64_t empty_epochs;       /* epochs delivered without a batch */
	double blame_ns[PS_NBLAMES]; /* time of the consumer's ended waits, by what it waited for */
};

struct ps_tune_mark {
	uint64_t ns, total_ns[PENSTOCK_NSTAGES], wait_ns[PENSTOCK_NSTAGES][PS_NWAITS];
};

/* The threads' own counts. */
struct ps_running {
	uint32_t started[2]; /* readers and workers started so far */
	bool asking;         /* a worker fetches the epoch that is claimed next */
	struct ps_stream_meter meter;
	struct {
		uint64_t epoch, nbytes;
	} read_of[4]; /* bytes of `meter` that belong to the last epochs, by epoch & 3 */
	uint64_t reread;
	uint64_t nfinished; /* finished batches */
	/* while the GPU's share is tuned: the times of the GPU and the CPU after the first batches
	 * (PS_OFFLOAD_COLD) */
	struct ps_offload_meter offload_from;
	struct ps_tune_mark tuned; /* time of the last tuning, and the stages' times then */
};

struct ps_pipeline {
	struct ps_pipeline_options o;
	struct ps_byte_budget window;
	struct ps_image_gate gate; /* limits the memory of images being decoded */
	struct ps_slab_pool slabs;
	struct ps_shard_sums sums;
	struct ps_lane_source source;
	struct ps_open_files files;
	struct ps_offload_times times; /* decoding times of the GPU and the CPU */
	atomic_bool stop;              /* also read without the lock, by streams */
	int wake_fd;                   /* readable once stop is set */
	pthread_t *threads;
	uint32_t nthreads;

	struct ps_position position; /* the consumer's position, after what was delivered */
	/* Where lengths are not known: the lanes' positions after the samples that an epoch skips at its
	 * beginning, by epoch & 1. These are skipped before the epoch's first row is claimed, so no thread
	 * writes the epoch's positions after a batch of that epoch was delivered. */
	struct ps_lane_position *skipped[2];

	pthread_mutex_t lock; /* guards all below */
	pthread_cond_t work;  /* workers: a block was queued, a batch became free, an epoch was delivered */
	pthread_cond_t room;  /* readers: a lane's queue became shorter */
	/* the consumer: a batch is finished, a batch is free after all were held, an epoch has ended, or
	 * the pipeline has failed */
	pthread_cond_t ready;
	struct ps_lane *lanes;
	uint32_t nlanes;
	const struct ps_lane_set *sets; /* the order's */
	uint32_t nsets;
	uint32_t ahead;          /* most blocks queued for a lane */
	bool known;              /* the lengths of lanes are known */
	struct ps_numbers *feed; /* the feed of the epochs; NULL: none */
	struct penstock_batch **batches;
	uint32_t nbatches; /* `depth`, plus the batches that were added */
	int failed;
	struct ps_error why; /* the text of `failed` */
	struct {
		bool known;
		uint64_t seq; /* number after the epoch's last batch */
	} ends[2];            /* ends of the epochs that were claimed but not delivered, by epoch & 1 */
	struct ps_stage stages[PENSTOCK_NSTAGES];
	struct ps_cost cost;     /* the cost of rows */
	struct ps_tune tunes[2]; /* for readers and workers */
	/* for the copier: the consumer has released a batch that is still being copied (PS_BATCH_LEFT) */
	pthread_cond_t left;
	pthread_cond_t unpark;      /* for parked threads (beyond tunes[].now): `now` was raised */
	struct ps_offload offload;  /* which images the GPU decodes */
	struct ps_claimed claim;    /* written by claim.c, and by pipeline.c when a run begins */
	struct ps_delivery deliver; /* written by pipeline.c */
	struct ps_running run;      /* written by threads.c; `asking` also by pipeline.c when a run begins */
};

/* The decoding times of the GPU and the CPU so far. Takes the lock of the GPU's decoder, which may be held
 * while images are parsed. */
struct ps_offload_meter ps_pipeline_meter(struct ps_pipeline *pipeline);

/* Stops and joins all threads. */
void ps_threads_stop(struct ps_pipeline *pipeline);

/* Starts all threads, with all signals blocked: signals are for the program's own threads. */
int ps_threads_start(struct ps_pipeline *pipeline, struct ps_error *err) PS_MUST_USE;

/* The lock must be held below this line ------------------------------------------------------------------ */

/* The stages' times until now. */
void ps_tune_mark(struct ps_pipeline *pipeline, struct ps_tune_mark *ret_mark);

/* Records a failure; next() returns the first one. */
void ps_pipeline_fail(struct ps_pipeline *pipeline, int r, const struct ps_error *why);

/* Makes the batch free again. */
void ps_batch_give(struct ps_pipeline *pipeline, struct penstock_batch *batch);

/* A unit of work: consecutive rows of one batch, for one worker. If n is 0, the batch is closed and all of
 * its rows are decoded: this worker must finish it. */
struct ps_unit {
	struct penstock_batch *batch;
	uint32_t first, n;
	uint64_t nbytes; /* of its samples */
};

enum ps_claim {
	PS_CLAIMED,
	PS_NO_INPUT,
	PS_NO_ROOM,
	PS_NO_EPOCH, /* the caller must fetch claim.epoch and begin it */
};

/* True if the step that contains a position of an epoch was fed. */
static inline bool ps_feed_has(const struct ps_pipeline *p, uint64_t epoch, uint64_t position)
{
	return p->feed->epoch == epoch && position / p->feed->batch < p->feed->fed;
}

/* Sets the epoch claim.epoch as the one being claimed, and wakes the threads that waited for it. */
void ps_epoch_begin(struct ps_pipeline *pipeline, struct ps_epoch *epoch);

/* The heaps of lanes that wait to be read: all lanes that have not ended and that no thread reads. */
void ps_due_put(struct ps_pipeline *pipeline, struct ps_lane *lane);
bool ps_due_any(const struct ps_pipeline *pipeline);       /* true if a lane must be read now */
struct ps_lane *ps_due_take(struct ps_pipeline *pipeline); /* takes that lane; NULL: none */

/* Queues a block that was read, or drops it if its epoch was closed meanwhile. */
void ps_block_push(struct ps_pipeline *pipeline, struct ps_lane *lane, struct ps_block *block);

/* Removes the first block of a lane's queue, from which no further row is taken. */
void ps_block_pop(struct ps_pipeline *pipeline, struct ps_lane *lane);

/* Claims the next rows of the epoch. */
enum ps_claim ps_unit_claim(struct ps_pipeline *pipeline, struct ps_unit *ret_unit) PS_MUST_USE;

#endif
