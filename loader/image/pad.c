#include "image/pad.h"

#include <string.h>

#include "base/cleanup.h"
#include "image/resize.h"

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
	int64_t at;                              /* the picture's first pixel */
	uint32_t size, scaled, window, nwindow; /* the window begins at `window` */
	bool flip;
};

/* The window's pixel that stands at i; -1: the fill. */
static int64_t window_of(const struct axis *a, uint32_t i)
{
	int64_t source = ps_pad_source(a->mode, a->at + (a->flip ? a->size - 1 - i : i), a->scaled);
	if (source < 0)
		return -1;
	source -= a->window;
	return a->flip ? a->nwindow - 1 - source : source;
}

/* Pixels [*ret_begin, *ret_end) show the window's, one after the other. */
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

void ps_pad_apply(
        const struct ps_resize_geometry *g, size_t nbytes, const void *window, const void *fill, void *to_planes)
{
	const struct ps_pad *p = &g->pad;
	const struct axis across = {p->mode, p->x, p->width, g->scaled_w, g->window_x, g->window_w, g->flip};
	const struct axis down = {p->mode, p->y, p->height, g->scaled_h, g->window_y, g->window_h, g->flip_v};
	uint8_t *to = to_planes;
	uint32_t begin, end;
	inside(&across, &begin, &end);
	for (uint32_t y = 0; y < p->height; y++, to += p->width * nbytes) {
		int64_t from = window_of(&down, y);
		const uint8_t *row = (const uint8_t *)window + (size_t)(from < 0 ? 0 : from) * g->window_w * nbytes;
		for (uint32_t x = 0; x < (from < 0 ? p->width : begin); x++)
			pixel(nbytes, row, from < 0 ? -1 : window_of(&across, x), fill, to + x * nbytes);
		if (from < 0)
			continue;
		memcpy(to + begin * nbytes, row + (size_t)window_of(&across, begin) * nbytes, (end - begin) * nbytes);
		for (uint32_t x = end; x < p->width; x++)
			pixel(nbytes, row, window_of(&across, x), fill, to + x * nbytes);
	}
}
