/* Measures the rates of a GPU's copies and kernels, and their raw limits: a part of tests/bench/gpu.
 *
 *   gpu_rates copy NBYTES TURNS SECONDS [THREADS SHARD]
 *
 * GB/s of a bare pinned cuMemcpyHtoDAsync loop and of the device's ring of batches, in turns; with SHARD,
 * while THREADS threads decode it.
 *
 *   gpu_rates finish IMAGES SIDE DTYPE TURNS SECONDS
 *
 * GB/s (bytes read and written) of a copy within the GPU's memory, and of the kernel that normalises images
 * and changes their layout.
 *
 * Slots are filled before the measurement. Prints one line of JSON; exit code 77: there is no GPU, or it has
 * no kernels. */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "device/device.h"
#include "device/private.h"
#include "gpu_common.h"
#include "penstock.h"

#define SETS 4 /* of buffers, used in turn: more than a cache holds */

typedef ps_cu_result copy_fn(ps_cu_pointer to, ps_cu_pointer from, size_t nbytes, ps_cu_stream stream);

/* Copies to the GPU -------------------------------------------------------------------------------------- */

struct slots {
	size_t nbytes;
	void *host[GPU_DEPTH];
	ps_cu_pointer bare[GPU_DEPTH];
	struct ps_mirror *mirrors[GPU_DEPTH];
};

static void slots_make(struct slots *s, size_t nbytes)
{
	struct ps_error err = {0};

	s->nbytes = nbytes;
	for (int i = 0; i < GPU_DEPTH; i++) {
		s->host[i] = gpu.device->ops->alloc(gpu.device, nbytes, &err);
		gpu_must_ps(s->host[i] ? 0 : -ENOMEM, &err);
		memset(s->host[i], i + 1, nbytes);
		s->bare[i] = gpu_memory(nbytes);
		gpu_must_ps(gpu.device->ops->mirror_new(gpu.device, &(struct ps_mirror_size){.slot = nbytes},
		                    &s->mirrors[i], &err),
		        &err);
	}
}

static void slots_free(struct slots *s)
{
	for (int i = 0; i < GPU_DEPTH; i++) {
		gpu.device->ops->mirror_free(s->mirrors[i]);
		gpu.device->ops->free(gpu.device, s->host[i], s->nbytes);
	}
}

/* Returns GB/s. */
static double bare_run(const struct slots *s, double seconds)
{
	double begin = gpu_now();
	uint64_t n = 0;

	for (; gpu_now() - begin < seconds || n < GPU_DEPTH; n++) {
		int i = (int)(n % GPU_DEPTH);

		if (n >= GPU_DEPTH)
			gpu_must(gpu.cu->event_sync(gpu.behind[i]), "copy");
		gpu_must(gpu.cu->copy_to_device(s->bare[i], s->host[i], s->nbytes, gpu.stream), "copy");
		gpu_must(gpu.cu->event_record(gpu.behind[i], gpu.stream), "event");
	}
	for (int i = 0; i < GPU_DEPTH; i++)
		gpu_must(gpu.cu->event_sync(gpu.behind[i]), "copy");
	return (double)(n * s->nbytes) / (gpu_now() - begin) / 1e9;
}

/* Each slot is used as for a batch: it is sent, a consumer's stream waits for it and leaves it, and it is
 * sent again once it may be written. Returns GB/s. */
static double ring_run(const struct slots *s, double seconds)
{
	const struct ps_device_ops *ops = gpu.device->ops;
	const struct ps_stretch all = {.at = 0, .nbytes = s->nbytes};
	struct ps_sending sending = {.nbytes = s->nbytes, .stretches = &all, .nstretches = 1};
	struct ps_error err = {0};
	double begin = gpu_now();
	uint64_t n = 0;

	for (; gpu_now() - begin < seconds || n < GPU_DEPTH; n++) {
		struct ps_mirror *m = s->mirrors[n % GPU_DEPTH];

		gpu_must_ps(ops->wait(m, &err), &err);
		sending.slot = s->host[n % GPU_DEPTH];
		gpu_must_ps(ops->send(m, &sending, &err), &err);
		gpu_must_ps(ops->use(m, gpu.stream, &err), &err);
		gpu_must_ps(ops->leave(m, &err), &err);
	}
	for (int i = 0; i < GPU_DEPTH; i++)
		gpu_must_ps(ops->wait(s->mirrors[i], &err), &err);
	return (double)(n * s->nbytes) / (gpu_now() - begin) / 1e9;
}

/* A loader on the CPU whose threads decode while the main thread copies. */
struct beside {
	struct penstock_options options;
	const char *shard;
	atomic_bool stop;
	_Atomic uint64_t samples;
};

static void *beside_main(void *arg)
{
	struct beside *b = arg;
	struct penstock_loader *loader;
	struct penstock_batch *batch;
	struct penstock_batch_info info;
	struct penstock_error error;
	int rc = penstock_loader_open(&b->options, &b->shard, 1, &loader, &error);

	while (rc >= 0 && !atomic_load(&b->stop)) {
		rc = penstock_loader_next(loader, &batch, &error);
		if (rc != 1)
			continue; /* the next epoch */
		penstock_batch_info(batch, &info);
		b->samples += info.rows;
		penstock_batch_release(batch);
	}
	if (rc < 0) {
		fprintf(stderr, "gpu_rates: %s\n", error.text);
		exit(EXIT_FAILURE);
	}
	penstock_loader_close(loader);
	return NULL;
}

