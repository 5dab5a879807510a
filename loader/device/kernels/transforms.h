/* The transforms of image/image.h, applied to the images of a field: in place, except for the affine step,
 * which writes to `moved`. Blocks of images that do not have the step return at once.
 *
 * Threads process four pixels at a time: as one word, if the size of planes is a multiple of four. */
#ifndef PS_DEVICE_TRANSFORMS_H
#define PS_DEVICE_TRANSFORMS_H

#include <string.h>

#include "device/kernels/kernel_code.h"
#include "image/pixel/pixel.h"

struct ps_transform_args {
	struct ps_images images;
	int16_t *between; /* three planes an image: rows between the two passes of the blur */
};

#define PS_TRANSFORM_ROUNDS 4u /* words that a thread processes */
#define PS_TRANSFORM_BLOCK (PS_KERNEL_THREADS * 4u * PS_TRANSFORM_ROUNDS)
#define PS_GRAY_SHARED (PS_KERNEL_THREADS * 4u)

/* Blocks for n values of an image. */
PS_BOTH uint32_t ps_transform_blocks(uint32_t n)
{
	return (n + PS_TRANSFORM_BLOCK - 1) / PS_TRANSFORM_BLOCK;
}

/* Loads four of n values from `at` on; values beyond n are 0. */
PS_BOTH void ps_load4(const uint8_t *values, uint32_t at, uint32_t n, uint8_t ret_v[4])
{
	uint32_t words[4] = {0};

	if (n % 4 == 0)
		ps_words_load(words, values + at, 4);
	for (uint32_t j = 0; j < 4; j++)
		ret_v[j] = n % 4 == 0 ? ps_words_byte(words, j) : at + j < n ? values[at + j] : 0;
}

PS_BOTH void ps_store4(uint8_t *values, uint32_t at, uint32_t n, const uint8_t v[4])
{
	if (n % 4 == 0)
		memcpy(__builtin_assume_aligned(values + at, 4), v, 4);
	else
		for (uint32_t j = 0; j < 4 && at + j < n; j++)
			values[at + j] = v[j];
}

/* Affine: `planes` to `moved` --------------------------------------------------------------------------- */

PS_BOTH void ps_affine_pixel(const struct ps_images *a, const struct ps_image_ops *ops, const uint8_t *from,
        uint32_t col, uint32_t row, uint8_t ret_v[3])
{
	const int64_t *m = ops->map;
	int64_t x = m[0] * col + m[1] * row + m[2], y = m[3] * col + m[4] * row + m[5];

	ret_v[0] = ret_v[1] = ret_v[2] = (uint8_t)ops->fill;
	if (x >= 0 && x < (int64_t)a->width << 32 && y >= 0 && y < (int64_t)a->height << 32) {
		struct ps_pixel_between across = ps_pixel_between_of(x, a->width);
		struct ps_pixel_between down = ps_pixel_between_of(y, a->height);

		for (uint32_t c = 0; c < 3; c++)
			ret_v[c] = ps_pixel_sampled(from + (size_t)c * a->npixels, a->width, across, down);
	}
}

PS_BOTH void ps_affine_block(const struct ps_transform_args *args, uint32_t block)
{
	const struct ps_images *a = &args->images;
	const uint32_t blocks = ps_transform_blocks(a->npixels), image = block / blocks;
	const uint32_t begin = (block - image * blocks) * PS_TRANSFORM_BLOCK;
	const struct ps_image_ops *ops = &a->ops[image];
	const uint8_t *from = a->planes + (size_t)image * 3 * a->npixels;
	uint8_t *to = a->moved + (size_t)image * 3 * a->npixels;

	if (!(ops->what & PS_IMAGE_AFFINE))
		return;
	PS_THREADS(t)
	{
		for (uint32_t r = 0; r < PS_TRANSFORM_ROUNDS; r++) {
			uint32_t at = begin + (r * PS_KERNEL_THREADS + t) * 4;
			uint32_t row = at / a->width, col = at - row * a->width;
			uint8_t out[3][4];

			if (at >= a->npixels)
				continue;
			PS_UNROLL
			for (uint32_t j = 0; j < 4; j++) {
				uint8_t v[3];

				ps_affine_pixel(a, ops, from, col, row, v);
				out[0][j] = v[0];
				out[1][j] = v[1];
				out[2][j] = v[2];
				if (++col == a->width) {
					col = 0;
					row++;
				}
			}
			for (uint32_t c = 0; c < 3; c++)
				ps_store4(to + (size_t)c * a->npixels, at, a->npixels, out[c]);
		}
	}
}

