/* Private to this folder: making a picture from an image's rows: crops, the resize, and the single
 * operations of transforms. */
#ifndef PS_IMAGE_PICTURE_H
#define PS_IMAGE_PICTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "image/image.h"

/* Resize ------------------------------------------------------------------------------------------------- */

/* Crop, resize and flip in one pass over the source's rows: reads RGB rows, writes finished rows of the
 * batch.
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
 *   Pixels outside the box have no weight.
 * Fixed point: bits = the largest number <= 22 with max |w| * 2^bits <= 32766 over the whole window; then
 *     q[j] = R(w[0] + .. + w[j]) - R(w[0] + .. + w[j-1]),  R(x) = floor(x * 2^bits + 0.5), R(all) = 2^bits
 *   so a weight fits 16 bits, and weights sum to one exactly: white stays white.
 * Horizontal pass, each source row:  t = clamp((sum q * u8 + half) >> (bits_h - F), 0, 255 << F)
 *   with F = min(6, 22 - bits_v) fraction bits, so t fits 16 bits and every sum 32.
 * Vertical pass:                     v = clamp((sum q * t + half) >> (bits_v + F), 0, 255)
 *   where half is 1 << (shift - 1) and >> rounds down.
 * A source shrunken by d (1, 2, 4, 8) has its box at box / d, in fractions of its pixels; pixels at the
 *   box's edges are taken whole:  begin = box_x % d / d,  scale = box / d / scaled,
 *   center = begin + (i + 0.5) * scale, and end is limited by the box's last pixel.
 * Flip: output column i of a flipped row is column width - 1 - i of the plain one; rows likewise for flip_v.
 * Normalise:                         (float)v * scale[c] + bias[c], rounded after each of the two, with
 *   scale[c] = (float)(1 / (255 * (double)std[c])), bias[c] = (float)(-(double)mean[c] / (double)std[c])
 *   f16 and bf16 are that f32 rounded to the nearest, halves to even (beyond 65504 f16 is infinite).
 *
 * Use: ps_resize_plan(), then ps_resize_source() gives the pixels to feed; ps_resize_begin(); then each row
 * of that region, top down, to ps_resize_row(). The last one completes the last output row.
 *
 * Ownership: a ps_resize belongs to its creator and keeps its buffers from plan to plan; rows and dst are
 *   borrowed.   Threads: one at a time.   Locks: none.   Errors: 0 or -errno.   Blocks: never. */

/* The destination of finished rows: window_w * window_h * 3 elements. */
struct ps_resize_sink {
	void *dst;
	enum ps_dtype dtype; /* PS_U8, PS_F32, PS_F16 or PS_BF16 */
	enum ps_layout layout;
	float scale[3], bias[3]; /* not for PS_U8 */
};

enum ps_resize_cpu {
	PS_RESIZE_PORTABLE = 0,
	PS_RESIZE_AVX2 = 1, /* and F16C, which all processors with AVX2 have */
	PS_RESIZE_NEON = 2, /* on all 64-bit ARM processors */
};

struct ps_resize;

/* The best vector unit of this processor, or the one named by PENSTOCK_ISA in the environment (portable,
 * avx2, neon) if the processor has it. Pixels are the same with each. */
enum ps_resize_cpu ps_resize_cpu_best(void);

/* NULL: out of memory, or `cpu` is not in this build or processor. */
struct ps_resize *ps_resize_new(enum ps_resize_cpu cpu);
void ps_resize_free(struct ps_resize *r);

/* Computes the weights. 0, or -ENOMEM. The plan holds until the next one. */
int ps_resize_plan(struct ps_resize *r, const struct ps_resize_geometry *geometry,
        enum ps_interpolation interpolation) PS_MUST_USE;

/* The region of source pixels that have a weight: only these must be fed. In pixels of the shrunken
 * source. */
void ps_resize_source(const struct ps_resize *r, struct ps_region *ret_region);

/* Bytes after a fed row's end that must be readable; their values do not matter. */
size_t ps_resize_slack(const struct ps_resize *r);

/* Starts an image: the next row fed is the region's first. The sink is copied, but not its dst. */
void ps_resize_begin(struct ps_resize *r, const struct ps_resize_sink *sink);

/* Feeds one row: region.width RGB triples, starting at the region's left edge. */
void ps_resize_row(struct ps_resize *r, const uint8_t *rgb);

