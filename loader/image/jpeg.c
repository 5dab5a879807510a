#include "image/image.h"

#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>

#include "base/size.h"
#include "image/format.h"
#include "image/huffman.h"

#define ROWS 8u       /* decoded at a time: few calls, and rows that fit in the L1 cache */
#define MARGIN 1u     /* pixels left and right of the region: fancy upsampling looks at the neighbours */
#define NARROWEST 16u /* of decoded rows: with fewer than three chroma values there is no fancy upsampling */
#define MARKER_SOS 0xda
/* extra bytes that are tolerated before a restart marker: cameras write some; more of them are damage: a
 * segment that was not decoded */
#define MOST_BEFORE_RST 64
#define OTHER_MEMORY (16 << 20) /* bytes that libjpeg may take besides coefficients: tables, a few rows */

/* libjpeg-turbo bypasses the cache (non-temporal stores) for rows that start at a multiple of 32. The resize
 * then waits for memory, up to 17 % of the whole time. So rows start 8 bytes after such a multiple. */
#define ROW_ALIGN 32u
#define ROW_SHIFT 8u

struct ps_jpeg {
	struct jpeg_decompress_struct cinfo;
	struct jpeg_error_mgr errors;
	struct jpeg_progress_mgr progress;
	jmp_buf escape;
	int failure;    /* errno of the failure that called longjmp() */
	char text[320]; /* text of that failure */
	bool created;   /* cinfo was created */
	/* The file has no end, and limits.truncated allows that. libjpeg reads it with an end-of-image marker
	 * appended, and no byte after that. */
	bool cut;
	bool appended;  /* the marker was given to libjpeg */
	bool starved;   /* libjpeg needs bytes after it: the rows that it did not return are 0 */
	long unskipped; /* bytes that libjpeg skips beyond the end */
	struct ps_huffman huffman;

	const uint8_t *data;
	size_t nbytes;
	struct ps_image_limits limits;
	enum ps_pixels pixels_kind;
	struct ps_region region;
	uint32_t rows_left;
	size_t slack_nbytes;

	uint8_t *pixels; /* ROWS rows of stride bytes, after ROW_SHIFT bytes */
	size_t cap, stride;
	size_t lead_nbytes; /* bytes from a decoded row's start to the region's start */
	uint32_t nrows;     /* decoded by the last step */
};

static __attribute__((noreturn, format(printf, 3, 4))) void fail(
        struct ps_jpeg *j, int errnum, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(j->text, sizeof(j->text), fmt, ap);
	va_end(ap);
	j->failure = errnum;
	longjmp(j->escape, 1);
}

static struct ps_jpeg *of(j_common_ptr cinfo)
{
	return PS_CONTAINER_OF(cinfo->err, struct ps_jpeg, errors);
}

/* Called by libjpeg on errors. */
static __attribute__((noreturn)) void on_error(j_common_ptr cinfo)
{
	struct ps_jpeg *j = of(cinfo);
	char message[JMSG_LENGTH_MAX];
	cinfo->err->format_message(cinfo, message);
	switch (cinfo->err->msg_code) {
	case JERR_OUT_OF_MEMORY:
		fail(j, ENOMEM, "JPEG: out of memory");
	case JERR_NO_BACKING_STORE:
		fail(j, EBADMSG, "JPEG: needs more than %llu bytes of memory; raise max_pixels",
		        (unsigned long long)j->limits.max_memory);
	default:
		fail(j, EBADMSG, "JPEG: cannot be decoded: %s", message);
	}
}

/* True for the warnings that image.h lists as tolerated. */
static bool is_harmless(const struct jpeg_error_mgr *e)
{
	switch (e->msg_code) {
	case JWRN_ADOBE_XFORM:
	case JWRN_JFIF_MAJOR:
	case JWRN_NOT_SEQUENTIAL:
	case JWRN_BOGUS_ICC:
		return true;
	case JWRN_EXTRANEOUS_DATA: {
		int nbytes = e->msg_parm.i[0], marker = e->msg_parm.i[1];
		return marker < JPEG_RST0 || marker > JPEG_RST0 + 7 || nbytes <= MOST_BEFORE_RST;
	}
	default:
		return false;
	}
}

