/* JPEG regions, colours, damage and limits. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "image/format.h"
#include "image/huffman.h"
#include "image/image.h"
#include "tests/loader/image_fixture.h"

#define REGIONS 140 /* of each file; a multiple of 4, 5 and 7 */

static const struct ps_image_limits wide_limits = {
        .max_pixels = 1 << 24, .max_scans = 100, .max_memory = 64 << 20};

static void *jpeg; /* one decoder for all tests: an error must not affect later images */
static const struct ps_format *const format = &ps_format_jpeg;
static struct ps_error err;

static bool library_only; /* entropy decoding is left to libjpeg */

bool __real_ps_jpeg_entropy_replace(j_decompress_ptr c, struct ps_huffman *h);
bool __wrap_ps_jpeg_entropy_replace(j_decompress_ptr c, struct ps_huffman *h);

bool __wrap_ps_jpeg_entropy_replace(j_decompress_ptr c, struct ps_huffman *h)
{
	return !library_only && __real_ps_jpeg_entropy_replace(c, h);
}

/* Decodes a region to RGB without gaps, which the caller frees; or returns the error. */
static int decode_region(const uint8_t *data, size_t nbytes, const struct ps_image_limits *limits, uint32_t x,
        uint32_t y, uint32_t width, uint32_t height, uint8_t **ret_rgb)
{
	struct ps_image_size size;
	struct ps_image_rows rows = {0};
	int rc = format->open(jpeg, data, nbytes, PS_PIXELS_RGB, limits, &size, &err);
	if (rc < 0)
		return rc;
	if (width == 0) {
		width = size.width;
		height = size.height;
	}
	const struct ps_region region = {x, y, width, height};
	rc = format->start(jpeg, &region, 100, &err);
	if (rc < 0)
		return rc;
	ps_autofree uint8_t *rgb = malloc((size_t)width * height * 3);
	assert_non_null(rgb);
	for (uint32_t row = 0; row < height;) {
		rc = format->rows(jpeg, &rows, &err);
		if (rc < 0)
			return rc;
		assert_true(rows.n >= 1 && row + rows.n <= height);
		for (uint32_t i = 0; i < rows.n; i++, row++)
			memcpy(rgb + (size_t)row * width * 3, rows.first + i * rows.stride,
			        (size_t)width * 3);
	}
	format->close(jpeg);
	*ret_rgb = ps_steal_ptr(&rgb);
	return 0;
}

static int decode_whole(const uint8_t *data, size_t nbytes)
{
	uint8_t *rgb = NULL;
	int rc = decode_region(data, nbytes, &wide_limits, 0, 0, 0, 0, &rgb);
	free(rgb);
	return rc;
}

static int regions_compared;

/* The pixels of every region must equal those of the whole image at the same place. */
static void compare_regions(const char *name, const uint8_t *data, size_t nbytes)
{
	uint64_t seed = nbytes;
	struct ps_image_size size;
	uint8_t *whole = NULL;
	if (decode_region(data, nbytes, &wide_limits, 0, 0, 0, 0, &whole) < 0)
		return;
	assert_int_equal(format->open(jpeg, data, nbytes, PS_PIXELS_RGB, &wide_limits, &size, &err), 0);
	uint32_t width = size.width, height = size.height;
	for (int n = 0; n < REGIONS; n++) {
		uint32_t w = fixture_between(&seed, 1, n % 2 ? width : PS_MIN(width, n % 4 ? 40 : 5));
		uint32_t h = fixture_between(&seed, 1, n % 3 ? height : PS_MIN(height, 20));
		uint32_t x = fixture_between(&seed, 0, width - w), y = fixture_between(&seed, 0, height - h);
		/* Edges of the image and narrow strips are where upsampling differs. */
		x = n % 5 == 0 ? 0 : n % 5 == 1 ? width - w : x;
		y = n % 7 == 0 ? 0 : n % 7 == 1 ? height - h : y;
		uint8_t *part = NULL;
		if (decode_region(data, nbytes, &wide_limits, x, y, w, h, &part) < 0)
			fail_msg("%s: %u,%u %ux%u: %s", name, x, y, w, h, err.text);
		for (uint32_t row = 0; row < h; row++) {
			if (memcmp(part + (size_t)row * w * 3, whole + ((size_t)(y + row) * width + x) * 3,
			            (size_t)w * 3))
				fail_msg("%s: %ux%u at %u,%u differs in row %u", name, w, h, x, y, row);
		}
		free(part);
		regions_compared++;
	}
	free(whole);
}

