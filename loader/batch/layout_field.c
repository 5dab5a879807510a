#include "config.h"

#include "batch/batch.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/size.h"
#include "batch/fields.h"
#include "batch/parts.h"
#include "option/option.h"

/* Fields by their names ---------------------------------------------------------------------------------- */

static bool has_name(const struct ps_layout_field *f, const char *suffix, size_t len)
{
	const char *p = f->names;

	for (uint32_t i = 0; i < f->n_names; p += f->name_len[i++] + 1)
		if (f->name_len[i] == len && memcmp(p, suffix, len) == 0)
			return true;
	return false;
}

bool ps_layout_wants(void *ctx, const char *suffix, size_t len)
{
	const struct ps_batch_layout *layout = ctx;

	for (uint32_t i = 0; i < layout->nfields; i++)
		if (layout->fields[i].kind != PENSTOCK_OUTPUT && has_name(&layout->fields[i], suffix, len))
			return true;
	return false;
}

struct ps_sample_field *ps_layout_find(const struct ps_layout_field *f, struct ps_sample *sample)
{
	const char *p = f->names;

	for (uint32_t i = 0; i < f->n_names; p += f->name_len[i++] + 1) {
		struct ps_sample_field *field = ps_sample_find(sample, p, f->name_len[i]);

		if (field)
			return field;
	}
	return NULL;
}

int ps_layout_lookup(const struct ps_batch_layout *layout, const char *name, size_t len)
{
	for (uint32_t i = 0; i < layout->nfields; i++)
		if (strlen(layout->fields[i].name) == len && memcmp(layout->fields[i].name, name, len) == 0)
			return (int)i;
	for (uint32_t i = 0; i < layout->nfields; i++)
		if (!layout->fields[i].path && has_name(&layout->fields[i], name, len))
			return (int)i;
	return -1;
}

/* Defaults ----------------------------------------------------------------------------------------------- */

void penstock_field_init(struct penstock_field *field, size_t size, const char *name, uint32_t kind)
{
	static const uint8_t dtypes[] = {[PENSTOCK_IMAGE] = PENSTOCK_F32,
	        [PENSTOCK_INT64] = PENSTOCK_I64,
	        [PENSTOCK_BYTES] = PENSTOCK_U8,
	        [PENSTOCK_NPY] = PENSTOCK_F32,
	        [PENSTOCK_JSON] = PENSTOCK_U8,
	        [PENSTOCK_TEXT] = PENSTOCK_U8,
	        [PENSTOCK_MASK] = PENSTOCK_I64,
	        [PENSTOCK_BOXES] = PENSTOCK_F32,
	        [PENSTOCK_TOKENS] = PENSTOCK_I64,
	        [PENSTOCK_FLOAT] = PENSTOCK_F32,
	        [PENSTOCK_OUTPUT] = PENSTOCK_F32};
	const struct ps_image_spec spec = ps_image_spec_imagenet(224);
	struct penstock_field f = {.size = size, .name = name, .kind = kind};

	for (size_t i = 0; i < ps_n_field_options; i++)
		ps_option_init(&ps_field_options[i], &f);
	f.dtype = kind < PS_ARRAY_LEN(dtypes) ? (uint32_t)dtypes[kind] : PENSTOCK_F32;
	memcpy(f.mean, spec.mean, sizeof(f.mean));
	memcpy(f.std, spec.std, sizeof(f.std));
	memset(field, 0, size);
	memcpy(field, &f, PS_MIN(size, sizeof(f)));
}

/* Shapes and types --------------------------------------------------------------------------------------- */

const char *ps_layout_kind_name(uint32_t kind)
{
	return kind <= PENSTOCK_OUTPUT ? ps_kind_words[kind] : "?";
}

