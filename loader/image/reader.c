#include "config.h"

#include "image/image.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/size.h"
#include "image/format.h"

/* Orientation -------------------------------------------------------------------------------------------- */

/* The orientation that an image's metadata gives it, and the transformation of regions and pixels from the stored
 * image to the upright one.
 *
 *   stored     1 upright    2 mirrored left to right   3 turned by 180 degrees   4 mirrored top to bottom
 *              5 transposed 6 to be turned right (clockwise)
 *              7 transposed along the other diagonal 8 to be turned left (counterclockwise)
 * Threads: any. Errors: none. Blocks: never. */

static bool is_transposed(uint32_t orientation)
{
	return orientation >= 5;
}

/* The upright image is the stored one, transposed if is_transposed(), then mirrored by mirrors_x() and
 * mirrors_y(). */
static bool mirrors_x(uint32_t orientation)
{
	return orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
}

static bool mirrors_y(uint32_t orientation)
{
	return orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
}

/* The size of the upright image. */
static struct ps_image_size orient_size(uint32_t orientation, struct ps_image_size stored)
{
	if (is_transposed(orientation))
		return (struct ps_image_size){stored.height, stored.width};
	return stored;
}

/* Where a region of the upright image is stored. */
static struct ps_region orient_region(
        uint32_t orientation, struct ps_image_size stored, const struct ps_region *upright)
{
	struct ps_image_size size = orient_size(orientation, stored);
	struct ps_region r = *upright;
	if (mirrors_x(orientation))
		r.x = size.width - r.x - r.width;
	if (mirrors_y(orientation))
		r.y = size.height - r.y - r.height;
	if (is_transposed(orientation))
		r = (struct ps_region){r.y, r.x, r.height, r.width};
	return r;
}

/* Puts row `row` of a stored region (its `width` pixels of pixel_nbytes, 2, 3 or 8) in its place in the
 * upright region, whose rows are `stride` bytes apart. `stored` is the stored region. */
static void orient_row(uint32_t orientation, const struct ps_region *stored, uint32_t row,
        const uint8_t *from, size_t pixel_nbytes, uint8_t *upright, size_t stride)
{
	bool transposed = is_transposed(orientation);
	size_t x = transposed ? row : 0, y = transposed ? 0 : row;
	size_t width = transposed ? stored->height : stored->width;
	size_t height = transposed ? stored->width : stored->height;
	if (mirrors_x(orientation))
		x = width - 1 - x;
	if (mirrors_y(orientation))
		y = height - 1 - y;
	/* Neighbours in a stored row are neighbours in an upright row, or in a column if transposed. */
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
		else if (pixel_nbytes == 8)
			memcpy(to, from, 8);
	}
}

/* Formats ------------------------------------------------------------------------------------------------ */

struct known {
	const char *name;
	bool (*matches)(const uint8_t *data, size_t nbytes);
	const struct ps_format *format; /* NULL: this build lacks the library */
};

static bool is_jpeg(const uint8_t *p, size_t n)
{
	return n >= 2 && p[0] == 0xff && p[1] == 0xd8;
}

static bool is_png(const uint8_t *p, size_t n)
{
	return n >= 8 && !memcmp(p, "\x89PNG\r\n\x1a\n", 8);
}

static bool is_webp(const uint8_t *p, size_t n)
{
	return n >= 12 && !memcmp(p, "RIFF", 4) && !memcmp(p + 8, "WEBP", 4);
}

static bool is_pnm(const uint8_t *p, size_t n)
{
	return n >= 3 && p[0] == 'P' && p[1] >= '1' && p[1] <= '7' &&
	       (p[2] == '#' || p[2] == ' ' || (p[2] >= '\t' && p[2] <= '\r'));
}

static const struct known formats[] = {
        {"JPEG", is_jpeg, &ps_format_jpeg},
#ifdef HAVE_PNG
        {"PNG", is_png, &ps_format_png},
#else
        {"PNG", is_png, NULL},
#endif
#ifdef HAVE_WEBP
        {"WebP", is_webp, &ps_format_webp},
#else
        {"WebP", is_webp, NULL},
#endif
        {"PNM", is_pnm, &ps_format_pnm},
};

