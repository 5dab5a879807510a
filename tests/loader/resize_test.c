/* Compares the resize with its definition in doubles, and its vector code with its portable code. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/dtype.h"
#include "image/picture.h"
#include "tests/loader/image_fixture.h"

#define GUARD 64

struct picture {
	uint32_t width, height;
	uint8_t *rgb; /* followed by 4 KiB of other bytes */
};

/* Resizes from rows in separate allocations, so that a sanitizer finds reads past the promised slack. */
static void resize(enum ps_resize_cpu cpu, const struct picture *p, const struct ps_resize_geometry *g,
        enum ps_interpolation interpolation, struct ps_resize_sink *sink)
{
	struct ps_resize *r = ps_resize_new(cpu);
	struct ps_region region;
	assert_non_null(r);
	assert_int_equal(ps_resize_plan(r, g, interpolation), 0);
	ps_resize_source(r, &region);
	uint32_t d = PS_MAX(g->shrunk, 1u);
	assert_true(region.x >= g->box_x / d && (region.x + region.width - 1) * d < g->box_x + g->box_w);
	assert_true(region.y >= g->box_y / d && (region.y + region.height - 1) * d < g->box_y + g->box_h);
	ps_resize_begin(r, sink);
	size_t row_nbytes = (size_t)region.width * 3;
	for (uint32_t y = 0; y < region.height; y++) {
		ps_autofree uint8_t *row = malloc(row_nbytes + ps_resize_slack(r));
		assert_non_null(row);
		memcpy(row, p->rgb + ((size_t)(region.y + y) * p->width + region.x) * 3, row_nbytes);
		memset(row + row_nbytes, 0xee, ps_resize_slack(r));
		ps_resize_row(r, row);
	}
	ps_resize_free(r);
}

/* As resize(), into new memory with guard bytes after it; the caller frees. */
static void *resized(enum ps_resize_cpu cpu, const struct picture *p, const struct ps_resize_geometry *g,
        enum ps_interpolation interpolation, enum ps_dtype dtype, enum ps_layout layout)
{
	size_t nbytes = (size_t)g->window_w * g->window_h * 3 * ps_dtype_nbytes(dtype);
	uint8_t *dst = malloc(nbytes + GUARD);
	assert_non_null(dst);
	memset(dst, 0xcd, nbytes + GUARD);
	struct ps_resize_sink sink = {.dst = dst,
	        .dtype = dtype,
	        .layout = layout,
	        .scale = {0.0171f, 0.0175f, 0.0174f},
	        .bias = {-2.1f, -2.03f, -1.8f}};
	resize(cpu, p, g, interpolation, &sink);
	for (int i = 0; i < GUARD; i++)
		assert_int_equal(dst[nbytes + (size_t)i], 0xcd);
	return dst;
}

static struct picture picture_new(uint32_t width, uint32_t height, uint64_t seed)
{
	return (struct picture){width, height, fixture_picture(width, height, 4096, seed)};
}

static double filter_weight(enum ps_interpolation interpolation, double x)
{
	x = fabs(x);
	if (interpolation == PS_BILINEAR)
		return x < 1 ? 1 - x : 0;
	return x < 1   ? 1.5 * x * x * x - 2.5 * x * x + 1
	       : x < 2 ? -0.5 * x * x * x + 2.5 * x * x - 4 * x + 2
	               : 0;
}

/* One output of one axis, exactly: the weighted mean over all pixels of the box. */
static double exact_axis(enum ps_interpolation interpolation, double scale, uint32_t box, uint32_t output,
        const double *values)
{
	double f = fmax(scale, 1), center = (output + 0.5) * scale, total = 0, sum = 0;
	double support = interpolation == PS_BICUBIC ? 2 * f : f;
	for (uint32_t j = 0; j < box; j++) {
		/* PIL takes pixels whose centre is within the support rounded to a pixel. */
		if (j < floor(fmax(center - support + 0.5, 0)) || j >= floor(center + support + 0.5))
			continue;
		double w = filter_weight(interpolation, (j + 0.5 - center) / f);
		total += w;
		sum += w * values[j];
	}
	return sum / total;
}