void ps_resize_tables(const struct ps_resize *r, struct ps_resize_tables *ret_tables);

/* Wide pictures ------------------------------------------------------------------------------------------ */

/* The resize of RGBA, gray and u16 pictures (ps_image_is_wide()): reads rows of PS_PIXELS_RGBA16, with the
 * same weights and 64-bit sums:
 *
 *   gray               L = (19595 r + 38470 g + 7471 b + 32768) >> 16 of each source pixel, before the resize
 *   rgba, if resized   colours are weighted by alpha, as PIL does: c = (v * a + 32767) / 65535 before,
 *                      min(65535, (c * 65535 + a / 2) / a) after the resize; c where a is 0
 *   horizontal pass    t = clamp((sum q * v + half) >> (bits_h - 8), 0, 65535 << 8)
 *   vertical pass      v = clamp((sum q * t + half) >> (bits_v + 8), 0, 65535)
 *   u8                 (v + 128) / 257
 *   floats             (float)v * scale[c] + bias[c] with scale[c] = (float)(1 / (65535 * (double)std[c]));
 *                      alpha: mean 0, std 1
 *   padding            colours are `fill` * 257, alpha is 0
 *
 * Ownership: a ps_wide belongs to its creator and keeps its buffers; rows and dst are borrowed; the
 * resize's plan must not change until the picture is finished.   Threads: one at a time.   Errors: 0 or
 * -ENOMEM.   Blocks: never. */

struct ps_wide;

struct ps_wide *ps_wide_new(void); /* NULL: out of memory */
void ps_wide_free(struct ps_wide *w);

/* Starts a picture with the resize's plan. Each row of ps_resize_source() must follow, top down. */
int ps_wide_begin(struct ps_wide *w, const struct ps_image_spec *spec,
        const struct ps_resize_geometry *geometry, const struct ps_resize *resize) PS_MUST_USE;
void ps_wide_row(struct ps_wide *w, const uint16_t *rgba);

/* Writes the padded picture to dst, in the spec's form, after all rows were fed. */
int ps_wide_finish(struct ps_wide *w, void *dst) PS_MUST_USE;

/* Grows an array to n elements, the new ones undefined. 0; or -ENOMEM, and the array is unchanged. */
int ps_image_reserve(void *array_of_anything, size_t *cap, size_t n, size_t size) PS_MUST_USE;

/* Inner loops -------------------------------------------------------------------------------------------- */

/* The inner loops of the resize, one implementation for each vector unit. Private to resize*.c.
 * Threads: kernels keep no state.   Errors: none. */

#define PS_RESIZE_LANES 16 /* rows between the passes are padded to this many columns */

struct ps_resize_kernels {
	/* Size of the kernel's own form of horizontal weights. Both NULL: the kernel reads the axis itself. */
	size_t (*packed_nbytes)(const struct ps_resize_axis *axis);
	void (*pack)(const struct ps_resize_axis *axis, void *ret_packed); /* 32-byte aligned */

	/* Resizes one source row into three planes of `stride` columns each (a multiple of PS_RESIZE_LANES,
	 * at least n). Columns from n on are undefined. */
	void (*horizontal)(const struct ps_resize_axis *axis, const void *packed, const uint8_t *rgb,
	        int shift, int max, int16_t *dst, size_t stride);

	/* Computes n columns of one plane from 2 * npairs rows (weights in pairs); one function for each
	 * dtype of images, PS_U8 to PS_BF16. Rows are readable up to the next multiple of PS_RESIZE_LANES;
	 * dst is written up to n. scale and bias are not for PS_U8. */
	void (*vertical[4])(const int16_t *const *rows, const int16_t *weights, uint32_t npairs, int shift,
	        uint32_t n, float scale, float bias, void *dst);
};

extern const struct ps_resize_kernels ps_resize_portable;

#if defined(__x86_64__)
#define PS_RESIZE_HAVE_AVX2 1
extern const struct ps_resize_kernels ps_resize_avx2;
#elif defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define PS_RESIZE_HAVE_NEON 1
extern const struct ps_resize_kernels ps_resize_neon;
#endif

/* Crops -------------------------------------------------------------------------------------------------- */