static int copy_main(char **argv, int argc)
{
	struct slots s;
	struct penstock_field field;
	struct beside b = {0};
	double bare[GPU_MAX_TURNS], ring[GPU_MAX_TURNS], seconds = atof(argv[2]), began = gpu_now();
	int turns = PS_MIN(atoi(argv[1]), GPU_MAX_TURNS);
	pthread_t thread;

	gpu_open();
	slots_make(&s, strtoull(argv[0], NULL, 10));
	if (argc > 4) {
		penstock_options_init(&b.options, sizeof(b.options));
		penstock_field_init(&field, sizeof(field), "jpg;jpeg", PENSTOCK_IMAGE);
		b.options.fields = &field;
		b.options.nfields = 1;
		b.options.threads = (uint32_t)atoi(argv[3]);
		b.shard = argv[4];
		pthread_create(&thread, NULL, beside_main, &b);
		while (b.samples == 0) /* until it decodes */
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	(void)bare_run(&s, seconds / 4);
	(void)ring_run(&s, seconds / 4);
	for (int i = 0; i < turns; i++) {
		bare[i] = bare_run(&s, seconds);
		ring[i] = ring_run(&s, seconds);
	}
	if (argc > 4) {
		atomic_store(&b.stop, true);
		pthread_join(thread, NULL);
	}
	printf("{");
	gpu_list_print("bare", bare, turns);
	printf(", ");
	gpu_list_print("ring", ring, turns);
	printf(", \"decoded_per_second\": %.1f}\n", (double)b.samples / (gpu_now() - began));
	slots_free(&s);
	gpu_close();
	return EXIT_SUCCESS;
}

/* Kernels ------------------------------------------------------------------------------------------------ */

struct kernel_work {
	struct ps_kernels kernels;
	struct ps_make make;
	struct ps_make_places sets[SETS];
	copy_fn *copy;
	size_t nread, nwritten;
};

static void copy_give(void *arg, uint64_t i)
{
	const struct kernel_work *w = arg;
	const struct ps_make_places *from = &w->sets[i % SETS], *to = &w->sets[(i + 1) % SETS];

	gpu_must(w->copy((uintptr_t)to->made, (uintptr_t)from->made, w->nwritten, gpu.stream), "copy");
}

static void finish_give(void *arg, uint64_t i)
{
	const struct kernel_work *w = arg;

	gpu_must(ps_make_launch(&w->kernels, &w->make, &w->sets[i % SETS], gpu.stream), "kernel");
}

static enum ps_dtype dtype_of(const char *name)
{
	return strcmp(name, "u8") == 0 ? PS_U8 : strcmp(name, "f32") == 0 ? PS_F32 : PS_F16;
}

static void finish_make(struct kernel_work *w, uint32_t images, uint32_t side, enum ps_dtype dtype)
{
	struct ps_error err = {0};
	size_t n = (size_t)images * 3 * side * side;

	gpu_must_ps(ps_kernels_load(gpu.cu, &w->kernels, &err), &err);
	w->copy = (copy_fn *)dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuMemcpyDtoDAsync_v2");
	gpu_must(w->copy ? 0 : PS_CU_INVALID_VALUE, "cuMemcpyDtoDAsync");
	w->nread = n;
	w->nwritten = n * (dtype == PS_U8 ? 1 : dtype == PS_F32 ? 4 : 2);
	w->make = (struct ps_make){.ops = PS_MAKE_NO_OPS,
	        .nimages = images,
	        .width = side,
	        .height = side,
	        .nviews = 1,
	        .dtype = dtype,
	        .layout = PS_NCHW,
	        .scale = {0.017F, 0.0175F, 0.0174F},
	        .bias = {-2.1F, -2.0F, -1.8F}};
	for (int i = 0; i < SETS; i++) {
		ps_cu_pointer p[2];

		p[0] = gpu_memory(w->nread);
		p[1] = gpu_memory(w->nwritten);
		w->sets[i] = (struct ps_make_places){
		        .slot = (uint8_t *)(uintptr_t)p[0], .made = (uint8_t *)(uintptr_t)p[1]};
	}
}

static int finish_main(char **argv)
{
	struct kernel_work w = {0};
	double limit[GPU_MAX_TURNS], kernel[GPU_MAX_TURNS], seconds = atof(argv[4]);
	int turns = PS_MIN(atoi(argv[3]), GPU_MAX_TURNS);

	gpu_open();
	finish_make(&w, (uint32_t)atoi(argv[0]), (uint32_t)atoi(argv[1]), dtype_of(argv[2]));
	(void)gpu_time(finish_give, &w, seconds / 4);
	for (int i = 0; i < turns; i++) {
		limit[i] = (double)(2 * w.nwritten) / gpu_time(copy_give, &w, seconds) / 1e9;
		kernel[i] = (double)(w.nread + w.nwritten) / gpu_time(finish_give, &w, seconds) / 1e9;
	}
	printf("{");
	gpu_list_print("copy", limit, turns);
	printf(", ");
	gpu_list_print("kernel", kernel, turns);
	printf("}\n");
	ps_kernels_unload(&w.kernels);
	gpu_close();
	return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	if (argc >= 5 && strcmp(argv[1], "copy") == 0)
		return copy_main(argv + 2, argc - 2);
	if (argc == 7 && strcmp(argv[1], "finish") == 0)
		return finish_main(argv + 2);
	fprintf(stderr, "usage: gpu_rates copy NBYTES TURNS SECONDS [THREADS SHARD]\n"
	                "       gpu_rates finish IMAGES SIDE f32|f16|u8 TURNS SECONDS\n");
	return 2;
}