static int dtype_plan(struct ps_layout_field *f, const struct penstock_field *in, struct ps_error *err)
{
	bool ok = in->dtype < PS_NDTYPES;

	f->dtype = ok ? (enum ps_dtype)in->dtype : PS_U8;
	if (f->kind == PENSTOCK_FLOAT)
		ok = ok && ps_dtype_is_float(f->dtype);
	if (f->kind == PENSTOCK_TOKENS)
		ok = ok && !ps_dtype_is_float(f->dtype) && f->dtype != PS_BOOL;
	if (!ok)
		return ps_error_set(err, EINVAL, "field %.100s: dtype %s (%u): must be %s for %s fields",
		        f->name, ps_dtype_name((enum ps_dtype)in->dtype), in->dtype,
		        f->kind == PENSTOCK_FLOAT    ? "a float"
		        : f->kind == PENSTOCK_TOKENS ? "an integer"
		                                     : "one of penstock_dtype",
		        ps_layout_kind_name(in->kind));
	return 0;
}

/* Sets the dimensions of a row. If none are given and the kind is `open`, a row has one dimension of any
 * size. */
static int shape_plan(
        struct ps_layout_field *f, const struct penstock_field *in, bool open, struct ps_error *err)
{
	if (in->ndim == PENSTOCK_NDIM_SCALAR && in->kind == PENSTOCK_NPY)
		return 0;
	if (in->ndim > PS_ARRAY_LEN(f->shape))
		return ps_error_set(err, EINVAL, "field %.100s: ndim %u: must be 0 to %zu", f->name, in->ndim,
		        PS_ARRAY_LEN(f->shape));
	f->ndim = in->ndim == 0 && open ? 1 : in->ndim;
	for (uint32_t i = 0; i < in->ndim; i++) {
		f->shape[i] = in->shape[i];
		if (i > 0 && f->shape[i] == 0)
			return ps_error_set(err, EINVAL,
			        "field %.100s: shape[%u] 0: must be at least 1; only the first dimension may "
			        "be open",
			        f->name, i);
	}
	return 0;
}

/* Fields of numbers with a shape. */
static int array_plan(struct ps_layout_field *f, const struct penstock_field *in,
        const struct ps_field_ops *ops, bool open, struct ps_error *err)
{
	int rc = dtype_plan(f, in, err);

	f->ops = ops;
	return rc == 0 ? shape_plan(f, in, open, err) : rc;
}

/* Finds the parts that are named in a list. */
static int parts_plan(struct ps_layout_field *f, const char *names, struct ps_error *err)
{
	static const char *const all[] = {"positions", "segments", "mask", "cu", "document"};

	for (const char *p = names; p && *p; p += *p == ',') {
		size_t n = strcspn(p, ","), i = 0;

		while (i < PS_ARRAY_LEN(all) && (strlen(all[i]) != n || memcmp(all[i], p, n) != 0))
			i++;
		if (i == PS_ARRAY_LEN(all))
			return ps_error_set(err, EINVAL,
			        "field %.100s: parts \"%.*s\": must be of positions, segments, mask, cu and "
			        "document, separated by commas",
			        f->name, (int)PS_MIN(n, (size_t)100), p);
		f->parts |= 1u << i;
		p += n;
	}
	return 0;
}

/* Packed rows. */
static int pack_plan(struct ps_layout_field *f, const struct penstock_field *in, struct ps_error *err)
{
	if (in->pack > PENSTOCK_PACK_WHOLE || in->long_documents > PENSTOCK_LONG_DROP)
		return ps_error_set(err, EINVAL, "field %.100s: unknown pack or long_documents", f->name);
	f->pack = (enum ps_pack)in->pack;
	f->cu_pad = in->cu_pad;
	f->vocab = in->vocab;
	if (f->pack == PS_PACK_NONE)
		return 0;
	if (in->ndim != 1 || in->shape[0] < 2 || in->shape[0] > PS_PACK_MAX_LENGTH)
		return ps_error_set(err, EINVAL, "field %.100s: packed rows have 2 to %u tokens, not %ju",
		        f->name, PS_PACK_MAX_LENGTH, in->ndim == 1 ? (uintmax_t)in->shape[0] : 0);
	if (f->pack == PS_PACK_WHOLE && in->long_documents == PENSTOCK_LONG_UNSET)
		return ps_error_set(err, EINVAL,
		        "field %.100s: pack whole: say what happens to documents of more than %ju tokens: "
		        "long_documents split, truncate or drop",
		        f->name, (uintmax_t)in->shape[0]);
	return parts_plan(f, in->parts, err);
}

