#include "image/image.h"

#include <math.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/dtype.h"
#include "image/picture.h"
#include "image/pixel/pixel.h"

#define ONE 65536
#define FIRST_PAIR 4u
#define TRIES_MAX 1000u /* each succeeds with probability 0.5 or more (0.7 at alpha 100) */

/* Draws a number in (0, 1]. */
static double positive(const struct ps_rng_key *key, uint32_t index)
{
	return 1 - ps_rng_unit(key, PS_RNG_MIX, index);
}

/* Jöhnk's method: for x = u^(1/a) and y = v^(1/a), where x + y <= 1, x / (x + y) is Beta(a, a). It uses
 * logarithms, since both may be below the smallest double. */
static bool try_joehnk(double alpha, double u, double v, double *ret_lambda)
{
	double log_x = ps_fixed_log(u) / alpha, log_y = ps_fixed_log(v) / alpha;
	double most = fmax(log_x, log_y);
	double x = ps_fixed_exp(fmax(log_x - most, -600)), y = ps_fixed_exp(fmax(log_y - most, -600));
	if (most + ps_fixed_log(x + y) > 0)
		return false;
	*ret_lambda = x / (x + y);
	return true;
}

static bool try_cheng(double alpha, double u, double v, double *ret_lambda)
{
	double sum = 2 * alpha, beta = sqrt((sum - 2) / (2 * alpha * alpha - sum)), gamma = alpha + 1 / beta;
	if (u >= 1)
		return false;
	double logit = beta * ps_fixed_log(u / (1 - u)),
	       w = alpha * ps_fixed_exp(fmin(fmax(logit, -600), 600));
	double z = ps_fixed_log(u * u * v);
	double r = gamma * logit - 1.3862943611198906; /* ln 4 */
	if (r + sum * ps_fixed_log(sum / (alpha + w)) < z)
		return false;
	*ret_lambda = w / (alpha + w);
	return true;
}

static double draw_beta(double alpha, const struct ps_rng_key *key)
{
	double lambda = 0.5;
	for (uint32_t i = 0; i < TRIES_MAX; i++) {
		double u = positive(key, FIRST_PAIR + 2 * i), v = positive(key, FIRST_PAIR + 2 * i + 1);
		if (alpha <= 1 ? try_joehnk(alpha, u, v, &lambda) : try_cheng(alpha, u, v, &lambda))
			break;
	}
	return lambda;
}

void ps_mix_draw(const struct ps_mix_spec *s, const struct ps_rng_key *key, struct ps_mix *ret_mix)
{
	struct ps_mix mix = {.kind = PS_MIX_NONE, .weight = ONE};
	bool both = s->mixup_alpha > 0 && s->cutmix_alpha > 0;
	bool any = s->mixup_alpha > 0 || s->cutmix_alpha > 0;
	if (any && ps_rng_unit(key, PS_RNG_MIX, 0) < s->probability) {
		bool cut = both ? ps_rng_unit(key, PS_RNG_MIX, 1) < s->cutmix_share : s->cutmix_alpha > 0;
		mix.kind = cut ? PS_MIX_CUT : PS_MIX_UP;
		mix.weight =
		        (uint32_t)floor(draw_beta(cut ? s->cutmix_alpha : s->mixup_alpha, key) * ONE + 0.5);
		mix.middle_x = ps_rng_unit(key, PS_RNG_MIX, 2);
		mix.middle_y = ps_rng_unit(key, PS_RNG_MIX, 3);
	}
	*ret_mix = mix;
}

static void side_of(double middle, double half_share, uint32_t size, uint32_t *ret_begin, uint32_t *ret_end)
{
	uint32_t center = (uint32_t)(middle * size), half = (uint32_t)(half_share * size);
	*ret_begin = center > half ? center - half : 0;
	*ret_end = PS_MIN(center + half, size);
}

struct ps_mix_box ps_mix_box_of(const struct ps_mix *mix, uint32_t width, uint32_t height)
{
	double half_share = 0.5 * sqrt(1 - (double)mix->weight / ONE);
	struct ps_mix_box box;
	side_of(mix->middle_x, half_share, width, &box.x0, &box.x1);
	side_of(mix->middle_y, half_share, height, &box.y0, &box.y1);
	return box;
}

void ps_mix_blend(enum ps_dtype dtype, void *own_row, const void *other_row, size_t n, uint32_t weight)
{
	float own = (float)weight / ONE, rest = (float)(ONE - weight) / ONE;
	if (dtype == PS_F32) {
		float *a = own_row;
		const float *b = other_row;
		for (size_t i = 0; i < n; i++)
			a[i] = ps_pixel_blended(a[i], b[i], own, rest);
	} else if (dtype == PS_U8) {
		uint8_t *a = own_row;
		const uint8_t *b = other_row;
		for (size_t i = 0; i < n; i++)
			a[i] = ps_pixel_blended_u8(a[i], b[i], weight);
	} else {
		uint16_t *a = own_row;
		const uint16_t *b = other_row;
		for (size_t i = 0; i < n && dtype == PS_F16; i++)
			a[i] = ps_f16_of(
			        ps_pixel_blended(ps_float_of_f16(a[i]), ps_float_of_f16(b[i]), own, rest));
		for (size_t i = 0; i < n && dtype == PS_BF16; i++)
			a[i] = ps_bf16_of(
			        ps_pixel_blended(ps_float_of_bf16(a[i]), ps_float_of_bf16(b[i]), own, rest));
		for (size_t i = 0; i < n && dtype == PS_U16; i++)
			a[i] = ps_pixel_blended_u16(a[i], b[i], weight);
	}
}

void ps_mix_paste(const struct ps_mix_box *box, void *own, const void *other, uint32_t planes, uint32_t width,
        uint32_t height, size_t pixel_nbytes)
{
	size_t n = (box->x1 - box->x0) * pixel_nbytes;
	for (uint32_t c = 0; c < planes && n > 0; c++) {
		for (uint32_t y = box->y0; y < box->y1; y++) {
			size_t at = (((size_t)c * height + y) * width + box->x0) * pixel_nbytes;
			memcpy((uint8_t *)own + at, (const uint8_t *)other + at, n);
		}
	}
}