static void region_equals_full_decode_of_photos(void **state)
{
	(void)state;
	assert_true(fixture_each_jpeg("photos", compare_regions) >= 10);
}

static void region_equals_full_decode_of_odd_files(void **state)
{
	(void)state;
	regions_compared = 0;
	assert_true(fixture_each_jpeg("odd/jpeg-decoder", compare_regions) >= 100);
	assert_true(regions_compared >= REGIONS * 20);
}

static void region_equals_full_decode_of_every_sampling(void **state)
{
	static const struct {
		J_COLOR_SPACE in, stored;
		int h, v;
		bool progressive;
		int restart;
	} cases[] = {
	        {JCS_RGB, JCS_YCbCr, 1, 1, false, 0},
	        {JCS_RGB, JCS_YCbCr, 2, 1, false, 0},
	        {JCS_RGB, JCS_YCbCr, 2, 2, false, 0},
	        {JCS_RGB, JCS_YCbCr, 1, 2, false, 0},
	        {JCS_RGB, JCS_YCbCr, 4, 1, false, 0},
	        {JCS_RGB, JCS_YCbCr, 4, 2, false, 0},
	        {JCS_RGB, JCS_YCbCr, 1, 4, false, 0},
	        {JCS_RGB, JCS_YCbCr, 2, 2, true, 0},
	        {JCS_RGB, JCS_YCbCr, 2, 1, true, 7},
	        {JCS_RGB, JCS_YCbCr, 2, 2, false, 3},
	        {JCS_RGB, JCS_RGB, 1, 1, false, 0},
	        {JCS_RGB, JCS_YCbCr, 3, 1, false, 0},
	        {JCS_CMYK, JCS_CMYK, 1, 1, false, 0},
	        {JCS_CMYK, JCS_YCCK, 2, 2, false, 0},
	        {JCS_CMYK, JCS_YCCK, 2, 1, true, 0},
	        {JCS_GRAYSCALE, JCS_GRAYSCALE, 1, 1, false, 0},
	        {JCS_GRAYSCALE, JCS_GRAYSCALE, 2, 2, false, 0},
	};
	(void)state;
	regions_compared = 0;
	for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
		for (uint32_t size = 0; size < 6; size++) {
			struct fixture_jpeg f = {.width = (uint32_t[]){1, 17, 64, 130, 257, 33}[size],
			        .height = (uint32_t[]){1, 9, 48, 131, 70, 300}[size],
			        .in = cases[i].in,
			        .stored = cases[i].stored,
			        .h = cases[i].h,
			        .v = cases[i].v,
			        .progressive = cases[i].progressive,
			        .restart = cases[i].restart};
			ps_autofree uint8_t *pixels = fixture_picture(f.width, 2 * f.height, 0, i);
			size_t nbytes;
			ps_autofree uint8_t *data = fixture_encode(&f, pixels, &nbytes);
			char name[64];
			snprintf(name, sizeof(name), "case %zu, %ux%u", i, f.width, f.height);
			compare_regions(name, data, nbytes);
		}
	}
	assert_int_equal(regions_compared, REGIONS * 6 * (int)PS_ARRAY_LEN(cases));
}

/* The oracle for a whole image is libjpeg's plain interface. */
static void compare_with_plain_libjpeg(const char *name, const uint8_t *data, size_t nbytes)
{
	struct jpeg_decompress_struct c;
	struct jpeg_error_mgr errors;
	uint8_t *whole = NULL;
	c.err = jpeg_std_error(&errors);
	jpeg_create_decompress(&c);
	jpeg_mem_src(&c, data, nbytes);
	jpeg_read_header(&c, TRUE);
	c.out_color_space = JCS_RGB;
	jpeg_start_decompress(&c);
	assert_int_equal(decode_region(data, nbytes, &wide_limits, 0, 0, 0, 0, &whole), 0);
	ps_autofree uint8_t *row = malloc((size_t)c.output_width * 3);
	for (uint32_t y = 0; y < c.output_height; y++) {
		jpeg_read_scanlines(&c, &row, 1);
		if (memcmp(row, whole + (size_t)y * c.output_width * 3, (size_t)c.output_width * 3))
			fail_msg("%s: row %u differs", name, y);
	}
	jpeg_destroy_decompress(&c);
	free(whole);
}

