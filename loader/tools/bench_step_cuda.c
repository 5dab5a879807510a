/* bench: a step on a GPU: as many products of matrices as take the given time. */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "device/kernels/kernels.h"
#include "public.h"
#include "tools/bench_step.h"

#define MAX_N 1024u /* side of a matrix: fills any GPU, and is no larger than a layer of a model */
#define AHEAD 2u    /* steps in flight, before the CPU waits for the oldest */
#define PLACES (AHEAD + 2u)
#define ALONE_STEPS 5

/* The events of one step. */
struct marks {
	ps_cu_event asked, begin, end;
};

struct gemm {
	struct ps_bench_step base;
	const struct ps_cuda_driver *cu;
	struct ps_kernels kernels;
	ps_cu_device device;
	ps_cu_context context;
	ps_cu_stream stream;
	ps_cu_pointer memory;
	struct ps_gemm_args args;
	uint32_t nlaunches;         /* launches of a step */
	struct marks marks[PLACES]; /* step i has place i % PLACES */
	uint64_t given, over;       /* steps launched; steps finished */
};

static struct gemm *of(struct ps_bench_step *step)
{
	return PS_CONTAINER_OF(step, struct gemm, base);
}

static int fail(const struct gemm *g, ps_cu_result r, const char *what, struct penstock_error *error)
{
	struct ps_error err = {0};

	return ps_give_error(error, ps_cuda_error(g->cu, r, &err, what), &err);
}

static int no_memory(struct penstock_error *error)
{
	return ps_give_error(error, -ENOMEM, &(struct ps_error){0});
}

static ps_cu_result launch(struct gemm *g, uint32_t n)
{
	ps_cu_result r = 0;

	for (uint32_t i = 0; i < n && r == 0; i++)
		r = ps_kernel_launch(
		        &g->kernels, PS_KERNEL_gemm, ps_gemm_blocks(g->args.n), &g->args, g->stream);
	return r;
}

/* Steps; the context is entered -------------------------------------------------------------------------- */

/* Waits for the oldest step and adds its cut. */
static ps_cu_result step_finish(struct gemm *g, bool *ret_room)
{
	const struct marks *m = &g->marks[g->over % PLACES],
	                   *before = &g->marks[(g->over + PLACES - 1) % PLACES];
	struct ps_bench_cut cut = {0};
	ps_cu_result r = g->cu->event_sync(m->end);

	if (r == 0 && g->over > 0)
		r = g->cu->event_elapsed(&cut.gap, before->end, m->asked);
	if (r == 0)
		r = g->cu->event_elapsed(&cut.copy, m->asked, m->begin);
	if (r == 0)
		r = g->cu->event_elapsed(&cut.busy, m->begin, m->end);
	g->over++;
	*ret_room = r != 0 || ps_bench_step_add(&g->base, cut);
	return r;
}

/* Launches a step that uses `batch`; NULL: none. */
static int step_give(struct gemm *g, struct penstock_batch *batch, struct penstock_error *error)
{
	const struct marks *m = &g->marks[g->given % PLACES];
	bool room = true;
	ps_cu_result r = 0;

	while (r == 0 && room && g->given - g->over >= AHEAD)
		r = step_finish(g, &room);
	if (!room)
		return no_memory(error);
	if (r == 0)
		r = g->cu->event_record(m->asked, g->stream);
	if (r == 0 && batch) {
		int rc = penstock_batch_use(batch, g->stream, error);

		if (rc < 0)
			return rc;
	}
	if (r == 0)
		r = g->cu->event_record(m->begin, g->stream);
	if (r == 0)
		r = launch(g, g->nlaunches);
	if (r == 0)
		r = g->cu->event_record(m->end, g->stream);
	g->given++;
	return r == 0 ? 0 : fail(g, r, "the GPU does not take a step", error);
}

