/* What is around an image, for crops that reach over its edges: as numpy.pad and torchvision's Pad have it.
 *
 * Column i of a picture shows column ps_pad_source(mode, pad.x + i, width) of the scaled image, rows likewise; the
 * flips come after.
 * Threads: any.   Errors: none.   Blocks: never. */
#ifndef PS_LOADER_IMAGE_PAD_H
#define PS_LOADER_IMAGE_PAD_H

#include <stddef.h>
#include <stdint.h>

enum ps_pad_mode {
	PS_PAD_FILL = 0,      /* one level */
	PS_PAD_EDGE = 1,      /* the pixel at the edge: aaa|abcd|ddd */
	PS_PAD_REFLECT = 2,   /* mirrored, the edge not repeated: dcb|abcd|cba; again where that is too little */
	PS_PAD_SYMMETRIC = 3, /* mirrored, the edge repeated: cba|abcd|dcb */
};

struct ps_pad {
	uint32_t width, height; /* of the picture; 0: the crop lies inside, and nothing is added */
	int64_t x, y;           /* its left and upper edge, in pixels of the scaled image */
	enum ps_pad_mode mode;
};

/* Which of n pixels stands at `at`; -1: the fill. */
int64_t ps_pad_source(enum ps_pad_mode mode, int64_t at, uint32_t n);

/* Narrows what is needed of one axis: the picture's `size` pixels from `at` on show no others than *ret_first and the
 * *ret_n from there on. Some of them must lie inside. */
void ps_pad_window(
        enum ps_pad_mode mode, int64_t at, uint32_t size, uint32_t n, uint32_t *ret_first, uint32_t *ret_n);

/* One plane: the geometry's window, flipped as it says, to the whole picture; elements of 1 or 2 bytes. */
struct ps_resize_geometry;
void ps_pad_apply(
        const struct ps_resize_geometry *geometry, size_t nbytes, const void *window, const void *fill, void *to);

#endif
