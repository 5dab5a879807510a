/* What may follow crop, resize and flip, in this order and no other: affine, jitter, gray, blur, noise, erase.
 *
 * Each has a probability, and may be in a group (choice.h). It works on the finished u8 pixels and rounds to u8 once.
 * Its arithmetic is integers, defined here, so that every processor gives the same bits. Normalising comes after the
 * last.
 *
 * [n] is the index of a number drawn for it under PS_RNG_<op>, uniform() in the range given.
 * F(x, n) = floor(x * 2^n + 0.5).
 *
 * Affine, as torchvision's RandomAffine does to PIL images, bilinear:
 *   angle      [1] -degrees .. degrees;  zoom [4];  shears [5, 6] in degrees
 *   shifts     [2, 3] rint() of -translate * side .. translate * side, pixels
 *   source     X = a x + b y + c,  Y = d x + e y + f, of the centre of output pixel (x, y), in 2^-32 pixels
 *              and 64 bits; the six coefficients are rounded from doubles
 *   outside    0 <= X < width, 0 <= Y < height:  `fill`
 *   else       u = X - 1/2,  x0 = floor(u),  fx = the upper 10 bits of its fraction, likewise y:
 *              (p00 (1024 - fx) (1024 - fy) + p01 fx (1024 - fy) + p10 (1024 - fx) fy + p11 fx fy + 2^19)
 *              >> 20;  pixels beyond the edge are those of the edge
 *   labels     the one at floor(X), floor(Y)
 *
 * Gray value, as PIL:  L = (19595 r + 38470 g + 7471 b + 32768) >> 16
 *
 * Jitter, as torchvision's ColorJitter, in this order, or with jitter_random in one of the 24; k = F(factor, 12):
 *   factors    max(0, 1 - s) .. 1 + s:  [1] brightness, [2] contrast, [3] saturation;  [4] turn -h .. h
 *   brightness clamp((k v + 2048) >> 12)
 *   contrast   clamp((k v + (4096 - k) m + 2048) >> 12),  m = mean of all L, rounded
 *   saturation clamp((k v + (4096 - k) L + 2048) >> 12)
 *   hue        position on the six edges of the colour hexagon, in 2^-16 edges, by the largest channel c and
 *              the two after it:  131072 c + ((next - last) * F(1 / (max - min), 24) >> 8), towards zero;
 *              moved by F(6 turn, 16). Largest and smallest values stay; the middle channel becomes
 *              min + (((max - min) * fraction + 32768) >> 16), on odd edges with 65536 - fraction.
 *   A step whose strength is 0 is left out.
 *   order      r = below(24) [5]: the (r / 6)th of the four, the (r / 2 % 3)th of the other three, the (r % 2)th
 *              of the other two, and the last
 *
 * Gray: all three channels become L.
 *
 * Blur, as torchvision's GaussianBlur:
 *   sigma      [1] blur_sigma_min .. blur_sigma_max
 *   size       blur_size, or blur_size + 2 below((blur_size_max - blur_size) / 2 + 1) [2]
 *   weights    blur_size of F(w, 14) each way, the middle one taking the rest of 2^14
 *   across     t = (sum q v + 128) >> 8, then down: (sum q t + 2^19) >> 20
 *   edges      mirrored, the edge pixel itself not repeated
 *
 * Noise:  clamp(v + ((n * F(sigma / 147.80054127, 16) + 32768) >> 16))
 *   sigma      noise_sigma, or [2] noise_sigma .. noise_sigma_max
 *   n          sum of four random bytes, less 510: near to Gaussian, with a standard deviation of 147.8
 *   bytes      Philox, key u64 [1], counter {i, 0, 0, 0}: value 4i + j takes those of word j
 *   value      number (c * height + y) * width + x
 *
 * Erase, as torchvision's RandomErasing: up to ten times draw an area [4t + 1] (erase_scale, share of the picture's)
 *   and a ratio [4t + 2] (erase_ratio, uniform in its logarithm), height = round(sqrt(area * ratio)), width =
 *   round(sqrt(area / ratio)), halves to even; the first of both less than the picture's is placed uniformly: top
 *   below(height' - height + 1) [4t + 3], left likewise [4t + 4]; else nothing is erased.
 *   fill       a level of each channel, or as noise of key u64 [64] and a sigma of each channel about its mean
 *              level: clamp(mean + ((n * F(sigma / 147.8, 16) + 32768) >> 16))
 *
 * Threads: any, on different images.   Errors: with a text.   Blocks: never. */
#ifndef PS_LOADER_IMAGE_TRANSFORM_H
#define PS_LOADER_IMAGE_TRANSFORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/load_error.h"
#include "image/choice.h"
#include "image/ops.h"
#include "order/rng.h"

struct ps_image_spec;

