/* What is known of an epoch before it is read: the lanes' lengths, and so whose position is whose.
 *
 * Known, where all lengths can be told: every shard has an index, or the shards are read again and again
 * (repeat PS_ENDLESS) and the number of steps ends the epoch. Then ranks share lanes by position, and claim
 * and fill by arithmetic alone. Unknown: ends are found as they come.
 *
 * Ownership: an epoch is counted: give it back with unref. Threads: any.
 * Locks: its own, over the making of an epoch (arithmetic over all shards, and pages of indexes where samples
 * are filtered or weighted).   Errors: 0 or -errno with a text.   Blocks: as the lock says. */
#ifndef PS_ORDER_EPOCH_H
#define PS_ORDER_EPOCH_H

#include <stdatomic.h>

#include "order/deal.h"
#include "order/numbers.h"
#include "order/order.h"
#include "order/permutation.h"
#include "order/steps.h"

/* How many samples a shard gives in a pass of an epoch. */
struct ps_counts_ops {
	int (*count)(void *ctx, uint64_t epoch, uint64_t pass, uint32_t shard, uint64_t *ret_count,
	        struct ps_load_error *err);
	void *ctx;
};

struct ps_epochs_options {
	struct ps_order *order;
	enum ps_order_mode mode;
	bool known;      /* lengths can be told; else the next are not used */
	bool longest;    /* a mix ends with the set that lasts longest; else with the first to end */
	uint64_t repeat; /* as the order's */
	struct ps_counts_ops counts; /* count NULL: none is needed */
	uint32_t nshards;
	uint64_t seed;
	uint64_t skip, take; /* positions that are not given, and then given; PS_ENDLESS */
	uint64_t steps;      /* at most; PS_ENDLESS */
	uint32_t batch, rank, world;
	uint32_t nodes; /* that the ranks are on, rank v on node v mod nodes (order/deal.h); 0: one each */
	enum penstock_end end;
	struct ps_numbers *numbers; /* borrowed; mode NUMBERS */
};

struct ps_epoch {
	uint64_t number;
	bool known;
	struct ps_sequence *sequence; /* known only */
	uint64_t *lengths;            /* of the lanes; known only */
	struct ps_steps steps; /* positions are counted from `skip`; of a rank for itself, if not known */
	uint64_t begin, end;   /* canonical positions that are given; known only */
	uint32_t rank, world;  /* which of them are meant; known only */
	struct ps_deal *deal;  /* whose rows are whose; known only, and not of ps_epochs_count() */
	struct ps_permutation permutation;
	const struct ps_numbers *numbers; /* mode NUMBERS */
	uint64_t *ends; /* of shards in the permuted numbers: sums of counts; modes PERMUTATION and NUMBERS */
	_Atomic uint32_t refs;
};

struct ps_epochs;

struct ps_epochs *ps_epochs_new(const struct ps_epochs_options *options); /* NULL: out of memory */
void ps_epochs_free(struct ps_epochs *epochs);                            /* NULL is allowed */

const struct ps_epochs_options *ps_epochs_options(const struct ps_epochs *epochs);

/* Makes it, or finds it among the last that were asked for. */
int ps_epochs_get(struct ps_epochs *epochs, uint64_t epoch, struct ps_epoch **ret_epoch,
        struct ps_load_error *err) PS_MUST_USE;
void ps_epoch_unref(struct ps_epoch *epoch); /* NULL is allowed */

/* The same with lengths and steps: where they are not known to claim and fill by, the counts are asked for
 * now (of this rank's own lanes, and the epoch is not kept); they may fail with -ENODATA. */
int ps_epochs_count(struct ps_epochs *epochs, uint64_t epoch, struct ps_epoch **ret_epoch,
        struct ps_load_error *err) PS_MUST_USE;

/* From now on lengths are known, as ps_epochs_count() found. With world 1, while no other thread asks for
 * epochs. */
void ps_epochs_know(struct ps_epochs *epochs);

/* How many samples and batches this rank's epoch has; as ps_epochs_count(). */
int ps_epochs_length(struct ps_epochs *epochs, uint64_t epoch, uint64_t *ret_samples, uint64_t *ret_batches,
        struct ps_load_error *err) PS_MUST_USE;

/* Rows of this rank in a step; of a feed, one that was fed. */
uint32_t ps_epoch_rows(const struct ps_epoch *epoch, uint64_t step);

/* No sample stands at a position before the epoch's end (order/numbers.h). */
bool ps_epoch_is_hole(const struct ps_epoch *epoch, uint64_t position);

/* Which sample stands at a position of an epoch of mode PERMUTATION or NUMBERS. */
void ps_epoch_permuted(const struct ps_epoch *epoch, uint32_t nshards, uint64_t position, uint32_t *ret_shard,
        uint64_t *ret_ordinal, uint64_t *ret_pass);

#endif
