#include "config.h"

#include "pipeline/core.h"

#include <math.h>

#include "base/cleanup.h"
#include "batch/batch.h"
#include "device/device.h"

struct ps_offload_meter ps_pipeline_meter(struct ps_pipeline *p)
{
	struct ps_offload_meter meter = ps_offload_read(&p->times);
	struct ps_nvjpeg_stats stats;

	if (!p->o.nvjpeg)
		return meter;
	ps_nvjpeg_stats(p->o.nvjpeg, &stats);
	meter.engine_rows = stats.hardware;
	meter.hybrid_rows = stats.hybrid;
	meter.timed_rows = stats.timed;
	meter.timed_ns = (uint64_t)(stats.seconds * 1e9);
	return meter;
}

/* The lock must be held below this line ------------------------------------------------------------------ */

void ps_tune_mark(struct ps_pipeline *p, struct ps_tune_mark *m)
{
	/* read once the lock is held, so that each wait of a stage began before m->ns */
	m->ns = ps_clock_mono_ns();
	for (int i = 0; i < PENSTOCK_NSTAGES; i++) {
		const struct ps_stage *s = &p->stages[i];

		m->total_ns[i] = s->nthreads * m->ns - s->began_ns; /* of ended threads, too */
		for (int w = 0; w < PS_NWAITS; w++)
			m->wait_ns[i][w] = s->ns[w] + s->now[w] * m->ns - s->since[w];
	}
}

void ps_pipeline_fail(struct ps_pipeline *p, int r, const struct ps_error *why)
{
	if (!p->failed) {
		p->failed = r;
		p->why = *why;
	}
	pthread_cond_broadcast(&p->ready);
	pthread_cond_broadcast(&p->work);
}

void ps_batch_give(struct ps_pipeline *p, struct penstock_batch *b)
{
	b->state = PS_BATCH_FREE;
	pthread_cond_broadcast(&p->work);
}

/* Number of threads -------------------------------------------------------------------------------------- */

/* initial cost, that of a JPEG, in ns per byte: so high that the first image is a unit of its own */
#define COST_BEGIN 8.0
#define COST_MEMORY 8 /* units over which the mean of the cost is taken */

void ps_cost_init(struct ps_cost *c)
{
	*c = (struct ps_cost){
	        .ns_per_weight = COST_BEGIN, .unit_ns = PS_UNIT_NS, .unit_rows = PS_UNIT_MAX_ROWS};
}

void ps_cost_init_calls(struct ps_cost *c, uint32_t rows, uint32_t depth, uint32_t threads)
{
	uint64_t share = (uint64_t)rows * depth / 2 / PS_MAX(threads, 1u);

	ps_cost_init(c);
	c->unit_ns = PS_UNIT_CALL_NS;
	c->unit_rows = (uint32_t)PS_MIN(PS_MAX(share, UINT64_C(1)), (uint64_t)PS_UNIT_MAX_ROWS);
}

static double weight(uint32_t rows, uint64_t nbytes)
{
	return (double)nbytes + (double)rows * PS_ROW_WEIGHT;
}

bool ps_cost_is_unit(const struct ps_cost *c, uint32_t rows, uint64_t nbytes)
{
	return rows >= c->unit_rows || weight(rows, nbytes) * c->ns_per_weight >= c->unit_ns;
}

void ps_cost_learn(struct ps_cost *c, uint32_t rows, uint64_t nbytes, uint64_t ns)
{
	double seen;

	if (rows == 0)
		return;
	seen = (double)ns / weight(rows, nbytes);
	/* limited, as the thread may have been preempted */
	seen = PS_MIN(seen, c->ns_per_weight * 4);
	c->ns_per_weight += (seen - c->ns_per_weight) / COST_MEMORY;
}

#define IDLE_MUCH 0.5   /* a stage that waits more has too many threads */
#define IDLE_LITTLE 0.1 /* a stage that waits less is at its limit */
/* a stage needs more threads if the next stage waits for it for more than this share of its time */
#define STARVED 0.05
#define ROOM 1.25 /* threads that are kept, as a multiple of those that were busy */

uint32_t ps_tune_next(const struct ps_tune *t, const struct ps_usage *u)
{
	uint32_t n = t->now;

	if (t->fixed)
		return n;
	if (u->idle > IDLE_MUCH)
		n = PS_MIN(n, (uint32_t)ceil(n * (1 - PS_MIN(u->idle, 1.0)) * ROOM));
	else if (u->starved > STARVED && u->idle < IDLE_LITTLE)
		n += PS_MAX(n / 4, 1u);
	return PS_MIN(PS_MAX(n, t->least), t->most);
}
