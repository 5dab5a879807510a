/* NVIDIA GPUs, over the driver's own interface and the device's primary context, which a program's other
 * libraries (torch, JAX) share. Slots are page-locked, on the NUMA node of the device where it has one. All
 * copies go over one stream, so they arrive in the order in which they were sent. */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "device/cuda_private.h"
#include "device/host.h"

/* Of the calling thread: how often it has entered, and what it had before. */
static _Thread_local uint32_t entered;
static _Thread_local ps_cu_capture_mode mode_before;

int ps_cuda_enter(struct ps_cuda_device *d, struct ps_load_error *err)
{
	ps_cu_result r = d->cu->context_push(d->context);

	if (r != 0)
		return ps_cuda_error(d->cu, r, err, "cannot use the GPU");
	if (entered++ == 0) {
		mode_before = PS_CU_CAPTURE_RELAXED;
		if (d->cu->capture_mode(&mode_before) != 0)
			mode_before = PS_CU_CAPTURE_GLOBAL;
	}
	return 0;
}

void ps_cuda_leave(struct ps_cuda_device *d)
{
	ps_cu_context old;

	if (--entered == 0)
		(void)d->cu->capture_mode(&mode_before);
	(void)d->cu->context_pop(&old);
}

ps_cu_result ps_cuda_stream_new(struct ps_cuda_device *d, ps_cu_stream *ret_stream)
{
	int least, greatest; /* the greater, the less the number */
	ps_cu_result r = d->cu->priorities(&least, &greatest);

	return r == 0 ? d->cu->stream_create_urgent(ret_stream, PS_CU_STREAM_NON_BLOCKING, greatest) : r;
}

/* -- Device and host memory ---------------------------------------------------------------------------- */

/* The NUMA node that the device hangs on, -1 if there are none. */
static int node_find(struct ps_cuda_device *d)
{
	char id[32] = "", path[96];
	int node = -1;
	FILE *f;

	if (d->cu->device_bus_id(id, sizeof(id), d->device) != 0)
		return -1;
	for (char *c = id; *c; c++)
		if (*c >= 'A' && *c <= 'F')
			*c = (char)(*c - 'A' + 'a');
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/numa_node", id);
	f = fopen(path, "re");
	if (!f)
		return -1;
	if (fscanf(f, "%d", &node) != 1)
		node = -1;
	fclose(f);
	return node;
}

static void cuda_close(struct ps_device *device)
{
	struct ps_cuda_device *d = ps_cuda_of(device);

	if (d->stream && ps_cuda_enter(d, NULL) == 0) {
		(void)d->cu->stream_destroy(d->stream);
		if (d->scratch)
			(void)d->cu->memory_free(d->scratch);
		ps_kernels_unload(&d->kernels);
		ps_cuda_leave(d);
	}
	if (d->context)
		(void)d->cu->context_release(d->device);
	pthread_mutex_destroy(&d->lock);
	pthread_mutex_destroy(&d->copies_lock);
	free(d);
}

static int device_start(struct ps_cuda_device *d, struct ps_load_error *err)
{
	ps_cu_result r;
	int count = 0, e;

	r = d->cu->device_count(&count);
	if (r == 0 && d->base.ordinal >= (uint32_t)count)
		return ps_load_error_set(err, ENODEV,
		        "device cuda:%u: there are %d (see CUDA_VISIBLE_DEVICES)", d->base.ordinal, count);
	if (r == 0)
		r = d->cu->device_get(&d->device, (int)d->base.ordinal);
	if (r == 0)
		r = d->cu->context_retain(&d->context, d->device);
	if (r != 0) {
		(void)ps_cuda_error(d->cu, r, err, "device cuda");
		return -ENODEV;
	}
	d->node = node_find(d);
	e = ps_cuda_enter(d, err);
	if (e < 0)
		return e;
	r = ps_cuda_stream_new(d, &d->stream);
	if (r == 0)
		d->has_kernels = ps_kernels_load(d->cu, &d->kernels, &d->no_kernels) == 0;
	ps_cuda_leave(d);
	return r == 0 ? 0 : ps_cuda_error(d->cu, r, err, "device cuda: no stream");
}

