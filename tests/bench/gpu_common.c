#include "config.h"

#include "gpu_common.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct gpu gpu;

double gpu_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void gpu_must(ps_cu_result r, const char *what)
{
	struct ps_error err = {0};

	if (r == 0)
		return;
	(void)ps_cuda_error(gpu.cu, r, &err, what);
	fprintf(stderr, "gpu: %s\n", err.text);
	exit(EXIT_FAILURE);
}

void gpu_must_ps(int r, const struct ps_error *err)
{
	if (r >= 0)
		return;
	fprintf(stderr, "gpu: %s\n", err->text);
	exit(r == -ENODEV ? GPU_SKIP : EXIT_FAILURE);
}

void gpu_open(void)
{
	struct ps_error err = {0};
	ps_cu_device device;

	gpu_must_ps(ps_device_open("cuda", &gpu.device, &err), &err);
	gpu_must_ps(ps_cuda_driver_get(&gpu.cu, &err), &err);
	gpu_must(gpu.cu->device_get(&device, 0), "device");
	gpu_must(gpu.cu->context_retain(&gpu.context, device), "context");
	gpu_must(gpu.cu->context_push(gpu.context), "context");
	gpu_must(gpu.cu->stream_create(&gpu.stream, PS_CU_STREAM_NON_BLOCKING), "stream");
	gpu_must(gpu.cu->event_create(&gpu.begin, PS_CU_EVENT_DEFAULT), "event");
	gpu_must(gpu.cu->event_create(&gpu.end, PS_CU_EVENT_DEFAULT), "event");
	for (int i = 0; i < GPU_DEPTH; i++)
		gpu_must(gpu.cu->event_create(&gpu.behind[i], PS_CU_EVENT_BLOCKING_SYNC), "event");
}

void gpu_list_print(const char *name, const double *values, int n)
{
	printf("\"%s\": [", name);
	for (int i = 0; i < n; i++)
		printf("%s%.9g", i ? ", " : "", values[i]);
	printf("]");
}

static ps_cu_pointer taken[1024];
static int ntaken;

ps_cu_pointer gpu_memory(size_t nbytes)
{
	gpu_must(ntaken < 1024 ? 0 : PS_CU_OUT_OF_MEMORY, "memory");
	gpu_must(gpu.cu->memory_alloc(&taken[ntaken], nbytes), "memory");
	return taken[ntaken++];
}

void gpu_close(void)
{
	ps_cu_context old;
	ps_cu_device device;

	while (ntaken > 0)
		gpu_must(gpu.cu->memory_free(taken[--ntaken]), "memory");
	for (int i = 0; i < GPU_DEPTH; i++)
		gpu_must(gpu.cu->event_destroy(gpu.behind[i]), "event");
	gpu_must(gpu.cu->event_destroy(gpu.begin), "event");
	gpu_must(gpu.cu->event_destroy(gpu.end), "event");
	gpu_must(gpu.cu->stream_destroy(gpu.stream), "stream");
	gpu_must(gpu.cu->context_pop(&old), "context");
	gpu_must(gpu.cu->device_get(&device, 0), "device");
	gpu_must(gpu.cu->context_release(device), "context");
	ps_device_close(gpu.device);
}

double gpu_time(void (*give)(void *arg, uint64_t i), void *arg, double seconds)
{
	float ms = 0;

	for (uint64_t n = 4;; n *= 2) {
		gpu_must(gpu.cu->event_record(gpu.begin, gpu.stream), "event");
		for (uint64_t i = 0; i < n; i++)
			give(arg, i);
		gpu_must(gpu.cu->event_record(gpu.end, gpu.stream), "event");
		gpu_must(gpu.cu->event_sync(gpu.end), "kernel");
		gpu_must(gpu.cu->event_elapsed(&ms, gpu.begin, gpu.end), "event");
		if ((double)ms >= 1e3 * seconds)
			return (double)ms / 1e3 / (double)n;
	}
}
