/* Crops and resizes decoded images to planes of bytes, by the arithmetic of image/picture.h. The weights are
 * the CPU's own, which are sent along, so results are the same to the bit.
 *
 * A block makes a column of tiles. A tile is PS_TILE_COLUMNS wide, and low enough for its source rows to fit
 * in shared memory. The block resizes these rows horizontally into shared memory, then vertically from there.
 * Weights are padded with zeros: the pixels that the zeros multiply do not matter, but must be readable. So
 * sources have PS_TILE_SLACK bytes after their end. They are read by aligned words, so the bytes between a
 * source's start and the multiple of 4 before it must be readable, too. */
#ifndef PS_DEVICE_RESIZE_TILE_H
#define PS_DEVICE_RESIZE_TILE_H

#include <string.h>

#include "device/kernels/kernel_code.h"

#define PS_TILE_COLUMNS 32u
#define PS_TILE_LANES (3 * PS_TILE_COLUMNS) /* three planes side by side */
#define PS_TILE_HEIGHT 32u                  /* output rows of a block */
#define PS_TILE_SOURCES 128u                /* source rows in shared memory */
#define PS_TILE_SHARED (PS_TILE_SOURCES * PS_TILE_LANES * 2)
#define PS_TILE_ACROSS 2u                        /* source rows that a thread resizes horizontally at once */
#define PS_TILE_TAPS_MAX 32u                     /* weights of an output; a multiple of 4 */
#define PS_TILE_SLACK (3 * PS_TILE_TAPS_MAX + 4) /* pixels are read by words */

/* One axis: output i has the weights [i * taps, i * taps + taps), for the sources from first[i] on. */
struct ps_tile_axis {
	const uint32_t *first;
	const int16_t *weights; /* aligned to 8 bytes */
	uint32_t taps;          /* a multiple of 4 */
	int32_t shift;
};

struct ps_tile_image {
	const uint8_t *from; /* the region's pixels, three bytes each */
	uint64_t pitch;      /* bytes from row to row, a multiple of 4 */
	uint32_t nrows;      /* rows of the region */
	uint32_t rows;       /* output rows of a tile */
	uint32_t place;      /* number of the image in the results */
	uint32_t flip_v;
	int32_t most; /* limit of values between the passes */
	int32_t unused;
	struct ps_tile_axis h, v;
};

struct ps_tile_args {
	const struct ps_tile_image *images;
	uint8_t *to; /* image `place` at place * 3 * width * height */
	uint32_t nimages, width, height;
};

PS_BOTH uint32_t ps_tile_blocks(uint32_t width, uint32_t height)
{
	return (width + PS_TILE_COLUMNS - 1) / PS_TILE_COLUMNS *
	       ((height + PS_TILE_HEIGHT - 1) / PS_TILE_HEIGHT);
}

PS_BOTH int32_t ps_tile_clamp(int32_t v, int32_t most)
{
	return v < 0 ? 0 : v > most ? most : v;
}

/* The number of source rows from the first one of output y to the last one of output y + n - 1. */
PS_BOTH uint32_t ps_tile_span(const uint32_t *first, uint32_t taps, uint32_t y, uint32_t n)
{
	return first[y + n - 1] + taps - first[y];
}

/* The height of an image's tiles, so that the source rows of each fit in shared memory. `first` must not
 * descend. */
PS_BOTH uint32_t ps_tile_rows(const uint32_t *first, uint32_t taps, uint32_t height)
{
	uint32_t rows = PS_TILE_HEIGHT;

	for (uint32_t y = 0; y < height; y += rows)
		while (ps_tile_span(first, taps, y, height - y < rows ? height - y : rows) > PS_TILE_SOURCES)
			rows /= 2; /* y remains a multiple of rows */
	return rows;
}

PS_BOTH uint32_t ps_tile_word(const uint8_t *aligned)
{
	uint32_t words[4];

	ps_words_load(words, aligned, 4);
	return words[0];
}

/* Resizes PS_TILE_ACROSS source rows horizontally to one column, all channels: weights are loaded once for
 * all, pixels by words. `rows` are aligned; the image's rows begin `lead` bytes later. */