#define NFORMATS PS_ARRAY_LEN(formats)

void ps_image_libraries(char *buf, size_t n)
{
	char one[64];

	*buf = '\0';
	for (size_t i = 0; i < NFORMATS; i++) {
		if (!formats[i].format || !formats[i].format->library)
			continue;
		formats[i].format->library(one, sizeof(one));
		size_t at = strlen(buf);
		snprintf(buf + at, n - at, "%s%s", at ? ", " : "", one);
	}
}

struct ps_image_reader {
	enum ps_pixels pixels;
	bool orient;
	struct ps_image_limits limits;
	void *decoders[NFORMATS]; /* made when first needed */

	const struct ps_format *format; /* format of the open image */
	void *decoder;
	struct ps_image_size stored;
	uint32_t orientation;
	struct ps_region region;
	size_t slack_nbytes;

	uint8_t *turned;
	size_t turned_cap;
	uint16_t *widened; /* rows of a format that has no PS_PIXELS_RGBA16 */
	size_t widened_cap;
};

struct ps_image_reader *ps_image_reader_new(
        enum ps_pixels pixels, bool orient, const struct ps_image_limits *limits)
{
	struct ps_image_reader *s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->pixels = pixels;
	s->orient = orient;
	s->limits = *limits;
	if (!limits->max_pixels)
		s->limits.max_pixels = PS_IMAGE_MAX_PIXELS_DEFAULT;
	if (!limits->max_scans)
		s->limits.max_scans = PS_IMAGE_MAX_SCANS_DEFAULT;
	if (!limits->max_memory)
		s->limits.max_memory = PS_IMAGE_MAX_MEMORY_DEFAULT;
	return s;
}

void ps_image_reader_free(struct ps_image_reader *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < NFORMATS; i++) {
		if (formats[i].format)
			formats[i].format->free(s->decoders[i]);
	}
	free(s->turned);
	free(s->widened);
	free(s);
}

void ps_image_reader_close(struct ps_image_reader *s)
{
	if (s->format && s->format->close)
		s->format->close(s->decoder);
	s->format = NULL;
}

/* The name of a format that is not read, with its article, by its first bytes; NULL: not known. suffix: one that
 * is usual for it. */
static const char *foreign_format(const uint8_t *data, size_t nbytes, const char **ret_suffix)
{
	static const struct {
		uint8_t at, len;
		const char *magic, *name, *suffix;
	} kinds[] = {{0, 4, "II*\0", "a TIFF image", "tif"}, {0, 4, "MM\0*", "a TIFF image", "tif"},
	        {0, 4, "II+\0", "a BigTIFF image", "tif"}, {0, 4, "MM\0+", "a BigTIFF image", "tif"},
	        {0, 6, "GIF87a", "a GIF image", "gif"}, {0, 6, "GIF89a", "a GIF image", "gif"},
	        {0, 2, "BM", "a BMP image", "bmp"}, {4, 8, "ftypavif", "an AVIF image", "avif"},
	        {4, 8, "ftypavis", "an AVIF image", "avif"}, {4, 8, "ftypheic", "a HEIC image", "heic"},
	        {4, 8, "ftypheix", "a HEIC image", "heic"}, {4, 8, "ftypmif1", "a HEIF image", "heif"},
	        {4, 8, "ftypmsf1", "a HEIF image", "heif"},
	        {4, 8, "JXL \r\n\x87\n", "a JPEG XL image", "jxl"},
	        {0, 2, "\xff\x0a", "a JPEG XL image", "jxl"}, {4, 4, "jP  ", "a JPEG 2000 image", "jp2"},
	        {0, 4, "\xff\x4f\xff\x51", "a JPEG 2000 image", "j2k"}, {0, 4, "DDS ", "a DDS image", "dds"},
	        {0, 4, "8BPS", "a Photoshop image", "psd"}, {0, 4, "qoif", "a QOI image", "qoi"},
	        {0, 4, "\x76\x2f\x31\x01", "an OpenEXR image", "exr"},
	        {0, 2, "#?", "a Radiance image", "hdr"}, {0, 4, "farb", "a farbfeld image", "ff"},
	        {0, 4, "\0\0\1\0", "an icon (ICO)", "ico"},
	        {0, 4, "\0\0\2\0", "a TGA image or cursor", "tga"}, {0, 4, "<svg", "an SVG image", "svg"}};

	for (size_t i = 0; i < PS_ARRAY_LEN(kinds); i++) {
		if (nbytes >= (size_t)kinds[i].at + kinds[i].len &&
		        !memcmp(data + kinds[i].at, kinds[i].magic, kinds[i].len)) {
			*ret_suffix = kinds[i].suffix;
			return kinds[i].name;
		}
	}
	*ret_suffix = "tga";
	return nbytes >= 44 && !memcmp(data + nbytes - 18, "TRUEVISION-XFILE.", 17) ? "a TGA image" : NULL;
}

