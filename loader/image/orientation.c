/* The orientation of an image, by the metadata that cameras and editors write. */
#include "config.h"

#include <string.h>

#include "base/cleanup.h"
#include "image/format.h"

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

uint32_t ps_exif_orientation(const uint8_t *exif, size_t nbytes)
{
	const uint8_t *tiff = exif;
	if (nbytes >= 6 && !memcmp(tiff, "Exif\0", 6)) {
		tiff += 6;
		nbytes -= 6;
	}
	if (nbytes < 8 || (memcmp(tiff, "II*\0", 4) && memcmp(tiff, "MM\0*", 4)))
		return 0;
	bool big = tiff[0] == 'M';
	size_t at = number(tiff + 4, 4, big);
	if (at < 8 || at > nbytes - 2)
		return 0;
	uint32_t n = number(tiff + at, 2, big);
	at += 2;
	for (uint32_t i = 0; i < n && nbytes - at >= ENTRY_NBYTES; i++, at += ENTRY_NBYTES) {
		if (number(tiff + at, 2, big) != TAG_ORIENTATION)
			continue;
		uint32_t value = number(tiff + at + 8, 2, big);
		bool sound = number(tiff + at + 2, 2, big) == TYPE_SHORT && value >= 1 && value <= 8;
		return sound ? value : 1;
	}
	return 0;
}

uint32_t ps_xmp_orientation(const void *xmp, size_t nbytes)
{
	static const char name[] = "tiff:Orientation";
	const char *p = xmp, *end;

	if (nbytes == 0) /* xmp may be NULL */
		return 0;
	end = p + nbytes;
	while ((p = memmem(p, (size_t)(end - p), name, sizeof(name) - 1))) {
		p += sizeof(name) - 1;
		/* an attribute, tiff:Orientation="6", or an element, <tiff:Orientation>6< */
		size_t mark = end - p >= 2 && !memcmp(p, "=\"", 2) ? 2 : end - p >= 1 && *p == '>' ? 1 : 0;
		if (mark && (size_t)(end - p) > mark && p[mark] >= '0' && p[mark] <= '9')
			return p[mark] >= '1' && p[mark] <= '8' ? (uint32_t)(p[mark] - '0') : 1;
	}
	return 0;
}
