/* Files that are not images, or are truncated or damaged. Each is refused with an error that names the
 * fault, and the decoder then decodes the next file. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "image/image.h"
#include "tests/loader/image_fixture.h"

static uint8_t *find(uint8_t *data, size_t n, uint8_t marker)
{
	for (size_t i = 0; i + 1 < n; i++)
		if (data[i] == 0xff && data[i + 1] == marker)
			return &data[i];
	fail_msg("no ff %02x", marker);
	abort();
}

#define TEXT(s) s, sizeof(s) - 1
static const struct {
	const char *data;
	size_t nbytes;
	const char *says;
} files[] = {
        {TEXT(""), "image: empty file"},
        {TEXT("abc"), "image: the file has only 3 bytes"},
        {TEXT("GIF89a; no picture"), "image: a GIF image: JPEG, PNG, WebP, PGM and PPM are"},
        {TEXT("abcdef"), "image: unknown format (first bytes 61 62 63 64)"},
        {TEXT("II*\0 no picture"), "image: a TIFF image"},
        {TEXT("MM\0* no picture"), "image: a TIFF image"},
        {TEXT("BM no picture"), "image: a BMP image"},
        {TEXT("\0\0\0 ftypavif"), "image: an AVIF image"},
        {TEXT("\0\0\0\x0cJXL \r\n\x87\n"), "image: a JPEG XL image"},
        {TEXT("DDS no"), "image: a DDS image"},
        {TEXT("P4 1 1\n\0\0"), "PNM: kind P4 is not supported: only binary PGM (P5) and PPM (P6) are"},
        {TEXT("P2 1 1 255\n0"), "PNM: kind P2 is not supported"},
        {TEXT("P5 x 1 255\n0"), "PNM: the header is damaged"},
        {TEXT("P5 1 1 255"), "PNM: the header is damaged"},
        {TEXT("P5 1 16777217 255\n0"), "PNM: the header is damaged"},
        {TEXT("P5 4294967297 1 255\n0"), "PNM: the header is damaged"},
        {TEXT("P5 1 1 0\n0"), "PNM: maxval 0: must be 1 to 65535"},
        {TEXT("P5 1 1 65536\n00"), "PNM: maxval 65536: must be 1 to 65535"},
        {TEXT("P5 0 5 255\n0"), "PNM: empty image: 0 x 5"},
        {TEXT("P5 5 0 255\n0"), "PNM: empty image: 5 x 0"},
        {TEXT("P5 1001 1000 255\n0"), "PNM: 1001 x 1000 is more than max_pixels=1000000"},
        {TEXT("P5 65536 65537 255\n0"), "PNM: 65536 x 65537 is more than max_pixels=1000000"},
        {TEXT("P5 2 2 255\n012"), "PNM: truncated: has 3 bytes of pixels, not 4"},
        {TEXT("P5 2 2 256\n0123456"), "PNM: truncated: has 7 bytes of pixels, not 8"},
        {TEXT("P6 2 2 255\n01234567890"), "PNM: truncated: has 11 bytes of pixels, not 12"},
        {TEXT("RIFF\x1a\0\0\0WEBPVP8L"), "WebP: truncated"},
        {TEXT("RIFF\x1a\0\0\0WEBPxxxx\x0e\0\0\0xxxxxxxxxxxxxxxxxxxxxxxxxx"), "WebP: damaged"},
        {TEXT("\xff\xd8\xff\xd9"), "JPEG: "},
        {TEXT("\x89PNG\r\n\x1a\n"), "PNG: truncated"},
};

static struct ps_error err;

/* Asserts that the data is refused. It is in memory of exactly its length, so that AddressSanitizer finds a
 * read past its end. */
