#include "image/transform.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "image/fixed_math.h"
#include "image/spec.h"

struct range {
	const char *name;
	double value, least, most;
};

/* Written so that a NaN fails. */
static int check_ranges(const struct range *r, size_t n, struct ps_load_error *err)
{
	for (size_t i = 0; i < n; i++) {
		if (!(r[i].value >= r[i].least && r[i].value <= r[i].most))
			return ps_load_error_set(err, EINVAL, "image: %s %g: must be %g to %g", r[i].name,
			        r[i].value, r[i].least, r[i].most);
	}
	return 0;
}

/* The smallest that is drawn. */
static uint32_t blur_size(const struct ps_transform_spec *s, uint32_t width)
{
	if (s->blur_size)
		return s->blur_size;
	return s->blur_size_max ? 3 : PS_MIN(PS_MAX(width / 10 | 1, 3u), PS_BLUR_SIZE_MAX);
}

static int check_blur(
        const struct ps_transform_spec *s, uint32_t width, uint32_t height, struct ps_load_error *err)
{
	uint32_t least = blur_size(s, width), size = s->blur_size_max ? s->blur_size_max : least;
	bool sigma_default = s->blur_sigma_min == 0 && s->blur_sigma_max == 0;
	if (s->blur == 0)
		return 0;
	if (size % 2 == 0 || size > PS_BLUR_SIZE_MAX)
		return ps_load_error_set(
		        err, EINVAL, "image: blur_size %u: must be odd, 1 to %u", size, PS_BLUR_SIZE_MAX);
	if (least % 2 == 0 || least > size)
		return ps_load_error_set(err, EINVAL,
		        "image: blur_size %u to %u: both must be odd, and the first not larger", least, size);
	if (size / 2 >= width || size / 2 >= height)
		return ps_load_error_set(err, EINVAL,
		        "image: blur_size %u: must be less than twice the image's sides, %u x %u", size,
		        width, height);
	if (!sigma_default && !(s->blur_sigma_min >= 0.01 && s->blur_sigma_min <= s->blur_sigma_max &&
	                              s->blur_sigma_max <= 100))
		return ps_load_error_set(err, EINVAL,
		        "image: blur_sigma %g to %g: must be 0.01 <= min <= max <= 100", s->blur_sigma_min,
		        s->blur_sigma_max);
	return 0;
}

int ps_transform_check(
        const struct ps_transform_spec *s, uint32_t width, uint32_t height, struct ps_load_error *err)
{
	const struct range ranges[] = {{"affine", s->affine, 0, 1}, {"degrees", s->degrees, 0, 180},
	        {"translate_x", s->translate_x, 0, 1}, {"translate_y", s->translate_y, 0, 1},
	        {"shear_x", s->shear_x, 0, 80}, {"shear_y", s->shear_y, 0, 80}, {"fill", s->fill, 0, 255},
	        {"jitter", s->jitter, 0, 1}, {"brightness", s->brightness, 0, 7},
	        {"contrast", s->contrast, 0, 7}, {"saturation", s->saturation, 0, 7}, {"hue", s->hue, 0, 0.5},
	        {"gray", s->gray, 0, 1}, {"blur", s->blur, 0, 1}, {"noise", s->noise, 0, 1},
	        {"noise_sigma", s->noise_sigma, 0, 255}, {"noise_sigma_max", s->noise_sigma_max, 0, 255},
	        {"erase", s->erase, 0, 1}, {"erase_sigma", s->erase_sigma[0], 0, 1000},
	        {"erase_sigma", s->erase_sigma[1], 0, 1000}, {"erase_sigma", s->erase_sigma[2], 0, 1000}};
	int rc = check_ranges(ranges, PS_ARRAY_LEN(ranges), err);
	if (rc == 0 && !(s->zoom_min == 0 && s->zoom_max == 0) &&
	        !(s->zoom_min >= 0.01 && s->zoom_min <= s->zoom_max && s->zoom_max <= 100))
		rc = ps_load_error_set(err, EINVAL, "image: zoom %g to %g: must be 0.01 <= min <= max <= 100",
		        s->zoom_min, s->zoom_max);
	if (rc == 0 && s->noise_sigma_max > 0 && !(s->noise_sigma <= s->noise_sigma_max))
		rc = ps_load_error_set(err, EINVAL, "image: noise_sigma %g to %g: must be 0 <= min <= max <= 255",
		        s->noise_sigma, s->noise_sigma_max);
	if (rc == 0 && !(s->erase_scale_min == 0 && s->erase_scale_max == 0) &&
	        !(s->erase_scale_min > 0 && s->erase_scale_min <= s->erase_scale_max && s->erase_scale_max <= 1))
		rc = ps_load_error_set(err, EINVAL, "image: erase_scale %g to %g: must be 0 < min <= max <= 1",
		        s->erase_scale_min, s->erase_scale_max);
	if (rc == 0 && !(s->erase_ratio_min == 0 && s->erase_ratio_max == 0) &&
	        !(s->erase_ratio_min >= 1e-3 && s->erase_ratio_min <= s->erase_ratio_max &&
	                s->erase_ratio_max <= 1e3))
		rc = ps_load_error_set(err, EINVAL, "image: erase_ratio %g to %g: must be 0.001 <= min <= max <= 1000",
		        s->erase_ratio_min, s->erase_ratio_max);
	return rc < 0 ? rc : check_blur(s, width, height, err);
}