/* All zero: nothing happens. */
struct ps_transform_spec {
	double affine;                   /* probability, as are jitter, gray, blur and noise */
	double degrees;                  /* 0 to 180 */
	double translate_x, translate_y; /* share of width and height, 0 to 1 */
	double zoom_min, zoom_max;       /* 0.01 to 100; both 0: 1 */
	double shear_x, shear_y;         /* degrees, 0 to 80 */
	uint32_t fill;                   /* level of what comes from outside, 0 to 255 */
	double jitter;
	double brightness, contrast, saturation; /* 0 to 7 */
	double hue;                              /* 0 to 0.5 */
	double gray;
	double blur;
	uint32_t blur_size;                    /* odd, to 255; 0: a tenth of the width, at least 3 */
	double blur_sigma_min, blur_sigma_max; /* pixels, 0.01 to 100; both 0: 0.1 to 2 */
	double noise;
	double noise_sigma; /* levels, 0 to 255 */
	double noise_sigma_max;       /* 0: noise_sigma; else drawn from there to here */
	bool jitter_random;           /* its steps come in a random order */
	uint32_t blur_size_max;       /* 0: blur_size; else one is drawn from there to here; odd */
	double erase;
	double erase_scale_min, erase_scale_max; /* share of the picture, above 0 to 1; both 0: 0.02 to 0.33 */
	double erase_ratio_min, erase_ratio_max; /* height / width, 0.001 to 1000; both 0: 0.3 to 3.3 */
	bool erase_random;
	uint8_t erase_level[3];  /* or the mean, where it is random, ... */
	double erase_sigma[3];   /* ... and its standard deviation in levels, to 1000 */
	struct ps_choice_groups groups;
};

int ps_transform_check(const struct ps_transform_spec *spec, uint32_t width, uint32_t height,
        struct ps_load_error *err) PS_MUST_USE;

/* Where the output's pixels come from. */
struct ps_affine {
	double inverse[6]; /* output to input, in pixels: x = i[0] x + i[1] y + i[2], y = i[3] x + ... */
};

/* What is to be done to one image: every random choice made. */
struct ps_transform {
	bool affine, jitter, gray, blur, noise, erase;
	struct ps_affine map;
	uint32_t brightness, contrast, saturation; /* F(factor, 12) */
	int32_t turn;                              /* of the hue, in 2^-16 edges of the hexagon */
	uint32_t order;                            /* of the jitter's steps: ops.h */
	double sigma;
	uint32_t blur_size;
	double noise_sigma;
	uint64_t noise_key;
	struct ps_erase erased; /* ops.h */
};

void ps_transform_draw(
        const struct ps_image_spec *spec, const struct ps_rng_key *key, struct ps_transform *ret_transform);

/* True if pixels change. */
bool ps_transform_acts(const struct ps_transform *transform);

/* Three planes of width * height bytes. */
struct ps_planes {
	uint8_t *p;
	uint32_t width, height;
};

/* In place, with `spare` (three planes as well) as a second buffer: the result is in planes->p, and the two
 * may have changed places. */
void ps_transform_apply(const struct ps_transform *transform, const struct ps_transform_spec *spec,
        struct ps_planes *planes, uint8_t **spare);

/* The operations, each alone. */
void ps_affine_apply(const struct ps_affine *map, const struct ps_planes *from, uint8_t fill, uint8_t *to);
void ps_affine_labels(const struct ps_affine *map, const uint16_t *from, uint32_t width, uint32_t height,
        uint16_t fill, uint16_t *to);
void ps_color_jitter(
        const struct ps_transform_spec *spec, const struct ps_transform *t, const struct ps_planes *planes);
void ps_color_gray(const struct ps_planes *planes);
void ps_blur_apply(double sigma, uint32_t size, const struct ps_planes *planes, uint8_t *spare);
void ps_noise_apply(uint64_t noise_key, double sigma, const struct ps_planes *planes);
void ps_erase_draw(const struct ps_image_spec *spec, const struct ps_rng_key *key, struct ps_transform *t);
void ps_erase_apply(const struct ps_erase *erase, const struct ps_planes *planes);

#define PS_BLUR_SIZE_MAX 255u
#define PS_BLUR_REACH_MAX (PS_BLUR_SIZE_MAX / 2)

/* For who does it himself: a, b, c, d, e, f of the source's coordinates; the blur's weights from the middle
 * outwards, how many follow the middle one; the noise's factor; all of a transform. */
void ps_affine_fixed(const struct ps_affine *map, int64_t ret_fixed[static 6]);
uint32_t ps_blur_weights(double sigma, uint32_t size, int32_t ret_weights[static PS_BLUR_REACH_MAX + 1]);
int32_t ps_noise_factor(double sigma);
void ps_transform_ops(const struct ps_transform *transform, const struct ps_transform_spec *spec,
        struct ps_image_ops *ret_ops);

#endif
