/* Images that the GPU decodes, from shards to tensors: whose pixels are in which row. */
#include "config.h"

#include <errno.h>

#include "batch/batch.h"
#include "nvjpeg_fixture.h"
#include "tests/loader/image_fixture.h"

/* What libpenstock(3) promises of a real GPU: levels of 255 between its pixels and the processor's, behind a
 * resize. */
#define LARGEST_DIFFERENCE 64
#define MEAN_DIFFERENCE 2.0

/* With the mocks ----------------------------------------------------------------------------------------- */

static void engine_and_processor_give_the_same(void **state)
{
	static const double shares[] = {0.3, 1};
	struct penstock_stats st;

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct setting s;

		setting_init(&s, "odd.tar", "cuda", shares[i]);
		as_on_the_processor(&s, &st);
		assert_true(st.gpu_engine_images > 10);
		assert_true(st.gpu_hybrid_images > 0); /* progressive files */
		assert_true(st.cpu_images > 0);        /* CMYK, and those that are shrunk far */
		assert_true(st.gpu_share > shares[i] - 1e-4 && st.gpu_share < shares[i] + 1e-4);
	}
}

static void threads_and_gpu_together_give_the_same(void **state)
{
	struct penstock_stats st;
	struct setting s;

	(void)state;
	gpu.set(1, 1, 0, 0); /* no engine, and an old library */
	setting_init(&s, "odd.tar", "cuda", 1);
	s.o.threads = 4;
	as_on_the_processor(&s, &st);
	assert_int_equal(st.gpu_engine_images, 0);
	assert_true(st.gpu_hybrid_images > 20);
}

/* One that is there and decodes nothing, as in a container that keeps it back. */
static void a_broken_engine_is_none(void **state)
{
	struct penstock_stats st;
	struct setting s;

	(void)state;
	gpu.set(2, 0, 0, 0);
	setting_init(&s, "odd.tar", "cuda", 1);
	as_on_the_processor(&s, &st);
	assert_int_equal(st.gpu_engine_images, 0);
	assert_true(st.gpu_hybrid_images > 20);
	assert_non_null(strstr(st.gpu_refused, "its engine for JPEG does not decode: execution failed"));
}

static void transforms_and_mixes_follow(void **state)
{
	struct setting s;

	(void)state;
	setting_init(&s, "photos.tar", "cuda", 0.7);
	s.f[0].dtype = PENSTOCK_F16;
	s.f[0].layout = PENSTOCK_NHWC;
	s.f[0].interpolation = PENSTOCK_BICUBIC;
	s.f[0].vflip = 0.5;
	s.f[0].affine = 0.5;
	s.f[0].degrees = 20;
	s.f[0].jitter = 0.5;
	s.f[0].brightness = s.f[0].contrast = 0.4;
	s.f[0].blur = 0.3;
	s.f[0].noise = 0.3;
	s.f[0].noise_sigma = 9;
	s.o.mixup_alpha = 0.4;
	s.o.cutmix_alpha = 1;
	as_on_the_processor(&s, NULL);
}

/* Crops that reach over the edges are padded here; those that lie inside are the GPU's. */
static void padded_crops_are_the_processors(void **state)
{
	struct penstock_stats st;
	struct setting s;

	(void)state;
	setting_init(&s, "photos.tar", "cuda", 1);
	s.f[0].crop = PENSTOCK_CROP_RANDOM_CROP;
	s.f[0].resize_shorter = s.f[0].image_height + 20;
	s.f[0].padding_x = s.f[0].padding_y = 8;
	s.f[0].padding_mode = PENSTOCK_PADDING_REFLECT;
	s.f[0].erase = 0.5;
	as_on_the_processor(&s, &st);
	assert_true(st.gpu_engine_images > 0 && st.cpu_images > 0);
}

static void masks_and_boxes_follow(void **state)
{
	struct penstock_stats st;
	struct setting s;

	(void)state;
	setting_init(&s, "labelled.tar", "cuda", 0.6);
	s.f[0].vflip = 0.5;
	penstock_field_init(&s.f[2], sizeof(s.f[2]), "seg.pgm", PENSTOCK_MASK);
	penstock_field_init(&s.f[3], sizeof(s.f[3]), "box.txt", PENSTOCK_BOXES);
	s.o.nfields = 4;
	as_on_the_processor(&s, &st);
	assert_true(st.gpu_engine_images > 10);
}

