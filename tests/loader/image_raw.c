/* Writes raw pixels of the decoder, the resize and the transforms, for comparison by other programs
 * (image_vs_pil.py). The input, where there is one, is RGB; the output is RGB except where stated.
 *
 *   image_raw version                        prints libjpeg-turbo's version
 *   image_raw decode FILE                    "WIDTH HEIGHT\n", then RGB
 *   image_raw upright FILE                   as decode, turned by the EXIF orientation
 *   image_raw region FILE X Y W H            as decode, a part of the upright image
 *   image_raw truncated FILE                 as decode, of a file that may lack its end
 *   image_raw truncated-region FILE X Y W H  as truncated, a part of the image
 *   image_raw truncated-rgba FILE            "WIDTH HEIGHT\n", then RGBA in 16 bits, of a file that may lack its end
 *   image_raw labels FILE                    "WIDTH HEIGHT\n", then 16-bit numbers
 *   image_raw resize W H X Y BOX_W BOX_H OUT_W OUT_H bilinear|bicubic < RGB
 *   image_raw affine W H A B C D E F FILL < RGB
 *   image_raw jitter W H BRIGHTNESS CONTRAST SATURATION TURN [ORDER] < RGB     ORDER as 0x3210, see pixel.h
 *   image_raw erase W H X0 Y0 X1 Y1 LEVEL < RGB
 *   image_raw pad W H X Y OUT_W OUT_H MODE [FILL FLIP FLIP_V] < RGB       OUT_W x OUT_H pixels from (X, Y) on
 *   image_raw draw SEED N                     see draws()
 *   image_raw gray W H < RGB
 *   image_raw blur W H SIZE SIGMA < RGB
 *   image_raw noise W H SIGMA KEY < RGB */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include "image/image.h"
#include "image/picture.h"

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

/* Writes the whole image, or a part, as RGB or as 16-bit numbers. */
static int decode(
        const char *path, enum ps_pixels pixels, bool orient, bool truncated, const struct ps_region *part)
{
	const struct ps_image_limits limits = {
	        .max_pixels = 1 << 26, .max_scans = 100, .max_memory = 1 << 28, .truncated = truncated};
	struct ps_error err = {0};
	struct ps_image_size size = {0};
	struct ps_image_rows rows = {0};
	size_t nbytes;
	FILE *f = fopen(path, "rb");
	ps_autofree uint8_t *data = read_all(f, &nbytes);
	struct ps_image_reader *s = ps_image_reader_new(pixels, orient, &limits);
	if (f)
		fclose(f);
	int rc = !s || !data ? -1 : ps_image_reader_open(s, data, nbytes, &size, &err);
	struct ps_region r = part->width ? *part : (struct ps_region){0, 0, size.width, size.height};
	if (rc == 0)
		rc = ps_image_reader_start(s, &r, 0, &err);
	if (rc == 0)
		printf("%u %u\n", r.width, r.height);
	for (uint32_t y = 0; rc == 0 && y < r.height; y += rows.n) {
		rc = ps_image_reader_rows(s, &rows, &err);
		for (uint32_t i = 0; rc == 0 && i < rows.n; i++)
			fwrite(rows.first + i * rows.stride, ps_pixels_nbytes(pixels), r.width, stdout);
	}
	ps_image_reader_free(s);
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
	/* The slack after the last row is still inside read_all()'s memory. */
	for (uint32_t y = region.y; y < region.y + region.height; y++)
		ps_resize_row(r, rgb + ((size_t)y * n[0] + region.x) * 3);
	ps_resize_free(r);
	return fwrite(out, 3, (size_t)n[6] * n[7], stdout) == (size_t)n[6] * n[7] ? 0
	                                                                          : complain("cannot write");
}

/* Reads RGB from stdin into three planes; the caller frees. */
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

