#include "image/exif.h"

#include <string.h>

#define TAG_ORIENTATION 0x0112
#define TYPE_SHORT 3
#define ENTRY_NBYTES 12u

static uint32_t number(const uint8_t *p, unsigned nbytes, bool big)
{
	uint32_t v = 0;
	for (unsigned i = 0; i < nbytes; i++)
		v = v << 8 | p[big ? i : nbytes - 1 - i];
	return v;
}

uint32_t ps_exif_orientation(const uint8_t *tiff, size_t nbytes)
{
	if (!tiff || nbytes < 8 || (memcmp(tiff, "II*\0", 4) && memcmp(tiff, "MM\0*", 4)))
		return 1;
	bool big = tiff[0] == 'M';
	size_t at = number(tiff + 4, 4, big);
	if (at < 8 || at > nbytes - 2)
		return 1;
	uint32_t n = number(tiff + at, 2, big);
	at += 2;
	for (uint32_t i = 0; i < n && nbytes - at >= ENTRY_NBYTES; i++, at += ENTRY_NBYTES) {
		if (number(tiff + at, 2, big) != TAG_ORIENTATION)
			continue;
		uint32_t value = number(tiff + at + 8, 2, big);
		bool sound = number(tiff + at + 2, 2, big) == TYPE_SHORT && value >= 1 && value <= 8;
		return sound ? value : 1;
	}
	return 1;
}

static bool is_transposed(uint32_t orientation)
{
	return orientation >= 5;
}

/* Upright = (transposed where need be) stored, then mirrored by these. */
static bool mirrors_x(uint32_t orientation)
{
	return orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
}

static bool mirrors_y(uint32_t orientation)
{
	return orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
}

struct ps_image_size ps_orient_size(uint32_t orientation, struct ps_image_size stored)
{
	if (is_transposed(orientation))
		return (struct ps_image_size){stored.height, stored.width};
	return stored;
}

struct ps_region ps_orient_region(
        uint32_t orientation, struct ps_image_size stored, const struct ps_region *upright)
{
	struct ps_image_size size = ps_orient_size(orientation, stored);
	struct ps_region r = *upright;
	if (mirrors_x(orientation))
		r.x = size.width - r.x - r.width;
	if (mirrors_y(orientation))
		r.y = size.height - r.y - r.height;
	if (is_transposed(orientation))
		r = (struct ps_region){r.y, r.x, r.height, r.width};
	return r;
}

void ps_orient_row(uint32_t orientation, const struct ps_region *stored, uint32_t row, const uint8_t *from,
        size_t pixel_nbytes, uint8_t *upright, size_t stride)
{
	bool transposed = is_transposed(orientation);
	size_t x = transposed ? row : 0, y = transposed ? 0 : row;
	size_t width = transposed ? stored->height : stored->width;
	size_t height = transposed ? stored->width : stored->height;
	if (mirrors_x(orientation))
		x = width - 1 - x;
	if (mirrors_y(orientation))
		y = height - 1 - y;
	/* Neighbours in a stored row are neighbours in an upright row, or column. */
	bool backwards = transposed ? mirrors_y(orientation) : mirrors_x(orientation);
	ptrdiff_t step = transposed ? (ptrdiff_t)stride : (ptrdiff_t)pixel_nbytes;
	uint8_t *to = upright + y * stride + x * pixel_nbytes;
	if (backwards)
		step = -step;
	for (uint32_t i = 0; i < stored->width; i++, to += step, from += pixel_nbytes) {
		to[0] = from[0];
		to[1] = from[1];
		if (pixel_nbytes == 3)
			to[2] = from[2];
	}
}
