#include "config.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/overflow.h"
#include "batch/field.h"
#include "batch/plan.h"

/* -- Shapes and types --------------------------------------------------------------------------------- */

const char *ps_plan_kind_name(uint32_t kind)
{
	static const char *const names[] = {"image", "int64", "bytes", "npy", "json", "text", "mask", "boxes",
	        "tokens", "float", "output"};

	return kind < PS_ARRAY_LEN(names) ? names[kind] : "?";
}

static int dtype_plan(struct ps_plan_field *f, const struct penstock_field *in, struct ps_load_error *err)
{
	bool ok = in->dtype < PS_NDTYPES;

	f->dtype = ok ? (enum ps_dtype)in->dtype : PS_U8;
	if (f->kind == PENSTOCK_FLOAT)
		ok = ok && ps_dtype_is_float(f->dtype);
	if (f->kind == PENSTOCK_TOKENS)
		ok = ok && !ps_dtype_is_float(f->dtype) && f->dtype != PS_BOOL;
	if (!ok)
		return ps_load_error_set(err, EINVAL, "field %.100s: dtype %s (%u): must be %s for %s fields",
		        f->name, ps_dtype_name((enum ps_dtype)in->dtype), in->dtype,
		        f->kind == PENSTOCK_FLOAT    ? "a float"
		        : f->kind == PENSTOCK_TOKENS ? "an integer"
		                                     : "one of penstock_dtype",
		        ps_plan_kind_name(in->kind));
	return 0;
}

/* The dimensions of a row; where none are given, one of any size if the kind is `open`. */
static int shape_plan(
        struct ps_plan_field *f, const struct penstock_field *in, bool open, struct ps_load_error *err)
{
	if (in->ndim > PS_ARRAY_LEN(f->shape))
		return ps_load_error_set(err, EINVAL, "field %.100s: ndim %u: must be 0 to %zu", f->name,
		        in->ndim, PS_ARRAY_LEN(f->shape));
	f->ndim = in->ndim == 0 && open ? 1 : in->ndim;
	for (uint32_t i = 0; i < in->ndim; i++) {
		f->shape[i] = in->shape[i];
		if (i > 0 && f->shape[i] == 0)
			return ps_load_error_set(err, EINVAL,
			        "field %.100s: shape[%u] 0: must be at least 1; only the first dimension may "
			        "be open",
			        f->name, i);
	}
	return 0;
}

/* Fields of numbers with a shape. */
static int array_plan(struct ps_plan_field *f, const struct penstock_field *in,
        const struct ps_field_ops *ops, bool open, struct ps_load_error *err)
{
	int r = dtype_plan(f, in, err);

	f->ops = ops;
	return r == 0 ? shape_plan(f, in, open, err) : r;
}

static int tokens_plan(struct ps_plan_field *f, const struct penstock_field *in, struct ps_load_error *err)
{
	f->planes = 2;
	f->source_dtype = (enum ps_dtype)in->source_dtype;
	if (in->source_dtype != PENSTOCK_U16 && in->source_dtype != PENSTOCK_U32 &&
	        in->source_dtype != PENSTOCK_I32 && in->source_dtype != PENSTOCK_I64)
		return ps_load_error_set(err, EINVAL,
		        "field %.100s: source_dtype %u: must be u16, u32, i32 or i64", f->name,
		        in->source_dtype);
	if (in->ndim > 1)
		return ps_load_error_set(
		        err, EINVAL, "field %.100s: ndim %u: tokens have 1", f->name, in->ndim);
	return array_plan(f, in, &ps_field_tokens, true, err);
}

/* Bytes, and what is told apart by a check alone: one dimension of any size. */
static int bytes_plan(struct ps_plan_field *f, const struct ps_field_ops *ops)
{
	f->ops = ops;
	f->dtype = PS_U8;
	f->ndim = 1;
	return 0;
}

