/* Images that the GPU decodes, from shards to tensors: which rows have the GPU's pixels and which the
 * CPU's. */
#include "config.h"

#include <errno.h>

#include "batch/batch.h"
#include "nvjpeg_fixture.h"
#include "tests/loader/image_fixture.h"

/* Differences between the pixels of a real GPU and the CPU's that penstock_batch_use(3) allows: levels of 255,
 * after a resize. */
#define LARGEST_DIFFERENCE 64
#define MEAN_DIFFERENCE 2.0

/* With the mocks ----------------------------------------------------------------------------------------- */

static void engine_and_cpu_give_the_same_pixels(void **state)
{
	static const double shares[] = {0.3, 1};
	struct penstock_stats st;

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct setting s;

		setting_init(&s, "odd.tar", "cuda", shares[i]);
		same_as_on_the_cpu(&s, &st);
		assert_true(st.gpu_engine_images > 10);
		assert_true(st.gpu_hybrid_images > 0); /* progressive files */
		assert_true(st.cpu_images > 0);        /* CMYK, and images that are scaled down far */
		assert_true(st.gpu_share > shares[i] - 1e-4 && st.gpu_share < shares[i] + 1e-4);
	}
}

static void the_hybrid_decoder_gives_the_same_pixels(void **state)
{
	struct penstock_stats st;
	struct setting s;

	(void)state;
	gpu.set(1, 1, 0, 0); /* no engine, and an old library */
	setting_init(&s, "odd.tar", "cuda", 1);
	s.o.threads = 4;
	same_as_on_the_cpu(&s, &st);
	assert_int_equal(st.gpu_engine_images, 0);
	assert_true(st.gpu_hybrid_images > 20);
}

/* The engine is found but decodes nothing, as in a container without access to it. */
static void a_broken_engine_is_not_used(void **state)
{
	struct penstock_stats st;
	struct setting s;

	(void)state;
	gpu.set(2, 0, 0, 0);
	setting_init(&s, "odd.tar", "cuda", 1);
	same_as_on_the_cpu(&s, &st);
	assert_int_equal(st.gpu_engine_images, 0);
	assert_true(st.gpu_hybrid_images > 20);
	assert_non_null(strstr(st.gpu_refused, "its engine for JPEG does not decode: execution failed"));
}

static void transforms_and_mixes_are_the_same_with_gpu_decode(void **state)
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
	same_as_on_the_cpu(&s, NULL);
}

/* The CPU decodes images whose crop is padded; the GPU decodes those whose crop is inside the image. */
static void images_with_padded_crops_are_decoded_by_the_cpu(void **state)
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
	same_as_on_the_cpu(&s, &st);
	assert_true(st.gpu_engine_images > 0 && st.cpu_images > 0);
}

static void masks_and_boxes_are_the_same_with_gpu_decode(void **state)
{
	struct penstock_stats st;
	struct setting s;

	(void)state;
	setting_init(&s, "labelled.tar", "cuda", 0.6);
	s.f[0].vflip = 0.5;
	penstock_field_init(&s.f[2], sizeof(s.f[2]), "seg.pgm", PENSTOCK_MASK);
	penstock_field_init(&s.f[3], sizeof(s.f[3]), "box.txt", PENSTOCK_BOXES);
	s.o.nfields = 4;
	same_as_on_the_cpu(&s, &st);
	assert_true(st.gpu_engine_images > 10);
}

/* Another field makes samples bad whose images the GPU has decoded. */
static void batches_without_a_good_row_are_blank(void **state)
{
	struct penstock_stats st;
	struct setting s;

	(void)state;
	setting_init(&s, "unlabelled.tar", "cuda", 1);
	s.o.batch = 1;
	same_as_on_the_cpu(&s, &st);
	assert_true(st.blank_batches > 10 && st.blank_batches < st.batches);
}

/* A batch that fails as a whole is decoded image by image; the CPU decodes the images that fail. */
static void images_that_the_engine_refuses_are_decoded_by_the_cpu(void **state)
{
	struct penstock_stats st;
	struct setting s;

	(void)state;
	gpu.set(0, 0, 3, 0);
	gpu.fail_batches(1000);
	setting_init(&s, "odd.tar", "cuda", 1);
	same_as_on_the_cpu(&s, &st);
	assert_true(st.gpu_engine_images > 5 && st.cpu_images > 15);
}

