#include "config.h"

#include "pipeline/core.h"

#include <errno.h>
#include <string.h>

/* A lane's samples --------------------------------------------------------------------------------------- */

/* A lane's samples in sequence: opens the shards in their order. If a shard was closed before its end,
 * reading continues at the same position. */

/* Up to this many samples are skipped by reading over them: that costs less than finding the target's
 * offset and opening the file there. */
#define WALK_MAX 16

/* The offset of sample `ordinal` of a shard, from its index; 0: not known. */
static uint64_t sample_offset(const struct ps_lane_source *source, uint32_t shard, uint64_t ordinal)
{
	struct ps_shard_index_place place = {0};
	struct ps_shard_index *index;

	if (!source->indexes || ps_shard_indexes_get(source->indexes, shard, &index, NULL) < 0)
		return 0;
	if (ps_shard_index_place(index, ordinal, &place, NULL, NULL) < 0)
		place.resume_offset = 0;
	ps_shard_indexes_put(source->indexes, index);
	return place.resume_offset;
}

/* Finds the lane's next shard: 1; 0: after the last. */
static int shard_find(
        struct ps_lane *lane, const struct ps_lane_source *source, uint32_t *ret_shard, struct ps_error *err)
{
	int rc = ps_order_shard(source->order, lane->epoch, lane->index, lane->k, ret_shard, &lane->pass);

	return rc < 0 ? ps_error_set(err, -rc, "no memory for the order of the shards") : rc;
}

/* The largest index that a lane holds as a copy in memory, where it is not mapped. With a larger one only the
 * count is compared, at the shard's end. */
#define CHECK_MAX_NBYTES (4UL << 20)

static int shard_open(
        struct ps_lane *lane, const struct ps_lane_source *source, uint32_t shard, struct ps_error *err)
{
	struct ps_shard_options options = source->options;
	bool asked = lane->ordinal > 0 && lane->offset == 0;

	options.stream.meter = &lane->meter;
	options.stretch = shard;
	options.epoch = lane->epoch;
	options.pass = lane->pass;
	options.single = ps_order_mode_scatters(ps_epochs_options(source->epochs)->mode);
	if (source->select) {
		int rc = ps_select_open(source->select, shard, lane->epoch, lane->pass, &lane->view, err);

		if (rc < 0)
			return rc;
	}
	if (asked && !options.packing)
		lane->offset = sample_offset(source, shard, lane->ordinal);
	/* If an index decided what is read of the shard, the shard is compared with it. If the index cannot be
	 * opened now, only the counts are compared. */
	if (source->indexes && !options.packing &&
	        (asked || source->select || (lane->info && lane->info->known)) &&
	        ps_shard_indexes_get(source->indexes, shard, &lane->check, NULL) == 0) {
		lane->check_of = source->indexes;
		if (ps_shard_index_held(lane->check) > CHECK_MAX_NBYTES)
			ps_shard_indexes_put(source->indexes, ps_steal_ptr(&lane->check));
	}
	options.check = lane->check;
	lane->shard = ps_shard_new(source->shards[shard],
	        options.packing ? options.packing->stretches[shard].file : shard, &options, err);
	if (!lane->shard)
		return -ENOMEM;
	lane->files = source->files;
	if (lane->files)
		atomic_fetch_add(&lane->files->n, 1);
	lane->number = shard;
	/* estimated from the position: the shard may have given samples before it was closed */
	lane->gave = lane->ordinal > 0 || lane->copy > 0;
	ps_shard_start_at(lane->shard, lane->ordinal, lane->offset);
	lane->offset = 0;
	return 0;
}

/* Closes the lane's shard. The lane's position is kept. */
static void lane_close(struct ps_lane *lane)
{
	if (lane->shard && lane->files)
		atomic_fetch_sub(&lane->files->n, 1);
	ps_shard_free(ps_steal_ptr(&lane->shard));
	if (lane->check)
		ps_shard_indexes_put(lane->check_of, ps_steal_ptr(&lane->check));
	ps_select_close(ps_steal_ptr(&lane->view));
	ps_sample_free(ps_steal_ptr(&lane->drawn));
}

