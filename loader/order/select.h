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
 * With a list of weights, or `draws` N, the number of draws is exact (systematic resampling): the weights are scaled to
 * integers w_i (by a power of two: the largest has up to 62 bits), C_i is the sum of those before sample i in the list of
 * shards, S that of all, V a number below S that is keyed by seed, epoch and pass. Sample i comes T(C_i + w_i) - T(C_i)
 * times, T(C) = floor((N C + V) / S). T(0) is 0 and T(S) is N, so N are drawn in all, and each sample N w_i / S times,
 * rounded up or down. All of it is integer arithmetic in 128 bits. Kept are the sums C of each 256th sample.
 *
 *   weights   1    3      0  2        N = 3, S = 6: a sample comes once for each mark that stands in its part,
 *           |---|---------||------|   marks are S / N apart, and V says where the first is
 *               ^      ^      ^
 *
 * ps_select_draw() draws independently instead, for orders that take samples from anywhere.
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
	const double *list; /* weights of all samples; borrowed; NULL: none */
	uint64_t nlist;
	uint64_t draws; /* exactly so many in a pass; 0: as above, with a list as many as pass the filter */
	uint64_t seed;
	struct ps_indexes *indexes;
	uint32_t nshards;
};

struct ps_select;

/* *ret_select: NULL if nothing is asked for. */
int ps_select_new(const struct ps_select_options *options, struct ps_select **ret_select,
        struct ps_load_error *err) PS_MUST_USE;
void ps_select_free(struct ps_select *select); /* NULL is allowed */

/* The number of draws is exact. */
bool ps_select_is_exact(const struct ps_select *select);

/* Of an exact one: the sample of draw n of an epoch, by its weight alone. */
int ps_select_draw(struct ps_select *select, uint64_t epoch, uint64_t n, uint32_t *ret_shard, uint64_t *ret_sample,
        struct ps_load_error *err) PS_MUST_USE;

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