static int steps_drain(struct gemm *g, struct penstock_error *error)
{
	bool room = true;
	ps_cu_result r = 0;

	while (r == 0 && room && g->over < g->given)
		r = step_finish(g, &room);
	return r != 0 ? fail(g, r, "the GPU did not end a step", error) : room ? 0 : no_memory(error);
}

static int entered(struct gemm *g,
        int (*what)(struct gemm *, struct penstock_batch *, struct penstock_error *),
        struct penstock_batch *batch, struct penstock_error *error)
{
	ps_cu_context old;
	ps_cu_result r = g->cu->context_push(g->context);
	int rc;

	if (r != 0)
		return fail(g, r, "cannot use the GPU", error);
	rc = what(g, batch, error);
	(void)g->cu->context_pop(&old);
	return rc;
}

static int gemm_take(struct ps_bench_step *step, struct penstock_batch *batch, struct penstock_error *error)
{
	return entered(of(step), step_give, batch, error);
}

static int drain(struct gemm *g, struct penstock_batch *unused, struct penstock_error *error)
{
	(void)unused;
	return steps_drain(g, error);
}

static int gemm_drain(struct ps_bench_step *step, struct penstock_error *error)
{
	return entered(of(step), drain, NULL, error);
}

/* Creation; the context is entered ---------------------------------------------------------------------- */

/* Measures how long nlaunches products take, as the shortest of three runs. */
static ps_cu_result time_take(struct gemm *g, uint32_t nlaunches, float *ret_ms)
{
	const struct marks *m = &g->marks[0];
	ps_cu_result r = 0;

	*ret_ms = INFINITY;
	for (int i = 0; i < 3 && r == 0; i++) {
		float ms = 0;

		r = g->cu->event_record(m->begin, g->stream);
		if (r == 0)
			r = launch(g, nlaunches);
		if (r == 0)
			r = g->cu->event_record(m->end, g->stream);
		if (r == 0)
			r = g->cu->event_sync(m->end);
		if (r == 0)
			r = g->cu->event_elapsed(&ms, m->begin, m->end);
		*ret_ms = fminf(*ret_ms, ms);
	}
	return r;
}

/* Chooses the smallest matrices whose product takes at least 0.25 ms or an eighth of the step, whichever is
 * less (at most MAX_N), and how many products make a step. */
static ps_cu_result calibrate(struct gemm *g)
{
	double ms = g->base.asked_ms;
	float one = 0, all = 0;
	ps_cu_result r = 0;

	for (g->args.n = PS_GEMM_TILE; r == 0; g->args.n *= 2) {
		r = time_take(g, 1, &one);
		if (one >= fmin(0.25, ms / 8) || g->args.n == MAX_N)
			break;
	}
	g->nlaunches = (uint32_t)fmax(1, round(ms / fmax(one, 1e-3)));
	if (r == 0)
		r = time_take(g, g->nlaunches, &all);
	if (r == 0)
		g->nlaunches = (uint32_t)fmax(1, round(g->nlaunches * ms / fmax(all, 1e-3)));
	return r;
}

static int alone_measure(struct gemm *g, struct penstock_error *error)
{
	float busy[ALONE_STEPS];
	int rc = 0;

	for (int i = 0; i < ALONE_STEPS && rc == 0; i++)
		rc = step_give(g, NULL, error);
	if (rc == 0)
		rc = steps_drain(g, error);
	for (int i = 0; i < ALONE_STEPS && rc == 0; i++)
		busy[i] = g->base.cuts[i].busy;
	if (rc == 0)
		g->base.alone_ms = ps_bench_quantile(busy, ALONE_STEPS, 0.5);
	g->base.ncuts = 0;
	return rc;
}