/* Called by libjpeg on warnings (level -1) and traces. */
static void on_message(j_common_ptr cinfo, int level)
{
	char message[JMSG_LENGTH_MAX];
	if (level >= 0 || is_harmless(cinfo->err))
		return;
	/* the decoder reached the appended marker, and fills in what is missing */
	if (of(cinfo)->cut && of(cinfo)->cinfo.unread_marker == JPEG_EOI)
		return;
	cinfo->err->format_message(cinfo, message);
	if (cinfo->err->msg_code == JWRN_JPEG_EOF || cinfo->err->msg_code == JWRN_HIT_MARKER)
		fail(of(cinfo), EBADMSG, "JPEG: truncated: %s", message);
	fail(of(cinfo), EBADMSG, "JPEG: damaged: %s", message);
}

/* Called by libjpeg between rows of blocks. */
static void on_progress(j_common_ptr cinfo)
{
	struct ps_jpeg *j = of(cinfo);
	if ((uint32_t)j->cinfo.input_scan_number > j->limits.max_scans)
		fail(j, EBADMSG, "JPEG: more than %u scans", j->limits.max_scans);
}

static void jpeg_close(void *f)
{
	struct ps_jpeg *j = f;
	if (j->created)
		jpeg_abort_decompress(&j->cinfo);
	j->rows_left = 0;
}

/* Runs a step that may leave by fail(). This is the only setjmp, so steps keep no locals across it. */
static int run(struct ps_jpeg *j, void (*step)(struct ps_jpeg *), struct ps_error *err)
{
	if (setjmp(j->escape)) {
		jpeg_close(j);
		return ps_error_set(err, j->failure, "%s", j->text);
	}
	step(j);
	return 0;
}

static void step_create(struct ps_jpeg *j)
{
	jpeg_create_decompress(&j->cinfo);
	j->created = true;
}

static void *jpeg_make(void)
{
	struct ps_jpeg *j = calloc(1, sizeof(*j));
	if (!j)
		return NULL;
	j->cinfo.err = jpeg_std_error(&j->errors);
	j->errors.error_exit = on_error;
	j->errors.emit_message = on_message;
	j->progress.progress_monitor = on_progress;
	if (run(j, step_create, NULL) < 0) {
		jpeg_destroy_decompress(&j->cinfo);
		free(j);
		return NULL;
	}
	j->cinfo.progress = &j->progress;
	return j;
}

static void jpeg_free(void *f)
{
	struct ps_jpeg *j = f;
	if (!j)
		return;
	jpeg_destroy_decompress(&j->cinfo);
	free(j->pixels);
	free(j);
}

static uint64_t round_up(uint64_t n, int unit)
{
	return (n + (unsigned)unit - 1) / (unsigned)unit * (unsigned)unit;
}

static void check_size(struct ps_jpeg *j)
{
	const struct jpeg_decompress_struct *c = &j->cinfo;
	struct ps_error why;
	uint64_t coef_nbytes = 0;
	if (ps_format_check_size("JPEG", c->image_width, c->image_height, &j->limits, &why) < 0)
		fail(j, EBADMSG, "%s", why.text);
	if (c->data_precision != 8)
		fail(j, EBADMSG, "JPEG: %d bits a value: only 8 are supported", c->data_precision);
	if (!jpeg_has_multiple_scans((j_decompress_ptr)c))
		return;
	for (int i = 0; i < c->num_components; i++) {
		const jpeg_component_info *p = &c->comp_info[i];
		coef_nbytes += round_up(p->width_in_blocks, p->h_samp_factor) *
		               round_up(p->height_in_blocks, p->v_samp_factor) * sizeof(JBLOCK);
	}
	if (ps_format_take_memory("JPEG", "for coefficients", coef_nbytes, &j->limits, &why) < 0)
		fail(j, EBADMSG, "%s", why.text);
}

/* A source that ends with the appended marker. As in Pillow, libjpeg is then suspended. */
static boolean cut_fill(j_decompress_ptr c)
{
	static const uint8_t end[] = {0xff, JPEG_EOI};
	struct ps_jpeg *j = of((j_common_ptr)c);

	if (j->appended || j->unskipped >= (long)sizeof(end))
		return FALSE;
	j->appended = true;
	c->src->next_input_byte = end + j->unskipped;
	c->src->bytes_in_buffer = sizeof(end) - (size_t)j->unskipped;
	return TRUE;
}

static void cut_skip(j_decompress_ptr c, long n)
{
	long have = (long)PS_MIN(c->src->bytes_in_buffer, (size_t)LONG_MAX);

	if (n <= 0)
		return;
	if (n > have)
		of((j_common_ptr)c)->unskipped = n - have;
	n = PS_MIN(n, have);
	c->src->next_input_byte += n;
	c->src->bytes_in_buffer -= (size_t)n;
}

