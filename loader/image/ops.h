/* What is to be done to one image after crop, resize and flips, drawn and reckoned ready for who does it: a
 * device's kernels (device/images.h). Sent to it as it lies here, so its form is that of both compilers.
 * Steps come in the order of transform.h, which has their arithmetic. Threads: any. */
#ifndef PS_LOADER_IMAGE_OPS_H
#define PS_LOADER_IMAGE_OPS_H

#include <stdint.h>

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

/* The jitter's steps as they come, four bits each, the first lowest. */
enum {
	PS_JITTER_BRIGHTNESS,
	PS_JITTER_CONTRAST,
	PS_JITTER_SATURATION,
	PS_JITTER_HUE,
	PS_JITTER_NSTEPS,
	PS_JITTER_IN_ORDER = 0x3210,
};

/* A rectangle that is written over. */
struct ps_erase {
	uint64_t key;
	uint32_t x0, y0, x1, y1;
	uint32_t random;   /* 0: `level`; else noise about it */
	int32_t factor[3]; /* F(sigma / 147.8, 16) */
	uint8_t level[4];  /* of three channels */
	uint32_t unused;
};

#define PS_IMAGE_REACH_MAX 127u /* half of PS_BLUR_SIZE_MAX */

struct ps_image_ops {
	uint32_t what;                             /* PS_IMAGE_ bits */
	uint32_t brightness, contrast, saturation; /* F(factor, 12) */
	int32_t turn;                              /* of the hue */
	int32_t noise;                             /* F(sigma / 147.8, 16) */
	uint64_t noise_key;
	uint64_t gray_sum;                    /* 0; kernels sum up gray values here */
	struct ps_erase erase;
	int64_t map[6];                       /* the affine's a, b, c, d, e, f */
	uint32_t reach;                       /* of the blur: weights to each side of the middle one */
	uint32_t fill;                        /* level of what the affine step brings from outside */
	uint32_t order;                       /* of the jitter's steps */
	uint32_t unused;
	int16_t blur[PS_IMAGE_REACH_MAX + 1]; /* from the middle outwards */
};

#endif
