#include "image/image.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "image/picture.h"
#include "image/pixel/pixel.h"

/* Arithmetic that is the same everywhere ----------------------------------------------------------------- */

/* ln 2 in two parts: the product of LN2_HIGH and a small integer is exact. */
#define LN2_HIGH 0x1.62e42fefa0000p-1
#define LN2_LOW 0x1.cf79abc9e3b3ap-40
#define DEGREE 1.74532925199432957692e-02

/* x = 2^exponent * m with m near 1, ln m = 2 artanh((m - 1) / (m + 1)). */
double ps_fixed_log(double x)
{
	int exponent;
	double m = frexp(x, &exponent);
	if (m < 0.70710678118654752) {
		m *= 2;
		exponent--;
	}
	double t = (m - 1) / (m + 1), square = t * t, series = 0;
	for (int k = 23; k >= 1; k -= 2) /* |t| < 0.172: the next term is below 2^-60 */
		series = series * square + 1.0 / k;
	return exponent * LN2_HIGH + (exponent * LN2_LOW + 2 * t * series);
}

/* x = n ln 2 + r with |r| < 0.35. */
double ps_fixed_exp(double x)
{
	double n = floor(x * 1.4426950408889634 + 0.5);
	double r = (x - n * LN2_HIGH) - n * LN2_LOW, series = 1;
	for (int k = 14; k >= 1; k--)
		series = 1 + series * r / k;
	return ldexp(series, (int)n);
}

/* |x| <= pi / 4: the terms left out are below 2^-60. */
static double series_sin(double x)
{
	double square = x * x, series = 1;
	for (int k = 16; k >= 2; k -= 2)
		series = 1 - series * square / (k * (k + 1));
	return x * series;
}

static double series_cos(double x)
{
	double square = x * x, series = 1;
	for (int k = 17; k >= 1; k -= 2)
		series = 1 - series * square / (k * (k + 1));
	return series;
}

/* |degrees| < 10^6. */
static double sin_of(double degrees)
{
	double quarters = floor(degrees / 90 + 0.5), x = (degrees - quarters * 90) * DEGREE;
	switch ((long)quarters & 3) {
	case 0:
		return series_sin(x);
	case 1:
		return series_cos(x);
	case 2:
		return -series_sin(x);
	default:
		return -series_cos(x);
	}
}

static double cos_of(double degrees)
{
	return sin_of(degrees + 90);
}

/* Affine ------------------------------------------------------------------------------------------------- */

#define ONE (INT64_C(1) << 32)

static int64_t fixed(double v)
{
	return (int64_t)floor(v * (double)ONE + 0.5);
}

/* Converts the map to fixed point. The fixed map takes pixel indexes instead of pixel centres: its
 * constants include the half pixel between them. */
static void affine_fixed(const struct ps_affine *map, int64_t ret_fixed[static 6])
{
	const double *i = map->inverse;
	ret_fixed[0] = fixed(i[0]);
	ret_fixed[1] = fixed(i[1]);
	ret_fixed[2] = fixed(i[2] + 0.5 * (i[0] + i[1]));
	ret_fixed[3] = fixed(i[3]);
	ret_fixed[4] = fixed(i[4]);
	ret_fixed[5] = fixed(i[5] + 0.5 * (i[3] + i[4]));
}

void ps_affine_apply(const struct ps_affine *map, const struct ps_planes *from, uint8_t fill, uint8_t *to)
{
	int64_t k[6];
	affine_fixed(map, k);
	size_t plane = (size_t)from->width * from->height;
	int64_t most_x = (int64_t)from->width << 32, most_y = (int64_t)from->height << 32;
	for (uint32_t row = 0; row < from->height; row++) {
		int64_t x = k[2] + k[1] * row, y = k[5] + k[4] * row;
		for (uint32_t col = 0; col < from->width; col++, x += k[0], y += k[3], to++) {
			if (x < 0 || x >= most_x || y < 0 || y >= most_y) {
				to[0] = to[plane] = to[2 * plane] = fill;
				continue;
			}
			struct ps_pixel_between across = ps_pixel_between_of(x, from->width),
			                        down = ps_pixel_between_of(y, from->height);
			for (size_t c = 0; c < 3; c++)
				to[c * plane] =
				        ps_pixel_sampled(from->p + c * plane, from->width, across, down);
		}
	}
}