/* Images that the GPU has decoded when another field makes their samples bad. */
static void batches_without_a_good_row_are_blank(void **state)
{
	struct setting s;

	(void)state;
	setting_init(&s, "labelled.tar", "cuda", 1);
	penstock_field_init(&s.f[1], sizeof(s.f[1]), "none", PENSTOCK_INT64);
	s.o.on_error = PENSTOCK_SKIP;
	as_on_the_processor(&s, NULL);
}

/* A batch that fails as a whole is given image by image; an image that fails is the processor's. */
static void refused_images_are_the_processors(void **state)
{
	struct penstock_stats st;
	struct setting s;

	(void)state;
	gpu.set(0, 0, 3, 0);
	gpu.fail_batches(1000);
	setting_init(&s, "odd.tar", "cuda", 1);
	as_on_the_processor(&s, &st);
	assert_true(st.gpu_engine_images > 5 && st.cpu_images > 15);
}

/* A bad row has the picture of the next good one, whoever decoded the two. */
static void bad_rows_have_the_pictures_that_they_repeat(void **state)
{
	struct penstock_stats st;
	struct setting s;

	(void)state;
	setting_init(&s, "unlabelled.tar", "cuda", 0.5);
	s.o.epochs = 2;
	as_on_the_processor(&s, &st);
	assert_true(st.gpu_engine_images > 10 && st.cpu_images > 10 && st.bad > 10);
}

/* Files that the library takes for larger or smaller than they are. */
static void files_that_are_understood_differently_are_the_processors(void **state)
{
	static const int by[][2] = {{8, 0}, {0, 8}, {-1, 0}, {0, -1}};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(by); i++) {
		struct penstock_stats st;
		struct setting s;

		gpu.misread(by[i][0], by[i][1]);
		setting_init(&s, "labelled.tar", "cuda", 1);
		s.o.nfields = 1;
		as_on_the_processor(&s, &st);
		assert_int_equal(st.gpu_engine_images + st.gpu_hybrid_images, 0);
		assert_true(st.cpu_images > 10);
	}
}

/* Whatever is shrunk to so little that a pixel has more weights than the kernel's sheet has room for. */
static void pictures_that_are_shrunk_far_are_the_processors(void **state)
{
	static const struct fixture_jpeg kinds[] = {
	        {.width = 4000, .height = 60, .in = JCS_RGB, .stored = JCS_YCbCr},
	        {.width = 60, .height = 4000, .in = JCS_RGB, .stored = JCS_YCbCr},
	};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(kinds); i++) {
		struct penstock_stats st;
		struct setting s;

		jpegs_write("shrunk.tar", &kinds[i], BATCH);
		setting_init(&s, "shrunk.tar", "cuda", 1);
		s.f[0].crop = PENSTOCK_CROP_NONE;
		as_on_the_processor(&s, &st);
		assert_int_equal(st.gpu_engine_images + st.gpu_hybrid_images, 0);
		assert_int_equal(st.cpu_images, BATCH);
	}
}

/* More bytes than the memory for a batch's files has at first. */
static void large_files_have_room_of_their_own(void **state)
{
	static const struct fixture_jpeg kind = {.width = 500,
	        .height = 400,
	        .in = JCS_RGB,
	        .stored = JCS_YCbCr,
	        .h = 1,
	        .v = 1,
	        .quality = 100};
	struct penstock_stats st;
	struct setting s;

	(void)state;
	jpegs_write("heavy.tar", &kind, 2 * BATCH);
	setting_init(&s, "heavy.tar", "cuda", 1);
	s.o.epochs = 2;
	as_on_the_processor(&s, &st);
	assert_int_equal(st.gpu_engine_images, 4 * BATCH);
}