/* Colours ------------------------------------------------------------------------------------------------ */

PS_BOTH void ps_colors_hue(int32_t turn, uint8_t v[3])
{
	uint32_t r = v[0], g = v[1], b = v[2];
	uint32_t most = r > g ? r : g, least = r < g ? r : g, edge;
	uint8_t middle;

	most = b > most ? b : most;
	least = b < least ? b : least;
	if (most == least)
		return;
	edge = ps_pixel_turned(r, g, b, most, least, ps_pixel_reciprocal(most - least), turn, &middle);
	for (uint32_t c = 0; c < 3; c++) /* not a table: a thread's look-ups by index are slow */
		v[c] = (uint8_t)(c == (edge + 1) / 2 % 3 ? most : c == (edge / 2 + 2) % 3 ? least : middle);
}

/* Parameters of an image in a struct of their own, so that threads keep them in registers. */
struct ps_colors {
	uint32_t what, brightness, contrast, saturation, order;
	int32_t turn, mean;
};

/* Applies the jitter's steps in their order; with `until_contrast` only those before contrast. */
PS_BOTH void ps_colors_jitter(const struct ps_colors *k, bool until_contrast, uint8_t v[3])
{
	for (uint32_t i = 0; i < PS_JITTER_NSTEPS; i++) {
		const uint32_t step = k->order >> 4 * i & 15;

		if (step == PS_JITTER_CONTRAST && until_contrast)
			return;
		if (!(k->what & (uint32_t)PS_IMAGE_BRIGHTNESS << step))
			continue;
		if (step == PS_JITTER_HUE) {
			ps_colors_hue(k->turn, v);
		} else {
			int32_t gray = step == PS_JITTER_CONTRAST ? k->mean : ps_pixel_gray(v[0], v[1], v[2]);
			uint32_t factor = step == PS_JITTER_CONTRAST ? k->contrast : k->saturation;

			PS_UNROLL
			for (uint32_t c = 0; c < 3; c++)
				v[c] = step == PS_JITTER_BRIGHTNESS ? ps_pixel_brightened(k->brightness, v[c])
				                                    : ps_pixel_from_gray(factor, gray, v[c]);
		}
	}
}

/* Adds the gray values, as they are before contrast, to ops->gray_sum. */
PS_BOTH void ps_gray_block(const struct ps_transform_args *args, uint32_t block, uint8_t *shared)
{
	const struct ps_images *a = &args->images;
	const uint32_t blocks = ps_transform_blocks(a->npixels), image = block / blocks, n = a->npixels;
	const uint32_t begin = (block - image * blocks) * PS_TRANSFORM_BLOCK;
	struct ps_image_ops *ops = &a->ops[image];
	const uint8_t *planes = ps_image_planes(a, image);
	uint32_t *sums = (uint32_t *)(void *)shared;

	if (!(ops->what & PS_IMAGE_CONTRAST))
		return;
	PS_THREADS(t)
	{
		const struct ps_colors k = {
		        ops->what, ops->brightness, 0, ops->saturation, ops->order, ops->turn, 0};
		uint32_t sum = 0;

		for (uint32_t r = 0; r < PS_TRANSFORM_ROUNDS; r++) {
			uint32_t at = begin + (r * PS_KERNEL_THREADS + t) * 4;
			uint8_t v[3][4];

			if (at >= n)
				continue;
			for (uint32_t c = 0; c < 3; c++)
				ps_load4(planes + (size_t)c * n, at, n, v[c]);
			PS_UNROLL
			for (uint32_t j = 0; j < 4; j++) {
				uint8_t pixel[3] = {v[0][j], v[1][j], v[2][j]};

				ps_colors_jitter(&k, true, pixel);
				sum += ps_pixel_gray(pixel[0], pixel[1], pixel[2]);
			}
		}
		sums[t] = sum;
	}
	for (uint32_t half = PS_KERNEL_THREADS / 2; half > 0; half /= 2) {
		PS_TOGETHER();
		PS_THREADS(t)
		{
			if (t < half)
				sums[t] += sums[t + half];
		}
	}
	PS_THREADS(t)
	{
		if (t == 0)
			PS_ADD_U64(&ops->gray_sum, sums[0]);
	}
}