void ps_affine_labels(const struct ps_affine *map, const uint16_t *from, uint32_t width, uint32_t height,
        uint16_t fill, uint16_t *to)
{
	int64_t k[6];
	affine_fixed(map, k);
	for (uint32_t row = 0; row < height; row++) {
		int64_t x = k[2] + k[1] * row, y = k[5] + k[4] * row;
		for (uint32_t col = 0; col < width; col++, x += k[0], y += k[3], to++) {
			bool outside =
			        x < 0 || x >= (int64_t)width << 32 || y < 0 || y >= (int64_t)height << 32;
			*to = outside ? fill : from[(size_t)(y >> 32) * width + (size_t)(x >> 32)];
		}
	}
}

/* Colours, as loops over planes of bytes, which compilers vectorise -------------------------------------- */

static void brighten(uint32_t factor, uint8_t *p, size_t n)
{
	uint8_t table[256];
	for (uint32_t v = 0; v < 256; v++)
		table[v] = ps_pixel_brightened(factor, v);
	for (size_t i = 0; i < n; i++)
		p[i] = table[p[i]];
}

static void contrast(uint32_t factor, const struct ps_planes *planes)
{
	size_t n = (size_t)planes->width * planes->height;
	const uint8_t *r = planes->p, *g = r + n, *b = g + n;
	uint64_t sum = 0;
	uint8_t table[256];
	for (size_t i = 0; i < n; i++)
		sum += ps_pixel_gray(r[i], g[i], b[i]);
	int32_t mean = (int32_t)((sum + n / 2) / n);
	for (int32_t v = 0; v < 256; v++)
		table[v] = ps_pixel_from_gray(factor, mean, v);
	for (size_t i = 0; i < 3 * n; i++)
		planes->p[i] = table[planes->p[i]];
}

static void saturate(uint32_t factor, const struct ps_planes *planes)
{
	size_t n = (size_t)planes->width * planes->height;
	uint8_t *restrict r = planes->p, *restrict g = r + n, *restrict b = g + n;
	for (size_t i = 0; i < n; i++) {
		int32_t gray = ps_pixel_gray(r[i], g[i], b[i]);
		r[i] = ps_pixel_from_gray(factor, gray, r[i]);
		g[i] = ps_pixel_from_gray(factor, gray, g[i]);
		b[i] = ps_pixel_from_gray(factor, gray, b[i]);
	}
}

/* The largest, the middle and the smallest channel on each edge of the hue hexagon. */
static const uint8_t edges[6][3] = {{0, 1, 2}, {1, 0, 2}, {1, 2, 0}, {2, 1, 0}, {2, 0, 1}, {0, 2, 1}};

static void turn_hue(int32_t turn, const struct ps_planes *planes)
{
	size_t n = (size_t)planes->width * planes->height;
	uint32_t reciprocal[256] = {0};
	for (uint32_t d = 1; d < 256; d++)
		reciprocal[d] = ps_pixel_reciprocal(d);
	for (size_t i = 0; i < n; i++) {
		uint8_t v[3] = {planes->p[i], planes->p[n + i], planes->p[2 * n + i]};
		uint32_t most = PS_MAX(PS_MAX(v[0], v[1]), v[2]), least = PS_MIN(PS_MIN(v[0], v[1]), v[2]);
		if (most == least)
			continue;
		uint8_t middle;
		uint32_t edge = ps_pixel_turned(
		        v[0], v[1], v[2], most, least, reciprocal[most - least], turn, &middle);
		planes->p[edges[edge][0] * n + i] = (uint8_t)most;
		planes->p[edges[edge][1] * n + i] = middle;
		planes->p[edges[edge][2] * n + i] = (uint8_t)least;
	}
}

