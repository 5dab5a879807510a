/* Batches: what the options' fields come to, and rows made of samples in the memory of a slot.
 *
 * From the top down; each file uses those below it:
 *
 *   finish.c         a batch whose rows are there: bad and padded rows, late fields, mixing
 *   row.c            one sample to one row, and the caller's own step
 *   image_fields.c   images of a row, decoded here or by the GPU, and the masks and boxes that follow
 *   copy.c           what of a slot goes to the device, and what that makes of it
 *   batch.c          a batch's memory and states; how a slot is laid out
 *   layout.c         the fields of the options, checked: which rows and elements they have
 *   layout_field.c   one of them: its defaults, its names
 *   fields.c         how a member's bytes become elements; json.c and npy.c read them
 *   gpu_share.c      which samples a GPU decodes
 *   profile.c        sizes and means of what passed through
 *
 * Ownership, threads, locks, errors, blocking: as each section says. */
#ifndef PS_BATCH_BATCH_H
#define PS_BATCH_BATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "device/device.h"
#include "image/image.h"
#include "order/order.h"
#include "penstock.h"
#include "shard/file/file.h"
#include "shard/shard.h"

/* What a batch holds ------------------------------------------------------------------------------------- */

/* What a batch holds: the fields of the options, checked and made ready for use.
 *
 * Ownership: a layout belongs to its creator and keeps nothing of the options'.
 * Threads: any, once made.   Locks: none.   Blocks: never.
 * Errors: -EINVAL with a text that names the field; -ENOMEM. */

#define PS_LAYOUT_MAX_FIELDS PS_SAMPLE_MAX_FIELDS
#define PS_MISSING_VALUE (-1) /* missing_value, where the caller gave none */
#define PS_LAYOUT_MAX_ALTERNATIVES 16

/* How the rows of a field are stored in a batch. An item is one step of a row's first dimension; a scalar is
 * one. */
enum ps_form {
	PS_FORM_FIXED,   /* each row has the same items, in place */
	PS_FORM_PADDED,  /* each row has room for pad_to items, in place */
	PS_FORM_RAGGED,  /* rows one after the other, with offsets; sized when the batch is whole */
	PS_FORM_LONGEST, /* rows padded to the longest; sized when the batch is whole */
};

struct ps_field_ops;
struct ps_piece;

struct ps_layout_field {
	char *name;          /* as given */
	char *member;        /* where it is read from, as given; NULL: the name says it */
	char *names;         /* the alternatives in lower case, each with a zero after it */
	uint32_t n_tensors;  /* that the field has in a batch: itself and ... */
	char *companions[3]; /* ... NAME:y, NAME:lengths, NAME:mask, where it has them */
	uint32_t n_names;
	uint32_t name_len[PS_LAYOUT_MAX_ALTERNATIVES];
	const char *path; /* of a value in a JSON member, in `name` or `member`; NULL: the member itself */
	enum penstock_kind kind;
	bool optional;
	bool hidden;                    /* the transform's alone */
	bool rounds;                    /* floats are rounded, not exact */
	const struct ps_field_ops *ops; /* NULL: images and outputs */
	struct ps_image_spec image;     /* PENSTOCK_IMAGE */
	struct ps_mask_spec mask;       /* PENSTOCK_MASK */
	enum ps_box_format box_format;  /* PENSTOCK_BOXES */
	bool box_shares;
	int leader;          /* the image field that it follows; -1: none */
	uint32_t decoded_by; /* images: the field whose decode it shares; itself */
	bool mixed_label;    /* plane 1 is the label of the row that it is mixed with */
	/* an image that the device finishes (device/device.h): a row in place is u8 planes, and ... */
	bool made;
	size_t made_row_nbytes;     /* ... this large on the device */
	uint32_t made_what;         /* the PS_IMAGE_ bits that its images may have; 0: they need no ops */
	enum ps_dtype dtype;        /* of the elements ... */
	enum ps_dtype source_dtype; /* ... and in raw members of tokens */
	enum ps_form form;
	uint32_t planes;                       /* tensors of the same form: 2 for tokens (x and y), else 1 */
	uint32_t ndim;                         /* of a row; 0: a scalar */
	uint64_t shape[PENSTOCK_MAX_DIMS - 1]; /* shape[0] is 0 where rows differ */
	size_t item_elements;                  /* of an item ... */
	size_t item_nbytes;                    /* ... and its bytes */
	uint64_t row_items;                    /* of a row in place, FIXED and PADDED */
	size_t row_nbytes;                     /* of a row in place, one plane of it; 0: RAGGED and LONGEST */
	uint64_t max_items;                    /* of a row; UINT64_MAX: any */
	uint32_t pad_multiple;                 /* LONGEST; at least 1 */
	enum penstock_overflow overflow;
	uint8_t missing[8], pad[8]; /* an element of each */
	bool has_missing;           /* integers: what there is where no sample is; else zeros */
	const char *offset_name;    /* add_offset_of, until its field is found; borrowed */
	int offset_of;              /* the field whose items are counted; -1: none */
};

