/* The samples of a lane, for tools and tests that analyse orders. */
#ifndef PS_TESTS_LOADER_ORDER_SAMPLES_H
#define PS_TESTS_LOADER_ORDER_SAMPLES_H

#include <errno.h>
#include <string.h>

#include "order/order.h"

struct order_sample {
	uint32_t shard; /* its place in the list */
	uint32_t ordinal;
};

/* Permutes the samples of one block. */
static int samples_permute(const struct ps_order *order, uint64_t epoch, uint32_t lane, uint64_t block,
        uint32_t n, struct order_sample *v)
{
	ps_autofree uint32_t *from = malloc(n * sizeof(*from));
	ps_autofree struct order_sample *was = malloc(n * sizeof(*was));

	if (!from || !was || ps_order_block(order, epoch, lane, block, n, NULL, from) < 0)
		return -ENOMEM;
	memcpy(was, v, n * sizeof(*v));
	for (uint32_t i = 0; i < n; i++)
		v[i] = was[from[i]];
	return 0;
}

/* All samples of a lane's epoch in their order, computed from the counts of all shards. Not with `bucket` or
 * PS_ENDLESS. ret_samples: room for all of them. -ENOMEM. */
static int order_samples(struct ps_order *order, uint64_t epoch, uint32_t lane, const uint32_t *counts,
        struct order_sample *ret_samples, uint64_t *ret_n)
{
	uint64_t n = 0, pass;
	uint32_t shard;
	int rc = 0;

	for (uint64_t k = 0; (rc = ps_order_shard(order, epoch, lane, k, &shard, &pass)) == 1; k++)
		for (uint32_t i = 0; i < counts[shard]; i++)
			ret_samples[n++] = (struct order_sample){.shard = shard, .ordinal = i};
	for (uint64_t b = 0; rc == 0 && ps_order_block_begin(order, epoch, b) < n; b++) {
		uint64_t begin = ps_order_block_begin(order, epoch, b);
		uint64_t end = PS_MIN(n, ps_order_block_begin(order, epoch, b + 1));

		rc = samples_permute(order, epoch, lane, b, (uint32_t)(end - begin), ret_samples + begin);
	}
	*ret_n = n;
	return rc;
}

#endif
