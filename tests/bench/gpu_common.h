/* What the measurements of a GPU share: one device, whose context is current, a stream and events. A failure
 * ends the program with a message; the exit code is 77 if there is no such device. Main thread only. */
#ifndef GPU_COMMON_H
#define GPU_COMMON_H

#include "device/kernels/cuda_driver.h"
#include "device/device.h"

#define GPU_DEPTH 3 /* batches in flight, as many as a loader has at least */
#define GPU_MAX_TURNS 64
#define GPU_SKIP 77

extern struct gpu {
	struct ps_device *device;
	const struct ps_cuda_driver *cu;
	ps_cu_context context;
	ps_cu_stream stream;
	ps_cu_event begin, end, behind[GPU_DEPTH];
} gpu;

void gpu_open(void);
void gpu_close(void);
ps_cu_pointer gpu_memory(size_t nbytes); /* of the GPU, until gpu_close() */
void gpu_must(ps_cu_result r, const char *what);
void gpu_must_ps(int r, const struct ps_error *err); /* r: 0 or -errno */

double gpu_now(void); /* seconds */

/* Seconds that one give() takes by the GPU's clock, measured over calls that take `seconds` together. */
double gpu_time(void (*give)(void *arg, uint64_t i), void *arg, double seconds);

/* "NAME": [values] */
void gpu_list_print(const char *name, const double *values, int n);

#endif
