/* The affine part of transform.h. */
#include <math.h>

#include "image/transform.h"

#define ONE (INT64_C(1) << 32)

struct coefficients {
	int64_t xx, xy, x0, yx, yy, y0; /* 2^-32 pixels */
};

static int64_t fixed(double v)
{
	return (int64_t)floor(v * (double)ONE + 0.5);
}

/* Of pixels' numbers, not centres: half a pixel goes into the constants. */
static struct coefficients coefficients_of(const struct ps_affine *map)
{
	const double *i = map->inverse;
	return (struct coefficients){.xx = fixed(i[0]),
	        .xy = fixed(i[1]),
	        .x0 = fixed(i[2] + 0.5 * (i[0] + i[1])),
	        .yx = fixed(i[3]),
	        .yy = fixed(i[4]),
	        .y0 = fixed(i[5] + 0.5 * (i[3] + i[4]))};
}

/* Two neighbours on an axis, and the weight of the second in 1024ths. */
struct between {
	uint32_t low, high, fraction;
};

static struct between between_of(int64_t at, uint32_t size)
{
	int64_t u = at - ONE / 2, low = u >> 32;
	struct between b = {.fraction = (uint32_t)(u >> 22) & 1023};
	b.low = low < 0 ? 0 : (uint32_t)low;
	b.high = low + 1 >= size ? size - 1 : (uint32_t)(low + 1);
	return b;
}

static uint8_t blend(const uint8_t *plane, size_t width, struct between x, struct between y)
{
	const uint8_t *above = plane + y.low * width, *below = plane + y.high * width;
	uint32_t top = above[x.low] * (1024 - x.fraction) + above[x.high] * x.fraction;
	uint32_t bottom = below[x.low] * (1024 - x.fraction) + below[x.high] * x.fraction;
	return (uint8_t)((top * (1024 - y.fraction) + bottom * y.fraction + (1u << 19)) >> 20);
}

void ps_affine_apply(const struct ps_affine *map, const struct ps_planes *from, uint8_t fill, uint8_t *to)
{
	struct coefficients k = coefficients_of(map);
	size_t plane = (size_t)from->width * from->height;
	int64_t most_x = (int64_t)from->width << 32, most_y = (int64_t)from->height << 32;
	for (uint32_t row = 0; row < from->height; row++) {
		int64_t x = k.x0 + k.xy * row, y = k.y0 + k.yy * row;
		for (uint32_t col = 0; col < from->width; col++, x += k.xx, y += k.yx, to++) {
			if (x < 0 || x >= most_x || y < 0 || y >= most_y) {
				to[0] = to[plane] = to[2 * plane] = fill;
				continue;
			}
			struct between across = between_of(x, from->width),
			               down = between_of(y, from->height);
			for (size_t c = 0; c < 3; c++)
				to[c * plane] = blend(from->p + c * plane, from->width, across, down);
		}
	}
}

void ps_affine_labels(const struct ps_affine *map, const uint16_t *from, uint32_t width, uint32_t height,
        uint16_t fill, uint16_t *to)
{
	struct coefficients k = coefficients_of(map);
	for (uint32_t row = 0; row < height; row++) {
		int64_t x = k.x0 + k.xy * row, y = k.y0 + k.yy * row;
		for (uint32_t col = 0; col < width; col++, x += k.xx, y += k.yx, to++) {
			bool outside =
			        x < 0 || x >= (int64_t)width << 32 || y < 0 || y >= (int64_t)height << 32;
			*to = outside ? fill : from[(size_t)(y >> 32) * width + (size_t)(x >> 32)];
		}
	}
}