static int pad(const double *x, const struct ps_planes *planes)
{
	struct ps_resize_geometry g = {.scaled_w = planes->width,
	        .scaled_h = planes->height,
	        .pad = {(uint32_t)x[2], (uint32_t)x[3], (int64_t)x[0], (int64_t)x[1], (enum ps_pad_mode)x[4]},
	        .flip = x[6] > 0,
	        .flip_v = x[7] > 0};
	const size_t n = (size_t)g.pad.width * g.pad.height;
	const uint8_t fill = (uint8_t)x[5];
	ps_autofree uint8_t *window = malloc((size_t)planes->width * planes->height), *to = malloc(3 * n);
	if (!window || !to)
		return complain("out of memory");
	ps_pad_window(g.pad.mode, g.pad.x, g.pad.width, g.scaled_w, &g.window_x, &g.window_w);
	ps_pad_window(g.pad.mode, g.pad.y, g.pad.height, g.scaled_h, &g.window_y, &g.window_h);
	for (size_t c = 0; c < 3; c++) {
		const uint8_t *plane = planes->p + c * planes->width * planes->height;
		uint8_t *at = window;
		/* ps_pad_apply() takes a window that is already flipped, as the resize writes it. */
		for (uint32_t y = 0; y < g.window_h; y++)
			for (uint32_t i = 0; i < g.window_w; i++)
				*at++ = plane[(g.window_y + (g.flip_v ? g.window_h - 1 - y : y)) *
				                      planes->width +
				              g.window_x + (g.flip ? g.window_w - 1 - i : i)];
		ps_pad_apply(&g, 1, window, &fill, to + c * n);
	}
	return write_planes(to, n);
}

/* Prints a line with the random draws for each of N images, cropped from 100 x 80 to 64 x 48: RandomCrop's
 * left and upper edge with a padding of 10, the erased rectangle (zeros: none), the jitter's order, the
 * size of the blur, the sigmas of noise and of blur. Then 0 or 1 for each operation (enum ps_choice_op),
 * with these groups: both flips (0.5 each) with probability 0.6; with probability 0.8 one of gray (weight
 * 0.2), blur (0.4) and noise (0.2). */
static int draws(const char *seed, const char *number)
{
	struct ps_error err = {0};
	struct ps_image_spec all = {.out_width = 64,
	        .out_height = 48,
	        .crop = PS_CROP_RANDOM,
	        .padding_x = 10,
	        .padding_y = 10,
	        .transforms = {.erase = 1,
	                .jitter = 1,
	                .hue = 0.1,
	                .jitter_random = true,
	                .blur = 1,
	                .blur_size = 3,
	                .blur_size_max = 7,
	                .blur_sigma_min = 0.5,
	                .blur_sigma_max = 3,
	                .noise = 1,
	                .noise_sigma = 5,
	                .noise_sigma_max = 25}};
	struct ps_image_spec grouped = all;
	grouped.hflip_probability = grouped.vflip_probability = 0.5;
	grouped.transforms.gray = grouped.transforms.noise = 0.2;
	grouped.transforms.blur = 0.4;
	if (ps_choice_parse(
	            "apply:0.6=hflip,vflip;one:0.8=gray,blur,noise", &grouped.transforms.groups, &err) < 0)
		return complain(err.text);
	for (uint64_t i = 0; i < strtoul(number, NULL, 10); i++) {
		const struct ps_rng_key key = {.seed = strtoul(seed, NULL, 10), .sample = i};
		struct ps_resize_geometry g;
		struct ps_transform t;
		ps_augment_geometry(&all, 100, 80, &key, &g);
		ps_transform_draw(&all, &key, &t);
		bool padded = g.pad.width > 0;
		printf("%d %d %u %u %u %u %04x %u %f %f", padded ? (int)g.pad.x : (int)g.window_x,
		        padded ? (int)g.pad.y : (int)g.window_y, t.erased.x0, t.erased.y0, t.erased.x1,
		        t.erased.y1, t.order, t.blur_size, t.noise_sigma, t.sigma);
		for (int op = 0; op < PS_CHOICE_NOPS; op++)
			printf(" %d", ps_choice_happens(&grouped, (enum ps_choice_op)op, &key));
		putchar('\n');
	}
	return 0;
}