static int tokens_plan(struct ps_layout_field *f, const struct penstock_field *in, struct ps_error *err)
{
	f->planes = 2;
	f->source_dtype = in->source_dtype == 0                    ? PS_U16
	                  : in->source_dtype == PENSTOCK_SOURCE_U8 ? PS_U8
	                                                           : (enum ps_dtype)in->source_dtype;
	if (in->source_dtype != 0 && in->source_dtype != PENSTOCK_U16 && in->source_dtype != PENSTOCK_U32 &&
	        in->source_dtype != PENSTOCK_I32 && in->source_dtype != PENSTOCK_I64 &&
	        in->source_dtype != PENSTOCK_SOURCE_U8)
		return ps_error_set(err, EINVAL,
		        "field %.100s: source_dtype %u: must be u8 (PENSTOCK_SOURCE_U8), u16, u32, i32 or "
		        "i64",
		        f->name, in->source_dtype);
	if (in->ndim > 1)
		return ps_error_set(err, EINVAL, "field %.100s: ndim %u: tokens have 1", f->name, in->ndim);
	if (pack_plan(f, in, err) < 0)
		return -EINVAL;
	return array_plan(f, in, &ps_field_tokens, true, err);
}

/* Bytes, and kinds that only add a check: one dimension of any size. */
static int bytes_plan(struct ps_layout_field *f, const struct ps_field_ops *ops)
{
	f->ops = ops;
	f->dtype = PS_U8;
	f->ndim = 1;
	return 0;
}

/* n x 4 floats. */
static int boxes_plan(struct ps_layout_field *f, const struct penstock_field *in, struct ps_error *err)
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
	return ps_error_set(err, EINVAL,
	        "field %.100s: box_format %u, dtype %u, ndim %u: box_format must be 0 (xyxy), 1 (xywh) or 2 "
	        "(cxcywh), dtype f32, and ndim 0",
	        f->name, in->box_format, in->dtype, in->ndim);
}

/* Chooses the field's functions by its kind, and sets element type and shape. */
static int kind_plan(struct ps_layout_field *f, const struct penstock_field *in, struct ps_error *err)
{
	if (f->path &&
	        (in->kind == PENSTOCK_BYTES || in->kind == PENSTOCK_NPY || in->kind == PENSTOCK_TOKENS))
		return ps_error_set(err, EINVAL,
		        "field %.100s: a path in JSON is for kinds int64, float, text and json (arrays: json "
		        "with a "
		        "dtype and a shape), not for %s",
		        f->name, ps_layout_kind_name(in->kind));
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
		if (in->rounding > PENSTOCK_ROUNDING_NEAREST)
			return ps_error_set(
			        err, EINVAL, "field %.100s: unknown rounding %u", f->name, in->rounding);
		f->rounds = in->rounding == PENSTOCK_ROUNDING_NEAREST;
		return array_plan(f, in, &ps_field_npy, true, err);
	case PENSTOCK_TOKENS:
		return tokens_plan(f, in, err);
	case PENSTOCK_BOXES:
		return boxes_plan(f, in, err);
	case PENSTOCK_OUTPUT:
		return array_plan(f, in, &ps_field_memory, in->pad_to > 0 || in->max_bytes > 0, err);
	}
	return ps_error_set(err, EINVAL, "field %.100s: unknown kind %u", f->name, in->kind);
}

/* Rows in a batch ---------------------------------------------------------------------------------------- */

