/* What the two halves of the CUDA device share: cuda.c has the device and host memory, cuda_mirror.c the
 * device's memory, copies and kernels. Private to them.
 *
 * Locks: a mirror's, then one of the device's; all are leaves to everybody else. */
#ifndef PS_DEVICE_CUDA_PRIVATE_H
#define PS_DEVICE_CUDA_PRIVATE_H

#include <pthread.h>

#include "device/cuda_driver.h"
#include "device/device.h"
#include "device/kernels.h"

struct ps_cuda_device {
	struct ps_device base;
	const struct ps_cuda_driver *cu;
	ps_cu_device device;
	ps_cu_context context;
	ps_cu_stream stream; /* of copies, and of the kernels behind them */
	int node;            /* -1: not known */
	struct ps_kernels kernels;
	bool has_kernels;
	struct ps_load_error no_kernels; /* why not */
	ps_cu_pointer scratch;           /* of kernels: one batch at a time, as the stream orders them; ... */
	size_t scratch_nbytes;           /* ... as large as the mirror that needs most */
	pthread_mutex_t lock;            /* the order of what is given to the stream */
	pthread_mutex_t copies_lock;     /* never held over a call of the driver's: a consumer takes it */
	struct ps_device_copies copies;
};

static inline struct ps_cuda_device *ps_cuda_of(struct ps_device *d)
{
	return PS_CONTAINER_OF(d, struct ps_cuda_device, base);
}

/* Calls work on the context of their thread; what a caller's thread has there comes back with leave. Between
 * them the thread is one that streams which are being captured to a graph (torch.cuda.graph()) allow
 * everything: asking for an event or taking memory would else break the capture of another thread, and fail
 * here. */
int ps_cuda_enter(struct ps_cuda_device *device, struct ps_load_error *err) PS_MUST_USE;
void ps_cuda_leave(struct ps_cuda_device *device);

/* A stream whose work goes before that of streams of no priority (a model's): short copies and kernels that a
 * step would else hold up until the next. The context is entered. */
ps_cu_result ps_cuda_stream_new(struct ps_cuda_device *device, ps_cu_stream *ret_stream) PS_MUST_USE;

/* The device's functions of cuda_mirror.c, as device.h has them. */
int ps_cuda_mirror_new(struct ps_device *device, const struct ps_mirror_size *size,
        struct ps_mirror **ret_mirror, struct ps_load_error *err);
void ps_cuda_mirror_free(struct ps_mirror *mirror);
int ps_cuda_send(struct ps_mirror *mirror, const struct ps_sending *sending, struct ps_load_error *err);
int ps_cuda_arrived(struct ps_mirror *mirror, struct ps_load_error *err);
int ps_cuda_wait(struct ps_mirror *mirror, struct ps_load_error *err);
int ps_cuda_use(struct ps_mirror *mirror, void *stream, struct ps_load_error *err);
int ps_cuda_unuse(struct ps_mirror *mirror, struct ps_load_error *err); /* leave() */
void *ps_cuda_event(struct ps_mirror *mirror);

#endif