static int memory_make(struct gemm *g, struct penstock_error *error)
{
	const size_t matrix = (size_t)MAX_N * MAX_N * sizeof(float);
	ps_cu_result r = g->cu->stream_create(&g->stream, PS_CU_STREAM_NON_BLOCKING);

	for (uint32_t i = 0; i < PLACES && r == 0; i++) {
		r = g->cu->event_create(&g->marks[i].asked, PS_CU_EVENT_DEFAULT);
		if (r == 0)
			r = g->cu->event_create(&g->marks[i].begin, PS_CU_EVENT_DEFAULT);
		if (r == 0)
			r = g->cu->event_create(&g->marks[i].end, PS_CU_EVENT_BLOCKING_SYNC);
	}
	if (r == 0)
		r = g->cu->memory_alloc(&g->memory, 3 * matrix);
	if (r != 0)
		return fail(g, r, "--step-ms: cannot set up a step on the GPU", error);
	/* The contents of the matrices do not matter. */
	g->args.a = (const float *)(uintptr_t)g->memory;
	g->args.b = g->args.a + (size_t)MAX_N * MAX_N;
	g->args.c = (float *)(uintptr_t)(g->memory + 2 * matrix);
	return 0;
}

static int gemm_make(struct gemm *g, struct penstock_batch *unused, struct penstock_error *error)
{
	struct ps_error err = {0};
	ps_cu_result result;
	int rc;

	(void)unused;
	rc = ps_kernels_load(g->cu, &g->kernels, &err);
	if (rc < 0) {
		ps_error_prefix(&err, rc, "--step-ms");
		return ps_give_error(error, rc, &err);
	}
	rc = memory_make(g, error);
	if (rc < 0)
		return rc;
	result = calibrate(g);
	return result == 0 ? alone_measure(g, error) : fail(g, result, "--step-ms", error);
}

static void marks_free(const struct gemm *g, const struct marks *m)
{
	const ps_cu_event all[] = {m->asked, m->begin, m->end};

	for (size_t i = 0; i < PS_ARRAY_LEN(all); i++)
		if (all[i])
			(void)g->cu->event_destroy(all[i]);
}

static void gemm_free(struct ps_bench_step *step)
{
	struct gemm *g = of(step);
	ps_cu_context old;

	if (g->context && g->cu->context_push(g->context) == 0) {
		if (g->given > g->over)
			(void)g->cu->event_sync(g->marks[(g->given - 1) % PLACES].end);
		for (uint32_t i = 0; i < PLACES; i++)
			marks_free(g, &g->marks[i]);
		if (g->memory)
			(void)g->cu->memory_free(g->memory);
		if (g->stream)
			(void)g->cu->stream_destroy(g->stream);
		ps_kernels_unload(&g->kernels);
		(void)g->cu->context_pop(&old);
	}
	if (g->context)
		(void)g->cu->context_release(g->device);
	free(g);
}

static int gemm_new(
        uint32_t ordinal, double ms, struct ps_bench_step **ret_step, struct penstock_error *error)
{
	static const struct ps_bench_step_ops ops = {
	        .take = gemm_take, .drain = gemm_drain, .free = gemm_free};
	struct gemm *g = calloc(1, sizeof(*g));
	struct ps_error err = {0};
	ps_cu_result result;
	int rc;

	if (!g)
		return no_memory(error);
	g->base = (struct ps_bench_step){.ops = &ops, .asked_ms = ms};
	rc = ps_cuda_driver_get(&g->cu, &err);
	if (rc < 0) {
		free(g);
		return ps_give_error(error, rc, &err);
	}
	result = g->cu->device_get(&g->device, (int)ordinal);
	if (result == 0)
		result = g->cu->context_retain(&g->context, g->device);
	rc = result == 0 ? entered(g, gemm_make, NULL, error) : fail(g, result, "device cuda", error);
	if (rc < 0) {
		ps_bench_step_free(&g->base);
		return rc;
	}
	*ret_step = &g->base;
	return 0;
}

int ps_bench_step_new(
        const char *device, double ms, struct ps_bench_step **ret_step, struct penstock_error *error)
{
	if (device && strncmp(device, "cuda", 4) == 0)
		return gemm_new(
		        device[4] == ':' ? (uint32_t)strtoul(device + 5, NULL, 10) : 0, ms, ret_step, error);
	return ps_bench_step_sleep_new(ms, ret_step, error);
}
