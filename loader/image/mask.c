#include "image/image.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/size.h"
#include "image/picture.h"

struct ps_mask_decoder {
	struct ps_mask_spec spec;
	struct ps_image_reader *source;
	uint16_t *labels;  /* labels of all views, as decoded ... */
	uint16_t *mapped;  /* ... and of one view, padded or after its affine map */
	uint32_t *columns; /* for each view: the source column of each output column */
	uint32_t *next;    /* for each view: the output row to be filled next */
	size_t cap_labels, cap_mapped, cap_columns, cap_next;
};

int ps_mask_spec_check(const struct ps_mask_spec *s, struct ps_error *err)
{
	uint32_t most = 65535;
	switch (s->dtype) {
	case PS_U8:
		most = 255;
		break;
	case PS_I16:
		most = 32767;
		break;
	case PS_U16:
	case PS_I32:
	case PS_I64:
		break;
	default:
		return ps_error_set(err, EINVAL, "mask: dtype %s: must be u8, u16, i16, i32 or i64",
		        ps_dtype_name(s->dtype));
	}
	if (s->fill > most)
		return ps_error_set(err, EINVAL, "mask: fill %u: must be at most %u", s->fill, most);
	return 0;
}

struct ps_mask_decoder *ps_mask_decoder_new(const struct ps_mask_spec *spec)
{
	const struct ps_image_limits limits = {
	        .max_pixels = spec->max_pixels, .max_memory = spec->max_memory, .ticket = spec->ticket};
	struct ps_mask_decoder *m = calloc(1, sizeof(*m));
	if (!m)
		return NULL;
	m->spec = *spec;
	m->source = ps_image_reader_new(PS_PIXELS_LABELS, spec->orient, &limits);
	if (!m->source) {
		free(m);
		return NULL;
	}
	return m;
}

void ps_mask_decoder_free(struct ps_mask_decoder *m)
{
	if (!m)
		return;
	ps_image_reader_free(m->source);
	free(m->labels);
	free(m->mapped);
	free(m->columns);
	free(m->next);
	free(m);
}

/* The source row or column of output i. */
static uint32_t source_of(uint32_t box_start, uint32_t box, uint32_t scaled, uint32_t i)
{
	return box_start + (uint32_t)((2 * (uint64_t)i + 1) * box / (2 * (uint64_t)scaled));
}

static uint32_t source_row(const struct ps_resize_geometry *g, uint32_t out)
{
	return source_of(g->box_y, g->box_h, g->scaled_h, g->window_y + out);
}

/* The size of each view's picture, which is that of the image field. No view's window is larger. */
static struct ps_image_size picture_of(const struct ps_image_placement *p)
{
	const struct ps_resize_geometry *g = &p->views[0].geometry;
	if (g->pad.width > 0)
		return (struct ps_image_size){g->pad.width, g->pad.height};
	return (struct ps_image_size){g->window_w, g->window_h};
}

static int begin(struct ps_mask_decoder *m, const struct ps_image_placement *p, struct ps_region *all,
        struct ps_error *err)
{
	const struct ps_image_size picture = picture_of(p);
	uint32_t width = picture.width, height = picture.height, n = p->nviews;
	size_t pixels = (size_t)width * height;
	if (ps_image_reserve(&m->mapped, &m->cap_mapped, pixels, sizeof(*m->mapped)) < 0 ||
	        ps_image_reserve(&m->labels, &m->cap_labels, pixels * n, sizeof(*m->labels)) < 0 ||
	        ps_image_reserve(&m->columns, &m->cap_columns, (size_t)width * n, sizeof(*m->columns)) < 0 ||
	        ps_image_reserve(&m->next, &m->cap_next, n, sizeof(*m->next)) < 0)
		return ps_error_set(err, ENOMEM, "mask: out of memory");
	uint32_t left = UINT32_MAX, top = UINT32_MAX, right = 0, bottom = 0;
	for (uint32_t v = 0; v < n; v++) {
		const struct ps_resize_geometry *g = &p->views[v].geometry;
		m->next[v] = 0;
		for (uint32_t i = 0; i < g->window_w; i++) {
			uint32_t plain = g->flip ? g->window_w - 1 - i : i;
			m->columns[v * width + i] =
			        source_of(g->box_x, g->box_w, g->scaled_w, g->window_x + plain);
			left = PS_MIN(left, m->columns[v * width + i]);
			right = PS_MAX(right, m->columns[v * width + i]);
		}
		top = PS_MIN(top, source_row(g, 0));
		bottom = PS_MAX(bottom, source_row(g, g->window_h - 1));
	}
	*all = (struct ps_region){left, top, right - left + 1, bottom - top + 1};
	return 0;
}