/* Sized only when all rows of a batch are known. */
static inline bool ps_field_is_late(const struct ps_layout_field *f)
{
	return f->form == PS_FORM_RAGGED || f->form == PS_FORM_LONGEST;
}

static inline bool ps_field_is_padded(const struct ps_layout_field *f)
{
	return f->form == PS_FORM_PADDED || f->form == PS_FORM_LONGEST;
}

struct ps_batch_layout {
	penstock_transform transform;           /* NULL: none; ... */
	penstock_transform_unit transform_unit; /* ... likewise, of a unit of rows */
	void (*transform_leave)(void *ctx);
	void *transform_ctx;
	bool mixes; /* batches are mixed: */
	struct ps_mix_spec mix;
	uint64_t seed;
	uint32_t nfields;
	struct ps_layout_field fields[PS_LAYOUT_MAX_FIELDS];
};

/* The fields of the options must be whole structs of this library. */
int ps_batch_layout_new(const struct penstock_options *options, struct ps_batch_layout **ret_layout,
        struct ps_load_error *err) PS_MUST_USE;
void ps_batch_layout_free(struct ps_batch_layout *layout); /* NULL is allowed */

/* "image"; "?": there is no such kind. */
const char *ps_layout_kind_name(uint32_t kind);

/* The windows that token streams are cut into for the first field of tokens of a length; none: nbytes 0.
 * `stride` in tokens, 0: as many as the field has. The suffix is borrowed from the layout. */
int ps_layout_windows(const struct ps_batch_layout *layout, uint64_t stride, struct ps_windows *ret_windows,
        struct ps_load_error *err) PS_MUST_USE;

/* True if some field is read from members of that suffix; `layout` is a struct ps_batch_layout. */
bool ps_layout_wants(void *layout, const char *suffix, size_t len);

/* The sample's member for a field: its first alternative that is there, or NULL. */
struct ps_sample_field *ps_layout_find(const struct ps_layout_field *field, struct ps_sample *sample);

/* The field that goes by `name` or has it as an alternative: its place, or -1. */
int ps_layout_lookup(const struct ps_batch_layout *layout, const char *name, size_t len);

/* Marks the image fields that are worth it: all that are not sent as they are; with `all` those, too: the GPU
 * may decode them. */
void ps_make_layout(struct ps_batch_layout *layout, bool all);

/* Slots -------------------------------------------------------------------------------------------------- */

/* Where the parts of a batch are in its one piece of memory (its slot).
 *
 *   0                                                      fixed_nbytes                     used
 *   | field 0 | ... | field n | offsets and ids            | late field | ... | late field | room |
 *
 * Each array begins at a multiple of PS_SLOT_ALIGN and holds its rows without gaps. Fields in place come in
 * the order of the options, each with its second plane (NAME:y), lengths and mask after it. Late fields
 * (ragged, or padded to the longest row) follow when the batch is whole and their sizes are known; the memory
 * grows for them and stays so. One copy of [0, used) takes a whole batch to a device, where the same places
 * hold; copy.c says which parts need not go.
 *
 * A field that the device makes (device/device.h) has u8 planes here, a struct ps_image_ops of each image
 * after them, and its elements on the device alone, `made` bytes into what the mirror has for that.
 *
 * Threads: any; a layout does not change.   Errors: false: larger than memory can be, or no memory. */

#define PS_SLOT_ALIGN 256 /* a cache line, any vector, and what CUDA gives its own memory */
#define PS_SLOT_NONE SIZE_MAX

#define PS_SLOT_KEYS(layout) \
	((layout)->nfields) /* the place of the keys among the late fields: after all others */

struct ps_slot_field {
	size_t data[2]; /* the rows, by plane; PS_SLOT_NONE for late fields */
	size_t lengths; /* int64 each row; padded fields */
	size_t mask;    /* a byte each item; padded fields; PS_SLOT_NONE for late ones */
	size_t offsets; /* uint64, rows + 1; ragged fields */
	size_t ops;     /* of fields that the device makes and transforms; else PS_SLOT_NONE */
	size_t made;    /* not in the slot: see above */
};

