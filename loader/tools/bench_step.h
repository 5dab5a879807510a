/* A synthetic model step for bench: what a consumer does with a batch, and what it lost to the loader.
 *
 *   cpu    sleeps for so long
 *   cuda   multiplies matrices on a stream of its own that waits for the batch, some steps ahead of the GPU,
 *          as a training loop does; timed by events
 *
 * A step is cut in three, by the clock of the processor that computes (the GPU's, where there is one):
 *
 *   end of the last step ── gap ──▶ asked ── copy ──▶ begin ── busy ──▶ end
 *
 *   gap    no batch was asked for yet
 *   copy   asked for, and not there
 *   busy   the work itself
 *
 * Ownership: a step belongs to its maker.   Threads: the main one.   Errors: -errno with a text.
 * Blocks: _new() while it calibrates (some steps); _take() for a step, or on the GPU as far as it is ahead.
 */
#ifndef PS_TOOLS_BENCH_STEP_H
#define PS_TOOLS_BENCH_STEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "penstock.h"

struct ps_bench_step;

/* Of one step, milliseconds. */
struct ps_bench_cut {
	float gap, copy, busy;
};

struct ps_bench_step_ops {
	int (*take)(struct ps_bench_step *step, struct penstock_batch *batch, struct penstock_error *error);
	int (*drain)(struct ps_bench_step *step, struct penstock_error *error); /* until all cuts are added */
	void (*free)(struct ps_bench_step *step);
};

struct ps_bench_step {
	const struct ps_bench_step_ops *ops;
	double asked_ms, alone_ms; /* what was asked for; what a step takes without a loader, the median */
	struct ps_bench_cut *cuts; /* of all steps that are over, in order */
	size_t ncuts, cap;
};

/* What all steps but the first ones came to. */
struct ps_bench_idle {
	uint64_t steps;
	double seconds;             /* from the end of the one before them */
	double gap, copy;           /* seconds that the consumer waited for the loader, and for copies */
	double alone_ms, beside_ms; /* a step without a loader, and with it: medians */
};

/* device: as penstock_options has it. */
int ps_bench_step_new(
        const char *device, double ms, struct ps_bench_step **ret_step, struct penstock_error *error);
void ps_bench_step_free(struct ps_bench_step *step); /* NULL is allowed */

/* One step on the batch, which may be released then. */
int ps_bench_step_take(
        struct ps_bench_step *step, struct penstock_batch *batch, struct penstock_error *error);

/* Waits for all that was taken. */
int ps_bench_step_end(
        struct ps_bench_step *step, struct ps_bench_idle *ret_idle, struct penstock_error *error);

/* Bottleneck and advice again, by what the consumer lost. */
void ps_bench_step_judge(const struct ps_bench_idle *idle, struct penstock_stats *stats);

/* For the kinds of steps --------------------------------------------------------------------------------- */

/* False: no memory. */
bool ps_bench_step_add(struct ps_bench_step *step, struct ps_bench_cut cut) PS_MUST_USE;

/* The kind that sleeps. */
int ps_bench_step_sleep_new(double ms, struct ps_bench_step **ret_step, struct penstock_error *error);

/* Sorts them; share 0.5: the median. n > 0. */
double ps_bench_quantile(float *values, size_t n, double share);

#endif