PS_BOTH void ps_colors_pixel(const struct ps_colors *k, uint8_t v[3])
{
	ps_colors_jitter(k, false, v);
	if (k->what & PS_IMAGE_GRAY)
		v[0] = v[1] = v[2] = ps_pixel_gray(v[0], v[1], v[2]);
}

PS_BOTH void ps_colors_block(const struct ps_transform_args *args, uint32_t block, uint8_t *shared)
{
	const struct ps_images *a = &args->images;
	const uint32_t blocks = ps_transform_blocks(a->npixels), image = block / blocks, n = a->npixels;
	const uint32_t begin = (block - image * blocks) * PS_TRANSFORM_BLOCK;
	const struct ps_image_ops *ops = &a->ops[image];
	uint8_t *planes = ps_image_planes(a, image);
	int32_t *mean = (int32_t *)(void *)shared;

	if (!(ops->what & PS_IMAGE_COLORS))
		return;
	PS_THREADS(t)
	{
		if (t == 0)
			*mean = (int32_t)((ops->gray_sum + n / 2) / n);
	}
	PS_TOGETHER();
	PS_THREADS(t)
	{
		const struct ps_colors k = {ops->what, ops->brightness, ops->contrast, ops->saturation,
		        ops->order, ops->turn, *mean};

		for (uint32_t r = 0; r < PS_TRANSFORM_ROUNDS; r++) {
			uint32_t at = begin + (r * PS_KERNEL_THREADS + t) * 4;
			uint8_t v[3][4];

			if (at >= n)
				continue;
			for (uint32_t c = 0; c < 3; c++)
				ps_load4(planes + (size_t)c * n, at, n, v[c]);
			PS_UNROLL
			for (uint32_t j = 0; j < 4; j++) {
				uint8_t pixel[3] = {v[0][j], v[1][j], v[2][j]};

				ps_colors_pixel(&k, pixel);
				v[0][j] = pixel[0];
				v[1][j] = pixel[1];
				v[2][j] = pixel[2];
			}
			for (uint32_t c = 0; c < 3; c++)
				ps_store4(planes + (size_t)c * n, at, n, v[c]);
		}
	}
}

/* Blur: horizontally into `between`, then vertically --------------------------------------------------- */

#define PS_BLUR_TILE_W 64u
#define PS_BLUR_TILE_H 16u
#define PS_BLUR_ROW (PS_BLUR_TILE_W + 2 * PS_IMAGE_REACH_MAX + 2)
#define PS_BLUR_ACROSS_SHARED (PS_BLUR_TILE_H * PS_BLUR_ROW)
#define PS_BLUR_DOWN_SHARED ((PS_BLUR_TILE_H + 2 * PS_IMAGE_REACH_MAX) * PS_BLUR_TILE_W * 2)

/* A tile of one channel, and its size within the image. */
struct ps_blur_tile {
	uint32_t image, x, y, width, height;
	size_t plane; /* place of the plane's first value among those of all images */
};