static void refused(struct ps_image_decoder *d, const void *data, size_t n, const char *says)
{
	static uint8_t dst[8 * 8 * 3];
	const struct ps_rng_key key = {0};
	uint8_t *exact = malloc(n ? n : 1);

	memcpy(exact, data, n);
	err = (struct ps_error){0};
	int r = ps_image_decode(d, exact, n, &key, dst, &err);
	if (r != -EBADMSG || strncmp(err.text, says, strlen(says)) != 0)
		fail_msg("%d, \"%s\", not \"%s\"", r, err.text, says);
	free(exact);
}

static void files_that_are_no_images_are_refused_with_the_reason(void **state)
{
	struct ps_image_spec spec = ps_image_spec_imagenet(8);
	static uint8_t dst[8 * 8 * 3];
	const struct ps_rng_key key = {0};

	(void)state;
	spec.dtype = PS_U8;
	spec.max_pixels = 1000000;
	struct ps_image_decoder *d = ps_image_decoder_new(&spec, &err);
	assert_non_null(d);
	for (size_t i = 0; i < PS_ARRAY_LEN(files); i++) {
		refused(d, files[i].data, files[i].nbytes, files[i].says);
		assert_int_equal(ps_image_decode(d, TEXT("P5 1 1 255\n0"), &key, dst, &err), 0);
		assert_int_equal(dst[0], '0');
	}
	/* The largest maxval. Of a two-byte sample the first byte counts. */
	assert_int_equal(ps_image_decode(d, TEXT("P5 1 1 65535\n\x80\x7f"), &key, dst, &err), 0);
	assert_int_equal(dst[0], 0x80);
	ps_image_decoder_free(d);
}

static void a_jpeg_truncated_anywhere_is_refused(void **state)
{
	struct ps_image_spec spec = ps_image_spec_imagenet(8);
	struct fixture_jpeg f = {
	        .width = 60, .height = 40, .in = JCS_RGB, .stored = JCS_YCbCr, .h = 2, .v = 2};
	ps_autofree uint8_t *pixels = fixture_picture(f.width, f.height, 0, 1);
	size_t nbytes;
	ps_autofree uint8_t *data = fixture_encode(&f, pixels, &nbytes);

	(void)state;
	spec.dtype = PS_U8;
	struct ps_image_decoder *d = ps_image_decoder_new(&spec, &err);
	assert_non_null(d);
	for (size_t n = 4; n < nbytes - 2; n += 1 + nbytes / 50)
		refused(d, data, n, "JPEG: truncated");
	refused(d, data, nbytes - 2, "JPEG: truncated: no end-of-image marker in ");
	/* An invalid Huffman table. */
	uint8_t *table = find(data, nbytes, 0xc4);
	memset(table + 5, 0xff, 16);
	refused(d, data, nbytes, "JPEG: ");
	ps_image_decoder_free(d);
}

static void a_jpeg_with_a_wrong_restart_marker_is_refused(void **state)
{
	struct ps_image_spec spec = ps_image_spec_imagenet(8);
	struct fixture_jpeg f = {
	        .width = 60, .height = 40, .in = JCS_RGB, .stored = JCS_YCbCr, .h = 1, .v = 1, .restart = 2};
	ps_autofree uint8_t *pixels = fixture_picture(f.width, f.height, 0, 1);
	size_t nbytes;
	ps_autofree uint8_t *data = fixture_encode(&f, pixels, &nbytes);
	uint8_t *scan = find(data, nbytes, 0xda);

	(void)state;
	spec.dtype = PS_U8;
	struct ps_image_decoder *d = ps_image_decoder_new(&spec, &err);
	assert_non_null(d);
	uint8_t *restart = find(scan, nbytes - (size_t)(scan - data), 0xd1);
	restart[1] = 0xd4;
	refused(d, data, nbytes, "JPEG: damaged: ");
	ps_image_decoder_free(d);
}