/* Runs one operation of image/picture.h with the given numbers instead of random ones. */
static int operate(int argc, char **argv)
{
	uint32_t width = (uint32_t)strtoul(argv[2], NULL, 10), height = (uint32_t)strtoul(argv[3], NULL, 10);
	size_t n = (size_t)width * height;
	double x[10] = {0};
	ps_autofree uint8_t *p = read_planes(width, height), *spare = malloc(3 * n + 2);
	struct ps_planes planes = {p, width, height};
	if (!p || !spare)
		return complain("out of memory");
	for (int i = 4; i < argc && i < 14; i++)
		x[i - 4] = strtod(argv[i], NULL);
	if (!strcmp(argv[1], "affine")) {
		struct ps_affine map;
		memcpy(map.inverse, x, sizeof(map.inverse));
		ps_affine_apply(&map, &planes, (uint8_t)x[6], spare);
		return write_planes(spare, n);
	}
	if (!strcmp(argv[1], "jitter")) {
		/* A factor of 0 turns its operation off. */
		const struct ps_transform_spec spec = {
		        .brightness = x[0], .contrast = x[1], .saturation = x[2], .hue = x[3] ? 1 : 0};
		const struct ps_transform t = {.brightness = (uint32_t)(x[0] * 4096 + 0.5),
		        .contrast = (uint32_t)(x[1] * 4096 + 0.5),
		        .saturation = (uint32_t)(x[2] * 4096 + 0.5),
		        .turn = (int32_t)(x[3] * 6 * 65536),
		        .order = argc > 8 ? (uint32_t)x[4] : PS_JITTER_IN_ORDER};
		ps_color_jitter(&spec, &t, &planes);
	} else if (!strcmp(argv[1], "erase")) {
		const struct ps_erase e = {.x0 = (uint32_t)x[0],
		        .y0 = (uint32_t)x[1],
		        .x1 = (uint32_t)x[2],
		        .y1 = (uint32_t)x[3],
		        .level = {(uint8_t)x[4], (uint8_t)x[4], (uint8_t)x[4]}};
		ps_erase_apply(&e, &planes);
	} else if (!strcmp(argv[1], "pad")) {
		return pad(x, &planes);
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
	static const char *const operations[] = {"affine", "jitter", "gray", "blur", "noise", "erase", "pad"};
	struct ps_region region = {0};
	if (argc == 2 && !strcmp(argv[1], "version"))
		return puts(STRINGIFY(LIBJPEG_TURBO_VERSION)) < 0;
	if (argc == 3 && !strcmp(argv[1], "decode"))
		return decode(argv[2], PS_PIXELS_RGB, false, false, &region);
	if (argc == 3 && !strcmp(argv[1], "upright"))
		return decode(argv[2], PS_PIXELS_RGB, true, false, &region);
	if (argc == 3 && !strcmp(argv[1], "truncated"))
		return decode(argv[2], PS_PIXELS_RGB, false, true, &region);
	if (argc == 3 && !strcmp(argv[1], "truncated-rgba"))
		return decode(argv[2], PS_PIXELS_RGBA16, false, true, &region);
	if (argc == 3 && !strcmp(argv[1], "labels"))
		return decode(argv[2], PS_PIXELS_LABELS, false, false, &region);
	if (argc == 7 && (!strcmp(argv[1], "region") || !strcmp(argv[1], "truncated-region"))) {
		region.x = (uint32_t)strtoul(argv[3], NULL, 10);
		region.y = (uint32_t)strtoul(argv[4], NULL, 10);
		region.width = (uint32_t)strtoul(argv[5], NULL, 10);
		region.height = (uint32_t)strtoul(argv[6], NULL, 10);
		return decode(argv[2], PS_PIXELS_RGB, true, !strcmp(argv[1], "truncated-region"), &region);
	}
	if (argc == 4 && !strcmp(argv[1], "draw"))
		return draws(argv[2], argv[3]);
	if (argc == 11 && !strcmp(argv[1], "resize"))
		return resize(argv + 2);
	for (size_t i = 0; i < PS_ARRAY_LEN(operations) && argc >= 4; i++)
		if (!strcmp(argv[1], operations[i]))
			return operate(argc, argv);
	return complain("usage: see the head of image_raw.c");
}