static void whole_image_equals_libjpegs(void **state)
{
	(void)state;
	assert_true(fixture_each_jpeg("photos", compare_with_plain_libjpeg) >= 10);
}

static int compared, refused;

/* Compares our entropy decoder with the library's, also on regions, where the decoders skip rows. */
static void compare_with_library(const char *name, const uint8_t *data, size_t nbytes)
{
	struct ps_image_size size;
	if (format->open(jpeg, data, nbytes, PS_PIXELS_RGB, &wide_limits, &size, &err) < 0)
		return;
	for (int n = 0; n < 3; n++) {
		uint32_t x = n ? size.width / 3 : 0, y = n ? size.height * (uint32_t)n / 4 : 0;
		uint32_t w = n ? (size.width + 1) / 2 : size.width,
		         h = n ? (size.height + 3) / 4 : size.height;
		uint8_t *own = NULL, *theirs = NULL;
		char text[sizeof(err.text)];
		w = PS_MIN(w, size.width - x);
		h = PS_MIN(h, size.height - y);
		int own_rc = decode_region(data, nbytes, &wide_limits, x, y, w, h, &own);
		memcpy(text, err.text, sizeof(text));
		library_only = true;
		int rc = decode_region(data, nbytes, &wide_limits, x, y, w, h, &theirs);
		library_only = false;
		/* The library reads most bad codes as zeros. */
		bool stricter = own_rc && strstr(text, "bad Huffman code");
		if (own_rc != rc && !stricter)
			fail_msg("%s: %d (%s), by the library %d (%s)", name, own_rc, own_rc ? text : "", rc,
			        rc ? err.text : "");
		if (own_rc == 0)
			assert_memory_equal(own, theirs, (size_t)w * h * 3);
		compared += own_rc == 0;
		refused += rc != 0;
		free(own);
		free(theirs);
	}
}

static void gray_decodes_to_three_equal_channels(void **state)
{
	struct fixture_jpeg f = {.width = 40, .height = 30, .in = JCS_GRAYSCALE, .stored = JCS_GRAYSCALE};
	uint8_t pixels[40 * 30], *rgb = NULL;
	size_t nbytes;
	(void)state;
	for (int i = 0; i < 40 * 30; i++)
		pixels[i] = (uint8_t)(i / 5);
	ps_autofree uint8_t *data = fixture_encode(&f, pixels, &nbytes);
	assert_int_equal(decode_region(data, nbytes, &wide_limits, 0, 0, 0, 0, &rgb), 0);
	for (int i = 0; i < 40 * 30; i++) {
		assert_true(rgb[3 * i] == rgb[3 * i + 1] && rgb[3 * i] == rgb[3 * i + 2]);
		assert_true(abs(rgb[3 * i] - pixels[i]) < 12);
	}
	free(rgb);
}

static void cmyk_is_inverted_as_adobe_writes_it(void **state)
{
	static const struct {
		uint8_t cmyk[4], rgb[3];
		const char *why;
	} cases[] = {
	        {{255, 255, 255, 255}, {255, 255, 255}, "no ink"},
	        {{0, 0, 0, 0}, {0, 0, 0}, "all ink"},
	        {{255, 255, 255, 0}, {0, 0, 0}, "black"},
	        {{0, 255, 255, 255}, {0, 255, 255}, "cyan"},
	        {{255, 0, 0, 255}, {255, 0, 0}, "magenta and yellow make red"},
	        {{128, 255, 255, 128}, {64, 128, 128}, "half of both"},
	};
	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
		struct fixture_jpeg f = {
		        .width = 16, .height = 16, .in = JCS_CMYK, .stored = JCS_CMYK, .quality = 100};
		uint8_t pixels[16 * 16 * 4], *rgb = NULL;
		size_t nbytes;
		for (int p = 0; p < 16 * 16; p++)
			memcpy(pixels + 4 * p, cases[i].cmyk, 4);
		ps_autofree uint8_t *data = fixture_encode(&f, pixels, &nbytes);
		assert_int_equal(decode_region(data, nbytes, &wide_limits, 0, 0, 0, 0, &rgb), 0);
		for (int c = 0; c < 3; c++)
			assert_true(abs(rgb[3 * 100 + c] - cases[i].rgb[c]) <= 1);
		free(rgb);
	}
}

