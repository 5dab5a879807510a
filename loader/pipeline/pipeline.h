/* The threads between shards and batches.
 *
 *   readers            workers                             consumer
 *   fill blocks  ───▶  claim rows in the order of turns,   takes finished batches in order
 *   of lanes           decode them into a batch; the last
 *                      one of a batch finishes it, and      copier, on a device with memory of its own
 *                      sends it to the device               gives batches back once they have arrived there
 *
 * Rows are claimed in the order of the epoch, under the lock, so the order of samples does not depend on
 * the threads. Rows are decoded without the lock. A slow row delays its own batch alone: other workers
 * continue with the next batches.
 *
 * Ownership: the pipeline owns batches, lanes and threads; it borrows order, epochs, indexes, shards and
 * layout.
 * Threads: next, wait, delivered, position, restart and free one at a time; release and stats any.
 * Locks: one, `lock`, over lanes' queues, turns, states of batches and statistics; never held over reading,
 * decoding, or finishing. Errors: 0 or -errno with a text; -EBUSY: all batches are held. Blocks: next()
 * until a batch is finished; restart and free until reads and decodes in progress are over. */
#ifndef PS_PIPELINE_PIPELINE_H
#define PS_PIPELINE_PIPELINE_H

#include "batch/batch.h"
#include "order/order.h"
#include "shard/shard.h"

enum ps_wait {
	PS_WAIT_INPUT,  /* for the stage's input */
	PS_WAIT_OUTPUT, /* for room for the stage's output */
	PS_NWAITS,
};

/* The stage that made the consumer wait. */
enum ps_blame {
	PS_BLAME_STORAGE,
	PS_BLAME_READ,
	PS_BLAME_DECODE,
	PS_NBLAMES,
};

struct ps_pipeline_options {
	struct ps_order *order;
	struct ps_epochs *epochs;
	struct ps_shard_indexes *indexes; /* NULL: not used */
	struct ps_select *select;         /* NULL: each sample is drawn once */
	char *const *shards;
	uint32_t nshards;
	struct ps_batch_layout *layout;
	enum ps_shard_kind source;
	struct ps_windows windows;               /* windows of token streams */
	struct ps_packing *packing;              /* packed rows of token files; NULL: none */
	const struct ps_columns_source *columns; /* NULL: shards are files */
	const char *index_dir;                   /* borrowed; NULL: beside the shards */
	struct ps_device *device;                /* borrowed */
	/* decodes images of batches; borrowed; NULL: the CPU decodes all */
	struct ps_nvjpeg *nvjpeg;
	struct ps_offload offload; /* with `nvjpeg`: which images it decodes */
	uint32_t rows, depth, threads, readers;
	struct ps_byte_budget *shared;   /* budget shared by several loaders; NULL: none */
	struct ps_profile *profile;      /* NULL: not kept */
	bool tune_threads, tune_readers; /* tune how many of them run */
	uint64_t seed;
	uint64_t end_epoch; /* the first epoch that is not run */
	enum penstock_end end;
	uint32_t open_files;    /* most shards that stay open; 0: one */
	size_t buf_nbytes;      /* buffer of a read */
	uint64_t image_nbytes;  /* limit of memory for images being decoded; one alone may exceed it */
	uint64_t window_nbytes; /* limit of memory for samples */
	uint64_t max_sample_nbytes;
	uint64_t max_ragged_nbytes;
};

struct ps_pipeline;

/* Allocates all batches and starts the threads. Begins at `position`, which is copied. The position has as
 * many lanes as the order, or none (`lanes` NULL): then the run begins at the beginning of the position's
 * epoch. */
int ps_pipeline_new(const struct ps_pipeline_options *options, const struct ps_position *position,
        struct ps_pipeline **ret_pipeline, struct ps_error *err) PS_MUST_USE;

/* Drops all batches that are not held and continues from a position. */
int ps_pipeline_restart(
        struct ps_pipeline *pipeline, const struct ps_position *position, struct ps_error *err) PS_MUST_USE;

/* Stops the threads, which ps_pipeline_restart() starts again: for a change of the epochs. */
void ps_pipeline_stop(struct ps_pipeline *pipeline);

