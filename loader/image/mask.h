/* Label images (segmentation masks) that follow an image: the same crop, resize, flips and affine map, each
 * output pixel taking one label: that of the source pixel under its centre.
 *
 *   output column i (before the flip) of a box of `box` pixels made into `scaled`:
 *     box_x + floor((2 * (window_x + i) + 1) * box / (2 * scaled)),  rows likewise; affine as in transform.h
 *
 * What a crop shows outside of the image is padded as the image is, with `fill` for its level.
 *
 * Labels are numbers as stored: PNG (gray of 1 to 16 bits, palettes: the place in the palette), PGM, gray
 * JPEG.
 *
 * Ownership: a decoder belongs to its creator; bytes, placement and dst are borrowed for the call.
 * Threads: one at a time.   Locks: none.   Blocks: on the processor only.
 * Errors: -EBADMSG (as for images; another size than the image's; a label that the type cannot hold),
 * -ENOMEM; with a text. */
#ifndef PS_LOADER_IMAGE_MASK_H
#define PS_LOADER_IMAGE_MASK_H

#include "image/image.h"

struct ps_mask_spec {
	enum ps_dtype dtype; /* PS_U8, PS_U16, PS_I16, PS_I32, PS_I64 */
	uint32_t fill;       /* label of what an affine map or a crop takes from outside */
	bool orient;
	uint64_t max_pixels, max_memory; /* as of images; 0: the defaults */
	struct ps_image_ticket *ticket;  /* as of images */
};

struct ps_mask_decoder;

/* 0, or -EINVAL with a text. */
int ps_mask_spec_check(const struct ps_mask_spec *spec, struct ps_load_error *err) PS_MUST_USE;

/* NULL: no memory. The spec must be sound. */
struct ps_mask_decoder *ps_mask_decoder_new(const struct ps_mask_spec *spec);
void ps_mask_decoder_free(struct ps_mask_decoder *m);

/* Into dst: for each view of the placement window_h * window_w labels. */
int ps_mask_decode(struct ps_mask_decoder *m, const struct ps_image_placement *placement, const void *data,
        size_t nbytes, void *dst, struct ps_load_error *err) PS_MUST_USE;

#endif
