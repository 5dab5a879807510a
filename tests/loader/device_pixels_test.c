/* Images that a device finishes equal the CPU's to the bit: for each element type, layout, size, mixing and
 * transform. The fake device has no kernels; tests/loader/mock_cuda.c and a GPU have them: see
 * device_test.c. */
#include "config.h"

#include "penstock.h"

#include <errno.h>
#include <math.h>

#include "make_tar.h"

#include "device_consumer.h"

#define SAMPLES 21
#define MAX_FIELDS 4

static char folder[64];
static const char *const pattern[] = {"p.tar"};

/* Adds a picture of gradients, edges and noise; the size depends on the number. */
static void picture_add(struct tar *t, int number)
{
	uint32_t w = 40 + (uint32_t)(number * 7 % 31), h = 30 + (uint32_t)(number * 5 % 23);
	uint32_t noise = (uint32_t)number * 2654435761U + 1;
	uint8_t *bytes = malloc(64 + (size_t)w * h * 3), *p = bytes;
	char name[32];

	assert_non_null(bytes);
	p += sprintf((char *)p, "P6 %u %u 255\n", w, h);
	for (uint32_t y = 0; y < h; y++)
		for (uint32_t x = 0; x < w; x++, p += 3) {
			noise = noise * 1664525 + 1013904223;
			p[0] = (uint8_t)(x * 255 / w);
			p[1] = (x / 5 + y / 7) % 3 == 0 ? 250 : (uint8_t)(y * 255 / h);
			p[2] = (uint8_t)(noise >> 24);
		}
	snprintf(name, sizeof(name), "%02d.ppm", number);
	tar_add(t, name, bytes, (size_t)(p - bytes));
	snprintf(name, sizeof(name), "%02d.cls", number);
	tar_add_text(t, name, number % 2 ? "1" : "0");
	free(bytes);
}

static int setup(void **state)
{
	struct tar t = {0};

	(void)state;
	folder_enter(folder);
	for (int i = 0; i < SAMPLES; i++) {
		if (i == 4 || i == 20)
			tar_add_text(&t, i == 4 ? "04.ppm" : "20.ppm", "P6 no picture at all");
		else
			picture_add(&t, i);
		if (i == 4 || i == 20)
			tar_add_text(&t, i == 4 ? "04.cls" : "20.cls", "7");
	}
	tar_end(&t);
	tar_save(&t, "p.tar");
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	folder_leave(folder);
	return 0;
}

/* One run's options, before the device is set. */
struct run {
	struct penstock_options o;
	struct penstock_field f[MAX_FIELDS];
};

static void run_init(struct run *r, uint32_t width, uint32_t height, uint32_t dtype, uint32_t layout)
{
	memset(r, 0, sizeof(*r));
	penstock_options_init(&r->o, sizeof(r->o));
	penstock_field_init(&r->f[0], sizeof(r->f[0]), "ppm", PENSTOCK_IMAGE);
	penstock_field_init(&r->f[1], sizeof(r->f[1]), "cls", PENSTOCK_INT64);
	r->f[0].image_width = width;
	r->f[0].image_height = height;
	r->f[0].dtype = dtype;
	r->f[0].layout = layout;
	r->o.nfields = 2;
	r->o.batch = 6;
	r->o.epochs = 2;
	r->o.lanes = 1;
	r->o.seed = 5;
	r->o.end = PENSTOCK_END_PAD;
	r->o.on_error = PENSTOCK_SKIP;
	r->o.memory_budget = 64 << 20;
	r->o.depth = 3;
	r->o.threads = 2;
}

static void all_transforms(struct penstock_field *f, double probability)
{
	f->affine = f->jitter = f->gray = f->blur = f->noise = probability;
	f->degrees = 30;
	f->translate_x = f->translate_y = 0.2;
	f->zoom_min = 0.7;
	f->zoom_max = 1.4;
	f->shear_x = 10;
	f->fill = 99;
	f->brightness = f->contrast = f->saturation = 0.6;
	f->hue = 0.4;
	f->blur_size = 9;
	f->noise_sigma = 12;
	f->noise_sigma_max = 40;
	f->vflip = 0.5;
	f->erase = probability;
	f->erase_fill = probability < 1 ? PENSTOCK_ERASE_RANDOM : PENSTOCK_ERASE_MEAN;
	f->jitter_order = PENSTOCK_JITTER_RANDOM;
}