void ps_color_jitter(
        const struct ps_transform_spec *spec, const struct ps_transform *t, const struct ps_planes *planes)
{
	for (uint32_t i = 0; i < PS_JITTER_NSTEPS; i++) {
		switch (t->order >> 4 * i & 15) {
		case PS_JITTER_BRIGHTNESS:
			if (spec->brightness > 0)
				brighten(
				        t->brightness, planes->p, (size_t)planes->width * planes->height * 3);
			break;
		case PS_JITTER_CONTRAST:
			if (spec->contrast > 0)
				contrast(t->contrast, planes);
			break;
		case PS_JITTER_SATURATION:
			if (spec->saturation > 0)
				saturate(t->saturation, planes);
			break;
		default:
			if (spec->hue > 0)
				turn_hue(t->turn, planes);
		}
	}
}

void ps_color_gray(const struct ps_planes *planes)
{
	size_t n = (size_t)planes->width * planes->height;
	uint8_t *restrict r = planes->p, *restrict g = r + n, *restrict b = g + n;
	for (size_t i = 0; i < n; i++)
		r[i] = g[i] = b[i] = ps_pixel_gray(r[i], g[i], b[i]);
}

/* Blur and noise ----------------------------------------------------------------------------------------- */

#define ONE14 16384
#define PAIR 2

/* Writes the weights from the middle outwards; returns how many follow the middle one. */
static uint32_t blur_weights(double sigma, uint32_t size, int32_t q[static PS_BLUR_REACH_MAX + 1])
{
	uint32_t reach = size / 2;
	double w[PS_BLUR_REACH_MAX + 1], sum = 0;
	int32_t rest = ONE14;
	for (uint32_t i = 0; i <= reach; i++) {
		double x = i / sigma;
		w[i] = x > 30 ? 0 : ps_fixed_exp(-0.5 * x * x);
		sum += i ? PAIR * w[i] : w[i];
	}
	for (uint32_t i = 1; i <= reach; i++) {
		q[i] = (int32_t)floor(w[i] / sum * ONE14 + 0.5);
		rest -= PAIR * q[i];
	}
	q[0] = rest;
	while (reach > 0 && q[reach] == 0) /* a weight of 0, at a small sigma */
		reach--;
	return reach;
}

#define CHUNK 256u /* columns at a time: sums stay in the L1 cache */

/* Copies n columns from x on, and `reach` more on each side, mirrored at the row's ends. */
static void chunk_padded(
        const uint8_t *row, uint32_t width, uint32_t x, uint32_t n, uint32_t reach, uint8_t *to)
{
	int64_t begin = (int64_t)x - reach, end = (int64_t)x + n + reach;
	uint32_t left = begin < 0 ? (uint32_t)-begin : 0, right = end > width ? (uint32_t)(end - width) : 0;
	uint32_t middle = n + 2 * reach - left - right;
	for (uint32_t i = 0; i < left; i++)
		to[i] = row[ps_pixel_mirrored(begin + i, width)];
	memcpy(to + left, row + begin + left, middle);
	for (uint32_t i = 0; i < right; i++)
		to[left + middle + i] = row[ps_pixel_mirrored((int64_t)width + i, width)];
}

