#include "image/image.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/number.h"

struct ps_image_spec ps_image_spec_imagenet(uint32_t size)
{
	return (struct ps_image_spec){
	        .out_width = size,
	        .out_height = size,
	        .crop = PS_CROP_RANDOM_RESIZED,
	        .scale_min = 0.08,
	        .scale_max = 1,
	        .ratio_min = 3.0 / 4,
	        .ratio_max = 4.0 / 3,
	        .hflip_probability = 0.5,
	        .interpolation = PS_BILINEAR,
	        .dtype = PS_F32,
	        .layout = PS_NCHW,
	        .mean = {0.485f, 0.456f, 0.406f},
	        .std = {0.229f, 0.224f, 0.225f},
	};
}

static int check_size(const struct ps_image_spec *s, struct ps_error *err)
{
	if (s->out_width < 1 || s->out_width > PS_IMAGE_SIDE_MAX || s->out_height < 1 ||
	        s->out_height > PS_IMAGE_SIDE_MAX)
		return ps_error_set(err, EINVAL, "image: output size %u x %u: each side must be 1 to %u",
		        s->out_width, s->out_height, PS_IMAGE_SIDE_MAX);
	if (s->padding > PS_PAD_SYMMETRIC)
		return ps_error_set(err, EINVAL, "image: padding_mode %d: unknown", (int)s->padding);
	if (s->padding_x >= s->out_width || s->padding_y >= s->out_height)
		return ps_error_set(err, EINVAL,
		        "image: padding %u x %u: must be less than the output, %u x %u", s->padding_x,
		        s->padding_y, s->out_width, s->out_height);
	if (s->resize_shorter && (s->resize_width || s->resize_height))
		return ps_error_set(err, EINVAL,
		        "image: resize_shorter %u has no effect together with resize_width and "
		        "resize_height: give "
		        "only one of the two",
		        s->resize_shorter);
	if (!s->resize_width != !s->resize_height || s->resize_width > PS_IMAGE_SIDE_MAX ||
	        s->resize_height > PS_IMAGE_SIDE_MAX)
		return ps_error_set(err, EINVAL, "image: resize %u x %u: each side must be 1 to %u",
		        s->resize_width, s->resize_height, PS_IMAGE_SIDE_MAX);
	if (s->crop == PS_CROP_RANDOM && s->resize_shorter > PS_IMAGE_SIDE_MAX)
		return ps_error_set(err, EINVAL, "image: resize_shorter %u: must be at most %u",
		        s->resize_shorter, PS_IMAGE_SIDE_MAX);
	if (s->crop != PS_CROP_CENTER)
		return 0;
	if (s->resize_width && (s->resize_width < s->out_width || s->resize_height < s->out_height))
		return ps_error_set(err, EINVAL,
		        "image: resize %u x %u: must not be smaller than the output, %u x %u (crop "
		        "random_crop may pad)",
		        s->resize_width, s->resize_height, s->out_width, s->out_height);
	if (s->resize_width)
		return 0;
	if (s->resize_shorter < PS_MAX(s->out_width, s->out_height) || s->resize_shorter > PS_IMAGE_SIDE_MAX)
		return ps_error_set(err, EINVAL,
		        "image: resize_shorter %u: must be at least the output's longer side (%u x %u) and "
		        "at most %u",
		        s->resize_shorter, s->out_width, s->out_height, PS_IMAGE_SIDE_MAX);
	return 0;
}

/* The comparisons are written so that a NaN is refused. */
static int check_random(const struct ps_image_spec *s, struct ps_error *err)
{
	if (!(s->hflip_probability >= 0 && s->hflip_probability <= 1))
		return ps_error_set(
		        err, EINVAL, "image: hflip_probability %g: must be 0 to 1", s->hflip_probability);
	if (!(s->vflip_probability >= 0 && s->vflip_probability <= 1))
		return ps_error_set(
		        err, EINVAL, "image: vflip_probability %g: must be 0 to 1", s->vflip_probability);
	if (s->views > PS_IMAGE_VIEWS_MAX)
		return ps_error_set(
		        err, EINVAL, "image: %u views: must be at most %u", s->views, PS_IMAGE_VIEWS_MAX);
	if (s->crop != PS_CROP_RANDOM_RESIZED)
		return 0;
	if (!(s->scale_min > 0 && s->scale_min <= s->scale_max && s->scale_max <= 1))
		return ps_error_set(err, EINVAL, "image: scale %g to %g: must be 0 < min <= max <= 1",
		        s->scale_min, s->scale_max);
	if (!(s->ratio_min >= 1e-3 && s->ratio_min <= s->ratio_max && s->ratio_max <= 1e3))
		return ps_error_set(err, EINVAL, "image: ratio %g to %g: must be 0.001 <= min <= max <= 1000",
		        s->ratio_min, s->ratio_max);
	return 0;
}

