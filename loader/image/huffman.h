/* Private to the JPEG decoder. */
#ifndef PS_IMAGE_HUFFMAN_H
#define PS_IMAGE_HUFFMAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

/* The entropy decoder of sequential Huffman JPEGs. Entropy decoding takes two thirds of a decode; this
 * decoder is 1.5 to 2 times as fast as libjpeg-turbo's. One table lookup usually gives both a Huffman code
 * and the number after it. Eight bytes are read at once if none of them is 0xff.
 *
 * Its input is libjpeg's tables, which libjpeg has checked, and the scan in memory. The blocks are those of
 * libjpeg, to the bit. But each bad code is reported, while libjpeg mostly decodes it as a zero. Only
 * single scans without restart markers are supported; libjpeg decodes the others.
 *
 * Ownership: the caller's struct, which borrows the bytes.   Threads: one at a time.   Blocks: never.
 * Errors: as enum ps_huffman_end says; blocks decoded before the error come from the scan's own bits, not
 * from padding. */

#define PS_HUFFMAN_PEEK 10  /* bits that a lookup takes */
#define PS_HUFFMAN_TABLES 8 /* 0 to 3 for DC, 4 to 7 for AC */
#define PS_HUFFMAN_COMPONENTS 4
#define PS_HUFFMAN_BLOCKS 10 /* most blocks of an MCU */

enum ps_huffman_end {
	PS_HUFFMAN_SOUND,
	PS_HUFFMAN_TRUNCATED, /* the scan ends, or a marker comes, before the last block */
	PS_HUFFMAN_BAD_CODE,
};

struct ps_huffman_table {
	uint32_t look[1 << PS_HUFFMAN_PEEK]; /* see huffman.c */
	/* [n]: the next 16 bits are below limit[n] if their code has n bits or fewer */
	uint32_t limit[18];
	int32_t offset[17]; /* [n] + a code of n bits is the code's place in `values` */
	/* what the table was made of, to make it again only if that changes */
	uint8_t bits[17], values[256];
	bool made;
};

struct ps_huffman {
	struct ps_huffman_table tables[PS_HUFFMAN_TABLES];

	const uint8_t *p, *end;
	uint64_t buffer; /* the next bits, first ones highest */
	/* number of valid bits in `buffer`; the bits after them are the scan's next bits, or 0 */
	int nbits;
	int npadding; /* the last npadding valid bits are padding: they follow the scan's end */

	uint32_t nblocks; /* blocks of an MCU: */
	struct {
		uint8_t component;
		const struct ps_huffman_table *dc, *ac;
	} blocks[PS_HUFFMAN_BLOCKS];
	int32_t last_dc[PS_HUFFMAN_COMPONENTS];
};

/* Makes the table of bits[n] codes of n bits (1 to 16), with their values in order, unless it was made of
 * the same input. There are at most 256 codes, and no code consists of ones only. */
void ps_huffman_table_make(
        struct ps_huffman *h, uint32_t table, const uint8_t bits[17], const uint8_t *values);

/* Begins a scan. The blocks of an MCU are set by the caller. */
void ps_huffman_begin(struct ps_huffman *h, const uint8_t *scan, size_t nbytes);

/* Decodes the next MCU. blocks[i] points to 64 zeroed coefficients, in row order. `blocks` NULL: the
 * coefficients are not wanted. */
enum ps_huffman_end ps_huffman_mcu(struct ps_huffman *h, int16_t *const *blocks);

/* In the place of libjpeg's ------------------------------------------------------------------------------ */

/* Replaces libjpeg-turbo's own entropy decoder by the one above, for single scans of Huffman codes without
 * restart markers. This needs the library's internal header, which Debian and others install.
 *
 * The loaded library may differ from that header, so it is tested first, once a process: three built-in
 * files (gray, 4:2:0, 4:4:4) are decoded by both decoders. If pixels differ, or our decoder fails or is not
 * called, libjpeg decodes everything itself. It also does so in a build without the header or with
 * --disable-jpeg-entropy.
 *
 * Threads: one at a time for one decoder; else any.   Blocks: the first call on the test, below 1 ms.
 * Errors: those of a scan are libjpeg's own warnings. */

/* Makes `h` decode the image's MCUs. Must be called between jpeg_start_decompress() and the first row. `h`
 * must live as long as the image is decoded; cinfo->client_data will point to it. False: libjpeg keeps its
 * own decoder. */
bool ps_jpeg_entropy_replace(j_decompress_ptr cinfo, struct ps_huffman *h);

#endif