/* If shards are repeated: after this many consecutive shards without a sample, all shards are assumed to be
 * empty. */
#define EMPTY_MOST(source) (1000 + 4 * (uint64_t)(source)->nshards)

/* Moves to the lane's next shard; `number` is the shard that it leaves. */
static int shard_pass_on(struct ps_lane *lane, const struct ps_lane_source *source, uint32_t number,
        bool empty, struct ps_error *err)
{
	lane->empty = empty ? lane->empty + 1 : 0;
	lane->k++;
	lane->ordinal = lane->offset = lane->copy = lane->nbytes = 0;
	if (lane->empty <= EMPTY_MOST(source) || !lane->info->known ||
	        lane->info->lengths[lane->index] != PS_ENDLESS)
		return 0;
	return ps_error_set(err, ENODATA,
	        "%s and the other shards of its lane give no sample, so they cannot be repeated; leave them "
	        "out",
	        source->shards[number]);
}

/* Closes the open shard at its end, and moves to the next one. */
static int shard_leave(struct ps_lane *lane, const struct ps_lane_source *source, struct ps_error *err)
{
	uint64_t count;

	lane_close(lane);
	if (lane->info->known && source->indexes &&
	        ps_shard_indexes_count(source->indexes, lane->number, &count, NULL) == 0 &&
	        count != lane->ordinal)
		return ps_error_set(err, ESTALE, "%s: it holds %ju samples, but its %s says %ju%s",
		        source->shards[lane->number], (uintmax_t)lane->ordinal,
		        source->options.columns ? "source" : "index", (uintmax_t)count,
		        source->options.columns ? "" : "; index it again (penstock-loader index)");
	return shard_pass_on(lane, source, lane->number, !lane->gave, err);
}

/* Closes the lane's shard if too many are open; reading continues later at the same place. A shard that
 * cannot be opened in the middle stays open. */
static int lane_rest(struct ps_lane *lane, const struct ps_lane_source *source, struct ps_error *err)
{
	const struct ps_open_files *files = source->files;
	struct ps_sample *none;
	uint64_t offset;
	int64_t size;
	int rc;

	if (!lane->shard || lane->drawn || !files || atomic_load(&files->n) <= files->most)
		return 0;
	switch (ps_shard_rest(lane->shard, &offset)) {
	case PS_SHARD_OVER:
		rc = ps_shard_next(lane->shard, &none, err); /* at the end this checks the shard */
		return rc < 0 ? rc : shard_leave(lane, source, err);
	case PS_SHARD_RESTS:
		size = ps_shard_size(lane->shard);
		lane_close(lane);
		lane->offset = offset;
		lane->nbytes = size > 0 ? (uint64_t)size : 0;
		return 0;
	default:
		return 0;
	}
}

/* Reads the sample `ordinal` of the open shard: 1, or 0 at its end. The first read after a resume compares
 * the file's size with that in the state; the first read of a shard that was closed before its end, with the
 * size at that time. */
static int raw_read(struct ps_lane *lane, const char *path, bool hold, struct ps_sample **ret_sample,
        struct ps_error *err)
{
	uint64_t nbytes = lane->nbytes;
	int64_t size;
	int rc;

	lane->nbytes = 0;
	ps_shard_hold(lane->shard, hold);
	rc = ps_shard_next(lane->shard, ret_sample, err);
	size = ps_shard_size(lane->shard);
	if (rc < 0 || nbytes == 0 || size < 0 || (uint64_t)size == nbytes)
		return rc;
	if (rc > 0)
		ps_sample_free(ps_steal_ptr(ret_sample));
	return ps_error_set(err, ESTALE,
	        "%s: has %ju bytes, but had %ju when it was last open, or when the state was saved; give the "
	        "shards of that run, or restart the epoch",
	        path, (uintmax_t)size, (uintmax_t)nbytes);
}

/* Returns the next copy of a sample that is drawn `times` times. The sample is read for the first copy. */
static int drawing_give(struct ps_lane *lane, const char *path, uint32_t times, bool hold,
        struct ps_sample **ret_sample, struct ps_error *err)
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
			return ps_no_memory(err);
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

