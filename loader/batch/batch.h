/* A batch: memory made once, rows written in place by many threads, then finished by one.
 *
 *   free ──claim──▶ filling ──all rows decoded──▶ finished ──next()──▶ held ──release()──▶ free
 *
 * Who may do what when is the pipeline's business (its lock guards `state` and the counts of rows); here is
 * what happens to the memory.
 *
 * Ownership: a batch owns its memory and the samples of its rows, which it keeps (without their bytes) for
 * keys and error texts until ps_batch_clear(). Threads: ps_batch_decode() on different rows at once; else one
 * at a time.   Locks: none. Errors: a bad sample is no error of ps_batch_decode(): it marks the row.
 * ps_batch_finish() fails with -EBADMSG if no row is good. Blocks: on the processor, and on the disk for
 * samples that are not held. */
#ifndef PS_BATCH_BATCH_H
#define PS_BATCH_BATCH_H

#include <sys/types.h>

#include "batch/plan.h"
#include "device/device.h"
#include "pipeline/position.h"

#define PS_BATCH_KEYS PS_PLAN_MAX_FIELDS /* the ragged field of the keys */

enum ps_batch_state {
	PS_BATCH_FREE,
	PS_BATCH_FILLING,
	PS_BATCH_FINISHED,
	PS_BATCH_HELD,
};

struct ps_row {
	struct ps_sample *sample;
	int bad;                       /* errno, positive */
	char *reason;                  /* of bad where the sample itself was sound; else NULL */
	uint32_t lane;                 /* that gave the sample ... */
	struct ps_lane_position where; /* ... and where it stands once the row is delivered */
};

struct ps_ragged {
	uint64_t *offsets;
	uint8_t *values;
	size_t cap;
};

struct penstock_batch {
	struct ps_pipeline *pipeline; /* whom to give it back to ... */
	pid_t pid;                    /* ... and in which process */
	const struct ps_plan *plan;
	const struct ps_device_ops *device;
	void *mem;
	size_t mem_nbytes;
	uint32_t cap;               /* rows */
	uint64_t max_ragged_nbytes; /* of all ragged fields; 0: no limit */
	struct ps_budget *budget;   /* that ragged values count against; NULL: not counted */

	void *fixed[PS_PLAN_MAX_FIELDS]; /* NULL for ragged fields */
	struct ps_ragged ragged[PS_PLAN_MAX_FIELDS + 1];
	uint8_t *valid;
	int64_t *shard_ids, *sample_ids;
	struct ps_row *rows;
	uint32_t *bad_rows;

	/* Set by the pipeline. */
	enum ps_batch_state state;
	uint64_t seq; /* in the order of delivery, over epochs */
	uint64_t epoch, index;
	uint32_t nrows; /* that have a sample */
	uint32_t ndone; /* of them decoded */
	bool closed;    /* no more rows will come */
	bool drop;      /* closed, and not to be delivered */
	bool pad;       /* fill up to cap when finishing */

	/* Set by ps_batch_finish(). */
	uint32_t out_rows;
	uint32_t nbad;
	int failed;
	struct ps_load_error why; /* of failed */

	/* Bytes of decoded rows that ragged fields will copy; past the limit no more are read, and the batch
	 * fails. Relaxed: a count, it guards nothing else. */
	_Atomic uint64_t ragged_nbytes;
};

/* What one decoding thread needs. */
struct ps_batch_worker {
	struct ps_image_decoder *decoders[PS_PLAN_MAX_FIELDS];
	uint64_t seed;
	uint64_t reread; /* samples whose bytes were read again */
};

/* Bytes of one batch, ragged values apart. False: more than memory can have. */
bool ps_batch_nbytes(const struct ps_plan *plan, uint32_t rows, size_t *ret_nbytes);

int ps_batch_init(struct penstock_batch *batch, const struct ps_plan *plan,
        const struct ps_device_ops *device, uint32_t rows, struct ps_load_error *err) PS_MUST_USE;
void ps_batch_fini(struct penstock_batch *batch);

int ps_batch_worker_init(struct ps_batch_worker *worker, const struct ps_plan *plan, uint64_t seed,
        struct ps_load_error *err) PS_MUST_USE;
void ps_batch_worker_fini(struct ps_batch_worker *worker);

/* Writes row `row` from rows[row].sample, or marks it bad. */
void ps_batch_decode(struct penstock_batch *batch, uint32_t row, struct ps_batch_worker *worker);

/* Fills bad and padded rows, ragged fields and ids. On failure batch->failed and why are set, and out_rows is
 * 0. */
void ps_batch_finish(struct penstock_batch *batch);

/* Forgets the rows; the memory stays. */
void ps_batch_clear(struct penstock_batch *batch);

/* Why row `row` is bad: a text for a person; never NULL. */
const char *ps_batch_reason(const struct penstock_batch *batch, uint32_t row);

#endif
