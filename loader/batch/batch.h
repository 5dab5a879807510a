/* Batches: the layout made from the options' fields, and samples decoded into rows of a slot.
 *
 * From the top down; each file uses those below it:
 *
 *   finish.c         completes a decoded batch: replaces bad rows, pads, writes late fields, mixes
 *   row.c            decodes one sample into one row, and calls the caller's transform
 *   image_fields.c   images of a row, decoded by a CPU thread or the GPU, and their masks and boxes
 *   copy.c           which parts of a slot are copied to the device; fields that the device finishes
 *   batch.c          a batch's memory and states; how a slot is laid out
 *   layout.c         the fields of the options, checked: the form of their rows, their elements
 *   layout_field.c   one field: its defaults, its names
 *   tokens.c         packed rows of tokens and their parts
 *   fields.c         how a member's bytes become elements; json.c and base/npy.h read them
 *   gpu_share.c      which samples a GPU decodes
 *   profile.c        sizes and means of delivered data
 *
 * Ownership, threads, locks, errors, blocking: as each section says. */
#ifndef PS_BATCH_BATCH_H
#define PS_BATCH_BATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/npy.h"
#include "device/device.h"
#include "image/image.h"
#include "order/order.h"
#include "penstock.h"
#include "shard/file/file.h"
#include "shard/shard.h"

/* Layouts ------------------------------------------------------------------------------------------------ */

/* The layout of a batch: the fields of the options, checked and prepared.
 *
 * Ownership: a layout belongs to its creator and copies what it needs of the options.
 * Threads: any, once made.   Locks: none.   Blocks: never.
 * Errors: -EINVAL with a text that names the field; -ENOMEM. */

#define PS_LAYOUT_MAX_FIELDS PS_SAMPLE_MAX_FIELDS
#define PS_MISSING_VALUE (-1) /* default of missing_value */
#define PS_LAYOUT_MAX_ALTERNATIVES 16

/* How the rows of a field are stored in a batch. An item is one step along a row's first dimension; a
 * scalar is one item. "In place" means that each row's place in the slot is known before it is decoded; the
 * other forms are late fields. */
enum ps_form {
	PS_FORM_FIXED,   /* each row has the same number of items, in place */
	PS_FORM_PADDED,  /* each row has room for pad_to items, in place */
	PS_FORM_RAGGED,  /* rows back to back, with offsets; sized when the batch is complete */
	PS_FORM_LONGEST, /* rows padded to the longest; sized when the batch is complete */
};

/* Tensors that tell the parts of packed rows. */
enum {
	PS_PART_POSITIONS = 1,
	PS_PART_SEGMENTS = 2,
	PS_PART_MASK = 4,
	PS_PART_CU = 8, /* also NAME:longest */
	PS_PART_DOCUMENT = 16,
};

struct ps_field_ops;
struct ps_piece;