/* GCC vectorises these loops, and so halves their time, at -O3 only. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3")
#endif

static void across(const int32_t *q, uint32_t reach, const uint8_t *row, uint32_t width, int16_t *to)
{
	uint8_t padded[CHUNK + PS_BLUR_SIZE_MAX];
	int32_t sums[CHUNK];
	for (uint32_t x = 0; x < width; x += CHUNK) {
		uint32_t n = PS_MIN(CHUNK, width - x);
		chunk_padded(row, width, x, n, reach, padded);
		for (uint32_t i = 0; i < n; i++)
			sums[i] = q[0] * padded[reach + i] + 128;
		for (uint32_t k = 1; k <= reach; k++) {
			const uint8_t *left = padded + reach - k, *right = padded + reach + k;
			for (uint32_t i = 0; i < n; i++)
				sums[i] += q[k] * (left[i] + right[i]);
		}
		for (uint32_t i = 0; i < n; i++)
			to[x + i] = (int16_t)(sums[i] >> 8);
	}
}

static void down(const int32_t *q, uint32_t reach, const int16_t *rows, uint32_t width, uint32_t height,
        uint32_t y, uint8_t *to)
{
	int32_t sums[CHUNK];
	for (uint32_t x = 0; x < width; x += CHUNK) {
		uint32_t n = PS_MIN(CHUNK, width - x);
		const int16_t *middle = rows + (size_t)y * width + x;
		for (uint32_t i = 0; i < n; i++)
			sums[i] = q[0] * middle[i] + (1 << 19);
		for (uint32_t k = 1; k <= reach; k++) {
			const int16_t *above =
			        rows + (size_t)ps_pixel_mirrored((int64_t)y - k, height) * width + x;
			const int16_t *below =
			        rows + (size_t)ps_pixel_mirrored((int64_t)y + k, height) * width + x;
			for (uint32_t i = 0; i < n; i++)
				sums[i] += q[k] * (above[i] + below[i]);
		}
		for (uint32_t i = 0; i < n; i++)
			to[x + i] = (uint8_t)(sums[i] >> 20);
	}
}

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

/* Blurs one plane at a time: its rows between the passes have 16 bits, and take two of the three planes of
 * `spare`. */
void ps_blur_apply(double sigma, uint32_t size, const struct ps_planes *planes, uint8_t *spare)
{
	uint32_t width = planes->width, height = planes->height;
	int32_t q[PS_BLUR_REACH_MAX + 1];
	int16_t *between = (int16_t *)(void *)spare;
	const uint32_t reach = blur_weights(sigma, size, q);
	for (size_t c = 0; c < 3; c++) {
		uint8_t *plane = planes->p + c * width * height;
		for (uint32_t y = 0; y < height; y++)
			across(q, reach, plane + (size_t)y * width, width, between + (size_t)y * width);
		for (uint32_t y = 0; y < height; y++)
			down(q, reach, between, width, height, y, plane + (size_t)y * width);
	}
}

#define FOUR_BYTES_SIGMA 147.80054127 /* sqrt(4 * (256^2 - 1) / 12) */

static int32_t noise_factor(double sigma)
{
	return (int32_t)floor(sigma / FOUR_BYTES_SIGMA * 65536 + 0.5);
}

void ps_noise_apply(uint64_t noise_key, double sigma, const struct ps_planes *planes)
{
	size_t n = (size_t)planes->width * planes->height * 3;
	int32_t factor = noise_factor(sigma);
	for (size_t i = 0; i < n; i += 4) {
		uint32_t words[4];
		ps_pixel_noise(noise_key, (uint32_t)(i / 4), words);
		for (size_t j = 0; j < 4 && i + j < n; j++)
			planes->p[i + j] = ps_pixel_noised(planes->p[i + j], words[j], factor);
	}
}

/* Erase -------------------------------------------------------------------------------------------------- */

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

/* Choices ------------------------------------------------------------------------------------------------ */

struct range {
	const char *name;
	double value, least, most;
};

/* The smallest size of the blur's kernel that is drawn. */
static uint32_t blur_size(const struct ps_transform_spec *s, uint32_t width)
{
	if (s->blur_size)
		return s->blur_size;
	return s->blur_size_max ? 3 : PS_MIN(PS_MAX(width / 10 | 1, 3u), PS_BLUR_SIZE_MAX);
}

