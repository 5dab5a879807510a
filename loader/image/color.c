/* The colours of transform.h. Loops over planes of bytes, which compilers turn into vectors. */
#include "image/pixel.h"
#include "image/transform.h"

static void brighten(uint32_t factor, uint8_t *p, size_t n)
{
	uint8_t table[256];
	for (uint32_t v = 0; v < 256; v++)
		table[v] = ps_pixel_brightened(factor, v);
	for (size_t i = 0; i < n; i++)
		p[i] = table[p[i]];
}

static void contrast(uint32_t factor, const struct ps_planes *planes)
{
	size_t n = (size_t)planes->width * planes->height;
	const uint8_t *r = planes->p, *g = r + n, *b = g + n;
	uint64_t sum = 0;
	uint8_t table[256];
	for (size_t i = 0; i < n; i++)
		sum += ps_pixel_gray(r[i], g[i], b[i]);
	int32_t mean = (int32_t)((sum + n / 2) / n);
	for (int32_t v = 0; v < 256; v++)
		table[v] = ps_pixel_from_gray(factor, mean, v);
	for (size_t i = 0; i < 3 * n; i++)
		planes->p[i] = table[planes->p[i]];
}

static void saturate(uint32_t factor, const struct ps_planes *planes)
{
	size_t n = (size_t)planes->width * planes->height;
	uint8_t *restrict r = planes->p, *restrict g = r + n, *restrict b = g + n;
	for (size_t i = 0; i < n; i++) {
		int32_t gray = ps_pixel_gray(r[i], g[i], b[i]);
		r[i] = ps_pixel_from_gray(factor, gray, r[i]);
		g[i] = ps_pixel_from_gray(factor, gray, g[i]);
		b[i] = ps_pixel_from_gray(factor, gray, b[i]);
	}
}

/* On each edge of the hexagon these channels are the largest, the middle and the smallest. */
static const uint8_t edges[6][3] = {{0, 1, 2}, {1, 0, 2}, {1, 2, 0}, {2, 1, 0}, {2, 0, 1}, {0, 2, 1}};

static void turn_hue(int32_t turn, const struct ps_planes *planes)
{
	size_t n = (size_t)planes->width * planes->height;
	uint32_t reciprocal[256] = {0};
	for (uint32_t d = 1; d < 256; d++)
		reciprocal[d] = ps_pixel_reciprocal(d);
	for (size_t i = 0; i < n; i++) {
		uint8_t v[3] = {planes->p[i], planes->p[n + i], planes->p[2 * n + i]};
		uint32_t most = PS_MAX(PS_MAX(v[0], v[1]), v[2]), least = PS_MIN(PS_MIN(v[0], v[1]), v[2]);
		if (most == least)
			continue;
		uint8_t middle;
		uint32_t edge = ps_pixel_turned(
		        v[0], v[1], v[2], most, least, reciprocal[most - least], turn, &middle);
		planes->p[edges[edge][0] * n + i] = (uint8_t)most;
		planes->p[edges[edge][1] * n + i] = middle;
		planes->p[edges[edge][2] * n + i] = (uint8_t)least;
	}
}

void ps_color_jitter(
        const struct ps_transform_spec *spec, const struct ps_transform *t, const struct ps_planes *planes)
{
	for (uint32_t i = 0; i < PS_JITTER_NSTEPS; i++) {
		switch (t->order >> 4 * i & 15) {
		case PS_JITTER_BRIGHTNESS:
			if (spec->brightness > 0)
				brighten(t->brightness, planes->p, (size_t)planes->width * planes->height * 3);
			break;
		case PS_JITTER_CONTRAST:
			if (spec->contrast > 0)
				contrast(t->contrast, planes);
			break;
		case PS_JITTER_SATURATION:
			if (spec->saturation > 0)
				saturate(t->saturation, planes);
			break;
		default:
			if (spec->hue > 0)
				turn_hue(t->turn, planes);
		}
	}
}

void ps_color_gray(const struct ps_planes *planes)
{
	size_t n = (size_t)planes->width * planes->height;
	uint8_t *restrict r = planes->p, *restrict g = r + n, *restrict b = g + n;
	for (size_t i = 0; i < n; i++)
		r[i] = g[i] = b[i] = ps_pixel_gray(r[i], g[i], b[i]);
}