struct ps_slot_layout {
	uint32_t rows;
	struct ps_slot_field *fields; /* of the layout's, and of the keys; the caller frees it */
	size_t valid, shards, samples;
	size_t mix_lambda, mix_row; /* float and int64 each row, where the layout mixes */
	size_t fixed_nbytes;
	size_t made_nbytes;
};

bool ps_slot_layout_make(
        const struct ps_batch_layout *layout, uint32_t rows, struct ps_slot_layout *ret_layout) PS_MUST_USE;

/* Appends an array after *used. */
bool ps_slot_place(size_t *used, size_t n, size_t nbytes, size_t *ret_at) PS_MUST_USE;

/* Which samples a GPU decodes ---------------------------------------------------------------------------- */

/* Which samples a GPU decodes (device/device.h), the processor the others.
 *
 * A sample's engine is a pure function of (seed, shard, sample) and of the share in force for its batch: a
 * 16-bit number of its own is below it, or not. So neither threads, nor world size, nor where a run was
 * stopped change it, and a larger share takes all samples of a smaller one.
 *
 * The share is given, or found: batches begin with one half, both engines' times are measured, and then the
 * share with which both would be busy to the end is frozen, from the next batch on that is begun; state.c
 * keeps it.
 *
 *   tuning ── ps_offload_settle() says so ──▶ frozen, from (epoch, batch) on; before that the half
 *
 * Threads: counting any; the rest one at a time (the pipeline's lock).   Errors: none.   Blocks: never. */

#define PS_OFFLOAD_ALL 65536u /* of 65536: every sample that can be */
#define PS_OFFLOAD_HALF 32768u

/* What is kept of it. All zero: the processor decodes everything. */
struct ps_offload {
	bool tuning;    /* not frozen yet: the half */
	uint32_t share; /* 0 to PS_OFFLOAD_ALL, where it is frozen: ... */
	uint64_t epoch; /* ... from this epoch's ... */
	uint64_t batch; /* ... batch on; before it the half was in force */
};

/* What the engines took so far. Relaxed: counts. */
struct ps_offload_times {
	_Atomic uint64_t cpu_rows, cpu_ns; /* the processor's: rows, and its threads' time ... */
	_Atomic uint64_t gpu_rows, gpu_ns; /* ... and for rows that it gave to the GPU */
};

/* These, and what the GPU took, at one time. */
struct ps_offload_meter {
	uint64_t cpu_rows, cpu_ns, gpu_rows, gpu_ns;
	uint64_t engine_rows, hybrid_rows; /* by the engine alone; with threads of the processor */
	uint64_t timed_rows, timed_ns;     /* of the engine */
};

/* A row was decoded, or given to the GPU. */
void ps_offload_count(struct ps_offload_times *times, bool given, uint64_t ns);

struct ps_offload_meter ps_offload_read(const struct ps_offload_times *times);

/* The share in force for a batch. */
uint32_t ps_offload_at(const struct ps_offload *offload, uint64_t epoch, uint64_t batch);

bool ps_offload_takes(uint32_t share, uint64_t seed, uint64_t shard, uint64_t sample) __attribute__((const));

/* What a row costs: an engine's seconds of one row; cpu_give: the processor's for a row that the GPU decodes.
 * 0: not known. */
struct ps_offload_costs {
	double cpu, cpu_give, gpu;
};

/* Between two times; an engine with fewer rows than `least` is not known. */
struct ps_offload_costs ps_offload_costs_of(
        const struct ps_offload_meter *from, const struct ps_offload_meter *to, uint64_t least);

/* The share with which `threads` and the GPU are through at the same time. */
uint32_t ps_offload_balance(const struct ps_offload_costs *costs, uint32_t threads);

#define PS_OFFLOAD_COLD 4u  /* batches that are not counted: libraries start */
#define PS_OFFLOAD_LEAST 8u /* batches before it is frozen, ... */
#define PS_OFFLOAD_MOST 64u /* ... and where an engine had no rows by then, it gets none */
#define PS_OFFLOAD_ROWS 64u /* of each engine, that a cost is known by */

/* Freezes it if enough is known after that many batches; it is tuning. (epoch, batch): of the next one that
 * begins. */
void ps_offload_settle(struct ps_offload *offload, uint64_t nbatches, const struct ps_offload_costs *costs,
        uint32_t threads, uint64_t epoch, uint64_t batch);

/* Batches ------------------------------------------------------------------------------------------------ */

