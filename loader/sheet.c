/* A batch as a picture for people: its images with their labels, as a PNG. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/number.h"
#include "batch/batch.h"
#include "public.h"
#include "sheet_font.h"

enum {
	MOST = 64,       /* rows on a sheet, and pictures of a row */
	LONGEST = 256,   /* a picture with a longer side is shrunk by a whole number ... */
	SHORTEST = 64,   /* ... and one that is not longer than this is enlarged, ... */
	ENLARGED = 128,  /* ... to at most this */
	GAP = 8,         /* between pictures */
	LINES = 3,       /* of labels */
	TEXT_MOST = 128, /* of a line, in letters */
};

/* One of the pictures of a row. */
struct picture {
	uint32_t field, view;
	uint32_t width, height; /* of the images */
	uint32_t shrink, grow;  /* factors; one of them is 1 */
	uint32_t shown_width, shown_height;
};

struct sheet {
	const struct penstock_batch *batch;
	uint32_t npictures;
	struct picture pictures[MOST]; /* the same for each row */
	uint32_t nrows, columns;       /* rows of the batch; how many of them are side by side */
	uint32_t cell_width, cell_height;
	char *classes; /* CLASSES.txt beside the first shard; NULL: none */
	struct ps_image_size size;
	uint8_t *rgb;
};

static void sheet_fini(struct sheet *s)
{
	free(s->classes);
	free(s->rgb);
}

/* The plan of the sheet ---------------------------------------------------------------------------------- */

static void picture_plan(const struct ps_image_spec *spec, struct picture *p)
{
	uint32_t longer = PS_MAX(spec->out_width, spec->out_height);

	p->width = spec->out_width;
	p->height = spec->out_height;
	p->shrink = (longer + LONGEST - 1) / LONGEST;
	p->grow = longer <= SHORTEST ? ENLARGED / longer : 1;
	p->shown_width = (p->width * p->grow + p->shrink - 1) / p->shrink;
	p->shown_height = (p->height * p->grow + p->shrink - 1) / p->shrink;
}

/* The text of CLASSES.txt beside the shard, which `pack --classes` writes. NULL: there is none. */
static char *classes_read(const char *shard)
{
	const char *slash = strrchr(shard, '/');
	ps_autofree char *path = NULL, *text = NULL;
	size_t room = 0;

	if (asprintf(&path, "%.*sCLASSES.txt", slash ? (int)(slash - shard + 1) : 0, shard) < 0)
		return NULL;
	FILE *f = fopen(path, "re");
	if (!f)
		return NULL;
	ssize_t n = getdelim(&text, &room, 0, f);
	fclose(f);
	return n > 0 ? ps_steal_ptr(&text) : NULL;
}

static int sheet_plan(struct sheet *s, uint32_t most, struct ps_error *err)
{
	const struct ps_batch_layout *l = s->batch->layout;
	uint32_t highest = 0, beside;

	for (uint32_t i = 0; i < l->nfields; i++) {
		const struct ps_layout_field *f = &l->fields[i];

		if (f->kind != PENSTOCK_IMAGE || f->hidden)
			continue;
		if (f->made)
			return ps_error_set(err, ENOTSUP,
			        "the images of this batch are on the device alone: open the loader with "
			        "device_pixels \"off\", or on the cpu");
		for (uint32_t v = 0; v < PS_MAX(f->image.views, 1) && s->npictures < MOST; v++) {
			struct picture *p = &s->pictures[s->npictures++];

			*p = (struct picture){.field = i, .view = v};
			picture_plan(&f->image, p);
			s->cell_width = PS_MAX(s->cell_width, p->shown_width + GAP);
			highest = PS_MAX(highest, p->shown_height);
		}
	}
	if (s->npictures == 0)
		return ps_error_set(err, EINVAL, "the batch has no field of images");
	s->cell_height = highest + LINES * PS_FONT_HEIGHT + GAP;
	s->nrows = PS_MIN(PS_MIN(most ? most : MOST, MOST), s->batch->out_rows);
	s->nrows = PS_MAX(1, PS_MIN(s->nrows, MOST / s->npictures));
	/* about as many pictures beside each other as below each other */
	for (s->columns = 1; s->columns * s->columns * s->npictures < s->nrows;)
		s->columns++;
	beside = s->columns * s->npictures;
	s->size.width = GAP + beside * s->cell_width;
	s->size.height = GAP + (s->nrows + s->columns - 1) / s->columns * s->cell_height;
	if (s->batch->nrows > 0)
		s->classes = classes_read(s->batch->rows[0].sample->file->path);
	s->rgb = malloc((size_t)s->size.width * s->size.height * 3);
	if (!s->rgb)
		return ps_no_memory(err);
	memset(s->rgb, 0xff, (size_t)s->size.width * s->size.height * 3);
	return 0;
}