struct ps_layout_field {
	char *name; /* as given */
	/* the member that the field is read from, as given; NULL: `name` is also the member's */
	char *member;
	char *names;        /* the alternative suffixes in lower case, each zero-terminated */
	uint32_t n_tensors; /* tensors of the field in a batch: itself and ... */
	/* ... NAME:y, NAME:lengths, NAME:mask, or those of packed rows, if the field has them */
	char *companions[8];
	uint32_t n_names;
	uint32_t name_len[PS_LAYOUT_MAX_ALTERNATIVES];
	/* path of a value in a JSON member, stored in `names` after the suffix; NULL: the whole member */
	const char *path;
	enum penstock_kind kind;
	bool optional;
	bool hidden; /* passed to the transform, not part of the batch */
	/* numbers are rounded to the field's float type; false: they must be exact */
	bool rounds;
	const struct ps_field_ops *ops; /* NULL: images and masks */
	struct ps_image_spec image;     /* PENSTOCK_IMAGE */
	struct ps_mask_spec mask;       /* PENSTOCK_MASK */
	enum ps_box_format box_format;  /* PENSTOCK_BOXES */
	bool box_shares;
	double min_area, min_visible; /* boxes below these are dropped */
	/* The boxes field whose dropped boxes this field drops, which may be the field itself; -1: none. */
	int drops_with;
	int leader; /* the image field whose crop and flips this field follows; -1: none */
	/* images: index of the field that decodes the member's image for this field; may be this field */
	uint32_t decoded_by;
	bool mixed_label; /* plane 1 is the label of the row that the row is mixed with */
	/* an image that the device finishes (device/device.h): in the slot a row is u8 planes ... */
	bool made;
	size_t made_row_nbytes;     /* ... and on the device it has this size */
	uint32_t made_what;         /* the PS_IMAGE_ bits that its images may have; 0: no ops are needed */
	enum ps_dtype dtype;        /* type of the elements ... */
	enum ps_dtype source_dtype; /* ... and in raw members of tokens */
	enum ps_form form;
	uint32_t planes;                       /* tensors of the same form: 2 (tokens, mixed labels) or 1 */
	uint32_t ndim;                         /* dimensions of a row; 0: a scalar */
	uint64_t shape[PENSTOCK_MAX_DIMS - 1]; /* shape of a row; shape[0] is 0 where rows differ */
	size_t item_elements;                  /* elements of an item ... */
	size_t item_nbytes;                    /* ... and its bytes */
	uint64_t row_items;                    /* items of a row; FIXED and PADDED */
	size_t row_nbytes;                     /* bytes of one plane of a row; 0: RAGGED and LONGEST */
	uint64_t max_items;                    /* most items of a row; UINT64_MAX: no limit */
	/* LONGEST: rows are padded to a multiple of this; at least 1 */
	uint32_t pad_multiple;
	enum penstock_overflow overflow;
	uint8_t missing[8], pad[8]; /* one element: the missing value, the padding value */
	/* integers: rows without a sample are filled with `missing`; false: with zeros */
	bool has_missing;
	/* TOKENS in packed rows: */
	enum ps_pack pack;
	uint32_t parts;          /* PS_PART_ bits */
	uint32_t cu_pad;         /* parts of each batch; 0: as many as there are */
	uint64_t vocab;          /* tokens are below this; 0: any */
	const char *offset_name; /* name in add_offset_of, until that field is found; borrowed */
	int offset_of;           /* the field whose items the offset counts (add_offset_of); -1: none */
};

/* True for fields that are sized only when all rows of a batch are known. */
static inline bool ps_field_is_late(const struct ps_layout_field *f)
{
	return f->form == PS_FORM_RAGGED || f->form == PS_FORM_LONGEST;
}

static inline bool ps_field_is_padded(const struct ps_layout_field *f)
{
	return f->form == PS_FORM_PADDED || f->form == PS_FORM_LONGEST;
}

struct ps_batch_layout {
	penstock_transform transform;           /* one row; NULL: none */
	penstock_transform_unit transform_unit; /* a unit of rows; NULL: none */
	void (*transform_leave)(void *ctx);
	void *transform_ctx;
	bool mixes; /* batches are mixed (CutMix, MixUp), as `mix` says */
	struct ps_mix_spec mix;
	uint64_t seed;
	uint32_t nfields;
	struct ps_layout_field fields[PS_LAYOUT_MAX_FIELDS];
};

/* The fields of the options must be structs of this library's full size. */
int ps_batch_layout_new(const struct penstock_options *options, struct ps_batch_layout **ret_layout,
        struct ps_error *err) PS_MUST_USE;
void ps_batch_layout_free(struct ps_batch_layout *layout); /* NULL is allowed */

/* The name of a kind, "image" for example; "?": unknown. */
const char *ps_layout_kind_name(uint32_t kind);

/* The windows that token streams are cut into, for the first field of tokens with a fixed length; nbytes is
 * 0 if there is none. `stride` in tokens; 0: the field's length. The suffix is borrowed from the layout. */
int ps_layout_windows(const struct ps_batch_layout *layout, uint64_t stride, struct ps_windows *ret_windows,
        struct ps_error *err) PS_MUST_USE;