static int items_plan(struct ps_layout_field *f, struct ps_error *err)
{
	size_t n = 1;

	for (uint32_t i = 1; i < f->ndim; i++)
		if (!ps_size_mul(n, (size_t)f->shape[i], &n))
			n = SIZE_MAX;
	f->item_elements = n;
	if (ps_size_mul(n, ps_dtype_nbytes(f->dtype), &f->item_nbytes) && f->item_nbytes <= PTRDIFF_MAX)
		return 0;
	return ps_error_set(
	        err, EINVAL, "field %.100s: shape: an item is larger than the address space", f->name);
}

static int form_plan(struct ps_layout_field *f, const struct penstock_field *in, struct ps_error *err)
{
	bool ragged = f->ndim > 0 && f->shape[0] == 0;

	f->max_items = UINT64_MAX;
	f->pad_multiple = PS_MAX(in->pad_multiple, 1u);
	f->overflow = (enum penstock_overflow)in->overflow;
	if (in->overflow > PENSTOCK_OVERFLOW_TRUNCATE)
		return ps_error_set(err, EINVAL,
		        "field %.100s: overflow %u: must be 0 (error), 1 (bad) or 2 (truncate)", f->name,
		        in->overflow);
	if (!ragged && (in->pad_to || in->max_bytes || in->add_offset_of))
		return ps_error_set(err, EINVAL,
		        "field %.100s: pad_to, max_bytes and add_offset_of are for ragged fields; the rows "
		        "of this field have one size",
		        f->name);
	if (in->pad_multiple > 1 && in->pad_to != PENSTOCK_PAD_LONGEST)
		return ps_error_set(err, EINVAL, "field %.100s: pad_multiple %u: needs pad_to longest",
		        f->name, in->pad_multiple);
	if (ragged && f->ops == &ps_field_json && in->overflow == PENSTOCK_OVERFLOW_TRUNCATE)
		return ps_error_set(
		        err, EINVAL, "field %.100s: overflow truncate: JSON cannot be cut", f->name);
	if (in->max_bytes > 0)
		f->max_items = in->max_bytes / f->item_nbytes;
	if (f->max_items == 0)
		return ps_error_set(err, EINVAL,
		        "field %.100s: max_bytes %ju: must be at least %zu, the size of an item", f->name,
		        (uintmax_t)in->max_bytes, f->item_nbytes);
	f->form = !ragged                              ? PS_FORM_FIXED
	          : in->pad_to == 0                    ? PS_FORM_RAGGED
	          : in->pad_to == PENSTOCK_PAD_LONGEST ? PS_FORM_LONGEST
	                                               : PS_FORM_PADDED;
	if (f->form == PS_FORM_PADDED)
		f->max_items = PS_MIN(f->max_items, in->pad_to);
	if (ps_field_is_late(f)) {
		if (f->kind == PENSTOCK_OUTPUT && f->max_items == UINT64_MAX)
			return ps_error_set(
			        err, EINVAL, "field %.100s: a ragged output needs max_bytes", f->name);
		return 0;
	}
	f->row_items = !ragged ? f->ndim ? f->shape[0] : 1 : in->pad_to;
	if (!ps_size_mul((size_t)f->row_items, f->item_nbytes, &f->row_nbytes) || f->row_nbytes > PTRDIFF_MAX)
		return ps_error_set(
		        err, EINVAL, "field %.100s: a row is larger than the address space", f->name);
	return 0;
}

/* Images and masks --------------------------------------------------------------------------------------- */

