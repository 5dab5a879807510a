#include "image/image.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/overflow.h"
#include "image/augment.h"
#include "image/jpeg.h"
#include "image/resize.h"

struct ps_image_decoder {
	struct ps_image_spec spec;
	struct ps_jpeg_limits limits;
	struct ps_jpeg *jpeg;
	struct ps_resize *resize;
	float scale[3], bias[3];
};

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

static int check_size(const struct ps_image_spec *s, struct ps_load_error *err)
{
	if (s->out_width < 1 || s->out_width > PS_IMAGE_SIDE_MAX || s->out_height < 1 ||
	        s->out_height > PS_IMAGE_SIDE_MAX)
		return ps_load_error_set(err, EINVAL, "image: output size %u x %u: each side must be 1 to %u",
		        s->out_width, s->out_height, PS_IMAGE_SIDE_MAX);
	if (s->crop != PS_CROP_CENTER)
		return 0;
	if (s->resize_shorter < PS_MAX(s->out_width, s->out_height) || s->resize_shorter > PS_IMAGE_SIDE_MAX)
		return ps_load_error_set(err, EINVAL,
		        "image: resize_shorter %u: must be at least the output's longer side (%u x %u) and "
		        "at most %u",
		        s->resize_shorter, s->out_width, s->out_height, PS_IMAGE_SIDE_MAX);
	return 0;
}

/* The comparisons are written so that a NaN fails them. */
static int check_random(const struct ps_image_spec *s, struct ps_load_error *err)
{
	if (!(s->hflip_probability >= 0 && s->hflip_probability <= 1))
		return ps_load_error_set(
		        err, EINVAL, "image: hflip_probability %g: must be 0 to 1", s->hflip_probability);
	if (s->crop != PS_CROP_RANDOM_RESIZED)
		return 0;
	if (!(s->scale_min > 0 && s->scale_min <= s->scale_max && s->scale_max <= 1))
		return ps_load_error_set(err, EINVAL, "image: scale %g to %g: must be 0 < min <= max <= 1",
		        s->scale_min, s->scale_max);
	if (!(s->ratio_min >= 1e-3 && s->ratio_min <= s->ratio_max && s->ratio_max <= 1e3))
		return ps_load_error_set(err, EINVAL,
		        "image: ratio %g to %g: must be 0.001 <= min <= max <= 1000", s->ratio_min,
		        s->ratio_max);
	return 0;
}

static int check_format(const struct ps_image_spec *s, struct ps_load_error *err)
{
	if (s->dtype != PS_U8 && s->dtype != PS_F32)
		return ps_load_error_set(err, EINVAL, "image: dtype %s (%d): must be u8 or f32",
		        ps_dtype_name(s->dtype), (int)s->dtype);
	if (s->layout != PS_NCHW && s->layout != PS_NHWC)
		return ps_load_error_set(
		        err, EINVAL, "image: layout %d: must be NCHW or NHWC", (int)s->layout);
	for (int c = 0; s->dtype == PS_F32 && c < 3; c++) {
		if (!isfinite(s->mean[c]) || !(s->std[c] >= 1e-6f && s->std[c] <= 1e6f))
			return ps_load_error_set(err, EINVAL,
			        "image: mean %g, std %g of channel %d: mean must be finite, std 1e-6 to 1e6",
			        (double)s->mean[c], (double)s->std[c], c);
	}
	return 0;
}

int ps_image_spec_check(const struct ps_image_spec *spec, struct ps_load_error *err)
{
	if (spec->crop != PS_CROP_RANDOM_RESIZED && spec->crop != PS_CROP_CENTER &&
	        spec->crop != PS_CROP_NONE)
		return ps_load_error_set(err, EINVAL, "image: crop %d: unknown", (int)spec->crop);
	if (spec->interpolation != PS_BILINEAR && spec->interpolation != PS_BICUBIC)
		return ps_load_error_set(err, EINVAL, "image: interpolation %d: must be bilinear or bicubic",
		        (int)spec->interpolation);
	int rc = check_size(spec, err);
	if (rc == 0)
		rc = check_random(spec, err);
	if (rc == 0)
		rc = check_format(spec, err);
	return rc;
}

