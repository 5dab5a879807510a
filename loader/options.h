/* The public options, made whole: defaults for what an older caller's structs do not have, automatic values
 * found, ranges checked.
 *
 * Ownership: ps_options owns its copies of fields, names and shards.
 * Threads: one at a time.   Blocks: on reading list files, /proc and /sys.
 * Errors: -EINVAL, -E2BIG, -ENOMEM or the errno of a list file; the text names the option and its range. */
#ifndef PS_OPTIONS_H
#define PS_OPTIONS_H

#include <stdbool.h>

#include "base/load_error.h"
#include "order/numbers.h"
#include "penstock.h"
#include "shard/list.h"

#define PS_OPTIONS_MAX_BATCH 65536u
#define PS_OPTIONS_MAX_DEPTH 64u
#define PS_OPTIONS_MAX_THREADS 1024u
#define PS_OPTIONS_MAX_READERS 64u
#define PS_OPTIONS_MAX_WORLD (1u << 20)
#define PS_OPTIONS_MAX_BUCKETS 256u

struct ps_options {
	struct penstock_options
	        o; /* fields points to `fields`, threads, readers, lanes and window are found; depth may be 0 */
	struct penstock_field *fields; /* whole structs, with names of their own */
	struct ps_list shards;
	char *index_dir; /* the caller's, copied */
	char *rename;    /* the same */
	char *texts[4];  /* filter, weights, balance, job, copied */
	double *mix;     /* copied; o.nmix of them */
	size_t *ends;    /* of the shards of each string: their places in `shards`; o.nmix of them */
	struct ps_numbers *numbers; /* order NUMBERS */
	double *sample_weights;     /* copied */
	bool tune_threads, tune_readers; /* the caller left their number to us */
};

int ps_options_make(struct ps_options *options, const struct penstock_options *in, const char *const *shards,
        size_t nshards, struct ps_load_error *err) PS_MUST_USE;
void ps_options_fini(struct ps_options *options);

/* How the memory budget is shared out. */
struct ps_memory {
	uint32_t depth;
	uint32_t open_files;    /* shards that stay open */
	size_t buf_nbytes;      /* of the read buffer of each */
	uint64_t image_nbytes;  /* what images may hold while they are decoded */
	uint64_t window_nbytes; /* what is left for samples */
};

/* -E2BIG with a text that says how much is needed. */
int ps_memory_plan(const struct penstock_options *o, size_t batch_nbytes, uint32_t nlanes,
        struct ps_memory *ret_memory, struct ps_load_error *err) PS_MUST_USE;

#endif
