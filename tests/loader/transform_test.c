/* Checksums of the pixels of the transforms in image/image.h. The sums are the same on any CPU and with any
 * compiler. They change if the random choices or the arithmetic of a transform change. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "image/image.h"
#include "image/picture.h"

#define WIDTH 61u
#define HEIGHT 47u
#define NBYTES (3u * WIDTH * HEIGHT)
#define SAMPLES 8u

static const struct {
	const char *name;
	struct ps_transform_spec spec;
	uint64_t sum; /* FNV-1a over the planes of all samples */
} cases[] = {
        {"nothing", {0}, 0xf4d0d32b38327705},
        {"rotation", {.affine = 1, .degrees = 30, .fill = 9}, 0x1a215aaaced8378d},
        {"affine",
                {.affine = 0.8,
                        .degrees = 180,
                        .translate_x = 0.2,
                        .translate_y = 0.1,
                        .zoom_min = 0.5,
                        .zoom_max = 2,
                        .shear_x = 10,
                        .shear_y = 5},
                0xd3d4caa2f6ddc991},
        {"brightness", {.jitter = 1, .brightness = 0.4}, 0x11970faff98ec5b3},
        {"contrast", {.jitter = 1, .contrast = 0.4}, 0x03809add639df7e2},
        {"saturation", {.jitter = 1, .saturation = 0.4}, 0x63d172f2bff5820b},
        {"hue", {.jitter = 1, .hue = 0.5}, 0xb05af95f810f31de},
        {"jitter", {.jitter = 0.8, .brightness = 0.4, .contrast = 0.4, .saturation = 0.2, .hue = 0.1},
                0x114ed4c5606c6816},
        {"gray", {.gray = 0.5}, 0x65608c2712c1a3f7},
        {"blur", {.blur = 1}, 0xe760881be828c161},
        {"wide blur", {.blur = 0.5, .blur_size = 23, .blur_sigma_min = 1, .blur_sigma_max = 9},
                0x24c05802ad534465},
        {"noise", {.noise = 1, .noise_sigma = 12.5}, 0x8297c5945f708819},
        {"jitter in a random order",
                {.jitter = 1,
                        .brightness = 0.4,
                        .contrast = 0.4,
                        .saturation = 0.4,
                        .hue = 0.1,
                        .jitter_random = true},
                0xbf74462a319f63bc},
        {"blurs", {.blur = 1, .blur_size = 3, .blur_size_max = 9}, 0x9a1d0a524a82a0bb},
        {"noises", {.noise = 1, .noise_sigma = 2, .noise_sigma_max = 30}, 0xe5f952497f6f1aae},
        {"erase", {.erase = 0.8, .erase_level = {10, 20, 30}}, 0x098ad5bc811cf529},
        {"erase by noise",
                {.erase = 1,
                        .erase_random = true,
                        .erase_level = {124, 116, 104},
                        .erase_sigma = {58, 57, 57}},
                0x42b02516bb5ed263},
        {"all of them or none",
                {.jitter = 1,
                        .hue = 0.2,
                        .gray = 0.5,
                        .groups = {1, {{false, 0.5, 1 << PS_CHOICE_JITTER | 1 << PS_CHOICE_GRAY}}}},
                0x38d90d297d657e24},
        {"one of",
                {.blur = 0.2,
                        .noise = 0.8,
                        .noise_sigma = 20,
                        .groups = {1, {{true, 0.9, 1 << PS_CHOICE_BLUR | 1 << PS_CHOICE_NOISE}}}},
                0x6d8c86418515641d},
        {"all",
                {.affine = 0.7,
                        .degrees = 15,
                        .zoom_min = 0.9,
                        .zoom_max = 1.1,
                        .jitter = 0.8,
                        .brightness = 0.4,
                        .contrast = 0.4,
                        .saturation = 0.4,
                        .hue = 0.1,
                        .gray = 0.2,
                        .blur = 0.5,
                        .noise = 0.5,
                        .noise_sigma = 4},
                0xc387d04599b9ee9e},
};

/* Slopes, edges and all levels, different in each channel. */
static void picture_make(uint8_t *p)
{
	for (uint32_t i = 0; i < NBYTES; i++) {
		uint32_t c = i / (WIDTH * HEIGHT), y = i / WIDTH % HEIGHT, x = i % WIDTH;
		p[i] = (uint8_t)((x * (3 + c) + y * (5 - c) + (x / 9 + y / 7) % 2 * 90) * 255 / 400);
	}
}