/* A batch: memory made once, rows written in place by many threads, then finished by one.
 *
 *   free ──claim──▶ filling ──all rows decoded──▶ finished ──next()──▶ held ──release()──▶ free
 *                                                 (and sent)                  └▶ left ──arrived──▶ free
 *
 * On a device with memory of its own a finished batch is sent there at once; it is left where it was released
 * while its slot was still being copied.
 *
 * Who may do what when is the pipeline's business (its lock guards `state` and the counts of rows); here is
 * what happens to the memory. See above for how it is laid out.
 *
 * Ownership: a batch owns its memory and the samples of its rows, which it keeps (without their bytes) for
 * keys and error texts until ps_batch_clear(). Threads: ps_batch_decode() on different rows at once; else one
 * at a time.   Locks: none. Errors: a bad sample is no error of ps_batch_decode(): it marks the row. Blocks:
 * on the processor, and on the disk for samples that are not held. */

enum ps_batch_state {
	PS_BATCH_FREE,
	PS_BATCH_FILLING,
	PS_BATCH_FINISHED,
	PS_BATCH_HELD,
	PS_BATCH_LEFT,
};

/* What `bad` of a row says of the whole batch: it fails, whatever on_error is. */
#define PS_ROW_OVERFLOWS EOVERFLOW
#define PS_ROW_CANCELS ECANCELED /* by the caller's transform */

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
	/* that it is given back to; NULL: the caller's own (random_access.h); ... */
	struct ps_pipeline *pipeline;
	pid_t pid; /* ... and in which process */
	const struct ps_batch_layout *layout;
	struct ps_device *device;
	struct ps_mirror *mirror; /* of the slot; NULL: the device is the host */
	uint8_t *mem;             /* the slot; only ps_batch_finish() moves it */
	size_t mem_nbytes;
	struct ps_slot_layout at;
	uint32_t cap;                    /* rows */
	uint64_t max_ragged_nbytes;      /* of all late fields; 0: no limit */
	struct ps_byte_budget *budget;   /* that late fields count against; NULL: not counted */
	struct ps_profile *profile;      /* that finished batches are counted in; NULL: none */
	struct ps_nvjpeg_rows **decoded; /* images that the GPU decodes; NULL: none are */
	struct ps_stretch *stretches;    /* what is sent, where some are (copy.c); NULL: all */
	uint64_t grown_nbytes;           /* of mem, for late fields: what was counted */

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
	bool blank;           /* no row has a good sample */
	struct ps_late *late; /* by field, and of the keys */
	size_t used;          /* bytes of the slot */
	struct ps_mix mix;    /* what was drawn for it, for the fields that the device makes */
	int failed;
	struct ps_load_error why; /* of failed */

	/* Bytes of decoded rows that late fields will copy; past the limit no more are read, and the batch
	 * fails. Relaxed: a count, it guards nothing else. */
	_Atomic uint64_t ragged_nbytes;
};

/* What one decoding thread needs. */
struct ps_batch_worker {
	struct ps_image_decoder *decoders[PS_LAYOUT_MAX_FIELDS];
	struct ps_mask_decoder *masks[PS_LAYOUT_MAX_FIELDS];
	struct ps_nvjpeg_worker *nvjpeg; /* decodes on the GPU; NULL: there is none */
	struct ps_offload_times *times;  /* of both; borrowed; NULL: not measured */
	uint64_t seed;
	uint64_t reread;                /* samples whose bytes were read again */
	struct ps_image_ticket ticket;  /* of the image under way */
	struct ps_transform_call *call; /* of transforms; NULL: none was made yet */
	const struct ps_batch_layout *layout;
	bool called; /* transform_unit was */
	struct ps_scratch {
		uint8_t *p;
		size_t nbytes;
	} scratch[PS_LAYOUT_MAX_FIELDS]; /* by field: its elements before their place is known */
};

/* Bytes of one batch, late fields apart. -E2BIG: more than memory can have; -ENOMEM. */
int ps_batch_nbytes(const struct ps_batch_layout *layout, uint32_t rows, size_t *ret_nbytes,
        struct ps_load_error *err) PS_MUST_USE;

int ps_batch_init(struct penstock_batch *batch, const struct ps_batch_layout *layout,
        struct ps_device *device, uint32_t rows, struct ps_load_error *err) PS_MUST_USE;
/* Blocks until copies are over, and what streams of the consumer were given before. */
void ps_batch_fini(struct penstock_batch *batch);