static double uniform(const struct ps_rng_key *key, uint32_t op, uint32_t index, double min, double max)
{
	return min + (max - min) * ps_rng_unit(key, op, index);
}

/* The inverse of: shear, turn and zoom about the centre, then shift. As torchvision computes it. */
static void draw_affine(const struct ps_transform_spec *s, uint32_t width, uint32_t height,
        const struct ps_rng_key *key, struct ps_affine *map)
{
	bool fixed_zoom = s->zoom_min == 0 && s->zoom_max == 0;
	double most_x = s->translate_x * width, most_y = s->translate_y * height;
	double angle = uniform(key, PS_RNG_AFFINE, 1, -s->degrees, s->degrees);
	double tx = rint(uniform(key, PS_RNG_AFFINE, 2, -most_x, most_x));
	double ty = rint(uniform(key, PS_RNG_AFFINE, 3, -most_y, most_y));
	double zoom = fixed_zoom ? 1 : uniform(key, PS_RNG_AFFINE, 4, s->zoom_min, s->zoom_max);
	double shear_x = uniform(key, PS_RNG_AFFINE, 5, -s->shear_x, s->shear_x);
	double shear_y = uniform(key, PS_RNG_AFFINE, 6, -s->shear_y, s->shear_y);

	double cos_y = ps_fixed_cos(shear_y), tan_x = ps_fixed_sin(shear_x) / ps_fixed_cos(shear_x);
	double cos_t = ps_fixed_cos(angle - shear_y) / cos_y, sin_t = ps_fixed_sin(angle - shear_y) / cos_y;
	double a = cos_t, b = -cos_t * tan_x - ps_fixed_sin(angle);
	double c = sin_t, d = -sin_t * tan_x + ps_fixed_cos(angle);
	double center_x = width * 0.5, center_y = height * 0.5;
	double *i = map->inverse;
	i[0] = d / zoom;
	i[1] = -b / zoom;
	i[3] = -c / zoom;
	i[4] = a / zoom;
	i[2] = center_x - i[0] * (center_x + tx) - i[1] * (center_y + ty);
	i[5] = center_y - i[3] * (center_x + tx) - i[4] * (center_y + ty);
}

static uint32_t draw_factor(const struct ps_rng_key *key, uint32_t index, double strength)
{
	double factor = uniform(key, PS_RNG_JITTER, index, fmax(0, 1 - strength), 1 + strength);
	return (uint32_t)floor(factor * 4096 + 0.5);
}

static uint32_t draw_order(const struct ps_rng_key *key)
{
	uint32_t left[PS_JITTER_NSTEPS] = {0, 1, 2, 3}, order = 0;
	uint32_t r = (uint32_t)ps_rng_below(key, PS_RNG_JITTER, 5, 24), picks[] = {r / 6, r / 2 % 3, r % 2, 0};
	for (uint32_t i = 0; i < PS_JITTER_NSTEPS; i++) {
		order |= left[picks[i]] << 4 * i;
		for (uint32_t k = picks[i]; k + 1 < PS_JITTER_NSTEPS; k++)
			left[k] = left[k + 1];
	}
	return order;
}

static void draw_blur(
        const struct ps_transform_spec *s, uint32_t width, const struct ps_rng_key *key, struct ps_transform *t)
{
	uint32_t least = blur_size(s, width);
	bool default_sigma = !(s->blur_sigma_max > 0);
	t->sigma = uniform(key, PS_RNG_BLUR, 1, default_sigma ? 0.1 : s->blur_sigma_min,
	        default_sigma ? 2 : s->blur_sigma_max);
	t->blur_size = least;
	if (s->blur_size_max > least)
		t->blur_size += 2 * (uint32_t)ps_rng_below(key, PS_RNG_BLUR, 2, (s->blur_size_max - least) / 2 + 1);
}

