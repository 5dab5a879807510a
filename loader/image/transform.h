/* What may follow crop, resize and flip, in this order and no other: affine, colour jitter, gray, blur,
 * noise. Each has a probability, works on the finished u8 pixels, and rounds to u8 once; its arithmetic is
 * integers, defined here, so that every processor gives the same bits. Normalising comes after the last.
 *
 * Every operation happens if PS_RNG_<op>, index 0, unit < its probability. F(x, n) = floor(x * 2^n + 0.5).
 *
 * Affine (torchvision's RandomAffine on PIL images, bilinear): angle = uniform(-degrees, degrees) [index 1],
 *   shifts rint(uniform(-t * side, t * side)) pixels [2, 3], zoom uniform [4], shears uniform [5, 6] in
 * degrees. The centre of output pixel (x, y) comes from  X = a * x + b * y + c,  Y = d * x + e * y + f  in
 * units of 2^-32 pixels, 64 bits, with the six coefficients rounded from doubles. Outside 0 <= X < width, 0
 * <= Y < height: `fill`. Else, with u = X - 1/2, x0 = floor(u), fx = the upper 10 bits of its fraction,
 *   likewise y:  (p00 (1024 - fx)(1024 - fy) + p01 fx (1024 - fy) + p10 (1024 - fx) fy + p11 fx fy + 2^19) >>
 * 20, pixels beyond the edge being those of the edge. Labels take the pixel at floor(X), floor(Y). Gray
 * value:  L = (19595 r + 38470 g + 7471 b + 32768) >> 16, as PIL. Jitter (torchvision's ColorJitter in fixed
 * order): factors uniform(max(0, 1 - s), 1 + s) [index 1 brightness, 2 contrast, 3 saturation], hue turned by
 * uniform(-h, h) of a circle [4]. With k = F(factor, 12): brightness  clamp((k v + 2048) >> 12) contrast
 * clamp((k v + (4096 - k) m + 2048) >> 12),  m = mean of all L, rounded saturation  clamp((k v + (4096 - k) L
 * + 2048) >> 12) hue         by the six edges of the colour hexagon: largest and smallest channel stay what
 * they are, position on the hexagon in 2^-16 edges:  p = 65536 * edge + (diff * F(1 / (max - min), 24) >> 8),
 *               moved by F(6 * turn, 16); the middle channel  min + ((max - min) * fraction + 32768 >> 16),
 *               on odd edges with 65536 - fraction.
 *   Where s (or h) is 0 that step is left out.
 * Gray: all three channels become L.
 * Blur (torchvision's GaussianBlur): sigma uniform(min, max) [index 1]; blur_size weights F(w, 14) each way,
 * the middle one taking the rest of 2^14; edges mirrored without repeating the edge pixel. Across first: t =
 * (sum q v + 128) >> 8, then down: (sum q t + 2^19) >> 20. Noise: clamp(v + ((n * F(noise_sigma /
 * 147.80054127, 16) + 32768) >> 16)), n = sum of four random bytes - 510 (near to Gaussian: standard
 * deviation 147.8): Philox block i, key u64 [index 1], counter {i, 0, 0, 0}, gives the bytes of values 4i ..
 * 4i + 3; a value's number is (c * height + y) * width + x.
 *
 * Threads: any, on different images.   Errors: -ENOMEM where said.   Blocks: never. */
#ifndef PS_LOADER_IMAGE_TRANSFORM_H
#define PS_LOADER_IMAGE_TRANSFORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "order/rng.h"

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
};

int ps_transform_check(const struct ps_transform_spec *spec, uint32_t width, uint32_t height,
        struct ps_load_error *err) PS_MUST_USE;

/* Where the output's pixels come from. */
struct ps_affine {
	double inverse[6]; /* output to input, in pixels: x = i[0] x + i[1] y + i[2], y = i[3] x + ... */
};

/* What is to be done to one image: every random choice made. */
struct ps_transform {
	bool affine, jitter, gray, blur, noise;
	struct ps_affine map;
	uint32_t brightness, contrast, saturation; /* F(factor, 12) */
	int32_t turn;                              /* of the hue, in 2^-16 edges of the hexagon */
	double sigma;
	uint64_t noise_key;
};

void ps_transform_draw(const struct ps_transform_spec *spec, uint32_t width, uint32_t height,
        const struct ps_rng_key *key, struct ps_transform *ret_transform);

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

#define PS_BLUR_SIZE_MAX 255u

#endif