static int unknown(const uint8_t *data, size_t nbytes, struct ps_error *err)
{
	const char *suffix, *name = foreign_format(data, nbytes, &suffix);

	if (nbytes == 0)
		return ps_error_set(err, EBADMSG, "image: empty file");
	if (nbytes < 4)
		return ps_error_set(err, EBADMSG, "image: the file has only %zu bytes", nbytes);
	if (name)
		return ps_error_set(err, EBADMSG,
		        "image: %s: JPEG, PNG, WebP, PGM and PPM are supported; in Python decode={\"%s\": "
		        "...} "
		        "reads others",
		        name, suffix);
	return ps_error_set(err, EBADMSG,
	        "image: unknown format (first bytes %02x %02x %02x %02x): JPEG, PNG, WebP, PGM and PPM are "
	        "supported",
	        data[0], data[1], data[2], data[3]);
}

uint32_t ps_image_orientation(const void *data, size_t nbytes)
{
	for (size_t i = 0; i < NFORMATS; i++) {
		const struct ps_format *f = formats[i].format;
		struct ps_error err = {0};
		uint32_t found = 0;

		if (formats[i].matches(data, nbytes) && f && f->orientation) {
			int rc = f->orientation(data, nbytes, &found, &err);

			return rc < 0 || found == 0 ? 1 : found;
		}
	}
	return 0;
}

static bool is_widened(const struct ps_image_reader *s, const struct ps_format *f)
{
	return s->pixels == PS_PIXELS_RGBA16 && !f->has_wide;
}

static int open_as(struct ps_image_reader *s, size_t i, const uint8_t *data, size_t nbytes,
        struct ps_image_size *ret_size, struct ps_error *err)
{
	const struct ps_format *f = formats[i].format;
	if (!f)
		return ps_error_set(err, EBADMSG,
		        "%s: this build of libpenstock cannot read it; ./configure says which library is "
		        "missing",
		        formats[i].name);
	if (!s->decoders[i])
		s->decoders[i] = f->make ? f->make() : calloc(1, f->nbytes);
	if (!s->decoders[i])
		return ps_error_set(err, ENOMEM, "%s: out of memory", f->name);
	enum ps_pixels pixels = is_widened(s, f) ? PS_PIXELS_RGB : s->pixels;
	int rc = f->open(s->decoders[i], data, nbytes, pixels, &s->limits, &s->stored, err);
	if (rc < 0)
		return rc;
	s->format = f;
	s->decoder = s->decoders[i];
	s->orientation = 1;
	if (s->orient && f->orientation) {
		uint32_t found = 0;
		rc = f->orientation(data, nbytes, &found, err);
		if (rc < 0)
			return rc;
		s->orientation = found ? found : 1;
	}
	*ret_size = orient_size(s->orientation, s->stored);
	return 0;
}

int ps_image_reader_open(struct ps_image_reader *s, const void *data, size_t nbytes,
        struct ps_image_size *ret_size, struct ps_error *err)
{
	ps_image_reader_close(s);
	for (size_t i = 0; i < NFORMATS; i++) {
		if (formats[i].matches(data, nbytes))
			return open_as(s, i, data, nbytes, ret_size, err);
	}
	return unknown(data, nbytes, err);
}

uint32_t ps_image_reader_shrink(struct ps_image_reader *s, uint32_t by)
{
	if (by <= 1 || !s->format->shrink)
		return 1;
	s->format->shrink(s->decoder, by);
	s->stored.width = (s->stored.width + by - 1) / by;
	s->stored.height = (s->stored.height + by - 1) / by;
	return by;
}

