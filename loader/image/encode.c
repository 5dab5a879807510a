/* Pixels as image files. */
#include "config.h"

#include "image/image.h"

#include <errno.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#ifdef HAVE_PNG
#include <png.h>
#endif

struct jpeg_errors {
	struct jpeg_error_mgr base;
	jmp_buf escape;
};

static void jpeg_failed(j_common_ptr c)
{
	struct jpeg_errors *e = (struct jpeg_errors *)(void *)c->err;

	longjmp(e->escape, 1);
}

static void jpeg_rows(struct jpeg_compress_struct *c, const uint8_t *rgb, int quality)
{
	c->input_components = 3;
	c->in_color_space = JCS_RGB;
	jpeg_set_defaults(c);
	jpeg_set_quality(c, quality, TRUE);
	c->optimize_coding = TRUE;
	jpeg_start_compress(c, TRUE);
	while (c->next_scanline < c->image_height) {
		JSAMPROW row = (JSAMPROW)(uintptr_t)(rgb + (size_t)c->next_scanline * c->image_width * 3);

		jpeg_write_scanlines(c, &row, 1);
	}
	jpeg_finish_compress(c);
}

int ps_jpeg_encode(const uint8_t *rgb, struct ps_image_size size, int quality, uint8_t **ret_out,
        size_t *ret_nbytes, struct ps_error *err)
{
	struct jpeg_compress_struct c = {0};
	struct jpeg_errors errors;
	unsigned long nbytes = 0;
	char text[JMSG_LENGTH_MAX];

	c.err = jpeg_std_error(&errors.base);
	errors.base.error_exit = jpeg_failed;
	if (setjmp(errors.escape)) {
		errors.base.format_message((j_common_ptr)&c, text);
		/* *ret_out may be outdated: term_destination() stores the buffer's current address. */
		if (*ret_out)
			c.dest->term_destination(&c);
		jpeg_destroy_compress(&c);
		return ps_error_set(err, EINVAL, "cannot become a JPEG: %s", text);
	}
	jpeg_create_compress(&c);
	jpeg_mem_dest(&c, ret_out, &nbytes);
	c.image_width = size.width;
	c.image_height = size.height;
	jpeg_rows(&c, rgb, quality);
	jpeg_destroy_compress(&c);
	*ret_nbytes = nbytes;
	return 0;
}

int ps_png_encode(const uint8_t *pixels, struct ps_image_size size, unsigned channels, uint8_t **ret_out,
        size_t *ret_nbytes, struct ps_error *err)
{
#ifdef HAVE_PNG
	png_image image = {.version = PNG_IMAGE_VERSION,
	        .width = size.width,
	        .height = size.height,
	        .format = channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY};
	png_alloc_size_t nbytes = PNG_IMAGE_PNG_SIZE_MAX(image);

	*ret_out = malloc(nbytes);
	if (!*ret_out)
		return ps_no_memory(err);
	if (!png_image_write_to_memory(&image, *ret_out, &nbytes, 0, pixels, 0, NULL))
		return ps_error_set(err, EINVAL, "cannot become a PNG: %s", image.message);
	*ret_nbytes = nbytes;
	return 0;
#else
	(void)pixels, (void)size, (void)channels, (void)ret_out, (void)ret_nbytes;
	return ps_error_set(err, ENOTSUP, "this build has no libpng, so no PNG can be written");
#endif
}
