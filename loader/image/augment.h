/* Which part of an image becomes a sample: crops and flips, from the image's size, the spec and a key.
 *
 * PS_CROP_RANDOM_RESIZED is torchvision's RandomResizedCrop: up to ten times draw an area (uniform share of
 *   the image's) and a ratio (uniform in its logarithm), width = round(sqrt(area * ratio)), height =
 *   round(sqrt(area / ratio)); the first that fits is placed uniformly; else the largest centred crop whose
 *   ratio is within bounds. round() takes halves to even. Numbers of PS_RNG_CROP, attempt t: index 4t the
 *   area, 4t + 1 the ratio, 4t + 2 the top, 4t + 3 the left edge.
 * PS_CROP_CENTER is Resize(resize_shorter) and CenterCrop: the longer side becomes
 *   floor(resize_shorter * long / short), the offsets round((scaled - out) / 2), halves to even.
 *   With resize_width and resize_height the image is stretched to that instead.
 * PS_CROP_RANDOM is Resize, if one is asked for, and RandomCrop: each side gets `padding`, then, where that is smaller
 *   than the output, as much again as is missing; the top is below(height - out + 1) under PS_RNG_CROP, index 2, the
 *   left edge likewise, index 3. What lies outside of the image is that of pad.h.
 * Flips: as choice.h says, hflip and vflip.
 * exp and log are those of fixed_math.h.
 * Threads: any.   Errors: none.   Blocks: never. */
#ifndef PS_LOADER_IMAGE_AUGMENT_H
#define PS_LOADER_IMAGE_AUGMENT_H

#include "image/spec.h"
#include "image/resize.h"

/* The spec has passed ps_image_spec_check(); width and height are 1 to 2^24. */
void ps_augment_geometry(const struct ps_image_spec *spec, uint32_t width, uint32_t height,
        const struct ps_rng_key *key, struct ps_resize_geometry *ret_geometry) __attribute__((nonnull));

#endif
