/* Decoding of JPEG bytes into a place in a batch: equality with the separate parts, odd files, limits,
 * reproducibility. */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include <cmocka.h>

#include "image/image.h"
#include "image/picture.h"
#include "tests/loader/image_fixture.h"

#define BOMB "odd/jpeg-decoder/tests_crashtest_images_imagetestsuite_255015e07b6f9137b53b0f97d67a8aef.jpg"
#define ODD_FILE_SECONDS 10.0 /* CPU time; enough under a sanitizer, too */
#define GUARD 64

static struct ps_error err;

static double cpu_seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static struct ps_image_spec small_spec(uint64_t n)
{
	struct ps_image_spec spec = ps_image_spec_imagenet(48);
	spec.out_height = 37;
	spec.crop = n % 3;
	spec.resize_shorter = 56;
	spec.interpolation = n / 3 % 2;
	spec.dtype = n / 6 % 2 ? PS_U8 : PS_F32;
	spec.layout = n / 12 % 2 ? PS_NHWC : PS_NCHW;
	return spec;
}

/* Decodes with a new decoder; the caller frees. NULL after an error, which is then in err. */
static uint8_t *decode_fresh(const struct ps_image_spec *spec, const uint8_t *data, size_t nbytes,
        const struct ps_rng_key *key, int *ret_rc)
{
	struct ps_image_decoder *d = ps_image_decoder_new(spec, &err);
	size_t size = ps_image_nbytes(spec);
	assert_non_null(d);
	uint8_t *dst = malloc(size + GUARD);
	assert_non_null(dst);
	memset(dst, 0xcd, size + GUARD);
	*ret_rc = ps_image_decode(d, data, nbytes, key, dst, &err);
	for (size_t i = 0; i < GUARD; i++)
		assert_int_equal(dst[size + i], 0xcd);
	ps_image_decoder_free(d);
	if (*ret_rc < 0) {
		free(dst);
		return NULL;
	}
	return dst;
}

/* Compares a decoder's pixels with those of the parts: a decode of the whole image, then the portable
 * resize of the crop. */
static void compare_with_parts(const char *name, const uint8_t *data, size_t nbytes)
{
	const struct ps_image_limits limits = {1 << 26, 100, 1 << 28};
	struct ps_image_reader *source = ps_image_reader_new(PS_PIXELS_RGB, false, &limits);
	struct ps_resize *r = ps_resize_new(PS_RESIZE_PORTABLE);
	struct ps_image_size size;
	struct ps_image_rows rows;
	assert_int_equal(ps_image_reader_open(source, data, nbytes, &size, &err), 0);
	uint32_t width = size.width, height = size.height;
	assert_int_equal(ps_image_reader_start(source, &(struct ps_region){0, 0, width, height}, 0, &err), 0);
	ps_autofree uint8_t *whole = malloc((size_t)width * height * 3 + 4096);
	for (uint32_t y = 0; y < height; y += rows.n) {
		assert_int_equal(ps_image_reader_rows(source, &rows, &err), 0);
		for (uint32_t i = 0; i < rows.n; i++)
			memcpy(whole + (size_t)(y + i) * width * 3, rows.first + i * rows.stride,
			        (size_t)width * 3);
	}
	for (uint64_t n = 0; n < 24; n++) {
		struct ps_image_spec spec = small_spec(n);
		struct ps_rng_key key = {.seed = 5, .sample = n};
		struct ps_resize_geometry g;
		struct ps_region region;
		int rc;
		ps_autofree uint8_t *got = decode_fresh(&spec, data, nbytes, &key, &rc);
		assert_int_equal(rc, 0);
		ps_autofree uint8_t *want = malloc(ps_image_nbytes(&spec));
		struct ps_resize_sink sink = {.dst = want, .dtype = spec.dtype, .layout = spec.layout};
		for (int c = 0; c < 3; c++) {
			sink.scale[c] = (float)(1 / (255 * (double)spec.std[c]));
			sink.bias[c] = (float)(-(double)spec.mean[c] / (double)spec.std[c]);
		}
		ps_augment_geometry(&spec, width, height, &key, &g);
		assert_int_equal(ps_resize_plan(r, &g, spec.interpolation), 0);
		ps_resize_source(r, &region);
		ps_resize_begin(r, &sink);
		for (uint32_t y = region.y; y < region.y + region.height; y++)
			ps_resize_row(r, whole + ((size_t)y * width + region.x) * 3);
		if (memcmp(got, want, ps_image_nbytes(&spec)))
			fail_msg("%s: form %u differs", name, (unsigned)n);
	}
	ps_image_reader_free(source);
	ps_resize_free(r);
}

