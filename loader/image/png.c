/* Reads PNG by libpng, of any depth and colour type. Pixels are converted to RGB as in PIL: palettes are
 * looked up; gray of few bits is spread to 0..255; alpha, transparent colours, and the lower eight of 16 bits
 * are dropped; gamma and colour profiles are not applied. A bad checksum of pixels, or an end before IEND, is
 * damage; other chunks are ignored (except eXIf and two texts, where orientation is wanted). PS_PIXELS_RGBA16 keeps 16
 * bits, alpha and the transparent colour (tRNS).
 *
 * An error that libpng calls benign is tolerated outside the pixels' stream (a palette or tRNS where none
 * belongs, for example). In the stream only two are: bytes after the compressed pixels, and more rows than
 * the image has. */
#include "config.h"

#include "image/format.h"

#ifdef HAVE_PNG

#include <errno.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

#include "base/size.h"

#define SIGNATURE 8u
#define CHUNK_EXTRA 12u /* length, type, checksum */
#define ROWS 8u         /* read at a time, if the image is not interlaced */

struct image {
	png_structp png;
	png_infop info;
	jmp_buf escape;
	char text[160]; /* text of the failure that called longjmp() */
	int failure;    /* errno of that failure */

	const uint8_t *data;
	size_t nbytes, at; /* bytes read so far */
	enum ps_pixels pixels;
	struct ps_image_limits limits;
	struct ps_image_size size;
	int depth, passes;
	struct ps_region region;
	size_t slack_nbytes;
	uint32_t returned; /* rows of the region; if the image is not interlaced */

	uint8_t *out; /* whole rows: `held` of them */
	png_bytep *row_pointers;
	uint32_t held;
	size_t stride, cap, cap_pointers;
	uint32_t nrows; /* read by the last step */

	/* limits.truncated: */
	bool cut;           /* the file has no IEND */
	bool started;       /* the header and all before the pixels were read */
	bool ended;         /* the pixels end before the image does: the other rows are `missing` */
	uint8_t missing[8]; /* a pixel that the file lacks: 0, as a number of the file */
};

static __attribute__((noreturn)) void fail(struct image *m, int errnum, const char *text)
{
	snprintf(m->text, sizeof(m->text), "%s", text);
	m->failure = errnum;
	longjmp(m->escape, 1);
}

/* Called by libpng. */
static __attribute__((noreturn)) void on_error(png_structp png, png_const_charp text)
{
	struct image *m = png_get_error_ptr(png);
	m->ended = m->limits.truncated && !strcmp(text, "Not enough image data");
	fail(m, strstr(text, "memory") && m->at ? ENOMEM : EBADMSG, text);
}

/* Called by libpng, also for benign errors. A damaged end of the pixels' stream is one of these. */
static void on_warning(png_structp png, png_const_charp text)
{
	if (!strncmp(text, "IDAT: ", 6) && strcmp(text + 6, "Extra compressed data") &&
	        strcmp(text + 6, "Too much image data"))
		on_error(png, text);
}

static void on_read(png_structp png, png_bytep to, size_t n)
{
	struct image *m = png_get_io_ptr(png);
	if (n > m->nbytes - m->at) {
		m->ended = m->limits.truncated;
		fail(m, EBADMSG, "truncated");
	}
	memcpy(to, m->data + m->at, n);
	m->at += n;
}

static void png_close(void *f)
{
	struct image *m = f;
	if (m->png)
		png_destroy_read_struct(&m->png, &m->info, NULL);
	m->png = NULL;
	m->info = NULL;
}

/* Runs a step that may leave by fail(). This is the only setjmp, so steps keep no locals across it. */
static int run(struct image *m, void (*step)(struct image *), struct ps_error *err)
{
	if (setjmp(m->escape)) {
		png_close(m);
		if (m->started && m->ended) /* rows that were read are complete, others are `missing` */
			return 0;
		return ps_error_set(err, m->failure, "PNG: %s", m->text);
	}
	step(m);
	return 0;
}

