/* Raw pixels out of the decoder, the resize and the transforms, for comparison by other programs
 * (image_vs_pil.py). What is read from the standard input is RGB, what is written is RGB or said here.
 *
 *   image_raw version                        prints libjpeg-turbo's version
 *   image_raw decode FILE                    "WIDTH HEIGHT\n", then RGB
 *   image_raw upright FILE                   the same, turned as EXIF says
 *   image_raw region FILE X Y W H            the same of a part of the upright image
 *   image_raw labels FILE                    "WIDTH HEIGHT\n", then 16-bit numbers
 *   image_raw resize W H X Y BOX_W BOX_H OUT_W OUT_H bilinear|bicubic < RGB
 *   image_raw affine W H A B C D E F FILL < RGB
 *   image_raw jitter W H BRIGHTNESS CONTRAST SATURATION TURN < RGB
 *   image_raw gray W H < RGB
 *   image_raw blur W H SIZE SIGMA < RGB
 *   image_raw noise W H SIGMA KEY < RGB */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include "image/resize.h"
#include "image/source.h"
#include "image/transform.h"

#define STRINGIFY_(x) #x
#define STRINGIFY(x) STRINGIFY_(x)
#define FILE_MAX (64u << 20)

static int complain(const char *what)
{
	fprintf(stderr, "image_raw: %s\n", what);
	return 1;
}

static uint8_t *read_all(FILE *f, size_t *ret_nbytes)
{
	uint8_t *bytes = malloc(FILE_MAX);
	*ret_nbytes = bytes && f ? fread(bytes, 1, FILE_MAX, f) : 0;
	return bytes;
}

/* RGB, or 16-bit numbers; the whole image, or a part. */
static int decode(const char *path, enum ps_pixels pixels, bool orient, const struct ps_region *part)
{
	const struct ps_image_limits limits = {1 << 26, 100, 1 << 28};
	struct ps_load_error err = {0};
	struct ps_image_size size = {0};
	struct ps_image_rows rows = {0};
	size_t nbytes;
	FILE *f = fopen(path, "rb");
	ps_autofree uint8_t *data = read_all(f, &nbytes);
	struct ps_source *s = ps_source_new(pixels, orient, &limits);
	if (f)
		fclose(f);
	int rc = !s || !data ? -1 : ps_source_open(s, data, nbytes, &size, &err);
	struct ps_region r = part->width ? *part : (struct ps_region){0, 0, size.width, size.height};
	if (rc == 0)
		rc = ps_source_start(s, &r, 0, &err);
	if (rc == 0)
		printf("%u %u\n", r.width, r.height);
	for (uint32_t y = 0; rc == 0 && y < r.height; y += rows.n) {
		rc = ps_source_rows(s, &rows, &err);
		for (uint32_t i = 0; rc == 0 && i < rows.n; i++)
			fwrite(rows.first + i * rows.stride, ps_pixels_nbytes(pixels), r.width, stdout);
	}
	ps_source_free(s);
	return rc == 0 ? 0 : complain(err.text);
}

static int resize(char **argv)
{
	uint32_t n[8];
	size_t nbytes;
	for (int i = 0; i < 8; i++)
		n[i] = (uint32_t)strtoul(argv[i], NULL, 10);
	struct ps_resize_geometry g = {.box_x = n[2],
	        .box_y = n[3],
	        .box_w = n[4],
	        .box_h = n[5],
	        .scaled_w = n[6],
	        .scaled_h = n[7],
	        .window_w = n[6],
	        .window_h = n[7]};
	struct ps_region region;
	struct ps_resize *r = ps_resize_new(ps_resize_cpu_best());
	ps_autofree uint8_t *rgb = read_all(stdin, &nbytes);
	ps_autofree uint8_t *out = malloc((size_t)n[6] * n[7] * 3);
	struct ps_resize_sink sink = {.dst = out, .dtype = PS_U8, .layout = PS_NHWC};
	if (!r || !rgb || !out || nbytes != (size_t)n[0] * n[1] * 3 ||
	        ps_resize_plan(r, &g, strcmp(argv[8], "bicubic") ? PS_BILINEAR : PS_BICUBIC) < 0)
		return complain("out of memory, or too few pixels");
	ps_resize_source(r, &region);
	ps_resize_begin(r, &sink);
	/* The slack behind the last row is still inside read_all()'s memory. */
	for (uint32_t y = region.y; y < region.y + region.height; y++)
		ps_resize_row(r, rgb + ((size_t)y * n[0] + region.x) * 3);
	ps_resize_free(r);
	return fwrite(out, 3, (size_t)n[6] * n[7], stdout) == (size_t)n[6] * n[7] ? 0
	                                                                          : complain("cannot write");
}