static void image_is_whole_decode_then_portable_resize(void **state)
{
	(void)state;
	assert_true(fixture_each_jpeg("photos", compare_with_parts) >= 10);
}

static int scaled_files;

/* With dct_scale the pixels differ, but not the place of the picture: for every crop the mean difference is
 * small. */
static void compare_scaled(const char *name, const uint8_t *data, size_t nbytes)
{
	for (uint64_t n = 0; n < 12; n++) {
		struct ps_image_spec spec = small_spec(n);
		struct ps_rng_key key = {.seed = 9, .sample = n};
		size_t size, off = 0;
		int rc;
		spec.dtype = PS_U8;
		spec.scale_min = 0.5; /* crops large enough to be scaled down */
		size = ps_image_nbytes(&spec);
		ps_autofree uint8_t *full = decode_fresh(&spec, data, nbytes, &key, &rc);
		assert_int_equal(rc, 0);
		spec.dct_scale = true;
		ps_autofree uint8_t *scaled = decode_fresh(&spec, data, nbytes, &key, &rc);
		assert_int_equal(rc, 0);
		for (size_t i = 0; i < size; i++)
			off += (size_t)abs(full[i] - scaled[i]);
		if (off > 4 * size)
			fail_msg("%s, form %u: %g levels", name, (unsigned)n, (double)off / (double)size);
		scaled_files += off > 0;
	}
}

static void dct_scaling_keeps_the_picture_in_place(void **state)
{
	(void)state;
	fixture_each_jpeg("photos", compare_scaled);
	assert_true(scaled_files > 20);
}

static struct ps_image_decoder *shared;
static int decoded, refused;

/* One decoder gets all odd files, valid and damaged ones mixed, and must give the same result as a new
 * decoder. */
static void decode_odd(const char *name, const uint8_t *data, size_t nbytes)
{
	struct ps_image_spec spec = small_spec(0);
	struct ps_rng_key key = {.seed = 6, .sample = nbytes};
	ps_autofree uint8_t *dst = malloc(ps_image_nbytes(&spec));
	double begin = cpu_seconds();
	int fresh_rc;
	err.text[0] = '\0';
	int rc = ps_image_decode(shared, data, nbytes, &key, dst, &err);
	if (cpu_seconds() - begin > ODD_FILE_SECONDS)
		fail_msg("%s: took %g s", name, cpu_seconds() - begin);
	if (rc < 0 && (rc != -EBADMSG || err.text[0] == '\0' || err.err != EBADMSG))
		fail_msg("%s: %d, \"%s\"", name, rc, err.text);
	ps_autofree uint8_t *fresh = decode_fresh(&spec, data, nbytes, &key, &fresh_rc);
	assert_int_equal(rc, fresh_rc);
	if (rc == 0)
		assert_memory_equal(dst, fresh, ps_image_nbytes(&spec));
	decoded += rc == 0;
	refused += rc < 0;
}

static void odd_files_are_decoded_or_refused_with_a_text(void **state)
{
	struct ps_image_spec spec = small_spec(0);
	struct rusage before, after;
	(void)state;
	getrusage(RUSAGE_SELF, &before);
	shared = ps_image_decoder_new(&spec, &err);
	assert_true(fixture_each_jpeg("odd/jpeg-decoder", decode_odd) >= 100);
	ps_image_decoder_free(shared);
	getrusage(RUSAGE_SELF, &after);
	assert_true(decoded >= 20 && refused >= 20);
	assert_true(after.ru_maxrss - before.ru_maxrss < 512 << 10); /* KiB */
}

