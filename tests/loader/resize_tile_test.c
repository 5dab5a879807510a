/* The GPU's resize (device/kernels/resize_tile.h), compiled for the CPU, gives the same bytes as the resize
 * of image/picture.h. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "device/kernels/resize_tile.h"
#include "image/picture.h"
#include "tests/loader/image_fixture.h"
#include "tests/ptx/mock.h"

struct picture {
	uint32_t width, height;
	uint8_t *rgb;
};

static void on_cpu(
        const struct picture *p, struct ps_resize *r, const struct ps_resize_geometry *g, uint8_t *to)
{
	struct ps_resize_sink sink = {.dst = to, .dtype = PS_U8, .layout = PS_NCHW};
	struct ps_region region;

	(void)g;
	ps_resize_source(r, &region);
	ps_resize_begin(r, &sink);
	for (uint32_t y = 0; y < region.height; y++)
		ps_resize_row(r, p->rgb + ((size_t)(region.y + y) * p->width + region.x) * 3);
}

static struct ps_tile_axis axis_of(const struct ps_resize_axis *a, int shift)
{
	return (struct ps_tile_axis){
	        .first = a->first, .weights = a->weights, .taps = a->taps, .shift = shift};
}

/* Runs the PTX kernel, which may access these ranges alone. Callers do so instead of running the C code if
 * MOCK_CUDA_PTX is in the environment. */
static void ptx_run(const char *name, const void *args, size_t args_nbytes, uint32_t nblocks,
        const struct ptx_range *ranges, size_t nranges)
{
	struct ptx_kernel *k = mock_ptx_kernel(name, args_nbytes);
	const struct ptx_launch launch = {.grid = {nblocks, 1, 1},
	        .block = {PS_KERNEL_THREADS, 1, 1},
	        .shared_most = 48 << 10,
	        .params = args,
	        .ranges = ranges,
	        .nranges = nranges};

	assert_non_null(k);
	assert_true(mock_ptx_launch(k, &launch));
	for (size_t i = 0; i < nranges; i++)
		free(*ranges[i].shadow);
}

static struct ptx_range range_of(const void *from, size_t nbytes, void **shadow)
{
	*shadow = NULL;
	return (struct ptx_range){from, nbytes, shadow};
}

/* Launches blocks for one image alone: the second image, put first in the list. */
static void tiles_by_ptx(
        struct ps_tile_args *a, struct ps_tile_image *images, size_t pixels_nbytes, size_t lead)
{
	const struct ps_tile_image *im = &images[1];
	void *shadows[7];
	const struct ptx_range ranges[] = {
	        range_of(im->from - lead, pixels_nbytes, &shadows[0]),
	        range_of(a->to, (size_t)a->width * a->height * 6, &shadows[1]),
	        range_of(im->h.first, a->width * sizeof(*im->h.first), &shadows[2]),
	        range_of(im->v.first, a->height * sizeof(*im->v.first), &shadows[3]),
	        range_of(im->h.weights, (size_t)a->width * im->h.taps * 2, &shadows[4]),
	        range_of(im->v.weights, (size_t)a->height * im->v.taps * 2, &shadows[5]),
	        range_of(images, 2 * sizeof(*images), &shadows[6]),
	};

	images[0] = images[1];
	ptx_run("ps_kernel_resize_tile", a, sizeof(*a), ps_tile_blocks(a->width, a->height), ranges,
	        PS_ARRAY_LEN(ranges));
}

/* Resizes by tiles, as the second of two images; the region is in memory of its own, at each alignment in
 * turn. */
static void in_tiles(
        const struct picture *p, struct ps_resize *r, const struct ps_resize_geometry *g, uint8_t *to)
{
	static uint8_t shared[PS_TILE_SHARED] __attribute__((aligned(16)));
	struct ps_tile_image images[2];
	struct ps_tile_args args = {
	        .images = images, .to = to, .nimages = 2, .width = g->window_w, .height = g->window_h};
	struct ps_resize_tables t;
	static size_t lead;
	struct ps_region region;
	size_t pitch;
	uint8_t *pixels;

	ps_resize_tables(r, &t);
	ps_resize_source(r, &region);
	lead = (lead + 1) % 4;
	pitch = (lead + (size_t)region.width * 3 + 3) / 4 * 4;
	pixels = malloc(pitch * region.height + PS_TILE_SLACK); /* exact: a sanitizer finds reads past it */
	assert_non_null(pixels);
	memset(pixels, 0xee, pitch * region.height + PS_TILE_SLACK);
	for (uint32_t y = 0; y < region.height; y++)
		memcpy(pixels + lead + y * pitch, p->rgb + ((size_t)(region.y + y) * p->width + region.x) * 3,
		        (size_t)region.width * 3);
	images[1] = (struct ps_tile_image){.from = pixels + lead,
	        .pitch = pitch,
	        .nrows = region.height,
	        .rows = ps_tile_rows(t.v->first, t.v->taps, t.v->n),
	        .place = 1,
	        .flip_v = t.flip_v,
	        .most = 255 << t.fraction,
	        .h = axis_of(t.h, t.h->bits - t.fraction),
	        .v = axis_of(t.v, t.v->bits + t.fraction)};
	images[0] = images[1];
	images[0].place = 0;
	if (mock_ptx_wanted())
		tiles_by_ptx(&args, images, pitch * region.height + PS_TILE_SLACK, lead);
	for (uint32_t block = ps_tile_blocks(args.width, args.height);
	        !mock_ptx_wanted() && block < 2 * ps_tile_blocks(args.width, args.height); block++)
		ps_tile_block(&args, block, shared);
	free(pixels);
}

