#include "config.h"

#include "image/source.h"

#include <errno.h>
#include <string.h>

#include "base/overflow.h"
#include "image/exif.h"

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

struct ps_source {
	enum ps_pixels pixels;
	bool orient;
	struct ps_image_limits limits;
	void *decoders[NFORMATS]; /* made when first needed */

	const struct ps_format *format; /* of the open image */
	void *decoder;
	struct ps_image_size stored;
	uint32_t orientation;
	struct ps_region region;
	size_t slack_nbytes;

	uint8_t *turned;
	size_t turned_cap;
};

struct ps_source *ps_source_new(enum ps_pixels pixels, bool orient, const struct ps_image_limits *limits)
{
	struct ps_source *s = calloc(1, sizeof *s);
	if (!s)
		return NULL;
	s->pixels = pixels;
	s->orient = orient;
	s->limits = *limits;
	return s;
}

void ps_source_free(struct ps_source *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < NFORMATS; i++) {
		if (formats[i].format)
			formats[i].format->free(s->decoders[i]);
	}
	free(s->turned);
	free(s);
}

void ps_source_close(struct ps_source *s)
{
	if (s->format)
		s->format->close(s->decoder);
	s->format = NULL;
}

static int unknown(const uint8_t *data, size_t nbytes, struct ps_load_error *err)
{
	if (nbytes == 0)
		return ps_load_error_set(err, EBADMSG, "image: empty file");
	if (nbytes < 4)
		return ps_load_error_set(err, EBADMSG, "image: only %zu bytes", nbytes);
	return ps_load_error_set(err, EBADMSG,
	        "image: unknown format (first bytes %02x %02x %02x %02x): JPEG, PNG, WebP, PGM and PPM are "
	        "read",
	        data[0], data[1], data[2], data[3]);
}

static int open_as(struct ps_source *s, size_t i, const uint8_t *data, size_t nbytes,
        struct ps_image_size *ret_size, struct ps_load_error *err)
{
	const struct ps_format *f = formats[i].format;
	if (!f)
		return ps_load_error_set(err, EBADMSG,
		        "%s: this build of libpenstock cannot read it; ./configure says which library is "
		        "missing",
		        formats[i].name);
	if (!s->decoders[i] && !(s->decoders[i] = f->make()))
		return ps_load_error_set(err, ENOMEM, "%s: out of memory", f->name);
	int rc = f->open(s->decoders[i], data, nbytes, s->pixels, &s->limits, &s->stored, err);
	if (rc < 0)
		return rc;
	s->format = f;
	s->decoder = s->decoders[i];
	s->orientation = 1;
	if (s->orient && f->exif) {
		size_t exif_nbytes = 0;
		const uint8_t *exif = f->exif(data, nbytes, &exif_nbytes);
		s->orientation = ps_exif_orientation(exif, exif_nbytes);
	}
	*ret_size = ps_orient_size(s->orientation, s->stored);
	return 0;
}

int ps_source_open(struct ps_source *s, const void *data, size_t nbytes, struct ps_image_size *ret_size,
        struct ps_load_error *err)
{
	ps_source_close(s);
	for (size_t i = 0; i < NFORMATS; i++) {
		if (formats[i].matches(data, nbytes))
			return open_as(s, i, data, nbytes, ret_size, err);
	}
	return unknown(data, nbytes, err);
}

uint32_t ps_source_shrink(struct ps_source *s, uint32_t by)
{
	if (by <= 1 || !s->format->shrink)
		return 1;
	s->format->shrink(s->decoder, by);
	s->stored.width = (s->stored.width + by - 1) / by;
	s->stored.height = (s->stored.height + by - 1) / by;
	return by;
}

bool ps_source_is_plain_jpeg(const struct ps_source *s)
{
	return s->format->for_gpu && s->format->for_gpu(s->decoder) && s->orientation == 1;
}

int ps_source_start(
        struct ps_source *s, const struct ps_region *region, size_t slack_nbytes, struct ps_load_error *err)
{
	s->region = *region;
	s->slack_nbytes = slack_nbytes;
	if (s->orientation == 1)
		return s->format->start(s->decoder, region, slack_nbytes, err);
	struct ps_region stored = ps_orient_region(s->orientation, s->stored, region);
	return s->format->start(s->decoder, &stored, 0, err);
}

static int reserve_turned(struct ps_source *s, size_t stride, struct ps_load_error *err)
{
	size_t nbytes;
	if (!ps_size_mul(stride, s->region.height, &nbytes) || !ps_size_add(nbytes, s->slack_nbytes, &nbytes))
		return ps_load_error_set(err, ENOMEM, "image: %u x %u is too large to be turned",
		        s->region.width, s->region.height);
	int rc = ps_format_check_memory(s->format->name, "to be turned", nbytes, &s->limits, err);
	if (rc < 0 || nbytes <= s->turned_cap)
		return rc;
	free(s->turned);
	s->turned = calloc(1, nbytes); /* the slack is read, if not used */
	s->turned_cap = s->turned ? nbytes : 0;
	return s->turned ? 0 : ps_load_error_set(err, ENOMEM, "image: no memory to turn it");
}

/* The whole region, upright. */
static int turn(struct ps_source *s, struct ps_image_rows *ret_rows, struct ps_load_error *err)
{
	struct ps_region stored = ps_orient_region(s->orientation, s->stored, &s->region);
	size_t pixel = ps_pixels_nbytes(s->pixels), stride = s->region.width * pixel;
	struct ps_image_rows rows = {0};
	int rc = reserve_turned(s, stride, err);
	for (uint32_t y = 0; y < stored.height && rc == 0; y += rows.n) {
		rc = s->format->rows(s->decoder, &rows, err);
		for (uint32_t i = 0; i < rows.n && rc == 0; i++)
			ps_orient_row(s->orientation, &stored, y + i, rows.first + i * rows.stride, pixel,
			        s->turned, stride);
	}
	*ret_rows = (struct ps_image_rows){s->turned, stride, s->region.height};
	return rc;
}

int ps_source_rows(struct ps_source *s, struct ps_image_rows *ret_rows, struct ps_load_error *err)
{
	if (s->orientation == 1)
		return s->format->rows(s->decoder, ret_rows, err);
	return turn(s, ret_rows, err);
}

int ps_format_check_size(const char *name, uint32_t width, uint32_t height,
        const struct ps_image_limits *limits, struct ps_load_error *err)
{
	if (width == 0 || height == 0)
		return ps_load_error_set(err, EBADMSG, "%s: empty image: %u x %u", name, width, height);
	if ((uint64_t)width * height > limits->max_pixels || width > 1u << 24 || height > 1u << 24)
		return ps_load_error_set(err, EBADMSG, "%s: %u x %u is more than max_pixels=%llu", name,
		        width, height, (unsigned long long)limits->max_pixels);
	return 0;
}

int ps_format_check_memory(const char *name, const char *what, uint64_t nbytes,
        const struct ps_image_limits *limits, struct ps_load_error *err)
{
	if (nbytes <= limits->max_memory) {
		ps_image_ticket_take(limits->ticket, nbytes);
		return 0;
	}
	return ps_load_error_set(err, EBADMSG, "%s: needs %llu bytes %s, more than max_memory=%llu", name,
	        (unsigned long long)nbytes, what, (unsigned long long)limits->max_memory);
}
