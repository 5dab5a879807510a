/* The consumer's side of a device, for tests of device batches: streams, and copies from device memory in a
 * stream's order. PENSTOCK_TEST_DEVICE names the device: see device_test.c. Include after cmocka.h. */
#ifndef TESTS_LOADER_DEVICE_CONSUMER_H
#define TESTS_LOADER_DEVICE_CONSUMER_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/kernels/cuda_driver.h"
#include "device/device.h"
#include "fake_device.h"

struct consumer {
	const char *device;
	void *(*stream_new)(void);
	void (*copy_out)(void *stream, void *to, const void *from, size_t n);
	void (*sync)(void *stream);
	void (*stream_free)(void *stream);
	void (*lose)(void);  /* NULL on a real device */
	long (*leaks)(void); /* this and those below: NULL except on the mock */
	void (*refuse_kernels)(int refuse);
	void (*capture)(int on);
	long (*urgent)(void);
};

struct copy {
	void *to;
	const void *from;
	size_t n;
};

static void copy_do(void *arg)
{
	struct copy *c = arg;

	memcpy(c->to, c->from, c->n);
	free(c);
}

static void *fake_new(void)
{
	return ps_fake_stream_new();
}

static void fake_copy(void *stream, void *to, const void *from, size_t n)
{
	struct copy *c = malloc(sizeof(*c));

	*c = (struct copy){to, from, n};
	assert_int_equal(ps_fake_stream_call(stream, copy_do, c), 0);
}

static void fake_sync(void *stream)
{
	ps_fake_stream_sync(stream);
}

static void fake_free(void *stream)
{
	ps_fake_stream_free(stream);
}

static const struct ps_cuda_driver *cu;
static ps_cu_context context;
static ps_cu_result (*copy_from_device)(void *to, ps_cu_pointer from, size_t n, ps_cu_stream stream);
static ps_cu_result (*stream_sync)(ps_cu_stream stream);

static void context_leave(void)
{
	ps_cu_context old;

	assert_int_equal(cu->context_pop(&old), 0);
}

static void *cuda_new(void)
{
	ps_cu_stream s;

	assert_int_equal(cu->context_push(context), 0);
	assert_int_equal(cu->stream_create(&s, PS_CU_STREAM_NON_BLOCKING), 0);
	context_leave();
	return s;
}

static void cuda_copy(void *stream, void *to, const void *from, size_t n)
{
	if (n == 0)
		return;
	assert_int_equal(cu->context_push(context), 0);
	assert_int_equal(copy_from_device(to, (ps_cu_pointer)(uintptr_t)from, n, stream), 0);
	context_leave();
}

static void cuda_sync(void *stream)
{
	assert_int_equal(cu->context_push(context), 0);
	assert_int_equal(stream_sync(stream), 0);
	context_leave();
}

static void cuda_free(void *stream)
{
	assert_int_equal(cu->context_push(context), 0);
	assert_int_equal(cu->stream_destroy(stream), 0);
	context_leave();
}

static struct consumer on = {
        .device = "fake",
        .stream_new = fake_new,
        .copy_out = fake_copy,
        .sync = fake_sync,
        .stream_free = fake_free,
        .lose = ps_fake_lose,
};

static void consumer_choose(void)
{
	const char *device = getenv("PENSTOCK_TEST_DEVICE");
	struct ps_error err;
	void *library;

	if (!device || strcmp(device, "cuda") != 0)
		return;
	if (ps_cuda_driver_get(&cu, &err) < 0) {
		fprintf(stderr, "%s\n", err.text);
		exit(77);
	}
	library = dlopen("libcuda.so.1", RTLD_NOW);
	*(void **)(void *)&copy_from_device = dlsym(library, "cuMemcpyDtoHAsync_v2");
	*(void **)(void *)&stream_sync = dlsym(library, "cuStreamSynchronize");
	on = (struct consumer){.device = "cuda",
	        .stream_new = cuda_new,
	        .copy_out = cuda_copy,
	        .sync = cuda_sync,
	        .stream_free = cuda_free};
	*(void **)(void *)&on.lose = dlsym(library, "mock_cuda_lose");
	*(void **)(void *)&on.leaks = dlsym(library, "mock_cuda_leaks");
	*(void **)(void *)&on.refuse_kernels = dlsym(library, "mock_cuda_refuse_kernels");
	*(void **)(void *)&on.capture = dlsym(library, "mock_cuda_capture");
	*(void **)(void *)&on.urgent = dlsym(library, "mock_cuda_urgent");
	if (cu->context_retain(&context, 0) != 0)
		exit(77);
}

#endif
