/* bench: the part that all kinds of steps share, and the step that sleeps. */
#include "config.h"

#include "tools/bench_step.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "public.h"

#define WARM_STEPS 10 /* first steps that are not counted; of fewer than 20 steps, the first half is not */
#define ALONE_STEPS 5
#define IDLE_SHARE 0.01 /* up to this share of idle time the loader does not limit the consumer */

static int compare(const void *a, const void *b)
{
	const float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

double ps_bench_quantile(float *values, size_t n, double share)
{
	qsort(values, n, sizeof(*values), compare);
	return values[(size_t)(share * (double)(n - 1) + 0.5)];
}

bool ps_bench_step_add(struct ps_bench_step *s, struct ps_bench_cut cut)
{
	if (s->ncuts == s->cap) {
		size_t cap = s->cap ? 2 * s->cap : 256;
		struct ps_bench_cut *cuts = realloc(s->cuts, cap * sizeof(*cuts));

		if (!cuts)
			return false;
		s->cuts = cuts;
		s->cap = cap;
	}
	s->cuts[s->ncuts++] = cut;
	return true;
}

void ps_bench_step_free(struct ps_bench_step *s)
{
	if (!s)
		return;
	free(s->cuts);
	if (s->ops->free)
		s->ops->free(s);
	else
		free(s);
}

int ps_bench_step_end(struct ps_bench_step *s, struct ps_bench_idle *ret_idle, struct penstock_error *error)
{
	ps_autofree float *busy = NULL;
	size_t warm;
	int rc = s->ops->drain ? s->ops->drain(s, error) : 0;

	if (rc < 0)
		return rc;
	*ret_idle = (struct ps_bench_idle){.alone_ms = s->alone_ms};
	warm = s->ncuts < 2 * WARM_STEPS ? s->ncuts / 2 : WARM_STEPS;
	if (s->ncuts == warm)
		return 0;
	busy = calloc(s->ncuts, sizeof(*busy));
	if (!busy)
		return ps_give_error(error, -ENOMEM, &(struct ps_error){0});
	for (size_t i = warm; i < s->ncuts; i++) {
		const struct ps_bench_cut *c = &s->cuts[i];

		busy[ret_idle->steps++] = c->busy;
		ret_idle->gap += (double)c->gap / 1e3;
		ret_idle->copy += (double)c->copy / 1e3;
		ret_idle->seconds += ((double)c->gap + (double)c->copy + (double)c->busy) / 1e3;
	}
	ret_idle->beside_ms = ps_bench_quantile(busy, ret_idle->steps, 0.5);
	return 0;
}

void ps_bench_step_judge(const struct ps_bench_idle *idle, struct penstock_stats *s)
{
	struct penstock_stage *c = &s->stages[PENSTOCK_NSTAGES - 1];
	const struct penstock_stage was = *c;

	if (s->samples == 0 || idle->steps == 0)
		return;
	if (idle->gap + idle->copy <= IDLE_SHARE * idle->seconds) {
		s->bottleneck = "consumer";
		snprintf(s->advice, sizeof(s->advice), "the step hides all that the loader does");
	} else if (idle->copy > idle->gap) {
		s->bottleneck = "copy";
		snprintf(s->advice, sizeof(s->advice),
		        "steps wait for copies: --dtype u8 or f16 moves fewer bytes, and a larger --depth "
		        "begins them earlier");
	} else {
		/* The consumer's lost time is due to the loader, however short it was. */
		*c = (struct penstock_stage){.name = was.name, .threads = was.threads, .waiting_input = 1};
		ps_stats_judge(s);
		*c = was;
	}
}

/* A step that sleeps ------------------------------------------------------------------------------------- */

struct sleeper {
	struct ps_bench_step base;
	double ended_ms;
};

static double now_ms(void)
{
	return (double)ps_clock_mono_ns() / 1e6;
}

static void sleep_ms(double ms)
{
	struct timespec ts = {.tv_sec = (time_t)(ms / 1e3)};

	ts.tv_nsec = (long)((ms - (double)ts.tv_sec * 1e3) * 1e6);
	while (nanosleep(&ts, &ts) < 0 && errno == EINTR)
		;
}

static int sleeper_take(
        struct ps_bench_step *step, struct penstock_batch *batch, struct penstock_error *error)
{
	struct sleeper *s = (struct sleeper *)step;
	double begin = now_ms(), gap = begin - s->ended_ms;

	(void)batch;
	sleep_ms(step->asked_ms);
	s->ended_ms = now_ms();
	if (ps_bench_step_add(
	            step, (struct ps_bench_cut){.gap = (float)gap, .busy = (float)(s->ended_ms - begin)}))
		return 0;
	return ps_give_error(error, -ENOMEM, &(struct ps_error){0});
}

int ps_bench_step_sleep_new(double ms, struct ps_bench_step **ret_step, struct penstock_error *error)
{
	static const struct ps_bench_step_ops ops = {.take = sleeper_take};
	struct sleeper *s = calloc(1, sizeof(*s));
	float alone[ALONE_STEPS];

	if (!s)
		return ps_give_error(error, -ENOMEM, &(struct ps_error){0});
	s->base = (struct ps_bench_step){.ops = &ops, .asked_ms = ms};
	for (int i = 0; i < ALONE_STEPS; i++) {
		double begin = now_ms();

		sleep_ms(ms);
		alone[i] = (float)(now_ms() - begin);
	}
	s->base.alone_ms = ps_bench_quantile(alone, ALONE_STEPS, 0.5);
	s->ended_ms = now_ms();
	*ret_step = &s->base;
	return 0;
}
