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
	r = ps_deal_next(lane->info->deal, lane->index, PS_MAX(lane->from, lane->at), &index);
	if (r < 0)
		return ps_load_error_set(err, ENOMEM, "out of memory");
	if (r == PS_DEAL_FOUND && lane->info->numbers) {
		uint64_t at = ps_sequence_position(lane->info->sequence, lane->index, index);

		if (ps_epoch_is_hole(lane->info, at)) {
			lane->from = index + 1;
			return 0;
		}
	}
	if (r == PS_DEAL_FOUND) {
		*ret_next = block_begin(source, index);
		return 1;
	}
	if (r == PS_DEAL_LATER)
		lane->from = index;
	else
		epoch_leave(lane);
	return 0;
}

/* -- One block ---------------------------------------------------------------------------------------- */

/* What a block is filled with, and how its samples change places. */
struct filling {
	uint32_t n;     /* samples it is to have */
	uint32_t *from; /* place i gets the from[i]-th sample that is read */
	bool *held;     /* by the order of reading: it is wanted, or may be */
	bool *wanted;   /* by place */
};

/* Which samples are wanted, and to be held: where places depend on lengths, all are. */
static int filling_plan(const struct ps_lane *lane, const struct ps_lane_source *source,
        const struct ps_block *block, struct filling *f)
{
	int r = 0;

	for (uint32_t i = 0; i < f->n; i++) {
		f->held[i] = true;
		f->wanted[i] = block->begin + i >= lane->from;
	}
	if (!lane->info->known)
		return 0;
	r = ps_deal_wanted(lane->info->deal, lane->index, block->begin, f->n, f->wanted);
	for (uint32_t i = 0; i < f->n; i++)
		f->wanted[i] = f->wanted[i] && block->begin + i >= lane->from;
	if (r < 0 || ps_order_buckets(source->order))
		return r;
	r = ps_order_block(source->order, lane->epoch, lane->index, block->where.block, f->n, NULL, f->from);
	for (uint32_t i = 0; i < f->n && r == 0; i++)
		f->held[f->from[i]] = f->wanted[i];
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
		if (s && !f->wanted[i]) {
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

/* So many samples of a block, from its `at` on, that are not held: all of the rest, or more than it costs to find
 * a place. 0: the next one is to be read. */
static uint32_t run_unheld(const struct filling *f, uint32_t at)
{
	uint32_t n = 0;

	while (at + n < f->n && !f->held[at + n])
		n++;
	return at + n == f->n || n > PS_LANE_WALK_MAX ? n : 0;
}

/* Reads the samples of a block, and none behind the last that is held. 1; 0: the lane's epoch is over with what was
 * read. */
static int block_read(struct ps_lane *lane, const struct ps_lane_source *source, struct ps_block *block,
        const struct filling *f, struct ps_load_error *err)
{
	block->where.k = lane->k;
	block->where.ordinal = lane->ordinal;
	block->where.offset = lane->offset;
	block->where.copy = (uint32_t)lane->copy;
	while (block->n < f->n) {
		struct ps_sample **s = &block->samples[block->n];
		bool held = f->held[block->n];
		uint32_t run = held ? 0 : run_unheld(f, block->n);
		int r;

		if (run > 0) {
			memset(s, 0, run * sizeof(*s));
			block->n += run;
			r = block->n == f->n ? 0 : ps_lane_go(lane, source, block->begin + block->n, err);
			if (r < 0)
				return r;
			continue;
		}
		r = ps_lane_read(lane, source, held, s, err);
		if (r <= 0)
			return r;
		if (block->n++ == 0 && *s)
			block->where = (struct ps_lane_position){.block = block->where.block,
			        .k = lane->k,
			        .ordinal = (*s)->ordinal,
			        .offset = (*s)->resume_offset,
			        .copy = (*s)->draw & UINT16_MAX,
			        .nbytes = size_known(lane)};
		if (!held)
			ps_sample_free(ps_steal_ptr(s));
	}
	lane->from = PS_MAX(lane->from, block->begin + block->n); /* the rest of it may not have been read */
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
	ps_autofree bool *wanted = malloc(2 * (size_t)n * sizeof(*wanted));
	struct filling f = {.n = n, .from = from, .wanted = wanted, .held = wanted ? wanted + n : NULL};
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
	else
		r = ps_lane_rest(lane, source, err);
	if (r < 0) {
		ps_block_free(block);
		return r;
	}
	*ret_block = block;
	return 0;
}
