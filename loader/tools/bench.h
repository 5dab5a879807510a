/* bench in parts: the command line, the run, the report; sweeps and their plot; profiles.
 *
 * Threads: the main one. */
#ifndef PS_TOOLS_BENCH_H
#define PS_TOOLS_BENCH_H

#include <stdbool.h>
#include <stddef.h>

#include "penstock.h"
#include "tools/bench_step.h"

#define PS_BENCH_MAX_FIELDS 16
#define PS_BENCH_MAX_SWEEP 16 /* values of one kind */

/* What the command line asked for. */
struct ps_bench_options {
	struct penstock_options loader;
	struct penstock_field fields[PS_BENCH_MAX_FIELDS]; /* jpg;jpeg and cls, by default */
	char names[PS_BENCH_MAX_FIELDS][128];              /* of fields that were named */
	struct penstock_field image; /* what image fields are to be, whatever they are called */
	bool image_set;              /* something was said of it */
	uint32_t nnamed;
	const char *const *shards;
	size_t nshards;
	double step_ms;     /* of a synthetic step of the consumer; 0: none */
	double max_seconds; /* a run ends after this time; 0: with its epochs */
	bool quiet;         /* no progress */
	bool json;

	bool sweep;
	uint32_t threads[PS_BENCH_MAX_SWEEP], nthreads;
	uint32_t batches[PS_BENCH_MAX_SWEEP], nbatches;
	char *devices[PS_BENCH_MAX_SWEEP];
	uint32_t ndevices;
	const char *plot; /* file; NULL: none */

	const char *profile;         /* file to write to; NULL: none */
	const char *profile_against; /* file to compare with; NULL: none */
};

/* What one epoch, or the whole run, came to. */
struct ps_bench_result {
	uint64_t epoch;
	struct penstock_stats stats; /* of this part alone: differences */
	double seconds;
	double cpu_seconds; /* of all threads */
	double first_batch_seconds;
	uint64_t peak_rss_nbytes;
	double next_p50_us,
	        next_p99_us; /* how long it took to ask for a batch, the first ones apart; 0: not known */
	bool has_idle;       /* there was a step; `idle` is of the whole run */
	struct ps_bench_idle idle;
	char lost_first[512]; /* of the whole run: "PATH: reason" of the first shard lost */
	char *profile;        /* of the whole run, if asked for; the caller frees it */
};

/* Takes "NAME=KIND[:DTYPE]", a field instead of the usual ones. False: complained. */
bool ps_bench_field_take(struct ps_bench_options *options, const char *text);

/* When all options are read: what was said of images is of every field that is one. False: complained. */
bool ps_bench_fields_finish(struct ps_bench_options *options);

/* Takes "NAME=VALUE", a member of the image's. False: complained. The text is borrowed. */
bool ps_bench_image_take(struct penstock_field *image, const char *text);

/* Runs; `each` gets the result of each epoch. Returns 0, or -errno with error filled. */
int ps_bench_run(const struct ps_bench_options *options, struct ps_bench_result *ret_all,
        struct ps_bench_result *ret_epochs, struct penstock_error *error);

/* Prints all of it: a table, or JSON. False if there was no memory for it. */
bool ps_bench_report(const struct ps_bench_options *options, const struct ps_bench_result *all,
        const struct ps_bench_result *epochs);

/* How much longer a step took beside the loader, as a share; how much of the time of copies no step waited
 * for. */
double ps_bench_slowdown(const struct ps_bench_idle *idle);
double ps_bench_hidden(const struct ps_bench_result *result);

/* Sweeps ------------------------------------------------------------------------------------------------- */

/* One point of a sweep. */
struct ps_bench_point {
	uint32_t threads, batch;
	const char *device;
	struct ps_bench_result result;
	struct penstock_error error; /* code 0: it ran */
};

/* Runs all combinations and reports them. An exit code. */
int ps_bench_sweep(const struct ps_bench_options *options);

double ps_bench_rate(const struct ps_bench_point *point); /* samples a second; 0: it failed */

/* Draws samples a second over threads, a line a batch and device, as SVG. False, with errno: the file. */
bool ps_bench_plot(const char *path, const struct ps_bench_point *points, size_t n);

/* Profiles ----------------------------------------------------------------------------------------------- */

/* Writes the profile, and warns on stderr of what differs from the other one: PS_EXIT_DRIFT then. The exit
 * status. */
int ps_bench_profile(const struct ps_bench_options *options, const char *profile);

#define PS_BENCH_MAX_EPOCHS 10000

#endif