/* How token files are packed into rows, for the field that asks for it. NULL: none does. */
const struct ps_layout_field *ps_layout_packed(const struct ps_batch_layout *layout);

/* True if a field is read from members with that suffix. `layout` is a struct ps_batch_layout. */
bool ps_layout_wants(void *layout, const char *suffix, size_t len);

/* The sample's member for a field: the first of the field's alternatives that the sample has, or NULL. */
struct ps_sample_field *ps_layout_find(const struct ps_layout_field *field, struct ps_sample *sample);

/* The place of the field that is named `name` or has it as an alternative; -1: none. */
int ps_layout_lookup(const struct ps_batch_layout *layout, const char *name, size_t len);

/* Sets `made` on the image fields whose pixels change after the resize; with `all`, on all image fields,
 * since the GPU may decode any of them. Wide images (image/image.h) are never made by the device. */
void ps_make_layout(struct ps_batch_layout *layout, bool all);

/* Slots -------------------------------------------------------------------------------------------------- */

/* Where the parts of a batch are in its one piece of memory (its slot).
 *
 *   0                                                      fixed_nbytes                     used
 *   | field 0 | ... | field n | offsets and ids            | late field | ... | late field | room |
 *
 * Each array begins at a multiple of PS_SLOT_ALIGN and holds its rows without gaps. Fields in place come in
 * the order of the options, each followed by its second plane (NAME:y), lengths and mask. Late fields
 * (ragged, or padded to the longest row) follow when the batch is complete and their sizes are known; the
 * memory grows for them and is not shrunk. One copy of [0, used) moves a whole batch to a device, where
 * offsets are the same; copy.c says which parts need no copy.
 *
 * A field that the device makes (device/device.h) has u8 planes in the slot, followed by a struct
 * ps_image_ops for each image. The field's elements exist on the device alone: the mirror has a part for such
 * fields, and `made` is an offset in it.
 *
 * Threads: any; a layout does not change.   Errors: false: larger than the address space, or out of
 * memory. */

#define PS_SLOT_ALIGN 256 /* covers a cache line, any vector, and the alignment of CUDA's own allocations */
#define PS_SLOT_NONE SIZE_MAX

#define PS_SLOT_KEYS(layout) \
	((layout)->nfields) /* the place of the keys among the late fields: after all the others */

struct ps_slot_field {
	size_t data[2]; /* the rows, by plane; PS_SLOT_NONE for late fields */
	size_t lengths; /* an int64 for each row; padded fields */
	size_t mask;    /* a byte for each item; padded fields; PS_SLOT_NONE for late ones; packed rows */
	size_t positions, segments; /* int32 for each item; packed rows */
	size_t offsets;             /* uint64, rows + 1; ragged fields */
	/* struct ps_image_ops of fields that the device makes and transforms; else PS_SLOT_NONE */
	size_t ops;
	size_t made; /* offset in the mirror's part for made fields, not in the slot */
};

struct ps_slot_layout {
	uint32_t rows;
	struct ps_slot_field *fields; /* the layout's fields, then the keys; the caller frees it */
	size_t valid, shards, samples;
	size_t mix_lambda, mix_row; /* a float and an int64 for each row, where the layout mixes */
	size_t fixed_nbytes;
	size_t made_nbytes;
};

/* Places an array of n elements of `nbytes` after *used, and moves *used past it. False: too large. */
bool ps_slot_place(size_t *used, size_t n, size_t nbytes, size_t *ret_at) PS_MUST_USE;

/* The GPU's share of samples ----------------------------------------------------------------------------- */

