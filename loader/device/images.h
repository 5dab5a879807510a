/* The images of a field, as kernels see them. An image is one view of a row; its pixels are three planes of
 * bytes, image behind image. */
#ifndef PS_DEVICE_IMAGES_H
#define PS_DEVICE_IMAGES_H

#include "device/kernel_code.h"
#include "image/ops.h"

struct ps_images {
	uint8_t *planes; /* as they were copied; steps but the first work in place */
	uint8_t *moved;  /* as much room, for those that go through PS_IMAGE_AFFINE; NULL: none may */
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
