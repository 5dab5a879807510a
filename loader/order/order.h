/* The order of an epoch: which shards a lane reads, and how the samples of its blocks change places.
 *
 * The shards of a set (all, or those of one dataset of a mix) are permuted (Fisher-Yates, numbers keyed by
 * seed, epoch, pass and set) and dealt to the set's lanes: lane l reads the shards at the permuted places l,
 * l + lanes, l + 2 * lanes ... one after the other, then those of its next pass. Lanes give samples in turn
 * (order/sequence.h): that is the canonical sequence of the epoch, the same for every world.
 *
 *   lane 0   | block 0 | block 1 | ...
 *   lane 1   | block 0 | block 1 | ...
 *   ...
 *
 * Each block of `window / lanes` samples (rounded up; counted along the lane, over the ends of shards; lanes:
 * those that have shards) is permuted in itself (Fisher-Yates, keyed by seed, epoch, lane and block).
 * Without sample shuffle a block is only a unit of work: its samples keep their order.
 *
 * A block must be there as a whole before its first sample can be given, and so the window of all lanes before
 * the first batch, which costs a far origin a second. So the first blocks are short: what would be block 0, of
 * n samples, is cut at n/16, n/8, n/4 and n/2 (rounded down; at less places where n is below 16, and at none
 * where samples are sorted by length, below). The first batch then waits for a sixteenth of the window.
 *
 * With `bucket` b > 1 the samples of a block are sorted by length, shorter first, ties as they were read; the
 * sorted block is cut into b runs; the runs change places by a permutation that all lanes share (keyed by
 * seed, epoch and block), and each is permuted in itself. So the samples that lanes give in the same turn are
 * of about the same length, and batches of different lengths come in any order.
 *
 * Homes: with H > 1 a permutation of the set's shards that is keyed by the seed alone gives each a place, and
 * so a home: the place mod H. The shards of a home are permuted among its places only, in each epoch and pass.
 * H divides the lanes, so a home's shards are dealt to the lanes that are its number mod H, in all epochs.
 *
 * Ranks: rank r of W has the rows of each step that order/deal.h gives it (shared): those of the lanes that
 * are r mod W first. That needs the lanes' lengths. Where they are not known before they are read, a rank has
 * the lanes that are r mod W, and gives their samples in turn (not shared): the same, as long as no lane has
 * ended and W divides the lanes; after that each rank goes on with its own.
 *
 * A position depends on the list of shards, the options and the counts of the shards read so far, and on
 * nothing else: no thread, no index, no memory limit.
 *
 * Ownership: an order belongs to its creator.   Threads: any.
 * Locks: its own, around the tables of permuted shards; calls nobody with it held.
 * Errors: 0 or -errno.   Blocks: on the processor only. */
#ifndef PS_ORDER_ORDER_H
#define PS_ORDER_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/load_error.h"
#include "order/sequence.h"

#define PS_ORDER_MAX_LANES 16384
#define PS_ORDER_MAX_WINDOW (1u << 24)
#define PS_ORDER_PLAIN_BLOCK 16 /* samples of a block where blocks are not shuffled */

enum ps_order_mode {
	PS_ORDER_NONE = 0,        /* the list's order; one lane, or one for each rank that owns it */
	PS_ORDER_SHARDS = 1,      /* shards permuted */
	PS_ORDER_WINDOW = 2,      /* and blocks of samples */
	PS_ORDER_PERMUTATION = 3, /* all samples (order/permutation.h); position p is of lane p mod lanes */
	PS_ORDER_NUMBERS = 4,     /* the caller's (order/numbers.h), likewise; a block is one sample */
};

/* Lanes read samples wherever they are, not shards front to back. */
static inline bool ps_order_mode_scatters(enum ps_order_mode mode)
{
	return mode == PS_ORDER_PERMUTATION || mode == PS_ORDER_NUMBERS;
}

/* Shards of the list that are one dataset of a mix. */
struct ps_order_set {
	uint32_t first, n;
	uint64_t weight; /* as in struct ps_lane_set */
};