static void image_free(void *f)
{
	struct image *m = f;
	if (!m)
		return;
	png_close(m);
	free(m->out);
	free(m->row_pointers);
	free(m);
}

static uint32_t big_endian(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Finds the chunk of that type by the chunks' lengths alone; NULL if the file ends before it. */
static const uint8_t *chunk_find(const uint8_t *data, size_t nbytes, const char *type, size_t *ret_nbytes)
{
	for (size_t at = SIGNATURE; nbytes - at >= CHUNK_EXTRA;) {
		size_t n = big_endian(data + at);
		if (n > nbytes - at - CHUNK_EXTRA)
			return NULL;
		if (!memcmp(data + at + 4, type, 4)) {
			*ret_nbytes = n;
			return data + at + 8;
		}
		at += n + CHUNK_EXTRA;
	}
	return NULL;
}

/* Metadata in texts -------------------------------------------------------------------------------------- */

/* libpng decodes the texts: it reads a gray image of one pixel that has only the file's texts with these
 * keywords. So texts that follow the pixels are found, too, and no pixel is decoded. */
#define KEY_EXIF "Raw profile type exif" /* as ImageMagick writes it: three lines, then hexadecimal digits */
#define KEY_XMP "XML:com.adobe.xmp"

static const uint8_t text_head[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n', 0, 0, 0, 13, 'I', 'H', 'D',
        'R', 0, 0, 0, 1, 0, 0, 0, 1, 8, 0, 0, 0, 0, 0x3a, 0x7e, 0x9b, 0x55};
static const uint8_t text_tail[] = {0, 0, 0, 0, 'I', 'D', 'A', 'T'};

struct texts {
	png_structp png;
	png_infop info;
	jmp_buf escape;
	const uint8_t *data; /* the file */
	size_t nbytes, at;   /* of its chunks, those before `at` were read */
	const uint8_t *piece;
	size_t piece_left;
	bool no_memory;
};

/* The next text with one of the keywords, from *at on, which moves past it; NULL: none. */
static const uint8_t *text_next(const uint8_t *data, size_t nbytes, size_t *at, size_t *ret_nbytes)
{
	while (nbytes - *at >= CHUNK_EXTRA) {
		const uint8_t *chunk = data + *at, *key = chunk + 8;
		size_t n = big_endian(chunk);
		if (n > nbytes - *at - CHUNK_EXTRA)
			return NULL;
		*at += n + CHUNK_EXTRA;
		if (memcmp(chunk + 4, "tEXt", 4) && memcmp(chunk + 4, "zTXt", 4) &&
		        memcmp(chunk + 4, "iTXt", 4))
			continue;
		if ((n > sizeof(KEY_EXIF) && !memcmp(key, KEY_EXIF, sizeof(KEY_EXIF))) ||
		        (n > sizeof(KEY_XMP) && !memcmp(key, KEY_XMP, sizeof(KEY_XMP)))) {
			*ret_nbytes = n + CHUNK_EXTRA;
			return chunk;
		}
	}
	return NULL;
}

static __attribute__((noreturn)) void text_on_error(png_structp png, png_const_charp text)
{
	struct texts *t = png_get_error_ptr(png);
	t->no_memory = strstr(text, "memory");
	longjmp(t->escape, 1);
}

static void text_on_warning(png_structp png, png_const_charp text)
{
	(void)png;
	(void)text;
}

static void text_on_read(png_structp png, png_bytep to, size_t n)
{
	struct texts *t = png_get_io_ptr(png);
	while (n > 0) {
		if (t->piece_left == 0) {
			t->piece = text_next(t->data, t->nbytes, &t->at, &t->piece_left);
			if (!t->piece) {
				t->piece = text_tail;
				t->piece_left = sizeof(text_tail);
			}
		}
		size_t k = PS_MIN(n, t->piece_left);
		memcpy(to, t->piece, k);
		to += k;
		n -= k;
		t->piece += k;
		t->piece_left -= k;
	}
}

static int hex_digit(char c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
	                              : -1;
}

/* The orientation in the text of a raw profile, whose digits are converted in place. */
static uint32_t profile_orientation(char *text)
{
	char *p = text;
	size_t n = 0;
	for (int line = 0; line < 3; line++) {
		p = strchr(p, '\n');
		if (!p)
			return 0;
		p++;
	}
	for (; *p; p++) {
		int digit = hex_digit(*p);
		if (digit < 0 && *p != '\n' && *p != ' ')
			return 0;
		if (digit < 0)
			continue;
		uint8_t *byte = (uint8_t *)text + n / 2;
		*byte = (uint8_t)(n % 2 ? *byte | digit : digit << 4);
		n++;
	}
	return ps_exif_orientation((const uint8_t *)text, n / 2);
}

/* Reads the texts into t->info. False: they are damaged, or memory is short. */
static bool texts_read(struct texts *t)
{
	t->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, t, text_on_error, text_on_warning);
	t->info = t->png ? png_create_info_struct(t->png) : NULL;
	t->no_memory = !t->info;
	if (t->no_memory || setjmp(t->escape))
		return false;
	png_set_read_fn(t->png, t, text_on_read);
	png_set_benign_errors(t->png, 1);
	png_read_info(t->png, t->info);
	return true;
}

