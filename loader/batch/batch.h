/* A batch: memory made once, rows written in place by many threads, then finished by one.
 *
 *   free ──claim──▶ filling ──all rows decoded──▶ finished ──next()──▶ held ──release()──▶ free
 *                                                 (and sent)                  └▶ left ──arrived──▶ free
 *
 * On a device with memory of its own a finished batch is sent there at once; it is left where it was released
 * while its slot was still being copied.
 *
 * Who may do what when is the pipeline's business (its lock guards `state` and the counts of rows); here is
 * what happens to the memory. See slot.h for how it is laid out.
 *
 * Ownership: a batch owns its memory and the samples of its rows, which it keeps (without their bytes) for
 * keys and error texts until ps_batch_clear(). Threads: ps_batch_decode() on different rows at once; else one
 * at a time.   Locks: none. Errors: a bad sample is no error of ps_batch_decode(): it marks the row. Blocks: on the processor, and on the disk for
 * samples that are not held. */
#ifndef PS_BATCH_BATCH_H
#define PS_BATCH_BATCH_H

#include <sys/types.h>

#include "batch/field.h"
#include "batch/offload.h"
#include "batch/slot.h"
#include "device/device.h"
#include "image/gate.h"
#include "pipeline/position.h"

enum ps_batch_state {
	PS_BATCH_FREE,
	PS_BATCH_FILLING,
	PS_BATCH_FINISHED,
	PS_BATCH_HELD,
	PS_BATCH_LEFT,
};

/* What `bad` of a row says of the whole batch: it fails, whatever on_error is. */
#define PS_ROW_OVERFLOWS EOVERFLOW

struct ps_row {
	struct ps_sample *sample;
	int bad;                       /* errno, positive */
	bool lost;                     /* bad because its shard cannot be read: ps_errno_is_lost() */
	char *reason;                  /* of bad where the sample itself was sound; else NULL */
	uint32_t lane;                 /* that gave the sample ... */
	struct ps_lane_position where; /* ... and where it stands once the row is delivered */
};

/* A late field of a batch that is whole. */
struct ps_late {
	size_t data[2], mask; /* in the slot */
	uint64_t items;       /* of all rows (RAGGED), or of each (LONGEST) */
};

struct penstock_batch {
	struct ps_pipeline *pipeline; /* whom to give it back to, NULL: it is the caller's own (get.h); ... */
	pid_t pid;                    /* ... and in which process */
	const struct ps_plan *plan;
	struct ps_device *device;
	struct ps_mirror *mirror; /* of the slot; NULL: the device is the host */
	uint8_t *mem;             /* the slot; only ps_batch_finish() moves it */
	size_t mem_nbytes;
	struct ps_slot_layout at;
	uint32_t cap;               /* rows */
	uint64_t max_ragged_nbytes; /* of all late fields; 0: no limit */
	struct ps_budget *budget;   /* that late fields count against; NULL: not counted */
	struct ps_profile *profile; /* that finished batches are counted in; NULL: none */
	struct ps_nvjpeg_rows **decoded;      /* images that the GPU decodes (decode.h); NULL: none are */
	struct ps_stretch *stretches;         /* what is sent, where some are (send.h); NULL: all */
	uint64_t grown_nbytes;                /* of mem, for late fields: what was counted */

	struct ps_row *rows;
	/* By field; NULL where a field has none. */
	struct ps_piece **pieces;    /* by row; late fields */
	struct ps_boxes_map **boxes; /* by row; of kind BOXES */
	uint8_t **outputs;           /* by row, max_items each; late fields of kind OUTPUT */
	uint32_t *bad_rows;
	uint32_t *sources; /* by row: the good row that stands for it */

	/* Set by the pipeline. */
	enum ps_batch_state state;
	uint64_t seq; /* in the order of delivery, over epochs */
	uint64_t epoch, index;
	uint32_t offload; /* share of images that is offered to the GPU, of PS_OFFLOAD_ALL */
	uint32_t want;    /* rows that it is to have; 0: of a rank that has no sample in this step */
	uint32_t nrows;   /* that have a sample */
	uint32_t ndone;   /* of them decoded */
	bool closed;      /* no more rows will come */
	bool drop;        /* closed, and not to be delivered */
	bool pad;         /* fill up to cap when finishing */

	/* Set by ps_batch_finish(). */
	uint32_t out_rows;
	uint32_t nbad;
	bool blank; /* no row has a good sample */
	struct ps_late *late; /* by field, and of the keys */
	size_t used;       /* bytes of the slot */
	struct ps_mix mix; /* what was drawn for it, for the fields that the device makes */
	int failed;
	struct ps_load_error why; /* of failed */