static void compare(const struct picture *p, const struct ps_resize_geometry *g, enum ps_interpolation how)
{
	const size_t n = (size_t)g->window_w * g->window_h * 3;
	uint8_t *want = malloc(2 * n), *got = malloc(2 * n);
	struct ps_resize *r = ps_resize_new(PS_RESIZE_PORTABLE);
	struct ps_resize_tables t;

	assert_true(want && got && r);
	memset(want, 0xcd, 2 * n);
	memset(got, 0xcd, 2 * n);
	assert_int_equal(ps_resize_plan(r, g, how), 0);
	ps_resize_tables(r, &t);
	if (t.h->taps <= PS_TILE_TAPS_MAX && t.v->taps <= PS_TILE_TAPS_MAX) {
		on_cpu(p, r, g, want + n);
		in_tiles(p, r, g, got);
		assert_memory_equal(want, got, 2 * n); /* the first image's place is untouched */
	}
	ps_resize_free(r);
	free(want);
	free(got);
}

static struct ps_resize_geometry random_geometry(const struct picture *p, uint64_t *seed)
{
	struct ps_resize_geometry g = {.box_w = fixture_between(seed, 1, p->width),
	        .box_h = fixture_between(seed, 1, p->height),
	        .scaled_w = fixture_between(seed, 1, 120),
	        .scaled_h = fixture_between(seed, 1, 120),
	        .flip = fixture_between(seed, 0, 1),
	        .flip_v = fixture_between(seed, 0, 1)};

	g.box_x = fixture_between(seed, 0, p->width - g.box_w);
	g.box_y = fixture_between(seed, 0, p->height - g.box_h);
	g.window_w = fixture_between(seed, 1, g.scaled_w);
	g.window_h = fixture_between(seed, 1, g.scaled_h);
	g.window_x = fixture_between(seed, 0, g.scaled_w - g.window_w);
	g.window_y = fixture_between(seed, 0, g.scaled_h - g.window_h);
	return g;
}

static void tiles_give_the_bytes_of_the_resize(void **state)
{
	struct picture p = {.width = 333, .height = 517};
	uint64_t seed = 7;

	(void)state;
	p.rgb = fixture_picture(p.width, p.height, 4096, 3);
	for (int i = 0; i < 300; i++) {
		struct ps_resize_geometry g = random_geometry(&p, &seed);

		compare(&p, &g, i % 2 ? PS_BICUBIC : PS_BILINEAR);
	}
	free(p.rgb);
}

/* Sizes as in training. For the last two, shared memory limits the height of tiles. */
static void tiles_of_training_sizes_give_the_bytes_of_the_resize(void **state)
{
	static const struct picture sizes[] = {
	        {500, 375, NULL}, {224, 224, NULL}, {1200, 900, NULL}, {100, 3000, NULL}};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(sizes); i++) {
		struct picture p = sizes[i];
		struct ps_resize_geometry g = {.box_w = p.width,
		        .box_h = p.height,
		        .scaled_w = 224,
		        .scaled_h = 224,
		        .window_w = 224,
		        .window_h = 224,
		        .flip = i % 2 == 0};

		p.rgb = fixture_picture(p.width, p.height, 4096, i);
		compare(&p, &g, PS_BILINEAR);
		compare(&p, &g, PS_BICUBIC);
		free(p.rgb);
	}
}

static void pieces_of_memory_are_moved(void **state)
{
	static const uint32_t sizes[] = {
	        1, 15, 16, 48, PS_MOVE_BLOCK - 1, PS_MOVE_BLOCK, PS_MOVE_BLOCK + 16, 150528};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(sizes); i++) {
		const uint32_t n = sizes[i], stride = (n + 15) / 16 * 16;
		uint8_t *from = aligned_alloc(16, 3 * stride), *to = aligned_alloc(16, 3 * stride);
		struct ps_move moves[3];
		struct ps_move_args args = {.moves = moves, .n = 3, .nbytes = n};

		for (uint32_t k = 0; k < 3 * stride; k++)
			from[k] = (uint8_t)(k * 7 + k / 256);
		memset(to, 0xcd, 3 * stride);
		for (uint32_t k = 0; k < 3; k++)
			moves[k] = (struct ps_move){from + k * stride, to + (2 - k) * stride};
		if (mock_ptx_wanted()) {
			void *shadows[3];
			const struct ptx_range ranges[] = {range_of(from, 3 * stride, &shadows[0]),
			        range_of(to, 3 * stride, &shadows[1]),
			        range_of(moves, sizeof(moves), &shadows[2])};

			ptx_run("ps_kernel_move", &args, sizeof(args), 3 * ps_move_blocks(n), ranges, 3);
		}
		for (uint32_t block = 0; !mock_ptx_wanted() && block < 3 * ps_move_blocks(n); block++)
			ps_move_block(&args, block, NULL);
		for (uint32_t k = 0; k < 3; k++)
			assert_memory_equal(from + k * stride, to + (2 - k) * stride, n);
		free(from);
		free(to);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(tiles_give_the_bytes_of_the_resize),
	        cmocka_unit_test(tiles_of_training_sizes_give_the_bytes_of_the_resize),
	        cmocka_unit_test(pieces_of_memory_are_moved),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
