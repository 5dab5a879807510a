/* Boxes that follow an image: corners through the same crop, resize, flips and affine map as its pixels.
 *
 * In: x0 y0 x1 y1, or another form, in pixels of the upright image or in shares of its sides. Out: x0 y0 x1
 * y1 in pixels of the picture made, cut at its edges; a box that lies outside is left with no area at the
 * nearest edge, so that boxes and their labels stay side by side. A turned box is the upright one around its
 * corners. Arithmetic in double, the result rounded to float. Ownership: none.   Threads: any.   Errors:
 * none.   Blocks: never. */
#ifndef PS_LOADER_IMAGE_BOXES_H
#define PS_LOADER_IMAGE_BOXES_H

#include "image/image.h"

enum ps_box_format {
	PS_BOX_XYXY = 0,
	PS_BOX_XYWH = 1,   /* left, top, width, height, as COCO */
	PS_BOX_CXCYWH = 2, /* centre, width, height, as YOLO */
};

/* Where points of the image come to lie: x' = m[0] x + m[1] y + m[2], y' = m[3] x + m[4] y + m[5]. */
struct ps_boxes_map {
	double m[6];
	double width, height; /* of the picture made */
};

/* Of one view; with `shares` boxes are in shares of the image's sides. */
struct ps_boxes_map ps_boxes_map_of(const struct ps_image_placement *placement, uint32_t view, bool shares);

/* In place: n boxes of four floats. */
void ps_boxes_place(const struct ps_boxes_map *map, enum ps_box_format format, float *boxes, size_t n);

#endif
