/* JPEG bytes to pixels in place: decode what the crop shows, resize, flip, normalise, straight into the
 * caller's memory (a sample's place in a batch slot).
 *
 * Ownership: a decoder belongs to its creator, who keeps nothing of the spec's; the JPEG and dst are borrowed
 *   for the call. A decoder keeps its buffers between calls (ps_image_decoder_nbytes() tells how much).
 * Threads: one decoder a thread; different decoders never meet.   Locks: none.
 * Errors: 0 or -errno with a text; a damaged image is -EBADMSG, and what dst then holds is not defined.
 * Blocks: on the processor only.
 * Pixels are a pure function of (JPEG bytes, spec, key): the same for any thread, vector unit and machine
 * (with one version of libjpeg-turbo). See resize.h for the arithmetic, augment.h for the random choices. */
#ifndef PS_LOADER_IMAGE_IMAGE_H
#define PS_LOADER_IMAGE_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/dtype.h"
#include "base/error.h"
#include "order/rng.h"

enum ps_crop {
	PS_CROP_RANDOM_RESIZED = 0, /* as torchvision's RandomResizedCrop */
	PS_CROP_CENTER = 1,         /* as Resize(resize_shorter), then CenterCrop: for evaluation */
	PS_CROP_NONE = 2,           /* the whole image, whatever its shape */
};

enum ps_interpolation {
	PS_BILINEAR = 0, /* both antialiased when shrinking, as PIL does */
	PS_BICUBIC = 1,  /* a = -0.5 */
};

#define PS_IMAGE_SIDE_MAX 16384u                        /* of out_width, out_height, resize_shorter */
#define PS_IMAGE_MAX_PIXELS_DEFAULT (UINT64_C(1) << 27) /* 11585 squared */
#define PS_IMAGE_MAX_SCANS_DEFAULT 100u                 /* usual progressive files have about 10 */
#define PS_IMAGE_MAX_COEF_DEFAULT (UINT64_C(256) << 20) /* 89 megapixels 4:2:0, 44 of 4:4:4 */

struct ps_image_spec {
	uint32_t out_width, out_height;
	enum ps_crop crop;
	uint32_t resize_shorter;     /* PS_CROP_CENTER only; not below out_width, out_height */
	double scale_min, scale_max; /* PS_CROP_RANDOM_RESIZED only: share of the image's area, */
	double ratio_min, ratio_max; /* ... and width / height of the crop */
	double hflip_probability;    /* 0 to 1, with any crop */
	enum ps_interpolation interpolation;
	enum ps_dtype dtype; /* PS_U8 or PS_F32 */
	enum ps_layout layout;
	float mean[3], std[3];    /* PS_F32 only: (value / 255 - mean) / std, in the form of resize.h */
	uint64_t max_pixels;      /* larger images are refused by their header; 0: the default above */
	uint32_t max_scans;       /* of a progressive file; 0: the default above */
	uint64_t max_coef_nbytes; /* memory for a progressive file's coefficients; 0: the default */
};

/* What training on ImageNet usually takes: size x size, RandomResizedCrop(0.08..1, 3/4..4/3), flip 0.5,
 * bilinear, f32 NCHW, ImageNet's mean and standard deviation, default limits. */
struct ps_image_spec ps_image_spec_imagenet(uint32_t size);

/* 0, or -EINVAL with a text that names the field, its value and its range. */
int ps_image_spec_check(const struct ps_image_spec *spec, struct ps_load_error *err) PS_MUST_USE;

/* Bytes of one decoded image: 3 * out_width * out_height elements. 0 if the spec is not sound. */
size_t ps_image_nbytes(const struct ps_image_spec *spec);

struct ps_image_decoder;

/* NULL with err filled: -EINVAL (the spec) or -ENOMEM. */
struct ps_image_decoder *ps_image_decoder_new(const struct ps_image_spec *spec, struct ps_load_error *err);

/* NULL is allowed. */
void ps_image_decoder_free(struct ps_image_decoder *decoder);

/* Decodes one image into dst (ps_image_nbytes() bytes, any alignment that its element type takes).
 *
 * 0; -EBADMSG: not a JPEG, truncated, damaged, of an unsupported kind, or over a limit (the text says which);
 * -ENOMEM. A decoder stays usable after any error.
 *
 * Truncation and damage are errors wherever they are seen: a file without an end marker always, damage inside
 * the entropy-coded data if it lies in or above the crop (what lies below is not decoded). See jpeg.h for the
 * table of libjpeg's warnings. EXIF orientation is not applied, as in torchvision's default loader. */
int ps_image_decode(struct ps_image_decoder *decoder, const void *jpeg, size_t nbytes,
        const struct ps_rng_key *key, void *dst, struct ps_load_error *err) PS_MUST_USE;

/* Memory that the decoder holds now, libjpeg's own (freed after each image) apart. */
size_t ps_image_decoder_nbytes(const struct ps_image_decoder *decoder);

#endif