/* n x 4 floats. */
static int boxes_plan(struct ps_plan_field *f, const struct penstock_field *in, struct ps_load_error *err)
{
	f->ops = f->path ? &ps_field_json_numbers : &ps_field_boxes;
	f->rounds = true;
	f->dtype = PS_F32;
	f->ndim = 2;
	f->shape[1] = 4;
	f->box_format = (enum ps_box_format)in->box_format;
	f->box_shares = in->box_shares != 0;
	if (in->box_format <= PENSTOCK_BOX_CXCYWH && in->dtype == PENSTOCK_F32 && in->ndim == 0)
		return 0;
	return ps_load_error_set(err, EINVAL,
	        "field %.100s: box_format %u, dtype %u, ndim %u: must be 0 (xyxy), 1 (xywh) or 2 (cxcywh), f32, and "
	        "0",
	        f->name, in->box_format, in->dtype, in->ndim);
}

/* Which of the kind's ways is taken, and its element type and shape. */
static int kind_plan(struct ps_plan_field *f, const struct penstock_field *in, struct ps_load_error *err)
{
	if (f->path &&
	        (in->kind == PENSTOCK_BYTES || in->kind == PENSTOCK_NPY || in->kind == PENSTOCK_TOKENS))
		return ps_load_error_set(err, EINVAL,
		        "field %.100s: a path in JSON is for kinds int64, float, text and json (arrays: json "
		        "with a "
		        "dtype and a shape), not for %s",
		        f->name, ps_plan_kind_name(in->kind));
	switch (in->kind) {
	case PENSTOCK_BYTES:
		return bytes_plan(f, &ps_field_bytes);
	case PENSTOCK_TEXT:
		return bytes_plan(f, f->path ? &ps_field_json_text : &ps_field_text);
	case PENSTOCK_JSON:
		if (!f->path || in->dtype == PENSTOCK_U8)
			return bytes_plan(f, f->path ? &ps_field_json_text : &ps_field_json);
		f->rounds = true;
		return array_plan(f, in, &ps_field_json_numbers, false, err);
	case PENSTOCK_FLOAT:
		f->rounds = true;
		/* fallthrough */
	case PENSTOCK_INT64:
		f->ops = f->path ? &ps_field_json_numbers : &ps_field_number;
		return dtype_plan(f, in, err);
	case PENSTOCK_NPY:
		return array_plan(f, in, &ps_field_npy, true, err);
	case PENSTOCK_TOKENS:
		return tokens_plan(f, in, err);
	case PENSTOCK_BOXES:
		return boxes_plan(f, in, err);
	case PENSTOCK_OUTPUT:
		return array_plan(f, in, &ps_field_memory, in->pad_to > 0 || in->max_bytes > 0, err);
	}
	return ps_load_error_set(err, EINVAL, "field %.100s: unknown kind %u", f->name, in->kind);
}

/* -- Rows in a batch ---------------------------------------------------------------------------------- */

static int items_plan(struct ps_plan_field *f, struct ps_load_error *err)
{
	size_t n = 1;

	for (uint32_t i = 1; i < f->ndim; i++)
		if (!ps_size_mul(n, (size_t)f->shape[i], &n))
			n = SIZE_MAX;
	f->item_elements = n;
	if (ps_size_mul(n, ps_dtype_nbytes(f->dtype), &f->item_nbytes) && f->item_nbytes <= PTRDIFF_MAX)
		return 0;
	return ps_load_error_set(
	        err, EINVAL, "field %.100s: shape: an item is larger than memory can be", f->name);
}

