/* Where EXIF data says that an image's top left corner is, and what that does to regions and pixels.
 *
 *   stored     1 as it is   2 mirrored   3 turned half    4 upside down
 *              5 transposed 6 to be turned right (clockwise)
 *              7 transversed 8 to be turned left
 * Threads: any.   Errors: none: a damaged EXIF block is no orientation, as in PIL and browsers.
 * Blocks: never. */
#ifndef PS_LOADER_IMAGE_EXIF_H
#define PS_LOADER_IMAGE_EXIF_H

#include "image/format.h"

/* 1 to 8; 1 where the TIFF structure has none or is damaged. */
uint32_t ps_exif_orientation(const uint8_t *tiff, size_t nbytes);

/* The size of the upright image. */
struct ps_image_size ps_orient_size(uint32_t orientation, struct ps_image_size stored);

/* Where a region of the upright image is stored. */
struct ps_region ps_orient_region(
        uint32_t orientation, struct ps_image_size stored, const struct ps_region *upright);

/* Puts row `row` of a stored region (its `width` pixels of pixel_nbytes, 2 or 3) in its place in the upright
 * region, whose rows are `stride` bytes apart. `stored` is the stored region. */
void ps_orient_row(uint32_t orientation, const struct ps_region *stored, uint32_t row, const uint8_t *from,
        size_t pixel_nbytes, uint8_t *upright, size_t stride);

#endif