/* libjpeg alone takes 8 s and 3 GB for these 613 bytes. */
static void tiny_file_of_huge_size_is_refused_at_once(void **state)
{
	struct ps_image_spec spec = small_spec(0);
	struct ps_rng_key key = {0};
	char path[1024];
	size_t nbytes;
	int rc;
	(void)state;
	fixture_path(path, BOMB);
	ps_autofree uint8_t *data = fixture_read(path, &nbytes);
	double begin = cpu_seconds();
	ps_autofree uint8_t *dst = decode_fresh(&spec, data, nbytes, &key, &rc);
	assert_null(dst);
	assert_int_equal(rc, -EBADMSG);
	assert_true(cpu_seconds() - begin < 0.2);
}

static void the_key_decides_the_pixels(void **state)
{
	struct ps_image_spec spec = ps_image_spec_imagenet(32);
	struct fixture_jpeg f = {
	        .width = 200, .height = 150, .in = JCS_RGB, .stored = JCS_YCbCr, .h = 2, .v = 2};
	ps_autofree uint8_t *pixels = fixture_picture(f.width, f.height, 0, 1);
	size_t nbytes, size = ps_image_nbytes(&spec);
	ps_autofree uint8_t *data = fixture_encode(&f, pixels, &nbytes);
	struct ps_rng_key a = {.seed = 1, .sample = 1}, b = {.seed = 1, .sample = 2};
	int rc;
	(void)state;
	ps_autofree uint8_t *first = decode_fresh(&spec, data, nbytes, &a, &rc);
	ps_autofree uint8_t *other = decode_fresh(&spec, data, nbytes, &b, &rc);
	ps_autofree uint8_t *again = decode_fresh(&spec, data, nbytes, &a, &rc);
	assert_memory_equal(first, again, size);
	assert_memory_not_equal(first, other, size);
}

#define THREADS 4
#define IMAGES 60

struct worker {
	pthread_t thread;
	const uint8_t *data;
	size_t nbytes;
	uint64_t step; /* each worker takes the same samples in another order */
	uint8_t pixels[IMAGES][24 * 24 * 3];
	int failures;
};

static void *work(void *arg)
{
	struct worker *w = arg;
	struct ps_image_spec spec = ps_image_spec_imagenet(24);
	spec.dtype = PS_U8;
	struct ps_image_decoder *d = ps_image_decoder_new(&spec, NULL);
	for (uint64_t i = 0; d && i < IMAGES; i++) {
		uint64_t n = i * w->step % IMAGES;
		struct ps_rng_key key = {.seed = 3, .sample = n};
		if (ps_image_decode(d, w->data, w->nbytes, &key, w->pixels[n], NULL) < 0)
			w->failures++;
	}
	w->failures += d == NULL;
	ps_image_decoder_free(d);
	return NULL;
}

static void pixels_do_not_depend_on_threads_or_order(void **state)
{
	static const uint64_t steps[THREADS] = {1, 7, 11, 59}; /* coprime to IMAGES: each a permutation */
	struct fixture_jpeg f = {
	        .width = 160, .height = 120, .in = JCS_RGB, .stored = JCS_YCbCr, .h = 2, .v = 2};
	ps_autofree uint8_t *pixels = fixture_picture(f.width, f.height, 0, 4);
	size_t nbytes;
	ps_autofree uint8_t *data = fixture_encode(&f, pixels, &nbytes);
	ps_autofree struct worker *workers = calloc(THREADS, sizeof(*workers));
	(void)state;
	for (int t = 0; t < THREADS; t++) {
		workers[t].data = data;
		workers[t].nbytes = nbytes;
		workers[t].step = steps[t];
		assert_int_equal(pthread_create(&workers[t].thread, NULL, work, &workers[t]), 0);
	}
	for (int t = 0; t < THREADS; t++) {
		assert_int_equal(pthread_join(workers[t].thread, NULL), 0);
		assert_int_equal(workers[t].failures, 0);
		assert_memory_equal(workers[t].pixels, workers[0].pixels, sizeof(workers[0].pixels));
	}
}