/* Of large pictures a batch is decoded in parts, and one beyond all measure by the processor. */
static void pictures_take_no_more_memory_than_they_may(void **state)
{
	enum { MEASURE = 256 << 20 };
	static const struct fixture_jpeg kinds[] = {
	        {.width = 5200, .height = 5200, .in = JCS_GRAYSCALE, .stored = JCS_GRAYSCALE},
	        {.width = 9700, .height = 9400, .in = JCS_GRAYSCALE, .stored = JCS_GRAYSCALE},
	};
	struct penstock_stats st;
	struct setting s;

	(void)state;
	for (int i = 0; i < 2; i++) {
		jpegs_write("large.tar", &kinds[i], i ? 1 : 4);
		setting_init(&s, "large.tar", "cuda", 1);
		s.f[0].crop = PENSTOCK_CROP_NONE;
		s.f[0].image_width = s.f[0].image_height = 640;
		s.o.batch = 4;
		s.o.depth = 2;
		(void)gpu.largest();
		as_on_the_processor(&s, &st);
		assert_true(gpu.largest() <= MEASURE + MEASURE / 2 + (1 << 20)); /* it grows by half more */
		assert_int_equal(st.gpu_engine_images, i ? 0 : 4);
		assert_int_equal(st.cpu_images, i ? 1 : 0);
	}
}

#define TURNS 8 /* batches that are given to the engine one after the other, before it has done one */

/* Pixels stay where they are until they were read, however many batches are given meanwhile. */
static void a_late_gpu_finds_each_batchs_pixels(void **state)
{
	struct record want = {0}, got = {0};
	struct penstock_batch *held[TURNS];
	struct penstock_loader *l;
	struct penstock_tensor t;
	struct setting s;

	(void)state;
	for (int on_gpu = 0; on_gpu < 2; on_gpu++) {
		struct record *r = on_gpu ? &got : &want;

		setting_init(&s, "photos.tar", on_gpu ? "cuda" : "cpu", on_gpu);
		s.o.batch = 4;
		s.o.depth = TURNS;
		s.o.epochs = 0;
		l = loader_open(&s);
		for (int i = 0; i < TURNS; i++) {
			assert_int_equal(penstock_loader_next(l, &held[i], NULL), 1);
			assert_int_equal(penstock_batch_sync(held[i], NULL), 0);
			assert_int_equal(penstock_batch_field(held[i], "jpg", &t, NULL), 0);
			record_add(r, &t);
		}
		if (on_gpu)
			gpu_hold(400);
		for (int i = 0; i < TURNS; i++)
			penstock_batch_release(held[i]);
		for (int i = 0; i < TURNS; i++)
			assert_true(batch_record(l, "jpg", r));
		penstock_loader_close(l);
	}
	same(&want, &got);
}

/* The sample's place decides, not the batch, the epoch, the world or the threads. */
static void a_samples_hash_decides(void **state)
{
	struct setting s;
	struct record dark, light, shards, samples;
	size_t n = (size_t)WIDTH * HEIGHT * 3, rows;
	uint32_t nlight = 0;

	(void)state;
	setting_init(&s, "photos.tar", "cuda", 0.5);
	s.f[0].dtype = PENSTOCK_U8;
	s.o.epochs = 2;
	dark = run(&s, "jpg", NULL);
	shards = run(&s, "__shard__", NULL);
	samples = run(&s, "__sample__", NULL);
	gpu.set(0, 0, 0, 5);
	light = run(&s, "jpg", NULL);
	assert_int_equal(dark.n, light.n);
	rows = dark.n / n;
	for (size_t i = 0; i < rows; i++) {
		int64_t shard, sample;
		bool is_light;

		memcpy(&shard, shards.p + i * sizeof(shard), sizeof(shard));
		memcpy(&sample, samples.p + i * sizeof(sample), sizeof(sample));
		is_light = memcmp(dark.p + i * n, light.p + i * n, n) != 0;
		assert_int_equal(
		        is_light, ps_offload_takes(PS_OFFLOAD_HALF, 5, (uint64_t)shard, (uint64_t)sample));
		nlight += is_light;
	}
	assert_in_range(nlight, rows / 4, 3 * rows / 4);
	free(dark.p);
	free(light.p);
	free(shards.p);
	free(samples.p);
}

/* With any GPU ------------------------------------------------------------------------------------------- */

