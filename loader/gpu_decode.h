/* Whether the GPU decodes JPEGs, and which share of them: by the options, the machine and a state.
 *
 *   gpu_decode   the machine can           it cannot
 *   0            the processor does         the same
 *   a number     that share                 refused, -ENODEV
 *   auto         tuned, then frozen         the processor does; `why` has the reason
 *
 * A state keeps its share, or is refused where this loader would make other pixels.
 *
 * Ownership: the caller's struct; the device must outlive it.   Threads: one at a time.
 * Errors: with a text.   Blocks: on the start of the library. */
#ifndef PS_GPU_DECODE_H
#define PS_GPU_DECODE_H

#include "batch/batch.h"
#include "device/device.h"
#include "state.h"

struct ps_gpu_decode {
	double asked;                 /* options.gpu_decode */
	struct ps_nvjpeg *nvjpeg;     /* NULL: the processor decodes */
	struct ps_offload offload;    /* to begin with */
	struct ps_load_error why;     /* of auto: why the processor decodes */
	struct ps_load_error refused; /* nvJPEG's libraries that are not used, and why; the text may be "" */
};

/* layout: with the fields that the device makes; NULL: it makes none, `made_not` (NULL: the options say so)
 * says why. */
int ps_gpu_decode_open(const struct penstock_options *options, const struct ps_batch_layout *layout,
        const char *made_not, struct ps_device *device, struct ps_gpu_decode *ret_gpu,
        struct ps_load_error *err) PS_MUST_USE;
void ps_gpu_decode_close(struct ps_gpu_decode *gpu); /* zeroed is allowed */

/* Adds the share to a state; `offload` is the one in force. */
void ps_gpu_decode_save(
        const struct ps_gpu_decode *gpu, const struct ps_offload *offload, struct ps_state *state);

/* What is in force where the state stands; -ESTALE. */
int ps_gpu_decode_resume(const struct ps_gpu_decode *gpu, const struct ps_state *state,
        struct ps_offload *ret_offload, struct ps_load_error *err) PS_MUST_USE;

#endif
