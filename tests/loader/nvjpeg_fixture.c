#include "config.h"

#include "nvjpeg_fixture.h"

#include <dlfcn.h>

#include "batches.h"
#include "device/nvjpeg_library.h"
#include "tests/loader/image_fixture.h"

/* The device's side -------------------------------------------------------------------------------------- */

struct gpu gpu;

static void symbol(void *library, const char *name, void *place)
{
	*(void **)place = library ? dlsym(library, name) : NULL;
}

void gpu_open(void)
{
	const struct ps_nvjpeg_library *nvjpeg;
	struct ps_error err;
	void *driver, *library;

	if (ps_cuda_driver_get(&gpu.cu, &err) < 0 || gpu.cu->context_retain(&gpu.context, 0) != 0 ||
	        ps_nvjpeg_library_find(NULL, NULL, &nvjpeg, NULL, &err) < 0) {
		fprintf(stderr, "%s\n", err.text);
		exit(77);
	}
	driver = dlopen("libcuda.so.1", RTLD_NOW);
	library = dlopen(nvjpeg->path, RTLD_NOW);
	symbol(driver, "cuMemcpyDtoHAsync_v2", &gpu.copy_from);
	symbol(driver, "mock_cuda_lose", &gpu.lose);
	symbol(driver, "mock_cuda_leaks", &gpu.leaks);
	symbol(driver, "mock_cuda_copied_to", &gpu.copied_to);
	symbol(driver, "mock_cuda_fail_launches", &gpu.fail_launches);
	symbol(driver, "mock_cuda_call", &gpu.call);
	symbol(driver, "mock_cuda_largest", &gpu.largest);
	symbol(library, "mock_nvjpeg_set", &gpu.set);
	symbol(library, "mock_nvjpeg_misread", &gpu.misread);
	symbol(library, "mock_nvjpeg_fail_batches", &gpu.fail_batches);
	symbol(library, "mock_nvjpeg_leaks", &gpu.nvjpeg_leaks);
}

void from_device(void *to, const void *from, size_t n)
{
	ps_cu_context old;

	assert_int_equal(gpu.cu->context_push(gpu.context), 0);
	assert_int_equal(gpu.copy_from(to, (ps_cu_pointer)(uintptr_t)from, n, NULL), 0);
	assert_int_equal(gpu.cu->stream_sync(NULL), 0);
	assert_int_equal(gpu.cu->context_pop(&old), 0);
}

static void sleep_do(void *arg)
{
	usleep(*(unsigned *)arg * 1000);
}

void gpu_hold(unsigned ms)
{
	unsigned *arg = malloc(sizeof(*arg));
	ps_cu_context old;

	assert_non_null(arg);
	*arg = ms;
	assert_int_equal(gpu.cu->context_push(gpu.context), 0);
	assert_int_equal(gpu.call(NULL, sleep_do, arg), 0);
	assert_int_equal(gpu.cu->context_pop(&old), 0);
	usleep(20000); /* until the streams stand still */
}

int mocks_reset(void **state)
{
	(void)state;
	if (gpu.set)
		gpu.set(0, 0, 0, 0);
	if (gpu.fail_batches)
		gpu.fail_batches(0);
	if (gpu.fail_launches)
		gpu.fail_launches(0);
	if (gpu.misread)
		gpu.misread(0, 0);
	return 0;
}

int nothing_left(void **state)
{
	(void)state;
	if (gpu.leaks) {
		assert_int_equal(gpu.leaks(), 0);
		assert_int_equal(gpu.nvjpeg_leaks(), 0);
	}
	return 0;
}

/* Shards ------------------------------------------------------------------------------------------------- */

static char folder[64];
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

/* Adds a file and, after it, a valid one: batches need good rows. */
static void add_file(const char *name, const uint8_t *data, size_t n)
{
	(void)name;
	add_sample(data, n);
	add_made((struct fixture_jpeg){.width = 50, .height = 40, .in = JCS_RGB, .stored = JCS_YCbCr}, n);
}

/* Files of all kinds, with copies of photographs that are truncated or damaged. */
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

static void photo_shards(void)
{
	struct photo photos[MAX_PHOTOS];
	int n = photos_load(photos);

	for (int unlabelled = 0; unlabelled < 2; unlabelled++) {
		nadded = 0;
		for (int i = 0; i < 6 * n; i++) {
			add("jpg", photos[i % n].data, photos[i % n].len);
			if (unlabelled && i % 3 == 1)
				add("cls", "none", 4);
			else
				add("cls", "5", 1);
			nadded++;
		}
		tar_end(&tar);
		tar_save(&tar, unlabelled ? "unlabelled.tar" : "photos.tar");
	}
	for (int i = 0; i < n; i++)
		free(photos[i].data);
}

void jpegs_write(const char *shard, const struct fixture_jpeg *kind, uint32_t n)
{
	nadded = 0;
	for (uint32_t i = 0; i < n; i++) {
		size_t nbytes = (size_t)kind->width * kind->height;
		uint8_t *pixels, *file;

		if (kind->in != JCS_GRAYSCALE) {
			add_made(*kind, i);
			continue;
		}
		pixels = malloc(nbytes);
		assert_non_null(pixels);
		memset(pixels, (int)(20 + i * 30), nbytes);
		file = fixture_encode(kind, pixels, &nbytes);
		add_sample(file, nbytes);
		free(file);
		free(pixels);
	}
	tar_end(&tar);
	tar_save(&tar, shard);
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

int shards_make(void **state)
{
	(void)state;
	folder_enter(folder);
	odd_shard();
	photo_shards();
	labelled_shard();
	return 0;
}

int shards_remove(void **state)
{
	(void)state;
	folder_leave(folder);
	return 0;
}

/* Runs --------------------------------------------------------------------------------------------------- */

void setting_init(struct setting *s, const char *shard, const char *device, double gpu_decode)
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

void record_add(struct record *r, const struct penstock_tensor *t)
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

struct penstock_loader *loader_open(const struct setting *s)
{
	return open_ok(&s->o, s->shards, 1);
}

bool batch_record(struct penstock_loader *l, const char *only, struct record *r)
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

struct record run(const struct setting *s, const char *only, struct penstock_stats *ret_stats)
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

void same(struct record *a, struct record *b)
{
	assert_int_equal(a->n, b->n);
	assert_memory_equal(a->p, b->p, a->n);
	free(a->p);
	free(b->p);
}

void same_as_on_the_cpu(struct setting *s, struct penstock_stats *ret_stats)
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