/* The definition, which the fixed-point code approximates: a horizontal pass, clamped but not rounded, then a
 * vertical pass. */
static void compare_with_doubles(const struct picture *p, const struct ps_resize_geometry *g,
        enum ps_interpolation interpolation, const uint8_t *got, double tolerance)
{
	double sx = (double)g->box_w / g->scaled_w, sy = (double)g->box_h / g->scaled_h;
	ps_autofree double *column = malloc(g->box_h * sizeof(*column));
	ps_autofree double *row = malloc(g->box_w * sizeof(*row));
	for (int c = 0; c < 3; c++) {
		for (uint32_t x = 0; x < g->window_w; x++) {
			uint32_t out = g->window_x + (g->flip ? g->window_w - 1 - x : x);
			for (uint32_t j = 0; j < g->box_h; j++) {
				for (uint32_t i = 0; i < g->box_w; i++)
					row[i] = p->rgb[((size_t)(g->box_y + j) * p->width + g->box_x + i) *
					                        3 +
					                (size_t)c];
				column[j] =
				        fmin(fmax(exact_axis(interpolation, sx, g->box_w, out, row), 0), 255);
			}
			for (uint32_t y = 0; y < g->window_h; y++) {
				double want =
				        exact_axis(interpolation, sy, g->box_h, g->window_y + y, column);
				double have = got[(y * (size_t)g->window_w + x) * 3 + (size_t)c];
				want = fmin(fmax(want, 0), 255);
				if (!(fabs(want - have) <= tolerance))
					fail_msg("%ux%u to %ux%u at %u,%u: %g, not %g", g->box_w, g->box_h,
					        g->scaled_w, g->scaled_h, x, y, have, want);
			}
		}
	}
}

/* A random part of a random picture to a random part of a random size. */
static struct ps_resize_geometry random_geometry(uint64_t *seed, const struct picture *p, uint32_t most)
{
	struct ps_resize_geometry g = {.box_w = fixture_between(seed, 1, p->width),
	        .box_h = fixture_between(seed, 1, p->height),
	        .scaled_w = fixture_between(seed, 1, most),
	        .scaled_h = fixture_between(seed, 1, most),
	        .flip = fixture_noise(seed) % 2};
	g.box_x = fixture_between(seed, 0, p->width - g.box_w);
	g.box_y = fixture_between(seed, 0, p->height - g.box_h);
	g.window_w = fixture_noise(seed) % 2 ? g.scaled_w : fixture_between(seed, 1, g.scaled_w);
	g.window_h = fixture_noise(seed) % 2 ? g.scaled_h : fixture_between(seed, 1, g.scaled_h);
	g.window_x = fixture_between(seed, 0, g.scaled_w - g.window_w);
	g.window_y = fixture_between(seed, 0, g.scaled_h - g.window_h);
	return g;
}

static void pixels_are_the_exact_values_rounded(void **state)
{
	uint64_t seed = 1;
	(void)state;
	for (int n = 0; n < 60; n++) {
		struct picture p =
		        picture_new(fixture_between(&seed, 1, 60), fixture_between(&seed, 1, 60), seed);
		struct ps_resize_geometry g = random_geometry(&seed, &p, 50);
		for (int i = PS_BILINEAR; i <= PS_BICUBIC; i++) {
			ps_autofree uint8_t *got = resized(PS_RESIZE_PORTABLE, &p, &g, i, PS_U8, PS_NHWC);
			compare_with_doubles(&p, &g, i, got, 0.6);
		}
		free(p.rgb);
	}
}

