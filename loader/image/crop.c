#include "image/picture.h"

#include <math.h>
#include <string.h>

#include "base/cleanup.h"

#define TRIES 10u
#define DRAWS_PER_TRY 4u

static double uniform(const struct ps_rng_key *key, uint32_t index, double min, double max)
{
	return min + (max - min) * ps_rng_unit(key, PS_RNG_CROP, index);
}

static void random_box(const struct ps_image_spec *spec, struct ps_resize_geometry *g, uint32_t width,
        uint32_t height, const struct ps_rng_key *key)
{
	double log_min = ps_fixed_log(spec->ratio_min), log_max = ps_fixed_log(spec->ratio_max);
	for (uint32_t i = 0; i < TRIES * DRAWS_PER_TRY; i += DRAWS_PER_TRY) {
		double area = (double)width * height * uniform(key, i, spec->scale_min, spec->scale_max);
		double ratio = ps_fixed_exp(uniform(key, i + 1, log_min, log_max));
		double w = rint(sqrt(area * ratio)), h = rint(sqrt(area / ratio));
		if (!(w >= 1 && w <= width && h >= 1 && h <= height))
			continue;
		g->box_w = (uint32_t)w;
		g->box_h = (uint32_t)h;
		g->box_y = (uint32_t)ps_rng_below(key, PS_RNG_CROP, i + 2, height - g->box_h + 1);
		g->box_x = (uint32_t)ps_rng_below(key, PS_RNG_CROP, i + 3, width - g->box_w + 1);
		return;
	}
	/* None fits: the largest centred box whose ratio is within the spec's. */
	double ratio = (double)width / height, w = width, h = height;
	if (ratio < spec->ratio_min)
		h = rint(w / spec->ratio_min);
	else if (ratio > spec->ratio_max)
		w = rint(h * spec->ratio_max);
	/* At least one pixel, even with a ratio far from 1 on an image of a few pixels. */
	g->box_w = (uint32_t)fmin(fmax(w, 1), width);
	g->box_h = (uint32_t)fmin(fmax(h, 1), height);
	g->box_x = (width - g->box_w) / 2;
	g->box_y = (height - g->box_h) / 2;
}

/* Sets the size that the whole image is resized to before it is cropped. */
static void scale(
        const struct ps_image_spec *spec, struct ps_resize_geometry *g, uint32_t width, uint32_t height)
{
	uint64_t shorter = spec->resize_shorter;
	g->scaled_w = spec->resize_width ? spec->resize_width : width;
	g->scaled_h = spec->resize_height ? spec->resize_height : height;
	if (shorter == 0)
		return;
	if (width <= height) {
		g->scaled_w = spec->resize_shorter;
		g->scaled_h = (uint32_t)PS_MIN(shorter * height / width, UINT32_MAX / 2);
	} else {
		g->scaled_h = spec->resize_shorter;
		g->scaled_w = (uint32_t)PS_MIN(shorter * width / height, UINT32_MAX / 2);
	}
}

/* Draws where a crop of `out` pixels begins, in pixels of the scaled image. */
static int64_t random_start(
        const struct ps_rng_key *key, uint32_t index, uint32_t scaled, uint32_t padding, uint32_t out)
{
	uint64_t all = (uint64_t)scaled + 2 * padding, before = padding;
	if (all < out) {
		before += out - all;
		all += 2 * (out - all);
	}
	return (int64_t)ps_rng_below(key, PS_RNG_CROP, index, all - out + 1) - (int64_t)before;
}

static void random_window(const struct ps_image_spec *spec, struct ps_resize_geometry *g, uint32_t width,
        uint32_t height, const struct ps_rng_key *key)
{
	scale(spec, g, width, height);
	struct ps_pad pad = {.width = spec->out_width,
	        .height = spec->out_height,
	        .x = random_start(key, 3, g->scaled_w, spec->padding_x, spec->out_width),
	        .y = random_start(key, 2, g->scaled_h, spec->padding_y, spec->out_height),
	        .mode = spec->padding};
	if (pad.x >= 0 && pad.y >= 0 && pad.x + pad.width <= g->scaled_w &&
	        pad.y + pad.height <= g->scaled_h) {
		g->window_x = (uint32_t)pad.x;
		g->window_y = (uint32_t)pad.y;
		return;
	}
	g->pad = pad;
	ps_pad_window(pad.mode, pad.x, pad.width, g->scaled_w, &g->window_x, &g->window_w);
	ps_pad_window(pad.mode, pad.y, pad.height, g->scaled_h, &g->window_y, &g->window_h);
}

/* side * out / full, rounded to the nearest, halves up. */
static uint32_t in_proportion(uint32_t side, uint32_t out, uint32_t full)
{
	return (uint32_t)PS_MAX((2 * (uint64_t)side * out + full) / (2 * (uint64_t)full), 1u);
}

static void letterbox(
        const struct ps_image_spec *spec, struct ps_resize_geometry *g, uint32_t width, uint32_t height)
{
	if ((uint64_t)width * spec->out_height >= (uint64_t)height * spec->out_width)
		g->scaled_h = in_proportion(height, spec->out_width, width);
	else
		g->scaled_w = in_proportion(width, spec->out_height, height);
	g->window_w = g->scaled_w;
	g->window_h = g->scaled_h;
	if (g->scaled_w == spec->out_width && g->scaled_h == spec->out_height)
		return;
	g->pad = (struct ps_pad){.width = spec->out_width,
	        .height = spec->out_height,
	        .x = -(int64_t)((spec->out_width - g->scaled_w) / 2),
	        .y = -(int64_t)((spec->out_height - g->scaled_h) / 2),
	        .mode = spec->padding};
}

