/* make.h on an NVIDIA GPU: which kernels a field takes. The context is entered.
 *
 * Threads: those of a stream one at a time: they share its scratch.   Errors: of the driver.   Blocks: never.
 */
#ifndef PS_DEVICE_MAKE_CUDA_H
#define PS_DEVICE_MAKE_CUDA_H

#include "device/kernels.h"
#include "device/make.h"

/* Addresses of the device's. */
struct ps_make_places {
	uint8_t *slot, *made, *scratch;
};

/* Gives the kernels of one field to the stream, behind what it has. */
ps_cu_result ps_make_launch(const struct ps_kernels *kernels, const struct ps_make *make,
        const struct ps_make_places *places, ps_cu_stream stream) PS_MUST_USE;

#endif