static int check_blur(
        const struct ps_transform_spec *s, uint32_t width, uint32_t height, struct ps_error *err)
{
	uint32_t least = blur_size(s, width), size = s->blur_size_max ? s->blur_size_max : least;
	bool sigma_default = s->blur_sigma_min == 0 && s->blur_sigma_max == 0;
	if (s->blur == 0)
		return 0;
	if (size % 2 == 0 || size > PS_BLUR_SIZE_MAX)
		return ps_error_set(
		        err, EINVAL, "image: blur_size %u: must be odd, 1 to %u", size, PS_BLUR_SIZE_MAX);
	if (least % 2 == 0 || least > size)
		return ps_error_set(err, EINVAL,
		        "image: blur_size %u to %u: both must be odd, and the first not larger", least, size);
	if (size / 2 >= width || size / 2 >= height)
		return ps_error_set(err, EINVAL,
		        "image: blur_size %u: must be less than twice the image's sides, %u x %u", size,
		        width, height);
	if (!sigma_default && !(s->blur_sigma_min >= 0.01 && s->blur_sigma_min <= s->blur_sigma_max &&
	                              s->blur_sigma_max <= 100))
		return ps_error_set(err, EINVAL,
		        "image: blur_sigma %g to %g: must be 0.01 <= min <= max <= 100", s->blur_sigma_min,
		        s->blur_sigma_max);
	return 0;
}

int ps_transform_check(
        const struct ps_transform_spec *s, uint32_t width, uint32_t height, struct ps_error *err)
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
	int rc = 0;
	/* Conditions are written so that a NaN is refused. */
	for (const struct range *r = ranges; r < ranges + PS_ARRAY_LEN(ranges) && rc == 0; r++)
		if (!(r->value >= r->least && r->value <= r->most))
			rc = ps_error_set(err, EINVAL, "image: %s %g: must be %g to %g", r->name, r->value,
			        r->least, r->most);
	if (rc == 0 && !(s->zoom_min == 0 && s->zoom_max == 0) &&
	        !(s->zoom_min >= 0.01 && s->zoom_min <= s->zoom_max && s->zoom_max <= 100))
		rc = ps_error_set(err, EINVAL, "image: zoom %g to %g: must be 0.01 <= min <= max <= 100",
		        s->zoom_min, s->zoom_max);
	if (rc == 0 && s->noise_sigma_max > 0 && !(s->noise_sigma <= s->noise_sigma_max))
		rc = ps_error_set(err, EINVAL, "image: noise_sigma %g to %g: must be 0 <= min <= max <= 255",
		        s->noise_sigma, s->noise_sigma_max);
	if (rc == 0 && !(s->erase_scale_min == 0 && s->erase_scale_max == 0) &&
	        !(s->erase_scale_min > 0 && s->erase_scale_min <= s->erase_scale_max &&
	                s->erase_scale_max <= 1))
		rc = ps_error_set(err, EINVAL, "image: erase_scale %g to %g: must be 0 < min <= max <= 1",
		        s->erase_scale_min, s->erase_scale_max);
	if (rc == 0 && !(s->erase_ratio_min == 0 && s->erase_ratio_max == 0) &&
	        !(s->erase_ratio_min >= 1e-3 && s->erase_ratio_min <= s->erase_ratio_max &&
	                s->erase_ratio_max <= 1e3))
		rc = ps_error_set(err, EINVAL,
		        "image: erase_ratio %g to %g: must be 0.001 <= min <= max <= 1000",
		        s->erase_ratio_min, s->erase_ratio_max);
	return rc < 0 ? rc : check_blur(s, width, height, err);
}

static double uniform(const struct ps_rng_key *key, uint32_t op, uint32_t index, double min, double max)
{
	return min + (max - min) * ps_rng_unit(key, op, index);
}

/* Draws an affine map: shear, rotate and zoom about the centre, then shift. Its inverse is computed as in
 * torchvision. */
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

	double cos_y = cos_of(shear_y), tan_x = sin_of(shear_x) / cos_of(shear_x);
	double cos_t = cos_of(angle - shear_y) / cos_y, sin_t = sin_of(angle - shear_y) / cos_y;
	double a = cos_t, b = -cos_t * tan_x - sin_of(angle);
	double c = sin_t, d = -sin_t * tan_x + cos_of(angle);
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
	uint32_t r = (uint32_t)ps_rng_below(key, PS_RNG_JITTER, 5, 24),
	         picks[] = {r / 6, r / 2 % 3, r % 2, 0};
	for (uint32_t i = 0; i < PS_JITTER_NSTEPS; i++) {
		order |= left[picks[i]] << 4 * i;
		for (uint32_t k = picks[i]; k + 1 < PS_JITTER_NSTEPS; k++)
			left[k] = left[k + 1];
	}
	return order;
}