static void extreme_sizes_stay_exact(void **state)
{
	static const struct {
		uint32_t w, h, out_w, out_h;
		const char *why;
	} cases[] = {
	        {1, 1, 1, 1, "nothing to do"},
	        {1, 1, 300, 200, "one pixel everywhere"},
	        {2, 3, 64, 64, "edges of a cubic weigh up to 1.125"},
	        {20000, 1, 3, 1, "weights of a few units"},
	        {1, 20000, 1, 3, "vertical weights of a few units"},
	        {60000, 2, 1, 1, "one output of all pixels"},
	        {3, 60000, 2, 1, "a ring of 60000 rows"},
	};
	(void)state;
	for (size_t n = 0; n < PS_ARRAY_LEN(cases); n++) {
		struct picture p = picture_new(cases[n].w, cases[n].h, n);
		struct ps_resize_geometry g = {.box_w = p.width,
		        .box_h = p.height,
		        .scaled_w = cases[n].out_w,
		        .scaled_h = cases[n].out_h,
		        .window_w = cases[n].out_w,
		        .window_h = cases[n].out_h};
		for (int i = PS_BILINEAR; i <= PS_BICUBIC; i++) {
			ps_autofree uint8_t *got = resized(PS_RESIZE_PORTABLE, &p, &g, i, PS_U8, PS_NHWC);
			compare_with_doubles(&p, &g, i, got, 0.7);
			ps_autofree uint8_t *best = resized(ps_resize_cpu_best(), &p, &g, i, PS_U8, PS_NHWC);
			assert_memory_equal(got, best, (size_t)g.window_w * g.window_h * 3);
		}
		free(p.rgb);
	}
}

static void the_best_vector_unit_gives_the_bits_of_portable_code(void **state)
{
	uint64_t seed = 2;
	(void)state;
	for (int n = 0; n < 400; n++) {
		struct picture p =
		        picture_new(fixture_between(&seed, 1, 700), fixture_between(&seed, 1, 200), seed);
		struct ps_resize_geometry g = random_geometry(&seed, &p, 300);
		enum ps_interpolation i = fixture_noise(&seed) % 2;
		enum ps_dtype dtype = fixture_noise(&seed) % 4; /* PS_U8 to PS_BF16 */
		enum ps_layout layout = fixture_noise(&seed) % 2 ? PS_NCHW : PS_NHWC;
		ps_autofree void *want = resized(PS_RESIZE_PORTABLE, &p, &g, i, dtype, layout);
		ps_autofree void *got = resized(ps_resize_cpu_best(), &p, &g, i, dtype, layout);
		assert_memory_equal(got, want, (size_t)g.window_w * g.window_h * 3 * ps_dtype_nbytes(dtype));
		free(p.rgb);
	}
}

static void flip_mirrors_the_finished_pixels(void **state)
{
	uint64_t seed = 3;
	(void)state;
	for (int n = 0; n < 50; n++) {
		struct picture p =
		        picture_new(fixture_between(&seed, 1, 100), fixture_between(&seed, 1, 100), seed);
		struct ps_resize_geometry g = random_geometry(&seed, &p, 90);
		g.flip = false;
		ps_autofree uint8_t *plain =
		        resized(ps_resize_cpu_best(), &p, &g, PS_BICUBIC, PS_U8, PS_NCHW);
		g.flip = true;
		ps_autofree uint8_t *flipped =
		        resized(ps_resize_cpu_best(), &p, &g, PS_BICUBIC, PS_U8, PS_NCHW);
		for (uint32_t y = 0; y < 3 * g.window_h; y++) {
			for (uint32_t x = 0; x < g.window_w; x++)
				assert_int_equal(flipped[y * g.window_w + x],
				        plain[y * g.window_w + g.window_w - 1 - x]);
		}
		free(p.rgb);
	}
}

static void a_window_equals_its_part_of_the_whole(void **state)
{
	struct picture p = picture_new(123, 77, 4);
	struct ps_resize_geometry whole = {
	        .box_w = 123, .box_h = 77, .scaled_w = 50, .scaled_h = 60, .window_w = 50, .window_h = 60};
	struct ps_resize_geometry part = whole;
	(void)state;
	part.window_x = 7;
	part.window_y = 11;
	part.window_w = 31;
	part.window_h = 20;
	ps_autofree uint8_t *all = resized(ps_resize_cpu_best(), &p, &whole, PS_BILINEAR, PS_U8, PS_NHWC);
	ps_autofree uint8_t *cut = resized(ps_resize_cpu_best(), &p, &part, PS_BILINEAR, PS_U8, PS_NHWC);
	for (size_t y = 0; y < part.window_h; y++)
		assert_memory_equal(cut + y * 31 * 3, all + ((y + 11) * 50 + 7) * 3, 31 * 3);
	free(p.rgb);
}