/* gate: of what images may hold together; NULL: no limit. The worker must stay where it is. */
int ps_batch_worker_init(struct ps_batch_worker *worker, const struct ps_batch_layout *layout, uint64_t seed,
        struct ps_image_gate *gate, struct ps_load_error *err) PS_MUST_USE;
void ps_batch_worker_fini(struct ps_batch_worker *worker);

/* Writes row `row` from rows[row].sample, or marks it bad. */
void ps_batch_decode(struct penstock_batch *batch, uint32_t row, struct ps_batch_worker *worker);

/* Then, where the layout has a transform of units: for n rows from `first` on. Blocks: as the caller's
 * function does. */
void ps_batch_transform(
        struct penstock_batch *batch, uint32_t first, uint32_t n, struct ps_batch_worker *worker);

/* Fills bad and padded rows, late fields and ids. On failure batch->failed and why are set, and out_rows is
 * 0. */
void ps_batch_finish(struct penstock_batch *batch);

/* Begins the copy of a finished batch to its device; nothing where that is the host. */
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

/* The items of row `row`. */
uint64_t ps_batch_items(const struct penstock_batch *batch, uint32_t field, uint32_t row);

/* Row `row` of a field in place. */
static inline uint8_t *ps_batch_row(
        const struct penstock_batch *b, uint32_t field, uint32_t plane, uint32_t row)
{
	return b->mem + b->at.fields[field].data[plane] + row * b->layout->fields[field].row_nbytes;
}

/* Images that the GPU decodes ---------------------------------------------------------------------------- */

/* Images of a batch that the GPU decodes (device/device.h): offered row by row, submitted when all rows are
 * there.
 *
 * A field of images may have some if the device finishes it (`made` above), and it makes one view, follows
 * no other field and shares its member with none; masks and boxes may follow it. Which rows are offered is
 * the share's business (above). What the GPU does not take, now or at the end, the worker decodes itself.
 *
 * Ownership: rows belong to the batch.   Threads: offer: as ps_batch_decode(); the others one at a time.
 * Errors: -EIO or -ENOMEM with a text: of the device, not of the sample.   Blocks: as device/device.h
 * says. */

bool ps_decode_offloads(const struct ps_batch_layout *layout, uint32_t field);

int ps_decode_init(
        struct penstock_batch *batch, struct ps_nvjpeg *nvjpeg, struct ps_load_error *err) PS_MUST_USE;
/* All rows are there: rows that are refused now are decoded on this thread, or become bad. */
int ps_decode_submit(
        struct penstock_batch *batch, struct ps_batch_worker *worker, struct ps_load_error *err) PS_MUST_USE;

/* What passed through ------------------------------------------------------------------------------------ */

/* What passed through the batches: sizes, means and deviations, labels. For a look at a data set, and to see
 * that one has changed.
 *
 * Ownership: belongs to its creator, and borrows the layout.   Threads: any.   Locks: its own, a leaf.
 * Errors: what cannot be counted for want of memory is left out.   Blocks: never. */

struct ps_profile;

struct ps_profile *ps_profile_new(const struct ps_batch_layout *layout); /* NULL: no memory */
void ps_profile_free(struct ps_profile *profile);                        /* NULL is allowed */

/* Counts a finished batch, whose samples still know their members' sizes. */
void ps_profile_batch(struct ps_profile *profile, const struct penstock_batch *batch);

/* All of it as JSON, a text that the caller frees; -ENOMEM. */
int ps_profile_json(struct ps_profile *profile, char **ret_text, size_t *ret_nbytes,
        struct ps_load_error *err) PS_MUST_USE;

/* NumPy files -------------------------------------------------------------------------------------------- */

/* The head of a .npy file (format versions 1, 2 and 3): what its array is and where its bytes begin.
 *
 * Ownership: data points into the caller's bytes.   Threads: any.   Locks: none.   Blocks: never.
 * Errors: -EBADMSG with a text: no such file, damaged, truncated, longer than its array, or of elements that
 * no batch holds (structures, objects, complex numbers, texts). */

#define PS_NPY_MAX_DIMS 32 /* as in NumPy 1 */

struct ps_npy {
	enum ps_dtype dtype;
	bool swapped; /* the bytes of an element stand in the other order than this machine's */
	bool fortran; /* the first index runs fastest; never set where it makes no difference */
	uint32_t ndim;
	uint64_t shape[PS_NPY_MAX_DIMS];
	uint64_t count; /* elements */
	const uint8_t *data;
};

int ps_npy_parse(
        const void *file, size_t nbytes, struct ps_npy *ret_npy, struct ps_load_error *err) PS_MUST_USE;

#endif