static void transforms_plan(struct ps_transform_spec *t, const struct penstock_field *in)
{
	*t = (struct ps_transform_spec){.affine = in->affine,
	        .degrees = in->degrees,
	        .translate_x = in->translate_x,
	        .translate_y = in->translate_y,
	        .zoom_min = in->zoom_min,
	        .zoom_max = in->zoom_max,
	        .shear_x = in->shear_x,
	        .shear_y = in->shear_y,
	        .fill = in->fill,
	        .jitter = in->jitter,
	        .brightness = in->brightness,
	        .contrast = in->contrast,
	        .saturation = in->saturation,
	        .hue = in->hue,
	        .gray = in->gray,
	        .blur = in->blur,
	        .blur_size = in->blur_size,
	        .blur_sigma_min = in->blur_sigma_min,
	        .blur_sigma_max = in->blur_sigma_max,
	        .noise = in->noise,
	        .noise_sigma = in->noise_sigma,
	        .noise_sigma_max = in->noise_sigma_max,
	        .jitter_random = in->jitter_order == PENSTOCK_JITTER_RANDOM,
	        .blur_size_max = in->blur_size_max,
	        .erase = in->erase,
	        .erase_scale_min = in->erase_scale_min,
	        .erase_scale_max = in->erase_scale_max,
	        .erase_ratio_min = in->erase_ratio_min,
	        .erase_ratio_max = in->erase_ratio_max};
	t->erase_random = in->erase_fill == PENSTOCK_ERASE_RANDOM;
	for (int c = 0; c < 3; c++) {
		t->erase_level[c] = in->erase_fill == PENSTOCK_ERASE_LEVELS
		                            ? (uint8_t)(in->erase_levels >> (16 - 8 * c))
		                            : (uint8_t)(255 * fminf(fmaxf(in->mean[c], 0), 1) + 0.5f);
		t->erase_sigma[c] = t->erase_random ? 255 * (double)in->std[c] : 0;
	}
}

/* Sets the shape of rows from the spec's sizes. */
static void image_form(struct ps_layout_field *f)
{
	const struct ps_image_spec *spec = &f->image;
	uint32_t d = 0;

	f->form = PS_FORM_FIXED;
	f->dtype = spec->dtype;
	f->row_nbytes = ps_image_nbytes(spec);
	if (spec->views > 0)
		f->shape[d++] = spec->views;
	if (spec->layout == PS_NCHW)
		f->shape[d++] = ps_image_channels(spec);
	f->shape[d++] = spec->out_height;
	f->shape[d++] = spec->out_width;
	if (spec->layout == PS_NHWC)
		f->shape[d++] = ps_image_channels(spec);
	f->ndim = d;
}

/* The memory that an image may need to be decoded: the default, or what the pixels take that the caller allows. */
static uint64_t max_memory_of(const struct penstock_field *in)
{
	return in->max_pixels > UINT64_MAX / 8 ? UINT64_MAX
	                                       : PS_MAX(in->max_pixels * 8, PS_IMAGE_MAX_MEMORY_DEFAULT);
}