/* Drawing ------------------------------------------------------------------------------------------------ */

static uint8_t *at(const struct sheet *s, uint32_t x, uint32_t y)
{
	return s->rgb + ((size_t)y * s->size.width + x) * 3;
}

/* The level, 0 to 255, of an element of an image: what it was before it was normalised. */
static uint32_t level(const struct ps_image_spec *spec, uint32_t channel, const void *element)
{
	struct ps_number n = ps_number_load(spec->dtype, false, element);

	if (!n.is_float)
		return (uint32_t)(spec->dtype == PS_U16 ? (n.magnitude + 128) / 257 : n.magnitude);
	double v = (n.value * (double)spec->std[channel] + (double)spec->mean[channel]) * 255;

	return v > 0 ? (uint32_t)(PS_MIN(v, 255.0) + 0.5) : 0; /* NaN: 0 */
}

/* The same of a channel of a pixel of an image: rows of the batch, then its views. */
static uint32_t pixel(const struct picture *p, const struct ps_layout_field *f, const uint8_t *image,
        uint32_t x, uint32_t y, uint32_t channel)
{
	static const uint32_t nchannels[] = {
	        [PS_CHANNELS_RGB] = 3, [PS_CHANNELS_RGBA] = 4, [PS_CHANNELS_GRAY] = 1};
	uint32_t n = nchannels[f->image.channels], c = n == 1 ? 0 : channel;
	size_t place = f->image.layout == PS_NHWC ? ((size_t)y * p->width + x) * n + c
	                                          : ((size_t)c * p->height + y) * p->width + x;

	return level(&f->image, c, image + place * ps_dtype_nbytes(f->image.dtype));
}

static void picture_draw(struct sheet *s, const struct picture *p, uint32_t row, uint32_t left, uint32_t top)
{
	const struct ps_layout_field *f = &s->batch->layout->fields[p->field];
	const uint8_t *image = s->batch->mem + s->batch->at.fields[p->field].data[0] + row * f->row_nbytes +
	                       p->view * (f->row_nbytes / PS_MAX(f->image.views, 1));

	for (uint32_t y = 0; y < p->shown_height; y++) {
		for (uint32_t x = 0; x < p->shown_width; x++) {
			uint32_t x0 = x * p->shrink / p->grow, x1 = PS_MIN(x0 + p->shrink, p->width);
			uint32_t y0 = y * p->shrink / p->grow, y1 = PS_MIN(y0 + p->shrink, p->height);

			for (uint32_t c = 0; c < 3; c++) {
				uint32_t sum = 0, n = (x1 - x0) * (y1 - y0);

				for (uint32_t j = y0; j < y1; j++)
					for (uint32_t i = x0; i < x1; i++)
						sum += pixel(p, f, image, i, j, c);
				at(s, left + x, top + y)[c] = (uint8_t)((sum + n / 2) / n);
			}
		}
	}
}

/* Writes a text that is cut to the width of a cell. */
static void text_draw(struct sheet *s, const char *text, uint32_t width, uint32_t left, uint32_t top)
{
	for (const char *p = text; *p && (uint32_t)(p - text + 1) * PS_FONT_WIDTH <= width; p++) {
		const uint8_t *letter =
		        ps_font[(*p < PS_FONT_FIRST || *p > PS_FONT_LAST ? '?' : *p) - PS_FONT_FIRST];
		uint32_t x0 = left + (uint32_t)(p - text) * PS_FONT_WIDTH;

		for (uint32_t y = 0; y < PS_FONT_HEIGHT; y++)
			for (uint32_t x = 0; x < PS_FONT_WIDTH; x++)
				if (letter[y] >> (PS_FONT_WIDTH - 1 - x) & 1)
					memset(at(s, x0 + x, top + y), 0, 3);
	}
}

/* Labels ------------------------------------------------------------------------------------------------- */

/* Finds the name of a class; its length, or 0: it has none. */
static size_t class_name(const struct sheet *s, uint64_t number, const char **ret_name)
{
	const char *line = s->classes;

	for (; line && number > 0; number--) {
		line = strchr(line, '\n');
		line = line ? line + 1 : NULL;
	}
	*ret_name = line;
	return line ? strcspn(line, "\n") : 0;
}

