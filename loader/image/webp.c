/* Reads WebP by libwebp, lossy and lossless; alpha is dropped except with PS_PIXELS_RGBA16. Of an animation the
 * first frame is read, which must cover the whole picture. Only the region (and MARGIN pixels around it, which the upsampling of chroma needs) is converted
 * to RGB. */
#include "config.h"

#include "image/format.h"

#ifdef HAVE_WEBP

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <webp/decode.h>

#include "base/size.h"

#define MARGIN 2u /* even: libwebp rounds the left and top of a crop down to even numbers */

struct image {
	const uint8_t *data;
	size_t nbytes;
	struct ps_image_limits limits;
	enum ps_pixels pixels;
	struct ps_image_size size;
	struct ps_region region;
	uint8_t *out;
	size_t cap;
};

static void image_free(void *f)
{
	struct image *m = f;
	if (m)
		free(m->out);
	free(m);
}

static uint32_t little_endian(const uint8_t *p)
{
	return (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
}

static int image_orientation(
        const uint8_t *data, size_t nbytes, uint32_t *ret_orientation, struct ps_error *err)
{
	const uint8_t *exif = NULL, *xmp = NULL;
	size_t exif_nbytes = 0, xmp_nbytes = 0;
	uint32_t found;

	(void)err;
	for (size_t at = 12; at <= nbytes && nbytes - at >= 8;) {
		size_t n = little_endian(data + at + 4);
		const uint8_t *body = data + at + 8;
		if (n > nbytes - at - 8)
			break;
		if (!memcmp(data + at, "EXIF", 4) && !exif) {
			exif = body;
			exif_nbytes = n;
		} else if (!memcmp(data + at, "XMP ", 4) && !xmp) {
			xmp = body;
			xmp_nbytes = n;
		}
		at += 8 + n + (n & 1);
	}
	found = ps_exif_orientation(exif, exif_nbytes);
	*ret_orientation = found ? found : ps_xmp_orientation(xmp, xmp_nbytes);
	return 0;
}

static int status_error(VP8StatusCode status, struct ps_error *err)
{
	switch (status) {
	case VP8_STATUS_OK:
		return 0;
	case VP8_STATUS_OUT_OF_MEMORY:
		return ps_error_set(err, ENOMEM, "WebP: out of memory");
	case VP8_STATUS_NOT_ENOUGH_DATA:
	case VP8_STATUS_SUSPENDED:
		return ps_error_set(err, EBADMSG, "WebP: truncated");
	case VP8_STATUS_UNSUPPORTED_FEATURE:
		return ps_error_set(err, EBADMSG, "WebP: uses a feature that libwebp cannot decode");
	default:
		return ps_error_set(err, EBADMSG, "WebP: damaged");
	}
}

/* Finds the data of an animation's first frame, which libwebp decodes as it does a file. */
static int first_frame(const uint8_t **data, size_t *nbytes, struct ps_error *err)
{
	enum { HEAD = 16 }; /* place, size, duration and flags of a frame */
	const uint8_t *p = *data;

	for (size_t at = 12; at <= *nbytes && *nbytes - at >= 8;) {
		size_t n = little_endian(p + at + 4);
		if (n > *nbytes - at - 8)
			break;
		if (!memcmp(p + at, "ANMF", 4) && n > HEAD) {
			*data = p + at + 8 + HEAD;
			*nbytes = n - HEAD;
			return 0;
		}
		at += 8 + n + (n & 1);
	}
	return ps_error_set(err, EBADMSG, "WebP: truncated: the animation has no whole frame");
}

static int image_open(void *f, const uint8_t *data, size_t nbytes, enum ps_pixels pixels,
        const struct ps_image_limits *limits, struct ps_image_size *ret_size, struct ps_error *err)
{
	struct image *m = f;
	WebPBitstreamFeatures features;
	if (pixels == PS_PIXELS_LABELS)
		return ps_error_set(err, EBADMSG, "WebP: has no single channel for labels: use PNG or PGM");
	int rc = status_error(WebPGetFeatures(data, nbytes, &features), err);
	if (rc < 0)
		return rc;
	m->size = (struct ps_image_size){(uint32_t)features.width, (uint32_t)features.height};
	if (features.has_animation) {
		rc = first_frame(&data, &nbytes, err);
		if (rc == 0)
			rc = status_error(WebPGetFeatures(data, nbytes, &features), err);
		if (rc < 0)
			return rc;
		if ((uint32_t)features.width != m->size.width || (uint32_t)features.height != m->size.height)
			return ps_error_set(err, EBADMSG,
			        "WebP: an animation whose first frame, %d x %d, does not cover its %u x %u "
			        "pixels",
			        features.width, features.height, m->size.width, m->size.height);
	}
	rc = ps_format_check_size("WebP", m->size.width, m->size.height, limits, err);
	/* Counts every file as a lossless one, which libwebp decodes as a whole, at four bytes a pixel. With
	 * PS_PIXELS_RGBA16 the output is added. */
	uint64_t pixel = pixels == PS_PIXELS_RGBA16 ? 4 + ps_pixels_nbytes(pixels) : 4;
	if (rc == 0)
		rc = ps_format_take_memory("WebP", "for all pixels",
		        (uint64_t)m->size.width * m->size.height * pixel, limits, err);
	if (rc < 0)
		return rc;
	m->data = data;
	m->nbytes = nbytes;
	m->limits = *limits;
	m->pixels = pixels;
	*ret_size = m->size;
	return 0;
}

/* The region, extended by margins as far as there are pixels. */
static void add_margins(const struct image *m, struct ps_region *ret_region)
{
	const struct ps_region *r = &m->region;
	uint32_t left = r->x > MARGIN ? (r->x - MARGIN) & ~1u : 0;
	uint32_t top = r->y > MARGIN ? (r->y - MARGIN) & ~1u : 0;
	uint32_t right = PS_MIN(r->x + r->width + MARGIN, m->size.width);
	uint32_t bottom = PS_MIN(r->y + r->height + MARGIN, m->size.height);
	*ret_region = (struct ps_region){left, top, right - left, bottom - top};
}

static int image_start(void *f, const struct ps_region *region, size_t slack_nbytes, struct ps_error *err)
{
	struct image *m = f;
	struct ps_region around;
	size_t nbytes;
	m->region = *region;
	add_margins(m, &around);
	if (!ps_size_mul((size_t)around.width * ps_pixels_nbytes(m->pixels), around.height, &nbytes) ||
	        !ps_size_add(nbytes, slack_nbytes, &nbytes))
		return ps_error_set(err, ENOMEM, "WebP: rows are too long");
	if (ps_format_reserve(&m->out, &m->cap, nbytes))
		return 0;
	return ps_error_set(err, ENOMEM, "WebP: out of memory for %zu bytes", nbytes);
}

/* Widens the four bytes of each pixel to four uint16_t, in place. */
static void widen(uint8_t *pixels, size_t n)
{
	uint16_t *to = (uint16_t *)(void *)pixels;
	for (size_t i = 4 * n; i-- > 0;)
		to[i] = (uint16_t)(pixels[i] * 257);
}

static int image_rows(void *f, struct ps_image_rows *ret_rows, struct ps_error *err)
{
	struct image *m = f;
	WebPDecoderConfig c;
	const bool is_wide = m->pixels == PS_PIXELS_RGBA16;
	const size_t pixel = is_wide ? 4 : 3;
	struct ps_region around;
	add_margins(m, &around);
	if (!WebPInitDecoderConfig(&c))
		return ps_error_set(
		        err, EBADMSG, "WebP: libpenstock was built for another version of libwebp");
	c.options.use_cropping = 1;
	c.options.crop_left = (int)around.x;
	c.options.crop_top = (int)around.y;
	c.options.crop_width = (int)around.width;
	c.options.crop_height = (int)around.height;
	c.output.colorspace = is_wide ? MODE_RGBA : MODE_RGB;
	c.output.is_external_memory = 1;
	c.output.u.RGBA.rgba = m->out;
	c.output.u.RGBA.stride = (int)(around.width * pixel);
	c.output.u.RGBA.size = around.width * pixel * around.height;
	int rc = status_error(WebPDecode(m->data, m->nbytes, &c), err);
	if (rc < 0)
		return rc;
	if (is_wide)
		widen(m->out, (size_t)around.width * around.height);
	ret_rows->stride = around.width * ps_pixels_nbytes(m->pixels);
	ret_rows->first = m->out + (m->region.y - around.y) * ret_rows->stride +
	                  (m->region.x - around.x) * ps_pixels_nbytes(m->pixels);
	ret_rows->n = m->region.height;
	return 0;
}

static void webp_library(char *buf, size_t n)
{
	int v = WebPGetDecoderVersion();

	snprintf(buf, n, "libwebp %d.%d.%d", v >> 16, v >> 8 & 0xff, v & 0xff);
}

const struct ps_format ps_format_webp = {
        .name = "WebP",
        .has_wide = true,
        .library = webp_library,
        .nbytes = sizeof(struct image),
        .free = image_free,
        .open = image_open,
        .start = image_start,
        .rows = image_rows,
        .orientation = image_orientation,
};

#endif
