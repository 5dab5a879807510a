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
 *              file, a damaged ICC profile, bytes between segments (in front of a restart marker, where
 *              MJPEG cameras write a few, 64 at most: more are codes that were not decoded)
 *   refused    all others: premature end of file or segment, bad Huffman or arithmetic code, lost restart
 *              markers, inconsistent progression. They mean that pixels are missing or wrong.
 * Refused besides, since the library would fill in gray: a file without an end-of-image marker after its
 * first scan header, and one with fewer bits than its first scan has blocks.
 *
 * The contract of ps_format_jpeg is in format.h. */
#ifndef PS_LOADER_IMAGE_JPEG_H
#define PS_LOADER_IMAGE_JPEG_H

#include "image/format.h"

/* Of the library that is loaded, whatever header this was compiled with: a hash of its messages, with its version
 * and the years of its copyright, of pixels that it makes, and of whose entropy decoder runs (huffman.h: ours
 * refuses damage that the library's does not see). Another one may give other pixels. Any thread; the first call
 * decodes a few small files. */
uint32_t ps_jpeg_version(void);

/* What decodes entropy: "penstock", or "libjpeg: " and why (jpeg_entropy.h). Static text; as ps_jpeg_version(). */
const char *ps_jpeg_decoder(void);

/* For comparison: a decoder made by ps_format_jpeg leaves entropy decoding to libjpeg, or (the default) does
 * it itself where it can, with the same result (huffman.h). */
void ps_jpeg_library_only(void *decoder, bool on);

#endif
