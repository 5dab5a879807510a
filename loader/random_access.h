/* Samples by number: each sample is read from its place in its shard. The samples are decoded on the
 * calling thread into a batch of their own.
 *
 * Ownership: a ps_random_access belongs to its creator and borrows its options; its batches belong to the
 * caller, and must be given back (ps_random_access_give_back()) before the layout is freed. Threads: one at
 * a time.   Locks: none.   Blocks: on the disk, and while it decodes. Errors: -ENODATA: a shard has no
 * index (the text names the shard); -ERANGE: no sample has that number; -ESTALE: the shard differs from its
 * index; -ENOMEM. A bad sample is not an error: its row is marked bad. */
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
	uint64_t seed, epoch;            /* for random numbers */
	uint64_t max_ragged_nbytes;
};

struct ps_random_access;

int ps_random_access_new(const struct ps_random_access_options *options, struct ps_random_access **ret_access,
        struct ps_error *err) PS_MUST_USE;
void ps_random_access_free(struct ps_random_access *access); /* NULL is allowed */

/* Returns a finished batch, whose row i is the sample numbers[i]. The batch may have failed. */
int ps_random_access_read(struct ps_random_access *access, const uint64_t *numbers, uint32_t n,
        struct penstock_batch **ret_batch, struct ps_error *err) PS_MUST_USE;
void ps_random_access_give_back(struct penstock_batch *batch);

#endif
