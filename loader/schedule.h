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

struct ps_schedule {
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
};

int ps_schedule_make(struct ps_schedule *schedule, const struct ps_options *options,
        struct ps_shard_indexes *indexes, struct ps_error *err) PS_MUST_USE;
void ps_schedule_fini(struct ps_schedule *schedule);

/* -ENODATA: lengths are known, and the epoch has no sample on any rank. */
int ps_schedule_check(struct ps_schedule *schedule, uint64_t epoch, struct ps_error *err) PS_MUST_USE;

/* The number of samples and batches of this rank's epoch. */
int ps_schedule_length(struct ps_schedule *schedule, uint64_t epoch, uint64_t *ret_samples,
        uint64_t *ret_batches, uint64_t *ret_total, struct ps_error *err) PS_MUST_USE;

#endif
