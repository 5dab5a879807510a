#include "config.h"

#include "tools/doctor_find.h"

#include <errno.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jerror.h>
#include <jpeglib.h>

#define MAX_PIXELS (UINT64_C(1) << 27)
#define MAX_SCANS 100

bool ps_jpeg_is_progressive(const uint8_t *p, size_t n)
{
	size_t at = 2;

	if (n < 4 || p[0] != 0xff || p[1] != 0xd8)
		return false;
	while (at + 4 <= n && p[at] == 0xff) {
		uint8_t marker = p[at + 1];

		if (marker == 0xff) {
			at++;
			continue;
		}
		if (marker == 0xc2)
			return true;
		if ((marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 &&
		            marker != 0xcc) ||
		        marker == 0xda)
			return false;
		at += 2 + ((size_t)p[at + 2] << 8 | p[at + 3]);
	}
	return false;
}

/* libjpeg's errors, by longjmp. Warnings count as errors: damaged files are not rewritten ---------------- */

struct catcher {
	struct jpeg_error_mgr mgr;
	jmp_buf jump;
};

static void on_error(j_common_ptr info)
{
	struct catcher *c = (struct catcher *)info->err;

	ps_need(info->err->msg_code == JERR_OUT_OF_MEMORY ? NULL : c);
	longjmp(c->jump, 1);
}

static void on_message(j_common_ptr info, int level)
{
	if (level < 0)
		on_error(info);
}

static void on_progress(j_common_ptr info)
{
	if (info->is_decompressor && ((j_decompress_ptr)info)->input_scan_number > MAX_SCANS)
		on_error(info);
}

static struct jpeg_error_mgr *catcher_init(struct catcher *c)
{
	jpeg_std_error(&c->mgr);
	c->mgr.error_exit = on_error;
	c->mgr.emit_message = on_message;
	return &c->mgr;
}

/* Rewriting ---------------------------------------------------------------------------------------------- */

struct decoder {
	struct jpeg_decompress_struct d;
	struct catcher errors;
	struct jpeg_progress_mgr progress;
	JSAMPLE *row;
	bool made;
};

/* Reads the header, with all markers. The caller has called setjmp(). */
static bool decoder_open(struct decoder *d, const uint8_t *data, size_t n)
{
	jpeg_create_decompress(&d->d);
	d->made = true;
	d->progress.progress_monitor = on_progress;
	d->d.progress = &d->progress;
	jpeg_mem_src(&d->d, data, n);
	for (int m = 0; m < 16; m++)
		jpeg_save_markers(&d->d, JPEG_APP0 + m, 0xffff);
	jpeg_save_markers(&d->d, JPEG_COM, 0xffff);
	jpeg_read_header(&d->d, TRUE);
	return (uint64_t)d->d.image_width * d->d.image_height <= MAX_PIXELS;
}

/* Copies markers, except JFIF and Adobe: libjpeg writes these itself. */
static void markers_copy(const struct jpeg_decompress_struct *d, struct jpeg_compress_struct *c)
{
	for (jpeg_saved_marker_ptr m = d->marker_list; m; m = m->next) {
		if (c->write_JFIF_header && m->marker == JPEG_APP0 && m->data_length >= 5 &&
		        memcmp(m->data, "JFIF", 5) == 0)
			continue;
		if (c->write_Adobe_marker && m->marker == JPEG_APP0 + 14 && m->data_length >= 5 &&
		        memcmp(m->data, "Adobe", 5) == 0)
			continue;
		jpeg_write_marker(c, m->marker, m->data, m->data_length);
	}
}

struct transcoder {
	struct decoder in; /* its catcher gets the errors of `out`, too */
	struct jpeg_compress_struct out;
	unsigned char *bytes;
	unsigned long nbytes;
	bool out_made;
};

static bool transcode(struct transcoder *t, const uint8_t *data, size_t n)
{
	t->in.d.err = t->out.err = catcher_init(&t->in.errors);
	if (setjmp(t->in.errors.jump))
		return false;
	jpeg_create_compress(&t->out);
	t->out_made = true;
	if (!decoder_open(&t->in, data, n))
		return false;
	jvirt_barray_ptr *coefficients = jpeg_read_coefficients(&t->in.d);
	jpeg_mem_dest(&t->out, &t->bytes, &t->nbytes);
	jpeg_copy_critical_parameters(&t->in.d, &t->out);
	t->out.optimize_coding = TRUE;
	t->out.num_scans = 0; /* one scan */
	t->out.scan_info = NULL;
	jpeg_write_coefficients(&t->out, coefficients);
	markers_copy(&t->in.d, &t->out);
	jpeg_finish_compress(&t->out);
	jpeg_finish_decompress(&t->in.d);
	return true;
}

/* Comparing ---------------------------------------------------------------------------------------------- */

static bool decode_start(struct decoder *d, const uint8_t *data, size_t n)
{
	d->d.err = catcher_init(&d->errors);
	if (setjmp(d->errors.jump))
		return false;
	if (!decoder_open(d, data, n))
		return false;
	d->d.out_color_space = d->d.jpeg_color_space == JCS_YCbCr ? JCS_RGB : d->d.jpeg_color_space;
	jpeg_start_decompress(&d->d);
	d->row = ps_need(malloc((size_t)d->d.output_width * (size_t)d->d.output_components));
	return true;
}

static bool decode_row(struct decoder *d)
{
	JSAMPROW rows[1] = {d->row};

	if (setjmp(d->errors.jump))
		return false;
	return jpeg_read_scanlines(&d->d, rows, 1) == 1;
}

/* False also if one of them cannot be decoded. */
static bool pixels_are_equal(const uint8_t *a, size_t na, const uint8_t *b, size_t nb)
{
	struct decoder *d = ps_need(calloc(2, sizeof(*d)));
	bool equal = decode_start(&d[0], a, na) && decode_start(&d[1], b, nb) &&
	             d[0].d.output_width == d[1].d.output_width &&
	             d[0].d.output_height == d[1].d.output_height &&
	             d[0].d.output_components == d[1].d.output_components;

	for (JDIMENSION y = 0; equal && y < d[0].d.output_height; y++)
		equal = decode_row(&d[0]) && decode_row(&d[1]) &&
		        memcmp(d[0].row, d[1].row,
		                (size_t)d[0].d.output_width * (size_t)d[0].d.output_components) == 0;
	for (int i = 0; i < 2; i++) {
		if (d[i].made)
			jpeg_destroy_decompress(&d[i].d);
		free(d[i].row);
	}
	free(d);
	return equal;
}

void ps_jpeg_to_baseline(const uint8_t *data, size_t n, uint8_t **ret, size_t *ret_n)
{
	struct transcoder *t;

	if (!ps_jpeg_is_progressive(data, n))
		return;
	t = ps_need(calloc(1, sizeof(*t)));
	if (transcode(t, data, n) && pixels_are_equal(data, n, t->bytes, t->nbytes)) {
		*ret = t->bytes;
		*ret_n = t->nbytes;
		t->bytes = NULL;
	}
	/* After a failure midway t->bytes may be outdated: term_destination() stores the buffer's current
	 * address. */
	if (t->bytes)
		t->out.dest->term_destination(&t->out);
	if (t->out_made)
		jpeg_destroy_compress(&t->out);
	if (t->in.made)
		jpeg_destroy_decompress(&t->in.d);
	free(t->bytes);
	free(t);
}
