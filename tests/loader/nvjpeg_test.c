/* Images that the GPU decodes, from shards to tensors: with the mocks of driver and nvJPEG (device_cuda.sh
 * runs it) they are those that the processor makes, to the byte; with a real GPU (make check-gpu) they are
 * near them. */
#include "config.h"

#include "penstock.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>

#include "batch/offload.h"
#include "device/cuda_driver.h"
#include "device/nvjpeg_library.h"
#include "make_tar.h"
#include "tests/loader/image_fixture.h"

#define BATCH 12
#define WIDTH 44u
#define HEIGHT 36u

/* What libpenstock(3) promises of a real GPU: levels of 255 between its pixels and the processor's, behind a
 * resize. */
#define LARGEST_DIFFERENCE 64
#define MEAN_DIFFERENCE 2.0

static char folder[64];

/* -- The device's side --------------------------------------------------------------------------------- */

static struct {
	const struct ps_cuda_driver *cu;
	ps_cu_context context;
	ps_cu_result (*copy_from)(void *to, ps_cu_pointer from, size_t n, ps_cu_stream stream);
	void (*lose)(void); /* NULL, as what follows: a real GPU */
	long (*leaks)(void);
	void (*set)(int no_hardware, int no_flags, int refuse, int lighter);
	void (*fail_batches)(int n);
	long (*nvjpeg_leaks)(void);
	long (*count)(int hybrid);
} gpu;

static void symbol(void *library, const char *name, void *place)
{
	*(void **)place = library ? dlsym(library, name) : NULL;
}

/* Or ends with 77. */
static void gpu_open(void)
{
	const struct ps_nvjpeg_library *nvjpeg;
	struct ps_load_error err;
	void *driver, *library;

	if (ps_cuda_driver_get(&gpu.cu, &err) < 0 || gpu.cu->context_retain(&gpu.context, 0) != 0 ||
	        ps_nvjpeg_library_get(&nvjpeg, &err) < 0) {
		fprintf(stderr, "%s\n", err.text);
		exit(77);
	}
	driver = dlopen("libcuda.so.1", RTLD_NOW);
	library = dlopen(nvjpeg->path, RTLD_NOW);
	symbol(driver, "cuMemcpyDtoHAsync_v2", &gpu.copy_from);
	symbol(driver, "mock_cuda_lose", &gpu.lose);
	symbol(driver, "mock_cuda_leaks", &gpu.leaks);
	symbol(library, "mock_nvjpeg_set", &gpu.set);
	symbol(library, "mock_nvjpeg_fail_batches", &gpu.fail_batches);
	symbol(library, "mock_nvjpeg_leaks", &gpu.nvjpeg_leaks);
	symbol(library, "mock_nvjpeg_count", &gpu.count);
}

static void from_device(void *to, const void *from, size_t n)
{
	ps_cu_context old;

	assert_int_equal(gpu.cu->context_push(gpu.context), 0);
	assert_int_equal(gpu.copy_from(to, (ps_cu_pointer)(uintptr_t)from, n, NULL), 0);
	assert_int_equal(gpu.cu->stream_sync(NULL), 0);
	assert_int_equal(gpu.cu->context_pop(&old), 0);
}

/* As the mocks are by themselves, and so that nothing of a test before stays. */
static int fresh(void **state)
{
	(void)state;
	if (gpu.set)
		gpu.set(0, 0, 0, 0);
	if (gpu.fail_batches)
		gpu.fail_batches(0);
	return 0;
}

static int nothing_left(void **state)
{
	(void)state;
	if (gpu.leaks) {
		assert_int_equal(gpu.leaks(), 0);
		assert_int_equal(gpu.nvjpeg_leaks(), 0);
	}
	return 0;
}

/* -- Shards -------------------------------------------------------------------------------------------- */

static struct tar tar;
static int nadded;

static void add(const char *suffix, const void *data, size_t n)
{
	char name[64];

	snprintf(name, sizeof(name), "%04d.%s", nadded, suffix);
	tar_add(&tar, name, data, n);
}

