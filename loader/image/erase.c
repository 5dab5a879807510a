/* The erasing of transform.h. */
#include <math.h>
#include <string.h>

#include "image/fixed_math.h"
#include "image/pixel.h"
#include "image/spec.h"

#define TRIES 10u
#define DRAWS_PER_TRY 4u
#define KEY_INDEX 64u

static double uniform(const struct ps_rng_key *key, uint32_t index, double min, double max)
{
	return min + (max - min) * ps_rng_unit(key, PS_RNG_ERASE, index);
}

/* False: none of the rectangles fitted. */
static bool place(const struct ps_image_spec *spec, const struct ps_rng_key *key, struct ps_erase *e)
{
	const struct ps_transform_spec *s = &spec->transforms;
	bool default_scale = s->erase_scale_max == 0, default_ratio = s->erase_ratio_max == 0;
	double log_min = ps_fixed_log(default_ratio ? 0.3 : s->erase_ratio_min);
	double log_max = ps_fixed_log(default_ratio ? 3.3 : s->erase_ratio_max);
	for (uint32_t i = 1; i < 1 + TRIES * DRAWS_PER_TRY; i += DRAWS_PER_TRY) {
		double area = (double)spec->out_width * spec->out_height *
		              uniform(key, i, default_scale ? 0.02 : s->erase_scale_min,
		                      default_scale ? 0.33 : s->erase_scale_max);
		double ratio = ps_fixed_exp(uniform(key, i + 1, log_min, log_max));
		double h = rint(sqrt(area * ratio)), w = rint(sqrt(area / ratio));
		if (!(h >= 1 && h < spec->out_height && w >= 1 && w < spec->out_width))
			continue;
		e->y0 = (uint32_t)ps_rng_below(key, PS_RNG_ERASE, i + 2, spec->out_height - (uint32_t)h + 1);
		e->x0 = (uint32_t)ps_rng_below(key, PS_RNG_ERASE, i + 3, spec->out_width - (uint32_t)w + 1);
		e->y1 = e->y0 + (uint32_t)h;
		e->x1 = e->x0 + (uint32_t)w;
		return true;
	}
	return false;
}

void ps_erase_draw(const struct ps_image_spec *spec, const struct ps_rng_key *key, struct ps_transform *t)
{
	const struct ps_transform_spec *s = &spec->transforms;
	t->erase = place(spec, key, &t->erased);
	if (!t->erase)
		return;
	memcpy(t->erased.level, s->erase_level, sizeof s->erase_level);
	t->erased.random = s->erase_random;
	if (!s->erase_random)
		return;
	t->erased.key = ps_rng_u64(key, PS_RNG_ERASE, KEY_INDEX);
	for (int c = 0; c < 3; c++)
		t->erased.factor[c] = ps_noise_factor(s->erase_sigma[c]);
}

void ps_erase_apply(const struct ps_erase *e, const struct ps_planes *planes)
{
	for (uint32_t c = 0; c < 3; c++) {
		for (uint32_t y = e->y0; y < e->y1; y++) {
			uint32_t begin = (c * planes->height + y) * planes->width, words[4] = {0};
			if (!e->random) {
				memset(planes->p + begin + e->x0, e->level[c], e->x1 - e->x0);
				continue;
			}
			for (uint32_t i = begin + e->x0; i < begin + e->x1; i++) {
				if (i % 4 == 0 || i == begin + e->x0)
					ps_pixel_noise(e->key, i / 4, words);
				planes->p[i] = ps_pixel_erased(e, c, words[i % 4]);
			}
		}
	}
}