static int form_plan(struct ps_plan_field *f, const struct penstock_field *in, struct ps_load_error *err)
{
	bool ragged = f->ndim > 0 && f->shape[0] == 0;

	f->max_items = UINT64_MAX;
	f->pad_multiple = PS_MAX(in->pad_multiple, 1u);
	f->overflow = (enum penstock_overflow)in->overflow;
	if (in->overflow > PENSTOCK_OVERFLOW_TRUNCATE)
		return ps_load_error_set(err, EINVAL,
		        "field %.100s: overflow %u: must be 0 (error), 1 (bad) or 2 (truncate)", f->name,
		        in->overflow);
	if (!ragged && (in->pad_to || in->max_bytes || in->add_offset_of))
		return ps_load_error_set(err, EINVAL,
		        "field %.100s: pad_to, max_bytes and add_offset_of are for ragged fields; this one's "
		        "rows are "
		        "of one size",
		        f->name);
	if (in->pad_multiple > 1 && in->pad_to != PENSTOCK_PAD_LONGEST)
		return ps_load_error_set(err, EINVAL, "field %.100s: pad_multiple %u: needs pad_to longest",
		        f->name, in->pad_multiple);
	if (ragged && f->ops == &ps_field_json && in->overflow == PENSTOCK_OVERFLOW_TRUNCATE)
		return ps_load_error_set(
		        err, EINVAL, "field %.100s: overflow truncate: JSON cannot be cut", f->name);
	if (in->max_bytes > 0)
		f->max_items = in->max_bytes / f->item_nbytes;
	if (f->max_items == 0)
		return ps_load_error_set(err, EINVAL,
		        "field %.100s: max_bytes %ju: must be at least an item's %zu", f->name,
		        (uintmax_t)in->max_bytes, f->item_nbytes);
	f->form = !ragged                              ? PS_FORM_FIXED
	          : in->pad_to == 0                    ? PS_FORM_RAGGED
	          : in->pad_to == PENSTOCK_PAD_LONGEST ? PS_FORM_LONGEST
	                                               : PS_FORM_PADDED;
	if (f->form == PS_FORM_PADDED)
		f->max_items = PS_MIN(f->max_items, in->pad_to);
	if (ps_field_is_late(f)) {
		if (f->kind == PENSTOCK_OUTPUT && f->max_items == UINT64_MAX)
			return ps_load_error_set(
			        err, EINVAL, "field %.100s: a ragged output needs max_bytes", f->name);
		return 0;
	}
	f->row_items = !ragged ? f->ndim ? f->shape[0] : 1 : in->pad_to;
	if (!ps_size_mul((size_t)f->row_items, f->item_nbytes, &f->row_nbytes) || f->row_nbytes > PTRDIFF_MAX)
		return ps_load_error_set(
		        err, EINVAL, "field %.100s: a row is larger than memory can be", f->name);
	return 0;
}

static int element_plan(const struct ps_plan_field *f, const char *option, int64_t value,
        uint8_t *ret_element, struct ps_load_error *err)
{
	const struct ps_number v = {
	        .negative = value < 0, .magnitude = value < 0 ? -(uint64_t)value : (uint64_t)value};

	if (ps_number_store(&v, f->dtype, ret_element))
		return 0;
	return ps_load_error_set(err, EINVAL, "field %.100s: %s %jd: %s cannot hold it", f->name, option,
	        (intmax_t)value, ps_dtype_name(f->dtype));
}

static int elements_plan(struct ps_plan_field *f, const struct penstock_field *in, struct ps_load_error *err)
{
	const struct ps_number nan = {.is_float = true, .value = (double)NAN};
	bool given = f->form == PS_FORM_FIXED && f->kind != PENSTOCK_IMAGE &&
	             (f->optional || in->missing_value != PS_MISSING_VALUE);
	int r = 0;

	if (f->kind == PENSTOCK_FLOAT)
		(void)!ps_number_store_rounded(&nan, f->dtype, f->missing);
	else if (given)
		r = element_plan(f, "missing_value", in->missing_value, f->missing, err);
	f->has_missing = given && !ps_dtype_is_float(f->dtype);
	if (r == 0 && ps_field_is_padded(f))
		r = element_plan(f, "pad_value", in->pad_value, f->pad, err);
	return r;
}

int ps_plan_field_make(struct ps_plan_field *f, const struct penstock_field *in, struct ps_load_error *err)
{
	int r;

	f->planes = 1;
	f->offset_name = in->add_offset_of;
	f->offset_of = -1;
	if (in->kind == PENSTOCK_IMAGE || in->kind == PENSTOCK_MASK) {
		r = ps_plan_image_make(f, in, err);
	} else {
		r = kind_plan(f, in, err);
		if (r == 0)
			r = items_plan(f, err);
		if (r == 0)
			r = form_plan(f, in, err);
	}
	return r == 0 ? elements_plan(f, in, err) : r;
}