void ps_transform_draw(
        const struct ps_image_spec *spec, const struct ps_rng_key *key, struct ps_transform *ret_transform)
{
	const struct ps_transform_spec *s = &spec->transforms;
	struct ps_transform t = {0};
	t.affine = ps_choice_happens(spec, PS_CHOICE_AFFINE, key);
	t.jitter = ps_choice_happens(spec, PS_CHOICE_JITTER, key);
	t.gray = ps_choice_happens(spec, PS_CHOICE_GRAY, key);
	t.blur = ps_choice_happens(spec, PS_CHOICE_BLUR, key);
	t.noise = ps_choice_happens(spec, PS_CHOICE_NOISE, key);
	if (t.affine)
		draw_affine(s, spec->out_width, spec->out_height, key, &t.map);
	if (t.jitter) {
		t.brightness = draw_factor(key, 1, s->brightness);
		t.contrast = draw_factor(key, 2, s->contrast);
		t.saturation = draw_factor(key, 3, s->saturation);
		t.turn = (int32_t)floor(uniform(key, PS_RNG_JITTER, 4, -s->hue, s->hue) * 6 * 65536 + 0.5);
		t.order = s->jitter_random ? draw_order(key) : PS_JITTER_IN_ORDER;
	}
	if (t.blur)
		draw_blur(s, spec->out_width, key, &t);
	if (t.noise) {
		t.noise_key = ps_rng_u64(key, PS_RNG_NOISE, 1);
		t.noise_sigma = s->noise_sigma_max > 0
		                        ? uniform(key, PS_RNG_NOISE, 2, s->noise_sigma, s->noise_sigma_max)
		                        : s->noise_sigma;
	}
	if (ps_choice_happens(spec, PS_CHOICE_ERASE, key))
		ps_erase_draw(spec, key, &t);
	*ret_transform = t;
}

bool ps_transform_acts(const struct ps_transform *t)
{
	return t->affine || t->jitter || t->gray || t->blur || t->noise || t->erase;
}

void ps_transform_apply(const struct ps_transform *t, const struct ps_transform_spec *spec,
        struct ps_planes *planes, uint8_t **spare)
{
	if (t->affine) {
		ps_affine_apply(&t->map, planes, (uint8_t)spec->fill, *spare);
		uint8_t *done = *spare;
		*spare = planes->p;
		planes->p = done;
	}
	if (t->jitter)
		ps_color_jitter(spec, t, planes);
	if (t->gray)
		ps_color_gray(planes);
	if (t->blur)
		ps_blur_apply(t->sigma, t->blur_size, planes, *spare);
	if (t->noise)
		ps_noise_apply(t->noise_key, t->noise_sigma, planes);
	if (t->erase)
		ps_erase_apply(&t->erased, planes);
}

void ps_transform_ops(
        const struct ps_transform *t, const struct ps_transform_spec *spec, struct ps_image_ops *ret_ops)
{
	struct ps_image_ops ops = {.what = (t->affine ? PS_IMAGE_AFFINE : 0u) |
	                                   (t->gray ? PS_IMAGE_GRAY : 0u) | (t->blur ? PS_IMAGE_BLUR : 0u) |
	                                   (t->noise ? PS_IMAGE_NOISE : 0u) | (t->erase ? PS_IMAGE_ERASE : 0u),
	        .brightness = t->brightness,
	        .contrast = t->contrast,
	        .saturation = t->saturation,
	        .turn = t->turn,
	        .fill = spec->fill,
	        .order = t->order,
	        .erase = t->erased};
	int32_t weights[PS_BLUR_REACH_MAX + 1];
	if (t->jitter)
		ops.what |= (spec->brightness > 0 ? PS_IMAGE_BRIGHTNESS : 0u) |
		            (spec->contrast > 0 ? PS_IMAGE_CONTRAST : 0u) |
		            (spec->saturation > 0 ? PS_IMAGE_SATURATION : 0u) |
		            (spec->hue > 0 ? PS_IMAGE_HUE : 0u);
	if (t->affine)
		ps_affine_fixed(&t->map, ops.map);
	if (t->blur) {
		ops.reach = ps_blur_weights(t->sigma, t->blur_size, weights);
		for (uint32_t i = 0; i <= ops.reach; i++)
			ops.blur[i] = (int16_t)weights[i];
	}
	if (t->noise) {
		ops.noise = ps_noise_factor(t->noise_sigma);
		ops.noise_key = t->noise_key;
	}
	*ret_ops = ops;
}