/* Resets the parameters of operations that are off: such parameters would be refused. */
static void unused_drop(struct penstock_field *f)
{
	if (f->affine == 0)
		f->degrees = f->translate_x = f->translate_y = f->zoom_min = f->zoom_max = f->shear_x = 0;
	if (f->affine == 0 && f->crop != PENSTOCK_CROP_RANDOM_CROP)
		f->fill = 0;
	if (f->jitter == 0)
		f->jitter_order = PENSTOCK_JITTER_FIXED;
	if (f->blur == 0)
		f->blur_size = 0, f->blur_sigma_min = f->blur_sigma_max = 0;
	if (f->noise == 0)
		f->noise_sigma = f->noise_sigma_max = 0;
	if (f->erase == 0 || f->erase_fill != PENSTOCK_ERASE_LEVELS)
		f->erase_levels = 0;
	if (f->erase == 0)
		f->erase_fill = PENSTOCK_ERASE_MEAN;
}

/* Stores all bytes of the run's images and labels in `to`, the loader's statistic `pixels` in *ret_pixels,
 * and returns the number of bytes. */
static size_t run_bytes(struct run *r, const char *device, uint8_t *to, size_t cap, char *ret_pixels)
{
	bool there = strcmp(device, "cpu") != 0;
	struct penstock_loader *l;
	struct penstock_batch *b;
	struct penstock_error e;
	struct penstock_stats st;
	void *stream = NULL;
	size_t n = 0;
	int rc;

	r->o.fields = r->f;
	r->o.device = device;
	if (penstock_loader_open(&r->o, pattern, 1, &l, &e) < 0)
		fail_msg("%s", e.text);
	if (there)
		stream = on.stream_new();
	for (uint64_t epoch = 0; epoch < r->o.epochs; epoch++) {
		while ((rc = penstock_loader_next(l, &b, &e)) == 1) {
			if (there)
				assert_int_equal(penstock_batch_use(b, stream, &e), 0);
			for (uint32_t i = 0; i < r->o.nfields; i++) {
				struct penstock_tensor t;

				assert_int_equal(penstock_batch_field(b, r->f[i].name, &t, &e), 0);
				assert_true(n + t.nbytes <= cap);
				if (there)
					on.copy_out(stream, to + n, t.data, t.nbytes);
				else
					memcpy(to + n, t.host, t.nbytes);
				n += t.nbytes;
			}
			penstock_batch_release(b);
		}
		if (rc < 0)
			fail_msg("%s", e.text);
	}
	if (there)
		on.sync(stream);
	assert_int_equal(penstock_loader_stats(l, &st, sizeof(st), &e), 0);
	snprintf(ret_pixels, sizeof(st.pixels), "%s", st.pixels);
	penstock_loader_close(l);
	if (there)
		on.stream_free(stream);
	return n;
}

#define CAP (16U << 20)

/* What finishes images if device_pixels allows the device to. */
static const char *usual(void)
{
#ifndef HAVE_CUDA_KERNELS
	if (!getenv("PENSTOCK_CUDA_KERNELS"))
		return "cpu";
#endif
	return strcmp(on.device, "fake") == 0 ? "cpu" : on.device;
}

/* Asserts that the device gives the same bytes as the CPU. `who`: how the statistic `pixels` must begin;
 * NULL: as usual() returns. */
static void same(struct run *r, const char *who)
{
	uint8_t *want = malloc(CAP), *got = malloc(CAP);
	char pixels[sizeof(((struct penstock_stats *)0)->pixels)];
	size_t n;

	assert_true(want && got);
	n = run_bytes(r, "cpu", want, CAP, pixels);
	assert_string_equal(pixels, "cpu");
	assert_true(n > 0);
	assert_int_equal(run_bytes(r, on.device, got, CAP, pixels), n);
	if (!who)
		who = usual();
	if (strncmp(pixels, who, strlen(who)) != 0)
		fail_msg("pixels: %s, not %s", pixels, who);
	for (size_t i = 0; i < n; i++)
		if (want[i] != got[i])
			fail_msg("byte %zu of %zu: %u, should be %u", i, n, got[i], want[i]);
	free(want);
	free(got);
}

