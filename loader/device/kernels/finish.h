/* The last step of an image field turns u8 planes into the batch's elements. It mixes, normalises, and lays
 * out in one pass; image/image.h and image/picture.h define the arithmetic.
 *
 * A unit makes 16 bytes of a channel. A thread's units are PS_KERNEL_THREADS apart, so that a warp's loads
 * and stores are contiguous. Where channels alternate (NHWC), the three units of the same pixels pass
 * through shared memory, which keeps the stores contiguous. Images whose planes are not a multiple of a
 * unit are done element by element. */
#ifndef PS_DEVICE_FINISH_H
#define PS_DEVICE_FINISH_H

#include <string.h>

#include "base/dtype.h"
#include "device/kernels/kernel_code.h"
#include "image/pixel/pixel.h"

#define PS_FINISH_SHARED (PS_KERNEL_THREADS * 48u)

struct ps_finish_args {
	struct ps_images images;
	void *to;
	float scale[3], bias[3]; /* not for PS_U8; 0: all elements are 0 */
	/* How each row is mixed with the row before it, and the first row with the last. */
	uint32_t mix;    /* enum ps_mix_kind */
	uint32_t weight; /* weight of the row itself, out of 65536 */
	uint32_t nviews; /* images of a row */
	uint32_t box[4]; /* CutMix's box: x0, y0, x1, y1 */
};

PS_BOTH uint32_t ps_finish_unit_pixels(enum ps_dtype dtype)
{
	return dtype == PS_U8 ? 16u : dtype == PS_F32 ? 4u : 8u;
}

/* Units of a thread where channels are planes. The thread has that many loads in flight at once. */
PS_BOTH uint32_t ps_finish_rounds(enum ps_dtype dtype)
{
	return dtype == PS_U8 ? 1u : dtype == PS_F32 ? 4u : 2u;
}

/* Elements (NCHW) or pixels (NHWC) of an image that one block makes. */
PS_BOTH uint32_t ps_finish_block_pixels(enum ps_dtype dtype, enum ps_layout layout)
{
	return PS_KERNEL_THREADS * ps_finish_unit_pixels(dtype) *
	       (layout == PS_NCHW ? ps_finish_rounds(dtype) : 1u);
}

/* Blocks of an image: over its elements (NCHW), or its pixels (NHWC). */
PS_BOTH uint32_t ps_finish_blocks(enum ps_dtype dtype, enum ps_layout layout, uint32_t npixels)
{
	uint32_t n = layout == PS_NCHW ? 3 * npixels : npixels, per = ps_finish_block_pixels(dtype, layout);

	return (n + per - 1) / per;
}

/* The bits of an element. */
PS_BOTH uint32_t ps_finish_element(enum ps_dtype dtype, uint8_t v, float scale, float bias)
{
	float f = ps_pixel_normalised(v, scale, bias);

	return dtype == PS_U8    ? v
	       : dtype == PS_F32 ? ps_float_bits(f)
	       : dtype == PS_F16 ? ps_f16_of(f)
	                         : ps_bf16_of(f);
}

PS_BOTH uint32_t ps_finish_blended(enum ps_dtype dtype, uint32_t a, uint32_t b, uint32_t weight)
{
	float own = (float)weight / 65536, rest = (float)(65536u - weight) / 65536;

	if (dtype == PS_U8)
		return ps_pixel_blended_u8(a, b, weight);
	if (dtype == PS_F32)
		return ps_float_bits(ps_pixel_blended(ps_float_of_bits(a), ps_float_of_bits(b), own, rest));
	if (dtype == PS_F16)
		return ps_f16_of(ps_pixel_blended(
		        ps_float_of_f16((uint16_t)a), ps_float_of_f16((uint16_t)b), own, rest));
	return ps_bf16_of(
	        ps_pixel_blended(ps_float_of_bf16((uint16_t)a), ps_float_of_bf16((uint16_t)b), own, rest));
}

/* The pixels of an image, and of its partner in the mix. */
struct ps_finish_sources {
	const uint8_t *own, *other;
};