static void f32_is_one_multiply_and_one_add_of_u8(void **state)
{
	struct picture p = picture_new(200, 150, 5);
	struct ps_resize_geometry g = {
	        .box_w = 200, .box_h = 150, .scaled_w = 97, .scaled_h = 83, .window_w = 97, .window_h = 83};
	const float scale[3] = {0.0171f, 0.0175f, 0.0174f}, bias[3] = {-2.1f, -2.03f, -1.8f};
	(void)state;
	ps_autofree uint8_t *bytes = resized(ps_resize_cpu_best(), &p, &g, PS_BILINEAR, PS_U8, PS_NHWC);
	ps_autofree float *planes = resized(ps_resize_cpu_best(), &p, &g, PS_BILINEAR, PS_F32, PS_NCHW);
	ps_autofree float *triples = resized(ps_resize_cpu_best(), &p, &g, PS_BILINEAR, PS_F32, PS_NHWC);
	for (size_t i = 0; i < 97 * 83; i++) {
		for (size_t c = 0; c < 3; c++) {
			volatile float product = (float)bytes[i * 3 + c] * scale[c];
			float want = product + bias[c];
			assert_true(planes[c * 97 * 83 + i] == want && triples[i * 3 + c] == want);
		}
	}
	free(p.rgb);
}

/* Asserts that no neighbour of `half` is nearer to f, nor equally near and even. */
static void check_nearest(float f, uint16_t half, float (*value)(uint16_t))
{
	double off = fabs((double)value(half) - (double)f);
	for (int step = -1; step <= 1; step += 2) {
		uint16_t next = (uint16_t)(half + step);
		double other = fabs((double)value(next) - (double)f);
		if (!isfinite(value(next)) || !isfinite(value(half)))
			continue;
		if (other < off || (other == off && half % 2))
			fail_msg("%a became %04x, not %04x", (double)f, half, next);
	}
}

static void sixteen_bit_floats_are_rounded_to_nearest_even(void **state)
{
	uint64_t seed = 11;
	(void)state;
	for (uint32_t i = 0; i < 65536; i++) {
		uint16_t h = (uint16_t)i;
		if (!isnan(ps_float_of_f16(h)))
			assert_int_equal(ps_f16_of(ps_float_of_f16(h)), h);
		if (!isnan(ps_float_of_bf16(h)))
			assert_int_equal(ps_bf16_of(ps_float_of_bf16(h)), h);
	}
	for (int i = 0; i < 300000; i++) {
		uint32_t bits = fixture_noise(&seed) << 16 ^ fixture_noise(&seed);
		float wide = ps_float_of_bits(bits);
		/* Exponents that halves have, and values half way between two of them. */
		float f = ps_float_of_bits((bits & 0x80000fff) | (fixture_between(&seed, 100, 142) << 23) |
		                           (bits & (i % 2 ? 0 : 0x7ff000)) | (bits << 9 & 0x7fe000));
		if (isfinite(wide))
			check_nearest(wide, ps_bf16_of(wide), ps_float_of_bf16);
		if (fabsf(f) < 65504)
			check_nearest(f, ps_f16_of(f), ps_float_of_f16);
	}
	assert_int_equal(ps_f16_of(65519.99f), 0x7bff);
	assert_int_equal(ps_f16_of(65520), 0x7c00);
	assert_int_equal(ps_f16_of(-1e30f), 0xfc00);
	assert_int_equal(ps_f16_of(0x1p-25f), 0);
	assert_int_equal(ps_f16_of(0x1.8p-25f), 1);
	assert_true(isnan(ps_float_of_f16(ps_f16_of(NAN))) && isnan(ps_float_of_bf16(ps_bf16_of(NAN))));
}

