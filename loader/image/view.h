/* One picture made of an image: where it was cut out and what was done to it. Random choices made, so that
 * masks and boxes can follow. */
#ifndef PS_LOADER_IMAGE_VIEW_H
#define PS_LOADER_IMAGE_VIEW_H

#include "image/resize.h"
#include "image/transform.h"

struct ps_image_view {
	struct ps_resize_geometry geometry;
	struct ps_transform transform;
};

#endif