	/* Bytes of decoded rows that late fields will copy; past the limit no more are read, and the batch
	 * fails. Relaxed: a count, it guards nothing else. */
	_Atomic uint64_t ragged_nbytes;
};

/* What one decoding thread needs. */
struct ps_batch_worker {
	struct ps_image_decoder *decoders[PS_PLAN_MAX_FIELDS];
	struct ps_mask_decoder *masks[PS_PLAN_MAX_FIELDS];
	struct ps_nvjpeg_worker *nvjpeg; /* decodes on the GPU; NULL: there is none */
	struct ps_offload_times *times;  /* of both; borrowed; NULL: not measured */
	uint64_t seed;
	uint64_t reread;               /* samples whose bytes were read again */
	struct ps_image_ticket ticket; /* of the image under way */
	struct ps_scratch {
		uint8_t *p;
		size_t nbytes;
	} scratch[PS_PLAN_MAX_FIELDS]; /* by field: its elements before their place is known */
};

/* Bytes of one batch, late fields apart. -E2BIG: more than memory can have; -ENOMEM. */
int ps_batch_nbytes(const struct ps_plan *plan, uint32_t rows, size_t *ret_nbytes, struct ps_load_error *err)
        PS_MUST_USE;

int ps_batch_init(struct penstock_batch *batch, const struct ps_plan *plan, struct ps_device *device,
        uint32_t rows, struct ps_load_error *err) PS_MUST_USE;
/* Blocks until copies are over, and what streams of the consumer were given before. */
void ps_batch_fini(struct penstock_batch *batch);

/* gate: of what images may hold together; NULL: no limit. The worker must stay where it is. */
int ps_batch_worker_init(struct ps_batch_worker *worker, const struct ps_plan *plan, uint64_t seed,
        struct ps_image_gate *gate, struct ps_load_error *err) PS_MUST_USE;
void ps_batch_worker_fini(struct ps_batch_worker *worker);

/* Writes row `row` from rows[row].sample, or marks it bad. */
void ps_batch_decode(struct penstock_batch *batch, uint32_t row, struct ps_batch_worker *worker);

/* Fills bad and padded rows, late fields and ids. On failure batch->failed and why are set, and out_rows is
 * 0. */
void ps_batch_finish(struct penstock_batch *batch);

/* Begins the copy of a finished batch to its device (send.h); nothing where that is the host. */
int ps_batch_send(struct penstock_batch *batch, struct ps_load_error *err) PS_MUST_USE;

/* The consumer has done with it, but for what its streams were given. *ret_arrived: its slot may be written.
 */
int ps_batch_leave(struct penstock_batch *batch, bool *ret_arrived, struct ps_load_error *err) PS_MUST_USE;

/* Until the slot may be written. */
int ps_batch_wait(struct penstock_batch *batch, struct ps_load_error *err) PS_MUST_USE;

/* Forgets the rows; the memory stays. */
void ps_batch_clear(struct penstock_batch *batch);

/* Why row `row` is bad: a text for a person; never NULL. */
const char *ps_batch_reason(const struct penstock_batch *batch, uint32_t row);

/* Lets go of a sample's bytes but those of the members in `keep`, one a field of the plan; NULL: of all. */
void ps_batch_bytes_drop(
        const struct ps_plan *plan, struct ps_sample *sample, struct ps_sample_field *const *keep);

/* A late field's elements of a row in memory of the worker, until it decodes the row's next; NULL: no memory.
 */
const void *ps_batch_late_peek(const struct penstock_batch *batch, uint32_t field, uint32_t row,
        struct ps_batch_worker *worker) PS_MUST_USE;

/* Writes a piece of row `row` to dst: boxes where its image's crop puts them. */
void ps_batch_piece_write(const struct penstock_batch *batch, uint32_t field, uint32_t row,
        const struct ps_piece *piece, uint32_t plane, void *dst);

/* The items of row `row`. */
uint64_t ps_batch_items(const struct penstock_batch *batch, uint32_t field, uint32_t row);

/* Row `row` of a field in place. */
static inline uint8_t *ps_batch_row(
        const struct penstock_batch *b, uint32_t field, uint32_t plane, uint32_t row)
{
	return b->mem + b->at.fields[field].data[plane] + row * b->plan->fields[field].row_nbytes;
}

#endif