static void add_sample(const void *data, size_t n)
{
	char text[16];

	add("jpg", data, n);
	snprintf(text, sizeof(text), "%d", nadded);
	add("cls", text, strlen(text));
	nadded++;
}

static void add_made(struct fixture_jpeg f, uint64_t seed)
{
	uint8_t *rgb = fixture_picture(f.width, f.height, (size_t)f.width * f.height, seed), *file;
	size_t n;

	file = fixture_encode(&f, rgb, &n);
	add_sample(file, n);
	free(file);
	free(rgb);
}

/* Beside each a sound one: batches need some. */
static void add_file(const char *name, const uint8_t *data, size_t n)
{
	(void)name;
	add_sample(data, n);
	add_made((struct fixture_jpeg){.width = 50, .height = 40, .in = JCS_RGB, .stored = JCS_YCbCr}, n);
}

/* Files of all kinds that may come, with copies of photographs that were cut and changed. */
static void odd_shard(void)
{
	static const struct fixture_jpeg kinds[] = {
	        {.width = 200, .height = 150, .h = 2, .v = 2},
	        {.width = 201, .height = 149, .h = 2, .v = 1},
	        {.width = 99, .height = 333, .h = 1, .v = 1},
	        {.width = 1, .height = 1},
	        {.width = 16, .height = 700},
	        {.width = 1400, .height = 3},
	        {.width = 120, .height = 90, .progressive = true},
	        {.width = 120, .height = 90, .restart = 3},
	        {.width = 2900, .height = 2200, .quality = 30},
	};
	struct photo photos[MAX_PHOTOS];
	int n = photos_load(photos);

	for (size_t i = 0; i < PS_ARRAY_LEN(kinds); i++) {
		struct fixture_jpeg f = kinds[i];

		f.in = JCS_RGB;
		f.stored = JCS_YCbCr;
		add_made(f, i);
	}
	add_made(
	        (struct fixture_jpeg){
	                .width = 80, .height = 70, .in = JCS_GRAYSCALE, .stored = JCS_GRAYSCALE},
	        9);
	add_made((struct fixture_jpeg){.width = 80, .height = 70, .in = JCS_CMYK, .stored = JCS_CMYK}, 9);
	add_made((struct fixture_jpeg){.width = 80, .height = 70, .in = JCS_RGB, .stored = JCS_RGB}, 9);
	(void)fixture_each_jpeg("odd/jpeg-decoder", add_file);
	for (int i = 0; i < n; i++) {
		add_sample(photos[i].data, photos[i].len);
		if (i % 4 == 0)
			add_sample(photos[i].data, photos[i].len / 2);
		if (i % 4 == 1) {
			memset(photos[i].data + photos[i].len / 2, 0xff, 40);
			add_sample(photos[i].data, photos[i].len);
		}
		free(photos[i].data);
	}
	add_file("", (const uint8_t *)"no image", 8);
	add_file("", (const uint8_t *)"P6\n2 2\n255\nabcdefghijkl", 23);
	add_file("", (const uint8_t *)"", 0);
	tar_end(&tar);
	tar_save(&tar, "odd.tar");
}

static void photo_shard(void)
{
	struct photo photos[MAX_PHOTOS];
	int n = photos_load(photos);

	nadded = 0;
	for (int i = 0; i < 6 * n; i++)
		add_sample(photos[i % n].data, photos[i % n].len);
	tar_end(&tar);
	tar_save(&tar, "photos.tar");
	for (int i = 0; i < n; i++)
		free(photos[i].data);
}