/* A bad row repeats the image of the next good row, whether the GPU or the CPU decoded it. */
static void bad_rows_repeat_images_of_either_decoder(void **state)
{
	struct penstock_stats st;
	struct setting s;

	(void)state;
	setting_init(&s, "unlabelled.tar", "cuda", 0.5);
	s.o.epochs = 2;
	same_as_on_the_cpu(&s, &st);
	assert_true(st.gpu_engine_images > 10 && st.cpu_images > 10 && st.bad > 10);
}

/* nvJPEG reports another size of a file than the CPU's decoder. */
static void files_whose_size_nvjpeg_misreads_are_decoded_by_the_cpu(void **state)
{
	static const int by[][2] = {{8, 0}, {0, 8}, {-1, 0}, {0, -1}};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(by); i++) {
		struct penstock_stats st;
		struct setting s;

		gpu.misread(by[i][0], by[i][1]);
		setting_init(&s, "labelled.tar", "cuda", 1);
		s.o.nfields = 1;
		same_as_on_the_cpu(&s, &st);
		assert_int_equal(st.gpu_engine_images + st.gpu_hybrid_images, 0);
		assert_true(st.cpu_images > 10);
	}
}

/* Images are scaled down so far that an output pixel has more weights than the kernel has room for. */
static void images_scaled_down_far_are_decoded_by_the_cpu(void **state)
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
		same_as_on_the_cpu(&s, &st);
		assert_int_equal(st.gpu_engine_images + st.gpu_hybrid_images, 0);
		assert_int_equal(st.cpu_images, BATCH);
	}
}

/* The files of a batch are larger than the memory that is allocated for them at first. */
static void memory_grows_for_large_files(void **state)
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
	same_as_on_the_cpu(&s, &st);
	assert_int_equal(st.gpu_engine_images, 4 * BATCH);
}

/* A batch of large images is decoded in parts. The CPU decodes an image that by itself is over the limit. */
static void large_images_stay_within_the_memory_limit(void **state)
{
	enum { LIMIT = 256 << 20 };
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
		same_as_on_the_cpu(&s, &st);
		assert_true(gpu.largest() <= LIMIT + LIMIT / 2 + (1 << 20)); /* allocated: 1.5 x need */
		assert_int_equal(st.gpu_engine_images, i ? 0 : 4);
		assert_int_equal(st.cpu_images, i ? 1 : 0);
	}
}

#define TURNS 8 /* batches that the engine is given one after the other before the first is done */

/* Decoded pixels stay in place until they are read, however many batches the engine is given meanwhile. */
static void pixels_stay_in_place_for_a_late_gpu(void **state)
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

/* Whether the GPU decodes a sample depends on seed, shard and place in it, not on the batch or the epoch. */
static void the_samples_hash_decides_what_the_gpu_decodes(void **state)
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

static void impossible_gpu_decode_options_are_refused(void **state)
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

/* Random crops of photographs, as u8. */
static void gpu_pixels_are_near_the_cpus(void **state)
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

/* Two runs with different numbers of threads give the same bytes. */
static void runs_are_the_same_with_other_threads(void **state)
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
	        TEST(gpu_pixels_are_near_the_cpus),
	        TEST(runs_are_the_same_with_other_threads),
	        TEST(impossible_gpu_decode_options_are_refused),
	};
	const struct CMUnitTest with_mocks[] = {
	        TEST(engine_and_cpu_give_the_same_pixels),
	        TEST(the_hybrid_decoder_gives_the_same_pixels),
	        TEST(a_broken_engine_is_not_used),
	        TEST(transforms_and_mixes_are_the_same_with_gpu_decode),
	        TEST(images_with_padded_crops_are_decoded_by_the_cpu),
	        TEST(masks_and_boxes_are_the_same_with_gpu_decode),
	        TEST(batches_without_a_good_row_are_blank),
	        TEST(images_that_the_engine_refuses_are_decoded_by_the_cpu),
	        TEST(bad_rows_repeat_images_of_either_decoder),
	        TEST(files_whose_size_nvjpeg_misreads_are_decoded_by_the_cpu),
	        TEST(images_scaled_down_far_are_decoded_by_the_cpu),
	        TEST(memory_grows_for_large_files),
	        TEST(large_images_stay_within_the_memory_limit),
	        TEST(pixels_stay_in_place_for_a_late_gpu),
	        TEST(the_samples_hash_decides_what_the_gpu_decodes),
	};
	int failed = 0;

	gpu_open();
	failed += cmocka_run_group_tests(with_any, shards_make, shards_remove);
	if (gpu.set)
		failed += cmocka_run_group_tests(with_mocks, shards_make, shards_remove);
	return failed;
}
