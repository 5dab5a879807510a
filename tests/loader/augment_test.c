/* Crops and flips: compared with a second implementation of torchvision's algorithm, and their statistics. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "image/picture.h"

static struct ps_rng_key nth(uint64_t n)
{
	return (struct ps_rng_key){.seed = 42, .epoch = 1, .sample = n};
}

static double uniform(const struct ps_rng_key *key, uint32_t index, double low, double high)
{
	return low + (high - low) * ps_rng_unit(key, PS_RNG_CROP, index);
}

/* RandomResizedCrop.get_params with the C library's exp and log. */
static void torchvision_box(const struct ps_image_spec *s, uint32_t width, uint32_t height,
        const struct ps_rng_key *key, uint32_t box[4])
{
	for (uint32_t t = 0; t < 10; t++) {
		double area = (double)width * height * uniform(key, 4 * t, s->scale_min, s->scale_max);
		double ratio = exp(uniform(key, 4 * t + 1, log(s->ratio_min), log(s->ratio_max)));
		long w = lrint(sqrt(area * ratio)), h = lrint(sqrt(area / ratio));
		if (w > 0 && w <= (long)width && h > 0 && h <= (long)height) {
			box[1] =
			        (uint32_t)ps_rng_below(key, PS_RNG_CROP, 4 * t + 2, height - (uint64_t)h + 1);
			box[0] = (uint32_t)ps_rng_below(key, PS_RNG_CROP, 4 * t + 3, width - (uint64_t)w + 1);
			box[2] = (uint32_t)w;
			box[3] = (uint32_t)h;
			return;
		}
	}
	double ratio = (double)width / height;
	box[2] = width;
	box[3] = height;
	if (ratio < s->ratio_min)
		box[3] = (uint32_t)lrint(width / s->ratio_min);
	else if (ratio > s->ratio_max)
		box[2] = (uint32_t)lrint(height * s->ratio_max);
	box[0] = (width - box[2]) / 2;
	box[1] = (height - box[3]) / 2;
}

static void random_crop_equals_torchvision(void **state)
{
	static const uint32_t sizes[][2] = {
	        {500, 375}, {375, 500}, {20, 20}, {640, 60}, {60, 640}, {4000, 3000}};
	struct ps_image_spec spec = ps_image_spec_imagenet(224);
	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(sizes); i++) {
		for (uint64_t n = 0; n < 3000; n++) {
			struct ps_rng_key key = nth(n);
			struct ps_resize_geometry g;
			uint32_t want[4];
			ps_augment_geometry(&spec, sizes[i][0], sizes[i][1], &key, &g);
			torchvision_box(&spec, sizes[i][0], sizes[i][1], &key, want);
			assert_int_equal(g.box_x, want[0]);
			assert_int_equal(g.box_y, want[1]);
			assert_int_equal(g.box_w, want[2]);
			assert_int_equal(g.box_h, want[3]);
			assert_true(g.scaled_w == 224 && g.scaled_h == 224 && g.window_w == 224 &&
			            g.window_h == 224 && g.window_x == 0 && g.window_y == 0);
		}
	}
}

/* On a square image every area in (0.08, 0.7) with every ratio in (3/4, 4/3) fits: no draw is repeated, and
 * the boxes have the distribution that was asked for. */