/* Without `orient`, orientation 6 (turn right) in an Exif segment is ignored. */
static void exif_orientation_is_not_applied(void **state)
{
	static const uint8_t exif[] = {0xff, 0xe1, 0, 34, 'E', 'x', 'i', 'f', 0, 0, 'M', 'M', 0, 42, 0, 0, 0,
	        8, 0, 1, 0x01, 0x12, 0, 3, 0, 0, 0, 1, 0, 6, 0, 0, 0, 0, 0, 0};
	struct ps_image_spec spec = small_spec(2);
	struct fixture_jpeg f = {.width = 64, .height = 40, .in = JCS_RGB, .stored = JCS_YCbCr};
	ps_autofree uint8_t *pixels = fixture_picture(f.width, f.height, 0, 2);
	size_t nbytes;
	ps_autofree uint8_t *data = fixture_encode(&f, pixels, &nbytes);
	ps_autofree uint8_t *with = malloc(nbytes + sizeof(exif));
	struct ps_rng_key key = {0};
	int rc;
	(void)state;
	memcpy(with, data, 2);
	memcpy(with + 2, exif, sizeof(exif));
	memcpy(with + 2 + sizeof(exif), data + 2, nbytes - 2);
	ps_autofree uint8_t *want = decode_fresh(&spec, data, nbytes, &key, &rc);
	ps_autofree uint8_t *got = decode_fresh(&spec, with, nbytes + sizeof(exif), &key, &rc);
	assert_non_null(got);
	assert_memory_equal(got, want, ps_image_nbytes(&spec));
}

/* Devices decode only what the outline calls plain. */
static void the_outline_tells_which_images_a_device_may_decode(void **state)
{
	static const uint8_t pgm[] =
	        "P5\n8 8\n255\n0123456789012345678901234567890123456789012345678901234567890123";
	struct fixture_jpeg f = {.width = 64, .height = 40, .in = JCS_RGB, .stored = JCS_YCbCr};
	ps_autofree uint8_t *pixels = fixture_picture(f.width, f.height, 0, 2);
	struct ps_image_spec plain = ps_image_spec_imagenet(32), padded = plain;
	size_t nbytes, rgb_nbytes;
	ps_autofree uint8_t *data = fixture_encode(&f, pixels, &nbytes);
	f.stored = JCS_RGB;
	ps_autofree uint8_t *rgb = fixture_encode(&f, pixels, &rgb_nbytes);
	(void)state;
	padded.crop = PS_CROP_LETTERBOX;
	const struct {
		const struct ps_image_spec *spec;
		const uint8_t *data;
		size_t nbytes;
		bool plain;
	} rows[] = {{&plain, data, nbytes, true}, {&padded, data, nbytes, false},
	        {&plain, rgb, rgb_nbytes, false}, {&plain, pgm, sizeof(pgm) - 1, false}};
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		struct ps_image_decoder *d = ps_image_decoder_new(rows[i].spec, &err);
		struct ps_rng_key key = {0};
		struct ps_image_outline outline;
		assert_non_null(d);
		assert_int_equal(ps_image_sketch(d, rows[i].data, rows[i].nbytes, &key, &outline, &err), 0);
		assert_int_equal(outline.plain_jpeg, rows[i].plain);
		ps_image_decoder_free(d);
	}
}

/* All rows of the upright image; NULL after an error, which is then in err. */
static uint8_t *decode_upright(const uint8_t *data, size_t nbytes, struct ps_image_size *ret_size)
{
	const struct ps_image_limits limits = {1 << 26, 100, 1 << 28};
	struct ps_image_reader *source = ps_image_reader_new(PS_PIXELS_RGB, true, &limits);
	struct ps_image_rows rows;
	uint8_t *rgb = NULL;
	assert_non_null(source);
	int rc = ps_image_reader_open(source, data, nbytes, ret_size, &err);
	if (rc == 0) {
		const struct ps_region all = {0, 0, ret_size->width, ret_size->height};
		rgb = malloc((size_t)all.width * all.height * 3);
		assert_non_null(rgb);
		rc = ps_image_reader_start(source, &all, 0, &err);
		for (uint32_t row = 0; rc == 0 && row < all.height; row += rows.n) {
			rc = ps_image_reader_rows(source, &rows, &err);
			for (uint32_t i = 0; rc == 0 && i < rows.n; i++)
				memcpy(rgb + (size_t)(row + i) * all.width * 3, rows.first + i * rows.stride,
				        (size_t)all.width * 3);
		}
	}
	ps_image_reader_free(source);
	if (rc < 0)
		free(ps_steal_ptr(&rgb));
	return rgb;
}

