/* What is computed of single pixels, as resize.h, mix.h and transform.h define it: for the processor's loops
 * and for the kernels of GPUs, which must give the same bits. No multiply and add may be contracted here.
 * Threads: any.   Errors: none. */
#ifndef PS_LOADER_IMAGE_PIXEL_H
#define PS_LOADER_IMAGE_PIXEL_H

#include <stdint.h>

#include "base/both.h"

PS_BOTH uint8_t ps_pixel_clamp(int32_t v)
{
	return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

PS_BOTH float ps_pixel_normalised(uint32_t v, float scale, float bias)
{
	float scaled = (float)v * scale;
	return scaled + bias;
}

/* MixUp, weight of 65536: of floats with own = weight / 65536 and the rest, and of bytes. */
PS_BOTH float ps_pixel_blended(float a, float b, float own, float rest)
{
	float x = a * own, y = b * rest;
	return x + y;
}

PS_BOTH uint8_t ps_pixel_blended_u8(uint32_t a, uint32_t b, uint32_t weight)
{
	return (uint8_t)((weight * a + (65536u - weight) * b + 32768u) >> 16);
}

#endif
