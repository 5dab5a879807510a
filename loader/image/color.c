/* The colours of transform.h. Loops over planes of bytes, which compilers turn into vectors. */
#include "image/transform.h"

#define ROUND12 2048
#define ONE12 4096

static uint8_t clamp(int32_t v)
{
	return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

static uint8_t gray_of(uint8_t r, uint8_t g, uint8_t b)
{
	return (uint8_t)((19595u * r + 38470u * g + 7471u * b + 32768u) >> 16);
}

static void brighten(uint32_t factor, uint8_t *p, size_t n)
{
	uint8_t table[256];
	for (uint32_t v = 0; v < 256; v++)
		table[v] = clamp((int32_t)((factor * v + ROUND12) >> 12));
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
		sum += gray_of(r[i], g[i], b[i]);
	int32_t k = (int32_t)factor, rest = (ONE12 - k) * (int32_t)((sum + n / 2) / n);
	for (int32_t v = 0; v < 256; v++)
		table[v] = clamp((k * v + rest + ROUND12) >> 12);
	for (size_t i = 0; i < 3 * n; i++)
		planes->p[i] = table[planes->p[i]];
}

static void saturate(uint32_t factor, const struct ps_planes *planes)
{
	size_t n = (size_t)planes->width * planes->height;
	uint8_t *restrict r = planes->p, *restrict g = r + n, *restrict b = g + n;
	int32_t k = (int32_t)factor;
	for (size_t i = 0; i < n; i++) {
		int32_t rest = (ONE12 - k) * gray_of(r[i], g[i], b[i]) + ROUND12;
		r[i] = clamp((k * r[i] + rest) >> 12);
		g[i] = clamp((k * g[i] + rest) >> 12);
		b[i] = clamp((k * b[i] + rest) >> 12);
	}
}

/* The hexagon: red, yellow, green, cyan, blue, magenta. On edge e, from corner e to e + 1, these channels are
 * the largest, the middle and the smallest; the middle one grows on even edges and falls on odd ones. */
static const uint8_t edges[6][3] = {{0, 1, 2}, {1, 0, 2}, {1, 2, 0}, {2, 1, 0}, {2, 0, 1}, {0, 2, 1}};

#define CORNER 65536
#define CIRCLE (6 * CORNER)

/* Position on the hexagon: the corner of the largest channel, and how far from it. */
static int32_t position_of(const uint8_t v[3], uint32_t most, uint32_t least, const uint32_t reciprocal[256])
{
	uint32_t c = v[0] == most ? 0 : v[1] == most ? 1 : 2;
	int32_t difference = (int32_t)v[(c + 1) % 3] - (int32_t)v[(c + 2) % 3];
	uint32_t amount = (uint32_t)(difference < 0 ? -difference : difference);
	int32_t part = (int32_t)((amount * reciprocal[most - least]) >> 8);
	return (int32_t)c * 2 * CORNER + (difference < 0 ? -part : part);
}

static void turn_hue(int32_t turn, const struct ps_planes *planes)
{
	size_t n = (size_t)planes->width * planes->height;
	uint32_t reciprocal[256] = {0};
	for (uint32_t d = 1; d < 256; d++)
		reciprocal[d] = ((1u << 24) + d / 2) / d;
	for (size_t i = 0; i < n; i++) {
		uint8_t v[3] = {planes->p[i], planes->p[n + i], planes->p[2 * n + i]};
		uint32_t most = PS_MAX(PS_MAX(v[0], v[1]), v[2]), least = PS_MIN(PS_MIN(v[0], v[1]), v[2]);
		if (most == least)
			continue;
		int32_t position = position_of(v, most, least, reciprocal) + turn;
		position += position < 0 ? CIRCLE : 0;
		position -= position >= CIRCLE ? CIRCLE : 0;
		uint32_t edge = (uint32_t)position / CORNER, fraction = (uint32_t)position % CORNER;
		if (edge % 2)
			fraction = CORNER - fraction;
		planes->p[edges[edge][0] * n + i] = (uint8_t)most;
		planes->p[edges[edge][1] * n + i] =
		        (uint8_t)(least + (((most - least) * fraction + CORNER / 2) >> 16));
		planes->p[edges[edge][2] * n + i] = (uint8_t)least;
	}
}

void ps_color_jitter(
        const struct ps_transform_spec *spec, const struct ps_transform *t, const struct ps_planes *planes)
{
	if (spec->brightness > 0)
		brighten(t->brightness, planes->p, (size_t)planes->width * planes->height * 3);
	if (spec->contrast > 0)
		contrast(t->contrast, planes);
	if (spec->saturation > 0)
		saturate(t->saturation, planes);
	if (spec->hue > 0)
		turn_hue(t->turn, planes);
}

void ps_color_gray(const struct ps_planes *planes)
{
	size_t n = (size_t)planes->width * planes->height;
	uint8_t *restrict r = planes->p, *restrict g = r + n, *restrict b = g + n;
	for (size_t i = 0; i < n; i++)
		r[i] = g[i] = b[i] = gray_of(r[i], g[i], b[i]);
}
