/* A JPEG file as RGB rows, of a region only: libjpeg-turbo with limits and a strict idea of damage.
 *
 * Decoding: accurate integer IDCT, fancy upsampling, as PIL and torchvision do. A region is decoded alone
 * (whole blocks around it, and one pixel of margin, which the upsampling of chroma needs), and equals the
 * same pixels of the whole image to the bit.
 *
 * Colours: YCbCr, RGB and gray become RGB. CMYK and YCCK are taken as inverted, as Adobe writes them and PIL
 * reads them: with the file's c, m, y, k (0 is full ink), red = k - div255(k * (255 - c)), div255 rounded.
 * Refused: other colour spaces, lossless, more than 8 bits.
 *
 * libjpeg's warnings:
 *   tolerated  unknown JFIF revision, unknown Adobe transform code, odd spectral selection in a sequential
 *              file, a damaged ICC profile, bytes between segments (but not in front of a restart marker)
 *   refused    all others: premature end of file or segment, bad Huffman or arithmetic code, lost restart
 *              markers, inconsistent progression. They mean that pixels are missing or wrong.
 * Refused besides, since the library would fill in gray: a file without an end-of-image marker after its
 * first scan header, and one with fewer bits than its first scan has blocks.
 *
 * Ownership: a ps_jpeg belongs to its creator; between open and close it borrows the bytes.
 * Threads: one at a time.   Locks: none.   Blocks: on the processor only.
 * Errors: 0, -EBADMSG or -ENOMEM with a text. After an error the image is closed. */
#ifndef PS_LOADER_IMAGE_JPEG_H
#define PS_LOADER_IMAGE_JPEG_H

#include "image/image.h"

struct ps_jpeg_limits {
	uint64_t max_pixels;
	uint32_t max_scans;
	uint64_t max_coef_nbytes; /* of a file with several scans, whose coefficients must be kept */
};

struct ps_jpeg;

/* Of the library that decodes: another one may give other pixels. */
uint32_t ps_jpeg_version(void);

struct ps_jpeg *ps_jpeg_new(void); /* NULL: no memory */
void ps_jpeg_free(struct ps_jpeg *j);

/* Reads up to the first scan's header, and checks the limits. */
int ps_jpeg_open(struct ps_jpeg *j, const void *data, size_t nbytes, const struct ps_jpeg_limits *limits,
        uint32_t *ret_width, uint32_t *ret_height, struct ps_load_error *err) PS_MUST_USE;

/* Starts decoding of a region (inside the image, not empty). A file of several scans is read in whole. */
int ps_jpeg_start(struct ps_jpeg *j, uint32_t x, uint32_t y, uint32_t width, uint32_t height,
        size_t slack_nbytes, struct ps_load_error *err) PS_MUST_USE;

/* The next rows of the region, 1 or more: row i starts at *ret_rgb + i * *ret_stride, and slack_nbytes behind
 * it are readable. Valid until the next call. Not to be called when all rows have been taken. */
int ps_jpeg_rows(struct ps_jpeg *j, const uint8_t **ret_rgb, size_t *ret_stride, uint32_t *ret_nrows,
        struct ps_load_error *err) PS_MUST_USE;

/* Ends the image; allowed at any time, and twice. */
void ps_jpeg_close(struct ps_jpeg *j);

/* Memory held now, libjpeg's own apart. */
size_t ps_jpeg_nbytes(const struct ps_jpeg *j);

#endif