/* Pictures with masks and boxes. */
static void labelled_shard(void)
{
	nadded = 0;
	for (uint32_t i = 0; i < 3 * BATCH; i++) {
		uint32_t w = 60 + i, h = 90 - i;
		uint8_t *pgm = malloc(64 + (size_t)w * h);
		int n = sprintf((char *)pgm, "P5\n%u %u\n255\n", w, h);

		for (uint32_t k = 0; k < w * h; k++)
			pgm[n + (int)k] = (uint8_t)(k % w / 8 + k / w / 8 * 16);
		add("seg.pgm", pgm, (size_t)n + (size_t)w * h);
		add("box.txt", "3 4 30 40\n10 10 20 55\n", 22);
		add_made((struct fixture_jpeg){.width = w, .height = h, .in = JCS_RGB, .stored = JCS_YCbCr},
		        i);
		free(pgm);
	}
	tar_end(&tar);
	tar_save(&tar, "labelled.tar");
}

static int setup(void **state)
{
	(void)state;
	folder_enter(folder);
	odd_shard();
	photo_shard();
	labelled_shard();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	folder_leave(folder);
	return 0;
}

/* -- Runs ---------------------------------------------------------------------------------------------- */

struct setting {
	struct penstock_options o;
	struct penstock_field f[4];
	const char *shards[1];
};

static void setting_init(struct setting *s, const char *shard, const char *device, double gpu_decode)
{
	memset(s, 0, sizeof(*s));
	penstock_options_init(&s->o, sizeof(s->o));
	penstock_field_init(&s->f[0], sizeof(s->f[0]), "jpg", PENSTOCK_IMAGE);
	s->f[0].image_width = WIDTH;
	s->f[0].image_height = HEIGHT;
	penstock_field_init(&s->f[1], sizeof(s->f[1]), "cls", PENSTOCK_INT64);
	s->shards[0] = shard;
	s->o.fields = s->f;
	s->o.nfields = 2;
	s->o.batch = BATCH;
	s->o.epochs = 1;
	s->o.threads = 2;
	s->o.depth = 3;
	s->o.shuffle_window = 64;
	s->o.on_error = PENSTOCK_SKIP;
	s->o.seed = 5;
	s->o.device = device;
	s->o.gpu_decode = gpu_decode;
}

struct record {
	uint8_t *p;
	size_t n, cap;
};

static void record_add(struct record *r, const struct penstock_tensor *t)
{
	if (r->n + t->nbytes > r->cap) {
		r->cap = 2 * (r->n + t->nbytes);
		r->p = realloc(r->p, r->cap);
		assert_non_null(r->p);
	}
	if (t->memory == PENSTOCK_MEMORY_CUDA && t->nbytes > 0)
		from_device(r->p + r->n, t->data, t->nbytes);
	else if (t->nbytes > 0)
		memcpy(r->p + r->n, t->data, t->nbytes);
	r->n += t->nbytes;
}

static struct penstock_loader *loader_open(const struct setting *s)
{
	struct penstock_loader *l;
	struct penstock_error e;

	if (penstock_loader_open(&s->o, s->shards, 1, &l, &e) < 0)
		fail_msg("%s", e.text);
	return l;
}

/* The next batch's tensors; false: the epoch is over. */
static bool batch_record(struct penstock_loader *l, const char *only, struct record *r)
{
	struct penstock_batch *b;
	struct penstock_tensor t;
	struct penstock_error e;
	const char *name;
	int got = penstock_loader_next(l, &b, &e);

	if (got < 0)
		fail_msg("%s", e.text);
	if (got == 0)
		return false;
	assert_int_equal(penstock_batch_sync(b, &e), 0);
	for (uint32_t i = 0; (name = penstock_batch_name(b, i)); i++) {
		if (only && strcmp(name, only) != 0)
			continue;
		assert_int_equal(penstock_batch_field(b, name, &t, &e), 0);
		record_add(r, &t);
	}
	penstock_batch_release(b);
	return true;
}

/* All batches of all epochs; *ret_stats of the end. */
static struct record run(const struct setting *s, const char *only, struct penstock_stats *ret_stats)
{
	struct penstock_loader *l = loader_open(s);
	struct record r = {0};

	for (uint64_t epoch = 0; epoch < s->o.epochs; epoch++)
		while (batch_record(l, only, &r))
			;
	if (ret_stats)
		assert_int_equal(penstock_loader_stats(l, ret_stats, sizeof(*ret_stats), NULL), 0);
	penstock_loader_close(l);
	return r;
}

