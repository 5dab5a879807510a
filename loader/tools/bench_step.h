/* A synthetic model step for bench: simulates a consumer, and measures the time that it loses to the
 * loader.
 *
 *   cpu    sleeps for the given time
 *   cuda   multiplies matrices on its own stream, which waits for the batch. As in a training loop, some
 *          steps are launched ahead of the GPU. Events measure the times
 *
 * A step is divided into three parts, by the clock of the processor that computes (the GPU's, if there is
 * one):
 *
 *   end of the last step ── gap ──▶ asked ── copy ──▶ begin ── busy ──▶ end
 *
 *   gap    the consumer does not have the next batch yet
 *   copy   it has the batch, but the batch is not on the device yet
 *   busy   the work itself
 *
 * Ownership: a step belongs to its creator.   Threads: the main one.   Errors: -errno with a text.
 * Blocks: _new() while it calibrates (some steps); _take() for a step, or on a GPU until few enough steps
 * are queued. */
#ifndef PS_TOOLS_BENCH_STEP_H
#define PS_TOOLS_BENCH_STEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "penstock.h"

struct ps_bench_step;

/* The parts of one step, in milliseconds. */
struct ps_bench_cut {
	float gap, copy, busy;
};

struct ps_bench_step_ops {
	/* runs one step on the batch, which may be released afterwards */
	int (*take)(struct ps_bench_step *step, struct penstock_batch *batch, struct penstock_error *error);
	/* waits until all cuts are added; NULL: they are */
	int (*drain)(struct ps_bench_step *step, struct penstock_error *error);
	void (*free)(struct ps_bench_step *step); /* NULL: free() */
};

struct ps_bench_step {
	const struct ps_bench_step_ops *ops;
	double asked_ms, alone_ms; /* requested time; median of a step without a loader */
	struct ps_bench_cut *cuts; /* cuts of all finished steps, in order */
	size_t ncuts, cap;
};

/* Totals of all steps except the first ones. */
struct ps_bench_idle {
	uint64_t steps;
	double seconds;             /* time of these steps: gap, copy and busy together */
	double gap, copy;           /* seconds that the consumer waited for the loader, and for copies */
	double alone_ms, beside_ms; /* a step without a loader, and with it (medians) */
};

/* device: as in penstock_options. */
int ps_bench_step_new(
        const char *device, double ms, struct ps_bench_step **ret_step, struct penstock_error *error);
void ps_bench_step_free(struct ps_bench_step *step); /* NULL is allowed */

/* Waits for all steps, and computes their totals. */
int ps_bench_step_end(
        struct ps_bench_step *step, struct ps_bench_idle *ret_idle, struct penstock_error *error);

/* Computes bottleneck and advice again, from the time that the consumer lost. */
void ps_bench_step_judge(const struct ps_bench_idle *idle, struct penstock_stats *stats);

/* For implementations of steps --------------------------------------------------------------------------- */

/* Adds the parts of a finished step. False: out of memory. */
bool ps_bench_step_add(struct ps_bench_step *step, struct ps_bench_cut cut) PS_MUST_USE;

/* Creates a step that sleeps. */
int ps_bench_step_sleep_new(double ms, struct ps_bench_step **ret_step, struct penstock_error *error);

/* The quantile `share` of n values; 0.5: the median. Sorts the values. n > 0. */
double ps_bench_quantile(float *values, size_t n, double share);

#endif
