#include "config.h"

#include "pipeline/lane.h"

#include <errno.h>
#include <string.h>

#include "pipeline/read.h"

void ps_block_free(struct ps_block *block)
{
	if (!block)
		return;
	for (uint32_t i = block->at; i < block->n; i++)
		ps_sample_free(block->samples[i]);
	free(block);
}

/* Behind the lane's last sample of an epoch. */
static void epoch_leave(struct ps_lane *lane)
{
	lane->epoch++;
	lane->at = lane->k = lane->ordinal = lane->copy = lane->offset = lane->nbytes = lane->from = 0;
	ps_epoch_unref(ps_steal_ptr(&lane->info));
	ps_lane_close(lane);
}

void ps_lane_reset(struct ps_lane *lane, const struct ps_order *order, uint32_t index, uint64_t epoch,
        uint64_t from, const struct ps_lane_position *hint)
{
	while (lane->head) {
		struct ps_block *block = lane->head;

		lane->head = block->next;
		ps_block_free(block);
	}
	ps_lane_close(lane);
	ps_epoch_unref(lane->info);
	*lane = (struct ps_lane){.index = index, .epoch = epoch, .from = from};
	if (!hint)
		return;
	lane->at = ps_order_block_begin(order, hint->block);
	lane->k = hint->k;
	lane->ordinal = hint->ordinal;
	lane->offset = hint->offset;
	lane->copy = hint->copy;
	lane->nbytes = hint->nbytes;
}

void ps_lane_leave(struct ps_lane *lane, uint64_t epoch)
{
	epoch_leave(lane);
	lane->epoch = epoch;
}

static int info_get(struct ps_lane *lane, const struct ps_lane_source *source, struct ps_load_error *err)
{
	return lane->info ? 0 : ps_epochs_get(source->epochs, lane->epoch, &lane->info, err);
}

/* Where the block begins that holds the index-th sample of a lane. */
static uint64_t block_begin(const struct ps_lane_source *source, uint64_t index)
{
	return ps_order_block_begin(source->order, ps_order_block_of(source->order, index));
}

int ps_lane_seek(struct ps_lane *lane, const struct ps_lane_source *source, uint64_t *ret_next,
        struct ps_load_error *err)
{
	uint64_t index;
	int r = info_get(lane, source, err);

	if (r < 0)
		return r;
	index = ps_sequence_next(
	        lane->info->sequence, lane->index, PS_MAX(lane->from, lane->at), &lane->info->share);
	if (index == PS_ENDLESS) {
		epoch_leave(lane);
		return 0;
	}
	*ret_next = block_begin(source, index);
	return 1;
}

/* -- One block ---------------------------------------------------------------------------------------- */

/* What a block is filled with, and how its samples change places. */
struct filling {
	uint32_t n;     /* samples it is to have */
	uint32_t *from; /* place i gets the from[i]-th sample that is read */
	bool *wanted;   /* by the order of reading */
};

static bool place_wanted(const struct ps_lane *lane, uint64_t index)
{
	if (index < lane->from)
		return false;
	return !lane->info->known || ps_share_has(&lane->info->share,
	                                     ps_sequence_position(lane->info->sequence, lane->index, index));
}

/* Which samples are to be held: known before they are read where the places are. */
static int filling_plan(const struct ps_lane *lane, const struct ps_lane_source *source,
        const struct ps_block *block, struct filling *f)
{
	bool early = lane->info->known && !ps_order_buckets(source->order);
	int r;

	for (uint32_t i = 0; i < f->n; i++)
		f->wanted[i] = !early;
	if (!early)
		return 0;
	r = ps_order_block(source->order, lane->epoch, lane->index, block->where.block, f->n, NULL, f->from);
	for (uint32_t i = 0; i < f->n && r == 0; i++)
		f->wanted[f->from[i]] = place_wanted(lane, block->begin + i);
	return r;
}

static uint64_t sample_length(const struct ps_sample *s)
{
	return s->bad ? 0 : s->wanted_nbytes;
}

/* Puts the samples in their order, and drops those that are not wanted. */
static int block_permute(const struct ps_lane *lane, const struct ps_lane_source *source,
        struct ps_block *block, struct filling *f)
{
	ps_autofree struct ps_sample **samples = malloc(PS_MAX(block->n, 1u) * sizeof(*samples));
	ps_autofree uint64_t *nbytes = malloc(PS_MAX(block->n, 1u) * sizeof(*nbytes));

