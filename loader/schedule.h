/* All that decides the order of a run, made from the options: the order, and what is known of its epochs.
 * Options that cannot be kept are refused.
 *
 * Ownership: a schedule belongs to its creator; it borrows options and indexes.
 * Threads: any, once made.   Locks: none of its own.   Blocks: make and length on reading indexes.
 * Errors: -EINVAL with a text that names the option and what would help; -ENODATA: a length that is not
 * known; -ENOMEM. */
#ifndef PS_SCHEDULE_H
#define PS_SCHEDULE_H

#include "options.h"
#include "order/order.h"
#include "shard/index/index.h"

struct ps_schedule {
	struct ps_order *order;
	struct ps_epochs *epochs;
	struct ps_select *select;         /* NULL: all samples come once */
	struct ps_shard_indexes *indexes; /* borrowed */
	char *const *shards;
	uint32_t nshards;
	uint32_t rank; /* the caller's; order and epochs number the ranks of a node apart */
	/* likewise; numbers that the caller gives are of one rank, and its world is 1 there */
	uint32_t world;
	struct ps_numbers *numbers; /* borrowed; NULL: the order is not of numbers */
	uint64_t *ends;             /* of the shards, in sample numbers; with `numbers` */
	struct ps_uses uses;        /* with an array of them */
	bool counted;               /* lengths are known by counts */
};

int ps_schedule_make(struct ps_schedule *schedule, const struct ps_options *options,
        struct ps_shard_indexes *indexes, struct ps_load_error *err) PS_MUST_USE;
void ps_schedule_fini(struct ps_schedule *schedule);

/* -ENODATA: lengths are known, and the epoch has no sample on any rank. */
int ps_schedule_check(struct ps_schedule *schedule, uint64_t epoch, struct ps_load_error *err) PS_MUST_USE;

/* What this rank's epoch has. */
int ps_schedule_length(struct ps_schedule *schedule, uint64_t epoch, uint64_t *ret_samples,
        uint64_t *ret_batches, struct ps_load_error *err) PS_MUST_USE;

#endif
