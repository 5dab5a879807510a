/* Private to JPEG. */
#ifndef PS_IMAGE_HUFFMAN_H
#define PS_IMAGE_HUFFMAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

/* The entropy decoder of sequential Huffman JPEGs. Entropy decoding takes two thirds of a decode; this one is
 * 1.5 to 2 times as fast as libjpeg-turbo's. One look into a table mostly gives both a code and its number,
 * and eight bytes are read at once where none of them is 0xff.
 *
 * It takes libjpeg's checked tables and the scan as it is in memory, and fills blocks as libjpeg would, to
 * the bit. But it reports every bad code, where the library mostly decodes a zero. It takes single scans
 * without restart markers; others are left to the library.
 *
 * Ownership: the caller's struct, which borrows the bytes.   Threads: one at a time.   Blocks: never.
 * Errors: as enum ps_huffman_end says; what was decoded before an error used no padding as data. */

#define PS_HUFFMAN_PEEK 10  /* bits that one look takes */
#define PS_HUFFMAN_TABLES 8 /* 0 to 3 for DC, 4 to 7 for AC */
#define PS_HUFFMAN_COMPONENTS 4
#define PS_HUFFMAN_BLOCKS 10 /* of an MCU, at most */

enum ps_huffman_end {
	PS_HUFFMAN_SOUND,
	PS_HUFFMAN_TRUNCATED, /* the scan ends, or a marker comes, before all blocks are there */
	PS_HUFFMAN_BAD_CODE,
};

struct ps_huffman_table {
	uint32_t look[1 << PS_HUFFMAN_PEEK]; /* see huffman.c */
	uint32_t limit[18];                  /* of 16 bits: codes of n bits are below, longer ones not */
	int32_t offset[17];                  /* code of n bits + offset: its place in values */
	uint8_t bits[17], values[256];       /* what it was made of: made again only when that differs */
	bool made;
};

struct ps_huffman {
	struct ps_huffman_table tables[PS_HUFFMAN_TABLES];

	const uint8_t *p, *end;
	uint64_t buffer; /* the next bits, first ones highest */
	int nbits;       /* of them; what follows is right, or 0 */
	int npadding;    /* of nbits, the last ones, that stand for what is missing */

	uint32_t nblocks; /* of an MCU: */
	struct {
		uint8_t component;
		const struct ps_huffman_table *dc, *ac;
	} blocks[PS_HUFFMAN_BLOCKS];
	int32_t last_dc[PS_HUFFMAN_COMPONENTS];
};

/* Makes the table, unless it was made of the same: bits[n] codes of n bits (1 to 16), their values in order;
 * no more than 256 of them, no code of ones alone. */
void ps_huffman_table_make(
        struct ps_huffman *h, uint32_t table, const uint8_t bits[17], const uint8_t *values);

/* Begins a scan. The blocks of an MCU are set by the caller. */
void ps_huffman_begin(struct ps_huffman *h, const uint8_t *scan, size_t nbytes);

/* The next MCU: blocks[i] points at 64 zeroed coefficients, in rows; NULL: none is wanted. */
enum ps_huffman_end ps_huffman_mcu(struct ps_huffman *h, int16_t *const *blocks);

/* In the place of libjpeg's ------------------------------------------------------------------------------ */

/* Puts huffman.h in the place of libjpeg-turbo's own entropy decoder, by the library's internal header (which
 * Debian and others install), for single scans of Huffman codes without restart markers.
 *
 * The header is private by definition, so the library that is loaded is tried first, once a process: three
 * built-in files (gray, 4:2:0, 4:4:4) are decoded both ways. If pixels differ, ours fails or is not called,
 * the library decodes everything itself. So it does in a build without that header or with
 * --disable-jpeg-entropy.
 *
 * Threads: a decoder by one at a time; the rest by any.   Blocks: the first call on that check, below 1 ms.
 * Errors: those of a scan are libjpeg's own warnings. */

/* Between jpeg_start_decompress() and the first row: has the image's MCUs read by `h`, which must last as
 * long as the image; cinfo->client_data will point at it. False: the library goes on by itself. */
bool ps_jpeg_entropy_replace(j_decompress_ptr cinfo, struct ps_huffman *h);

/* As ps_jpeg_version() and ps_jpeg_decoder() in image.h. */
uint32_t ps_jpeg_entropy_library(void);
const char *ps_jpeg_entropy_decoder(void);

#endif