static void what_cannot_be_is_refused(void **state)
{
	struct penstock_loader *l;
	struct penstock_error e;
	struct setting s;

	(void)state;
	setting_init(&s, "photos.tar", "cpu", 0.5);
	assert_int_equal(penstock_loader_open(&s.o, s.shards, 1, &l, &e), -ENODEV);
	setting_init(&s, "photos.tar", "cuda", 1.5);
	assert_int_equal(penstock_loader_open(&s.o, s.shards, 1, &l, &e), -EINVAL);
	assert_non_null(strstr(e.text, "gpu_decode"));
	setting_init(&s, "photos.tar", "cuda", 0.5);
	s.f[0].views = 2;
	assert_int_equal(penstock_loader_open(&s.o, s.shards, 1, &l, &e), -ENODEV);
	setting_init(&s, "photos.tar", "cpu", PENSTOCK_GPU_DECODE_AUTO);
	l = loader_open(&s);
	struct penstock_stats st;
	assert_int_equal(penstock_loader_stats(l, &st, sizeof(st), NULL), 0);
	assert_true(st.gpu_decode_why[0]);
	penstock_loader_close(l);
}

/* Photographs, in full and cropped, u8. */
static void pixels_are_near_the_processors(void **state)
{
	struct penstock_stats st;
	struct record want, got;
	struct setting s;
	uint64_t sum = 0;
	int largest = 0;

	(void)state;
	setting_init(&s, "photos.tar", "cpu", 0);
	s.f[0].dtype = PENSTOCK_U8;
	want = run(&s, "jpg", NULL);
	s.o.device = "cuda";
	s.o.gpu_decode = 1;
	got = run(&s, "jpg", &st);
	assert_int_equal(want.n, got.n);
	assert_true(st.gpu_engine_images + st.gpu_hybrid_images > 80);
	for (size_t i = 0; i < want.n; i++) {
		int d = abs(want.p[i] - got.p[i]);

		sum += (uint64_t)d;
		largest = PS_MAX(largest, d);
	}
	fprintf(stderr,
	        "# nvJPEG's pixels differ by %d levels at most, by %.3f on average (%ju images by the "
	        "engine)\n",
	        largest, (double)sum / (double)want.n, (uintmax_t)st.gpu_engine_images);
	assert_true(largest <= LARGEST_DIFFERENCE);
	assert_true((double)sum / (double)want.n <= MEAN_DIFFERENCE);
	free(want.p);
	free(got.p);
}

/* Two runs give the same bytes, whatever the threads. */
static void runs_repeat_themselves(void **state)
{
	struct setting s;
	struct record a, b;

	(void)state;
	setting_init(&s, "photos.tar", "cuda", 0.6);
	a = run(&s, NULL, NULL);
	s.o.threads = 5;
	b = run(&s, NULL, NULL);
	same(&a, &b);
}

int main(void)
{
	const struct CMUnitTest with_any[] = {
	        TEST(pixels_are_near_the_processors),
	        TEST(runs_repeat_themselves),
	        TEST(what_cannot_be_is_refused),
	};
	const struct CMUnitTest with_mocks[] = {
	        TEST(engine_and_processor_give_the_same),
	        TEST(threads_and_gpu_together_give_the_same),
	        TEST(a_broken_engine_is_none),
	        TEST(transforms_and_mixes_follow),
	        TEST(padded_crops_are_the_processors),
	        TEST(masks_and_boxes_follow),
	        TEST(batches_without_a_good_row_are_blank),
	        TEST(refused_images_are_the_processors),
	        TEST(bad_rows_have_the_pictures_that_they_repeat),
	        TEST(files_that_are_understood_differently_are_the_processors),
	        TEST(pictures_that_are_shrunk_far_are_the_processors),
	        TEST(large_files_have_room_of_their_own),
	        TEST(pictures_take_no_more_memory_than_they_may),
	        TEST(a_late_gpu_finds_each_batchs_pixels),
	        TEST(a_samples_hash_decides),
	};
	int failed = 0;

	gpu_open();
	failed += cmocka_run_group_tests(with_any, shards_make, shards_remove);
	if (gpu.set)
		failed += cmocka_run_group_tests(with_mocks, shards_make, shards_remove);
	return failed;
}
