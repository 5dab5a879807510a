/* Pixel arithmetic for both compilers, C and nvcc: functions of single pixels, and the operations on an
 * image that a device receives. The kernels of GPUs (device/) include this header, and no other header of
 * image/.
 *
 * Ownership: none.   Threads: any.   Errors: none.   Blocks: never. */
#ifndef PS_IMAGE_PIXEL_PIXEL_H
#define PS_IMAGE_PIXEL_PIXEL_H

#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/philox.h"

/* How a batch is mixed ----------------------------------------------------------------------------------- */

/* How a batch is mixed. */

enum ps_mix_kind {
	PS_MIX_NONE,
	PS_MIX_UP,
	PS_MIX_CUT,
};

/* What is done to an image ------------------------------------------------------------------------------- */

/* The operations on one image after crop, resize and flips, drawn and computed for their executor: a
 * device's kernels (device/kernels/kernel_code.h). The struct is copied to the device as it is, so both
 * compilers must lay it out alike. The order of the steps and their arithmetic are those of image/image.h.
 * Threads: any. */

enum {
	PS_IMAGE_AFFINE = 1 << 0,
	PS_IMAGE_BRIGHTNESS = 1 << 1,
	PS_IMAGE_CONTRAST = 1 << 2,
	PS_IMAGE_SATURATION = 1 << 3,
	PS_IMAGE_HUE = 1 << 4,
	PS_IMAGE_GRAY = 1 << 5,
	PS_IMAGE_BLUR = 1 << 6,
	PS_IMAGE_NOISE = 1 << 7,
	PS_IMAGE_ERASE = 1 << 8,

	PS_IMAGE_COLORS =
	        PS_IMAGE_BRIGHTNESS | PS_IMAGE_CONTRAST | PS_IMAGE_SATURATION | PS_IMAGE_HUE | PS_IMAGE_GRAY,
};

/* The jitter's steps. Their order is a number with four bits a step, the first step in the lowest bits. */
enum {
	PS_JITTER_BRIGHTNESS,
	PS_JITTER_CONTRAST,
	PS_JITTER_SATURATION,
	PS_JITTER_HUE,
	PS_JITTER_NSTEPS,
	PS_JITTER_IN_ORDER = 0x3210,
};

/* A rectangle that is erased. */
struct ps_erase {
	uint64_t key;
	uint32_t x0, y0, x1, y1;
	uint32_t random;   /* 0: all values are `level`; else noise around `level` */
	int32_t factor[3]; /* F(sigma / 147.80054127, 16) */
	uint8_t level[4];  /* levels of the three channels */
	uint32_t unused;
};

#define PS_IMAGE_REACH_MAX 127u /* half of PS_BLUR_SIZE_MAX */

struct ps_image_ops {
	uint32_t what;                             /* PS_IMAGE_ bits */
	uint32_t brightness, contrast, saturation; /* F(factor, 12) */
	int32_t turn;                              /* turn of the hue */
	int32_t noise;                             /* F(sigma / 147.80054127, 16) */
	uint64_t noise_key;
	uint64_t gray_sum; /* 0 at first; kernels sum up gray values here */
	struct ps_erase erase;
	int64_t map[6]; /* the affine's a, b, c, d, e, f */
	uint32_t reach; /* the blur's weights on each side of the middle one */
	uint32_t fill;  /* level of pixels that the affine step takes from outside the image */
	uint32_t order; /* order of the jitter's steps */
	uint32_t unused;
	int16_t blur[PS_IMAGE_REACH_MAX + 1]; /* the blur's weights, from the middle outwards */
};

/* Pixels ------------------------------------------------------------------------------------------------- */

/* The arithmetic of single pixels, as image.h and picture.h define it. The CPU's loops and the GPU's
 * kernels use it, and must give the same bits: no multiplication and addition may be contracted here.
 * Threads: any.   Errors: none. */

