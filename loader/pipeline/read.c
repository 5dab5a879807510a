#include "config.h"

#include "pipeline/read.h"

#include <errno.h>

/* A walk over so many samples costs less than finding a place and opening the file there. */
#define WALK_MAX 16

/* The samples of the lane's shard k, by its index. False: it is not known. */
static bool shard_count(const struct ps_lane_source *source, uint32_t shard, uint64_t *ret_count)
{
	return source->indexes && ps_indexes_count(source->indexes, shard, ret_count, NULL) == 0;
}

/* Where sample `ordinal` of a shard begins, by its index; 0: it is not known. */
static uint64_t sample_offset(const struct ps_lane_source *source, uint32_t shard, uint64_t ordinal)
{
	struct ps_index_place place = {0};
	struct ps_index *index;

	if (!source->indexes || ps_indexes_get(source->indexes, shard, &index, NULL) < 0)
		return 0;
	if (ps_index_place(index, ordinal, &place, NULL) < 0)
		place.resume_offset = 0;
	ps_indexes_put(source->indexes, index);
	return place.resume_offset;
}

/* Which shard is the lane's next: 1, or 0 behind the last. */
static int shard_find(struct ps_lane *lane, const struct ps_lane_source *source, uint32_t *ret_shard,
        struct ps_load_error *err)
{
	int r = ps_order_shard(source->order, lane->epoch, lane->index, lane->k, ret_shard, &lane->pass);

	return r < 0 ? ps_load_error_set(err, -r, "no memory for the order of the shards") : r;
}

static int shard_open(
        struct ps_lane *lane, const struct ps_lane_source *source, uint32_t shard, struct ps_load_error *err)
{
	struct ps_shard_options options = source->options;

	options.stream.meter = &lane->meter;
	if (lane->ordinal > 0 && lane->offset == 0)
		lane->offset = sample_offset(source, shard, lane->ordinal);
	lane->shard = ps_shard_new(source->shards[shard], shard, &options, err);
	if (!lane->shard)
		return -ENOMEM;
	lane->number = shard;
	ps_shard_start_at(lane->shard, lane->ordinal, lane->offset);
	lane->offset = 0;
	return 0;
}

/* Goes on to the lane's next shard; `number` is the one that is left behind. */
static int shard_pass_on(struct ps_lane *lane, const struct ps_lane_source *source, uint32_t number,
        bool barren, struct ps_load_error *err)
{
	lane->barren = barren ? lane->barren + 1 : 0;
	lane->k++;
	lane->ordinal = lane->offset = 0;
	if (ps_epochs_options(source->epochs)->repeat != PS_ENDLESS ||
	        lane->barren <= ps_order_pass_len(source->order, lane->index))
		return 0;
	return ps_load_error_set(err, ENODATA,
	        "%s and the other shards of its lane hold no sample, so they cannot be repeated; leave them "
	        "out",
	        source->shards[number]);
}

/* The shard that was open is at its end. */
static int shard_leave(struct ps_lane *lane, const struct ps_lane_source *source, struct ps_load_error *err)
{
	uint64_t count;

	ps_shard_free(ps_steal_ptr(&lane->shard));
	if (lane->info->known && shard_count(source, lane->number, &count) && count != lane->ordinal)
		return ps_load_error_set(err, ESTALE,
		        "%s: it holds %ju samples, but its index says %ju; index it again (penstock-loader "
		        "index)",
		        source->shards[lane->number], (uintmax_t)lane->ordinal, (uintmax_t)count);
	return shard_pass_on(lane, source, lane->number, lane->ordinal == 0, err);
}

/* The sample of a permuted epoch: any of any shard. */
static int permuted_read(struct ps_lane *lane, const struct ps_lane_source *source, bool hold,
        struct ps_sample **ret_sample, struct ps_load_error *err)
{
	uint64_t position = ps_sequence_position(lane->info->sequence, lane->index, lane->at);
	uint32_t shard;
	int r;

	*ret_sample = NULL;
	if (hold) {
		ps_epoch_permuted(lane->info, source->nshards, position, &shard, &lane->ordinal, &lane->pass);
		lane->offset = 0;
		r = shard_open(lane, source, shard, err);
		if (r == 0)
			r = ps_shard_next(lane->shard, ret_sample, err);
		ps_shard_free(ps_steal_ptr(&lane->shard));
		if (r < 0)
			return r;
		if (r == 0 || (*ret_sample)->ordinal != lane->ordinal) {
			ps_sample_free(ps_steal_ptr(ret_sample));
			return ps_load_error_set(err, ESTALE,
			        "%s: it holds fewer samples than its index says; index it again "
			        "(penstock-loader index)",
			        source->shards[shard]);
		}
	}
	lane->at++;
	return 1;
}

int ps_lane_read(struct ps_lane *lane, const struct ps_lane_source *source, bool hold,
        struct ps_sample **ret_sample, struct ps_load_error *err)
{
	if (ps_epochs_options(source->epochs)->mode == PS_ORDER_PERMUTATION)
		return permuted_read(lane, source, hold, ret_sample, err);
	for (;;) {
		uint32_t shard;
		int r;

		if (!lane->shard) {
			r = shard_find(lane, source, &shard, err);
			if (r <= 0)
				return r;
			r = shard_open(lane, source, shard, err);
			if (r < 0)
				return r;
		}
		ps_shard_hold(lane->shard, hold);
		r = ps_shard_next(lane->shard, ret_sample, err);
		if (r < 0)
			return r;
		if (r > 0) {
			lane->ordinal = (*ret_sample)->ordinal + 1;
			lane->at++;
			return 1;
		}
		r = shard_leave(lane, source, err);
		if (r < 0)
			return r;
	}
}

/* Passes over the rest of the lane's shard, or a part of it, without reading it: 1, if its count is known. */
static int shard_pass(
        struct ps_lane *lane, const struct ps_lane_source *source, uint64_t at, struct ps_load_error *err)
{
	uint64_t count, left;
	uint32_t shard;
	int r = shard_find(lane, source, &shard, err);

	if (r <= 0)
		return r;
	if (!shard_count(source, shard, &count) || count < lane->ordinal)
		return 0;
	left = count - lane->ordinal;
	if (left > at - lane->at) { /* it is in this shard */
		if (lane->shard && at - lane->at <= WALK_MAX)
			return 0;
		ps_shard_free(ps_steal_ptr(&lane->shard));
		lane->ordinal += at - lane->at;
		lane->offset = 0;
		lane->at = at;
		return 1;
	}
	ps_shard_free(ps_steal_ptr(&lane->shard));
	lane->at += left;
	r = shard_pass_on(lane, source, shard, count == 0, err);
	return r < 0 ? r : 1;
}

int ps_lane_go(
        struct ps_lane *lane, const struct ps_lane_source *source, uint64_t at, struct ps_load_error *err)
{
	if (ps_epochs_options(source->epochs)->mode == PS_ORDER_PERMUTATION)
		lane->at = PS_MAX(lane->at, at);
	while (lane->at < at) {
		struct ps_sample *s;
		int r = shard_pass(lane, source, at, err);

		if (r < 0)
			return r;
		if (r > 0)
			continue;
		r = ps_lane_read(lane, source, false, &s, err);
		if (r <= 0)
			return r;
		ps_sample_free(s);
	}
	return 0;
}