/* Copies row y of the source, which begins at column `left`, to every output row that shows it. */
static void feed(struct ps_mask_decoder *m, const struct ps_image_placement *p, uint32_t left, uint32_t y,
        const uint16_t *row)
{
	const struct ps_image_size picture = picture_of(p);
	for (uint32_t v = 0; v < p->nviews; v++) {
		const struct ps_resize_geometry *g = &p->views[v].geometry;
		uint16_t *view = m->labels + (size_t)v * picture.width * picture.height;
		const uint32_t *columns = m->columns + (size_t)v * picture.width;
		for (; m->next[v] < g->window_h && source_row(g, m->next[v]) == y; m->next[v]++) {
			uint32_t out = g->flip_v ? g->window_h - 1 - m->next[v] : m->next[v];
			uint16_t *to = view + (size_t)out * g->window_w;
			for (uint32_t i = 0; i < g->window_w; i++)
				to[i] = row[columns[i] - left];
		}
	}
}

static bool store(enum ps_dtype dtype, const uint16_t *from, size_t n, void *dst)
{
	uint32_t most = dtype == PS_U8 ? 255 : dtype == PS_I16 ? 32767 : 65535;
	for (size_t i = 0; i < n; i++) {
		if (from[i] > most)
			return false;
		if (dtype == PS_U8)
			((uint8_t *)dst)[i] = (uint8_t)from[i];
		else if (dtype == PS_I32)
			((int32_t *)dst)[i] = from[i];
		else if (dtype == PS_I64)
			((int64_t *)dst)[i] = from[i];
		else
			((uint16_t *)dst)[i] = from[i];
	}
	return true;
}

static int finish(
        struct ps_mask_decoder *m, const struct ps_image_placement *p, void *dst, struct ps_error *err)
{
	const struct ps_image_size picture = picture_of(p);
	const uint16_t fill = (uint16_t)m->spec.fill;
	for (uint32_t v = 0; v < p->nviews; v++) {
		const struct ps_image_view *view = &p->views[v];
		uint32_t width = picture.width, height = picture.height;
		size_t n = (size_t)width * height;
		uint16_t *labels = m->labels + v * n;
		if (view->geometry.pad.width > 0) {
			ps_pad_apply(&view->geometry, sizeof(*labels), labels, &fill, m->mapped);
			memcpy(labels, m->mapped, n * sizeof(*labels));
		}
		if (view->transform.affine) {
			ps_affine_labels(&view->transform.map, labels, width, height, fill, m->mapped);
			labels = m->mapped;
		}
		if (!store(m->spec.dtype, labels, n,
		            (uint8_t *)dst + v * n * ps_dtype_nbytes(m->spec.dtype))) {
			ps_error_set(err, EBADMSG,
			        "mask: has labels that %s cannot hold; choose another dtype",
			        ps_dtype_name(m->spec.dtype));
			err->advised = true;
			return -EBADMSG;
		}
	}
	return 0;
}

int ps_mask_decode(struct ps_mask_decoder *m, const struct ps_image_placement *placement, const void *data,
        size_t nbytes, void *dst, struct ps_error *err)
{
	const struct ps_image_placement *p = placement;
	struct ps_image_rows rows = {0};
	struct ps_image_size size;
	struct ps_region all;
	if (p->width == 0)
		return ps_error_set(err, EBADMSG, "mask: the image it follows was not decoded");
	int rc = ps_image_reader_open(m->source, data, nbytes, &size, err);
	if (rc == 0 && (size.width != p->width || size.height != p->height))
		rc = ps_error_set(err, EBADMSG, "mask: is %u x %u, but the image that it follows is %u x %u",
		        size.width, size.height, p->width, p->height);
	if (rc == 0)
		rc = begin(m, p, &all, err);
	if (rc == 0)
		rc = ps_image_reader_start(m->source, &all, 0, err);
	for (uint32_t y = 0; rc == 0 && y < all.height; y += rows.n) {
		rc = ps_image_reader_rows(m->source, &rows, err);
		for (uint32_t i = 0; i < rows.n && rc == 0; i++)
			feed(m, p, all.x, all.y + y + i,
			        (const uint16_t *)(const void *)(rows.first + i * rows.stride));
	}
	if (rc == 0)
		rc = finish(m, p, dst, err);
	ps_image_reader_close(m->source);
	return rc;
}

/* Boxes -------------------------------------------------------------------------------------------------- */

/* The affine map that applies `a`, then `b`. */
static void compose(const double a[6], const double b[6], double ret[static 6])
{
	const double m[6] = {b[0] * a[0] + b[1] * a[3], b[0] * a[1] + b[1] * a[4],
	        b[0] * a[2] + b[1] * a[5] + b[2], b[3] * a[0] + b[4] * a[3], b[3] * a[1] + b[4] * a[4],
	        b[3] * a[2] + b[4] * a[5] + b[5]};
	memcpy(ret, m, sizeof(m));
}