	if (!samples || !nbytes)
		return -ENOMEM;
	for (uint32_t i = 0; i < block->n && ps_order_buckets(source->order); i++)
		nbytes[i] = sample_length(block->samples[i]);
	if (ps_order_block(source->order, lane->epoch, lane->index, block->where.block, block->n, nbytes,
	            f->from) < 0)
		return -ENOMEM;
	memcpy(samples, block->samples, block->n * sizeof(*samples));
	block->left = 0;
	for (uint32_t i = 0; i < block->n; i++) {
		struct ps_sample *s = samples[f->from[i]];

		block->samples[i] = s;
		if (s && !place_wanted(lane, block->begin + i)) {
			ps_sample_free(s);
			block->samples[i] = NULL;
		}
		block->left += block->samples[i] != NULL;
	}
	return 0;
}

/* Of the file of the lane's open shard; 0: not known. */
static uint64_t size_known(const struct ps_lane *lane)
{
	int64_t size = lane->shard ? ps_shard_size(lane->shard) : -1;

	return size > 0 ? (uint64_t)size : 0;
}

/* Reads the samples of a block. 1; 0: the lane's epoch is over with what was read. */
static int block_read(struct ps_lane *lane, const struct ps_lane_source *source, struct ps_block *block,
        const struct filling *f, struct ps_load_error *err)
{
	while (block->n < f->n) {
		struct ps_sample **s = &block->samples[block->n];
		bool wanted = f->wanted[block->n];
		int r;

		r = ps_lane_read(lane, source, wanted, s, err);
		if (r <= 0)
			return r;
		if (block->n++ == 0 && *s)
			block->where = (struct ps_lane_position){.block = block->where.block,
			        .k = lane->k,
			        .ordinal = (*s)->ordinal,
			        .offset = (*s)->resume_offset,
			        .copy = (*s)->draw & UINT16_MAX,
			        .nbytes = size_known(lane)};
		if (!wanted)
			ps_sample_free(ps_steal_ptr(s));
	}
	return 1;
}

/* Samples of the block that begins at lane->at: fewer are in it where the lane ends. */
static uint32_t block_room(const struct ps_lane *lane, const struct ps_lane_source *source)
{
	uint64_t next = ps_order_block_of(source->order, lane->at) + 1;

	return (uint32_t)(ps_order_block_begin(source->order, next) - lane->at);
}

/* Fills an empty block with the samples from lane->at on, `n` at most. */
static int block_fill(struct ps_lane *lane, const struct ps_lane_source *source, uint32_t n,
        struct ps_block *block, struct ps_load_error *err)
{
	ps_autofree uint32_t *from = malloc(n * sizeof(*from));
	ps_autofree bool *wanted = malloc(n * sizeof(*wanted));
	struct filling f = {.n = n, .from = from, .wanted = wanted};
	int r;

	*block = (struct ps_block){.epoch = lane->epoch,
	        .begin = lane->at,
	        .where = {.block = ps_order_block_of(source->order, lane->at)}};
	if (!from || !wanted || filling_plan(lane, source, block, &f) < 0)
		return ps_load_error_set(err, ENOMEM, "no memory for a block of %u samples", n);
	r = block_read(lane, source, block, &f, err);
	if (r < 0)
		return r;
	block->last = r == 0;
	if (block->last && lane->info->known)
		return ps_load_error_set(err, ESTALE,
		        "the shards hold fewer samples than their indexes say; index them again "
		        "(penstock-loader index)");
	if (block->last && lane->from > lane->at)
		return ps_load_error_set(err, ESTALE,
		        "a lane holds fewer samples than the state says: the shards are others now, or other "
		        "ranks' lanes had begun to end when it was saved; begin the epoch anew");
	if (block_permute(lane, source, block, &f) < 0)
		return ps_load_error_set(err, ENOMEM, "no memory for a block of %u samples", n);
	while (block->at < block->n && !block->samples[block->at])
		block->at++;
	return 0;
}

int ps_lane_fill(struct ps_lane *lane, const struct ps_lane_source *source, struct ps_block **ret_block,
        struct ps_load_error *err)
{
	uint32_t len = ps_order_block_len(source->order), n = 0;
	struct ps_block *block = malloc(sizeof(*block) + len * sizeof(struct ps_sample *));
	int r = block ? info_get(lane, source, err)
	              : ps_load_error_set(err, ENOMEM, "no memory for a block of %u samples", len);

	if (r == 0) {
		block->at = block->n = 0;
		r = ps_lane_go(
		        lane, source, lane->info->known ? lane->next : block_begin(source, lane->from), err);
	}
	if (r == 0)
		n = block_room(lane, source);
	if (r == 0 && lane->info->known)
		n = (uint32_t)PS_MIN(n, lane->info->lengths[lane->index] - lane->at);
	if (r == 0)
		r = block_fill(lane, source, n, block, err);
	if (r < 0) {
		ps_block_free(block);
		return r;
	}
	if (block->last)
		epoch_leave(lane);
	*ret_block = block;
	return 0;
}