/* A damaged Exif block is ignored: the image is the same as without it. */
static void damaged_exif_is_ignored(void **state)
{
#define HEAD             \
	"\xff\xe1\0\x22" \
	"Exif\0\0"
#define ENTRY "\x01\x12\0\3\0\0\0\1\0\6\0\0\0\0\0\0"
	static const struct {
		const char *bytes, *why; /* 36 bytes */
	} cases[] = {
	        {HEAD "MM\0*\xff\xff\xff\xf0\0\1" ENTRY, "a directory outside the block"},
	        {HEAD "MM\0*\0\0\0\x8\xff\xff"
	              "\1\0" ENTRY,
	                "more entries than there are, no orientation"},
	        {HEAD "XX\0*\0\0\0\x8\0\1" ENTRY, "an unknown byte order"},
	        {HEAD "MM\0*\0\0\0\x8\0\1"
	              "\x01\x12\0\3\0\0\0\1\0\x63\0\0\0\0\0\0",
	                "orientation 99"},
	        {HEAD "MM\0*\0\0\0\x8\0\1"
	              "\x01\x12\0\7\0\0\0\1\0\6\0\0\0\0\0\0",
	                "an orientation of another type"},
	        {"\xff\xe1\0\x14"
	         "Exif\0\0"
	         "MM\0*\0\0\0\x8\0\1" ENTRY,
	                "a block longer than its length field"},
	};
#undef HEAD
#undef ENTRY
	struct fixture_jpeg f = {.width = 64, .height = 40, .in = JCS_RGB, .stored = JCS_YCbCr};
	ps_autofree uint8_t *pixels = fixture_picture(f.width, f.height, 0, 2);
	struct ps_image_size size;
	size_t nbytes;
	ps_autofree uint8_t *data = fixture_encode(&f, pixels, &nbytes);
	ps_autofree uint8_t *want = decode_upright(data, nbytes, &size);
	ps_autofree uint8_t *with = malloc(nbytes + 36);
	(void)state;
	assert_non_null(want);
	memcpy(with, data, 2);
	memcpy(with + 2 + 36, data + 2, nbytes - 2);
	for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
		memcpy(with + 2, cases[i].bytes, 36);
		ps_autofree uint8_t *got = decode_upright(with, nbytes + 36, &size);
		if (!got)
			fail_msg("%s: %s", cases[i].why, err.text);
		assert_true(size.width == f.width && size.height == f.height);
		assert_memory_equal(got, want, (size_t)f.width * f.height * 3);
	}
}

#ifdef HAVE_PNG
static uint32_t crc32_of(const uint8_t *p, size_t n)
{
	uint32_t c = UINT32_MAX;
	for (size_t i = 0; i < n; i++) {
		c ^= p[i];
		for (int k = 0; k < 8; k++)
			c = c >> 1 ^ (c & 1 ? UINT32_C(0xedb88320) : 0);
	}
	return ~c;
}

static size_t u32_put(uint8_t *to, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		to[i] = (uint8_t)(v >> (24 - 8 * i));
	return 4;
}

static size_t chunk_put(uint8_t *to, const char *type, const void *data, size_t n)
{
	u32_put(to, (uint32_t)n);
	memcpy(to + 4, type, 4);
	if (n > 0)
		memcpy(to + 8, data, n);
	return 8 + n + u32_put(to + 8 + n, crc32_of(to + 4, n + 4));
}

/* A zlib stream of one stored block. */
static size_t stored_put(uint8_t *to, const uint8_t *data, uint16_t n)
{
	uint32_t a = 1, b = 0;
	memcpy(to, "\x78\1\1", 3);
	to[3] = (uint8_t)n;
	to[4] = (uint8_t)(n >> 8);
	to[5] = (uint8_t)~to[3];
	to[6] = (uint8_t)~to[4];
	memcpy(to + 7, data, n);
	for (uint32_t i = 0; i < n; i++) {
		a = (a + data[i]) % 65521;
		b = (b + a) % 65521;
	}
	return 7u + n + u32_put(to + 7 + n, b << 16 | a);
}

