/* Fields of images that the device finishes: what the slot brings are planes of bytes and a table of what was
 * drawn for each image; kernels behind the copy make the batch's elements of them, in memory of the mirror's
 * own.
 *
 *   slot's copy: u8 planes, ops ─▶ affine ─▶ colours ─▶ blur ─▶ noise ─▶ erase ─▶ mix, normalise, lay out ─▶ mirror's
 * `made` └─ images that have it, and kernels only where an image has it ─┘
 *
 * Elements are those that the processor would have made, to the bit.
 *
 * Threads: any.   Blocks: never.   Errors: of the driver. */
#ifndef PS_DEVICE_MAKE_H
#define PS_DEVICE_MAKE_H

#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "image/mix_kind.h"

#define PS_MAKE_NO_OPS SIZE_MAX

struct ps_nvjpeg_rows;

struct ps_make {
	struct ps_nvjpeg_rows
	        *decoded;        /* images that are put among the planes first (nvjpeg.h); NULL: none */
	const uint32_t *sources; /* with it: the row that each image comes from */
	size_t planes;           /* in the slot: three planes of bytes an image */
	size_t ops;    /* in the slot: struct ps_image_ops of each; PS_MAKE_NO_OPS: nothing is done to any */
	size_t to;     /* in the mirror's made part */
	uint32_t what; /* the PS_IMAGE_ bits of all images */
	uint32_t nimages, width, height;
	uint32_t nviews; /* images of a row */
	enum ps_dtype dtype;
	enum ps_layout layout;
	float scale[3], bias[3]; /* as resize.h has them; 0: all elements are 0 */
	enum ps_mix_kind mix;
	uint32_t weight;
	uint32_t box[4]; /* x0, y0, x1, y1 */
};

/* Scratch that a field needs whose images have those bits: first room for those that the affine step moves,
 * then for what is between the blur's passes. */
size_t ps_make_moved_nbytes(uint32_t what, uint64_t nimages, uint32_t width, uint32_t height);
size_t ps_make_scratch_nbytes(uint32_t what, uint64_t nimages, uint32_t width, uint32_t height);

#endif