PS_BOTH uint8_t ps_pixel_clamp(int32_t v)
{
	return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

PS_BOTH float ps_pixel_normalised(uint32_t v, float scale, float bias)
{
	float scaled = (float)v * scale;
	return scaled + bias;
}

/* MixUp: a weighted mean of a and b. Floats: own = weight / 65536, rest = 1 - own. Integers: `weight` is
 * out of 65536. */
PS_BOTH float ps_pixel_blended(float a, float b, float own, float rest)
{
	float x = a * own, y = b * rest;
	return x + y;
}

PS_BOTH uint8_t ps_pixel_blended_u8(uint32_t a, uint32_t b, uint32_t weight)
{
	return (uint8_t)((weight * a + (65536u - weight) * b + 32768u) >> 16);
}

PS_BOTH uint16_t ps_pixel_blended_u16(uint32_t a, uint32_t b, uint32_t weight)
{
	return (uint16_t)((weight * a + (65536u - weight) * b + 32768u) >> 16);
}

/* Affine ------------------------------------------------------------------------------------------------- */

/* Two neighbours on an axis, and the weight of the second in 1024ths. */
struct ps_pixel_between {
	uint32_t low, high, fraction;
};

/* `at` is in units of 2^-32 pixels and inside the image: 0 <= at < size * 2^32. */
PS_BOTH struct ps_pixel_between ps_pixel_between_of(int64_t at, uint32_t size)
{
	int64_t u = at - ((int64_t)1 << 31), low = u >> 32;
	struct ps_pixel_between b;
	b.fraction = (uint32_t)(u >> 22) & 1023;
	b.low = low < 0 ? 0 : (uint32_t)low;
	b.high = low + 1 >= size ? size - 1 : (uint32_t)(low + 1);
	return b;
}

PS_BOTH uint8_t ps_pixel_sampled(
        const uint8_t *plane, size_t width, struct ps_pixel_between x, struct ps_pixel_between y)
{
	const uint8_t *above = plane + y.low * width, *below = plane + y.high * width;
	uint32_t top = above[x.low] * (1024 - x.fraction) + above[x.high] * x.fraction;
	uint32_t bottom = below[x.low] * (1024 - x.fraction) + below[x.high] * x.fraction;
	return (uint8_t)((top * (1024 - y.fraction) + bottom * y.fraction + (1u << 19)) >> 20);
}

/* Colours ------------------------------------------------------------------------------------------------ */

PS_BOTH uint8_t ps_pixel_gray(uint8_t r, uint8_t g, uint8_t b)
{
	return (uint8_t)((19595u * r + 38470u * g + 7471u * b + 32768u) >> 16);
}

PS_BOTH uint8_t ps_pixel_brightened(uint32_t factor, uint32_t v)
{
	return ps_pixel_clamp((int32_t)((factor * v + 2048) >> 12));
}

/* Scales a value's distance from `gray`, which is the image's mean (contrast), or the pixel's own gray value
 * (saturation). */
PS_BOTH uint8_t ps_pixel_from_gray(uint32_t factor, int32_t gray, int32_t v)
{
	int32_t k = (int32_t)factor;
	return ps_pixel_clamp((k * v + (4096 - k) * gray + 2048) >> 12);
}

/* The hexagon: red, yellow, green, cyan, blue, magenta. On edge e, from corner e to e + 1, one channel is the
 * largest and one the smallest; the one between grows on even edges and falls on odd ones. */
#define PS_PIXEL_CORNER 65536

/* Turns the hue. Returns the edge of the result, and *ret_middle, the new value of the middle channel.
 * reciprocal: F(1 / (most - least), 24). */
PS_BOTH uint32_t ps_pixel_turned(uint32_t r, uint32_t g, uint32_t b, uint32_t most, uint32_t least,
        uint32_t reciprocal, int32_t turn, uint8_t *ret_middle)
{
	int32_t corner = r == most ? 0 : g == most ? 2 * PS_PIXEL_CORNER : 4 * PS_PIXEL_CORNER;
	int32_t difference = r == most   ? (int32_t)g - (int32_t)b
	                     : g == most ? (int32_t)b - (int32_t)r
	                                 : (int32_t)r - (int32_t)g;
	uint32_t amount = (uint32_t)(difference < 0 ? -difference : difference);
	int32_t part = (int32_t)((amount * reciprocal) >> 8);
	int32_t position = corner + (difference < 0 ? -part : part) + turn;
	position += position < 0 ? 6 * PS_PIXEL_CORNER : 0;
	position -= position >= 6 * PS_PIXEL_CORNER ? 6 * PS_PIXEL_CORNER : 0;
	uint32_t edge = (uint32_t)position / PS_PIXEL_CORNER, fraction = (uint32_t)position % PS_PIXEL_CORNER;
	if (edge % 2)
		fraction = PS_PIXEL_CORNER - fraction;
	*ret_middle = (uint8_t)(least + (((most - least) * fraction + PS_PIXEL_CORNER / 2) >> 16));
	return edge;
}

PS_BOTH uint32_t ps_pixel_reciprocal(uint32_t d)
{
	return ((1u << 24) + d / 2) / d;
}

/* Blur and noise ----------------------------------------------------------------------------------------- */

/* Mirrors an index outside [0, size) at the edge; the edge pixel is not repeated. */
PS_BOTH uint32_t ps_pixel_mirrored(int64_t at, uint32_t size)
{
	if (at < 0)
		at = -at;
	return (uint32_t)(at >= size ? 2 * ((int64_t)size - 1) - at : at);
}

/* The random words for values 4i to 4i + 3. */
PS_BOTH void ps_pixel_noise(uint64_t key, uint32_t i, uint32_t ret_words[4])
{
	const uint32_t halves[2] = {(uint32_t)key, (uint32_t)(key >> 32)};
	ret_words[0] = i;
	ret_words[1] = ret_words[2] = ret_words[3] = 0;
	ps_philox4x32(ret_words, halves);
}

PS_BOTH uint8_t ps_pixel_noised(uint32_t v, uint32_t word, int32_t factor)
{
	int32_t bytes = (int32_t)((word & 255) + (word >> 8 & 255) + (word >> 16 & 255) + (word >> 24)) - 510;
	return ps_pixel_clamp((int32_t)v + ((bytes * factor + 32768) >> 16));
}

/* The value of a pixel in the rectangle, in channel c. */
PS_BOTH uint8_t ps_pixel_erased(const struct ps_erase *e, uint32_t c, uint32_t word)
{
	return e->random ? ps_pixel_noised(e->level[c], word, e->factor[c]) : e->level[c];
}

#endif