/* Which samples a GPU decodes (device/device.h); the CPU decodes the others.
 *
 * Which engine decodes a sample is a pure function of (seed, shard, sample) and of the share in force for
 * its batch: the GPU takes the sample if the sample's 16-bit random number is below the share. So threads,
 * world size and the place where a run was stopped do not change it, and a larger share includes all
 * samples of a smaller one.
 *
 * The share is given by the caller, or tuned: the first batches use a share of one half, and both engines are
 * timed. Then the share is frozen at the value with which both engines would finish at the same time. It
 * holds from the next batch that is begun. state.c saves it.
 *
 *   tuning ── ps_offload_settle() ──▶ frozen, from (epoch, batch) on; one half before that
 *
 * Threads: ps_offload_count() any; the rest one at a time (the pipeline's lock).   Errors: none.   Blocks:
 * never. */

#define PS_OFFLOAD_ALL 65536u /* out of 65536: every sample that the GPU can decode */
#define PS_OFFLOAD_HALF 32768u

/* The share, as states save it. All zero: the CPU decodes everything. */
struct ps_offload {
	bool tuning;    /* not frozen yet: the share is one half */
	uint32_t share; /* if frozen: 0 to PS_OFFLOAD_ALL, in force ... */
	uint64_t epoch; /* ... from this epoch on, ... */
	uint64_t batch; /* ... and there from this batch on; before it the share is one half */
};

/* Decoding times of the engines so far. Relaxed atomics: counters. */
struct ps_offload_times {
	_Atomic uint64_t cpu_rows, cpu_ns; /* rows that the CPU decoded, and its threads' time for them */
	_Atomic uint64_t gpu_rows, gpu_ns; /* rows given to the GPU, and the CPU threads' time for them */
};

/* A snapshot of these times and of the GPU's own. */
struct ps_offload_meter {
	uint64_t cpu_rows, cpu_ns, gpu_rows, gpu_ns;
	/* decoded by the GPU's JPEG engine alone; by the GPU with CPU threads (hybrid) */
	uint64_t engine_rows, hybrid_rows;
	uint64_t timed_rows, timed_ns; /* rows of the JPEG engine that were timed, and their time */
};

/* Counts a row that the CPU decoded, or that was given to the GPU, with the CPU's time for it. */
void ps_offload_count(struct ps_offload_times *times, bool given, uint64_t ns);

struct ps_offload_meter ps_offload_read(const struct ps_offload_times *times);

/* The share in force for a batch. */
uint32_t ps_offload_at(const struct ps_offload *offload, uint64_t epoch, uint64_t batch);

bool ps_offload_takes(uint32_t share, uint64_t seed, uint64_t shard, uint64_t sample) __attribute__((const));

/* The cost of a row in seconds, by engine; cpu_give: the CPU's part of a row that the GPU decodes. 0: not
 * known. */
struct ps_offload_costs {
	double cpu, cpu_give, gpu;
};

/* The costs between two snapshots. The cost of an engine with fewer rows than `least` is 0. */
struct ps_offload_costs ps_offload_costs_of(
        const struct ps_offload_meter *from, const struct ps_offload_meter *to, uint64_t least);

/* The share with which N CPU threads (`threads`) and the GPU finish at the same time. */
uint32_t ps_offload_balance(const struct ps_offload_costs *costs, uint32_t threads);

#define PS_OFFLOAD_COLD 4u  /* first batches, not counted: libraries are still starting */
#define PS_OFFLOAD_LEAST 8u /* the share is frozen after this many batches at the earliest, ... */
#define PS_OFFLOAD_MOST 64u /* ... and at the latest; if a cost is unknown then, the CPU decodes everything */
#define PS_OFFLOAD_ROWS 64u /* rows that an engine must have had for its cost to be known */

/* Freezes the share if enough is known after `nbatches` batches. The share must be tuning. (epoch, batch):
 * the next batch that begins. */
void ps_offload_settle(struct ps_offload *offload, uint64_t nbatches, const struct ps_offload_costs *costs,
        uint32_t threads, uint64_t epoch, uint64_t batch);

/* Batches ------------------------------------------------------------------------------------------------ */