/* A source that was already scaled down gives the same picture as the whole source, except for the finest
 * detail. */
static void a_source_scaled_down_before_keeps_its_place(void **state)
{
	(void)state;
	for (uint32_t d = 2; d <= 8; d *= 2) {
		struct picture whole = {240, 160, malloc(240 * 160 * 3 + 4096)};
		struct picture small = {240 / d, 160 / d, malloc(240 * 160 * 3 + 4096)};
		struct ps_resize_geometry g = {.box_x = 37,
		        .box_y = 21,
		        .box_w = 170,
		        .box_h = 120,
		        .scaled_w = 20,
		        .scaled_h = 14,
		        .window_w = 20,
		        .window_h = 14};
		for (uint32_t i = 0; i < 240 * 160; i++) {
			whole.rgb[3 * i] = (uint8_t)(i % 240);
			whole.rgb[3 * i + 1] = (uint8_t)(i / 240);
			whole.rgb[3 * i + 2] = 99;
		}
		for (uint32_t i = 0; i < small.width * small.height; i++) {
			small.rgb[3 * i] = (uint8_t)(i % small.width * d + (d - 1) / 2);
			small.rgb[3 * i + 1] = (uint8_t)(i / small.width * d + (d - 1) / 2);
			small.rgb[3 * i + 2] = 99;
		}
		ps_autofree uint8_t *want =
		        resized(ps_resize_cpu_best(), &whole, &g, PS_BILINEAR, PS_U8, PS_NHWC);
		g.shrunk = d;
		ps_autofree uint8_t *got =
		        resized(ps_resize_cpu_best(), &small, &g, PS_BILINEAR, PS_U8, PS_NHWC);
		for (size_t i = 0; i < 20 * 14 * 3; i++)
			assert_true(abs(got[i] - want[i]) <= 2 + (int)d / 4);
		free(whole.rgb);
		free(small.rgb);
	}
}

static void same_size_changes_nothing(void **state)
{
	struct picture p = picture_new(64, 48, 6);
	struct ps_resize_geometry g = {.box_x = 3,
	        .box_y = 5,
	        .box_w = 40,
	        .box_h = 30,
	        .scaled_w = 40,
	        .scaled_h = 30,
	        .window_w = 40,
	        .window_h = 30};
	(void)state;
	for (int i = PS_BILINEAR; i <= PS_BICUBIC; i++) {
		ps_autofree uint8_t *got = resized(ps_resize_cpu_best(), &p, &g, i, PS_U8, PS_NHWC);
		for (size_t y = 0; y < 30; y++)
			assert_memory_equal(got + y * 40 * 3, p.rgb + ((y + 5) * 64 + 3) * 3, 40 * 3);
	}
	free(p.rgb);
}

static void one_colour_stays_that_colour(void **state)
{
	uint64_t seed = 7;
	(void)state;
	for (int n = 0; n < 100; n++) {
		struct picture p =
		        picture_new(fixture_between(&seed, 1, 900), fixture_between(&seed, 1, 90), 0);
		struct ps_resize_geometry g = random_geometry(&seed, &p, 120);
		int level = n % 3 == 0 ? 255 : (int)fixture_between(&seed, 0, 255);
		memset(p.rgb, level, (size_t)p.width * p.height * 3);
		ps_autofree uint8_t *got = resized(ps_resize_cpu_best(), &p, &g, n % 2, PS_U8, PS_NHWC);
		for (size_t i = 0; i < (size_t)g.window_w * g.window_h * 3; i++)
			assert_int_equal(got[i], level);
		free(p.rgb);
	}
}

/* FNV-1a. */
static uint64_t hash(const uint8_t *bytes, size_t nbytes)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325);
	for (size_t i = 0; i < nbytes; i++)
		h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
	return h;
}

