/* What is to become of an image: the options of one field, checked.
 * Threads: any.   Errors: -EINVAL with a text that names the member, its value and its range. */
#ifndef PS_LOADER_IMAGE_SPEC_H
#define PS_LOADER_IMAGE_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/load_error.h"
#include "image/pad.h"
#include "image/transform.h"

enum ps_crop {
	PS_CROP_RANDOM_RESIZED = 0, /* as torchvision's RandomResizedCrop */
	PS_CROP_CENTER = 1,         /* as Resize(resize_shorter), then CenterCrop: for evaluation */
	PS_CROP_NONE = 2,           /* the whole image, whatever its shape */
	PS_CROP_RANDOM = 3, /* as Resize (if one is asked for), then RandomCrop with padding, and pad_if_needed */
};

enum ps_interpolation {
	PS_BILINEAR = 0, /* both antialiased when shrinking, as PIL does */
	PS_BICUBIC = 1,  /* a = -0.5 */
};

#define PS_IMAGE_SIDE_MAX 16384u /* of out_width, out_height, resize_shorter */
#define PS_IMAGE_VIEWS_MAX 64u
#define PS_IMAGE_MAX_PIXELS_DEFAULT (UINT64_C(1) << 27)   /* 11585 squared */
#define PS_IMAGE_MAX_SCANS_DEFAULT 100u                   /* usual progressive files have about 10 */
#define PS_IMAGE_MAX_MEMORY_DEFAULT (UINT64_C(256) << 20) /* a progressive JPEG of 89 megapixels 4:2:0 */

struct ps_image_spec {
	uint32_t out_width, out_height;
	enum ps_crop crop;
	/* Before PS_CROP_CENTER and PS_CROP_RANDOM: to a size, or the shorter side to this. Both 0: not resized
	 * (PS_CROP_RANDOM only). Before PS_CROP_CENTER not below out_width, out_height. */
	uint32_t resize_width, resize_height, resize_shorter;
	uint32_t padding_x, padding_y; /* PS_CROP_RANDOM only: pixels added on each side; less than the output's */
	enum ps_pad_mode padding;
	double scale_min, scale_max; /* PS_CROP_RANDOM_RESIZED only: share of the image's area, */
	double ratio_min, ratio_max; /* ... and width / height of the crop */
	double hflip_probability;    /* 0 to 1, with any crop */
	double vflip_probability;
	enum ps_interpolation interpolation;
	enum ps_dtype dtype; /* PS_U8, PS_F32, PS_F16 or PS_BF16 */
	enum ps_layout layout;
	float mean[3], std[3]; /* not for PS_U8: (value / 255 - mean) / std, in the form of resize.h */
	bool orient;           /* as EXIF says; else as stored, as in torchvision's default loader */
	bool dct_scale; /* a JPEG that is shrunk to half or less is decoded at 1/2, 1/4 or 1/8: other pixels
	                 */
	uint32_t views; /* 0 and 1: one */
	uint32_t first_view; /* the number of the first in keys: what other decoders of the file do not use */
	struct ps_transform_spec transforms;
	bool deferred; /* transforms are drawn, and done by somebody else: u8 and NCHW only */
	uint64_t max_pixels; /* larger images are refused by their header; 0: the default above */
	uint32_t max_scans;  /* of a progressive file; 0: the default above */
	uint64_t max_memory; /* see format.h; 0: the default above */
	struct ps_image_ticket *ticket; /* see format.h; borrowed by decoders */
};

/* What training on ImageNet usually takes: size x size, RandomResizedCrop(0.08..1, 3/4..4/3), flip 0.5,
 * bilinear, f32 NCHW, ImageNet's mean and standard deviation, default limits. */
struct ps_image_spec ps_image_spec_imagenet(uint32_t size);

int ps_image_spec_check(const struct ps_image_spec *spec, struct ps_load_error *err) PS_MUST_USE;

/* Bytes of one decoded image with all its views: 3 * out_width * out_height elements each. 0 if the spec is
 * not sound. */
size_t ps_image_nbytes(const struct ps_image_spec *spec);

uint32_t ps_image_views(const struct ps_image_spec *spec);

#endif
