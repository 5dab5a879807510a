/* Image fields, and the masks and boxes that follow them. */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "batch/plan.h"

/* A level of a share, to whole ones. */
static uint8_t level_of(float share)
{
	return (uint8_t)(255 * fminf(fmaxf(share, 0), 1) + 0.5f);
}

static void erase_plan(struct ps_transform_spec *t, const struct penstock_field *in)
{
	t->erase_random = in->erase_fill == PENSTOCK_ERASE_RANDOM;
	for (int c = 0; c < 3; c++) {
		t->erase_level[c] = in->erase_fill == PENSTOCK_ERASE_LEVELS
		                            ? (uint8_t)(in->erase_levels >> (16 - 8 * c))
		                            : level_of(in->mean[c]);
		t->erase_sigma[c] = t->erase_random ? 255 * (double)in->std[c] : 0;
	}
}

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
	erase_plan(t, in);
}

/* Rows of the spec's sizes. */
static void image_form(struct ps_plan_field *f)
{
	const struct ps_image_spec *spec = &f->image;
	uint32_t d = 0;

	f->form = PS_FORM_FIXED;
	f->dtype = spec->dtype;
	f->row_nbytes = ps_image_nbytes(spec);
	if (spec->views > 0)
		f->shape[d++] = spec->views;
	if (spec->layout == PS_NCHW)
		f->shape[d++] = 3;
	f->shape[d++] = spec->out_height;
	f->shape[d++] = spec->out_width;
	if (spec->layout == PS_NHWC)
		f->shape[d++] = 3;
	f->ndim = d;
}

static int image_plan(struct ps_plan_field *f, const struct penstock_field *in, struct ps_load_error *err)
{
	struct ps_image_spec *spec = &f->image;
	uint32_t longer = PS_MAX(in->image_width, in->image_height);

	if (in->padding_mode > PENSTOCK_PADDING_SYMMETRIC || in->erase_fill > PENSTOCK_ERASE_LEVELS ||
	        in->erase_levels > 0xffffff || in->jitter_order > PENSTOCK_JITTER_RANDOM)
		return ps_load_error_set(err, EINVAL,
		        "field %.100s: unknown padding_mode, erase_fill, erase_levels or jitter_order", f->name);
	if (in->crop > PENSTOCK_CROP_RANDOM_CROP || in->interpolation > PENSTOCK_BICUBIC ||
	        in->layout > PENSTOCK_NHWC || in->dtype > PENSTOCK_BF16)
		return ps_load_error_set(err, EINVAL,
		        "field %.100s: unknown crop, interpolation, layout or dtype (images are u8, f32, f16 "
		        "or bf16)",
		        f->name);
	*spec = ps_image_spec_imagenet(224);
	spec->out_width = in->image_width;
	spec->out_height = in->image_height;
	spec->crop = (enum ps_crop)in->crop;
	spec->resize_width = in->resize_width;
	spec->resize_height = in->resize_height;
	spec->resize_shorter = in->resize_shorter;
	if (!in->resize_shorter && !in->resize_width && !in->resize_height && in->crop == PENSTOCK_CROP_CENTER)
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
	spec->dtype = (enum ps_dtype)in->dtype;
	spec->layout = (enum ps_layout)in->layout;
	spec->orient = in->orient != 0;
	spec->dct_scale = in->dct_scale != 0;
	spec->views = in->views;
	memcpy(spec->mean, in->mean, sizeof(spec->mean));
	memcpy(spec->std, in->std, sizeof(spec->std));
	spec->max_pixels = in->max_pixels;
	spec->max_memory = in->max_memory;
	spec->max_scans = in->max_scans;
	transforms_plan(&spec->transforms, in);
	if (ps_choice_parse(in->groups, &spec->transforms.groups, err) < 0 || ps_image_spec_check(spec, err) < 0)
		return ps_load_error_prefix(err, "field %.100s", f->name);
	image_form(f);
	return 0;
}

/* The size is known when its image is. */
static int mask_plan(struct ps_plan_field *f, const struct penstock_field *in, struct ps_load_error *err)
{
	if (in->dtype >= PS_NDTYPES)
		return ps_load_error_set(err, EINVAL, "field %.100s: unknown dtype %u", f->name, in->dtype);
	f->form = PS_FORM_FIXED;
	f->dtype = (enum ps_dtype)in->dtype;
	f->mask = (struct ps_mask_spec){.dtype = f->dtype,
	        .fill = in->fill,
	        .orient = in->orient != 0,
	        .max_pixels = in->max_pixels,
	        .max_memory = in->max_memory};
	if (ps_mask_spec_check(&f->mask, err) < 0)
		return ps_load_error_prefix(err, "field %.100s", f->name);
	return 0;
}

