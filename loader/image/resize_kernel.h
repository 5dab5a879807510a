/* What resize.c asks of a processor: the inner loops. Private to resize*.c.
 * Threads: kernels keep no state.   Errors: none. */
#ifndef PS_LOADER_IMAGE_RESIZE_KERNEL_H
#define PS_LOADER_IMAGE_RESIZE_KERNEL_H

#include "image/resize_axis.h"

#define PS_RESIZE_LANES 16 /* rows between the passes are padded to this many columns */

struct ps_resize_kernels {
	/* Bytes of the kernel's own form of horizontal weights; 0: reads the axis itself. */
	size_t (*packed_nbytes)(const struct ps_resize_axis *axis);
	void (*pack)(const struct ps_resize_axis *axis, void *ret_packed); /* 32-byte aligned */

	/* One source row to three planes of `stride` columns each (a multiple of PS_RESIZE_LANES, at least
	 * n). Columns from n on get any value. */
	void (*horizontal)(const struct ps_resize_axis *axis, const void *packed, const uint8_t *rgb,
	        int shift, int max, int16_t *dst, size_t stride);

	/* n columns of one plane from 2 * npairs rows (weights in pairs), in the form of each dtype that
	 * images have, PS_U8 to PS_BF16; rows are readable up to the next multiple of PS_RESIZE_LANES, dst is
	 * written up to n. scale and bias are not for PS_U8. */
	void (*vertical[4])(const int16_t *const *rows, const int16_t *weights, uint32_t npairs, int shift,
	        uint32_t n, float scale, float bias, void *dst);
};

extern const struct ps_resize_kernels ps_resize_portable;

#if defined(__x86_64__)
#define PS_RESIZE_HAVE_AVX2 1
extern const struct ps_resize_kernels ps_resize_avx2;
#elif defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define PS_RESIZE_HAVE_NEON 1
extern const struct ps_resize_kernels ps_resize_neon;
#endif

#endif