/* Reads the next sample of a permuted epoch, which may be in any shard. */
static int permuted_read(struct ps_lane *lane, const struct ps_lane_source *source, bool hold,
        struct ps_sample **ret_sample, struct ps_error *err)
{
	uint64_t position = ps_sequence_position(lane->info->sequence, lane->index, lane->at), number;
	bool drawn = source->select && ps_select_is_exact(source->select);
	bool may_repeat = lane->info->numbers || drawn;
	uint32_t shard, copy = 0;
	int rc;

	*ret_sample = NULL;
	lane->at++;
	if (!hold)
		return 1;
	ps_epoch_permuted(lane->info, source->nshards, position, &shard, &number, &lane->pass);
	lane->ordinal = lane->offset = 0;
	if (drawn) {
		rc = ps_select_draw(source->select, lane->epoch, position, &shard, &lane->ordinal, err);
		if (rc < 0)
			return rc;
	} else if (source->select) {
		struct ps_select_view *view;

		rc = ps_select_open(source->select, shard, lane->epoch, 0, &view, err);
		if (rc == 0)
			rc = ps_select_skip(view, &lane->ordinal, &copy, number, err);
		while (rc == 0 && (rc = ps_select_times(view, lane->ordinal, err)) == 0)
			lane->ordinal++;
		ps_select_close(view);
		if (rc < 0)
			return rc;
	} else {
		lane->ordinal = number;
	}
	rc = shard_open(lane, source, shard, err);
	if (rc == 0)
		rc = ps_shard_next(lane->shard, ret_sample, err);
	lane_close(lane);
	if (rc < 0)
		return rc;
	if (rc == 0)
		return ps_error_set(err, ESTALE,
		        "%s: it holds fewer samples than its index says; index it again (penstock-loader "
		        "index)",
		        source->shards[shard]);
	/* each copy of a sample has its own random numbers: the position is the draw */
	(*ret_sample)->draw = may_repeat ? (uint32_t)position : (uint32_t)lane->pass << 16 | copy;
	return 1;
}

/* Reads the sample at lane->at: 1, or 0 at the end of the lane's epoch. `hold`: the sample with its bytes;
 * without `hold` *ret_sample may be NULL. */
static int lane_read(struct ps_lane *lane, const struct ps_lane_source *source, bool hold,
        struct ps_sample **ret_sample, struct ps_error *err)
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
		/* A sample that is not in the index counts once: reading it reports the difference. */
		times = lane->view && lane->ordinal < ps_select_samples(lane->view)
		                ? ps_select_times(lane->view, lane->ordinal, err)
		                : 1;
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

/* Moves n samples forward in the lane's shard, which has more than n left. */
static int shard_go(struct ps_lane *lane, const struct ps_lane_source *source, uint32_t shard, uint64_t n,
        struct ps_error *err)
{
	struct ps_select_view *view;
	uint32_t copy = (uint32_t)lane->copy;
	int rc;

	lane_close(lane);
	lane->offset = 0;
	lane->at += n;
	if (!source->select) {
		lane->ordinal += n;
		return 0;
	}
	rc = ps_select_open(source->select, shard, lane->epoch, lane->pass, &view, err);
	if (rc == 0)
		rc = ps_select_skip(view, &lane->ordinal, &copy, n, err);
	lane->copy = copy;
	ps_select_close(view);
	return rc;
}

/* Finds how many samples the lane's shard still gives, from the lane's position on. 1: found; 0: not
 * known. */
static int shard_left(struct ps_lane *lane, const struct ps_lane_source *source, uint32_t shard,
        uint64_t *ret_left, struct ps_error *err)
{
	const struct ps_counts_ops *counts = &ps_epochs_options(source->epochs)->counts;
	struct ps_select_view *view;
	uint64_t count;
	int rc;

	if (!counts->count || counts->count(counts->ctx, lane->epoch, lane->pass, shard, &count, NULL) != 0)
		return 0;
	if (!source->select) {
		*ret_left = count - lane->ordinal;
		return count >= lane->ordinal;
	}
	rc = ps_select_open(source->select, shard, lane->epoch, lane->pass, &view, err);
	if (rc == 0)
		rc = ps_select_count(view, lane->ordinal, (uint32_t)lane->copy, ret_left, err);
	ps_select_close(view);
	return rc < 0 ? rc : 1;
}