static const struct {
	uint32_t width, height;
} sizes[] = {{32, 32}, {16, 4}, {17, 13}, {70, 21}, {12, 9}, {1, 1}, {96, 96}};
#define NSIZES (sizeof(sizes) / sizeof(sizes[0]))

/* The last and largest size takes a PTX interpreter longer than all others together: with an interpreter,
 * only scripts/check --all tests that size. */
static size_t nsizes(void)
{
	return getenv("MOCK_CUDA_PTX") && !getenv("PENSTOCK_TEST_LONG") ? NSIZES - 1 : NSIZES;
}

#define NDTYPES 4 /* u8, f32, f16, bf16 */

static void device_equals_cpu_for_each_type_and_layout(void **state)
{
	(void)state;
	for (size_t s = 0; s < nsizes(); s++)
		for (uint32_t dtype = 0; dtype < NDTYPES; dtype++)
			for (uint32_t layout = 0; layout < 2; layout++) {
				struct run r;

				run_init(&r, sizes[s].width, sizes[s].height, dtype, layout);
				same(&r, NULL);
			}
}

static void device_equals_cpu_with_mixup_and_cutmix(void **state)
{
	(void)state;
	for (size_t s = 0; s < nsizes(); s++)
		for (uint32_t dtype = 0; dtype < NDTYPES; dtype++)
			for (int kind = 0; kind < 3; kind++) {
				struct run r;

				run_init(&r, sizes[s].width, sizes[s].height, dtype, (uint32_t)s % 2);
				r.o.mixup_alpha = kind != 1 ? 0.8 : 0;
				r.o.cutmix_alpha = kind != 0 ? 1 : 0;
				r.o.batch = kind == 2 ? 3 : 6;
				r.f[0].views = kind == 2 ? 3 : 0;
				same(&r, NULL);
			}
}

static void device_equals_cpu_with_all_transforms(void **state)
{
	(void)state;
	for (size_t s = 0; s < nsizes(); s++)
		for (uint32_t dtype = 0; dtype < NDTYPES; dtype++) {
			struct run r;

			run_init(&r, sizes[s].width, sizes[s].height, dtype, (uint32_t)(dtype + s) % 2);
			all_transforms(&r.f[0], dtype % 2 ? 1 : 0.5);
			if (sizes[s].height < 9)
				r.f[0].blur_size = 1;
			if (sizes[s].height > 13)
				r.f[0].blur_size_max = 21;
			if (s % 3 == 0) {
				r.f[0].crop = PENSTOCK_CROP_RANDOM_CROP;
				r.f[0].padding_x = sizes[s].width / 3;
				r.f[0].padding_mode = dtype;
				r.f[0].groups = "apply:0.7=jitter,hflip;one:0.8=blur,noise,erase";
			}
			r.f[0].views = s % 2 ? 2 : 0;
			if (dtype == PENSTOCK_F16)
				r.o.mixup_alpha = 0.4;
			same(&r, NULL);
		}
}

static void device_equals_cpu_with_each_transform_alone(void **state)
{
	(void)state;
	for (int only = 0; only < 11; only++) {
		struct run r;
		struct penstock_field *f = &r.f[0];

		run_init(&r, 36, 29, PENSTOCK_F32, PENSTOCK_NCHW);
		all_transforms(f, 0);
		f->affine = only == 0;
		f->jitter = only >= 1 && only <= 4;
		f->brightness = only == 1 ? 0.8 : 0;
		f->contrast = only == 2 ? 0.8 : 0;
		f->saturation = only == 3 ? 0.8 : 0;
		f->hue = only == 4 ? 0.5 : 0;
		f->gray = only == 5;
		f->blur = only == 6;
		f->noise = only == 7;
		f->erase = only == 8 || only == 9;
		f->erase_fill = only == 8 ? PENSTOCK_ERASE_RANDOM : PENSTOCK_ERASE_LEVELS;
		f->erase_levels = 0x0180ff;
		if (only == 10) /* a crop that reaches over the edges */
			f->crop = PENSTOCK_CROP_RANDOM_CROP;
		f->blur_size = 57; /* almost twice the height: the whole height is mirrored at the edges */
		f->blur_sigma_min = f->blur_sigma_max = 30;
		unused_drop(f);
		same(&r, NULL);
	}
}