static int check_format(const struct ps_image_spec *s, struct ps_error *err)
{
	if (s->channels > PS_CHANNELS_GRAY)
		return ps_error_set(err, EINVAL, "image: channels %d: unknown", (int)s->channels);
	if (s->dtype != PS_U8 && s->dtype != PS_U16 && s->dtype != PS_F32 && s->dtype != PS_F16 &&
	        s->dtype != PS_BF16)
		return ps_error_set(err, EINVAL, "image: dtype %s (%d): must be u8, u16, f32, f16 or bf16",
		        ps_dtype_name(s->dtype), (int)s->dtype);
	if (s->layout != PS_NCHW && s->layout != PS_NHWC)
		return ps_error_set(err, EINVAL, "image: layout %d: must be NCHW or NHWC", (int)s->layout);
	for (int c = 0; c < 3; c++)
		if (s->mean[c] > 1)
			return ps_error_set(err, EINVAL,
			        "image: mean %g, std %g of channel %d: values are 0 to 1: divide by 255",
			        (double)s->mean[c], (double)s->std[c], c);
	for (int c = 0; ps_dtype_is_float(s->dtype) && c < 3; c++) {
		if (!isfinite(s->mean[c]) || !(s->std[c] >= 1e-6f && s->std[c] <= 1e6f))
			return ps_error_set(err, EINVAL,
			        "image: mean %g, std %g of channel %d: mean must be finite, std 1e-6 to 1e6",
			        (double)s->mean[c], (double)s->std[c], c);
	}
	return 0;
}

static int check_wide(const struct ps_image_spec *s, struct ps_error *err)
{
	const struct ps_transform_spec *t = &s->transforms;
	const char *what = t->affine > 0   ? "affine"
	                   : t->jitter > 0 ? "jitter"
	                   : t->gray > 0   ? "gray"
	                   : t->blur > 0   ? "blur"
	                   : t->noise > 0  ? "noise"
	                   : t->erase > 0  ? "erase"
	                                   : NULL;
	if (!ps_image_is_wide(s) || !what)
		return 0;
	return ps_error_set(err, EINVAL, "image: %s needs channels rgb and a dtype other than u16", what);
}

int ps_image_spec_check(const struct ps_image_spec *spec, struct ps_error *err)
{
	if (spec->crop != PS_CROP_RANDOM_RESIZED && spec->crop != PS_CROP_CENTER &&
	        spec->crop != PS_CROP_NONE && spec->crop != PS_CROP_RANDOM && spec->crop != PS_CROP_LETTERBOX)
		return ps_error_set(err, EINVAL, "image: crop %d: unknown", (int)spec->crop);
	if (spec->interpolation != PS_BILINEAR && spec->interpolation != PS_BICUBIC)
		return ps_error_set(err, EINVAL, "image: interpolation %d: must be bilinear or bicubic",
		        (int)spec->interpolation);
	int rc = check_size(spec, err);
	if (rc == 0)
		rc = check_random(spec, err);
	if (rc == 0)
		rc = check_format(spec, err);
	if (rc == 0)
		rc = ps_transform_check(&spec->transforms, spec->out_width, spec->out_height, err);
	if (rc == 0)
		rc = ps_choice_check(spec, err);
	if (rc == 0)
		rc = check_wide(spec, err);
	return rc;
}

size_t ps_image_nbytes(const struct ps_image_spec *spec)
{
	if (ps_image_spec_check(spec, NULL) < 0)
		return 0;
	/* Cannot overflow: at most 64 * 2^28 * 4 * 4. */
	return (size_t)spec->out_width * spec->out_height * ps_image_channels(spec) *
	       ps_dtype_nbytes(spec->dtype) * ps_image_views(spec);
}

uint32_t ps_image_views(const struct ps_image_spec *spec)
{
	return PS_MAX(spec->views, 1u);
}

uint32_t ps_image_channels(const struct ps_image_spec *spec)
{
	return spec->channels == PS_CHANNELS_RGBA ? 4 : spec->channels == PS_CHANNELS_GRAY ? 1 : 3;
}

bool ps_image_is_wide(const struct ps_image_spec *spec)
{
	return spec->channels != PS_CHANNELS_RGB || spec->dtype == PS_U16;
}