PS_BOTH void ps_tile_across(const struct ps_tile_image *im, const uint8_t *const rows[PS_TILE_ACROSS],
        uint32_t lead, uint32_t column, int32_t sums[PS_TILE_ACROSS][3])
{
	const int16_t *w = im->h.weights + (size_t)column * im->h.taps;
	const uint32_t first = im->h.first[column] * 3 + lead, bits = first % 4 * 8;
	uint32_t at = first - first % 4, last[PS_TILE_ACROSS];

	PS_UNROLL
	for (uint32_t r = 0; r < PS_TILE_ACROSS; r++) {
		last[r] = ps_tile_word(rows[r] + at);
		PS_UNROLL
		for (uint32_t c = 0; c < 3; c++)
			sums[r][c] = (int32_t)1 << (im->h.shift - 1);
	}
	for (uint32_t k = 0; k < im->h.taps; k += 4, at += 12) {
		int16_t four[4];

		memcpy(four, __builtin_assume_aligned(w + k, 8), 8);
		PS_UNROLL
		for (uint32_t r = 0; r < PS_TILE_ACROSS; r++) {
			uint32_t pixels[3]; /* the bytes of four pixels */

			PS_UNROLL
			for (uint32_t i = 0; i < 3; i++) {
				const uint32_t next = ps_tile_word(rows[r] + at + 4 * (i + 1));

				pixels[i] = (uint32_t)(((uint64_t)next << 32 | last[r]) >> bits);
				last[r] = next;
			}
			PS_UNROLL
			for (uint32_t i = 0; i < 12; i++)
				sums[r][i % 3] += four[i / 3] * ps_words_byte(pixels, i);
		}
	}
}

/* Resizes source rows [base, base + span) horizontally, into shared memory. */
PS_BOTH void ps_tile_fill(const struct ps_tile_image *im, uint32_t x, uint32_t width, uint32_t base,
        uint32_t span, int16_t *shared)
{
	const uint32_t n = (span + PS_TILE_ACROSS - 1) / PS_TILE_ACROSS * PS_TILE_COLUMNS,
	               lead = (uint32_t)((uintptr_t)im->from % 4);

	PS_THREADS(t)
	{
		for (uint32_t i = t; i < n; i += PS_KERNEL_THREADS) {
			const uint32_t row = i / PS_TILE_COLUMNS * PS_TILE_ACROSS, lane = i % PS_TILE_COLUMNS;
			const uint32_t column = x + lane < width ? x + lane : width - 1;
			const uint8_t *rows[PS_TILE_ACROSS];
			int32_t sums[PS_TILE_ACROSS][3];

			PS_UNROLL
			for (uint32_t r = 0; r < PS_TILE_ACROSS; r++)
				rows[r] = im->from - lead +
				          (base + (row + r < span ? row + r : span - 1)) * (size_t)im->pitch;
			ps_tile_across(im, rows, lead, column, sums);
			PS_UNROLL
			for (uint32_t j = 0; j < 3 * PS_TILE_ACROSS; j++) {
				const uint32_t r = j / 3, c = j % 3;

				if (row + r < PS_TILE_SOURCES)
					shared[(row + r) * PS_TILE_LANES + c * PS_TILE_COLUMNS + lane] =
					        (int16_t)ps_tile_clamp(sums[r][c] >> im->h.shift, im->most);
			}
		}
	}
}

/* Resizes four columns of one output row vertically. */
PS_BOTH void ps_tile_down(const struct ps_tile_image *im, uint32_t y, uint32_t base, uint32_t lane,
        const int16_t *shared, uint8_t out[4])
{
	const int16_t *w = im->v.weights + (size_t)y * im->v.taps;
	const int16_t *from = shared + (size_t)(im->v.first[y] - base) * PS_TILE_LANES + lane;
	int32_t sums[4];

	PS_UNROLL
	for (uint32_t j = 0; j < 4; j++)
		sums[j] = (int32_t)1 << (im->v.shift - 1);
	for (uint32_t k = 0; k < im->v.taps; k++) {
		int16_t four[4];

		memcpy(four, __builtin_assume_aligned(from + (size_t)k * PS_TILE_LANES, 8), 8);
		PS_UNROLL
		for (uint32_t j = 0; j < 4; j++)
			sums[j] += w[k] * four[j];
	}
	PS_UNROLL
	for (uint32_t j = 0; j < 4; j++)
		out[j] = (uint8_t)ps_tile_clamp(sums[j] >> im->v.shift, 255);
}