/* Several images of one member with different sizes and types; one field follows another. */
static void device_equals_cpu_with_several_fields(void **state)
{
	struct run r;

	(void)state;
	run_init(&r, 32, 32, PENSTOCK_F32, PENSTOCK_NCHW);
	all_transforms(&r.f[0], 0.6);
	penstock_field_init(&r.f[2], sizeof(r.f[2]), "small", PENSTOCK_IMAGE);
	r.f[2].member = "ppm";
	r.f[2].image_width = 11;
	r.f[2].image_height = 8;
	r.f[2].dtype = PENSTOCK_U8;
	penstock_field_init(&r.f[3], sizeof(r.f[3]), "along", PENSTOCK_IMAGE);
	r.f[3].member = "ppm";
	r.f[3].follow = "ppm";
	r.f[3].dtype = PENSTOCK_BF16;
	r.f[3].layout = PENSTOCK_NHWC;
	r.o.nfields = 4;
	r.o.cutmix_alpha = 1;
	same(&r, NULL);
}

/* The batch has a second image field, of each type and number of channels. The device finishes the first
 * field; the CPU finishes the second field if it is RGBA, gray or u16. */
static void device_equals_cpu_with_a_second_field_of_other_channels(void **state)
{
	struct run r;

	(void)state;
	for (uint32_t dtype = 0; dtype < NDTYPES + 1; dtype++)
		for (uint32_t channels = 0; channels < 3; channels++) {
			run_init(&r, 32, 31, PENSTOCK_F32, PENSTOCK_NHWC);
			penstock_field_init(&r.f[2], sizeof(r.f[2]), "other", PENSTOCK_IMAGE);
			r.f[2].member = "ppm";
			r.f[2].image_width = 13;
			r.f[2].image_height = 9;
			r.f[2].channels = channels;
			r.f[2].dtype = dtype < NDTYPES ? dtype : PENSTOCK_U16;
			r.f[2].layout = channels % 2;
			r.o.nfields = 3;
			r.o.cutmix_alpha = r.o.mixup_alpha = 1;
			same(&r, NULL);
		}
}

/* Pixels that a device finishes have no copy in host memory. All other data has one. */
static void only_pixels_of_the_device_have_no_host_memory(void **state)
{
	(void)state;
	for (uint32_t off = 0; off < 2; off++) {
		struct penstock_loader *l;
		struct penstock_batch *b;
		struct penstock_tensor t;
		struct penstock_error e;
		struct run r;

		run_init(&r, 32, 32, PENSTOCK_F32, PENSTOCK_NCHW);
		r.o.fields = r.f;
		r.o.device = on.device;
		r.o.device_pixels = off ? PENSTOCK_PIXELS_OFF : PENSTOCK_PIXELS_AUTO;
		assert_int_equal(penstock_loader_open(&r.o, pattern, 1, &l, &e), 0);
		assert_int_equal(penstock_loader_next(l, &b, &e), 1);
		assert_int_equal(penstock_batch_field(b, "ppm", &t, &e), 0);
		assert_int_equal(t.nbytes, 6 * 3 * 32 * 32 * 4);
		if (off || strcmp(usual(), "cpu") == 0)
			assert_non_null(t.host);
		else
			assert_null(t.host);
		assert_int_equal(penstock_batch_field(b, "cls", &t, &e), 0);
		assert_non_null(t.host);
		penstock_batch_release(b);
		/* Samples by number are in host memory. */
		assert_int_equal(penstock_loader_get(l, (const uint64_t[]){1, 2}, 2, &b, &e), -ENODATA);
		penstock_loader_close(l);
	}
}