/* A batch: memory made once, rows written in place by many threads, then finished by one.
 *
 *   free ──claim──▶ filling ──all rows decoded──▶ finished ──next()──▶ held ──release()──▶ free
 *                                                 (and sent)                  └▶ left ──arrived──▶ free
 *
 * On a device with memory of its own a finished batch is sent there at once. A batch is left if it was
 * released while its slot was still being copied.
 *
 * The pipeline decides which thread may do what and when (its lock guards `state` and the counts of rows).
 * The functions below work on the memory, which is laid out as above.
 *
 * Ownership: a batch owns its memory and the samples of its rows. Samples are kept, without their bytes,
 * for keys and error texts until ps_batch_clear().   Threads: ps_batch_decode() on different rows at once;
 * else one at a time.   Locks: none. Errors: a bad sample is not an error of ps_batch_decode(), which marks
 * the row.   Blocks: on the disk, for samples whose bytes are not in memory. */

enum ps_batch_state {
	PS_BATCH_FREE,
	PS_BATCH_FILLING,
	PS_BATCH_FINISHED,
	PS_BATCH_HELD,
	PS_BATCH_LEFT,
};

/* Values of a row's `bad` that fail the whole batch, whatever on_error is. */
#define PS_ROW_OVERFLOWS EOVERFLOW
#define PS_ROW_CANCELS ECANCELED /* set by the caller's transform */

/* A part of a packed row: consecutive tokens of one document, or padding (document -1). */
struct ps_row_part {
	int64_t document;
	uint32_t len;
};

struct ps_row {
	struct ps_sample *sample;
	struct ps_row_part *parts; /* of a packed row that was decoded, up to the end of the row; else NULL */
	uint32_t nparts;
	int bad;                       /* errno, positive */
	bool lost;                     /* bad because its shard cannot be read: ps_errno_is_lost() */
	bool lacks;                    /* bad because it does not have a field ... */
	uint32_t lacking;              /* ... of this index in the layout */
	bool advised;                  /* the reason says what to do, or is the caller's */
	uint32_t truncated;            /* image files that were decoded although they lack their end */
	struct ps_some *some;          /* what is left of fields that drop boxes (row.c); a list */
	char *reason;                  /* text for `bad` where the sample itself was sound; else NULL */
	uint32_t lane;                 /* the lane that gave the sample ... */
	struct ps_lane_position where; /* ... and the lane's position once the row is delivered */
};

/* What is left of a row's field whose boxes, or whose items that belong to boxes, were dropped. */
struct ps_some {
	struct ps_some *next;
	uint32_t field;
	uint64_t n_all, n;  /* items before, and those that are left */
	uint32_t *kept;     /* boxes: their places before */
	uint8_t elements[]; /* of the field's own type */
};

/* A late field of a complete batch. */
struct ps_late {
	size_t data[2], mask; /* offsets in the slot */
	uint64_t items;       /* items of all rows together (RAGGED), or of each row (LONGEST) */
	int64_t longest;      /* packed rows: data[0] is NAME:cu, data[1] NAME:document, of `items` parts */
};

struct penstock_batch {
	/* the pipeline that the batch is released to; NULL: the caller's own batch (random_access.h) */
	struct ps_pipeline *pipeline;
	pid_t pid; /* the process that the batch belongs to */
	const struct ps_batch_layout *layout;
	struct ps_device *device;
	struct ps_mirror *mirror; /* the slot's mirror; NULL: the device is the host */
	uint8_t *mem;             /* the slot; only ps_batch_finish() moves it */
	size_t mem_nbytes;
	struct ps_slot_layout at;
	uint32_t cap;                    /* rows */
	uint64_t max_ragged_nbytes;      /* limit of all late fields; 0: none */
	struct ps_byte_budget *budget;   /* budget that late fields count against; NULL: not counted */
	struct ps_profile *profile;      /* profile that counts finished batches; NULL: none */
	struct ps_nvjpeg_rows **decoded; /* images that the GPU decodes; NULL: none */
	/* with `decoded`: the stretches that are copied (copy.c); NULL: all */
	struct ps_stretch *stretches;
	/* bytes by which `mem` grew for late fields, as counted in `budget` */
	uint64_t grown_nbytes;