/* Makes output rows [y, y + n) of the columns from x on, from shared memory. */
PS_BOTH void ps_tile_drain(const struct ps_tile_args *a, const struct ps_tile_image *im, uint32_t x,
        uint32_t y, uint32_t n, uint32_t base, const int16_t *shared)
{
	const size_t npixels = (size_t)a->width * a->height;
	uint8_t *to = a->to + im->place * 3 * npixels;

	PS_THREADS(t)
	{
		for (uint32_t i = t; i < n * PS_TILE_LANES / 4; i += PS_KERNEL_THREADS) {
			const uint32_t lane = i % (PS_TILE_LANES / 4) * 4, out = y + i / (PS_TILE_LANES / 4);
			const uint32_t column = x + lane % PS_TILE_COLUMNS, channel = lane / PS_TILE_COLUMNS;
			const uint32_t row = im->flip_v ? a->height - 1 - out : out;
			uint8_t *at = to + channel * npixels + (size_t)row * a->width + column, four[4];

			if (column >= a->width)
				continue;
			ps_tile_down(im, out, base, lane, shared, four);
			if (a->width % 4 == 0) {
				memcpy(__builtin_assume_aligned(at, 4), four, 4);
				continue;
			}
			for (uint32_t j = 0; j < 4 && column + j < a->width; j++)
				at[j] = four[j];
		}
	}
}

PS_BOTH void ps_tile_block(const struct ps_tile_args *a, uint32_t block, void *shared_bytes)
{
	const uint32_t across = (a->width + PS_TILE_COLUMNS - 1) / PS_TILE_COLUMNS;
	const uint32_t per = ps_tile_blocks(a->width, a->height), image = block / per;
	const uint32_t x = (block - image * per) % across * PS_TILE_COLUMNS;
	const uint32_t begin = (block - image * per) / across * PS_TILE_HEIGHT;
	const uint32_t end = a->height - begin < PS_TILE_HEIGHT ? a->height : begin + PS_TILE_HEIGHT;
	const struct ps_tile_image *im = &a->images[image];
	int16_t *shared = (int16_t *)shared_bytes;

	for (uint32_t y = begin; y < end; y += im->rows) {
		const uint32_t n = end - y < im->rows ? end - y : im->rows, base = im->v.first[y];
		uint32_t span = ps_tile_span(im->v.first, im->v.taps, y, n);

		if (span > im->nrows - base)
			span = im->nrows - base; /* weights after the last row are 0 */
		PS_TOGETHER();
		ps_tile_fill(im, x, a->width, base, span, shared);
		PS_TOGETHER();
		ps_tile_drain(a, im, x, y, n, base, shared);
	}
}

/* Moving rows ------------------------------------------------------------------------------------------- */

#define PS_MOVE_BLOCK (PS_KERNEL_THREADS * 64u) /* bytes that a block moves */

struct ps_move {
	const uint8_t *from;
	uint8_t *to;
};

/* `n` pieces of nbytes each; `from` and `to` are aligned to 16 if nbytes is a multiple of 16. */
struct ps_move_args {
	const struct ps_move *moves;
	uint32_t n, nbytes;
};

PS_BOTH uint32_t ps_move_blocks(uint32_t nbytes)
{
	return (nbytes + PS_MOVE_BLOCK - 1) / PS_MOVE_BLOCK;
}

PS_BOTH void ps_move_block(const struct ps_move_args *a, uint32_t block, void *shared)
{
	const uint32_t per = ps_move_blocks(a->nbytes), piece = block / per,
	               begin = (block - piece * per) * PS_MOVE_BLOCK;
	const uint32_t end = a->nbytes - begin < PS_MOVE_BLOCK ? a->nbytes : begin + PS_MOVE_BLOCK;
	const struct ps_move *m = &a->moves[piece];
	const bool wide = a->nbytes % 16 == 0;
	const uint32_t step = wide ? 16 : 1;

	(void)shared;

	PS_THREADS(t)
	{
		for (uint32_t i = begin + t * step; i < end; i += PS_KERNEL_THREADS * step) {
			if (wide)
				*(struct ps_bytes16 *)(void *)(m->to + i) =
				        *(const struct ps_bytes16 *)(const void *)(m->from + i);
			else
				m->to[i] = m->from[i];
		}
	}
}

#endif