/* Moves towards `at` within the lane's shard, or past its end, without reading it. 1: moved; 0: the count
 * is not known, or walking is cheaper. */
static int shard_pass(
        struct ps_lane *lane, const struct ps_lane_source *source, uint64_t at, struct ps_error *err)
{
	uint64_t left;
	uint32_t shard;
	int rc = shard_find(lane, source, &shard, err);

	if (rc <= 0)
		return rc;
	if (lane->shard && at - lane->at <= WALK_MAX)
		return 0;
	rc = shard_left(lane, source, shard, &left, err);
	if (rc <= 0)
		return rc;
	if (lane->shard && source->options.columns && left > at - lane->at)
		return 0; /* a unit that is opened again may be read from its beginning */
	if (left > at - lane->at)
		rc = shard_go(lane, source, shard, at - lane->at, err);
	else {
		bool empty = left == 0 && lane->ordinal == 0;

		lane_close(lane);
		lane->at += left;
		rc = shard_pass_on(lane, source, shard, empty, err);
	}
	return rc < 0 ? rc : 1;
}

/* Moves to the sample `at` of the epoch, at or after lane->at: by whole shards where counts are known, else
 * by walking. Stops at the end of the lane's epoch. */
static int lane_go(
        struct ps_lane *lane, const struct ps_lane_source *source, uint64_t at, struct ps_error *err)
{
	if (ps_order_mode_scatters(ps_epochs_options(source->epochs)->mode))
		lane->at = PS_MAX(lane->at, at);
	while (lane->at < at) {
		struct ps_sample *s;
		int rc = shard_pass(lane, source, at, err);

		if (rc < 0)
			return rc;
		if (rc > 0)
			continue;
		rc = lane_read(lane, source, false, &s, err);
		if (rc <= 0)
			return rc;
		ps_sample_free(s);
	}
	return 0;
}

/* Epochs ------------------------------------------------------------------------------------------------- */

/* Moves to the next epoch, after the lane's last sample of this one. */
static void epoch_leave(struct ps_lane *lane)
{
	lane->epoch++;
	lane->at = lane->k = lane->ordinal = lane->copy = lane->offset = lane->nbytes = lane->from = 0;
	ps_epoch_unref(ps_steal_ptr(&lane->info));
	lane_close(lane);
}