int ps_plan_image_make(struct ps_plan_field *f, const struct penstock_field *in, struct ps_load_error *err)
{
	if (f->path)
		return ps_load_error_set(err, EINVAL, "field %.100s: an image has no path", f->name);
	if (in->optional)
		return ps_load_error_set(err, EINVAL, "field %.100s: an image cannot be optional", f->name);
	return in->kind == PENSTOCK_IMAGE ? image_plan(f, in, err) : mask_plan(f, in, err);
}

/* -- Who follows whom, and who shares a decode ---------------------------------------------------------- */

static bool is_follower(const struct penstock_field *in)
{
	return in->kind == PENSTOCK_MASK || in->kind == PENSTOCK_BOXES ||
	       (in->kind == PENSTOCK_IMAGE && in->follow);
}

/* The place of the image that field i follows; -1: none. */
static int leader_find(const struct ps_plan *plan, const struct penstock_field *in, uint32_t i)
{
	int leader = in->follow ? ps_plan_lookup(plan, in->follow, strlen(in->follow)) : -1;

	for (uint32_t j = 0; j < i && !in->follow && leader < 0; j++)
		if (plan->fields[j].kind == PENSTOCK_IMAGE)
			leader = (int)j;
	if (leader < 0 || leader >= (int)i || plan->fields[leader].kind != PENSTOCK_IMAGE ||
	        plan->fields[leader].leader >= 0)
		return -1;
	return leader;
}

static int follow_plan(
        struct ps_plan *plan, const struct penstock_field *in, uint32_t i, struct ps_load_error *err)
{
	struct ps_plan_field *f = &plan->fields[i];
	const struct ps_image_spec *image;

	f->leader = leader_find(plan, in, i);
	if (f->leader < 0)
		return ps_load_error_set(err, EINVAL,
		        "field %.100s: %s%.100s: must follow an image field that stands before it and "
		        "follows "
		        "none",
		        f->name, in->follow ? "follow " : "there is no image", in->follow ? in->follow : "");
	image = &plan->fields[f->leader].image;
	if (f->kind == PENSTOCK_BOXES && image->views > 0)
		return ps_load_error_set(err, EINVAL,
		        "field %.100s: boxes can follow an image of one view only, not of %u", f->name,
		        image->views);
	if (f->kind == PENSTOCK_IMAGE) {
		f->image.out_width = image->out_width;
		f->image.out_height = image->out_height;
		f->image.views = image->views;
		f->image.first_view = image->first_view;
		f->image.dct_scale = false;
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

static bool same_member(const struct ps_plan_field *a, const struct ps_plan_field *b)
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

/* Images of one member are decoded by the first of them; their views are numbered through, so that each has
 * random numbers of its own. */
static void sharing_plan(struct ps_plan *plan, uint32_t i)
{
	struct ps_plan_field *f = &plan->fields[i];

	f->decoded_by = i;
	for (uint32_t j = 0; j < i; j++) {
		const struct ps_plan_field *other = &plan->fields[j];

		if (other->kind != PENSTOCK_IMAGE || other->leader >= 0 || !same_member(f, other))
			continue;
		f->image.first_view += ps_image_views(&other->image);
		if (other->decoded_by == j && f->decoded_by == i && other->image.orient == f->image.orient)
			f->decoded_by = j;
	}
}

int ps_plan_images_join(struct ps_plan *plan, const struct penstock_field *in, struct ps_load_error *err)
{
	for (uint32_t i = 0; i < plan->nfields; i++) {
		plan->fields[i].leader = -1;
		plan->fields[i].decoded_by = i;
	}
	for (uint32_t i = 0; i < plan->nfields; i++) {
		int r = 0;

		if (is_follower(&in[i]))
			r = follow_plan(plan, &in[i], i, err);
		else if (in[i].kind == PENSTOCK_IMAGE)
			sharing_plan(plan, i);
		if (r < 0)
			return r;
	}
	return 0;
}