/* The number of tiles of an image. */
PS_BOTH uint32_t ps_blur_tiles(uint32_t width, uint32_t height)
{
	return 3 * ((width + PS_BLUR_TILE_W - 1) / PS_BLUR_TILE_W) *
	       ((height + PS_BLUR_TILE_H - 1) / PS_BLUR_TILE_H);
}

PS_BOTH struct ps_blur_tile ps_blur_tile_of(const struct ps_images *a, uint32_t block)
{
	const uint32_t across = (a->width + PS_BLUR_TILE_W - 1) / PS_BLUR_TILE_W;
	const uint32_t down = (a->height + PS_BLUR_TILE_H - 1) / PS_BLUR_TILE_H;
	const uint32_t plane = block / (across * down), tile = block - plane * across * down;
	struct ps_blur_tile r;

	r.image = plane / 3;
	r.plane = (size_t)plane * a->npixels;
	r.y = tile / across * PS_BLUR_TILE_H;
	r.x = tile % across * PS_BLUR_TILE_W;
	r.width = a->width - r.x < PS_BLUR_TILE_W ? a->width - r.x : PS_BLUR_TILE_W;
	r.height = a->height - r.y < PS_BLUR_TILE_H ? a->height - r.y : PS_BLUR_TILE_H;
	return r;
}

PS_BOTH void ps_blur_across_block(const struct ps_transform_args *args, uint32_t block, uint8_t *shared)
{
	const struct ps_images *a = &args->images;
	const struct ps_blur_tile tile = ps_blur_tile_of(a, block);
	const struct ps_image_ops *ops = &a->ops[tile.image];
	const uint32_t reach = ops->reach, row = tile.width + 2 * reach;
	const uint8_t *from =
	        ps_image_planes(a, tile.image) + tile.plane - (size_t)tile.image * 3 * a->npixels;
	int16_t *to = args->between + tile.plane;

	if (!(ops->what & PS_IMAGE_BLUR))
		return;
	PS_THREADS(t)
	{
		for (uint32_t i = t; i < row * tile.height; i += PS_KERNEL_THREADS) {
			uint32_t y = i / row, x = i - y * row;
			uint32_t at = ps_pixel_mirrored((int64_t)tile.x + x - reach, a->width);

			shared[y * PS_BLUR_ROW + x] = from[(size_t)(tile.y + y) * a->width + at];
		}
	}
	PS_TOGETHER();
	PS_THREADS(t)
	{
		for (uint32_t i = t; i < PS_BLUR_TILE_W * tile.height; i += PS_KERNEL_THREADS) {
			uint32_t y = i / PS_BLUR_TILE_W, x = i % PS_BLUR_TILE_W;
			const uint8_t *middle = shared + y * PS_BLUR_ROW + x + reach;
			int32_t sum = 128;

			if (x >= tile.width)
				continue;
			sum += ops->blur[0] * middle[0];
			for (uint32_t k = 1; k <= reach; k++)
				sum += ops->blur[k] * (*(middle - k) + middle[k]);
			to[(size_t)(tile.y + y) * a->width + tile.x + x] = (int16_t)(sum >> 8);
		}
	}
}

