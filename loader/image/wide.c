/* Crop, resize and flip of RGBA, gray and 16-bit pictures, as picture.h defines it. Plain C, for pictures
 * that few datasets have: the resize of RGB in u8 has loops for each processor. */
#include "image/picture.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "image/pixel/pixel.h"

#define FRACTION 8
#define FULL UINT16_MAX

struct ps_wide {
	struct ps_image_spec spec;
	struct ps_resize_geometry geometry;
	struct ps_resize_tables tables;
	uint32_t channels;
	bool weighted;          /* colours are weighted by alpha */
	uint32_t row, next_out; /* next row of the source; first output row that is not complete */
	int32_t *source;        /* planes of a source row */
	int32_t *across;        /* a resized row: `channels` values a pixel */
	int64_t *sums;          /* sums of all output rows, in the same form */
	uint16_t *picture;      /* the window, flipped, and after it the padded picture */
	size_t cap_source, cap_across, cap_sums, cap_picture;
};

struct ps_wide *ps_wide_new(void)
{
	return calloc(1, sizeof(struct ps_wide));
}

void ps_wide_free(struct ps_wide *w)
{
	if (!w)
		return;
	free(w->source);
	free(w->across);
	free(w->sums);
	free(w->picture);
	free(w);
}

int ps_wide_begin(struct ps_wide *w, const struct ps_image_spec *spec,
        const struct ps_resize_geometry *geometry, const struct ps_resize *resize)
{
	w->spec = *spec;
	w->geometry = *geometry;
	ps_resize_tables(resize, &w->tables);
	w->channels = ps_image_channels(spec);
	w->weighted = w->channels == 4 &&
	              (geometry->scaled_w != geometry->box_w || geometry->scaled_h != geometry->box_h);
	w->row = w->next_out = 0;
	const size_t row = (size_t)geometry->window_w * w->channels;
	const size_t source = (size_t)w->tables.h->source_size * w->channels;
	if (ps_image_reserve(&w->source, &w->cap_source, source, sizeof(*w->source)) < 0 ||
	        ps_image_reserve(&w->across, &w->cap_across, row, sizeof(*w->across)) < 0 ||
	        ps_image_reserve(&w->sums, &w->cap_sums, row * geometry->window_h, sizeof(*w->sums)) < 0)
		return -ENOMEM;
	memset(w->sums, 0, row * geometry->window_h * sizeof(*w->sums));
	return 0;
}

/* A row -------------------------------------------------------------------------------------------------- */

static void row_split(struct ps_wide *w, const uint16_t *rgba)
{
	const uint32_t n = w->tables.h->source_size;
	for (uint32_t x = 0; x < n; x++, rgba += 4) {
		if (w->channels == 1) {
			w->source[x] =
			        (int32_t)((19595u * rgba[0] + 38470u * rgba[1] + 7471u * rgba[2] + 32768u) >>
			                  16);
			continue;
		}
		for (uint32_t c = 0; c < 3; c++)
			w->source[c * n + x] =
			        w->weighted ? (int32_t)(((uint32_t)rgba[c] * rgba[3] + FULL / 2) / FULL)
			                    : rgba[c];
		if (w->channels == 4)
			w->source[3 * n + x] = rgba[3];
	}
}

static int64_t rounded(int64_t sum, int bits)
{
	return (sum + ((int64_t)1 << (bits - 1))) >> bits;
}

static void row_resize(struct ps_wide *w)
{
	const struct ps_resize_axis *h = w->tables.h;
	for (uint32_t i = 0; i < h->n; i++) {
		const int16_t *weights = h->weights + (size_t)i * h->taps;
		for (uint32_t c = 0; c < w->channels; c++) {
			const int32_t *from = w->source + (size_t)c * h->source_size + h->first[i];
			int64_t sum = 0;
			for (uint32_t k = 0; k < h->count[i]; k++)
				sum += (int64_t)weights[k] * from[k];
			sum = rounded(sum, h->bits - FRACTION);
			w->across[i * w->channels + c] =
			        (int32_t)PS_MIN(PS_MAX(sum, 0), (int64_t)FULL << FRACTION);
		}
	}
}