/* Takes another order, for which the epochs were set. The threads must be stopped, and ps_pipeline_restart()
 * must follow. -ENOMEM: then the pipeline can only be freed, or be given an order again. */
int ps_pipeline_reorder(
        struct ps_pipeline *pipeline, struct ps_order *order, struct ps_error *err) PS_MUST_USE;

/* 1: a batch; 0: the end of an epoch. A batch that could not be finished is returned too, with
 * batch->failed set. */
int ps_pipeline_next(
        struct ps_pipeline *pipeline, struct penstock_batch **ret_batch, struct ps_error *err) PS_MUST_USE;

/* Feeds a step of the epoch that is being delivered (order/order.h); n 0: ends that epoch. 1: there is room
 * for another step; 0: there is none until a batch is delivered, or the epoch takes no more steps. The order
 * must be a feed. next() returns -EAGAIN where it would wait for a step to be fed. */
int ps_pipeline_feed(
        struct ps_pipeline *pipeline, const int64_t *numbers, uint32_t n, struct ps_error *err) PS_MUST_USE;

/* Waits until next() would not block; false: timeout. */
bool ps_pipeline_wait(struct ps_pipeline *pipeline, uint32_t timeout_ms);

/* While all batches are held: waits until one is released; false: timeout. */
bool ps_pipeline_wait_released(struct ps_pipeline *pipeline, uint32_t timeout_ms);

/* Bytes of the largest batch that is held, late fields included. */
uint64_t ps_pipeline_held_nbytes(struct ps_pipeline *pipeline);

/* Adds a batch. Its bytes are taken from the window's own limit, not from `shared`. Threads: as next(). */
int ps_pipeline_add_batch(struct ps_pipeline *pipeline, uint64_t nbytes, struct ps_error *err) PS_MUST_USE;

/* Moves the position past the batch that next() returned. */
void ps_pipeline_delivered(struct ps_pipeline *pipeline, const struct penstock_batch *batch);

/* The position after all that was delivered. Borrowed until the next call of next(), delivered() or
 * restart(). */
const struct ps_position *ps_pipeline_position(const struct ps_pipeline *pipeline);

/* True if next() would return the first batch of that epoch, and nothing was fed. */
bool ps_pipeline_stands_at(struct ps_pipeline *pipeline, uint64_t epoch);

/* The share of images that the GPU decodes. A new share holds for batches that are begun after the call. */
void ps_pipeline_offload(struct ps_pipeline *pipeline, struct ps_offload *ret_offload);
void ps_pipeline_set_offload(struct ps_pipeline *pipeline, const struct ps_offload *offload);

void ps_pipeline_release(struct penstock_batch *batch);

struct ps_pipeline_stats {
	uint64_t nbytes_read;
	uint64_t reread;
	uint64_t empty_epochs;
	uint32_t readers, workers;
	uint64_t total_ns[PENSTOCK_NSTAGES];
	uint64_t wait_ns[PENSTOCK_NSTAGES][PS_NWAITS];
	uint64_t blame_ns[PS_NBLAMES]; /* the sum is the consumer's waiting time */
	uint64_t engine_images, hybrid_images, cpu_images;
	uint32_t offload; /* share of the next batch */
	struct ps_offload_costs costs;
};

void ps_pipeline_stats(struct ps_pipeline *pipeline, struct ps_pipeline_stats *ret_stats);

/* The part of nbytes_read that belongs to `epoch`, which must be the epoch read last or one of the three
 * before it; else 0. */
uint64_t ps_pipeline_epoch_nbytes(struct ps_pipeline *pipeline, uint64_t epoch);

/* The options with which the pipeline reads shards. */
const struct ps_shard_options *ps_pipeline_reading(const struct ps_pipeline *pipeline);

/* NULL is allowed. */
void ps_pipeline_free(struct ps_pipeline *pipeline);

/* In a forked child: frees the batches' memory. Threads, locks and guarded data are not touched. */
void ps_pipeline_abandon(struct ps_pipeline *pipeline);

#endif