/* Errors that libpng calls benign are accepted. Other damage is refused, even where libpng would continue. */
static void png_with_benign_errors_is_read_and_with_damage_refused(void **state)
{
	enum { ROWS = 5, ROW = 4, STREAM = 7 + ROWS * ROW + 4 }; /* rows: a filter byte and three of gray */
	static const struct {
		uint8_t rows, padding; /* rows in the stream; bytes after the stream in its chunk */
		bool chunk, palette, checksum, cut;
		bool sound;
		const char *why;
	} cases[] = {
	        {ROWS, 0, .sound = true, .why = "plain"},
	        {ROWS, 1, .sound = true, .why = "a byte after the stream"},
	        {ROWS, 200, .sound = true, .why = "200 bytes after the stream"},
	        {ROWS, 0, .chunk = true, .sound = true, .why = "a chunk after the stream"},
	        {ROWS, 7, .chunk = true, .sound = true, .why = "7 bytes and a chunk after the stream"},
	        {ROWS + 3, 0, .sound = true, .why = "more rows than the image has"},
	        {ROWS, 0, .palette = true, .sound = true, .why = "a palette for gray"},
	        {ROWS - 1, 0, .why = "a row missing"},
	        {ROWS - 1, 9, .why = "a row missing, and padding"},
	        {ROWS, 0, .checksum = true, .why = "a wrong checksum of the stream"},
	        {ROWS, 0, .cut = true, .why = "no checksum of the stream"},
	};
	uint8_t rows[(ROWS + 3) * ROW], plain[ROWS * 3 * 3];
	(void)state;
	for (size_t i = 0; i < sizeof(rows); i++)
		rows[i] = i % ROW ? (uint8_t)(i * 7) : 0;
	for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
		static const uint8_t head[] = {0, 0, 0, 3, 0, 0, 0, ROWS, 8, 0, 0, 0, 0};
		uint8_t stream[512] = {0}, png[1024];
		struct ps_image_size size;
		size_t n = stored_put(stream, rows, (uint16_t)(cases[i].rows * ROW)), at = 8;
		if (cases[i].checksum)
			stream[n - 1] ^= 1;
		n = n - (cases[i].cut ? 4 : 0) + cases[i].padding;
		memcpy(png, "\x89PNG\r\n\x1a\n", 8);
		at += chunk_put(png + at, "IHDR", head, sizeof(head));
		if (cases[i].palette)
			at += chunk_put(png + at, "PLTE", "abcdef", 6);
		at += chunk_put(png + at, "IDAT", stream, n);
		if (cases[i].chunk)
			at += chunk_put(png + at, "IDAT", "padding", 7);
		at += chunk_put(png + at, "IEND", NULL, 0);
		ps_autofree uint8_t *got = decode_upright(png, at, &size);
		if (!got != !cases[i].sound)
			fail_msg("%s: %s", cases[i].why, got ? "was read" : err.text);
		if (i == 0)
			memcpy(plain, got, sizeof(plain));
		if (got)
			assert_memory_equal(got, plain, sizeof(plain));
	}
	for (int y = 0; y < ROWS; y++)
		for (int k = 0; k < 9; k++)
			assert_int_equal(plain[y * 9 + k], rows[y * ROW + 1 + k / 3]);
}
#endif

#define WRONG(name, ...)                                                  \
	{                                                                 \
		struct ps_image_spec s = ps_image_spec_imagenet(224);     \
		__VA_ARGS__;                                              \
		err.text[0] = '\0';                                       \
		assert_int_equal(ps_image_spec_check(&s, &err), -EINVAL); \
		assert_non_null(strstr(err.text, name));                  \
		assert_int_equal(ps_image_nbytes(&s), 0);                 \
		assert_null(ps_image_decoder_new(&s, &err));              \
	}