/* Which part of an image becomes a picture: crops and flips, chosen from the image's size, the spec and a
 * key.
 *
 * PS_CROP_RANDOM_RESIZED is torchvision's RandomResizedCrop: up to ten times draw an area (uniform share of
 *   the image's) and a ratio (uniform in its logarithm), width = round(sqrt(area * ratio)), height =
 *   round(sqrt(area / ratio)); the first that fits is placed uniformly; else the largest centred crop whose
 *   ratio is within bounds. round() takes halves to even. Numbers of PS_RNG_CROP, attempt t: index 4t the
 *   area, 4t + 1 the ratio, 4t + 2 the top, 4t + 3 the left edge.
 * PS_CROP_CENTER is Resize(resize_shorter) and CenterCrop: the longer side becomes
 *   floor(resize_shorter * long / short), the offsets round((scaled - out) / 2), halves to even.
 *   With resize_width and resize_height the image is stretched to these instead.
 * PS_CROP_RANDOM is Resize, if set, and RandomCrop: each side is padded by `padding`, then, if the result is
 *   smaller than the output, by the missing pixels on each side; the top is a whole number from 0 to
 *   height - out, by ps_rng_below() with PS_RNG_CROP and index 2; the left edge likewise with index 3. Pixels
 *   outside the image are those of the padding (see there).
 * PS_CROP_LETTERBOX resizes the image by min(out_width / width, out_height / height), smaller or larger; the
 *   other side is floor(side * scale + 1/2), at least 1. (out - scaled) / 2 pixels, rounded down, are left of
 *   the image and above it, the rest right and below.
 * Flips: as image.h says, hflip and vflip.
 * exp and log are those of transform.c.
 * Threads: any.   Errors: none.   Blocks: never. */

/* The spec must have passed ps_image_spec_check(); width and height are 1 to 2^24. */
void ps_augment_geometry(const struct ps_image_spec *spec, uint32_t width, uint32_t height,
        const struct ps_rng_key *key, struct ps_resize_geometry *ret_geometry) __attribute__((nonnull));

/* Padding ------------------------------------------------------------------------------------------------ */

/* Padding around an image, for crops that reach over its edges: as in numpy.pad and torchvision's Pad.
 *
 * Column i of a picture shows column ps_pad_source(mode, pad.x + i, width) of the scaled image, rows
 * likewise; flips are done afterwards. Threads: any.   Errors: none.   Blocks: never. */

/* Which of n pixels is shown at `at`; -1: the fill. */
int64_t ps_pad_source(enum ps_pad_mode mode, int64_t at, uint32_t n);

/* The pixels of one axis that are needed: the picture's `size` pixels from `at` on show only the *ret_n
 * pixels from *ret_first on. At least one of the `size` pixels must be inside the image. */
void ps_pad_window(
        enum ps_pad_mode mode, int64_t at, uint32_t size, uint32_t n, uint32_t *ret_first, uint32_t *ret_n);

/* Makes one plane of the whole picture from the geometry's window, flipped as the geometry says; elements
 * have `nbytes` bytes. */
struct ps_resize_geometry;
void ps_pad_apply(const struct ps_resize_geometry *geometry, size_t nbytes, const void *window,
        const void *fill, void *to);

/* Portable arithmetic ------------------------------------------------------------------------------------ */

/* exp, log, sin and cos, computed by additions, multiplications, divisions and roundings only, so that
 * results do not depend on the C library. Accurate to a few units in the last place. Threads: any. Errors:
 * none. */

double ps_fixed_log(double x); /* x > 0, not subnormal */
double ps_fixed_exp(double x); /* |x| < 700 */

/* Operations --------------------------------------------------------------------------------------------- */

void ps_affine_apply(const struct ps_affine *map, const struct ps_planes *from, uint8_t fill, uint8_t *to);
void ps_affine_labels(const struct ps_affine *map, const uint16_t *from, uint32_t width, uint32_t height,
        uint16_t fill, uint16_t *to);
void ps_color_jitter(
        const struct ps_transform_spec *spec, const struct ps_transform *t, const struct ps_planes *planes);
void ps_color_gray(const struct ps_planes *planes);
void ps_blur_apply(double sigma, uint32_t size, const struct ps_planes *planes, uint8_t *spare);
void ps_noise_apply(uint64_t noise_key, double sigma, const struct ps_planes *planes);
void ps_erase_apply(const struct ps_erase *erase, const struct ps_planes *planes);

#endif