static void invert(const double i[6], double ret[static 6])
{
	double det = i[0] * i[4] - i[1] * i[3];
	ret[0] = i[4] / det;
	ret[1] = -i[1] / det;
	ret[3] = -i[3] / det;
	ret[4] = i[0] / det;
	ret[2] = -(ret[0] * i[2] + ret[1] * i[5]);
	ret[5] = -(ret[3] * i[2] + ret[4] * i[5]);
}

struct ps_boxes_map ps_boxes_map_of(const struct ps_image_placement *placement, uint32_t view, bool shares)
{
	const struct ps_image_view *v = &placement->views[view];
	const struct ps_resize_geometry *g = &v->geometry;
	const struct ps_pad *pad = &g->pad;
	bool padded = pad->width > 0;
	struct ps_boxes_map map = {.m = {1, 0, 0, 0, 1, 0},
	        .width = padded ? pad->width : g->window_w,
	        .height = padded ? pad->height : g->window_h};
	double left = padded ? (double)pad->x : g->window_x, top = padded ? (double)pad->y : g->window_y;
	if (shares) {
		map.m[0] = placement->width;
		map.m[4] = placement->height;
	}
	double zoom_x = (double)g->scaled_w / g->box_w, zoom_y = (double)g->scaled_h / g->box_h;
	const double crop[6] = {zoom_x, 0, -zoom_x * g->box_x - left, 0, zoom_y, -zoom_y * g->box_y - top};
	compose(map.m, crop, map.m);
	if (g->flip)
		compose(map.m, (const double[6]){-1, 0, map.width, 0, 1, 0}, map.m);
	if (g->flip_v)
		compose(map.m, (const double[6]){1, 0, 0, 0, -1, map.height}, map.m);
	if (v->transform.affine) {
		double forward[6];
		invert(v->transform.map.inverse, forward);
		compose(map.m, forward, map.m);
	}
	return map;
}

static double cut(double v, double most)
{
	return fmin(fmax(v, 0), most); /* NaN becomes 0 */
}

/* Areas of a box in square pixels, before and after it is cut. They are computed before coordinates are rounded to
 * floats, so they are equal for a box that is within the picture. */
struct areas {
	double whole, left;
};

static struct areas place(const struct ps_boxes_map *map, const double box[4], float *ret)
{
	const double *m = map->m;
	double x0 = INFINITY, y0 = INFINITY, x1 = -INFINITY, y1 = -INFINITY;
	for (int corner = 0; corner < 4; corner++) {
		double x = box[corner & 1 ? 2 : 0], y = box[corner & 2 ? 3 : 1];
		double tx = m[0] * x + m[1] * y + m[2], ty = m[3] * x + m[4] * y + m[5];
		x0 = fmin(x0, tx);
		x1 = fmax(x1, tx);
		y0 = fmin(y0, ty);
		y1 = fmax(y1, ty);
	}
	struct areas areas = {.whole = (x1 - x0) * (y1 - y0)};
	x0 = cut(x0, map->width);
	y0 = cut(y0, map->height);
	x1 = cut(x1, map->width);
	y1 = cut(y1, map->height);
	areas.left = (x1 - x0) * (y1 - y0);
	ret[0] = (float)x0;
	ret[1] = (float)y0;
	ret[2] = (float)x1;
	ret[3] = (float)y1;
	return areas;
}

static struct areas place_one(const struct ps_boxes_map *map, enum ps_box_format format, float *b)
{
	double box[4] = {(double)b[0], (double)b[1], (double)b[2], (double)b[3]};
	if (format == PS_BOX_CXCYWH) {
		box[0] -= box[2] / 2;
		box[1] -= box[3] / 2;
	}
	if (format != PS_BOX_XYXY) {
		box[2] += box[0];
		box[3] += box[1];
	}
	return place(map, box, b);
}

void ps_boxes_place(const struct ps_boxes_map *map, enum ps_box_format format, float *boxes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		place_one(map, format, boxes + 4 * i);
}

size_t ps_boxes_place_some(const struct ps_boxes_map *map, enum ps_box_format format, double min_area,
        double min_visible, float *boxes, size_t n, uint32_t *kept)
{
	size_t left = 0;
	for (size_t i = 0; i < n; i++) {
		float *b = boxes + 4 * i;
		struct areas area = place_one(map, format, b);
		if (!(area.left > 0) || area.left < min_area || area.left < min_visible * area.whole)
			continue;
		memmove(boxes + 4 * left, b, 4 * sizeof(*b));
		kept[left++] = (uint32_t)i;
	}
	return left;
}