static int image_plan(struct ps_layout_field *f, const struct penstock_field *in, struct ps_error *err)
{
	struct ps_image_spec *spec = &f->image;
	uint32_t longer = PS_MAX(in->image_width, in->image_height);

	if (in->padding_mode > PENSTOCK_PADDING_SYMMETRIC || in->erase_fill > PENSTOCK_ERASE_LEVELS ||
	        in->erase_levels > 0xffffff || in->jitter_order > PENSTOCK_JITTER_RANDOM)
		return ps_error_set(err, EINVAL,
		        "field %.100s: unknown padding_mode, erase_fill, erase_levels or jitter_order",
		        f->name);
	if (in->crop > PENSTOCK_CROP_LETTERBOX || in->interpolation > PENSTOCK_BICUBIC ||
	        in->layout > PENSTOCK_NHWC || in->channels > PENSTOCK_CHANNELS_GRAY ||
	        (in->dtype > PENSTOCK_BF16 && in->dtype != PENSTOCK_U16))
		return ps_error_set(err, EINVAL,
		        "field %.100s: unknown crop, interpolation, layout, channels or dtype (images are "
		        "u8, u16, f32, f16 "
		        "or bf16)",
		        f->name);
	if (in->truncated > PENSTOCK_TRUNCATED_ALLOW)
		return ps_error_set(err, EINVAL,
		        "field %.100s: truncated %u: must be 0 (refuse) or 1 (allow)", f->name,
		        in->truncated);
	*spec = ps_image_spec_imagenet(224);
	spec->out_width = in->image_width;
	spec->out_height = in->image_height;
	spec->crop = (enum ps_crop)in->crop;
	spec->resize_width = in->resize_width;
	spec->resize_height = in->resize_height;
	spec->resize_shorter = in->resize_shorter;
	if (!in->resize_shorter && !in->resize_width && !in->resize_height &&
	        in->crop == PENSTOCK_CROP_CENTER)
		spec->resize_shorter = PS_MIN(longer + longer / 7, PS_IMAGE_SIDE_MAX);
	spec->padding_x = in->padding_x;
	spec->padding_y = in->padding_y;
	spec->padding = (enum ps_pad_mode)in->padding_mode;
	spec->scale_min = in->scale_min;
	spec->scale_max = in->scale_max;
	spec->ratio_min = in->ratio_min;
	spec->ratio_max = in->ratio_max;
	spec->hflip_probability = in->hflip;
	spec->vflip_probability = in->vflip;
	spec->interpolation = (enum ps_interpolation)in->interpolation;
	spec->channels = (enum ps_channels)in->channels;
	spec->dtype = (enum ps_dtype)in->dtype;
	spec->layout = (enum ps_layout)in->layout;
	spec->orient = in->orient != 0;
	spec->dct_scale = in->dct_scale != 0;
	spec->truncated = in->truncated == PENSTOCK_TRUNCATED_ALLOW;
	spec->views = in->views;
	memcpy(spec->mean, in->mean, sizeof(spec->mean));
	memcpy(spec->std, in->std, sizeof(spec->std));
	spec->max_pixels = in->max_pixels;
	spec->max_memory = max_memory_of(in);
	transforms_plan(&spec->transforms, in);
	int rc = ps_choice_parse(in->groups, &spec->transforms.groups, err);
	if (rc == 0)
		rc = ps_image_spec_check(spec, err);
	if (rc < 0)
		return ps_error_prefix(err, rc, "field %.100s", f->name);
	image_form(f);
	return 0;
}

/* Sets up a mask; its size is set when its image is known. */
static int mask_plan(struct ps_layout_field *f, const struct penstock_field *in, struct ps_error *err)
{
	if (in->dtype >= PS_NDTYPES)
		return ps_error_set(err, EINVAL, "field %.100s: unknown dtype %u", f->name, in->dtype);
	f->form = PS_FORM_FIXED;
	f->dtype = (enum ps_dtype)in->dtype;
	f->mask = (struct ps_mask_spec){.dtype = f->dtype,
	        .fill = in->fill,
	        .orient = in->orient != 0,
	        .max_pixels = in->max_pixels,
	        .max_memory = max_memory_of(in)};
	int rc = ps_mask_spec_check(&f->mask, err);
	return rc < 0 ? ps_error_prefix(err, rc, "field %.100s", f->name) : 0;
}

/* A field ------------------------------------------------------------------------------------------------ */

static int element_plan(const struct ps_layout_field *f, const char *option, int64_t value,
        uint8_t *ret_element, struct ps_error *err)
{
	const struct ps_number v = {
	        .negative = value < 0, .magnitude = value < 0 ? -(uint64_t)value : (uint64_t)value};

	if (ps_number_store(&v, f->dtype, ret_element))
		return 0;
	return ps_error_set(err, EINVAL, "field %.100s: %s %jd: %s cannot hold it", f->name, option,
	        (intmax_t)value, ps_dtype_name(f->dtype));
}

