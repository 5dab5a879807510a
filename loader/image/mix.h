/* CutMix and MixUp: what is drawn for a batch, and the arithmetic on its pixels.
 *
 * Keys: {seed, epoch, sample = number of the batch in its epoch}, the rest 0: all ranks of a step draw the
 * same. Numbers of PS_RNG_MIX: 0 whether the batch is mixed (unit < probability), 1 whether by CutMix (unit <
 *   cutmix_share, where both have an alpha), 2 and 3 the middle of the box, 4 and on pairs for the weight.
 * Weight: lambda ~ Beta(alpha, alpha), by Joehnk's method where alpha <= 1, else Cheng's BB; with exp and log
 * of fixed_math.h; then F(lambda, 16) / 65536. MixUp, of a row and its partner: f32 a * lambda + b * (1 -
 * lambda), rounded after each step; f16 and bf16 that, rounded; u8 (F a + (65536 - F) b + 32768) >> 16.
 * CutMix: the partner's pixels in a box with half sides floor(0.5 sqrt(1 - lambda) * side) about the middle
 *   floor(unit * side), cut at the edges; lambda is then 1 - the box's share of the image.
 *
 * Ownership: none.   Threads: any.   Errors: none.   Blocks: never. */
#ifndef PS_LOADER_IMAGE_MIX_H
#define PS_LOADER_IMAGE_MIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "image/mix_kind.h"
#include "order/rng.h"

struct ps_mix_spec {
	double mixup_alpha, cutmix_alpha; /* 0: not that one; else 0.01 to 100 */
	double probability;               /* that a batch is mixed */
	double cutmix_share;              /* where both may be */
};

struct ps_mix {
	enum ps_mix_kind kind;
	uint32_t weight; /* lambda * 65536, of a row's own */
	double middle_x, middle_y;
};

struct ps_mix_box {
	uint32_t x0, y0, x1, y1; /* x1, y1 behind the last */
};

void ps_mix_draw(const struct ps_mix_spec *spec, const struct ps_rng_key *key, struct ps_mix *ret_mix);

/* The box in an image of that size. */
struct ps_mix_box ps_mix_box_of(const struct ps_mix *mix, uint32_t width, uint32_t height);

/* own = own * weight + other * (1 - weight), n elements. */
void ps_mix_blend(enum ps_dtype dtype, void *own, const void *other, size_t n, uint32_t weight);

/* The box of `planes` planes of width * height pixels of pixel_nbytes each. */
void ps_mix_paste(const struct ps_mix_box *box, void *own, const void *other, uint32_t planes, uint32_t width,
        uint32_t height, size_t pixel_nbytes);

#endif
