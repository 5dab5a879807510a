#include "image/boxes.h"

#include <math.h>
#include <string.h>

#include "image/view.h"

/* First `a`, then `b`. */
static void compose(const double a[6], const double b[6], double ret[static 6])
{
	const double m[6] = {b[0] * a[0] + b[1] * a[3], b[0] * a[1] + b[1] * a[4],
	        b[0] * a[2] + b[1] * a[5] + b[2], b[3] * a[0] + b[4] * a[3], b[3] * a[1] + b[4] * a[4],
	        b[3] * a[2] + b[4] * a[5] + b[5]};
	memcpy(ret, m, sizeof m);
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
	const double crop[6] = {
	        zoom_x, 0, -zoom_x * g->box_x - left, 0, zoom_y, -zoom_y * g->box_y - top};
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
	return fmin(fmax(v, 0), most); /* what is no number becomes 0 */
}

static void place(const struct ps_boxes_map *map, const double box[4], float *ret)
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
	ret[0] = (float)cut(x0, map->width);
	ret[1] = (float)cut(y0, map->height);
	ret[2] = (float)cut(x1, map->width);
	ret[3] = (float)cut(y1, map->height);
}

void ps_boxes_place(const struct ps_boxes_map *map, enum ps_box_format format, float *boxes, size_t n)
{
	for (size_t i = 0; i < n; i++, boxes += 4) {
		double a = (double)boxes[0], b = (double)boxes[1], c = (double)boxes[2], d = (double)boxes[3];
		double box[4] = {a, b, c, d};
		if (format == PS_BOX_CXCYWH) {
			box[0] = a - c / 2;
			box[1] = b - d / 2;
		}
		if (format != PS_BOX_XYXY) {
			box[2] = box[0] + c;
			box[3] = box[1] + d;
		}
		place(map, box, boxes);
	}
}