static void invalid_specs_are_refused_by_name(void **state)
{
	(void)state;
	WRONG("output size", s.out_width = 0);
	WRONG("output size", s.out_height = 0);
	WRONG("output size", s.out_width = PS_IMAGE_SIDE_MAX + 1);
	WRONG("crop", s.crop = PS_CROP_LETTERBOX + 1);
	WRONG("resize_shorter", s.crop = PS_CROP_CENTER; s.resize_shorter = 223);
	WRONG("resize_shorter", s.crop = PS_CROP_CENTER; s.resize_shorter = PS_IMAGE_SIDE_MAX + 1);
	WRONG("scale", s.scale_min = 0);
	WRONG("scale", s.scale_min = 0.9; s.scale_max = 0.8);
	WRONG("scale", s.scale_max = 1.1);
	WRONG("scale", s.scale_min = __builtin_nan(""));
	WRONG("ratio", s.ratio_min = 0);
	WRONG("ratio", s.ratio_max = __builtin_inf());
	WRONG("hflip_probability", s.hflip_probability = -0.1);
	WRONG("hflip_probability", s.hflip_probability = __builtin_nan(""));
	WRONG("interpolation", s.interpolation = 2);
	WRONG("dtype", s.dtype = PS_I64);
	WRONG("dtype", s.dtype = 99);
	WRONG("layout", s.layout = 2);
	WRONG("std", s.std[1] = 0);
	WRONG("mean", s.mean[2] = __builtin_nanf(""));
}

/* A device decodes complete files only. */
static void a_truncated_file_is_decoded_here_and_reported(void **state)
{
	struct ps_image_spec spec = ps_image_spec_imagenet(32);
	const struct ps_rng_key key = {.seed = 1};
	struct ps_image_outline outline;
	struct fixture_jpeg f = {.width = 64, .height = 40, .in = JCS_RGB, .stored = JCS_YCbCr};
	ps_autofree uint8_t *pixels = fixture_picture(f.width, f.height, 0, 2);
	size_t nbytes;
	ps_autofree uint8_t *data = fixture_encode(&f, pixels, &nbytes);
	(void)state;
	for (int allow = 0; allow < 2; allow++) {
		spec.truncated = allow;
		struct ps_image_decoder *d = ps_image_decoder_new(&spec, &err);
		ps_autofree uint8_t *dst = malloc(ps_image_nbytes(&spec));
		assert_int_equal(ps_image_decode(d, data, nbytes, &key, dst, &err), 0);
		assert_false(ps_image_decoder_is_truncated(d));
		assert_int_equal(ps_image_sketch(d, data, nbytes, &key, &outline, &err), 0);
		assert_true(outline.plain_jpeg);
		int rc = ps_image_decode(d, data, nbytes / 2, &key, dst, &err);
		assert_int_equal(rc, allow ? 0 : -EBADMSG);
		assert_int_equal(ps_image_decoder_is_truncated(d), allow);
		rc = ps_image_sketch(d, data, nbytes / 2, &key, &outline, &err);
		assert_int_equal(rc, allow ? 0 : -EBADMSG);
		assert_false(outline.plain_jpeg);
		ps_image_decoder_free(d);
	}
}

static void valid_specs_have_the_right_number_of_bytes(void **state)
{
	struct ps_image_spec s = ps_image_spec_imagenet(224);
	(void)state;
	assert_int_equal(ps_image_nbytes(&s), 224 * 224 * 3 * 4);
	s.dtype = PS_U8;
	s.std[0] = 0; /* not used */
	assert_int_equal(ps_image_nbytes(&s), 224 * 224 * 3);
	s.out_width = s.out_height = PS_IMAGE_SIDE_MAX;
	assert_int_equal(ps_image_nbytes(&s), UINT64_C(3) << 28);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(image_is_whole_decode_then_portable_resize),
	        cmocka_unit_test(odd_files_are_decoded_or_refused_with_a_text),
	        cmocka_unit_test(tiny_file_of_huge_size_is_refused_at_once),
	        cmocka_unit_test(the_key_decides_the_pixels),
	        cmocka_unit_test(pixels_do_not_depend_on_threads_or_order),
	        cmocka_unit_test(exif_orientation_is_not_applied),
	        cmocka_unit_test(damaged_exif_is_ignored),
	        cmocka_unit_test(the_outline_tells_which_images_a_device_may_decode),
#ifdef HAVE_PNG
	        cmocka_unit_test(png_with_benign_errors_is_read_and_with_damage_refused),
#endif
	        cmocka_unit_test(invalid_specs_are_refused_by_name),
	        cmocka_unit_test(dct_scaling_keeps_the_picture_in_place),
	        cmocka_unit_test(a_truncated_file_is_decoded_here_and_reported),
	        cmocka_unit_test(valid_specs_have_the_right_number_of_bytes),
	};
	return cmocka_run_group_tests_name("image", tests, NULL, NULL);
}
