/* Puts huffman.h in the place of libjpeg-turbo's own entropy decoder, by the library's internal header (which
 * Debian and others install; without it, or with another scan than a single one of Huffman codes and no
 * restart markers, nothing is replaced). Threads: one at a time.   Errors: those of a scan are told through
 * libjpeg's own warnings. */
#ifndef PS_LOADER_IMAGE_JPEG_ENTROPY_H
#define PS_LOADER_IMAGE_JPEG_ENTROPY_H

#include <stddef.h>
#include <stdio.h>

#include <jpeglib.h>

#include "image/huffman.h"

/* Between jpeg_start_decompress() and the first row: has the image's MCUs read by `h`, which must last as
 * long as the image; cinfo->client_data will point at it. False: the library goes on by itself. */
bool ps_jpeg_entropy_replace(j_decompress_ptr cinfo, struct ps_huffman *h);

#endif
