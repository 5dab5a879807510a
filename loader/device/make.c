#include "config.h"

#include "device/make.h"

#include "image/ops.h"

size_t ps_make_moved_nbytes(uint32_t what, uint64_t nimages, uint32_t width, uint32_t height)
{
	return what & PS_IMAGE_AFFINE ? ((size_t)nimages * 3 * width * height + 255) & ~(size_t)255 : 0;
}

size_t ps_make_scratch_nbytes(uint32_t what, uint64_t nimages, uint32_t width, uint32_t height)
{
	size_t between = what & PS_IMAGE_BLUR ? (size_t)nimages * 3 * width * height * sizeof(int16_t) : 0;

	return ps_make_moved_nbytes(what, nimages, width, height) + between;
}