/* Adds a number, and the name of the class that a member .cls names. */
static size_t number_add(
        const struct sheet *s, const struct ps_layout_field *f, const void *element, char *text, size_t room)
{
	struct ps_number n = ps_number_load(f->dtype, false, element);
	const char *name;

	if (n.is_float)
		return (size_t)snprintf(text, room, " %.4g", n.value);
	size_t len = strcmp(f->names, "cls") != 0 || n.negative ? 0 : class_name(s, n.magnitude, &name);

	return (size_t)snprintf(text, room, " %s%ju%s%.*s", n.negative ? "-" : "", (uintmax_t)n.magnitude,
	        len > 0 ? " " : "", (int)len, len > 0 ? name : "");
}

/* The label that a field gives a row: a number, or a text. False: none. */
static bool label_make(const struct sheet *s, uint32_t i, uint32_t row, char ret_text[static TEXT_MOST])
{
	const struct penstock_batch *b = s->batch;
	const struct ps_layout_field *f = &b->layout->fields[i];
	bool is_text = f->form == PS_FORM_RAGGED && f->dtype == PS_U8 && f->ndim == 1 &&
	               (f->kind == PENSTOCK_TEXT || f->kind == PENSTOCK_JSON);

	if (f->hidden || f->kind == PENSTOCK_IMAGE ||
	        !(is_text || (f->form == PS_FORM_FIXED && f->row_items == 1 && f->item_elements == 1)))
		return false;
	size_t n = (size_t)snprintf(ret_text, TEXT_MOST, "%.40s", f->name);

	if (is_text) {
		const uint64_t *offsets = (const void *)(b->mem + b->at.fields[i].offsets);

		snprintf(ret_text + n, TEXT_MOST - n, " %.*s",
		        (int)PS_MIN(offsets[row + 1] - offsets[row], TEXT_MOST),
		        (const char *)b->mem + b->late[i].data[0] + offsets[row]);
		return true;
	}
	n += number_add(
	        s, f, b->mem + b->at.fields[i].data[0] + row * f->row_nbytes, ret_text + n, TEXT_MOST - n);
	if (f->mixed_label &&
	        n < TEXT_MOST) { /* CutMix and MixUp: the other label, and the share of the first */
		const float *share = (const void *)(b->mem + b->at.mix_lambda);

		n += (size_t)snprintf(ret_text + n, TEXT_MOST - n, " (%.0f %%),", 100 * (double)share[row]);
		if (n < TEXT_MOST)
			number_add(s, f, b->mem + b->at.fields[i].data[1] + row * f->row_nbytes, ret_text + n,
			        TEXT_MOST - n);
	}
	return true;
}

static void labels_draw(struct sheet *s, uint32_t row, uint32_t left, uint32_t top)
{
	const struct penstock_batch *b = s->batch;
	uint32_t width = s->npictures * s->cell_width - GAP, line = 0;
	char text[TEXT_MOST] = "";

	if (!b->mem[b->at.valid + row])
		text_draw(s, "not valid", width, left, top + line++ * PS_FONT_HEIGHT);
	for (uint32_t i = 0; i < b->layout->nfields && line < LINES; i++)
		if (label_make(s, i, row, text))
			text_draw(s, text, width, left, top + line++ * PS_FONT_HEIGHT);
	if (line < LINES && row < b->nrows)
		text_draw(s, b->rows[row].sample->key, width, left, top + line * PS_FONT_HEIGHT);
}

int penstock_batch_sheet(const struct penstock_batch *b, uint32_t most, void **ret_png, size_t *ret_nbytes,
        struct penstock_error *error)
{
	__attribute__((cleanup(sheet_fini))) struct sheet s = {.batch = b};
	struct ps_error err = {0};
	ps_autofree uint8_t *png = NULL;
	size_t nbytes = 0;
	int rc = sheet_plan(&s, most, &err);

	for (uint32_t row = 0; row < s.nrows && rc == 0; row++) {
		uint32_t left = GAP + row % s.columns * s.npictures * s.cell_width;
		uint32_t top = GAP + row / s.columns * s.cell_height, highest = 0;

		for (uint32_t i = 0; i < s.npictures; i++) {
			picture_draw(&s, &s.pictures[i], row, left + i * s.cell_width, top);
			highest = PS_MAX(highest, s.pictures[i].shown_height);
		}
		labels_draw(&s, row, left, top + highest);
	}
	if (rc == 0)
		rc = ps_png_encode(s.rgb, s.size, 3, &png, &nbytes, &err);
	if (rc < 0)
		return ps_give_error(error, rc, &err);
	*ret_png = ps_steal_ptr(&png);
	*ret_nbytes = nbytes;
	return (int)s.nrows;
}