static bool has_end(const struct ps_jpeg *j, const uint8_t *scan)
{
	for (const uint8_t *p = j->data + j->nbytes - 1; p > scan; p--) {
		if (p[0] == JPEG_EOI && p[-1] == 0xff)
			return true;
	}
	return false;
}

/* Checks two cheap signs of a cut file, whatever the crop: too few bytes, and no end-of-image marker. */
static void check_length(struct ps_jpeg *j)
{
	const struct jpeg_decompress_struct *c = &j->cinfo;
	const uint8_t *scan = j->data + (j->nbytes - c->src->bytes_in_buffer);
	uint64_t blocks = 0;
	bool ends = has_end(j, scan);
	if (!ends && j->limits.truncated) {
		j->cut = true;
		c->src->fill_input_buffer = cut_fill;
		c->src->skip_input_data = cut_skip;
		return;
	}
	for (int i = 0; i < c->comps_in_scan; i++)
		blocks += (uint64_t)c->cur_comp_info[i]->width_in_blocks *
		          c->cur_comp_info[i]->height_in_blocks;
	/* A Huffman code has at least one bit; arithmetic codes have no such bound. */
	if (!c->arith_code && c->src->bytes_in_buffer < blocks / 8)
		fail(j, EBADMSG, "JPEG: truncated: %zu bytes cannot hold %u x %u pixels", j->nbytes,
		        c->image_width, c->image_height);
	if (!ends)
		fail(j, EBADMSG, "JPEG: truncated: no end-of-image marker in %zu bytes", j->nbytes);
}

static void step_open(struct ps_jpeg *j)
{
	struct jpeg_decompress_struct *c = &j->cinfo;
	c->mem->max_memory_to_use =
	        (long)PS_MIN(j->limits.max_memory, (uint64_t)LONG_MAX - OTHER_MEMORY) + OTHER_MEMORY;
	jpeg_mem_src(c, j->data, j->nbytes);
	jpeg_read_header(c, TRUE);
	check_size(j);
	check_length(j);
	switch (c->jpeg_color_space) {
	case JCS_GRAYSCALE:
	case JCS_RGB:
	case JCS_YCbCr:
		c->out_color_space = JCS_RGB;
		break;
	case JCS_CMYK:
	case JCS_YCCK:
		c->out_color_space = JCS_CMYK;
		break;
	default:
		fail(j, EBADMSG, "JPEG: unknown colour space of %d components", c->num_components);
	}
	if (j->pixels_kind == PS_PIXELS_RGB)
		return;
	if (c->jpeg_color_space != JCS_GRAYSCALE)
		fail(j, EBADMSG, "JPEG: labels must be gray, not of %d components", c->num_components);
	c->out_color_space = JCS_GRAYSCALE;
}

static int jpeg_open(void *f, const uint8_t *data, size_t nbytes, enum ps_pixels pixels,
        const struct ps_image_limits *limits, struct ps_image_size *ret_size, struct ps_error *err)
{
	struct ps_jpeg *j = f;
	jpeg_close(j);
	if (nbytes == 0)
		return ps_error_set(err, EBADMSG, "JPEG: empty file");
	j->data = data;
	j->nbytes = nbytes;
	j->cut = j->appended = j->starved = false;
	j->unskipped = 0;
	j->limits = *limits;
	j->pixels_kind = pixels;
	int rc = run(j, step_open, err);
	if (rc < 0)
		return rc;
	*ret_size = (struct ps_image_size){j->cinfo.image_width, j->cinfo.image_height};
	return 0;
}

static bool jpeg_for_gpu(const void *f)
{
	const struct ps_jpeg *j = f;
	return !j->cut &&
	       (j->cinfo.jpeg_color_space == JCS_YCbCr || j->cinfo.jpeg_color_space == JCS_GRAYSCALE);
}

static bool jpeg_truncated(const void *f)
{
	const struct ps_jpeg *j = f;
	return j->cut;
}

