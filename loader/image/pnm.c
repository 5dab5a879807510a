/* Reads PGM and PPM (binary: P5 and P6), of 8 or 16 bits. A value v of maxval m becomes round(255 * v / m),
 * halves up, as in PIL; in 16 bits round(65535 * v / m). Labels are not scaled. */
#include "image/format.h"

#include <errno.h>
#include <stdlib.h>

#include "base/size.h"

#define ROWS_NBYTES 65536u /* handed out at a time, or one row if that is longer */

struct pnm {
	const uint8_t *data;
	size_t nbytes, raster; /* raster: where pixels begin */
	struct ps_image_size size;
	uint32_t maxval, channels;
	enum ps_pixels pixels;
	struct ps_region region;
	uint32_t next_row, chunk; /* next row of the region; number of rows handed out at a time */
	size_t stride, cap;
	uint8_t *out;
};

static void pnm_free(void *f)
{
	struct pnm *p = f;
	if (p)
		free(p->out);
	free(p);
}

static bool is_space(uint8_t c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Skips white space and comments, then reads a number of at most 2^24. */
static bool header_number(const uint8_t *data, size_t nbytes, size_t *at, uint32_t *ret_value)
{
	size_t i = *at;
	uint32_t v = 0;
	while (i < nbytes && (is_space(data[i]) || data[i] == '#')) {
		bool comment = data[i] == '#';
		while (comment && i < nbytes && data[i] != '\n')
			i++;
		i += i < nbytes;
	}
	size_t digits = i;
	for (; i < nbytes && data[i] >= '0' && data[i] <= '9'; i++) {
		v = v * 10 + (data[i] - '0');
		if (v > 1u << 24)
			return false;
	}
	*at = i;
	*ret_value = v;
	return i > digits;
}

static int header_read(struct pnm *p, const uint8_t *data, size_t nbytes, struct ps_error *err)
{
	size_t at = 2;
	if (data[1] != '5' && data[1] != '6')
		return ps_error_set(err, EBADMSG,
		        "PNM: kind P%c is not supported: only binary PGM (P5) and PPM (P6) are", data[1]);
	p->channels = data[1] == '5' ? 1 : 3;
	if (!header_number(data, nbytes, &at, &p->size.width) ||
	        !header_number(data, nbytes, &at, &p->size.height) ||
	        !header_number(data, nbytes, &at, &p->maxval) || at >= nbytes || !is_space(data[at]))
		return ps_error_set(err, EBADMSG, "PNM: the header is damaged");
	if (p->maxval < 1 || p->maxval > 65535)
		return ps_error_set(err, EBADMSG, "PNM: maxval %u: must be 1 to 65535", p->maxval);
	p->raster = at + 1;
	return 0;
}

static size_t stored_pixel(const struct pnm *p)
{
	return p->channels * (p->maxval > 255 ? 2u : 1u);
}

static int pnm_open(void *f, const uint8_t *data, size_t nbytes, enum ps_pixels pixels,
        const struct ps_image_limits *limits, struct ps_image_size *ret_size, struct ps_error *err)
{
	struct pnm *p = f;
	int rc = header_read(p, data, nbytes, err);
	if (rc == 0)
		rc = ps_format_check_size("PNM", p->size.width, p->size.height, limits, err);
	if (rc < 0)
		return rc;
	if (pixels == PS_PIXELS_LABELS && p->channels != 1)
		return ps_error_set(err, EBADMSG, "PNM: labels must be a PGM of one channel, not a PPM");
	/* Cannot overflow: sides are at most 2^24. */
	uint64_t need = (uint64_t)p->size.width * p->size.height * stored_pixel(p);
	if (nbytes - p->raster < need)
		return ps_error_set(err, EBADMSG, "PNM: truncated: has %llu bytes of pixels, not %llu",
		        (unsigned long long)(nbytes - p->raster), (unsigned long long)need);
	p->data = data;
	p->nbytes = nbytes;
	p->pixels = pixels;
	*ret_size = p->size;
	return 0;
}

static int pnm_start(void *f, const struct ps_region *region, size_t slack_nbytes, struct ps_error *err)
{
	struct pnm *p = f;
	size_t nbytes;
	p->region = *region;
	p->next_row = 0;
	p->stride = region->width * ps_pixels_nbytes(p->pixels);
	p->chunk = (uint32_t)PS_MAX(1u, ROWS_NBYTES / p->stride);
	if (!ps_size_mul(p->stride, p->chunk, &nbytes) || !ps_size_add(nbytes, slack_nbytes, &nbytes))
		return ps_error_set(err, ENOMEM, "PNM: rows are too long");
	if (ps_format_reserve(&p->out, &p->cap, nbytes))
		return 0;
	return ps_error_set(err, ENOMEM, "PNM: out of memory for %zu bytes", nbytes);
}

static uint32_t value_at(const struct pnm *p, const uint8_t *from, size_t i)
{
	return p->maxval > 255 ? (uint32_t)from[2 * i] << 8 | from[2 * i + 1] : from[i];
}

/* v of maxval, as a share of `full`, rounded. */
static uint32_t scaled(const struct pnm *p, uint32_t v, uint32_t full)
{
	if (p->maxval == full)
		return v;
	return v >= p->maxval ? full : (uint32_t)((v * UINT64_C(2) * full + p->maxval) / (2 * p->maxval));
}

static void row_convert(const struct pnm *p, const uint8_t *from, uint8_t *to)
{
	uint16_t *wide = (uint16_t *)(void *)to;
	for (size_t i = 0; i < p->region.width; i++) {
		if (p->pixels == PS_PIXELS_LABELS) {
			wide[i] = (uint16_t)value_at(p, from, i);
			continue;
		}
		for (size_t c = 0; c < 3; c++) {
			uint32_t v = value_at(p, from, p->channels == 3 ? 3 * i + c : i);
			if (p->pixels == PS_PIXELS_RGBA16)
				wide[4 * i + c] = (uint16_t)scaled(p, v, UINT16_MAX);
			else
				to[3 * i + c] = (uint8_t)scaled(p, v, 255);
		}
		if (p->pixels == PS_PIXELS_RGBA16)
			wide[4 * i + 3] = UINT16_MAX;
	}
}

static int pnm_rows(void *f, struct ps_image_rows *ret_rows, struct ps_error *err)
{
	struct pnm *p = f;
	uint32_t n = PS_MIN(p->chunk, p->region.height - p->next_row);
	(void)err;
	for (uint32_t i = 0; i < n; i++, p->next_row++) {
		size_t at = (size_t)(p->region.y + p->next_row) * p->size.width + p->region.x;
		row_convert(p, p->data + p->raster + at * stored_pixel(p), p->out + i * p->stride);
	}
	*ret_rows = (struct ps_image_rows){p->out, p->stride, n};
	return 0;
}

const struct ps_format ps_format_pnm = {
        .name = "PNM",
        .has_wide = true,
        .nbytes = sizeof(struct pnm),
        .free = pnm_free,
        .open = pnm_open,
        .start = pnm_start,
        .rows = pnm_rows,
};