/* The orientation in the texts that were read. With `profile` the raw profile is used before XMP. */
static uint32_t texts_orientation(const struct texts *t, bool profile)
{
	png_textp all;
	int n = 0;
	uint32_t of_profile = 0, of_xmp = 0;

	png_get_text(t->png, t->info, &all, &n);
	for (int i = 0; i < n; i++) { /* of equal keywords the last one counts, as in Pillow */
		if (!strcmp(all[i].key, KEY_EXIF))
			of_profile = profile_orientation(all[i].text);
		else
			of_xmp = ps_xmp_orientation(all[i].text, strlen(all[i].text));
	}
	return profile && of_profile ? of_profile : of_xmp;
}

static int image_orientation(
        const uint8_t *data, size_t nbytes, uint32_t *ret_orientation, struct ps_error *err)
{
	struct texts t = {.data = data,
	        .nbytes = nbytes,
	        .at = SIGNATURE,
	        .piece = text_head,
	        .piece_left = sizeof(text_head)};
	size_t exif_nbytes = 0, at = SIGNATURE, n;
	const uint8_t *exif = chunk_find(data, nbytes, "eXIf", &exif_nbytes);

	*ret_orientation = ps_exif_orientation(exif, exif_nbytes);
	if (*ret_orientation || !text_next(data, nbytes, &at, &n))
		return 0;
	if (texts_read(&t)) /* damaged texts have no orientation */
		*ret_orientation = texts_orientation(&t, !exif);
	if (t.png)
		png_destroy_read_struct(&t.png, &t.info, NULL);
	if (t.no_memory)
		return ps_error_set(err, ENOMEM, "PNG: out of memory for its metadata");
	return 0;
}

/* The image ---------------------------------------------------------------------------------------------- */

static void step_open(struct image *m)
{
	m->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, m, on_error, on_warning);
	m->info = m->png ? png_create_info_struct(m->png) : NULL;
	if (!m->info)
		fail(m, ENOMEM, "out of memory");
	png_set_read_fn(m->png, m, on_read);
	png_set_user_limits(m->png, 1u << 24, 1u << 24);
	png_set_benign_errors(m->png, 1);
	if (m->cut) /* libpng reads byte by byte, so that it decodes the last one that there is */
		png_set_compression_buffer_size(m->png, 1);
	png_set_keep_unknown_chunks(m->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
	png_read_info(m->png, m->info);
	m->size.width = png_get_image_width(m->png, m->info);
	m->size.height = png_get_image_height(m->png, m->info);
	m->depth = png_get_bit_depth(m->png, m->info);
}

