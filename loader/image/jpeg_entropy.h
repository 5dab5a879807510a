/* Puts huffman.h in the place of libjpeg-turbo's own entropy decoder, by the library's internal header (which
 * Debian and others install), for single scans of Huffman codes without restart markers.
 *
 * The header is private by definition, so the library that is loaded is tried first, once a process: three
 * built-in files (gray, 4:2:0, 4:4:4) are decoded both ways. If pixels differ, ours fails or is not called, the
 * library decodes everything itself. So it does in a build without that header or with --disable-jpeg-entropy.
 *
 * Threads: a decoder by one at a time; the rest by any.   Blocks: the first call on that check, below 1 ms.
 * Errors: those of a scan are told through libjpeg's own warnings. */
#ifndef PS_LOADER_IMAGE_JPEG_ENTROPY_H
#define PS_LOADER_IMAGE_JPEG_ENTROPY_H

#include <stddef.h>
#include <stdio.h>

#include <jpeglib.h>

#include "image/huffman.h"

/* Between jpeg_start_decompress() and the first row: has the image's MCUs read by `h`, which must last as
 * long as the image; cinfo->client_data will point at it. False: the library goes on by itself. */
bool ps_jpeg_entropy_replace(j_decompress_ptr cinfo, struct ps_huffman *h);

/* As ps_jpeg_version() and ps_jpeg_decoder() in jpeg.h. */
uint32_t ps_jpeg_entropy_library(void);
const char *ps_jpeg_entropy_decoder(void);

#endif
