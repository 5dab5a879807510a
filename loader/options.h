/* The public options, completed: defaults for members that an older caller's structs lack, automatic
 * values, checked ranges.
 *
 * Ownership: ps_options owns its copies of fields, names and shards.
 * Threads: one at a time.   Blocks: on reading list files, /proc and /sys.
 * Errors: -EINVAL, -E2BIG, -ENOMEM or the errno of a list file; the text names the option and its range. */
#ifndef PS_OPTIONS_H
#define PS_OPTIONS_H

#include <stdbool.h>

#include "base/error.h"
#include "option/option.h"
#include "order/order.h"
#include "penstock.h"
#include "shard/shard.h"

struct ps_options {
	/* o.fields is `fields`; threads, readers, lanes and window are set; depth may be 0 */
	struct penstock_options o;
	struct penstock_field *fields; /* full-size structs, with copied names */
	struct ps_shard_list shards;
	/* what the order deals: the shards, or the stretches of packed token files, by the names of their
	 * files; borrowed from `shards` or from the packing */
	char *const *names;
	uint32_t nnames;
	/* their files: `names`, or the files that units of columns are parts of, of which neighbours share
	 * one string; NULL: units are not files */
	char *const *files;
	char **unit_files; /* memory of the latter */
	uint32_t *
	        file_of; /* by unit: the number of its file among nfiles; NULL: shards are no parts of files */
	uint32_t nfiles;
	uint64_t *ranges;     /* a copy of the units' ranges; NULL: not known */
	uint32_t given_lanes; /* as the caller set them; 0: not set */
	char *texts[8];       /* copies of the caller's texts */
	/* Of a mix, copied: its stages, one if the weights do not change; the weights of all stages, o.nmix
	 * of each; and the datasets' names, or NULL. */
	struct penstock_mix_stage *stages;
	uint32_t nstages;
	double *mix;
	char **mix_names;
	/* in a mix: for each dataset (a string of the caller's) the end of its shards in `shards`; o.nmix of
	 * them */
	size_t *ends;
	struct ps_numbers *numbers;      /* with order NUMBERS; else NULL */
	double *sample_weights;          /* copied */
	bool tune_threads, tune_readers; /* the caller has not set their number */
	bool auto_lanes, auto_window;    /* likewise */
};

int ps_options_make(struct ps_options *options, const struct penstock_options *in, const char *const *shards,
        size_t nshards, struct ps_error *err) PS_MUST_USE;
/* Deals stretches instead of shards; `lanes`, if the caller did not set them, become those of as many shards.
 * */
void ps_options_stretch(struct ps_options *options, char *const *names, uint32_t nnames);

void ps_options_fini(struct ps_options *options);

#endif
