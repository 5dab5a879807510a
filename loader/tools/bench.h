/* bench in three parts: the command line, the run, the report.
 *
 * Threads: the main one. */
#ifndef PS_TOOLS_BENCH_H
#define PS_TOOLS_BENCH_H

#include <stdbool.h>

#include "penstock.h"

/* What the command line asked for. */
struct ps_bench_options {
	struct penstock_options loader;
	struct penstock_field fields[2]; /* jpg;jpeg and cls */
	const char *const *shards;
	size_t nshards;
	bool json;
};

/* What one epoch, or the whole run, came to. */
struct ps_bench_result {
	uint64_t epoch;
	struct penstock_stats stats; /* of this part alone: differences */
	double seconds;
	double cpu_seconds; /* of all threads */
	double first_batch_seconds;
	uint64_t peak_rss_nbytes;
};

/* Runs; `each` gets the result of each epoch. Returns 0, or -errno with error filled. */
int ps_bench_run(const struct ps_bench_options *options, struct ps_bench_result *ret_all,
        struct ps_bench_result *ret_epochs, struct penstock_error *error);

/* Prints all of it: a table, or JSON. False if there was no memory for it. */
bool ps_bench_report(const struct ps_bench_options *options, const struct ps_bench_result *all,
        const struct ps_bench_result *epochs);

#define PS_BENCH_MAX_EPOCHS 10000

#endif