	struct ps_row *rows;
	/* Arrays by field; NULL where a field has none. */
	struct ps_piece **pieces;    /* by row; late fields only */
	struct ps_boxes_map **boxes; /* by row; fields of kind BOXES */
	uint8_t **outputs;           /* by row, max_items each; late fields of kind OUTPUT */
	uint32_t *bad_rows;
	uint32_t *sources; /* by row: the good row that replaces it */

	/* Set by the pipeline. */
	enum ps_batch_state state;
	uint64_t seq; /* in the order of delivery, over epochs */
	uint64_t epoch, index;
	uint32_t offload; /* share of images that is offered to the GPU, out of PS_OFFLOAD_ALL */
	uint32_t want;    /* rows that the batch will have */
	uint32_t nrows;   /* rows that have a sample */
	uint32_t ndone;   /* rows of `nrows` that are decoded */
	bool closed;      /* no more rows will come */
	bool drop;        /* closed, and not to be delivered */
	bool pad;         /* fill up to cap when finishing */
	bool repeats;     /* the rank has no sample in this step: its row is another rank's, and not valid */

	/* Set by ps_batch_finish(). */
	uint32_t out_rows;
	uint32_t nbad;
	bool blank;           /* no row has a good sample */
	struct ps_late *late; /* by field; then one for the keys (PS_SLOT_KEYS) */
	size_t used;          /* bytes of the slot */
	struct ps_mix mix;    /* the mix drawn for the batch, for fields that the device makes */
	int failed;
	struct ps_error why; /* text for `failed` */

	/* Bytes of decoded rows that late fields will copy. Once they exceed max_ragged_nbytes, late fields
	 * are no longer decoded, and the batch fails. Relaxed atomic: a counter that guards nothing else. */
	_Atomic uint64_t ragged_nbytes;
};

/* The state of one decoding thread. */
struct ps_batch_worker {
	struct ps_image_decoder *decoders[PS_LAYOUT_MAX_FIELDS];
	struct ps_mask_decoder *masks[PS_LAYOUT_MAX_FIELDS];
	struct ps_nvjpeg_worker *nvjpeg; /* decodes on the GPU; NULL: no GPU decoder */
	struct ps_offload_times *times;  /* times of both engines; borrowed; NULL: not measured */
	uint64_t seed;
	uint64_t reread;                /* members whose bytes were read again */
	struct ps_image_ticket ticket;  /* ticket of the image being decoded */
	struct ps_transform_call *call; /* used by transforms; NULL: not made yet */
	const struct ps_batch_layout *layout;
	bool called;       /* transform_unit was called */
	struct ps_buf row; /* tokens of a packed row that are read again */
	struct ps_scratch {
		uint8_t *p;
		size_t nbytes;
	} scratch[PS_LAYOUT_MAX_FIELDS]; /* by field: its elements before their place is known */
};

/* Bytes of one batch: its slot without late fields, and the memory that late outputs are first written to.
 * -E2BIG: larger than the address space; -ENOMEM. */
int ps_batch_nbytes(const struct ps_batch_layout *layout, uint32_t rows, size_t *ret_nbytes,
        struct ps_error *err) PS_MUST_USE;

int ps_batch_init(struct penstock_batch *batch, const struct ps_batch_layout *layout,
        struct ps_device *device, uint32_t rows, struct ps_error *err) PS_MUST_USE;
/* Blocks until copies are over, and until the consumer's streams have finished the work queued so far. */
void ps_batch_fini(struct penstock_batch *batch);

/* gate: limits the memory of all images being decoded; NULL: no limit. The worker must not move in memory. */
int ps_batch_worker_init(struct ps_batch_worker *worker, const struct ps_batch_layout *layout, uint64_t seed,
        struct ps_image_gate *gate, struct ps_error *err) PS_MUST_USE;
void ps_batch_worker_fini(struct ps_batch_worker *worker);

/* Writes row `row` from rows[row].sample, or marks it bad. */
void ps_batch_decode(struct penstock_batch *batch, uint32_t row, struct ps_batch_worker *worker);