PS_BOTH struct ps_finish_sources ps_finish_sources_of(const struct ps_finish_args *a, uint32_t image)
{
	uint32_t last = a->images.nimages - a->nviews;
	uint32_t partner = image >= a->nviews ? image - a->nviews : image + last;
	struct ps_finish_sources s;

	s.own = ps_image_planes(&a->images, image);
	s.other = ps_image_planes(&a->images, partner);
	return s;
}

PS_BOTH bool ps_finish_in_box(const struct ps_finish_args *a, uint32_t x, uint32_t y)
{
	return x >= a->box[0] && x < a->box[2] && y >= a->box[1] && y < a->box[3];
}

/* Bytes of a unit of one channel: the image's own, and its partner's. */
struct ps_finish_bytes {
	uint32_t own[4], other[4];
};

/* Loads n pixels of channel c, from pixel `at` on; aligned to n. */
PS_BOTH void ps_finish_load(const struct ps_finish_args *a, const struct ps_finish_sources *from, uint32_t c,
        uint32_t at, uint32_t n, struct ps_finish_bytes *to)
{
	const size_t place = (size_t)c * a->images.npixels + at;

	ps_words_load(to->own, from->own + place, n);
	if (a->mix != PS_MIX_NONE)
		ps_words_load(to->other, from->other + place, n);
}

PS_BOTH void ps_finish_put(enum ps_dtype dtype, uint8_t *to, uint32_t bits)
{
	uint16_t half = (uint16_t)bits;

	if (dtype == PS_U8)
		*to = (uint8_t)bits;
	else if (dtype == PS_F32)
		memcpy(to, &bits, 4);
	else
		memcpy(to, &half, 2);
}

/* Computes the elements of n loaded pixels, and stores them `step` bytes apart. */
PS_BOTH void ps_finish_compute(const struct ps_finish_args *a, enum ps_dtype dtype, uint32_t c, uint32_t at,
        uint32_t n, const struct ps_finish_bytes *from, uint8_t *to, uint32_t step)
{
	const uint32_t width = a->images.width;
	const float scale = a->scale[c], bias = a->bias[c];
	uint32_t y = a->mix == PS_MIX_CUT ? at / width : 0, x = at - y * width;

	PS_UNROLL
	for (uint32_t j = 0; j < n; j++) {
		uint8_t v = ps_words_byte(from->own, j);
		uint32_t bits;

		if (a->mix == PS_MIX_CUT) {
			v = ps_finish_in_box(a, x, y) ? ps_words_byte(from->other, j) : v;
			if (++x == width) {
				x = 0;
				y++;
			}
		}
		bits = ps_finish_element(dtype, v, scale, bias);
		if (a->mix == PS_MIX_UP)
			bits = ps_finish_blended(dtype, bits,
			        ps_finish_element(dtype, ps_words_byte(from->other, j), scale, bias),
			        a->weight);
		ps_finish_put(dtype, to + (size_t)j * step, bits);
	}
}

/* The channel of value number e of three planes. */
PS_BOTH uint32_t ps_finish_channel(uint32_t e, uint32_t npixels)
{
	return (e >= npixels ? 1u : 0u) + (e >= 2 * npixels ? 1u : 0u);
}

/* Makes elements one by one, for images whose size is not a multiple of a unit. */
PS_BOTH void ps_finish_singly(const struct ps_finish_args *a, enum ps_dtype dtype, enum ps_layout layout,
        const struct ps_finish_sources *from, uint32_t begin, uint32_t end, uint8_t *to)
{
	const uint32_t npixels = a->images.npixels, esize = 16 / ps_finish_unit_pixels(dtype);

	PS_THREADS(t)
	{
		for (uint32_t e = begin + t; e < end; e += PS_KERNEL_THREADS) {
			uint32_t c = layout == PS_NCHW ? ps_finish_channel(e, npixels) : e % 3;
			uint32_t at = layout == PS_NCHW ? e - c * npixels : e / 3;
			struct ps_finish_bytes bytes;

			ps_finish_load(a, from, c, at, 1, &bytes);
			ps_finish_compute(a, dtype, c, at, 1, &bytes, to + (size_t)e * esize, esize);
		}
	}
}