PS_BOTH void ps_blur_down_block(const struct ps_transform_args *args, uint32_t block, uint8_t *shared)
{
	const struct ps_images *a = &args->images;
	const struct ps_blur_tile tile = ps_blur_tile_of(a, block);
	const struct ps_image_ops *ops = &a->ops[tile.image];
	const uint32_t reach = ops->reach;
	const int16_t *from = args->between + tile.plane;
	uint8_t *to = ps_image_planes(a, tile.image) + tile.plane - (size_t)tile.image * 3 * a->npixels;
	int16_t *rows = (int16_t *)(void *)shared;

	if (!(ops->what & PS_IMAGE_BLUR))
		return;
	PS_THREADS(t)
	{
		for (uint32_t i = t; i < (tile.height + 2 * reach) * PS_BLUR_TILE_W; i += PS_KERNEL_THREADS) {
			uint32_t y = i / PS_BLUR_TILE_W, x = i % PS_BLUR_TILE_W;
			uint32_t at = ps_pixel_mirrored((int64_t)tile.y + y - reach, a->height);

			if (x < tile.width)
				rows[i] = from[(size_t)at * a->width + tile.x + x];
		}
	}
	PS_TOGETHER();
	PS_THREADS(t)
	{
		for (uint32_t i = t; i < PS_BLUR_TILE_W * tile.height; i += PS_KERNEL_THREADS) {
			uint32_t y = i / PS_BLUR_TILE_W, x = i % PS_BLUR_TILE_W;
			const int16_t *middle = rows + i + (size_t)reach * PS_BLUR_TILE_W;
			int32_t sum = 1 << 19;

			if (x >= tile.width)
				continue;
			sum += ops->blur[0] * middle[0];
			for (uint32_t k = 1; k <= reach; k++)
				sum += ops->blur[k] * (*(middle - (size_t)k * PS_BLUR_TILE_W) +
				                              middle[(size_t)k * PS_BLUR_TILE_W]);
			to[(size_t)(tile.y + y) * a->width + tile.x + x] = (uint8_t)(sum >> 20);
		}
	}
}

/* Noise -------------------------------------------------------------------------------------------------- */

PS_BOTH void ps_noise_block(const struct ps_transform_args *args, uint32_t block)
{
	const struct ps_images *a = &args->images;
	const uint32_t n = 3 * a->npixels, blocks = ps_transform_blocks(n), image = block / blocks;
	const uint32_t begin = (block - image * blocks) * PS_TRANSFORM_BLOCK;
	const struct ps_image_ops *ops = &a->ops[image];
	uint8_t *values = ps_image_planes(a, image);

	if (!(ops->what & PS_IMAGE_NOISE))
		return;
	PS_THREADS(t)
	{
		const uint64_t key = ops->noise_key;
		const int32_t factor = ops->noise;

		for (uint32_t r = 0; r < PS_TRANSFORM_ROUNDS; r++) {
			uint32_t at = begin + (r * PS_KERNEL_THREADS + t) * 4;
			uint32_t words[4];
			uint8_t v[4];

			if (at >= n)
				continue;
			ps_load4(values, at, n, v);
			ps_pixel_noise(key, at / 4, words);
			PS_UNROLL
			for (uint32_t j = 0; j < 4; j++)
				v[j] = ps_pixel_noised(v[j], words[j], factor);
			ps_store4(values, at, n, v);
		}
	}
}

/* Erasing ------------------------------------------------------------------------------------------------ */

PS_BOTH void ps_erase_block(const struct ps_transform_args *args, uint32_t block)
{
	const struct ps_images *a = &args->images;
	const uint32_t n = 3 * a->npixels, blocks = ps_transform_blocks(n), image = block / blocks;
	const uint32_t begin = (block - image * blocks) * PS_TRANSFORM_BLOCK;
	const struct ps_image_ops *ops = &a->ops[image];
	uint8_t *values = ps_image_planes(a, image);

	if (!(ops->what & PS_IMAGE_ERASE))
		return;
	PS_THREADS(t)
	{
		const struct ps_erase e = ops->erase;

		for (uint32_t r = 0; r < PS_TRANSFORM_ROUNDS; r++) {
			uint32_t at = begin + (r * PS_KERNEL_THREADS + t) * 4;
			uint32_t words[4] = {0};

			if (at >= n)
				continue;
			if (e.random)
				ps_pixel_noise(e.key, at / 4, words);
			PS_UNROLL
			for (uint32_t j = 0; j < 4; j++) {
				uint32_t c = (at + j) / a->npixels, pixel = at + j - c * a->npixels;
				uint32_t y = pixel / a->width, x = pixel - y * a->width;

				if (c < 3 && x >= e.x0 && x < e.x1 && y >= e.y0 && y < e.y1)
					values[at + j] = ps_pixel_erased(&ops->erase, c, words[j]);
			}
		}
	}
}

#endif
