/* What is to be done on a device to each image of a field: drawn on the processor, sent with the batch's slot.
 * An image is one view of a row; its pixels are three planes of bytes, image behind image. Steps come in the
 * order of image/transform.h. */
#ifndef PS_DEVICE_IMAGE_OPS_H
#define PS_DEVICE_IMAGE_OPS_H

#include "device/kernel_code.h"

enum {
	PS_IMAGE_AFFINE = 1 << 0,
	PS_IMAGE_BRIGHTNESS = 1 << 1,
	PS_IMAGE_CONTRAST = 1 << 2,
	PS_IMAGE_SATURATION = 1 << 3,
	PS_IMAGE_HUE = 1 << 4,
	PS_IMAGE_GRAY = 1 << 5,
	PS_IMAGE_BLUR = 1 << 6,
	PS_IMAGE_NOISE = 1 << 7,

	PS_IMAGE_COLORS = PS_IMAGE_BRIGHTNESS | PS_IMAGE_CONTRAST | PS_IMAGE_SATURATION | PS_IMAGE_HUE |
	                  PS_IMAGE_GRAY,
};

#define PS_IMAGE_REACH_MAX 127u /* half of PS_BLUR_SIZE_MAX */

struct ps_image_ops {
	uint32_t what; /* PS_IMAGE_ bits */
	uint32_t brightness, contrast, saturation; /* F(factor, 12) */
	int32_t turn;                              /* of the hue */
	int32_t noise;                             /* F(sigma / 147.8, 16) */
	uint64_t noise_key;
	uint64_t gray_sum; /* 0 when it is sent: the device sums up gray values here */
	int64_t map[6];    /* image/affine.h */
	uint32_t reach;    /* of the blur: weights behind the middle one */
	uint32_t unused;
	int16_t blur[PS_IMAGE_REACH_MAX + 1]; /* weights, from the middle outwards */
};

/* The images of a field on the device. */
struct ps_images {
	uint8_t *planes;         /* as they were copied; steps but the first work in place */
	uint8_t *moved;          /* as much room, for those that go through PS_IMAGE_AFFINE; NULL: none may */
	struct ps_image_ops *ops; /* of each; NULL: nothing is to be done to any */
	uint32_t nimages, width, height;
	uint32_t npixels; /* width * height */
};

/* Where an image's planes are once the affine step is over. */
PS_BOTH uint8_t *ps_image_planes(const struct ps_images *a, uint32_t image)
{
	bool moved = a->ops && a->ops[image].what & PS_IMAGE_AFFINE;

	return (moved ? a->moved : a->planes) + (size_t)image * 3 * a->npixels;
}

#endif
