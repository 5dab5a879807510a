/* Any image file as rows, upright: chooses the format by the first bytes, and turns the image as its EXIF
 * data says where that is wanted. A region of a turned image is the same as that part of the whole, turned.
 *
 * Ownership: a source belongs to its creator, and makes the decoder of a format when it first meets one.
 * Otherwise as format.h, which has the contract of open, start, rows and close. */
#ifndef PS_LOADER_IMAGE_SOURCE_H
#define PS_LOADER_IMAGE_SOURCE_H

#include "image/format.h"

struct ps_source;

/* NULL: no memory. With `orient` images are turned by their EXIF orientation. */
struct ps_source *ps_source_new(enum ps_pixels pixels, bool orient, const struct ps_image_limits *limits);
void ps_source_free(struct ps_source *s);

/* *ret_size is that of the upright image. */
int ps_source_open(struct ps_source *s, const void *data, size_t nbytes, struct ps_image_size *ret_size,
        struct ps_load_error *err) PS_MUST_USE;

/* Between open and start: an image 1/by as wide and high (sizes rounded up), by 1, 2, 4 or 8, if the format
 * can do that at less cost; else nothing. Returns what it will be, 1 for no change: regions and rows are of
 * that size from now on. */
uint32_t ps_source_shrink(struct ps_source *s, uint32_t by);

/* Between open and start: a JPEG whose orientation is as stored, and its colours are YCbCr or gray. */
bool ps_source_is_plain_jpeg(const struct ps_source *s);

int ps_source_start(struct ps_source *s, const struct ps_region *region, size_t slack_nbytes,
        struct ps_load_error *err) PS_MUST_USE;
int ps_source_rows(
        struct ps_source *s, struct ps_image_rows *ret_rows, struct ps_load_error *err) PS_MUST_USE;
void ps_source_close(struct ps_source *s);

#endif
