/* Which samples come, and how often: a filter, and weights, by the columns of the indexes.
 *
 * A sample that passes the filter is drawn so many times, one behind the other, in its place of the lane:
 *
 *   with replacement       floor(w + u)
 *   without                1 if u < w, else 0
 *
 * u is uniform in [0, 1): a number keyed by seed, epoch, shard, sample and pass (op SAMPLE_DRAW). So a sample
 * comes w times on average. w is the product of
 *
 *   weights    the value of this column; 1 without such a column, 0 for a sample that has no value
 *   balance    what makes all classes of this column come equally often. With replacement n / (c * m), for n
 *              samples in c classes and a sample of a class of m; without, least m of all classes / m.
 *              0 for a sample that has no value
 *
 * Nothing is kept but a count a class, and any stretch of the order can be made again.
 *
 * Ownership: a selection belongs to its creator and borrows the indexes. A view belongs to whoever opened it.
 * Threads: a selection any, once made; a view one at a time.   Locks: none of its own.
 * Blocks: making, with `balance`, on all indexes; opening and testing on pages of an index.
 * Errors: -EINVAL: no such column, a negative weight, a wrong filter; -ENODATA: a shard without index;
 * -ENOMEM. */
#ifndef PS_ORDER_SELECT_H
#define PS_ORDER_SELECT_H

#include "order/filter.h"

#define PS_SELECT_MAX_CLASSES 1000000
#define PS_SELECT_MAX_TIMES 65535 /* a sample is drawn at most so often */

struct ps_select_options {
	const char *filter, *weights, *balance; /* NULL: none */
	bool replacement;
	uint64_t seed;
	struct ps_indexes *indexes;
	uint32_t nshards;
};

struct ps_select;

/* *ret_select: NULL if nothing is asked for. */
int ps_select_new(const struct ps_select_options *options, struct ps_select **ret_select,
        struct ps_load_error *err) PS_MUST_USE;
void ps_select_free(struct ps_select *select); /* NULL is allowed */

struct ps_select_view;

/* One shard, in one pass of an epoch. */
int ps_select_open(struct ps_select *select, uint32_t shard, uint64_t epoch, uint64_t pass,
        struct ps_select_view **ret_view, struct ps_load_error *err) PS_MUST_USE;
void ps_select_close(struct ps_select_view *view); /* NULL is allowed */

uint64_t ps_select_samples(const struct ps_select_view *view); /* of the shard */

/* How often a sample comes: 0 to PS_SELECT_MAX_TIMES. */
int ps_select_times(struct ps_select_view *view, uint64_t sample, struct ps_load_error *err) PS_MUST_USE;

/* How often all samples of the shard come, from the given copy of a sample on. */
int ps_select_count(struct ps_select_view *view, uint64_t sample, uint32_t copy, uint64_t *ret_count,
        struct ps_load_error *err) PS_MUST_USE;

/* Moves `n` drawings on from the given copy of a sample; n is at most ps_select_count(). */
int ps_select_skip(struct ps_select_view *view, uint64_t *sample, uint32_t *copy, uint64_t n,
        struct ps_load_error *err) PS_MUST_USE;

#endif