int ps_layout_field_make(struct ps_layout_field *f, const struct penstock_field *in, struct ps_error *err)
{
	const struct ps_number nan = {.is_float = true, .value = (double)NAN};
	bool given, picture = in->kind == PENSTOCK_IMAGE || in->kind == PENSTOCK_MASK;
	int rc;

	f->planes = 1;
	f->offset_name = in->add_offset_of;
	f->offset_of = -1;
	if (picture && f->path)
		return ps_error_set(err, EINVAL,
		        "field %.100s: images and masks cannot come from a path in JSON", f->name);
	if (picture && in->optional)
		return ps_error_set(
		        err, EINVAL, "field %.100s: images and masks cannot be optional", f->name);
	if (picture) {
		rc = in->kind == PENSTOCK_IMAGE ? image_plan(f, in, err) : mask_plan(f, in, err);
	} else {
		rc = kind_plan(f, in, err);
		if (rc == 0)
			rc = items_plan(f, err);
		if (rc == 0)
			rc = form_plan(f, in, err);
	}
	if (rc < 0)
		return rc;
	given = f->form == PS_FORM_FIXED && f->kind != PENSTOCK_IMAGE &&
	        (f->optional || in->missing_value != PS_MISSING_VALUE);
	if (f->kind == PENSTOCK_FLOAT)
		(void)!ps_number_store_rounded(&nan, f->dtype, f->missing);
	else if (given)
		rc = element_plan(f, "missing_value", in->missing_value, f->missing, err);
	f->has_missing = given && !ps_dtype_is_float(f->dtype);
	if (rc == 0 && (ps_field_is_padded(f) || f->pack))
		rc = element_plan(f, "pad_value", in->pad_value, f->pad, err);
	return rc;
}

/* Fields that follow another one, or share its decode ---------------------------------------------------- */

/* The index of the image that field i follows; -1: none. */
static int leader_find(const struct ps_batch_layout *layout, const struct penstock_field *in, uint32_t i)
{
	int leader = in->follow ? ps_layout_lookup(layout, in->follow, strlen(in->follow)) : -1;

	for (uint32_t j = 0; j < i && !in->follow && leader < 0; j++)
		if (layout->fields[j].kind == PENSTOCK_IMAGE)
			leader = (int)j;
	if (leader < 0 || leader >= (int)i || layout->fields[leader].kind != PENSTOCK_IMAGE ||
	        layout->fields[leader].leader >= 0)
		return -1;
	return leader;
}

static int follow_plan(
        struct ps_batch_layout *layout, const struct penstock_field *in, uint32_t i, struct ps_error *err)
{
	struct ps_layout_field *f = &layout->fields[i];
	const struct ps_image_spec *image;

	f->leader = leader_find(layout, in, i);
	if (f->leader < 0)
		return ps_error_set(err, EINVAL,
		        "field %.100s: %s%.100s: must follow an image field that is listed before it and "
		        "follows no field",
		        f->name, in->follow ? "follow " : "there is no image", in->follow ? in->follow : "");
	image = &layout->fields[f->leader].image;
	if (f->kind == PENSTOCK_BOXES && image->views > 0)
		return ps_error_set(err, EINVAL,
		        "field %.100s: boxes can follow an image of one view only, not of %u", f->name,
		        image->views);
	if (f->kind == PENSTOCK_IMAGE) {
		f->image.out_width = image->out_width;
		f->image.out_height = image->out_height;
		f->image.views = image->views;
		f->image.first_view = image->first_view;
		f->image.dct_scale = false;
		if (image->transforms.affine > 0 && ps_image_is_wide(&f->image))
			return ps_error_set(err, EINVAL,
			        "field %.100s: follows field %.100s, whose affine needs channels rgb and a "
			        "dtype other than u16",
			        f->name, layout->fields[f->leader].name);
		image_form(f);
	} else if (f->kind == PENSTOCK_MASK) {
		f->ndim = image->views > 0 ? 3 : 2;
		f->shape[0] = image->views;
		f->shape[f->ndim - 2] = image->out_height;
		f->shape[f->ndim - 1] = image->out_width;
		f->row_nbytes = (size_t)image->out_height * image->out_width * ps_image_views(image) *
		                ps_dtype_nbytes(f->dtype);
	}
	return 0;
}