static uint64_t sum_of(const struct ps_transform_spec *spec)
{
	const struct ps_image_spec image = {.out_width = WIDTH, .out_height = HEIGHT, .transforms = *spec};
	uint64_t h = UINT64_C(0xcbf29ce484222325);
	for (uint64_t n = 0; n < SAMPLES; n++) {
		/* two bytes more than the planes have, as in image.c */
		static uint8_t a[NBYTES + 2], b[NBYTES + 2];
		const struct ps_rng_key key = {.seed = 42, .epoch = 1, .shard = 3, .sample = n};
		struct ps_planes planes = {a, WIDTH, HEIGHT};
		struct ps_transform t;
		uint8_t *spare = b;
		memset(b, (int)n, sizeof(b));
		picture_make(a);
		ps_transform_draw(&image, &key, &t);
		ps_transform_apply(&t, spec, &planes, &spare);
		for (uint32_t i = 0; i < NBYTES; i++)
			h = (h ^ planes.p[i]) * UINT64_C(0x100000001b3);
	}
	return h;
}

static void transformed_pixels_never_change_between_versions(void **state)
{
	(void)state;
	uint32_t wrong = 0;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct ps_error err;
		assert_int_equal(ps_transform_check(&cases[i].spec, WIDTH, HEIGHT, &err), 0);
		uint64_t sum = sum_of(&cases[i].spec);
		if (sum == cases[i].sum)
			continue;
		fprintf(stderr, "%s: 0x%016jx, not 0x%016jx\n", cases[i].name, (uintmax_t)sum,
		        (uintmax_t)cases[i].sum);
		wrong++;
	}
	assert_int_equal(wrong, 0);
}

/* Moves by whole and by half pixels (by half pixels, some positions are exactly on the image's edge): pixels
 * from outside are `fill`, and no byte outside of the image is read. */
static void pixels_from_outside_of_the_image_are_fill(void **state)
{
	enum { W = 7, H = 5, N = W * H, FILL = 250, BEYOND = 240 };
	static const double moves[] = {-8, -7, -2, -1, -0.5, 0, 0.5, 1, 2, 6.5, 7, 8};
	static uint16_t labels[3 * N], mapped[N];
	static uint8_t pixels[9 * N], to[3 * N];

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(labels); i++)
		labels[i] = i >= N && i < 2 * N ? (uint16_t)(i - N) : BEYOND;
	for (size_t i = 0; i < PS_ARRAY_LEN(pixels); i++)
		pixels[i] = i >= 3 * N && i < 6 * N ? (uint8_t)(i - 3 * N) : BEYOND;
	for (size_t m = 0; m < PS_ARRAY_LEN(moves) * PS_ARRAY_LEN(moves); m++) {
		double dx = moves[m % PS_ARRAY_LEN(moves)], dy = moves[m / PS_ARRAY_LEN(moves)];
		const struct ps_affine map = {{1, 0, dx, 0, 1, dy}};
		const struct ps_planes planes = {pixels + 3 * N, W, H};
		bool whole = dx == floor(dx) && dy == floor(dy);

		ps_affine_labels(&map, labels + N, W, H, FILL, mapped);
		ps_affine_apply(&map, &planes, FILL, to);
		for (int i = 0; i < N; i++) {
			int x = (int)floor(i % W + 0.5 + dx), y = (int)floor((int)(i / W) + 0.5 + dy);
			bool inside = x >= 0 && x < W && y >= 0 && y < H;

			assert_int_equal(mapped[i], inside ? y * W + x : FILL);
			for (int c = 0; c < 3; c++) {
				if (!inside)
					assert_int_equal(to[c * N + i], FILL);
				else if (whole)
					assert_int_equal(to[c * N + i], c * N + y * W + x);
				else
					assert_true(to[c * N + i] < 3 * N);
			}
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(transformed_pixels_never_change_between_versions),
	        cmocka_unit_test(pixels_from_outside_of_the_image_are_fill),
	};
	return cmocka_run_group_tests_name("transform", tests, NULL, NULL);
}