size_t ps_image_nbytes(const struct ps_image_spec *spec)
{
	if (ps_image_spec_check(spec, NULL) < 0)
		return 0;
	return (size_t)spec->out_width * spec->out_height * 3 * ps_dtype_nbytes(spec->dtype);
}

struct ps_image_decoder *ps_image_decoder_new(const struct ps_image_spec *spec, struct ps_load_error *err)
{
	if (ps_image_spec_check(spec, err) < 0)
		return NULL;
	struct ps_image_decoder *d = calloc(1, sizeof *d);
	if (!d)
		goto out_of_memory;
	d->spec = *spec;
	d->limits.max_pixels = spec->max_pixels ? spec->max_pixels : PS_IMAGE_MAX_PIXELS_DEFAULT;
	d->limits.max_scans = spec->max_scans ? spec->max_scans : PS_IMAGE_MAX_SCANS_DEFAULT;
	d->limits.max_coef_nbytes = spec->max_coef_nbytes ? spec->max_coef_nbytes : PS_IMAGE_MAX_COEF_DEFAULT;
	for (int c = 0; spec->dtype == PS_F32 && c < 3; c++) {
		d->scale[c] = (float)(1 / (255 * (double)spec->std[c]));
		d->bias[c] = (float)(-(double)spec->mean[c] / (double)spec->std[c]);
	}
	d->jpeg = ps_jpeg_new();
	d->resize = ps_resize_new(ps_resize_cpu_best());
	if (!d->jpeg || !d->resize)
		goto out_of_memory;
	return d;

out_of_memory:
	ps_image_decoder_free(d);
	ps_load_error_set(err, ENOMEM, "image: out of memory for a decoder");
	return NULL;
}

void ps_image_decoder_free(struct ps_image_decoder *decoder)
{
	if (!decoder)
		return;
	ps_jpeg_free(decoder->jpeg);
	ps_resize_free(decoder->resize);
	free(decoder);
}

/* The crop's rows, as libjpeg hands them out, through the resize while they are in the cache. */
static int stream_rows(struct ps_image_decoder *d, uint32_t height, struct ps_load_error *err)
{
	const uint8_t *rgb = NULL;
	size_t stride = 0;
	uint32_t nrows = 0;
	for (uint32_t y = 0; y < height; y += nrows) {
		int rc = ps_jpeg_rows(d->jpeg, &rgb, &stride, &nrows, err);
		if (rc < 0)
			return rc;
		for (uint32_t i = 0; i < nrows; i++)
			ps_resize_row(d->resize, rgb + i * stride);
	}
	return 0;
}

static int decode_open(struct ps_image_decoder *d, uint32_t width, uint32_t height,
        const struct ps_rng_key *key, void *dst, struct ps_load_error *err)
{
	struct ps_resize_geometry geometry;
	struct ps_resize_region region;
	struct ps_resize_sink sink = {.dst = dst, .dtype = d->spec.dtype, .layout = d->spec.layout};
	for (int c = 0; c < 3; c++) {
		sink.scale[c] = d->scale[c];
		sink.bias[c] = d->bias[c];
	}
	ps_augment_geometry(&d->spec, width, height, key, &geometry);
	if (ps_resize_plan(d->resize, &geometry, d->spec.interpolation) < 0)
		return ps_load_error_set(err, ENOMEM, "image: out of memory resizing %u x %u", width, height);
	ps_resize_source(d->resize, &region);
	ps_resize_begin(d->resize, &sink);
	int rc = ps_jpeg_start(
	        d->jpeg, region.x, region.y, region.width, region.height, region.slack_nbytes, err);
	return rc < 0 ? rc : stream_rows(d, region.height, err);
}

int ps_image_decode(struct ps_image_decoder *decoder, const void *jpeg, size_t nbytes,
        const struct ps_rng_key *key, void *dst, struct ps_load_error *err)
{
	uint32_t width, height;
	int rc = ps_jpeg_open(decoder->jpeg, jpeg, nbytes, &decoder->limits, &width, &height, err);
	if (rc < 0)
		return rc;
	rc = decode_open(decoder, width, height, key, dst, err);
	ps_jpeg_close(decoder->jpeg);
	return rc;
}

size_t ps_image_decoder_nbytes(const struct ps_image_decoder *decoder)
{
	return sizeof *decoder + ps_jpeg_nbytes(decoder->jpeg) + ps_resize_nbytes(decoder->resize);
}