struct ps_order_options {
	enum ps_order_mode mode;
	uint32_t nshards;
	uint32_t window; /* samples, over all lanes that have shards */
	uint32_t lanes;
	uint32_t rank, world;
	uint64_t seed;
	uint64_t repeat;                 /* passes over the shards; 0: one; PS_ENDLESS */
	bool shared;                     /* ranks share lanes (order/deal.h) */
	uint32_t bucket;                 /* runs of a block that is sorted by length; 0 or 1: not sorted */
	const struct ps_order_set *sets; /* one after the other, all shards; NULL: all are one; copied */
	uint32_t nsets;
	uint32_t homes; /* divides the lanes of each set; 0 or 1: none */
};

/* How many lanes, and samples of a window, where nobody says: by the global batch and the shards alone, so that
 * they are the same for any number of ranks. */
uint32_t ps_order_lanes_auto(uint64_t global_batch, uint64_t nshards);
uint32_t ps_order_window_auto(uint64_t global_batch);

struct ps_order;

/* NULL with err filled: -EINVAL, the text says which option, or -ENOMEM. */
struct ps_order *ps_order_new(const struct ps_order_options *options, struct ps_load_error *err);
void ps_order_free(struct ps_order *order); /* NULL is allowed */

/* The sets of lanes that this rank reads, numbered from 0: its own, or all. */
const struct ps_lane_set *ps_order_sets(const struct ps_order *order, uint32_t *ret_nsets);
uint32_t ps_order_nlanes(const struct ps_order *order); /* 1 at least */

/* Of those, the ones that this rank reads side by side, while none has ended: 1 at least. */
uint32_t ps_order_nactive(const struct ps_order *order);

/* True for those: their samples are this rank's as far as it may keep them. */
bool ps_order_owns(const struct ps_order *order, uint32_t lane);

/* A lane's number among those of all ranks. */
uint32_t ps_order_lane(const struct ps_order *order, uint32_t lane);

/* Lanes of all ranks. */
uint32_t ps_order_all_lanes(const struct ps_order *order);

/* True if the samples of a block change places. */
bool ps_order_shuffles(const struct ps_order *order);

/* True if their places depend on their lengths. */
bool ps_order_buckets(const struct ps_order *order);

/* Samples of a block: of all but the short ones at the beginning, and the lane's last. */
uint32_t ps_order_block_len(const struct ps_order *order);

/* Where a block begins in its lane; it ends where the next one does. */
uint64_t ps_order_block_begin(const struct ps_order *order, uint64_t block);

/* The block that holds the index-th sample of a lane. */
uint64_t ps_order_block_of(const struct ps_order *order, uint64_t index);

/* The k-th shard (its place in the list) of a lane, and in which pass: 1, or 0 behind the last. -ENOMEM. */
int ps_order_shard(struct ps_order *order, uint64_t epoch, uint32_t lane, uint64_t k, uint32_t *ret_shard,
        uint64_t *ret_pass) PS_MUST_USE;

/* Shards of one pass of a lane. */
uint64_t ps_order_pass_len(const struct ps_order *order, uint32_t lane);

/* Where the samples of a block go: place i of the block gets its ret_from[i]-th sample. n: samples in it;
 * `nbytes`: their lengths, for buckets alone. -ENOMEM. */
int ps_order_block(const struct ps_order *order, uint64_t epoch, uint32_t lane, uint64_t block, uint32_t n,
        const uint64_t *nbytes, uint32_t *ret_from) PS_MUST_USE;

struct ps_order_sample {
	uint32_t shard; /* its place in the list */
	uint32_t ordinal;
};

/* All samples of a lane's epoch in their order, from the counts of all shards alone; for looking at orders: not with
 * `bucket` or PS_ENDLESS. ret_samples: room for all of them. -ENOMEM. */
int ps_order_samples(struct ps_order *order, uint64_t epoch, uint32_t lane, const uint32_t *counts,
        struct ps_order_sample *ret_samples, uint64_t *ret_n) PS_MUST_USE;

#endif
