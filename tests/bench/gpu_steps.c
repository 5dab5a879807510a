/* Steps of a model beside a loader whose batches take a known time: a part of tests/bench/gpu.
 *
 *   gpu_steps DEVICE STEPS STEP_MS BATCH_MS SLOW_SHARE NBYTES
 *
 * Making a batch of NBYTES takes BATCH_MS on average, and for SLOW_SHARE of the batches three times as long
 * as for the others. The step is that of penstock-loader bench --step-ms. With BATCH_MS 0, batches are ready
 * before they are asked for, and next() takes only the loader's own time. Prints one line of JSON; exit code
 * 77: there is no such device. */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "penstock.h"
#include "public.h"
#include "shard/file/file.h"
#include "tools/bench_step.h"

#define SAMPLES 1000
#define NEXT_WARM 16
#define EXIT_SKIP 77

struct work {
	double ms;         /* of a batch that is not slow */
	double zeroing_ms; /* the part of ms in which the loader zeroes the row */
	double slow_share;
};

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Which batches are slow depends on the sample alone, so runs are alike. */
static int batch_make(void *arg, struct penstock_sample *sample)
{
	const struct work *w = arg;
	struct penstock_sample_info info;
	double ms;

	penstock_sample_info(sample, &info);
	ms = ((double)(info.random % 1000) < 1000 * w->slow_share ? 3 * w->ms : w->ms) - w->zeroing_ms;
	if (ms <= 0)
		return 0;
	nanosleep(&(struct timespec){.tv_sec = (time_t)(ms / 1e3), .tv_nsec = (long)(fmod(ms, 1e3) * 1e6)},
	        NULL);
	return 0;
}

static int fail(int r, const struct penstock_error *error)
{
	fprintf(stderr, "gpu_steps: %s\n", error->text);
	return r == -ENODEV ? EXIT_SKIP : EXIT_FAILURE;
}

static int shard_make(const char *path, struct penstock_error *error)
{
	struct ps_error err = {0};
	struct ps_tar_out *out;
	int rc = ps_tar_out_open(path, 0, &out, &err);

	if (rc < 0)
		return ps_give_error(error, rc, &err);
	for (int i = 0; i < SAMPLES && rc == 0; i++) {
		char name[32];

		snprintf(name, sizeof(name), "%06d.cls", i);
		rc = ps_tar_out_member(out, name, strlen(name), 1, &err);
		if (rc == 0)
			rc = ps_tar_out_data(out, "7", 1, &err);
	}
	if (rc == 0)
		rc = ps_tar_out_finish(out, NULL, &err);
	if (rc == 0)
		return 0;
	ps_tar_out_abort(out);
	return ps_give_error(error, rc, &err);
}

/* How long the loader takes to zero a row before a transform writes it. */
static double zeroing_ms(size_t nbytes)
{
	ps_autofree char *p = malloc(nbytes);
	double begin = 0;

	for (int i = 0; i < 2 && p; i++) {
		begin = now_us();
		memset(p, i, nbytes);
		__asm__ volatile("" ::"r"(p) : "memory");
	}
	return p ? (now_us() - begin) / 1e3 : 0;
}

static void report(
        const struct ps_bench_idle *idle, const struct penstock_stats *s, float *next_us, size_t nnext)
{
	printf("{\"steps\": %ju, \"idle\": %.6f, \"alone_ms\": %.4f, \"beside_ms\": %.4f, \"slowdown\": "
	       "%.6f, "
	       "\"next_p50_us\": %.3f, \"next_p99_us\": %.3f, \"copied_bytes\": %ju}\n",
	        (uintmax_t)idle->steps, idle->seconds > 0 ? (idle->gap + idle->copy) / idle->seconds : 0,
	        idle->alone_ms, idle->beside_ms,
	        idle->alone_ms > 0 ? idle->beside_ms / idle->alone_ms - 1 : 0,
	        nnext ? ps_bench_quantile(next_us, nnext, 0.5) : 0,
	        nnext ? ps_bench_quantile(next_us, nnext, 0.99) : 0, (uintmax_t)s->copied_bytes);
}

static int run(struct penstock_loader *loader, struct ps_bench_step *step, size_t nsteps)
{
	ps_autofree float *next_us = calloc(nsteps + 1, sizeof(*next_us));
	struct penstock_batch *batch;
	struct penstock_stats stats;
	struct penstock_error error;
	struct ps_bench_idle idle;
	size_t n = 0, warm = PS_MIN(nsteps / 2, NEXT_WARM);
	int rc = 0;

	while (n < nsteps && rc >= 0) {
		double begin = now_us();

		rc = penstock_loader_next(loader, &batch, &error);
		if (rc != 1)
			continue; /* the next epoch */
		next_us[n++] = (float)(now_us() - begin);
		rc = step->ops->take(step, batch, &error);
		penstock_batch_release(batch);
	}
	if (rc >= 0)
		rc = ps_bench_step_end(step, &idle, &error);
	if (rc >= 0)
		rc = penstock_loader_stats(loader, &stats, sizeof(stats), &error);
	if (rc < 0)
		return fail(rc, &error);
	report(&idle, &stats, next_us + warm, n - warm);
	return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	struct penstock_options o;
	struct penstock_field field;
	struct penstock_loader *loader = NULL;
	struct penstock_error error = {0};
	struct ps_bench_step *step = NULL;
	struct work w;
	char path[] = "/tmp/gpu-steps-XXXXXX.tar";
	const char *shard = path;
	int fd, r;

	if (argc != 7) {
		fprintf(stderr, "usage: gpu_steps DEVICE STEPS STEP_MS BATCH_MS SLOW_SHARE NBYTES\n");
		return 2;
	}
	fd = mkstemps(path, 4);
	if (fd < 0 || close(fd) < 0) {
		perror(path);
		return EXIT_FAILURE;
	}
	w.slow_share = atof(argv[5]);
	w.ms = atof(argv[4]) / (1 + 2 * w.slow_share);
	penstock_options_init(&o, sizeof(o));
	penstock_field_init(&field, sizeof(field), "x", PENSTOCK_OUTPUT);
	field.dtype = PENSTOCK_U8;
	field.shape[0] = strtoull(argv[6], NULL, 10);
	field.ndim = 1;
	o.fields = &field;
	o.nfields = 1;
	o.batch = 1;
	o.threads = 1;
	o.device = argv[1];
	o.memory_budget = 64 * field.shape[0] + (UINT64_C(256) << 20);
	o.transform = batch_make;
	o.transform_ctx = &w;
	w.zeroing_ms = zeroing_ms((size_t)field.shape[0]);
	r = shard_make(path, &error);
	if (r >= 0)
		r = ps_bench_step_new(argv[1], atof(argv[3]), &step, &error);
	if (r >= 0)
		r = penstock_loader_open(&o, &shard, 1, &loader, &error);
	r = r < 0 ? fail(r, &error) : run(loader, step, (size_t)atoi(argv[2]));
	penstock_loader_close(loader);
	ps_bench_step_free(step);
	unlink(path);
	return r;
}