static void area_ratio_and_position_are_distributed_uniformly(void **state)
{
	enum { N = 40000, CELLS = 10 };
	struct ps_image_spec spec = ps_image_spec_imagenet(224);
	int area_cells[CELLS] = {0}, ratio_cells[CELLS] = {0}, x_cells[CELLS] = {0}, flips = 0;
	(void)state;
	spec.scale_max = 0.7;
	for (uint64_t n = 0; n < N; n++) {
		struct ps_rng_key key = nth(n);
		struct ps_resize_geometry g;
		ps_augment_geometry(&spec, 4000, 4000, &key, &g);
		double area = (double)g.box_w * g.box_h / (4000.0 * 4000), ratio = (double)g.box_w / g.box_h;
		double a = (area - 0.08) / 0.62, r = (log(ratio) - log(0.75)) / (log(4.0 / 3) - log(0.75));
		double x = (g.box_x + 0.5) / (4000 - g.box_w + 1);
		area_cells[(int)fmin(fmax(a * CELLS, 0), CELLS - 1)]++;
		ratio_cells[(int)fmin(fmax(r * CELLS, 0), CELLS - 1)]++;
		x_cells[(int)(x * CELLS)]++;
		flips += g.flip;
	}
	for (int c = 0; c < CELLS; c++) {
		assert_in_range(area_cells[c], N / CELLS - 300, N / CELLS + 300);
		assert_in_range(ratio_cells[c], N / CELLS - 300, N / CELLS + 300);
		assert_in_range(x_cells[c], N / CELLS - 300, N / CELLS + 300);
	}
	assert_in_range(flips, N / 2 - 500, N / 2 + 500);
}

static void letterbox_centres_the_scaled_image(void **state)
{
	/* image, output, size of the scaled image, its left and upper edge in the output */
	static const uint32_t cases[][8] = {{640, 480, 224, 224, 224, 168, 0, 28},
	        {480, 640, 224, 224, 168, 224, 28, 0}, {100, 100, 224, 224, 224, 224, 0, 0},
	        {2, 1000, 32, 64, 1, 64, 15, 0}, {1000, 3, 32, 64, 32, 1, 0, 31}, {1, 1, 7, 4, 4, 4, 1, 0},
	        {3, 2, 5, 5, 5, 3, 0, 1}, {4, 1, 2, 2, 2, 1, 0, 0}, {16, 5, 8, 8, 8, 3, 0, 2}};
	struct ps_rng_key key = nth(0);

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
		const uint32_t *c = cases[i];
		struct ps_image_spec spec = ps_image_spec_imagenet(224);
		struct ps_resize_geometry g;

		spec.crop = PS_CROP_LETTERBOX;
		spec.out_width = c[2];
		spec.out_height = c[3];
		ps_augment_geometry(&spec, c[0], c[1], &key, &g);
		assert_true(g.box_x == 0 && g.box_y == 0 && g.box_w == c[0] && g.box_h == c[1]);
		assert_true(g.scaled_w == c[4] && g.scaled_h == c[5]);
		assert_true(g.window_w == c[4] && g.window_h == c[5] && g.window_x == 0 && g.window_y == 0);
		assert_true(g.pad.x == -(int64_t)c[6] && g.pad.y == -(int64_t)c[7]);
		assert_true(g.pad.width == (c[4] == c[2] && c[5] == c[3] ? 0 : c[2]));
	}
}

static void flip_probability_0_never_flips_and_1_always_flips(void **state)
{
	struct ps_image_spec spec = ps_image_spec_imagenet(8);
	(void)state;
	for (uint64_t n = 0; n < 500; n++) {
		struct ps_rng_key key = nth(n);
		struct ps_resize_geometry g;
		spec.hflip_probability = 0;
		ps_augment_geometry(&spec, 30, 30, &key, &g);
		assert_false(g.flip);
		spec.hflip_probability = 1;
		ps_augment_geometry(&spec, 30, 30, &key, &g);
		assert_true(g.flip);
	}
}

