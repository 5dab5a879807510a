/* The affine part of transform.h. */
#include <math.h>

#include "image/pixel.h"
#include "image/transform.h"

#define ONE (INT64_C(1) << 32)

static int64_t fixed(double v)
{
	return (int64_t)floor(v * (double)ONE + 0.5);
}

/* Of pixels' numbers, not centres: half a pixel goes into the constants. */
void ps_affine_fixed(const struct ps_affine *map, int64_t ret_fixed[static 6])
{
	const double *i = map->inverse;
	ret_fixed[0] = fixed(i[0]);
	ret_fixed[1] = fixed(i[1]);
	ret_fixed[2] = fixed(i[2] + 0.5 * (i[0] + i[1]));
	ret_fixed[3] = fixed(i[3]);
	ret_fixed[4] = fixed(i[4]);
	ret_fixed[5] = fixed(i[5] + 0.5 * (i[3] + i[4]));
}

void ps_affine_apply(const struct ps_affine *map, const struct ps_planes *from, uint8_t fill, uint8_t *to)
{
	int64_t k[6];
	ps_affine_fixed(map, k);
	size_t plane = (size_t)from->width * from->height;
	int64_t most_x = (int64_t)from->width << 32, most_y = (int64_t)from->height << 32;
	for (uint32_t row = 0; row < from->height; row++) {
		int64_t x = k[2] + k[1] * row, y = k[5] + k[4] * row;
		for (uint32_t col = 0; col < from->width; col++, x += k[0], y += k[3], to++) {
			if (x < 0 || x >= most_x || y < 0 || y >= most_y) {
				to[0] = to[plane] = to[2 * plane] = fill;
				continue;
			}
			struct ps_pixel_between across = ps_pixel_between_of(x, from->width),
			                        down = ps_pixel_between_of(y, from->height);
			for (size_t c = 0; c < 3; c++)
				to[c * plane] =
				        ps_pixel_sampled(from->p + c * plane, from->width, across, down);
		}
	}
}

void ps_affine_labels(const struct ps_affine *map, const uint16_t *from, uint32_t width, uint32_t height,
        uint16_t fill, uint16_t *to)
{
	int64_t k[6];
	ps_affine_fixed(map, k);
	for (uint32_t row = 0; row < height; row++) {
		int64_t x = k[2] + k[1] * row, y = k[5] + k[4] * row;
		for (uint32_t col = 0; col < width; col++, x += k[0], y += k[3], to++) {
			bool outside =
			        x < 0 || x >= (int64_t)width << 32 || y < 0 || y >= (int64_t)height << 32;
			*to = outside ? fill : from[(size_t)(y >> 32) * width + (size_t)(x >> 32)];
		}
	}
}