static int passes(void *ctx, struct penstock_sample *s)
{
	(void)ctx;
	(void)s;
	return 0;
}

static void the_cpu_finishes_pixels_if_the_device_cannot(void **state)
{
	struct run r;

	(void)state;
	run_init(&r, 32, 32, PENSTOCK_F16, PENSTOCK_NCHW);
	all_transforms(&r.f[0], 0.5);
	r.o.device_pixels = PENSTOCK_PIXELS_OFF;
	same(&r, "cpu");
	r.o.device_pixels = PENSTOCK_PIXELS_AUTO;
	r.o.transform = passes;
	same(&r, "cpu");
	r.o.transform = NULL;
	if (!on.refuse_kernels || strcmp(usual(), "cpu") == 0)
		return;
	on.refuse_kernels(1);
	same(&r, "cpu: the driver cannot run");
	on.refuse_kernels(0);
	same(&r, NULL);
}

/* A batch of a rank without samples in a step is zeros, which are not normalised; so is a batch of bad
 * samples alone. */
static void batches_without_good_rows_are_zeros(void **state)
{
	struct run r;

	(void)state;
	for (uint32_t dtype = PENSTOCK_U8; dtype <= PENSTOCK_BF16; dtype++) {
		run_init(&r, 32, 32, dtype, PENSTOCK_NCHW);
		r.o.batch = 1 + dtype % 2; /* 2: one row is padding */
		r.o.mixup_alpha = r.o.cutmix_alpha = dtype == PENSTOCK_F16;
		all_transforms(&r.f[0], 0.5);
		same(&r, NULL);
	}
	run_init(&r, 32, 32, PENSTOCK_F32, PENSTOCK_NHWC);
	r.o.batch = 20;
	r.o.world = 2;
	r.o.rank = 1;
	r.o.steps = 3;
	same(&r, NULL);
}

static void the_driver_reports_no_leaks(void **state)
{
	(void)state;
	if (on.leaks)
		assert_int_equal(on.leaks(), 0);
}

static void a_lost_device_is_an_error(void **state)
{
	struct penstock_loader *l;
	struct penstock_batch *b;
	struct penstock_error e;
	struct run r;
	int rc = 1;

	(void)state;
	run_init(&r, 32, 32, PENSTOCK_F32, PENSTOCK_NCHW);
	all_transforms(&r.f[0], 1);
	r.o.fields = r.f;
	r.o.epochs = 0;
	r.o.device = on.device;
	assert_int_equal(penstock_loader_open(&r.o, pattern, 1, &l, &e), 0);
	for (int i = 0; i < 40 && rc >= 0; i++) {
		rc = penstock_loader_next(l, &b, &e);
		if (rc == 1)
			penstock_batch_release(b);
		if (i == 2)
			on.lose();
	}
	assert_int_equal(rc, -EIO);
	assert_true(e.text[0]);
	penstock_loader_close(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(device_equals_cpu_for_each_type_and_layout),
	        cmocka_unit_test(device_equals_cpu_with_mixup_and_cutmix),
	        cmocka_unit_test(device_equals_cpu_with_all_transforms),
	        cmocka_unit_test(device_equals_cpu_with_each_transform_alone),
	        cmocka_unit_test(device_equals_cpu_with_several_fields),
	        cmocka_unit_test(device_equals_cpu_with_a_second_field_of_other_channels),
	        cmocka_unit_test(only_pixels_of_the_device_have_no_host_memory),
	        cmocka_unit_test(the_cpu_finishes_pixels_if_the_device_cannot),
	        cmocka_unit_test(batches_without_good_rows_are_zeros),
	        /* The last two are for the fake device and the mock alone. */
	        cmocka_unit_test(the_driver_reports_no_leaks),
	        cmocka_unit_test(a_lost_device_is_an_error), /* last: a driver's device stays lost */
	};

	consumer_choose();
	return _cmocka_run_group_tests(
	        "loader-device-pixels", tests, PS_ARRAY_LEN(tests) - (on.lose ? 0 : 2), setup, teardown);
}