/* Calls the layout's transform_unit, if there is one, for n decoded rows from `first` on. Blocks: as long
 * as the caller's function does. */
void ps_batch_transform(
        struct penstock_batch *batch, uint32_t first, uint32_t n, struct ps_batch_worker *worker);

/* Fills bad and padded rows, late fields and ids. On failure batch->failed and why are set, and out_rows is
 * 0. */
void ps_batch_finish(struct penstock_batch *batch);

/* Begins the copy of a finished batch to its device. Does nothing if the device is the host. */
int ps_batch_send(struct penstock_batch *batch, struct ps_error *err) PS_MUST_USE;

/* Releases the batch: only work already queued on the consumer's streams may still use it. *ret_arrived:
 * true if the slot may be written again. */
int ps_batch_leave(struct penstock_batch *batch, bool *ret_arrived, struct ps_error *err) PS_MUST_USE;

/* Waits until the slot may be written again. */
int ps_batch_wait(struct penstock_batch *batch, struct ps_error *err) PS_MUST_USE;

/* Drops the rows; the memory is kept. */
void ps_batch_clear(struct penstock_batch *batch);

/* Why row `row` is bad, as a text for users; never NULL. */
const char *ps_batch_reason(const struct penstock_batch *batch, uint32_t row);

/* Number of items of row `row`. */
uint64_t ps_batch_items(const struct penstock_batch *batch, uint32_t field, uint32_t row);

/* Row `row` of a field in place. */
static inline uint8_t *ps_batch_row(
        const struct penstock_batch *b, uint32_t field, uint32_t plane, uint32_t row)
{
	return b->mem + b->at.fields[field].data[plane] + row * b->layout->fields[field].row_nbytes;
}

/* Images that the GPU decodes ---------------------------------------------------------------------------- */

/* Images of a batch that the GPU decodes (device/device.h): offered row by row, submitted when all rows are
 * decoded or offered.
 *
 * The GPU may decode the images of a field that the device finishes (`made` above), if the field has one view
 * and no dct_scale, follows no other field, and shares its decode with none. Masks and boxes may follow it.
 * The share (above) decides which rows are offered. An image that the GPU refuses, when it is offered or
 * after it was submitted, is decoded by the worker.
 *
 * Ownership: rows belong to the batch.   Threads: one at a time; rows are offered by ps_batch_decode().
 * Errors: -EIO or -ENOMEM with a text: errors of the device, not of the sample.   Blocks: as
 * device/device.h says. */

bool ps_decode_offloads(const struct ps_batch_layout *layout, uint32_t field);

int ps_decode_init(struct penstock_batch *batch, struct ps_nvjpeg *nvjpeg, struct ps_error *err) PS_MUST_USE;
/* Called when all rows were offered. Rows that are refused now are decoded on this thread, or become bad. */
int ps_decode_submit(
        struct penstock_batch *batch, struct ps_batch_worker *worker, struct ps_error *err) PS_MUST_USE;

/* Profiles ----------------------------------------------------------------------------------------------- */

/* A profile of the delivered data: sizes, means and deviations, labels. It describes a dataset, and shows
 * whether one has changed.
 *
 * Ownership: belongs to its creator, and borrows the layout.   Threads: any.   Locks: its own, a leaf.
 * Errors: without memory for sorting them, labels are left out of the JSON.   Blocks: never. */

struct ps_profile;

struct ps_profile *ps_profile_new(const struct ps_batch_layout *layout); /* NULL: out of memory */
void ps_profile_free(struct ps_profile *profile);                        /* NULL is allowed */

/* Counts a finished batch. The sizes of its samples' members must still be known. */
void ps_profile_batch(struct ps_profile *profile, const struct penstock_batch *batch);

/* The profile as JSON, in a text that the caller frees; -ENOMEM. */
int ps_profile_json(
        struct ps_profile *profile, char **ret_text, size_t *ret_nbytes, struct ps_error *err) PS_MUST_USE;

#endif