/* An image of several colours has no labels. */
static void coloured_images_are_refused_as_labels(void **state)
{
	static const struct {
		const char *data;
		size_t nbytes;
		const char *says;
	} coloured[] = {
	        {TEXT("P6 1 1 255\n012"), "PNM: "},
	        {TEXT("\x89PNG\r\n\x1a\n"
	              "\000\000\000\015\111\110\104\122\000\000\000\001\000\000\000\001\010\002\000\000\000"
	              "\220"
	              "\167\123\336\000\000\000\014\111\104\101\124\170\234\143\110\114\112\006\000\002\116"
	              "\001"
	              "\047\300\141\236\031\000\000\000\000\111\105\116\104\256\102\140\202"),
	                "PNG: labels must be gray or of a palette, not RGB or with alpha"},
	        {TEXT("RIFF\x1a\0\0\0WEBPVP8L\x0d\0\0\0\x2f\0\0\0\x10\x07\x10\x11\x11\x88\x88\xfe\7\0"),
	                "WebP: has no single channel for labels: use PNG or PGM"},
	};
	struct fixture_jpeg f = {.width = 60, .height = 40, .in = JCS_RGB, .stored = JCS_YCbCr};
	ps_autofree uint8_t *pixels = fixture_picture(f.width, f.height, 0, 1);
	const struct ps_image_limits limits = {
	        .max_pixels = 1 << 20, .max_scans = 100, .max_memory = 1 << 20};
	struct ps_image_reader *s = ps_image_reader_new(PS_PIXELS_LABELS, false, &limits);
	struct ps_image_size size;
	size_t nbytes;
	ps_autofree uint8_t *data = fixture_encode(&f, pixels, &nbytes);

	(void)state;
	assert_non_null(s);
	for (size_t i = 0; i <= PS_ARRAY_LEN(coloured); i++) {
		const char *says =
		        i ? coloured[i - 1].says : "JPEG: labels must be gray, not of 3 components";

		err = (struct ps_error){0};
		int rc =
		        i ? ps_image_reader_open(s, coloured[i - 1].data, coloured[i - 1].nbytes, &size, &err)
		          : ps_image_reader_open(s, data, nbytes, &size, &err);
		if (rc == 0)
			rc = ps_image_reader_start(
			        s, &(struct ps_region){0, 0, size.width, size.height}, 0, &err);
		struct ps_image_rows rows;
		if (rc == 0)
			rc = ps_image_reader_rows(s, &rows, &err);
		if (rc != -EBADMSG || strncmp(err.text, says, strlen(says)) != 0)
			fail_msg("%d, \"%s\", not \"%s\"", rc, err.text, says);
	}
	ps_image_reader_free(s);
}

static void a_jpeg_of_two_components_is_refused(void **state)
{
	struct fixture_jpeg f = {.width = 60, .height = 40, .in = JCS_UNKNOWN, .stored = JCS_UNKNOWN};
	ps_autofree uint8_t *pixels = fixture_picture(f.width, f.height, 0, 1);
	const struct ps_image_limits limits = {
	        .max_pixels = 1 << 20, .max_scans = 100, .max_memory = 1 << 20};
	struct ps_image_reader *s = ps_image_reader_new(PS_PIXELS_RGB, false, &limits);
	struct ps_image_size size;
	size_t nbytes;
	ps_autofree uint8_t *data = fixture_encode(&f, pixels, &nbytes);

	(void)state;
	assert_non_null(s);
	err = (struct ps_error){0};
	assert_int_equal(ps_image_reader_open(s, data, nbytes, &size, &err), -EBADMSG);
	assert_string_equal(err.text, "JPEG: unknown colour space of 2 components");
	ps_image_reader_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_jpeg_of_two_components_is_refused),
	        cmocka_unit_test(files_that_are_no_images_are_refused_with_the_reason),
	        cmocka_unit_test(a_jpeg_truncated_anywhere_is_refused),
	        cmocka_unit_test(a_jpeg_with_a_wrong_restart_marker_is_refused),
	        cmocka_unit_test(coloured_images_are_refused_as_labels),
	};

	return cmocka_run_group_tests_name("image_refused", tests, NULL, NULL);
}