static void reserve_pixels(struct ps_jpeg *j)
{
	size_t row, nbytes;
	size_t pixel = PS_MAX((size_t)j->cinfo.output_components, ps_pixels_nbytes(j->pixels_kind));
	if (!ps_size_mul(j->cinfo.output_width, pixel, &row) || !ps_size_add(row, j->slack_nbytes, &row) ||
	        !ps_size_round_up(row, ROW_ALIGN, &j->stride) || !ps_size_mul(j->stride, ROWS, &nbytes) ||
	        !ps_size_add(nbytes, ROW_ALIGN, &nbytes))
		fail(j, ENOMEM, "JPEG: rows of %u pixels are too long", j->cinfo.output_width);
	if (nbytes <= j->cap)
		return;
	free(j->pixels);
	j->cap = 0;
	j->pixels = aligned_alloc(ROW_ALIGN, nbytes);
	if (!j->pixels)
		fail(j, ENOMEM, "JPEG: out of memory for %zu bytes of pixels", nbytes);
	memset(j->pixels, 0, nbytes); /* the slack is read, though not used */
	j->cap = nbytes;
}

/* Starts a file without an end. All of it is decoded, because the smoothing of unfinished progressive files depends on
 * the blocks around the region. */
static void cut_start(struct ps_jpeg *j)
{
	struct jpeg_decompress_struct *c = &j->cinfo;

	c->do_block_smoothing = TRUE; /* as in Pillow */
	j->starved = j->starved || !jpeg_start_decompress(c);
	j->lead_nbytes = j->region.x * ps_pixels_nbytes(j->pixels_kind);
	reserve_pixels(j);
	while (!j->starved && c->output_scanline < j->region.y) {
		JSAMPROW row = j->pixels + ROW_SHIFT;
		j->starved = jpeg_read_scanlines(c, &row, 1) == 0;
	}
}

static void step_start(struct ps_jpeg *j)
{
	struct jpeg_decompress_struct *c = &j->cinfo;
	const struct ps_region *r = &j->region;
	JDIMENSION left = r->x > MARGIN ? r->x - MARGIN : 0, right, width;

	c->dct_method = JDCT_ISLOW;
	c->do_fancy_upsampling = TRUE;
	/* smoothing would guess the coefficients that an unfinished progressive file lacks */
	c->do_block_smoothing = FALSE;
	if (j->cut) {
		cut_start(j);
		return;
	}
	if (!jpeg_start_decompress(c))
		fail(j, EBADMSG, "JPEG: truncated");
	(void)ps_jpeg_entropy_replace(c, &j->huffman);
	right = PS_MIN(PS_MAX(r->x + r->width + MARGIN, left + NARROWEST), c->output_width);
	if (right - left < NARROWEST)
		left = right > NARROWEST ? right - NARROWEST : 0;
	width = right - left;
	if (width < c->output_width)
		jpeg_crop_scanline(c, &left, &width); /* moves the left edge outwards to a block's edge */
	else
		left = 0;
	j->lead_nbytes = (r->x - left) * ps_pixels_nbytes(j->pixels_kind);
	reserve_pixels(j);
	if (r->y > 0 && jpeg_skip_scanlines(c, r->y) != r->y)
		fail(j, EBADMSG, "JPEG: truncated above row %u", r->y);
}

/* The inverse DCT makes blocks of 8 / by pixels. */
static void jpeg_shrink(void *f, uint32_t by)
{
	struct ps_jpeg *j = f;
	j->cinfo.scale_num = 1;
	j->cinfo.scale_denom = by;
}

/* As run(). But a step that fails because of the appended marker (it may be in the middle of a header) leaves the
 * rest of the rows 0, as in Pillow. */
static int run_cut(struct ps_jpeg *j, void (*step)(struct ps_jpeg *), struct ps_error *err)
{
	uint32_t rows_left = j->rows_left;
	int rc = run(j, step, err);
	if (rc != -EBADMSG || !j->cut || !j->appended)
		return rc;
	j->starved = true;
	j->rows_left = rows_left;
	return run(j, step, err);
}

static int jpeg_start(void *f, const struct ps_region *region, size_t slack_nbytes, struct ps_error *err)
{
	struct ps_jpeg *j = f;
	j->region = *region;
	j->rows_left = region->height;
	j->slack_nbytes = slack_nbytes;
	return run_cut(j, step_start, err);
}

/* Converts in place: a pixel's three bytes never overtake the four bytes they come from. */
static void cmyk_to_rgb(uint8_t *row, uint32_t width)
{
	const uint8_t *from = row;
	for (uint32_t i = 0; i < width; i++, from += 4, row += 3) {
		unsigned k = from[3];
		uint8_t rgb[3];
		for (int c = 0; c < 3; c++) {
			unsigned product = k * (255u - from[c]) + 128; /* to be divided by 255 */
			rgb[c] = (uint8_t)(k - ((product + (product >> 8)) >> 8));
		}
		memcpy(row, rgb, 3);
	}
}