static void draw_blur(const struct ps_transform_spec *s, uint32_t width, const struct ps_rng_key *key,
        struct ps_transform *t)
{
	uint32_t least = blur_size(s, width);
	bool default_sigma = !(s->blur_sigma_max > 0);
	t->sigma = uniform(key, PS_RNG_BLUR, 1, default_sigma ? 0.1 : s->blur_sigma_min,
	        default_sigma ? 2 : s->blur_sigma_max);
	t->blur_size = least;
	if (s->blur_size_max > least)
		t->blur_size +=
		        2 * (uint32_t)ps_rng_below(key, PS_RNG_BLUR, 2, (s->blur_size_max - least) / 2 + 1);
}

#define TRIES 10u
#define DRAWS_PER_TRY 4u
#define KEY_INDEX 64u

/* Draws the rectangle to erase; nothing is erased if none of TRIES drawn rectangles fits. */
static void draw_erase(const struct ps_image_spec *spec, const struct ps_rng_key *key, struct ps_transform *t)
{
	const struct ps_transform_spec *s = &spec->transforms;
	struct ps_erase *e = &t->erased;
	bool default_scale = s->erase_scale_max == 0, default_ratio = s->erase_ratio_max == 0;
	double log_min = ps_fixed_log(default_ratio ? 0.3 : s->erase_ratio_min);
	double log_max = ps_fixed_log(default_ratio ? 3.3 : s->erase_ratio_max);
	for (uint32_t i = 1; i < 1 + TRIES * DRAWS_PER_TRY && !t->erase; i += DRAWS_PER_TRY) {
		double area = (double)spec->out_width * spec->out_height *
		              uniform(key, PS_RNG_ERASE, i, default_scale ? 0.02 : s->erase_scale_min,
		                      default_scale ? 0.33 : s->erase_scale_max);
		double ratio = ps_fixed_exp(uniform(key, PS_RNG_ERASE, i + 1, log_min, log_max));
		double h = rint(sqrt(area * ratio)), w = rint(sqrt(area / ratio));
		if (!(h >= 1 && h < spec->out_height && w >= 1 && w < spec->out_width))
			continue;
		e->y0 = (uint32_t)ps_rng_below(key, PS_RNG_ERASE, i + 2, spec->out_height - (uint32_t)h + 1);
		e->x0 = (uint32_t)ps_rng_below(key, PS_RNG_ERASE, i + 3, spec->out_width - (uint32_t)w + 1);
		e->y1 = e->y0 + (uint32_t)h;
		e->x1 = e->x0 + (uint32_t)w;
		t->erase = true;
	}
	if (!t->erase)
		return;
	memcpy(e->level, s->erase_level, sizeof(s->erase_level));
	e->random = s->erase_random;
	if (!s->erase_random)
		return;
	e->key = ps_rng_u64(key, PS_RNG_ERASE, KEY_INDEX);
	for (int c = 0; c < 3; c++)
		e->factor[c] = noise_factor(s->erase_sigma[c]);
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
		draw_erase(spec, key, &t);
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
	                                   (t->noise ? PS_IMAGE_NOISE : 0u) |
	                                   (t->erase ? PS_IMAGE_ERASE : 0u),
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
		affine_fixed(&t->map, ops.map);
	if (t->blur) {
		ops.reach = blur_weights(t->sigma, t->blur_size, weights);
		for (uint32_t i = 0; i <= ops.reach; i++)
			ops.blur[i] = (int16_t)weights[i];
	}
	if (t->noise) {
		ops.noise = noise_factor(t->noise_sigma);
		ops.noise_key = t->noise_key;
	}
	*ret_ops = ops;
}