static void same(struct record *a, struct record *b)
{
	assert_int_equal(a->n, b->n);
	assert_memory_equal(a->p, b->p, a->n);
	free(a->p);
	free(b->p);
}

/* The run on the processor and the one with a GPU: the same. */
static void as_on_the_processor(struct setting *s, struct penstock_stats *ret_stats)
{
	struct setting host = *s;
	struct record want, got;

	host.o.fields = host.f;
	host.o.device = "cpu";
	host.o.gpu_decode = 0;
	want = run(&host, NULL, NULL);
	s->o.fields = s->f;
	got = run(s, NULL, ret_stats);
	same(&want, &got);
}

/* -- With the mocks ------------------------------------------------------------------------------------ */

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

/* The state says so in the first of its last four words. */
static bool is_frozen(struct penstock_loader *l, uint8_t saved[static 512], int *ret_n)
{
	*ret_n = penstock_loader_state_save(l, saved, 512, NULL);
	assert_true(*ret_n > 208);
	return !(saved[*ret_n - 32 + 4] & 1);
}

/* Batches behind a state are those of the run that it was saved in, before the share was frozen, too. */
static void a_state_keeps_the_frozen_share(void **state)
{
	struct setting s;
	struct penstock_loader *l;
	struct record want = {0}, got = {0}, skipped = {0};
	uint8_t saved[512];
	int n;

	(void)state;
	gpu.set(0, 0, 0, 5);
	setting_init(&s, "photos.tar", "cuda", PENSTOCK_GPU_DECODE_AUTO);
	s.o.epochs = 0;
	l = loader_open(&s);
	assert_false(is_frozen(l, saved, &n));
	for (int i = 0; i < 2 * (int)PS_OFFLOAD_MOST && !is_frozen(l, saved, &n); i++)
		(void)batch_record(l, "cls", &skipped);
	assert_true(is_frozen(l, saved, &n));
	for (int i = 0; i < 20; i++)
		(void)batch_record(l, NULL, &want);
	penstock_loader_close(l);
	s.o.state = saved;
	s.o.state_nbytes = (size_t)n;
	s.o.threads = 1;
	l = loader_open(&s);
	for (int i = 0; i < 20; i++)
		(void)batch_record(l, NULL, &got);
	same(&want, &got);
	free(skipped.p);
	penstock_loader_close(l);
}

static void loads(const struct setting *s, const void *state, int n, int want, const char *text)
{
	struct penstock_loader *l = loader_open(s);
	struct penstock_error e = {0};

	assert_int_equal(penstock_loader_state_load(l, state, (size_t)n, &e), want);
	if (text && !strstr(e.text, text))
		fail_msg("\"%s\" does not say \"%s\"", e.text, text);
	penstock_loader_close(l);
}

static void states_of_other_engines_are_refused(void **state)
{
	uint8_t of_half[512], of_cpu[512];
	struct penstock_loader *l;
	struct setting half, cpu, automatic, less;
	int nhalf, ncpu;

	(void)state;
	setting_init(&half, "photos.tar", "cuda", 0.5);
	setting_init(&less, "photos.tar", "cuda", 0.25);
	setting_init(&cpu, "photos.tar", "cpu", 0);
	setting_init(&automatic, "photos.tar", "cuda", PENSTOCK_GPU_DECODE_AUTO);
	l = loader_open(&half);
	nhalf = penstock_loader_state_save(l, of_half, sizeof(of_half), NULL);
	penstock_loader_close(l);
	l = loader_open(&cpu);
	ncpu = penstock_loader_state_save(l, of_cpu, sizeof(of_cpu), NULL);
	penstock_loader_close(l);
	assert_int_equal(nhalf, ncpu + 32);
	loads(&half, of_half, nhalf, 0, NULL);
	loads(&automatic, of_half, nhalf, 0, NULL);
	loads(&automatic, of_cpu, ncpu, 0, NULL);
	loads(&less, of_half, nhalf, -ESTALE, "gpu_decode 0.5");
	loads(&cpu, of_half, nhalf, -ESTALE, "gpu_decode 0.5");
	loads(&half, of_cpu, ncpu, -ESTALE, "gpu_decode 0");
	of_half[nhalf - 1] ^= 1;
	loads(&half, of_half, nhalf, -EINVAL, "damaged");
}