PS_BOTH void ps_finish_planar(const struct ps_finish_args *a, enum ps_dtype dtype,
        const struct ps_finish_sources *from, uint32_t begin, uint32_t end, uint8_t *to)
{
	const uint32_t npixels = a->images.npixels, unit = ps_finish_unit_pixels(dtype), esize = 16 / unit;

	PS_THREADS(t)
	{
		struct ps_finish_bytes bytes[4];

		PS_UNROLL
		for (uint32_t r = 0; r < ps_finish_rounds(dtype); r++) {
			uint32_t e = begin + (r * PS_KERNEL_THREADS + t) * unit;
			uint32_t c = ps_finish_channel(e, npixels);

			if (e < end)
				ps_finish_load(a, from, c, e - c * npixels, unit, &bytes[r]);
		}
		PS_UNROLL
		for (uint32_t r = 0; r < ps_finish_rounds(dtype); r++) {
			uint32_t e = begin + (r * PS_KERNEL_THREADS + t) * unit;
			uint32_t c = ps_finish_channel(e, npixels);
			uint8_t out[16];

			if (e >= end)
				continue;
			ps_finish_compute(a, dtype, c, e - c * npixels, unit, &bytes[r], out, esize);
			memcpy(__builtin_assume_aligned(to + (size_t)e * esize, 16), out, 16);
		}
	}
}

/* Makes pixels [begin, end) with alternating channels. */
PS_BOTH void ps_finish_interleaved(const struct ps_finish_args *a, enum ps_dtype dtype,
        const struct ps_finish_sources *from, uint32_t begin, uint32_t end, uint8_t *to, uint8_t *shared)
{
	const uint32_t unit = ps_finish_unit_pixels(dtype), esize = 16 / unit;
	const uint32_t pieces = (end - begin) / unit * 3; /* pieces of 16 bytes */

	PS_THREADS(t)
	{
		uint32_t at = begin + t * unit;
		struct ps_finish_bytes bytes[3];
		uint8_t out[48];

		if (at < end) {
			PS_UNROLL
			for (uint32_t c = 0; c < 3; c++)
				ps_finish_load(a, from, c, at, unit, &bytes[c]);
			PS_UNROLL
			for (uint32_t c = 0; c < 3; c++)
				ps_finish_compute(
				        a, dtype, c, at, unit, &bytes[c], out + c * esize, 3 * esize);
			memcpy(__builtin_assume_aligned(shared + (size_t)t * 48, 16), out, 48);
		}
	}
	PS_TOGETHER();
	PS_THREADS(t)
	{
		PS_UNROLL
		for (uint32_t r = 0; r < 3; r++) {
			uint32_t piece = r * PS_KERNEL_THREADS + t;

			if (piece < pieces)
				memcpy(__builtin_assume_aligned(
				               to + (size_t)begin * 3 * esize + (size_t)piece * 16, 16),
				        __builtin_assume_aligned(shared + (size_t)piece * 16, 16), 16);
		}
	}
}

PS_BOTH void ps_finish_block(const struct ps_finish_args *a, enum ps_dtype dtype, enum ps_layout layout,
        uint32_t block, uint8_t *shared)
{
	const uint32_t npixels = a->images.npixels, unit = ps_finish_unit_pixels(dtype);
	const uint32_t blocks = ps_finish_blocks(dtype, layout, npixels), image = block / blocks;
	const uint32_t per = ps_finish_block_pixels(dtype, layout),
	               all = layout == PS_NCHW ? 3 * npixels : npixels;
	const uint32_t begin = (block - image * blocks) * per, end = all - begin < per ? all : begin + per;
	const struct ps_finish_sources from = ps_finish_sources_of(a, image);
	uint8_t *to = (uint8_t *)a->to + (size_t)image * 3 * npixels * (16 / unit);

	if (npixels % unit != 0)
		ps_finish_singly(a, dtype, layout, &from, layout == PS_NCHW ? begin : 3 * begin,
		        layout == PS_NCHW ? end : 3 * end, to);
	else if (layout == PS_NCHW)
		ps_finish_planar(a, dtype, &from, begin, end, to);
	else
		ps_finish_interleaved(a, dtype, &from, begin, end, to, shared);
}

#endif
