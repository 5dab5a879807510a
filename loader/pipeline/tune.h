/* What the pipeline learns while it runs: how long rows take, so that a unit of work is 50 to 100 us; and how
 * many threads of a stage are worth having, where the caller left that to us.
 *
 * Threads and locks: guarded by the pipeline's lock.   Blocks: never. */
#ifndef PS_PIPELINE_TUNE_H
#define PS_PIPELINE_TUNE_H

#include <stdbool.h>
#include <stdint.h>

#define PS_UNIT_NS 50000     /* a unit is closed once its rows are expected to take this long ... */
#define PS_UNIT_MAX_ROWS 256 /* ... or has so many */

/* The cost of a row grows with its bytes, but is not nothing without any. */
#define PS_ROW_WEIGHT 512

struct ps_cost {
	double ns_per_weight; /* a mean of the last units; begin with ps_cost_init() */
};

void ps_cost_init(struct ps_cost *cost);

/* True if a unit of so many rows and bytes is large enough. */
bool ps_cost_is_unit(const struct ps_cost *cost, uint32_t rows, uint64_t nbytes);

/* Rows of so many bytes took ns. */
void ps_cost_learn(struct ps_cost *cost, uint32_t rows, uint64_t nbytes, uint64_t ns);

/* How a stage's threads spent a span of time. */
struct ps_usage {
	double idle;    /* share in which they waited for the other stages */
	double starved; /* share in which the stage behind it waited for them */
};

struct ps_tune {
	bool fixed;           /* the caller said how many */
	uint32_t least, most; /* threads */
	uint32_t now;         /* that may run */
};

/* How many may run from now on: fewer when they mostly wait, as many as they keep busy; more while the stage
 * behind them waits and they do not. */
uint32_t ps_tune_next(const struct ps_tune *tune, const struct ps_usage *usage);

#endif