static bool same_member(const struct ps_layout_field *a, const struct ps_layout_field *b)
{
	const char *p = a->names, *q = b->names;

	if (a->n_names != b->n_names)
		return false;
	for (uint32_t i = 0; i < a->n_names; i++) {
		if (strcmp(p, q) != 0)
			return false;
		p += a->name_len[i] + 1;
		q += b->name_len[i] + 1;
	}
	return true;
}

/* Among the image fields of one member that agree in orientation, in `truncated` and in being wide, the first decodes the
 * image for all. The views of all image fields of a member are numbered consecutively, so that each view has
 * its own random numbers. */
static void sharing_plan(struct ps_batch_layout *layout, uint32_t i)
{
	struct ps_layout_field *f = &layout->fields[i];

	f->decoded_by = i;
	for (uint32_t j = 0; j < i; j++) {
		const struct ps_layout_field *other = &layout->fields[j];

		if (other->kind != PENSTOCK_IMAGE || other->leader >= 0 || !same_member(f, other))
			continue;
		f->image.first_view += ps_image_views(&other->image);
		if (other->decoded_by == j && f->decoded_by == i && other->image.orient == f->image.orient &&
		        other->image.truncated == f->image.truncated &&
		        ps_image_is_wide(&other->image) == ps_image_is_wide(&f->image))
			f->decoded_by = j;
	}
}

/* Finds the boxes that field i drops items with. */
static int drops_plan(
        struct ps_batch_layout *layout, const struct penstock_field *in, uint32_t i, struct ps_error *err)
{
	struct ps_layout_field *f = &layout->fields[i];
	int boxes = -1;

	if (f->kind == PENSTOCK_BOXES) {
		f->min_area = in->min_area;
		f->min_visible = in->min_visible;
		if (!(in->min_area >= 0 && in->min_area < INFINITY))
			return ps_error_set(err, EINVAL, "field %.100s: min_area %g: must be at least 0",
			        f->name, in->min_area);
		if (!(in->min_visible >= 0 && in->min_visible <= 1))
			return ps_error_set(err, EINVAL, "field %.100s: min_visible %g: must be 0 to 1",
			        f->name, in->min_visible);
		f->drops_with = in->min_area > 0 || in->min_visible > 0 ? (int)i : -1;
		return 0;
	}
	if ((f->kind != PENSTOCK_NPY && f->kind != PENSTOCK_JSON) || !in->follow)
		return 0;
	boxes = ps_layout_lookup(layout, in->follow, strlen(in->follow));
	if (boxes < 0 || boxes >= (int)i || layout->fields[boxes].kind != PENSTOCK_BOXES ||
	        layout->fields[boxes].drops_with < 0)
		return ps_error_set(err, EINVAL,
		        "field %.100s: follow %.100s: an array can follow boxes that are listed before it "
		        "and "
		        "have min_area or min_visible",
		        f->name, in->follow);
	if (f->form == PS_FORM_FIXED || (f->kind == PENSTOCK_JSON && f->ops != &ps_field_json_numbers))
		return ps_error_set(err, EINVAL,
		        "field %.100s: follow %.100s: needs a shape with a leading 0, one item for each box",
		        f->name, in->follow);
	f->drops_with = boxes;
	return 0;
}

int ps_layout_images_join(
        struct ps_batch_layout *layout, const struct penstock_field *in, struct ps_error *err)
{
	for (uint32_t i = 0; i < layout->nfields; i++) {
		layout->fields[i].leader = layout->fields[i].drops_with = -1;
		layout->fields[i].decoded_by = i;
	}
	for (uint32_t i = 0; i < layout->nfields; i++) {
		bool follows = in[i].kind == PENSTOCK_MASK || in[i].kind == PENSTOCK_BOXES ||
		               (in[i].kind == PENSTOCK_IMAGE && in[i].follow);
		int rc = 0;

		if (follows)
			rc = follow_plan(layout, &in[i], i, err);
		else if (in[i].kind == PENSTOCK_IMAGE)
			sharing_plan(layout, i);
		if (rc == 0)
			rc = drops_plan(layout, &in[i], i, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}
