/* Crop, resize and flip in one pass over the source's rows: RGB rows in, finished rows of the batch out.
 *
 * The arithmetic below defines Penstock's pixels. It is PIL's antialiased resize, with more fraction bits
 * between the two passes, and stays within one level of it. Portable C, AVX2 and other devices must agree to
 * the bit.
 *
 * One axis: `box` source pixels become `scaled` pixels; the wanted window is a part of those. For output i
 *     scale = box / scaled,  f = max(scale, 1),  center = (i + 0.5) * scale,  s = support * f
 *     first = max(0, (int)(center - s + 0.5)),  end = min(box, (int)(center + s + 0.5))
 *     w[j] = filter((first + j - center + 0.5) * (1 / f)), then divided by their sum; all in double
 *   filter: bilinear: support 1, 1 - |x|. bicubic: support 2, Keys' cubic with a = -0.5.
 *   No weight reaches outside the box, whatever the image holds there.
 * Fixed point: bits = the largest number <= 22 with max |w| * 2^bits <= 32766 over the whole window; then
 *     q[j] = R(w[0] + .. + w[j]) - R(w[0] + .. + w[j-1]),  R(x) = floor(x * 2^bits + 0.5), R(all) = 2^bits
 *   so a weight fits 16 bits, and weights sum to one exactly: white stays white.
 * Horizontal pass, each source row:  t = clamp((sum q * u8 + half) >> (bits_h - F), 0, 255 << F)
 *   with F = min(6, 22 - bits_v) fraction bits, so t fits 16 bits and every sum 32.
 * Vertical pass:                     v = clamp((sum q * t + half) >> (bits_v + F), 0, 255)
 *   where half is 1 << (shift - 1) and >> rounds down.
 * A source shrunken by d (1, 2, 4, 8) has its box at box / d, in fractions of its pixels, and at the box's
 *   edges the pixel is taken whole:  begin = box_x % d / d,  scale = box / d / scaled,
 *   center = begin + (i + 0.5) * scale, and end is limited by the box's last pixel.
 * Flip: output column i of a flipped row is column width - 1 - i of the plain one; rows likewise for flip_v.
 * Normalise:                         (float)v * scale[c] + bias[c], rounded after each of the two, with
 *   scale[c] = (float)(1 / (255 * (double)std[c])), bias[c] = (float)(-(double)mean[c] / (double)std[c])
 *   f16 and bf16 are that f32 rounded to the nearest, halves to even (beyond 65504 f16 is infinite).
 *
 * Use: ps_resize_plan(), then ps_resize_source() tells which pixels to feed; ps_resize_begin(); then each row
 * of that region, top down, to ps_resize_row(). The last one completes the last output row.
 *
 * Ownership: a ps_resize belongs to its creator and keeps its buffers from plan to plan; rows and dst are
 *   borrowed.   Threads: one at a time.   Locks: none.   Errors: 0 or -errno.   Blocks: never. */
#ifndef PS_LOADER_IMAGE_RESIZE_H
#define PS_LOADER_IMAGE_RESIZE_H

#include <stdbool.h>

#include "image/format.h"
#include "image/pad.h"
#include "image/spec.h"

/* What becomes of an image. Box and window must lie inside; no size is 0. */
struct ps_resize_geometry {
	uint32_t box_x, box_y, box_w, box_h; /* of the source, in pixels */
	uint32_t scaled_w, scaled_h;         /* the size that the box is resized to */
	uint32_t window_x, window_y;         /* the part of the scaled image that is wanted, ... */
	uint32_t window_w, window_h;         /* ... before the flip */
	bool flip;                           /* left to right */
	bool flip_v;                         /* upside down */
	struct ps_pad pad; /* what is around the window in the picture: not the resize's (pad.h) */
	uint32_t shrunk; /* the source is given 1 / shrunk as wide and high, sizes rounded up; 0 and 1: as is
	                  */
};

/* Where finished rows go: window_w * window_h * 3 elements. */
struct ps_resize_sink {
	void *dst;
	enum ps_dtype dtype; /* PS_U8, PS_F32, PS_F16 or PS_BF16 */
	enum ps_layout layout;
	float scale[3], bias[3]; /* not for PS_U8 */
};

enum ps_resize_cpu {
	PS_RESIZE_PORTABLE = 0,
	PS_RESIZE_AVX2 = 1, /* and F16C, as all processors with it have */
	PS_RESIZE_NEON = 2, /* all of 64-bit ARM */
};

struct ps_resize;

/* The best that this processor has; or the one that the environment's PENSTOCK_ISA names (portable,
 * avx2, neon), if it has it. Pixels are the same. */
enum ps_resize_cpu ps_resize_cpu_best(void);

/* NULL if memory is short, or if this build or processor has no such `cpu`. */
struct ps_resize *ps_resize_new(enum ps_resize_cpu cpu);
void ps_resize_free(struct ps_resize *r);

/* Computes the weights. 0, or -ENOMEM. The plan holds until the next one. */
int ps_resize_plan(struct ps_resize *r, const struct ps_resize_geometry *geometry,
        enum ps_interpolation interpolation) PS_MUST_USE;

/* Source pixels that have a weight: the only ones that must be fed. Of the shrunken source. */
void ps_resize_source(const struct ps_resize *r, struct ps_region *ret_region);

/* Bytes behind a fed row's end that must be readable; their values do not matter. */
size_t ps_resize_slack(const struct ps_resize *r);

/* Starts an image: the next row fed is the region's first. The sink is copied, its dst is not. */
void ps_resize_begin(struct ps_resize *r, const struct ps_resize_sink *sink);

/* Feeds one row: region.width RGB triples, starting at the region's left edge. */
void ps_resize_row(struct ps_resize *r, const uint8_t *rgb);

/* What a plan comes to, for devices that do it themselves; borrowed until the next plan. The horizontal pass
 * shifts by h->bits - fraction and clamps to 255 << fraction, the vertical one shifts by v->bits + fraction.
 * Rows of a flip_v come last first. */
struct ps_resize_axis;
struct ps_resize_tables {
	const struct ps_resize_axis *h, *v; /* resize_axis.h */
	int fraction;
	bool flip_v;
};
void ps_resize_tables(const struct ps_resize *r, struct ps_resize_tables *ret_tables);

#endif
