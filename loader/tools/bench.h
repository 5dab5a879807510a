/* The parts of bench: the command line, the run, the report; sweeps and their plot; profiles.
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

/* The options of the command line. */
struct ps_bench_options {
	struct penstock_options loader;
	struct penstock_field fields[PS_BENCH_MAX_FIELDS]; /* jpg;jpeg and cls, by default */
	char names[PS_BENCH_MAX_FIELDS][128];              /* names of the fields given on the command line */
	struct penstock_field image;                       /* options for all image fields */
	bool image_set;                                    /* `image` was set */
	uint32_t nnamed;
	const char *const *shards;
	size_t nshards;
	double step_ms;     /* duration of a synthetic step of the consumer; 0: none */
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

/* The results of one epoch, or of the whole run. */
struct ps_bench_result {
	uint64_t epoch;
	struct penstock_stats stats; /* of this epoch alone, as differences */
	double seconds;
	double cpu_seconds; /* CPU time of all threads */
	double first_batch_seconds;
	uint64_t peak_rss_nbytes;
	double next_p50_us, next_p99_us; /* latency of next(), without the first batches; 0: not known */
	bool has_idle;                   /* with a synthetic step; `idle` is of the whole run */
	struct ps_bench_idle idle;
	char lost_first[512]; /* "PATH: reason" of the first shard lost in the whole run */
	char *profile;        /* profile of the whole run, if asked for; the caller frees it */
};

/* Options of fields, as `take` of a struct ps_flag; ctx is a struct ps_bench_options. False: failed, with a message
 * on stderr. Values are borrowed.
 *   side           "N", width and height of images
 *   crop           "random", ...
 *   image_option   "NAME=VALUE"
 *   field          "SUFFIX=KIND[:DTYPE]", a field that replaces the default ones */
bool ps_bench_take_side(void *ctx, char *value);
bool ps_bench_take_crop(void *ctx, char *value);
bool ps_bench_take_image_option(void *ctx, char *value);
bool ps_bench_take_field(void *ctx, char *text);

/* Sets up the fields of an image training run. */
void ps_bench_fields_init(struct ps_bench_options *options);

/* After all options were read: applies the image options to every image field. False: failed, with a
 * message on stderr. */
bool ps_bench_fields_finish(struct ps_bench_options *options);

/* Runs the benchmark; ret_epochs gets the result of each epoch. Returns 0, or -errno with error filled. */
int ps_bench_run(const struct ps_bench_options *options, struct ps_bench_result *ret_all,
        struct ps_bench_result *ret_epochs, struct penstock_error *error);

/* Prints all results, as a table or as JSON. */
void ps_bench_report(const struct ps_bench_options *options, const struct ps_bench_result *all,
        const struct ps_bench_result *epochs);

/* Sweeps ------------------------------------------------------------------------------------------------- */

/* One point of a sweep. */
struct ps_bench_point {
	uint32_t threads, batch;
	const char *device;
	struct ps_bench_result result;
	struct penstock_error error; /* code 0: the run succeeded */
};

/* Runs all combinations and reports them. Returns an exit code. */
int ps_bench_sweep(const struct ps_bench_options *options);

/* Profiles ----------------------------------------------------------------------------------------------- */

/* Writes the profile to options->profile, and warns on stderr about differences from
 * options->profile_against. Returns the exit code: PS_EXIT_DRIFT if there are differences. */
int ps_bench_profile(const struct ps_bench_options *options, const char *profile);

#define PS_BENCH_MAX_EPOCHS 10000

#endif