void ps_lane_reset(struct ps_lane *lane, const struct ps_order *order, uint32_t index, uint64_t epoch,
        uint64_t from, const struct ps_lane_position *hint)
{
	while (lane->head) {
		struct ps_block *block = lane->head;

		lane->head = block->next;
		ps_block_free(block);
	}
	lane_close(lane);
	ps_epoch_unref(lane->info);
	*lane = (struct ps_lane){.index = index, .epoch = epoch, .from = from};
	if (!hint)
		return;
	lane->at = ps_order_block_begin(order, epoch, hint->block);
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

static int info_get(struct ps_lane *lane, const struct ps_lane_source *source, struct ps_error *err)
{
	return lane->info ? 0 : ps_epochs_get(source->epochs, lane->epoch, &lane->info, err);
}

/* The beginning of the block that holds the index-th sample of a lane. */
static uint64_t block_begin(const struct ps_lane *lane, const struct ps_lane_source *source, uint64_t index)
{
	uint64_t block = ps_order_block_of(source->order, lane->epoch, index);

	return ps_order_block_begin(source->order, lane->epoch, block);
}

int ps_lane_seek(
        struct ps_lane *lane, const struct ps_lane_source *source, uint64_t *ret_next, struct ps_error *err)
{
	uint64_t index;
	int rc = info_get(lane, source, err);

	if (rc < 0)
		return rc;
	rc = ps_deal_next(lane->info->deal, lane->index, PS_MAX(lane->from, lane->at), &index);
	if (rc < 0)
		return ps_no_memory(err);
	if (rc == PS_DEAL_FOUND && lane->info->numbers) {
		uint64_t at = ps_sequence_position(lane->info->sequence, lane->index, index);

		if (ps_epoch_is_hole(lane->info, at)) {
			lane->from = index + 1;
			return 0;
		}
	}
	if (rc == PS_DEAL_FOUND) {
		*ret_next = block_begin(lane, source, index);
		return 1;
	}
	if (rc == PS_DEAL_LATER)
		lane->from = index;
	else
		epoch_leave(lane);
	return 0;
}

/* One block ---------------------------------------------------------------------------------------------- */

void ps_block_free(struct ps_block *block)
{
	if (!block)
		return;
	for (uint32_t i = block->at; i < block->n; i++)
		ps_sample_free(block->samples[i]);
	free(block);
}

/* The samples of a block to be read, and their permutation. */
struct filling {
	uint32_t n;     /* samples that the block should have */
	uint32_t *from; /* place i gets the from[i]-th sample that is read */
	/* indexed in the order of reading; true: the sample is or may be wanted, so its bytes are read */
	bool *held;
	bool *wanted; /* indexed by place; true: the sample is wanted */
};

/* Finds which samples are wanted and held. All are held if the lanes' lengths are not known, or if places
 * depend on the lengths of the samples (buckets), which are known only after reading. */
static int filling_plan(const struct ps_lane *lane, const struct ps_lane_source *source,
        const struct ps_block *block, struct filling *f)
{
	int rc = 0;

	for (uint32_t i = 0; i < f->n; i++) {
		f->held[i] = true;
		f->wanted[i] = block->begin + i >= lane->from;
	}
	if (!lane->info->known)
		return 0;
	rc = ps_deal_wanted(lane->info->deal, lane->index, block->begin, f->n, f->wanted);
	for (uint32_t i = 0; i < f->n; i++)
		f->wanted[i] = f->wanted[i] && block->begin + i >= lane->from;
	if (rc < 0 || ps_order_buckets(source->order))
		return rc;
	rc = ps_order_block(source->order, lane->epoch, lane->index, block->where.block, f->n, NULL, f->from);
	for (uint32_t i = 0; i < f->n && rc == 0; i++)
		f->held[f->from[i]] = f->wanted[i];
	return rc;
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
		nbytes[i] = block->samples[i]->bad ? 0 : block->samples[i]->wanted_nbytes;
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

/* The number of samples, from `at` on, that can be skipped. A run of samples that are not held is skipped
 * only if it reaches the block's end or is longer than WALK_MAX. 0: the next sample must be
 * read. */
static uint32_t run_unheld(const struct filling *f, uint32_t at)
{
	uint32_t n = 0;

	while (at + n < f->n && !f->held[at + n])
		n++;
	return at + n == f->n || n > WALK_MAX ? n : 0;
}

/* Reads the samples of a block, up to the last one that is held. 1: done; 0: the lane's epoch ended. */
static int block_read(struct ps_lane *lane, const struct ps_lane_source *source, struct ps_block *block,
        const struct filling *f, struct ps_error *err)
{
	block->where.k = lane->k;
	block->where.ordinal = lane->ordinal;
	block->where.offset = lane->offset;
	block->where.copy = (uint32_t)lane->copy;
	while (block->n < f->n) {
		struct ps_sample **s = &block->samples[block->n];
		bool held = f->held[block->n];
		uint32_t run = held ? 0 : run_unheld(f, block->n);
		int rc;

		if (run > 0) {
			memset(s, 0, run * sizeof(*s));
			block->n += run;
			rc = block->n == f->n ? 0 : lane_go(lane, source, block->begin + block->n, err);
			if (rc < 0)
				return rc;
			continue;
		}
		rc = lane_read(lane, source, held, s, err);
		if (rc <= 0)
			return rc;
		if (block->n++ == 0 && *s) {
			int64_t size = lane->shard ? ps_shard_size(lane->shard) : -1;

			block->where = (struct ps_lane_position){.block = block->where.block,
			        .k = lane->k,
			        .ordinal = (*s)->ordinal,
			        .offset = (*s)->resume_offset,
			        .copy = (*s)->draw & UINT16_MAX,
			        .nbytes = size > 0 ? (uint64_t)size : 0};
		}
		if (!held)
			ps_sample_free(ps_steal_ptr(s));
	}
	/* the block's last samples may have been left unread: then lane->at is before the block's end */
	lane->from = PS_MAX(lane->from, block->begin + block->n);
	return 1;
}

/* Makes the samples of the block bad that a wrong checksum covers which was read after them. */
static int block_judge(const struct ps_lane_source *source, struct ps_block *block)
{
	struct ps_shard_sums *sums = source->options.sums;

	for (uint32_t i = 0; i < block->n && sums; i++) {
		struct ps_sample *s = block->samples[i];

		if (!s || s->bad || !ps_shard_sums_has(sums, s->file, s->ordinal))
			continue;
		s->reason = strdup(PS_SHARD_SUM_REASON);
		if (!s->reason)
			return -ENOMEM;
		s->bad = EBADMSG;
	}
	return 0;
}

/* Fills an empty block with up to n samples from lane->at on. */
static int block_fill(struct ps_lane *lane, const struct ps_lane_source *source, uint32_t n,
        struct ps_block *block, struct ps_error *err)
{
	ps_autofree uint32_t *from = malloc(n * sizeof(*from));
	ps_autofree bool *wanted = malloc(2 * (size_t)n * sizeof(*wanted));
	struct filling f = {.n = n, .from = from, .wanted = wanted, .held = wanted ? wanted + n : NULL};
	int rc;

	*block = (struct ps_block){.epoch = lane->epoch,
	        .begin = lane->at,
	        .where = {.block = ps_order_block_of(source->order, lane->epoch, lane->at)}};
	if (!from || !wanted || filling_plan(lane, source, block, &f) < 0)
		return ps_error_set(err, ENOMEM, "no memory for a block of %u samples", n);
	rc = block_read(lane, source, block, &f, err);
	if (rc < 0)
		return rc;
	block->last = rc == 0;
	if (block->last && lane->info->known)
		return ps_error_set(err, ESTALE,
		        "the shards hold fewer samples than their indexes say; index them again "
		        "(penstock-loader index)");
	if (block->last && lane->from > lane->at)
		return ps_error_set(err, ESTALE,
		        "a lane holds fewer samples than the state says: the shards have changed, or other "
		        "ranks' lanes had begun to end when the state was saved; restart the epoch");
	if (block_judge(source, block) < 0 || block_permute(lane, source, block, &f) < 0)
		return ps_error_set(err, ENOMEM, "no memory for a block of %u samples", n);
	while (block->at < block->n && !block->samples[block->at])
		block->at++;
	return 0;
}

int ps_lane_fill(struct ps_lane *lane, const struct ps_lane_source *source, struct ps_block **ret_block,
        struct ps_error *err)
{
	uint32_t len = ps_order_block_len(source->order), n;
	uint64_t next;
	struct ps_block *block = malloc(sizeof(*block) + len * sizeof(struct ps_sample *));
	int rc;

	if (!block)
		return ps_error_set(err, ENOMEM, "no memory for a block of %u samples", len);
	block->at = block->n = 0;
	rc = info_get(lane, source, err);
	if (rc == 0)
		rc = lane_go(lane, source,
		        lane->info->known ? lane->next : block_begin(lane, source, lane->from), err);
	if (rc == 0) {
		next = ps_order_block_of(source->order, lane->epoch, lane->at) + 1;
		n = (uint32_t)(ps_order_block_begin(source->order, lane->epoch, next) - lane->at);
		if (lane->info->known)
			n = (uint32_t)PS_MIN(n, lane->info->lengths[lane->index] - lane->at);
		rc = block_fill(lane, source, n, block, err);
	}
	if (rc == 0 && block->last)
		epoch_leave(lane);
	else if (rc == 0)
		rc = lane_rest(lane, source, err);
	if (rc < 0) {
		ps_block_free(block);
		return rc;
	}
	*ret_block = block;
	return 0;
}