/* RGB from stdin, as planes; the caller frees. */
static uint8_t *read_planes(uint32_t width, uint32_t height)
{
	size_t nbytes, n = (size_t)width * height;
	ps_autofree uint8_t *rgb = read_all(stdin, &nbytes);
	uint8_t *planes = malloc(3 * n + 2);
	for (size_t i = 0; planes && rgb && nbytes == 3 * n && i < 3 * n; i++)
		planes[i % 3 * n + i / 3] = rgb[i];
	return planes;
}

static int write_planes(const uint8_t *planes, size_t n)
{
	for (size_t i = 0; i < 3 * n; i++)
		putchar(planes[i % 3 * n + i / 3]);
	return 0;
}

/* One operation of transform.h, with given numbers instead of random ones. */
static int operate(int argc, char **argv)
{
	uint32_t width = (uint32_t)strtoul(argv[2], NULL, 10), height = (uint32_t)strtoul(argv[3], NULL, 10);
	size_t n = (size_t)width * height;
	double x[7] = {0};
	ps_autofree uint8_t *p = read_planes(width, height), *spare = malloc(3 * n + 2);
	struct ps_planes planes = {p, width, height};
	if (!p || !spare)
		return complain("out of memory");
	for (int i = 4; i < argc && i < 11; i++)
		x[i - 4] = strtod(argv[i], NULL);
	if (!strcmp(argv[1], "affine")) {
		struct ps_affine map;
		memcpy(map.inverse, x, sizeof map.inverse);
		ps_affine_apply(&map, &planes, (uint8_t)x[6], spare);
		return write_planes(spare, n);
	}
	if (!strcmp(argv[1], "jitter")) {
		/* A factor of 0 is left out. */
		const struct ps_transform_spec spec = {
		        .brightness = x[0], .contrast = x[1], .saturation = x[2], .hue = x[3] ? 1 : 0};
		const struct ps_transform t = {.brightness = (uint32_t)(x[0] * 4096 + 0.5),
		        .contrast = (uint32_t)(x[1] * 4096 + 0.5),
		        .saturation = (uint32_t)(x[2] * 4096 + 0.5),
		        .turn = (int32_t)(x[3] * 6 * 65536)};
		ps_color_jitter(&spec, &t, &planes);
	} else if (!strcmp(argv[1], "gray")) {
		ps_color_gray(&planes);
	} else if (!strcmp(argv[1], "blur")) {
		ps_blur_apply(x[1], (uint32_t)x[0], &planes, spare);
	} else {
		ps_noise_apply((uint64_t)x[1], x[0], &planes);
	}
	return write_planes(p, n);
}

int main(int argc, char **argv)
{
	static const char *const operations[] = {"affine", "jitter", "gray", "blur", "noise"};
	struct ps_region region = {0};
	if (argc == 2 && !strcmp(argv[1], "version"))
		return puts(STRINGIFY(LIBJPEG_TURBO_VERSION)) < 0;
	if (argc == 3 && !strcmp(argv[1], "decode"))
		return decode(argv[2], PS_PIXELS_RGB, false, &region);
	if (argc == 3 && !strcmp(argv[1], "upright"))
		return decode(argv[2], PS_PIXELS_RGB, true, &region);
	if (argc == 3 && !strcmp(argv[1], "labels"))
		return decode(argv[2], PS_PIXELS_LABELS, false, &region);
	if (argc == 7 && !strcmp(argv[1], "region")) {
		region.x = (uint32_t)strtoul(argv[3], NULL, 10);
		region.y = (uint32_t)strtoul(argv[4], NULL, 10);
		region.width = (uint32_t)strtoul(argv[5], NULL, 10);
		region.height = (uint32_t)strtoul(argv[6], NULL, 10);
		return decode(argv[2], PS_PIXELS_RGB, true, &region);
	}
	if (argc == 11 && !strcmp(argv[1], "resize"))
		return resize(argv + 2);
	for (size_t i = 0; i < PS_ARRAY_LEN(operations) && argc >= 4; i++)
		if (!strcmp(argv[1], operations[i]))
			return operate(argc, argv);
	return complain("usage: see the head of image_raw.c");
}
