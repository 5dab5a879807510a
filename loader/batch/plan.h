/* What a batch holds: the fields of the options, checked and made ready for use.
 *
 * Ownership: a plan belongs to its creator and keeps nothing of the options'.
 * Threads: any, once made.   Locks: none.   Blocks: never.
 * Errors: -EINVAL with a text that names the field; -ENOMEM. */
#ifndef PS_BATCH_PLAN_H
#define PS_BATCH_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/load_error.h"
#include "image/boxes.h"
#include "image/image.h"
#include "image/mask.h"
#include "image/mix.h"
#include "penstock.h"
#include "shard/sample.h"
#include "shard/source.h"

#define PS_PLAN_MAX_FIELDS PS_SAMPLE_MAX_FIELDS
#define PS_MISSING_VALUE (-1) /* missing_value, where the caller gave none */
#define PS_PLAN_MAX_ALTERNATIVES 16

/* How the rows of a field lie in a batch. An item is one step of a row's first dimension; a scalar is one. */
enum ps_form {
	PS_FORM_FIXED,   /* each row has the same items, in place */
	PS_FORM_PADDED,  /* each row has room for pad_to items, in place */
	PS_FORM_RAGGED,  /* rows behind each other, with offsets; sized when the batch is whole */
	PS_FORM_LONGEST, /* rows padded to the longest; sized when the batch is whole */
};

struct ps_plan_field {
	char *name;          /* as given */
	char *member;        /* where it is read from, as given; NULL: the name says it */
	char *names;         /* the alternatives in lower case, each with a zero behind it */
	uint32_t n_tensors;  /* that the field has in a batch: itself and ... */
	char *companions[3]; /* ... NAME:y, NAME:lengths, NAME:mask, where it has them */
	uint32_t n_names;
	uint32_t name_len[PS_PLAN_MAX_ALTERNATIVES];
	const char *path; /* of a value in a JSON member, in `name` or `member`; NULL: the member itself */
	enum penstock_kind kind;
	bool optional;
	bool rounds;                    /* floats are rounded, not exact */
	const struct ps_field_ops *ops; /* NULL: images and outputs */
	struct ps_image_spec image;     /* PENSTOCK_IMAGE */
	struct ps_mask_spec mask;       /* PENSTOCK_MASK */
	enum ps_box_format box_format;  /* PENSTOCK_BOXES */
	bool box_shares;
	int leader;          /* the image field that it follows; -1: none */
	uint32_t decoded_by; /* images: the field whose decode it shares; itself */
	bool mixed_label;    /* plane 1 is the label of the row that it is mixed with */
	bool made; /* an image that the device finishes (make.h): a row in place is u8 planes, and ... */
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
static inline bool ps_field_is_late(const struct ps_plan_field *f)
{
	return f->form == PS_FORM_RAGGED || f->form == PS_FORM_LONGEST;
}

static inline bool ps_field_is_padded(const struct ps_plan_field *f)
{
	return f->form == PS_FORM_PADDED || f->form == PS_FORM_LONGEST;
}

struct ps_plan {
	penstock_transform transform; /* NULL: none */
	void *transform_ctx;
	bool mixes; /* batches are mixed: */
	struct ps_mix_spec mix;
	uint64_t seed;
	uint32_t nfields;
	struct ps_plan_field fields[PS_PLAN_MAX_FIELDS];
};

/* The fields of the options must be whole structs of this library. */
int ps_plan_new(const struct penstock_options *options, struct ps_plan **ret_plan,
        struct ps_load_error *err) PS_MUST_USE;
void ps_plan_free(struct ps_plan *plan); /* NULL is allowed */

/* The part of it that makes one field, whose names and kind are set. */
int ps_plan_field_make(
        struct ps_plan_field *field, const struct penstock_field *in, struct ps_load_error *err) PS_MUST_USE;

/* Likewise, of an image or a mask. */
int ps_plan_image_make(
        struct ps_plan_field *field, const struct penstock_field *in, struct ps_load_error *err) PS_MUST_USE;

/* When all fields are made from `in`: who follows whom, who shares a decode. */
int ps_plan_images_join(
        struct ps_plan *plan, const struct penstock_field *in, struct ps_load_error *err) PS_MUST_USE;

/* Then: refuses what was set and would do nothing, and says what else it needs. */
int ps_plan_effects_check(
        const struct ps_plan *plan, const struct penstock_field *in, struct ps_load_error *err) PS_MUST_USE;

/* "image"; "?": there is no such kind. */
const char *ps_plan_kind_name(uint32_t kind);

/* The windows that token streams are cut into for the first field of tokens of a length; none: nbytes 0.
 * `stride` in tokens, 0: as many as the field has. The suffix is borrowed from the plan. */
int ps_plan_windows(const struct ps_plan *plan, uint64_t stride, struct ps_windows *ret_windows,
        struct ps_load_error *err) PS_MUST_USE;

/* True if some field is read from members of that suffix; `plan` is a struct ps_plan. */
bool ps_plan_wants(void *plan, const char *suffix, size_t len);

/* The sample's member for a field: its first alternative that is there, or NULL. */
struct ps_sample_field *ps_plan_find(const struct ps_plan_field *field, struct ps_sample *sample);

/* The field that goes by `name` or has it as an alternative: its place, or -1. */
int ps_plan_lookup(const struct ps_plan *plan, const char *name, size_t len);

#endif
