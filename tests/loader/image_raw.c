/* Raw pixels out of the decoder and the resize, for comparison by other programs (image_vs_pil.py).
 *
 *   image_raw version                                 prints libjpeg-turbo's version
 *   image_raw decode|upright FILE                     "WIDTH HEIGHT\n", then RGB; upright: turned as EXIF says
 *   image_raw labels FILE                             the same with 16-bit numbers
 *   image_raw resize W H X Y BOX_W BOX_H OUT_W OUT_H bilinear|bicubic < RGB      RGB */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include "image/resize.h"
#include "image/source.h"

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

/* RGB, or with `labels` 16-bit numbers. */
static int decode(const char *path, enum ps_pixels pixels, bool orient)
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
	if (rc == 0)
		rc = ps_source_start(s, &(struct ps_region){0, 0, size.width, size.height}, 0, &err);
	if (rc == 0)
		printf("%u %u\n", size.width, size.height);
	for (uint32_t y = 0; rc == 0 && y < size.height; y += rows.n) {
		rc = ps_source_rows(s, &rows, &err);
		for (uint32_t i = 0; rc == 0 && i < rows.n; i++)
			fwrite(rows.first + i * rows.stride, ps_pixels_nbytes(pixels), size.width, stdout);
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

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "version"))
		return puts(STRINGIFY(LIBJPEG_TURBO_VERSION)) < 0;
	if (argc == 3 && !strcmp(argv[1], "decode"))
		return decode(argv[2], PS_PIXELS_RGB, false);
	if (argc == 3 && !strcmp(argv[1], "upright"))
		return decode(argv[2], PS_PIXELS_RGB, true);
	if (argc == 3 && !strcmp(argv[1], "labels"))
		return decode(argv[2], PS_PIXELS_LABELS, false);
	if (argc == 11 && !strcmp(argv[1], "resize"))
		return resize(argv + 2);
	return complain("usage: see the head of image_raw.c");
}