void ps_augment_geometry(const struct ps_image_spec *spec, uint32_t width, uint32_t height,
        const struct ps_rng_key *key, struct ps_resize_geometry *ret_geometry)
{
	struct ps_resize_geometry g = {
	        .box_w = width,
	        .box_h = height,
	        .scaled_w = spec->out_width,
	        .scaled_h = spec->out_height,
	        .window_w = spec->out_width,
	        .window_h = spec->out_height,
	        .flip = ps_choice_happens(spec, PS_CHOICE_HFLIP, key),
	        .flip_v = ps_choice_happens(spec, PS_CHOICE_VFLIP, key),
	};
	switch (spec->crop) {
	case PS_CROP_RANDOM_RESIZED:
		random_box(spec, &g, width, height, key);
		break;
	case PS_CROP_CENTER:
		scale(spec, &g, width, height);
		g.window_x = (uint32_t)rint((g.scaled_w - spec->out_width) / 2.0);
		g.window_y = (uint32_t)rint((g.scaled_h - spec->out_height) / 2.0);
		break;
	case PS_CROP_RANDOM:
		random_window(spec, &g, width, height, key);
		break;
	case PS_CROP_LETTERBOX:
		letterbox(spec, &g, width, height);
		break;
	case PS_CROP_NONE:
		break;
	}
	*ret_geometry = g;
}

/* Padding ----------------------------------------------------------------------------------------------- */

int64_t ps_pad_source(enum ps_pad_mode mode, int64_t at, uint32_t n)
{
	if (at >= 0 && at < n)
		return at;
	if (mode == PS_PAD_FILL)
		return -1;
	if (mode == PS_PAD_EDGE || n == 1)
		return at < 0 ? 0 : (int64_t)n - 1;
	int64_t period = mode == PS_PAD_REFLECT ? 2 * ((int64_t)n - 1) : 2 * (int64_t)n;
	at = (at % period + period) % period;
	if (at < n)
		return at;
	return mode == PS_PAD_REFLECT ? period - at : period - 1 - at;
}

void ps_pad_window(
        enum ps_pad_mode mode, int64_t at, uint32_t size, uint32_t n, uint32_t *ret_first, uint32_t *ret_n)
{
	int64_t first = n, last = 0;
	for (uint32_t i = 0; i < size; i++) {
		int64_t source = ps_pad_source(mode, at + i, n);
		first = source >= 0 ? PS_MIN(first, source) : first;
		last = PS_MAX(last, source);
	}
	*ret_first = (uint32_t)first;
	*ret_n = (uint32_t)(last - first + 1);
}

/* One axis of a picture, and the window's part of it. */
struct axis {
	enum ps_pad_mode mode;
	int64_t at;                             /* the picture's first pixel */
	uint32_t size, scaled, window, nwindow; /* the window begins at `window` */
	bool flip;
};

/* The window's pixel that the picture shows at i; -1: the fill. */
static int64_t window_of(const struct axis *a, uint32_t i)
{
	int64_t source = ps_pad_source(a->mode, a->at + (a->flip ? a->size - 1 - i : i), a->scaled);
	if (source < 0)
		return -1;
	source -= a->window;
	return a->flip ? a->nwindow - 1 - source : source;
}

/* The picture's pixels [*ret_begin, *ret_end) show consecutive pixels of the window. */
static void inside(const struct axis *a, uint32_t *ret_begin, uint32_t *ret_end)
{
	int64_t begin = PS_MAX(-a->at, 0), end = PS_MIN((int64_t)a->scaled - a->at, (int64_t)a->size);
	*ret_begin = (uint32_t)(a->flip ? a->size - end : begin);
	*ret_end = (uint32_t)(a->flip ? a->size - begin : end);
}

static void pixel(size_t nbytes, const uint8_t *row, int64_t at, const uint8_t *fill, uint8_t *to)
{
	memcpy(to, at < 0 ? fill : row + (size_t)at * nbytes, nbytes);
}

void ps_pad_apply(const struct ps_resize_geometry *g, size_t nbytes, const void *window, const void *fill,
        void *to_planes)
{
	const struct ps_pad *p = &g->pad;
	const struct axis across = {p->mode, p->x, p->width, g->scaled_w, g->window_x, g->window_w, g->flip};
	const struct axis down = {p->mode, p->y, p->height, g->scaled_h, g->window_y, g->window_h, g->flip_v};
	uint8_t *to = to_planes;
	uint32_t begin, end;
	inside(&across, &begin, &end);
	for (uint32_t y = 0; y < p->height; y++, to += p->width * nbytes) {
		int64_t from = window_of(&down, y);
		const uint8_t *row =
		        (const uint8_t *)window + (size_t)(from < 0 ? 0 : from) * g->window_w * nbytes;
		for (uint32_t x = 0; x < (from < 0 ? p->width : begin); x++)
			pixel(nbytes, row, from < 0 ? -1 : window_of(&across, x), fill, to + x * nbytes);
		if (from < 0)
			continue;
		memcpy(to + begin * nbytes, row + (size_t)window_of(&across, begin) * nbytes,
		        (end - begin) * nbytes);
		for (uint32_t x = end; x < p->width; x++)
			pixel(nbytes, row, window_of(&across, x), fill, to + x * nbytes);
	}
}