static void truncated_file_is_refused_even_for_one_pixel(void **state)
{
	struct fixture_jpeg f = {
	        .width = 200, .height = 150, .in = JCS_RGB, .stored = JCS_YCbCr, .h = 2, .v = 2};
	ps_autofree uint8_t *pixels = fixture_picture(f.width, f.height, 0, 1);
	(void)state;
	for (int progressive = 0; progressive < 2; progressive++) {
		size_t nbytes;
		f.progressive = progressive;
		ps_autofree uint8_t *data = fixture_encode(&f, pixels, &nbytes);
		for (size_t cut = 0; cut < nbytes; cut += 1 + cut / 20) {
			uint8_t *rgb = NULL;
			/* Memory of exactly these bytes, so that a sanitizer finds a read past the end. */
			ps_autofree uint8_t *part = malloc(cut ? cut : 1);
			memcpy(part, data, cut);
			int rc = decode_region(part, cut, &wide_limits, 0, 0, 1, 1, &rgb);
			assert_int_equal(rc, -EBADMSG);
			assert_true(err.text[0] != '\0');
		}
		assert_int_equal(decode_whole(data, nbytes - 1), -EBADMSG);
		assert_int_equal(decode_whole(data, nbytes), 0);
	}
}

/* The data end early, but with an end-of-image marker: libjpeg would fill in gray and only warn. */
static void data_that_end_before_the_last_row_are_refused(void **state)
{
	struct fixture_jpeg f = {
	        .width = 200, .height = 150, .in = JCS_RGB, .stored = JCS_YCbCr, .h = 2, .v = 2};
	ps_autofree uint8_t *pixels = fixture_picture(f.width, f.height, 0, 2);
	size_t nbytes;
	ps_autofree uint8_t *data = fixture_encode(&f, pixels, &nbytes);
	(void)state;
	memcpy(data + nbytes / 2, "\xff\xd9", 2);
	assert_int_equal(decode_whole(data, nbytes / 2 + 2), -EBADMSG);
	assert_non_null(strstr(err.text, "truncated"));
}

static void wrong_restart_marker_is_refused(void **state)
{
	struct fixture_jpeg f = {.width = 200,
	        .height = 150,
	        .in = JCS_RGB,
	        .stored = JCS_YCbCr,
	        .h = 2,
	        .v = 2,
	        .restart = 5};
	ps_autofree uint8_t *pixels = fixture_picture(f.width, f.height, 0, 3);
	size_t nbytes;
	ps_autofree uint8_t *data = fixture_encode(&f, pixels, &nbytes);
	(void)state;
	for (size_t i = nbytes / 2; i + 1 < nbytes; i++) {
		if (data[i] != 0xff || data[i + 1] < 0xd0 || data[i + 1] > 0xd7)
			continue;
		data[i + 1] = (uint8_t)(0xd0 + (data[i + 1] + 3) % 8);
		break;
	}
	assert_int_equal(decode_whole(data, nbytes), -EBADMSG);
	assert_non_null(strstr(err.text, "damaged"));
}