static int image_open(void *f, const uint8_t *data, size_t nbytes, enum ps_pixels pixels,
        const struct ps_image_limits *limits, struct ps_image_size *ret_size, struct ps_error *err)
{
	struct image *m = f;
	size_t end_nbytes;
	png_close(m);
	m->cut = !chunk_find(data, nbytes, "IEND", &end_nbytes);
	m->started = m->ended = false;
	if (m->cut && !limits->truncated)
		return ps_error_set(err, EBADMSG, "PNG: truncated: no IEND chunk in %zu bytes", nbytes);
	m->data = data;
	m->nbytes = nbytes;
	m->at = 0;
	m->pixels = pixels;
	m->limits = *limits;
	int rc = run(m, step_open, err);
	if (rc == 0)
		rc = ps_format_check_size("PNG", m->size.width, m->size.height, limits, err);
	if (rc == 0)
		*ret_size = m->size;
	else
		png_close(m);
	return rc;
}

static void set_transforms(struct image *m)
{
	int colour = png_get_color_type(m->png, m->info);
	if (m->pixels == PS_PIXELS_LABELS) {
		if (colour != PNG_COLOR_TYPE_GRAY && colour != PNG_COLOR_TYPE_PALETTE)
			fail(m, EBADMSG, "labels must be gray or of a palette, not RGB or with alpha");
		png_set_packing(m->png);
		if (m->depth == 16 && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)
			png_set_swap(m->png);
		return;
	}
	if (m->pixels == PS_PIXELS_RGBA16) {
		bool alpha = colour & PNG_COLOR_MASK_ALPHA || png_get_valid(m->png, m->info, PNG_INFO_tRNS);
		png_set_expand_16(m->png); /* also expands palettes, low bit depths and tRNS */
		if (!(colour & PNG_COLOR_MASK_COLOR))
			png_set_gray_to_rgb(m->png);
		if (!alpha)
			png_set_add_alpha(m->png, UINT16_MAX, PNG_FILLER_AFTER);
		if (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)
			png_set_swap(m->png);
		return;
	}
	if (colour == PNG_COLOR_TYPE_PALETTE)
		png_set_palette_to_rgb(m->png);
	else if (!(colour & PNG_COLOR_MASK_COLOR) && m->depth < 8)
		png_set_expand_gray_1_2_4_to_8(m->png);
	png_set_strip_16(m->png);
	png_set_strip_alpha(m->png);
	if (!(colour & PNG_COLOR_MASK_COLOR))
		png_set_gray_to_rgb(m->png);
}

/* Sets the pixel that a truncated file lacks. */
static void set_missing(struct image *m)
{
	int colour = png_get_color_type(m->png, m->info), n_palette = 0, n_alpha = 0;
	png_colorp palette = NULL;
	png_bytep alpha = NULL;
	png_color_16p clear = NULL;
	uint16_t wide[4] = {0, 0, 0, colour & PNG_COLOR_MASK_ALPHA ? 0 : UINT16_MAX};

	memset(m->missing, 0, sizeof(m->missing));
	if (colour == PNG_COLOR_TYPE_PALETTE)
		png_get_PLTE(m->png, m->info, &palette, &n_palette);
	png_get_tRNS(m->png, m->info, &alpha, &n_alpha, &clear);
	if (m->pixels == PS_PIXELS_RGB && n_palette > 0)
		memcpy(m->missing, (const uint8_t[]){palette->red, palette->green, palette->blue}, 3);
	if (m->pixels != PS_PIXELS_RGBA16)
		return;
	if (n_palette > 0) {
		wide[0] = (uint16_t)(palette->red * 257);
		wide[1] = (uint16_t)(palette->green * 257);
		wide[2] = (uint16_t)(palette->blue * 257);
	}
	if (colour == PNG_COLOR_TYPE_PALETTE && n_alpha > 0)
		wide[3] = (uint16_t)(alpha[0] * 257);
	else if (clear && colour == PNG_COLOR_TYPE_GRAY)
		wide[3] = clear->gray ? UINT16_MAX : 0;
	else if (clear && colour == PNG_COLOR_TYPE_RGB)
		wide[3] = clear->red || clear->green || clear->blue ? UINT16_MAX : 0;
	memcpy(m->missing, wide, sizeof(wide));
}

static void rows_fill(struct image *m, uint32_t n)
{
	const size_t pixel = ps_pixels_nbytes(m->pixels);
	for (size_t at = 0; at < n * m->stride; at += pixel)
		memcpy(m->out + at, m->missing, pixel);
}

