/* The weights of one axis of a resize, in fixed point: resize.h defines them. Private to resize*.c, and
 * to devices that resize themselves (ps_resize_tables()).
 * Ownership: the caller's struct, zeroed before the first plan; its arrays are kept from plan to plan.
 * Threads: one at a time.   Errors: 0 or -ENOMEM.   Blocks: never. */
#ifndef PS_LOADER_IMAGE_RESIZE_AXIS_H
#define PS_LOADER_IMAGE_RESIZE_AXIS_H

#include <stdbool.h>

#include "image/spec.h"

/* Weights for the window's outputs only. */
struct ps_resize_axis {
	uint32_t n;           /* outputs */
	uint32_t taps;        /* weights stored for each: max_count rounded up to 4, the rest 0 */
	uint32_t max_count;   /* most weights of an output */
	uint32_t source;      /* first source pixel with a weight, in the box */
	uint32_t source_size; /* source pixels from there on that have one */
	int bits;             /* weights are in units of 2^-bits */
	uint32_t *first;      /* [n]: first source pixel of an output, counted from `source` */
	uint32_t *count;      /* [n]: weights of an output */
	int16_t *weights;     /* [n][taps] */
	double *exact;        /* scratch: the weights before rounding */
	size_t cap_n, cap_weights, cap_exact;
};

/* `span` source pixels from `begin` on (a fraction of the first pixel, 0 to 1) become `scaled` ones; wanted
 * are outputs offset .. offset + size - 1 of them, last first if reversed. No weight reaches source pixel
 * `limit`. */
struct ps_resize_window {
	double begin, span;
	uint32_t limit, scaled, offset, size;
	bool reversed;
};

int ps_resize_axis_plan(struct ps_resize_axis *axis, const struct ps_resize_window *window,
        enum ps_interpolation interpolation) PS_MUST_USE;
void ps_resize_axis_fini(struct ps_resize_axis *axis);

#endif