void ps_wide_row(struct ps_wide *w, const uint16_t *rgba)
{
	const struct ps_resize_axis *v = w->tables.v;
	const size_t n = (size_t)w->geometry.window_w * w->channels;
	const uint32_t y = w->row++;
	row_split(w, rgba);
	row_resize(w);
	while (w->next_out < v->n && v->first[w->next_out] + v->count[w->next_out] <= y)
		w->next_out++;
	/* `first` ascends, so the loop ends at the first output row that begins after row y. */
	for (uint32_t i = w->next_out; i < v->n && v->first[i] <= y; i++) {
		if (y - v->first[i] >= v->count[i])
			continue;
		const int64_t weight = v->weights[(size_t)i * v->taps + (y - v->first[i])];
		int64_t *sums = w->sums + i * n;
		for (size_t k = 0; k < n; k++)
			sums[k] += weight * w->across[k];
	}
}

/* The picture -------------------------------------------------------------------------------------------- */

static void pixel_finish(const struct ps_wide *w, const int64_t *sums, uint16_t *to)
{
	const int bits = w->tables.v->bits + FRACTION;
	for (uint32_t c = 0; c < w->channels; c++)
		to[c] = (uint16_t)PS_MIN(PS_MAX(rounded(sums[c], bits), 0), FULL);
	for (uint32_t c = 0; c < 3 && w->weighted && to[3] > 0; c++)
		to[c] = (uint16_t)PS_MIN(((uint32_t)to[c] * FULL + to[3] / 2u) / to[3], FULL);
}

/* Finishes the window's rows, and flips them vertically; the horizontal flip is already done. */
static void window_finish(struct ps_wide *w)
{
	const uint32_t width = w->geometry.window_w, height = w->geometry.window_h;
	for (uint32_t y = 0; y < height; y++) {
		const int64_t *sums =
		        w->sums + (size_t)(w->tables.flip_v ? height - 1 - y : y) * width * w->channels;
		uint16_t *to = w->picture + (size_t)y * width * w->channels;
		for (size_t x = 0; x < width; x++)
			pixel_finish(w, sums + x * w->channels, to + x * w->channels);
	}
}

/* Writes one channel of a picture of n pixels to its place in dst. */
static void channel_pack(const struct ps_wide *w, uint32_t c, const uint16_t *from, size_t n, void *dst)
{
	const struct ps_image_spec *s = &w->spec;
	const bool planar = s->layout == PS_NCHW;
	const size_t step = planar ? 1 : w->channels, first = planar ? c * n : c;
	const double mean = c < 3 ? (double)s->mean[c] : 0, std = c < 3 ? (double)s->std[c] : 1;
	const float scale = (float)(1 / (FULL * std)), bias = (float)(-mean / std);
	for (size_t i = 0; i < n; i++) {
		const uint32_t v = from[i * w->channels + c];
		const size_t at = first + i * step;
		if (s->dtype == PS_U8)
			((uint8_t *)dst)[at] = (uint8_t)((v + 128) / 257);
		else if (s->dtype == PS_U16)
			((uint16_t *)dst)[at] = (uint16_t)v;
		else if (s->dtype == PS_F32)
			((float *)dst)[at] = ps_pixel_normalised(v, scale, bias);
		else if (s->dtype == PS_F16)
			((uint16_t *)dst)[at] = ps_f16_of(ps_pixel_normalised(v, scale, bias));
		else
			((uint16_t *)dst)[at] = ps_bf16_of(ps_pixel_normalised(v, scale, bias));
	}
}

int ps_wide_finish(struct ps_wide *w, void *dst)
{
	const struct ps_resize_geometry *g = &w->geometry;
	const uint16_t level = (uint16_t)(w->spec.transforms.fill * 257), fill[4] = {level, level, level, 0};
	const size_t window = (size_t)g->window_w * g->window_h,
	             out = (size_t)w->spec.out_width * w->spec.out_height;
	const size_t padded = g->pad.width > 0 ? out : 0;
	if (ps_image_reserve(
	            &w->picture, &w->cap_picture, (window + padded) * w->channels, sizeof(*w->picture)) < 0)
		return -ENOMEM;
	window_finish(w);
	const uint16_t *picture = w->picture;
	if (padded) {
		ps_pad_apply(
		        g, w->channels * sizeof(*fill), w->picture, fill, w->picture + window * w->channels);
		picture += window * w->channels;
	}
	for (uint32_t c = 0; c < w->channels; c++)
		channel_pack(w, c, picture, out, dst);
	return 0;
}