static void step_rows(struct ps_jpeg *j)
{
	uint32_t want = PS_MIN(ROWS, j->rows_left);
	JSAMPROW rows[ROWS];
	for (uint32_t i = 0; i < want; i++)
		rows[i] = j->pixels + ROW_SHIFT + i * j->stride;
	for (uint32_t got = 0; got < want;) {
		JDIMENSION n = j->starved ? 0 : jpeg_read_scanlines(&j->cinfo, rows + got, want - got);
		if (n == 0 && j->cut) {
			j->starved = true;
			/* Pillow's 0 of CMYK is the file's 255 */
			memset(rows[got], j->cinfo.out_color_space == JCS_CMYK ? 255 : 0,
			        (size_t)j->cinfo.output_width * (size_t)j->cinfo.output_components);
			n = 1;
		}
		if (n == 0)
			fail(j, EBADMSG, "JPEG: truncated at row %u", j->cinfo.output_scanline);
		got += n;
	}
	for (uint32_t i = 0; i < want && j->cinfo.out_color_space == JCS_CMYK; i++)
		cmyk_to_rgb(rows[i], j->cinfo.output_width);
	for (uint32_t i = 0; i < want && j->pixels_kind == PS_PIXELS_LABELS; i++)
		ps_format_widen(rows[i], j->cinfo.output_width);
	j->nrows = want;
}

static int jpeg_rows(void *f, struct ps_image_rows *ret_rows, struct ps_error *err)
{
	struct ps_jpeg *j = f;
	int rc = run_cut(j, step_rows, err);
	if (rc < 0)
		return rc;
	j->rows_left -= j->nrows;
	*ret_rows = (struct ps_image_rows){j->pixels + ROW_SHIFT + j->lead_nbytes, j->stride, j->nrows};
	return 0;
}

/* Looks for EXIF and XMP in the segments before the first scan. */
static int jpeg_orientation(
        const uint8_t *data, size_t nbytes, uint32_t *ret_orientation, struct ps_error *err)
{
	static const char xmp_name[] = "http://ns.adobe.com/xap/1.0/";
	const uint8_t *exif = NULL, *xmp = NULL;
	size_t exif_nbytes = 0, xmp_nbytes = 0;
	uint32_t found;

	(void)err;
	for (size_t at = 2; at < nbytes && nbytes - at >= 4 && data[at] == 0xff;) {
		uint8_t marker = data[at + 1];
		size_t n = (size_t)data[at + 2] << 8 | data[at + 3];
		const uint8_t *body = data + at + 4;
		if (marker == 0xff) { /* fill byte */
			at++;
			continue;
		}
		if (marker == MARKER_SOS || n < 2 || n > nbytes - at - 2)
			break;
		if (marker == JPEG_APP0 + 1 && n >= 8 && !memcmp(body, "Exif\0", 6) && !exif) {
			exif = body;
			exif_nbytes = n - 2;
		} else if (marker == JPEG_APP0 + 1 && n - 2 >= sizeof(xmp_name) &&
		           !memcmp(body, xmp_name, sizeof(xmp_name))) {
			xmp = body + sizeof(xmp_name);
			xmp_nbytes = n - 2 - sizeof(xmp_name);
		}
		at += 2 + n;
	}
	found = ps_exif_orientation(exif, exif_nbytes);
	*ret_orientation = found ? found : ps_xmp_orientation(xmp, xmp_nbytes);
	return 0;
}

static void jpeg_library(char *buf, size_t n)
{
#ifdef LIBJPEG_TURBO_VERSION
#define TEXT(x) #x
#define TEXT_OF(x) TEXT(x)
	snprintf(buf, n, "libjpeg-turbo " TEXT_OF(LIBJPEG_TURBO_VERSION) " (compiled with)");
#else
	snprintf(buf, n, "libjpeg %d (compiled with)", JPEG_LIB_VERSION);
#endif
}

const struct ps_format ps_format_jpeg = {
        .name = "JPEG",
        .library = jpeg_library,
        .make = jpeg_make,
        .free = jpeg_free,
        .open = jpeg_open,
        .shrink = jpeg_shrink,
        .start = jpeg_start,
        .rows = jpeg_rows,
        .close = jpeg_close,
        .for_gpu = jpeg_for_gpu,
        .truncated = jpeg_truncated,
        .orientation = jpeg_orientation,
};