/* MJPEG cameras write a few bytes before every restart marker; the pixels are the same. */
static void bytes_before_restart_markers_are_tolerated(void **state)
{
	static const struct {
		size_t nbytes;
		bool tolerated;
	} cases[] = {{1, true}, {6, true}, {17, true}, {64, true}, {65, false}, {900, false}};
	struct fixture_jpeg f = {.width = 200,
	        .height = 150,
	        .in = JCS_RGB,
	        .stored = JCS_YCbCr,
	        .h = 2,
	        .v = 2,
	        .restart = 5};
	ps_autofree uint8_t *pixels = fixture_picture(f.width, f.height, 0, 3);
	size_t nbytes;
	ps_autofree uint8_t *data = fixture_encode(&f, pixels, &nbytes), *plain = NULL;
	(void)state;
	assert_int_equal(decode_region(data, nbytes, &wide_limits, 0, 0, 0, 0, &plain), 0);
	for (size_t n = 0; n < PS_ARRAY_LEN(cases); n++) {
		ps_autofree uint8_t *odd = malloc(nbytes + 40 * cases[n].nbytes), *rgb = NULL;
		size_t odd_nbytes = 0;
		int markers = 0;
		assert_non_null(odd);
		for (size_t i = 0; i < nbytes; i++) {
			if (data[i] == 0xff && i + 1 < nbytes && data[i + 1] >= 0xd0 && data[i + 1] <= 0xd7) {
				memset(odd + odd_nbytes, 0x5a, cases[n].nbytes);
				odd_nbytes += cases[n].nbytes;
				markers++;
			}
			odd[odd_nbytes++] = data[i];
		}
		assert_int_equal(markers, 25);
		int rc = decode_region(odd, odd_nbytes, &wide_limits, 0, 0, 0, 0, &rgb);
		assert_int_equal(rc, cases[n].tolerated ? 0 : -EBADMSG);
		if (rc == 0) {
			assert_memory_equal(rgb, plain, (size_t)f.width * f.height * 3);
			compare_regions("bytes before restart markers", odd, odd_nbytes);
			compare_with_library("bytes before restart markers", odd, odd_nbytes);
		} else {
			assert_non_null(strstr(err.text, "extraneous bytes before marker"));
		}
	}
}

static void bytes_between_segments_and_after_the_end_are_tolerated(void **state)
{
	struct fixture_jpeg f = {
	        .width = 60, .height = 50, .in = JCS_RGB, .stored = JCS_YCbCr, .h = 2, .v = 2};
	ps_autofree uint8_t *pixels = fixture_picture(f.width, f.height, 0, 4);
	size_t nbytes;
	ps_autofree uint8_t *data = fixture_encode(&f, pixels, &nbytes);
	ps_autofree uint8_t *odd = malloc(nbytes + 20);
	(void)state;
	/* Five stray bytes after the start-of-image and JFIF segments (2 + 18 bytes). */
	memcpy(odd, data, 20);
	memcpy(odd + 20, "stray", 5);
	memcpy(odd + 25, data + 20, nbytes - 20);
	memcpy(odd + nbytes + 5, "trailing bytes", 14);
	assert_int_equal(decode_whole(odd, nbytes + 19), 0);
	/* A future revision of JFIF. */
	memcpy(odd, data, nbytes);
	odd[11] = 9;
	assert_int_equal(decode_whole(odd, nbytes), 0);
}

static void errors_name_the_limit(void **state)
{
	struct fixture_jpeg f = {
	        .width = 300, .height = 200, .in = JCS_RGB, .stored = JCS_YCbCr, .progressive = true};
	ps_autofree uint8_t *pixels = fixture_picture(f.width, f.height, 0, 5);
	size_t nbytes;
	ps_autofree uint8_t *data = fixture_encode(&f, pixels, &nbytes);
	uint8_t *rgb = NULL;
	struct ps_image_limits l = wide_limits;
	(void)state;
	l.max_pixels = 300 * 200 - 1;
	assert_int_equal(decode_region(data, nbytes, &l, 0, 0, 0, 0, &rgb), -EBADMSG);
	assert_non_null(strstr(err.text, "max_pixels=59999"));
	l = wide_limits;
	l.max_scans = 3;
	assert_int_equal(decode_region(data, nbytes, &l, 0, 0, 0, 0, &rgb), -EBADMSG);
	assert_non_null(strstr(err.text, "JPEG: more than 3 scans"));
	l = wide_limits;
	l.max_memory = 300 * 200;
	assert_int_equal(decode_region(data, nbytes, &l, 0, 0, 0, 0, &rgb), -EBADMSG);
	assert_non_null(strstr(err.text, "more than 60000"));
	assert_int_equal(decode_region(data, nbytes, &wide_limits, 0, 0, 0, 0, &rgb), 0);
	free(rgb);
}

static void size_that_the_bytes_cannot_hold_is_refused_at_once(void **state)
{
	struct fixture_jpeg f = {.width = 16, .height = 16, .in = JCS_RGB, .stored = JCS_YCbCr};
	ps_autofree uint8_t *pixels = fixture_picture(16, 16, 0, 6);
	size_t nbytes;
	ps_autofree uint8_t *data = fixture_encode(&f, pixels, &nbytes);
	(void)state;
	for (size_t i = 0; i + 8 < nbytes; i++) {
		if (data[i] == 0xff && data[i + 1] == 0xc0) {
			memcpy(data + i + 5, "\x0f\xff\x0f\xff", 4); /* 4095 x 4095 */
			break;
		}
	}
	assert_int_equal(decode_whole(data, nbytes), -EBADMSG);
	assert_non_null(strstr(err.text, "cannot hold 4095 x 4095"));
}