/* Allocates `held` rows as libpng writes them; labels of 8 bits are widened to 16 in place. */
static void reserve_rows(struct image *m)
{
	size_t nbytes, row = m->size.width * ps_pixels_nbytes(m->pixels);
	struct ps_error why;
	m->held = m->passes > 1 ? m->size.height : ROWS;
	m->stride = row;
	if (!ps_size_mul(row, m->held, &nbytes) || !ps_size_add(nbytes, m->slack_nbytes, &nbytes))
		fail(m, ENOMEM, "out of memory");
	if (m->passes > 1 &&
	        ps_format_take_memory("interlaced", "for all rows", nbytes, &m->limits, &why) < 0)
		fail(m, EBADMSG, why.text);
	bool sound = ps_format_reserve(&m->out, &m->cap, nbytes);
	if (m->held > m->cap_pointers) {
		free(m->row_pointers);
		m->row_pointers = calloc(m->held, sizeof(*m->row_pointers));
		m->cap_pointers = m->row_pointers ? m->held : 0;
	}
	if (!sound || !m->cap_pointers)
		fail(m, ENOMEM, "out of memory for rows");
	for (uint32_t i = 0; i < m->held; i++)
		m->row_pointers[i] = m->out + i * m->stride;
}

/* Reads the whole image if it is interlaced; else only the rows above the region. */
static void step_start(struct image *m)
{
	set_transforms(m);
	set_missing(m);
	m->passes = png_set_interlace_handling(m->png);
	png_read_update_info(m->png, m->info);
	reserve_rows(m);
	if (png_get_rowbytes(m->png, m->info) > m->stride)
		fail(m, EBADMSG, "unexpected length of rows");
	m->started = true;
	if (m->passes > 1) {
		rows_fill(m, m->limits.truncated ? m->held : 0);
		png_read_image(m->png, m->row_pointers);
		return;
	}
	for (uint32_t y = 0; y < m->region.y; y++)
		png_read_row(m->png, m->out, NULL);
}

static int image_start(void *f, const struct ps_region *region, size_t slack_nbytes, struct ps_error *err)
{
	struct image *m = f;
	m->region = *region;
	m->slack_nbytes = slack_nbytes;
	m->returned = 0;
	return run(m, step_start, err);
}

static void step_rows(struct image *m)
{
	rows_fill(m, m->limits.truncated ? m->nrows : 0);
	if (!m->ended)
		png_read_rows(m->png, m->row_pointers, NULL, m->nrows);
}

static int image_rows(void *f, struct ps_image_rows *ret_rows, struct ps_error *err)
{
	struct image *m = f;
	uint32_t first = 0;
	if (m->passes > 1) {
		first = m->region.y;
		m->nrows = m->region.height;
	} else {
		m->nrows = PS_MIN(m->held, m->region.height - m->returned);
		int rc = run(m, step_rows, err);
		if (rc < 0)
			return rc;
		m->returned += m->nrows;
	}
	for (uint32_t i = 0; i < m->nrows && m->pixels == PS_PIXELS_LABELS && m->depth < 16; i++)
		ps_format_widen(m->row_pointers[first + i], m->size.width);
	ret_rows->first = m->row_pointers[first] + m->region.x * ps_pixels_nbytes(m->pixels);
	ret_rows->stride = m->stride;
	ret_rows->n = m->nrows;
	return 0;
}

static bool image_truncated(const void *f)
{
	const struct image *m = f;
	return m->cut || m->ended;
}

static void png_library(char *buf, size_t n)
{
	snprintf(buf, n, "libpng %s", png_get_libpng_ver(NULL));
}

const struct ps_format ps_format_png = {
        .name = "PNG",
        .has_wide = true,
        .library = png_library,
        .nbytes = sizeof(struct image),
        .free = image_free,
        .open = image_open,
        .start = image_start,
        .rows = image_rows,
        .close = png_close,
        .truncated = image_truncated,
        .orientation = image_orientation,
};

#endif