bool ps_image_reader_is_truncated(const struct ps_image_reader *s)
{
	return s->format->truncated && s->format->truncated(s->decoder);
}

bool ps_image_reader_is_plain_jpeg(const struct ps_image_reader *s)
{
	return s->format->for_gpu && s->format->for_gpu(s->decoder) && s->orientation == 1;
}

int ps_image_reader_start(
        struct ps_image_reader *s, const struct ps_region *region, size_t slack_nbytes, struct ps_error *err)
{
	s->region = *region;
	s->slack_nbytes = slack_nbytes;
	if (s->orientation == 1)
		return s->format->start(s->decoder, region, slack_nbytes, err);
	struct ps_region stored = orient_region(s->orientation, s->stored, region);
	return s->format->start(s->decoder, &stored, 0, err);
}

static int reserve_turned(struct ps_image_reader *s, size_t stride, struct ps_error *err)
{
	size_t nbytes;
	if (!ps_size_mul(stride, s->region.height, &nbytes) || !ps_size_add(nbytes, s->slack_nbytes, &nbytes))
		return ps_error_set(err, ENOMEM, "image: %u x %u is too large to be turned", s->region.width,
		        s->region.height);
	int rc = ps_format_take_memory(s->format->name, "to be turned", nbytes, &s->limits, err);
	if (rc < 0 || ps_format_reserve(&s->turned, &s->turned_cap, nbytes))
		return rc;
	return ps_error_set(err, ENOMEM, "image: no memory to turn it");
}

/* Reads the next rows, of `width` pixels each. RGB is widened to RGBA16 where that is wanted and the format
 * lacks it. */
static int format_rows(
        struct ps_image_reader *s, uint32_t width, struct ps_image_rows *ret_rows, struct ps_error *err)
{
	struct ps_image_rows rows;
	size_t n;
	int rc = s->format->rows(s->decoder, &rows, err);
	if (rc < 0 || !is_widened(s, s->format)) {
		*ret_rows = rows;
		return rc;
	}
	if (!ps_size_mul((size_t)width * rows.n, ps_pixels_nbytes(PS_PIXELS_RGBA16), &n))
		return ps_error_set(err, ENOMEM, "image: rows of %u pixels are too long", width);
	if (n > s->widened_cap) {
		free(s->widened);
		s->widened = malloc(n);
		s->widened_cap = s->widened ? n : 0;
	}
	if (!s->widened)
		return ps_error_set(err, ENOMEM, "image: no memory for %zu bytes of rows", n);
	for (uint32_t y = 0; y < rows.n; y++) {
		const uint8_t *from = rows.first + y * rows.stride;
		uint16_t *to = s->widened + (size_t)y * width * 4;
		for (uint32_t x = 0; x < width; x++, from += 3, to += 4) {
			for (int c = 0; c < 3; c++)
				to[c] = (uint16_t)(from[c] * 257);
			to[3] = UINT16_MAX;
		}
	}
	*ret_rows = (struct ps_image_rows){
	        (const uint8_t *)s->widened, (size_t)width * 4 * sizeof(uint16_t), rows.n};
	return 0;
}

int ps_image_reader_rows(struct ps_image_reader *s, struct ps_image_rows *ret_rows, struct ps_error *err)
{
	if (s->orientation == 1)
		return format_rows(s, s->region.width, ret_rows, err);
	/* reads the whole region, and turns it upright */
	struct ps_region stored = orient_region(s->orientation, s->stored, &s->region);
	size_t pixel = ps_pixels_nbytes(s->pixels), stride = s->region.width * pixel;
	struct ps_image_rows rows = {0};
	int rc = reserve_turned(s, stride, err);
	for (uint32_t y = 0; y < stored.height && rc == 0; y += rows.n) {
		rc = format_rows(s, stored.width, &rows, err);
		for (uint32_t i = 0; i < rows.n && rc == 0; i++)
			orient_row(s->orientation, &stored, y + i, rows.first + i * rows.stride, pixel,
			        s->turned, stride);
	}
	*ret_rows = (struct ps_image_rows){s->turned, stride, s->region.height};
	return rc;
}