/* The pixels are defined to the bit: a run that is resumed, on this or another machine, relies on it. */
static void pixels_never_change_between_versions(void **state)
{
	static const struct {
		uint32_t scaled_w, scaled_h;
		enum ps_interpolation interpolation;
		uint64_t want;
	} cases[] = {
	        {224, 224, PS_BILINEAR, UINT64_C(0xb02f617c7436ba3d)},
	        {100, 60, PS_BILINEAR, UINT64_C(0x7a78a02787f63265)},
	        {9, 7, PS_BILINEAR, UINT64_C(0x8438084ce37c33a9)},
	        {224, 224, PS_BICUBIC, UINT64_C(0xe7a3d37c557b1807)},
	        {100, 60, PS_BICUBIC, UINT64_C(0x61f4983e34aa8dc9)},
	        {9, 7, PS_BICUBIC, UINT64_C(0x48c291a74c6ca1c7)},
	};
	struct picture p = picture_new(173, 131, 10);
	(void)state;
	for (size_t n = 0; n < PS_ARRAY_LEN(cases); n++) {
		struct ps_resize_geometry g = {.box_x = 11,
		        .box_y = 13,
		        .box_w = 150,
		        .box_h = 107,
		        .scaled_w = cases[n].scaled_w,
		        .scaled_h = cases[n].scaled_h,
		        .window_w = cases[n].scaled_w,
		        .window_h = cases[n].scaled_h,
		        .flip = n % 2};
		ps_autofree uint8_t *got =
		        resized(PS_RESIZE_PORTABLE, &p, &g, cases[n].interpolation, PS_U8, PS_NHWC);
		uint64_t is = hash(got, (size_t)g.window_w * g.window_h * 3);
		if (is != cases[n].want)
			fail_msg("case %zu: 0x%016llx", n, (unsigned long long)is);
	}
	free(p.rgb);
}

/* One ps_resize gets plans of many sizes: an earlier plan must not change a later result. */
static void a_reused_resize_gives_the_pixels_of_a_new_one(void **state)
{
	uint64_t seed = 8;
	struct picture p = picture_new(300, 200, 9);
	struct ps_resize *r = ps_resize_new(ps_resize_cpu_best());
	(void)state;
	for (int n = 0; n < 60; n++) {
		struct ps_resize_geometry g = random_geometry(&seed, &p, 250);
		struct ps_region region;
		size_t nbytes = (size_t)g.window_w * g.window_h * 3;
		ps_autofree uint8_t *want = resized(ps_resize_cpu_best(), &p, &g, n % 2, PS_U8, PS_NCHW);
		ps_autofree uint8_t *got = malloc(nbytes);
		struct ps_resize_sink sink = {.dst = got, .dtype = PS_U8, .layout = PS_NCHW};
		assert_int_equal(ps_resize_plan(r, &g, n % 2), 0);
		ps_resize_source(r, &region);
		assert_true(ps_resize_slack(r) <= 4096);
		ps_resize_begin(r, &sink);
		for (uint32_t y = region.y; y < region.y + region.height; y++)
			ps_resize_row(r, p.rgb + ((size_t)y * 300 + region.x) * 3);
		assert_memory_equal(got, want, nbytes);
	}
	ps_resize_free(r);
	free(p.rgb);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(pixels_are_the_exact_values_rounded),
	        cmocka_unit_test(extreme_sizes_stay_exact),
	        cmocka_unit_test(the_best_vector_unit_gives_the_bits_of_portable_code),
	        cmocka_unit_test(flip_mirrors_the_finished_pixels),
	        cmocka_unit_test(a_window_equals_its_part_of_the_whole),
	        cmocka_unit_test(f32_is_one_multiply_and_one_add_of_u8),
	        cmocka_unit_test(sixteen_bit_floats_are_rounded_to_nearest_even),
	        cmocka_unit_test(a_source_scaled_down_before_keeps_its_place),
	        cmocka_unit_test(same_size_changes_nothing),
	        cmocka_unit_test(one_colour_stays_that_colour),
	        cmocka_unit_test(a_reused_resize_gives_the_pixels_of_a_new_one),
	        cmocka_unit_test(pixels_never_change_between_versions),
	};
	return cmocka_run_group_tests_name("resize", tests, NULL, NULL);
}
