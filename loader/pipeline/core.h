/* The pipeline's own data: what its files share, and nobody else may see.
 *
 *   pipeline.c   made, restarted, freed; the consumer's side
 *   claim.c      which rows come next, and whose turn it is
 *   due.c        which lane is read next
 *   threads.c    readers that fill lanes, workers that decode what they claimed
 *
 * Locks: `lock` as marked. The functions below the ruled line need it held. */
#ifndef PS_PIPELINE_CORE_H
#define PS_PIPELINE_CORE_H

#include <pthread.h>

#include "image/gate.h"
#include "pipeline/pipeline.h"
#include "pipeline/tune.h"

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
	struct ps_budget window;
	struct ps_image_gate gate; /* of what images hold while they are decoded */
	struct ps_slab_pool slabs;
	struct ps_lane_source source;
	struct ps_open_files files;
	struct ps_offload_times times; /* of the engines */
	atomic_bool stop;              /* also read without the lock, by streams */
	int wake_fd;                   /* readable once stop is set */
	pthread_t *threads;
	uint32_t nthreads;

	struct ps_position position; /* the consumer's: behind what was delivered */
	/* Where lengths are not known: the lanes' places behind what an epoch skips at its beginning, by epoch & 1.
	 * All of it is skipped before the first row is claimed, so nobody writes them once a batch is delivered. */
	struct ps_lane_position *skipped[2];

	pthread_mutex_t lock; /* all below */
	pthread_cond_t work;  /* workers: a block was queued, a batch became free, an epoch was delivered */
	pthread_cond_t room;  /* readers: a lane's queue became shorter */
	pthread_cond_t ready; /* the consumer: a batch is finished, an epoch has ended, something failed */
	struct ps_lane *lanes;
	uint32_t nlanes;
	const struct ps_lane_set *sets; /* the order's */
	uint32_t nsets;
	uint32_t ahead; /* most blocks queued for a lane */
	bool known;     /* the lengths of lanes are */
	struct ps_numbers *feed; /* the epochs'; NULL: nothing is fed */
	struct {
		uint32_t *lanes; /* heaps (due.c) */
		uint32_t *n;     /* lanes in each */
	} due;
	struct ps_turns turns; /* of the row claimed next; of several ranks' rows: of the step's first */
	/* The rows of `filling`, where ranks share lanes: */
	struct ps_dealt *dealt;
	uint32_t dealt_at; /* the next one */
	struct ps_epoch *claiming; /* of claim_epoch; NULL: to be asked for */
	bool asking;               /* a worker does */
	struct penstock_batch *batches;
	struct penstock_batch *filling; /* rows are claimed in it; NULL: none yet */
	uint64_t claim_epoch;           /* of the rows claimed next */
	uint64_t claim_seq;             /* of the next batch to be filled */
	uint64_t epoch_seq;             /* of the first batch of claim_epoch */
	struct {
		bool known;
		uint64_t seq; /* behind the epoch's last batch */
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

/* -- The lock must be held below this line ------------------------------------------------------------ */

/* The stages' times until now. */
void ps_tune_mark(struct ps_pipeline *pipeline, struct ps_tune_mark *ret_mark);

/* The first failure is the one that next() gives. */
void ps_pipeline_fail(struct ps_pipeline *pipeline, int r, const struct ps_load_error *why);

/* The batch is free again. */
void ps_batch_give(struct ps_pipeline *pipeline, struct penstock_batch *batch);

/* A run of rows of one batch, for one worker. Without rows (n 0) it says that the batch is closed and all of its
 * rows are decoded, so that this worker is the one to finish it. */
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

/* Takes over what is known of claim_epoch. */
void ps_epoch_begin(struct ps_pipeline *pipeline, struct ps_epoch *epoch);

/* The row claimed next, where ranks share lanes; NULL: no batch is being filled, or they do not. */
const struct ps_dealt *ps_row_due(const struct ps_pipeline *pipeline);

/* Lanes that nobody reads, or has in hand to read: all but those that have ended. */
int ps_due_init(struct ps_pipeline *pipeline) PS_MUST_USE; /* -1: no memory */
void ps_due_fini(struct ps_pipeline *pipeline);
void ps_due_clear(struct ps_pipeline *pipeline);
void ps_due_put(struct ps_pipeline *pipeline, struct ps_lane *lane);
bool ps_due_any(const struct ps_pipeline *pipeline);          /* one of them is to be read now */
struct ps_lane *ps_due_take(struct ps_pipeline *pipeline); /* that one, or NULL */

/* A block that nothing more is taken from: the first of a lane's queue. */
void ps_block_pop(struct ps_pipeline *pipeline, struct ps_lane *lane);

/* Claims the next rows of the epoch. */
enum ps_claim ps_unit_claim(struct ps_pipeline *pipeline, struct ps_unit *ret_unit) PS_MUST_USE;

#endif
