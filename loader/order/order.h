/* The order of an epoch: which sample stands where, as arithmetic.
 *
 * The shards are permuted (Fisher-Yates, numbers keyed by seed and epoch) and dealt to `lanes` lanes: lane l
 * reads the shards at the permuted places l, l + lanes, ... one after the other. A rank owns the lanes l with
 * l mod world == rank, and takes one sample of each of its lanes in turn; a lane that is at its end is passed
 * over. So, while no lane has ended, position p of the whole epoch belongs to lane p mod lanes, and to rank p
 * mod world: a global batch holds the same samples for every world that divides the lanes.
 *
 *   lane 0   | block 0 | block 1 | ...
 *   lane 1   | block 0 | block 1 | ...
 *   ...
 *
 * Each block of `window / lanes` samples (rounded up; counted along the lane, over the ends of shards; lanes:
 * those that have shards) is permuted in itself (Fisher-Yates, keyed by seed, epoch, lane and block).
 *
 * Without sample shuffle a block is only a unit of work: its samples keep their order.
 *
 * A position depends on the list of shards, the options and the counts of the shards read so far, and on
 * nothing else: no thread, no index, no memory limit.
 *
 * Ownership: an order belongs to its creator.   Threads: any.
 * Locks: its own, around the table of permuted shards; calls nobody with it held.
 * Errors: 0 or -errno.   Blocks: on the processor only. */
#ifndef PS_ORDER_ORDER_H
#define PS_ORDER_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/error.h"

#define PS_ORDER_MAX_LANES 4096
#define PS_ORDER_MAX_WINDOW (1u << 24)
#define PS_ORDER_PLAIN_BLOCK 16 /* samples of a block where blocks are not shuffled */

enum ps_order_mode {
	PS_ORDER_NONE = 0,   /* the list's order; as many lanes as ranks */
	PS_ORDER_SHARDS = 1, /* shards permuted */
	PS_ORDER_WINDOW = 2, /* and blocks of samples */
};

struct ps_order_options {
	enum ps_order_mode mode;
	uint32_t nshards;
	uint32_t window; /* samples, over all lanes that have shards */
	uint32_t lanes;
	uint32_t rank, world;
	uint64_t seed;
};

struct ps_order;

/* NULL with err filled: -EINVAL, the text says which option, or -ENOMEM. */
struct ps_order *ps_order_new(const struct ps_order_options *options, struct ps_load_error *err);
void ps_order_free(struct ps_order *order); /* NULL is allowed */

/* Lanes of this rank that have shards: 1 at least. */
uint32_t ps_order_nlanes(const struct ps_order *order);

/* True if the samples of a block change places. */
bool ps_order_shuffles(const struct ps_order *order);

/* Samples of a block. */
uint32_t ps_order_block_len(const struct ps_order *order);

/* The k-th shard (its place in the list) of this rank's lane: 1, or 0 behind the last. -ENOMEM. */
int ps_order_shard(
        struct ps_order *order, uint64_t epoch, uint32_t lane, uint64_t k, uint32_t *ret_shard) PS_MUST_USE;

/* Where the samples of a block go: place i of the block gets its ret_from[i]-th sample. n: samples in it. */
void ps_order_block(const struct ps_order *order, uint64_t epoch, uint32_t lane, uint64_t block, uint32_t n,
        uint32_t *ret_from);

/* Whose turn it is among n lanes. */
struct ps_turns {
	uint32_t n, at, alive;
	bool *done;
};

int ps_turns_init(struct ps_turns *turns, uint32_t n) PS_MUST_USE; /* -ENOMEM */
void ps_turns_fini(struct ps_turns *turns);
void ps_turns_reset(struct ps_turns *turns);   /* a new epoch */
void ps_turns_advance(struct ps_turns *turns); /* the lane `at` gave a sample */
void ps_turns_finish(struct ps_turns *turns);  /* the lane `at` has ended; with alive 0 the epoch has */

#endif