static int cuda_open(uint32_t ordinal, struct ps_device **ret_device, struct ps_load_error *err)
{
	struct ps_cuda_device *d = calloc(1, sizeof(*d));
	int r;

	if (!d)
		return ps_load_error_set(err, ENOMEM, "out of memory");
	d->base = (struct ps_device){.ops = &ps_device_cuda, .ordinal = ordinal};
	d->node = -1;
	pthread_mutex_init(&d->lock, NULL);
	pthread_mutex_init(&d->copies_lock, NULL);
	r = ps_cuda_driver_get(&d->cu, err);
	if (r == 0)
		r = device_start(d, err);
	if (r < 0) {
		cuda_close(&d->base);
		return r;
	}
	*ret_device = &d->base;
	return 0;
}

static int memory_lock(struct ps_cuda_device *d, void *p, size_t nbytes, struct ps_load_error *err)
{
	ps_cu_result r;
	int e = ps_cuda_enter(d, err);

	if (e < 0)
		return e;
	r = d->cu->host_register(p, nbytes, PS_CU_HOST_REGISTER_PORTABLE);
	ps_cuda_leave(d);
	if (r == 0)
		return 0;
	(void)ps_cuda_error(d->cu, r, err, "the driver refuses");
	ps_load_error_set(err, ENOMEM,
	        "cannot lock %zu MiB of memory for copies to the GPU (%s): raise the memory limit of the "
	        "container (or `ulimit -l`), or lower batch or depth",
	        nbytes >> 20, err ? err->text : "");
	return -ENOMEM;
}

static void memory_unlock(struct ps_cuda_device *d, void *p)
{
	if (ps_cuda_enter(d, NULL) < 0)
		return;
	(void)d->cu->host_unregister(p);
	ps_cuda_leave(d);
}

static void *cuda_alloc(struct ps_device *device, size_t nbytes, struct ps_load_error *err)
{
	struct ps_cuda_device *d = ps_cuda_of(device);
	void *p = ps_host_alloc(nbytes);

	if (!p) {
		ps_load_error_set(err, ENOMEM, "no memory for a batch of %zu bytes", nbytes);
		return NULL;
	}
	ps_host_prefer_node(p, nbytes, d->node);
	if (memory_lock(d, p, nbytes, err) < 0) {
		ps_host_free(p, nbytes);
		return NULL;
	}
	return p;
}

static void cuda_free(struct ps_device *device, void *p, size_t nbytes)
{
	memory_unlock(ps_cuda_of(device), p);
	ps_host_free(p, nbytes);
}

/* Locked memory cannot move. */
static void *cuda_resize(
        struct ps_device *device, void *p, size_t old_nbytes, size_t new_nbytes, struct ps_load_error *err)
{
	void *larger = cuda_alloc(device, new_nbytes, err);

	if (!larger)
		return NULL;
	memcpy(larger, p, PS_MIN(old_nbytes, new_nbytes));
	cuda_free(device, p, old_nbytes);
	return larger;
}

static void cuda_copies(struct ps_device *device, struct ps_device_copies *ret_copies)
{
	struct ps_cuda_device *d = ps_cuda_of(device);

	PS_LOCK_SCOPE(&d->copies_lock);
	*ret_copies = d->copies;
}

static const char *cuda_cannot_make(struct ps_device *device)
{
	struct ps_cuda_device *d = ps_cuda_of(device);

	return d->has_kernels ? NULL : d->no_kernels.text;
}

const struct ps_device_ops ps_device_cuda = {
        .name = "cuda",
        .type = 2,
        .open = cuda_open,
        .close = cuda_close,
        .alloc = cuda_alloc,
        .resize = cuda_resize,
        .free = cuda_free,
        .mirror_new = ps_cuda_mirror_new,
        .mirror_free = ps_cuda_mirror_free,
        .send = ps_cuda_send,
        .arrived = ps_cuda_arrived,
        .wait = ps_cuda_wait,
        .use = ps_cuda_use,
        .leave = ps_cuda_unuse,
        .event = ps_cuda_event,
        .copies = cuda_copies,
        .cannot_make = cuda_cannot_make,
};