/* The expected values are those of torchvision 0.14 for Resize(shorter), CenterCrop(out). */
static void centre_crop_equals_torchvision(void **state)
{
	static const struct {
		uint32_t width, height, shorter, out, scaled_w, scaled_h, left, top;
	} cases[] = {
	        {500, 375, 256, 224, 341, 256, 58, 16},
	        {375, 500, 256, 224, 256, 341, 16, 58},
	        {256, 256, 256, 224, 256, 256, 16, 16},
	        {1, 1, 8, 8, 8, 8, 0, 0},
	        {3, 1000, 32, 32, 32, 10666, 0, 5317},
	        {640, 427, 232, 224, 347, 232, 62, 4},
	        {501, 333, 256, 225, 385, 256, 80, 16},
	        {333, 501, 255, 224, 255, 383, 16, 80},
	        {1000, 3, 16, 5, 5333, 16, 2664, 6},
	};
	struct ps_rng_key key = nth(0);
	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
		struct ps_image_spec spec = ps_image_spec_imagenet(cases[i].out);
		struct ps_resize_geometry g;
		spec.crop = PS_CROP_CENTER;
		spec.resize_shorter = cases[i].shorter;
		spec.hflip_probability = 0;
		ps_augment_geometry(&spec, cases[i].width, cases[i].height, &key, &g);
		assert_true(g.box_x == 0 && g.box_y == 0);
		assert_true(g.box_w == cases[i].width && g.box_h == cases[i].height);
		assert_int_equal(g.scaled_w, cases[i].scaled_w);
		assert_int_equal(g.scaled_h, cases[i].scaled_h);
		assert_int_equal(g.window_x, cases[i].left);
		assert_int_equal(g.window_y, cases[i].top);
		assert_true(g.window_w == cases[i].out && g.window_h == cases[i].out);
	}
}

/* For any size a JPEG can have and any valid spec, the box is in the image and the window in the scaled
 * image. */
static void box_and_window_are_always_inside_the_image(void **state)
{
	static const uint32_t sides[] = {1, 2, 3, 7, 100, 65500};
	static const double ratios[][2] = {{0.75, 4.0 / 3}, {0.001, 0.002}, {500, 1000}, {1, 1}};
	(void)state;
	for (size_t w = 0; w < PS_ARRAY_LEN(sides); w++) {
		for (size_t h = 0; h < PS_ARRAY_LEN(sides); h++) {
			for (uint64_t n = 0; n < 400; n++) {
				struct ps_image_spec spec = ps_image_spec_imagenet(16);
				struct ps_rng_key key = nth(n);
				struct ps_resize_geometry g;
				spec.crop = n % 3;
				spec.resize_shorter = 16 + (uint32_t)n;
				spec.ratio_min = ratios[n % 4][0];
				spec.ratio_max = ratios[n % 4][1];
				assert_int_equal(ps_image_spec_check(&spec, NULL), 0);
				ps_augment_geometry(&spec, sides[w], sides[h], &key, &g);
				assert_true(g.box_w >= 1 && g.box_x + g.box_w <= sides[w]);
				assert_true(g.box_h >= 1 && g.box_y + g.box_h <= sides[h]);
				assert_true(g.window_w >= 1 && g.window_x + g.window_w <= g.scaled_w);
				assert_true(g.window_h >= 1 && g.window_y + g.window_h <= g.scaled_h);
			}
		}
	}
}

static void symmetric_padding_repeats_the_edge_and_reflect_does_not(void **state)
{
	static const int64_t symmetric[] = {2, 2, 1, 0, 0, 1, 2, 2, 1, 0, 0};
	static const int64_t reflect[] = {0, 1, 2, 1, 0, 1, 2, 1, 0, 1, 2};

	(void)state;
	for (int i = 0; i < 11; i++) {
		assert_int_equal(ps_pad_source(PS_PAD_SYMMETRIC, i - 4, 3), symmetric[i]);
		assert_int_equal(ps_pad_source(PS_PAD_REFLECT, i - 4, 3), reflect[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(random_crop_equals_torchvision),
	        cmocka_unit_test(letterbox_centres_the_scaled_image),
	        cmocka_unit_test(area_ratio_and_position_are_distributed_uniformly),
	        cmocka_unit_test(flip_probability_0_never_flips_and_1_always_flips),
	        cmocka_unit_test(centre_crop_equals_torchvision),
	        cmocka_unit_test(box_and_window_are_always_inside_the_image),
	        cmocka_unit_test(symmetric_padding_repeats_the_edge_and_reflect_does_not),
	};
	return cmocka_run_group_tests_name("augment", tests, NULL, NULL);
}