static void files_that_are_no_jpegs_are_refused(void **state)
{
	static const struct {
		const char *bytes;
		size_t nbytes;
	} cases[] = {{"", 0}, {"\xff", 1}, {"\xff\xd8", 2}, {"\xff\xd8\xff\xd9", 4}, {"GIF89a", 6},
	        {"\x89PNG\r\n\x1a\n", 8}};
	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
		err.text[0] = '\0';
		assert_int_equal(decode_whole((const uint8_t *)cases[i].bytes, cases[i].nbytes), -EBADMSG);
		assert_true(err.text[0] != '\0');
	}
}

static int setup(void **state)
{
	(void)state;
	jpeg = format->make();
	return jpeg ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	format->free(jpeg);
	return 0;
}

static void own_entropy_decoder_equals_libjpegs(void **state)
{
	(void)state;
	compared = refused = 0;
	fixture_each_jpeg("photos", compare_with_library);
	fixture_each_jpeg("odd/jpeg-decoder", compare_with_library);
	assert_true(compared > 100);
}

/* Random damage: both decoders refuse the same files, except that only our own one refuses bad Huffman
 * codes. The pixels of accepted files are the same. */
static void own_entropy_decoder_refuses_the_same_damage_as_libjpeg(void **state)
{
	uint64_t seed = 21;
	(void)state;
	compared = refused = 0;
	for (int n = 0; n < 400; n++) {
		struct fixture_jpeg f = {.width = fixture_between(&seed, 1, 130),
		        .height = fixture_between(&seed, 1, 90),
		        .in = n % 5 ? JCS_RGB : JCS_GRAYSCALE,
		        .stored = n % 5 ? JCS_YCbCr : JCS_GRAYSCALE,
		        .h = n % 5 ? 1 + n % 2 : 0,
		        .v = n % 5 ? 1 + n / 2 % 2 : 0,
		        .quality = n % 3 ? 100 - n % 100 : 100};
		ps_autofree uint8_t *pixels = fixture_picture(f.width, f.height, 0, seed);
		size_t nbytes;
		ps_autofree uint8_t *data = fixture_encode(&f, pixels, &nbytes);
		for (uint32_t k = fixture_between(&seed, 0, 9); k > 0 && nbytes > 640; k--)
			data[fixture_between(&seed, 620, (uint32_t)nbytes - 3)] =
			        (uint8_t)fixture_noise(&seed);
		compare_with_library("damaged", data, nbytes);
	}
	assert_true(compared > 100 && refused > 30);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(region_equals_full_decode_of_photos),
	        cmocka_unit_test(region_equals_full_decode_of_odd_files),
	        cmocka_unit_test(region_equals_full_decode_of_every_sampling),
	        cmocka_unit_test(whole_image_equals_libjpegs),
	        cmocka_unit_test(gray_decodes_to_three_equal_channels),
	        cmocka_unit_test(cmyk_is_inverted_as_adobe_writes_it),
	        cmocka_unit_test(truncated_file_is_refused_even_for_one_pixel),
	        cmocka_unit_test(data_that_end_before_the_last_row_are_refused),
	        cmocka_unit_test(wrong_restart_marker_is_refused),
	        cmocka_unit_test(bytes_before_restart_markers_are_tolerated),
	        cmocka_unit_test(bytes_between_segments_and_after_the_end_are_tolerated),
	        cmocka_unit_test(errors_name_the_limit),
	        cmocka_unit_test(size_that_the_bytes_cannot_hold_is_refused_at_once),
	        cmocka_unit_test(own_entropy_decoder_equals_libjpegs),
	        cmocka_unit_test(own_entropy_decoder_refuses_the_same_damage_as_libjpeg),
	        cmocka_unit_test(files_that_are_no_jpegs_are_refused),
	};
	return cmocka_run_group_tests_name("jpeg", tests, setup, teardown);
}