/* The processor does not step in: its pixels are others, and the next run may have had memory. */
static void without_memory_a_run_fails(void **state)
{
	(void)state;
	for (int no_hardware = 0; no_hardware < 2; no_hardware++) {
		struct penstock_loader *l;
		struct penstock_batch *b;
		struct penstock_error e;
		struct setting s;

		gpu.set(no_hardware, 0, -1, 0);
		setting_init(&s, "photos.tar", "cuda", 0.5);
		l = loader_open(&s);
		assert_int_equal(penstock_loader_next(l, &b, &e), -ENOMEM);
		penstock_loader_close(l);
	}
}

static void a_lost_device_ends_in_an_error(void **state)
{
	struct setting s;
	struct penstock_loader *l;
	struct penstock_batch *b;
	struct penstock_error e;
	int r;

	(void)state;
	setting_init(&s, "photos.tar", "cuda", 1);
	s.o.epochs = 0;
	l = loader_open(&s);
	assert_int_equal(penstock_loader_next(l, &b, &e), 1);
	penstock_batch_release(b);
	gpu.lose();
	while ((r = penstock_loader_next(l, &b, &e)) >= 0)
		if (r == 1)
			penstock_batch_release(b);
	assert_true(r == -EIO || r == -ENOMEM);
	penstock_loader_close(l);
}

/* Batches that are half made when the loader goes elsewhere, or is closed. */
static void work_under_way_is_waited_for(void **state)
{
	struct setting s;

	(void)state;
	setting_init(&s, "photos.tar", "cuda", 1);
	s.o.epochs = 0;
	s.o.end = PENSTOCK_END_DROP_LAST;
	for (int i = 0; i < 12; i++) {
		struct penstock_loader *l = loader_open(&s);
		struct record r = {0};

		if (i % 2)
			gpu.set(i % 4 == 1, 0, 0, 0);
		for (int k = 0; k < i % 3; k++)
			(void)batch_record(l, "cls", &r);
		if (i % 4 == 2)
			assert_int_equal(penstock_loader_set_epoch(l, 7, NULL), 0);
		if (i % 4 == 3)
			(void)batch_record(l, "cls", &r);
		penstock_loader_close(l);
		free(r.p);
	}
}

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

/* -- With any GPU -------------------------------------------------------------------------------------- */

/* Photographs, in full and behind crops, u8. */
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

#define TEST(name) cmocka_unit_test_setup_teardown(name, fresh, nothing_left)

int main(void)
{
	const struct CMUnitTest with_any[] = {
	        TEST(pixels_are_near_the_processors),
	        TEST(runs_repeat_themselves),
	        TEST(states_of_other_engines_are_refused),
	        TEST(what_cannot_be_is_refused),
	};
	const struct CMUnitTest with_mocks[] = {
	        TEST(engine_and_processor_give_the_same), TEST(threads_and_gpu_together_give_the_same),
	        TEST(transforms_and_mixes_follow), TEST(masks_and_boxes_follow),
	        TEST(refused_images_are_the_processors), TEST(a_samples_hash_decides),
	        TEST(a_state_keeps_the_frozen_share), TEST(work_under_way_is_waited_for),
	        TEST(without_memory_a_run_fails),
	        TEST(a_lost_device_ends_in_an_error), /* the last: it stays lost */
	};
	int failed;

	gpu_open();
	failed = cmocka_run_group_tests(with_any, setup, teardown);
	if (gpu.set)
		failed += cmocka_run_group_tests(with_mocks, setup, teardown);
	return failed;
}
