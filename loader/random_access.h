/* Samples by number: read at their place, and decoded on the calling thread into a batch of their own.
 *
 * Ownership: it belongs to its creator and borrows what it is made of; its batches belong to the
 * caller, and must be given back (ps_random_access_give_back()) before the layout is freed. Threads: one at a
 * time.   Locks: none.   Blocks: on the disk, and the processor. Errors: -ENODATA: a shard without index, the
 * text names it; -ERANGE: there is no such sample; -ESTALE: the shard is not as its index says; -ENOMEM. What
 * is wrong with a sample marks its row. */
#ifndef PS_RANDOM_ACCESS_H
#define PS_RANDOM_ACCESS_H

#include "batch/batch.h"
#include "shard/index/index.h"
#include "shard/shard.h"

struct ps_random_access_options {
	char *const *shards;
	uint32_t nshards;
	struct ps_shard_indexes *indexes;
	const struct ps_batch_layout *layout;
	struct ps_shard_options reading; /* budget, stop flag and slabs are not used */
	uint64_t seed, epoch;            /* of random numbers */
	uint64_t max_ragged_nbytes;
};

struct ps_random_access;

int ps_random_access_new(const struct ps_random_access_options *options, struct ps_random_access **ret_access,
        struct ps_load_error *err) PS_MUST_USE;
void ps_random_access_free(struct ps_random_access *access); /* NULL is allowed */

/* A finished batch of the samples of these numbers, row by row; it may have failed. */
int ps_random_access_read(struct ps_random_access *access, const uint64_t *numbers, uint32_t n,
        struct penstock_batch **ret_batch, struct ps_load_error *err) PS_MUST_USE;
void ps_random_access_give_back(struct penstock_batch *batch);

#endif
