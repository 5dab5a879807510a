#include "config.h"

#include "pipeline/lane.h"

#include <errno.h>

void ps_block_free(struct ps_block *block)
{
	if (!block)
		return;
	for (uint32_t i = block->at; i < block->n; i++)
		ps_sample_free(block->samples[i]);
	free(block);
}

void ps_lane_reset(
        struct ps_lane *lane, uint32_t index, uint64_t epoch, const struct ps_lane_position *position)
{
	while (lane->head) {
		struct ps_block *block = lane->head;

		lane->head = block->next;
		ps_block_free(block);
	}
	ps_shard_free(lane->shard);
	*lane = (struct ps_lane){.index = index, .epoch = epoch};
	if (!position)
		return;
	lane->block = position->block;
	lane->k = position->k;
	lane->resume = *position;
}

/* The next sample of the lane's epoch: 1, or 0 at its end. */
static int sample_next(struct ps_lane *lane, const struct ps_lane_source *source,
        struct ps_sample **ret_sample, struct ps_load_error *err)
{
	for (;;) {
		struct ps_shard_options options = source->options;
		uint32_t shard;
		int r;

		if (lane->shard) {
			r = ps_shard_next(lane->shard, ret_sample, err);
			if (r != 0)
				return r;
			ps_shard_free(ps_steal_ptr(&lane->shard));
		}
		r = ps_order_shard(source->order, lane->epoch, lane->index, lane->k, &shard);
		if (r < 0)
			return ps_load_error_set(err, -r, "no memory for the order of the shards");
		if (r == 0)
			return 0;
		lane->k++;
		options.stream.meter = &lane->meter;
		lane->shard = ps_shard_new(source->shards[shard], shard, &options, err);
		if (!lane->shard)
			return -ENOMEM;
		ps_shard_start_at(lane->shard, lane->resume.ordinal, lane->resume.offset);
		lane->resume.ordinal = lane->resume.offset = 0;
	}
}

/* Puts the n samples of a block in their order. */
static int block_permute(struct ps_block *block, const struct ps_lane *lane, const struct ps_order *order)
{
	ps_autofree uint32_t *from = malloc(PS_MAX(block->n, 1u) * sizeof(*from));
	ps_autofree struct ps_sample **samples = malloc(PS_MAX(block->n, 1u) * sizeof(struct ps_sample *));

	if (!from || !samples)
		return -ENOMEM;
	ps_order_block(order, lane->epoch, lane->index, lane->block, block->n, from);
	for (uint32_t i = 0; i < block->n; i++)
		samples[i] = block->samples[from[i]];
	for (uint32_t i = 0; i < block->n; i++)
		block->samples[i] = samples[i];
	return 0;
}

/* Leaves out what was delivered of a block before the run was interrupted. */
static int block_resume(struct ps_block *block, struct ps_lane *lane, struct ps_load_error *err)
{
	uint32_t taken = lane->resume.taken;

	if (taken > block->n)
		return ps_load_error_set(err, ESTALE,
		        "the shards hold fewer samples than when the state was saved; begin the epoch anew");
	for (; block->at < taken; block->at++)
		ps_sample_free(block->samples[block->at]);
	lane->resume.taken = 0;
	return 0;
}

/* Fills an empty block that has room for `len` samples. */
static int block_fill(struct ps_lane *lane, const struct ps_lane_source *source, uint32_t len,
        struct ps_block *block, struct ps_load_error *err)
{
	int r = 1;

	*block = (struct ps_block){.epoch = lane->epoch, .where = {.block = lane->block}};
	while (r > 0 && block->n < len) {
		struct ps_sample **s = &block->samples[block->n];

		r = sample_next(lane, source, s, err);
		if (r > 0 && block->n++ == 0) {
			block->where.k = lane->k - 1;
			block->where.ordinal = (*s)->ordinal;
			block->where.offset = (*s)->resume_offset;
		}
	}
	if (r < 0)
		return r;
	block->last = r == 0;
	if (block_permute(block, lane, source->order) < 0)
		return ps_load_error_set(err, ENOMEM, "no memory for a block of %u samples", len);
	r = block_resume(block, lane, err);
	lane->block++;
	if (block->last) {
		lane->epoch++;
		lane->block = 0;
		lane->k = 0;
	}
	return r;
}

int ps_lane_fill(struct ps_lane *lane, const struct ps_lane_source *source, struct ps_block **ret_block,
        struct ps_load_error *err)
{
	uint32_t len = ps_order_block_len(source->order);
	struct ps_block *block = malloc(sizeof(*block) + len * sizeof(struct ps_sample *));
	int r;

	if (!block)
		return ps_load_error_set(err, ENOMEM, "no memory for a block of %u samples", len);
	do
		r = block_fill(lane, source, len, block, err);
	while (r == 0 && block->at == block->n && !block->last); /* the run was interrupted just behind it */
	if (r < 0) {
		ps_block_free(block);
		return r;
	}
	*ret_block = block;
	return 0;
}
