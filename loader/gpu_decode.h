/* Decides whether the GPU decodes JPEGs, and which share of them, from the options, the machine and a
 * state.
 *
 *   gpu_decode   the machine can           it cannot
 *   0            the CPU decodes            the same
 *   a number     that share                 refused, -ENODEV
 *   auto         tuned, then frozen         the CPU decodes; `why` has the reason
 *
 * A loader that resumes a state takes the state's share; it refuses a state with which it would make other
 * pixels.
 *
 * Ownership: the caller's struct; the device must outlive it. Threads: one at a time. Errors: with a text.
 * Blocks: while nvJPEG is loaded and started. */
#ifndef PS_GPU_DECODE_H
#define PS_GPU_DECODE_H

#include "batch/batch.h"
#include "device/device.h"
#include "state.h"

struct ps_gpu_decode {
	double asked;              /* options.gpu_decode */
	struct ps_nvjpeg *nvjpeg;  /* NULL: the CPU decodes */
	struct ps_offload offload; /* the share at the beginning */
	struct ps_error why;       /* with auto: why the CPU decodes */
	struct ps_error refused;   /* nvJPEG libraries that are not used, and why; may be "" */
};

/* layout: has the fields that the device makes. NULL: the device makes none, and `made_not` is the reason; if
 * that is NULL, too, the options turn device_pixels off. */
int ps_gpu_decode_open(const struct penstock_options *options, const struct ps_batch_layout *layout,
        const char *made_not, struct ps_device *device, struct ps_gpu_decode *ret_gpu,
        struct ps_error *err) PS_MUST_USE;
void ps_gpu_decode_close(struct ps_gpu_decode *gpu); /* zeroed is allowed */

/* Adds the share to a state; `offload` is the one in force. */
void ps_gpu_decode_save(
        const struct ps_gpu_decode *gpu, const struct ps_offload *offload, struct ps_state *state);

/* Returns the share that is in force at the state's position. -ESTALE: this loader would make other
 * pixels. */
int ps_gpu_decode_resume(const struct ps_gpu_decode *gpu, const struct ps_state *state,
        struct ps_offload *ret_offload, struct ps_error *err) PS_MUST_USE;

#endif
