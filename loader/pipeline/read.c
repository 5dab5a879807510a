#include "config.h"

#include "pipeline/read.h"

#include <errno.h>

/* How many samples a shard gives in this pass, by its index. False: it is not known. */
static bool shard_count(
        const struct ps_lane *lane, const struct ps_lane_source *source, uint32_t shard, uint64_t *ret_count)
{
	const struct ps_counts_ops *counts = &ps_epochs_options(source->epochs)->counts;

	return counts->count &&
	       counts->count(counts->ctx, lane->epoch, lane->pass, shard, ret_count, NULL) == 0;
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

/* An index that is a copy in memory is held by each lane; a larger one is not: then the count is compared,
 * at the shard's end, and no header. */
#define CHECK_MAX_NBYTES (4UL << 20)

/* Where an index decided what is read of a shard, the shard is compared with it. One that cannot be had now
 * is none: the counts are compared in any case. */
static void check_begin(struct ps_lane *lane, const struct ps_lane_source *source, uint32_t shard, bool asked)
{
	if (!source->indexes || !(asked || source->select || (lane->info && lane->info->known)) ||
	        ps_indexes_get(source->indexes, shard, &lane->check, NULL) < 0)
		return;
	lane->check_of = source->indexes;
	if (ps_index_held(lane->check) > CHECK_MAX_NBYTES)
		ps_indexes_put(source->indexes, ps_steal_ptr(&lane->check));
}

static int shard_open(
        struct ps_lane *lane, const struct ps_lane_source *source, uint32_t shard, struct ps_load_error *err)
{
	struct ps_shard_options options = source->options;
	bool asked = lane->ordinal > 0 && lane->offset == 0;

	options.stream.meter = &lane->meter;
	if (source->select) {
		int r = ps_select_open(source->select, shard, lane->epoch, lane->pass, &lane->view, err);

		if (r < 0)
			return r;
	}
	if (asked)
		lane->offset = sample_offset(source, shard, lane->ordinal);
	check_begin(lane, source, shard, asked);
	options.check = lane->check;
	lane->shard = ps_shard_new(source->shards[shard], shard, &options, err);
	if (!lane->shard)
		return -ENOMEM;
	lane->files = source->files;
	if (lane->files)
		atomic_fetch_add(&lane->files->n, 1);
	if (lane->begun.writer && lane->number != shard)
		ps_index_writer_free(ps_steal_ptr(&lane->begun.writer));
	lane->number = shard;
	lane->gave = lane->ordinal > 0 || lane->copy > 0; /* or so it seems: it may have been closed meanwhile */
	ps_shard_start_at(lane->shard, lane->ordinal, lane->offset);
	if (lane->begun.writer)
		ps_shard_byproduct_give(lane->shard, &lane->begun);
	lane->offset = 0;
	return 0;
}

void ps_lane_close(struct ps_lane *lane)
{
	if (lane->shard && lane->files)
		atomic_fetch_sub(&lane->files->n, 1);
	ps_shard_free(ps_steal_ptr(&lane->shard));
	ps_index_writer_free(ps_steal_ptr(&lane->begun.writer));
	if (lane->check)
		ps_indexes_put(lane->check_of, ps_steal_ptr(&lane->check));
	ps_select_close(ps_steal_ptr(&lane->view));
	ps_sample_free(ps_steal_ptr(&lane->drawn));
}

/* So many shards behind each other that give nothing are all that there is, where shards are repeated. */
static uint64_t barren_most(const struct ps_lane_source *source)
{
	return 1000 + 4 * (uint64_t)source->nshards;
}

/* Goes on to the lane's next shard; `number` is the one that is left behind. */
static int shard_pass_on(struct ps_lane *lane, const struct ps_lane_source *source, uint32_t number,
        bool barren, struct ps_load_error *err)
{
	lane->barren = barren ? lane->barren + 1 : 0;
	lane->k++;
	lane->ordinal = lane->offset = lane->copy = lane->nbytes = 0;
	if (lane->barren <= barren_most(source) || !lane->info->known ||
	        lane->info->lengths[lane->index] != PS_ENDLESS)
		return 0;
	return ps_load_error_set(err, ENODATA,
	        "%s and the other shards of its lane give no sample, so they cannot be repeated; leave them "
	        "out",
	        source->shards[number]);
}

/* The shard that was open is at its end. */
static int shard_leave(struct ps_lane *lane, const struct ps_lane_source *source, struct ps_load_error *err)
{
	uint64_t count;

	ps_lane_close(lane);
	if (lane->info->known && source->indexes &&
	        ps_indexes_count(source->indexes, lane->number, &count, NULL) == 0 && count != lane->ordinal)
		return ps_load_error_set(err, ESTALE,
		        "%s: it holds %ju samples, but its index says %ju; index it again (penstock-loader "
		        "index)",
		        source->shards[lane->number], (uintmax_t)lane->ordinal, (uintmax_t)count);
	return shard_pass_on(lane, source, lane->number, !lane->gave, err);
}

int ps_lane_rest(struct ps_lane *lane, const struct ps_lane_source *source, struct ps_load_error *err)
{
	const struct ps_open_files *files = source->files;
	struct ps_shard_byproduct begun;
	struct ps_sample *none;
	uint64_t offset;
	int64_t size;
	int r;

	if (!lane->shard || lane->drawn || !files || atomic_load(&files->n) <= files->most)
		return 0;
	switch (ps_shard_rest(lane->shard, &offset)) {
	case PS_SHARD_OVER:
		r = ps_shard_next(lane->shard, &none, err); /* what it does at its end */
		return r < 0 ? r : shard_leave(lane, source, err);
	case PS_SHARD_RESTS:
		size = ps_shard_size(lane->shard);
		ps_shard_byproduct_take(lane->shard, &begun);
		ps_lane_close(lane);
		lane->begun = begun;
		lane->offset = offset;
		lane->nbytes = size > 0 ? (uint64_t)size : 0;
		return 0;
	default:
		return 0;
	}
}

/* How often the sample `ordinal` of the open shard comes. One that the index does not know comes once:
 * reading it says what is wrong. */
static int times_find(struct ps_lane *lane, struct ps_load_error *err)
{
	if (!lane->view || lane->ordinal >= ps_select_samples(lane->view))
		return 1;
	return ps_select_times(lane->view, lane->ordinal, err);
}

/* The sample `ordinal` of the open shard: 1, or 0 at its end. The first that is read after a resume says
 * whether the shard is the one that the state is of. */
static int raw_read(struct ps_lane *lane, const char *path, bool hold, struct ps_sample **ret_sample,
        struct ps_load_error *err)
{
	uint64_t nbytes = lane->nbytes;
	int64_t size;
	int r;

	lane->nbytes = 0;
	ps_shard_hold(lane->shard, hold);
	r = ps_shard_next(lane->shard, ret_sample, err);
	size = ps_shard_size(lane->shard);
	if (r < 0 || nbytes == 0 || size < 0 || (uint64_t)size == nbytes)
		return r;
	if (r > 0)
		ps_sample_free(ps_steal_ptr(ret_sample));
	return ps_load_error_set(err, ESTALE,
	        "%s: has %ju bytes, but had %ju when the state was saved; give the shards of that run, or "
	        "begin the epoch again",
	        path, (uintmax_t)size, (uintmax_t)nbytes);
}

/* The copy that comes next of a sample that comes `times` times; it was read for the first one of them. */
static int drawing_give(struct ps_lane *lane, const char *path, uint32_t times, bool hold,
        struct ps_sample **ret_sample, struct ps_load_error *err)
{
	uint32_t copy = (uint32_t)lane->copy;
	int r = 1;

	if (!lane->drawn)
		r = raw_read(lane, path, hold || times > 1, &lane->drawn, err);
	if (r <= 0)
		return r;
	if (copy + 1 < times) {
		*ret_sample = ps_sample_copy(lane->drawn);
		if (!*ret_sample)
			return ps_load_error_set(err, ENOMEM, "out of memory");
	} else {
		*ret_sample = ps_steal_ptr(&lane->drawn);
	}
	(*ret_sample)->draw = (uint32_t)lane->pass << 16 | copy;
	if (++lane->copy == times) {
		lane->copy = 0;
		lane->ordinal++;
	}
	lane->gave = true;
	lane->at++;
	return 1;
}

/* The sample of a permuted epoch: any of any shard. */
static int permuted_read(struct ps_lane *lane, const struct ps_lane_source *source, bool hold,
        struct ps_sample **ret_sample, struct ps_load_error *err)
{
	uint64_t position = ps_sequence_position(lane->info->sequence, lane->index, lane->at), number;
	bool drawn = source->select && ps_select_is_exact(source->select);
	bool may_repeat = lane->info->numbers || drawn;
	uint32_t shard, copy = 0;
	int r;

	*ret_sample = NULL;
	lane->at++;
	if (!hold)
		return 1;
	ps_epoch_permuted(lane->info, source->nshards, position, &shard, &number, &lane->pass);
	lane->ordinal = lane->offset = 0;
	if (drawn) {
		r = ps_select_draw(source->select, lane->epoch, position, &shard, &lane->ordinal, err);
		if (r < 0)
			return r;
	} else if (source->select) {
		struct ps_select_view *view;

		r = ps_select_open(source->select, shard, lane->epoch, 0, &view, err);
		if (r == 0)
			r = ps_select_skip(view, &lane->ordinal, &copy, number, err);
		while (r == 0 && (r = ps_select_times(view, lane->ordinal, err)) == 0)
			lane->ordinal++;
		ps_select_close(view);
		if (r < 0)
			return r;
	} else {
		lane->ordinal = number;
	}
	r = shard_open(lane, source, shard, err);
	if (r == 0)
		r = ps_shard_next(lane->shard, ret_sample, err);
	ps_lane_close(lane);
	if (r < 0)
		return r;
	if (r == 0 || (*ret_sample)->ordinal != lane->ordinal) {
		ps_sample_free(ps_steal_ptr(ret_sample));
		return ps_load_error_set(err, ESTALE,
		        "%s: it holds fewer samples than its index says; index it again (penstock-loader "
		        "index)",
		        source->shards[shard]);
	}
	/* a sample that comes again is drawn again: where it stands says for which time */
	(*ret_sample)->draw = may_repeat ? (uint32_t)position : (uint32_t)lane->pass << 16 | copy;
	return 1;
}

int ps_lane_read(struct ps_lane *lane, const struct ps_lane_source *source, bool hold,
        struct ps_sample **ret_sample, struct ps_load_error *err)
{
	if (ps_order_mode_scatters(ps_epochs_options(source->epochs)->mode))
		return permuted_read(lane, source, hold, ret_sample, err);
	for (;;) {
		struct ps_sample *passed;
		uint32_t shard;
		int r = 0, times;

		if (!lane->shard) {
			r = shard_find(lane, source, &shard, err);
			if (r <= 0)
				return r;
			r = shard_open(lane, source, shard, err);
			if (r < 0)
				return r;
		}
		times = times_find(lane, err);
		if (times < 0)
			return times;
		if (lane->copy < (uint64_t)times) {
			r = drawing_give(
			        lane, source->shards[lane->number], (uint32_t)times, hold, ret_sample, err);
			if (r != 0)
				return r;
		} else if (!lane->drawn) {
			r = raw_read(lane, source->shards[lane->number], false, &passed, err);
			if (r > 0) {
				ps_sample_free(passed);
				lane->ordinal++;
				lane->copy = 0;
			}
		}
		if (r == 0)
			r = shard_leave(lane, source, err);
		if (r < 0)
			return r;
	}
}

/* Moves n samples on in the lane's shard, which has more. */
static int shard_go(struct ps_lane *lane, const struct ps_lane_source *source, uint32_t shard, uint64_t n,
        struct ps_load_error *err)
{
	struct ps_select_view *view;
	uint32_t copy = (uint32_t)lane->copy;
	int r;

	ps_lane_close(lane);
	lane->offset = 0;
	lane->at += n;
	if (!source->select) {
		lane->ordinal += n;
		return 0;
	}
	r = ps_select_open(source->select, shard, lane->epoch, lane->pass, &view, err);
	if (r == 0)
		r = ps_select_skip(view, &lane->ordinal, &copy, n, err);
	lane->copy = copy;
	ps_select_close(view);
	return r;
}

/* How many samples the lane's shard still gives, from where the lane stands: 1; 0: it is not known. */
static int shard_left(struct ps_lane *lane, const struct ps_lane_source *source, uint32_t shard,
        uint64_t *ret_left, struct ps_load_error *err)
{
	struct ps_select_view *view;
	uint64_t count;
	int r;

	if (!shard_count(lane, source, shard, &count))
		return 0;
	if (!source->select) {
		*ret_left = count - lane->ordinal;
		return count >= lane->ordinal;
	}
	r = ps_select_open(source->select, shard, lane->epoch, lane->pass, &view, err);
	if (r == 0)
		r = ps_select_count(view, lane->ordinal, (uint32_t)lane->copy, ret_left, err);
	ps_select_close(view);
	return r < 0 ? r : 1;
}

/* Passes over the rest of the lane's shard, or a part of it, without reading it: 1, if its count is known. */
static int shard_pass(
        struct ps_lane *lane, const struct ps_lane_source *source, uint64_t at, struct ps_load_error *err)
{
	uint64_t left;
	uint32_t shard;
	int r = shard_find(lane, source, &shard, err);

	if (r <= 0)
		return r;
	if (lane->shard && at - lane->at <= PS_LANE_WALK_MAX)
		return 0;
	r = shard_left(lane, source, shard, &left, err);
	if (r <= 0)
		return r;
	if (left > at - lane->at)
		r = shard_go(lane, source, shard, at - lane->at, err);
	else {
		bool barren = left == 0 && lane->ordinal == 0;

		ps_lane_close(lane);
		lane->at += left;
		r = shard_pass_on(lane, source, shard, barren, err);
	}
	return r < 0 ? r : 1;
}

int ps_lane_go(
        struct ps_lane *lane, const struct ps_lane_source *source, uint64_t at, struct ps_load_error *err)
{
	if (ps_order_mode_scatters(ps_epochs_options(source->epochs)->mode))
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
