/* The schedule of a run, made from the options: its order and the epochs of that order. Options that cannot
 * be fulfilled are refused.
 *
 * Ownership: a schedule belongs to its creator; it borrows options and indexes.
 * Threads: any, once made.   Locks: none of its own.   Blocks: ps_schedule_make() and ps_schedule_length()
 * on reading indexes.
 * Errors: -EINVAL with a text that names the option and what would help; -ENODATA: a length is not known;
 * -ENOMEM. */
#ifndef PS_SCHEDULE_H
#define PS_SCHEDULE_H

#include "options.h"
#include "order/order.h"
#include "shard/index/index.h"

/* A dataset of a mix. */
struct ps_run_set {
	uint64_t name;   /* hash of its name, or of its number */
	uint64_t shards; /* hash of its shards' names; 0: not made yet */
	uint32_t lanes;
	/* where it was when the run was resumed, and where the stages of the mix begin in that epoch */
	struct ps_share_base at, base;
};

/* What a run keeps from its first opening: so the order stays the same if it is resumed with another global
 * batch, or another mix. */
struct ps_run {
	uint64_t first_batch; /* global batch of the first opening */
	uint64_t mix_batch;   /* global batch of the opening at which the stages of the mix began */
	uint32_t block_len;   /* of a mix in order WINDOW; 0: computed */
	uint32_t lanes, window;
	uint32_t nsets;                /* of the mix: datasets of this loader ... */
	uint32_t ngone;                /* ... and, after them, those that it no longer has */
	struct ps_run_set *sets;       /* NULL: no mix */
	struct ps_share_base *bases;   /* of the `nsets` datasets, for `from` */
	struct ps_share_stage *stages; /* in rows */
	uint32_t nstages;
	struct ps_epochs_from from;
};

struct ps_schedule {
	struct ps_run run;
	struct ps_order *order;
	struct ps_epochs *epochs;
	struct ps_select *select;         /* NULL: each sample is drawn once */
	struct ps_shard_indexes *indexes; /* borrowed */
	char *const *shards;
	char *const *files; /* the shards' files, as in struct ps_options */
	uint32_t nshards;
	uint32_t rank; /* the caller's rank; order and epochs number ranks differently, by node */
	/* the caller's world size; with the caller's sample numbers, order and epochs have world 1 */
	uint32_t world;
	struct ps_numbers *numbers; /* borrowed; NULL: the order is not one of sample numbers */
	uint64_t *ends;             /* each shard's end in sample numbers; with `numbers` */
	struct ps_uses uses;        /* uses of shards by an array of sample numbers */
	bool counted;               /* lengths are known, from counts */
	bool known;                 /* lengths were known when the schedule was made */
};

int ps_schedule_make(struct ps_schedule *schedule, const struct ps_options *options,
        struct ps_shard_indexes *indexes, struct ps_error *err) PS_MUST_USE;
void ps_schedule_fini(struct ps_schedule *schedule);

/* Makes the order of a run that is resumed. `run` has lanes, block_len, sets and mix_batch; its stages are
 * made. */
int ps_schedule_order(const struct ps_schedule *schedule, const struct ps_options *options,
        struct ps_run *run, struct ps_order **ret_order, struct ps_error *err) PS_MUST_USE;

/* Takes `run` and `order` (NULL: the present one stays), for epochs made from now on. Returns the order
 * before, which the caller frees once nothing uses it; NULL: it stays. */
struct ps_order *ps_schedule_resume(struct ps_schedule *schedule, const struct ps_options *options,
        struct ps_run *run, struct ps_order *order);

/* Forgets where the run was resumed: an epoch begins at its beginning again. */
void ps_schedule_restart(struct ps_schedule *schedule, const struct ps_options *options);

void ps_run_fini(struct ps_run *run);

/* A hash of a dataset's name. */
uint64_t ps_run_name(const struct ps_options *options, uint32_t set);

/* -ENODATA: lengths are known, and the epoch has no sample on any rank. */
int ps_schedule_check(struct ps_schedule *schedule, uint64_t epoch, struct ps_error *err) PS_MUST_USE;

/* The number of samples and batches of this rank's epoch. */
int ps_schedule_length(struct ps_schedule *schedule, uint64_t epoch, uint64_t *ret_samples,
        uint64_t *ret_batches, uint64_t *ret_total, struct ps_error *err) PS_MUST_USE;

#endif
