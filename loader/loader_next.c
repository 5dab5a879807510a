/* Hands batches to the consumer, in order and by sample number; sets the epoch, and returns its length. */
#include "config.h"

#include "loader.h"

#include <errno.h>
#include <string.h>

#include "base/range.h"
#include "shard/file/file.h"

/* What to do about a row that lacks this field. all: no row of the batch has it. */
static const char *field_advice(const struct ps_layout_field *f, bool all)
{
	if (all && strcmp(f->member ? f->member : f->name, "cls") == 0)
		return "; these shards have no labels: penstock-loader pack --classes makes labels from "
		       "folders";
	if (all)
		return "; no sample of this batch has it: check the field's name";
	if (f->kind == PENSTOCK_IMAGE || f->kind == PENSTOCK_MASK) /* which cannot be optional */
		return "; skip such samples with on_error skip";
	return "; make the field optional, or skip such samples with on_error skip";
}

/* What to do about a row that lacks a field, or is damaged. If no row of the batch is good, the fields are
 * the likelier cause. */
static const char *row_advice(const struct penstock_batch *b, uint32_t row, enum ps_cause cause)
{
	bool all = b->nbad == b->nrows && b->nrows > 1;

	if (b->rows[row].advised || b->rows[row].bad == EFBIG ||
	        strstr(ps_batch_reason(b, row), PS_FOREIGN_MARK))
		return ""; /* the text has the remedy */
	for (uint32_t i = 0; cause == PS_CAUSE_FIELD && i < b->nrows; i++)
		all = all && b->rows[i].lacks;
	if (cause == PS_CAUSE_FIELD)
		return field_advice(&b->layout->fields[b->rows[row].lacking], all);
	if (all)
		return "; no sample of this batch is good: check that the field's kind fits";
	if (b->rows[row].sample->key_len == 0 && b->rows[row].sample->offset == 0)
		return "; is this file a shard? If so, repair it (penstock-loader doctor), or set on_error "
		       "to skip damage";
	return "; repair the shard (penstock-loader doctor), or skip such samples with on_error skip";
}

/* Makes the error's key a copy, *kept: the sample's own is freed with the batch. */
static void key_keep(char **kept, struct ps_error *err)
{
	free(*kept);
	*kept = err->key ? strdup(err->key) : NULL;
	err->key = *kept;
}

/* The error of a bad row: what it is about, and with `advise` what to do. */
static int row_error(
        const struct penstock_batch *b, uint32_t row, bool advise, char **key, struct ps_error *err)
{
	const struct ps_row *r = &b->rows[row];

	ps_sample_error_set(err, r->sample, ps_batch_reason(b, row));
	key_keep(key, err);
	if (r->bad == ESTALE)
		err->cause = PS_CAUSE_CHANGED; /* not damaged */
	else if (r->lost)
		err->cause = PS_CAUSE_SHARD;
	else if (r->lacks)
		err->cause = PS_CAUSE_FIELD;
	err->err = r->bad == ESTALE ? ESTALE : EBADMSG;
	err->storage = r->lost ? ps_shard_errno(err->shard, r->bad) : 0;
	if (!r->lost) {
		ps_error_append(err, "%s", advise ? row_advice(b, row, err->cause) : "");
		return -err->err;
	}
	ps_shard_error_explain(err->shard, r->bad, err);
	return -err->err;
}

/* The error of a failed batch. */
static int batch_error(const struct penstock_batch *b, char **key, struct ps_error *err)
{
	*err = b->why;
	key_keep(key, err);
	return b->failed;
}

/* Applies on_error and max_bad to a batch. */
static int policy_apply(struct penstock_loader *l, const struct penstock_batch *b, struct ps_error *err)
{
	const struct penstock_options *o = &l->options.o;

	if (o->on_error == PENSTOCK_FAIL && b->nbad > 0 && !b->failed)
		return row_error(b, b->bad_rows[0], true, &l->key, err);
	if (b->nbad == 0 && b->nrows > 0)
		l->bad_run = 0; /* fast path, without a loop over the rows */
	for (uint32_t i = 0; i < b->nrows && b->nbad > 0; i++) {
		l->bad_run = b->rows[i].bad ? l->bad_run + 1 : 0;
		if (l->bad_run <= o->max_bad)
			continue;
		row_error(b, i, false, &l->key, err);
		return ps_error_prefix(err, -err->err,
		        "more than %u bad samples in a row (max_bad: raise it to skip more); the last",
		        o->max_bad);
	}
	if (b->failed)
		batch_error(b, &l->key, err);
	return b->failed;
}

void ps_share_begin(struct penstock_loader *l, uint64_t batches)
{
	l->has_good = l->bad_run < batches * l->options.o.batch;
	ps_error_clear(&l->first_bad);
}

/* Notes whether the rank's share of the epoch has good samples so far. Repeats are not of its share. */
static void share_note(struct penstock_loader *l, const struct penstock_batch *b)
{
	if (b->repeats || l->has_good)
		return;
	l->has_good = b->nbad < b->nrows;
	if (!l->has_good && !l->first_bad.err)
		row_error(b, b->bad_rows[0], false, &l->first_key, &l->first_bad);
}

/* Judges the epoch that has ended. If no sample of the rank's share was good, it is an error even with SKIP:
 * the path is wrong, or the mount is gone, and each epoch would be one of blank batches. */
static int share_judge(struct penstock_loader *l, struct ps_error *err)
{
	uint64_t epoch = ps_pipeline_position(l->pipeline)->epoch - 1;
	int rc = 0;

	if (!l->has_good && l->first_bad.err) {
		*err = l->first_bad;
		rc = ps_error_prefix(err, -err->err,
		        "epoch %ju had no good sample on this rank, so the run cannot continue; the first",
		        (uintmax_t)epoch);
	}
	ps_share_begin(l, 0);
	return rc;
}

static int next(struct penstock_loader *l, struct penstock_batch **ret_batch, struct ps_error *err)
{
	struct penstock_batch *b;
	int rc = ps_opener_check(l->pid, err);

	if (rc < 0)
		return rc;
	if (l->failed) {
		*err = l->why;
		return l->failed;
	}
	rc = ps_pipeline_next(l->pipeline, &b, err);
	if (rc == 1) {
		int e;

		if (b->nbad > 0)
			ps_shard_errors_note(&l->lost, b);
		e = policy_apply(l, b, err);

		if (e == 0) {
			ps_pipeline_delivered(l->pipeline, b);
			if (l->planner)
				ps_planner_at(l->planner, ps_pipeline_position(l->pipeline));
			share_note(l, b);
			*ret_batch = b;
			atomic_fetch_add_explicit(
			        b->repeats ? &l->repeats : &l->samples, b->nrows, memory_order_relaxed);
			atomic_fetch_add_explicit(&l->batches, 1, memory_order_relaxed);
			atomic_fetch_add_explicit(&l->bad, b->nbad, memory_order_relaxed);
			for (uint32_t i = 0; i < b->nrows; i++)
				atomic_fetch_add_explicit(
				        &l->truncated, b->rows[i].truncated, memory_order_relaxed);
			atomic_fetch_add_explicit(&l->blank, b->blank && b->nbad > 0, memory_order_relaxed);
			return 1;
		}
		ps_pipeline_release(b);
		rc = e;
	} else if (rc == 0) {
		rc = share_judge(l, err);
	}
	if (rc == -ESTALE)
		err->cause = PS_CAUSE_CHANGED;
	if (rc < 0 && rc != -EBUSY && rc != -EAGAIN) {
		l->failed = rc;
		l->why = *err;
	}
	return rc;
}

int penstock_loader_next(
        struct penstock_loader *l, struct penstock_batch **ret_batch, struct penstock_error *error)
{
	struct ps_error err;
	int rc;

	PS_RANGE_SCOPE("next");
	ps_error_clear(&err);
	rc = next(l, ret_batch, &err);
	return rc < 0 ? ps_give_error(error, rc, &err) : rc;
}

static int get(struct penstock_loader *l, const uint64_t *numbers, uint32_t n,
        struct penstock_batch **ret_batch, struct ps_error *err)
{
	const struct penstock_options *o = &l->options.o;
	struct penstock_batch *b;
	int rc = ps_opener_check(l->pid, err);

	if (rc == 0 && (n == 0 || n > PS_OPTIONS_MAX_BATCH))
		rc = ps_error_set(err, EINVAL, "get of %u samples: must be 1 to %u", n, PS_OPTIONS_MAX_BATCH);
	if (rc == 0 && !l->random_access)
		rc = ps_random_access_new(&(struct ps_random_access_options){.shards = l->options.names,
		                                  .nshards = l->schedule.nshards,
		                                  .indexes = l->indexes,
		                                  .layout = l->layout,
		                                  .reading = *ps_pipeline_reading(l->pipeline),
		                                  .seed = o->seed,
		                                  .epoch = o->epoch,
		                                  .max_ragged_nbytes = o->memory_budget / 4},
		        &l->random_access, err);
	if (rc == 0)
		rc = ps_random_access_read(l->random_access, numbers, n, &b, err);
	if (rc < 0)
		return rc;
	ps_shard_errors_note(&l->lost, b);
	if (o->on_error == PENSTOCK_FAIL && b->nbad > 0 && !b->failed)
		rc = row_error(b, b->bad_rows[0], true, &l->got_key, err);
	else if (b->failed)
		rc = batch_error(b, &l->got_key, err);
	if (rc < 0)
		ps_random_access_give_back(b);
	else
		*ret_batch = b;
	return rc;
}

int penstock_loader_get(struct penstock_loader *l, const uint64_t *numbers, uint32_t n,
        struct penstock_batch **ret_batch, struct penstock_error *error)
{
	struct ps_error err = {0};
	int rc = get(l, numbers, n, ret_batch, &err);

	return rc < 0 ? ps_give_error(error, rc, &err) : 0;
}

static int feed(struct penstock_loader *l, const int64_t *numbers, uint32_t n, struct ps_error *err)
{
	int rc = ps_opener_check(l->pid, err);

	if (rc < 0)
		return rc;
	if (!l->options.numbers || !ps_numbers_is_feed(l->options.numbers))
		return ps_error_set(err, EINVAL, "feed: needs order NUMBERS, without `numbers`");
	if (l->failed) {
		*err = l->why;
		return l->failed;
	}
	rc = ps_pipeline_feed(l->pipeline, numbers, n, err);
	if (rc >= 0 && n > 0 && l->planner)
		ps_planner_use(
		        l->planner, ps_pipeline_position(l->pipeline)->epoch, l->schedule.ends, numbers, n);
	return rc;
}

int penstock_loader_feed(
        struct penstock_loader *l, const int64_t *numbers, uint32_t n, struct penstock_error *error)
{
	struct ps_error err = {0};
	int rc = feed(l, numbers, n, &err);

	return rc < 0 ? ps_give_error(error, rc, &err) : rc;
}

int penstock_loader_wait(struct penstock_loader *l, uint32_t timeout_ms, struct penstock_error *error)
{
	struct ps_error err;
	int rc;

	ps_error_clear(&err);
	rc = ps_opener_check(l->pid, &err);
	if (rc < 0)
		return ps_give_error(error, rc, &err);
	return l->failed || ps_pipeline_wait(l->pipeline, timeout_ms);
}

int penstock_loader_wait_released(
        struct penstock_loader *l, uint32_t timeout_ms, struct penstock_error *error)
{
	struct ps_error err;
	int rc;

	ps_error_clear(&err);
	rc = ps_opener_check(l->pid, &err);
	return rc < 0 ? ps_give_error(error, rc, &err) : ps_pipeline_wait_released(l->pipeline, timeout_ms);
}

/* Reserves memory for another batch, and makes it. */
static int batch_add(struct penstock_loader *l, struct ps_error *err)
{
	uint64_t nbytes = l->batch_nbytes;
	/* The batch may become as large as the others. */
	uint64_t full = PS_MAX(nbytes, ps_pipeline_held_nbytes(l->pipeline));
	int rc = ps_opener_check(l->pid, err);

	if (rc < 0)
		return rc;
	if (full > l->spare_nbytes)
		return ps_error_set(err, ENOBUFS,
		        "memory_budget of %ju MiB has no room for another batch of %ju MiB: raise it, or "
		        "lower "
		        "batch or the image size",
		        (uintmax_t)(l->options.o.memory_budget >> 20), (uintmax_t)((full >> 20) + 1));
	if (l->budget) {
		rc = ps_public_budget_reserve(l->budget, nbytes, err);
		if (rc < 0)
			return ps_error_set(err, ENOBUFS, "%s", err->text);
	}
	rc = ps_pipeline_add_batch(l->pipeline, nbytes, err);
	if (rc < 0) {
		if (l->budget)
			ps_public_budget_release(l->budget, nbytes);
		return rc;
	}
	if (l->budget)
		l->budget_nbytes += nbytes;
	l->spare_nbytes -= full;
	return 0;
}

int penstock_loader_add_batch(struct penstock_loader *l, struct penstock_error *error)
{
	struct ps_error err;
	int rc;

	ps_error_clear(&err);
	rc = batch_add(l, &err);
	return rc < 0 ? ps_give_error(error, rc, &err) : 0;
}

int penstock_loader_set_epoch(struct penstock_loader *l, uint64_t epoch, struct penstock_error *error)
{
	struct ps_error err = {0};
	const struct penstock_options *o = &l->options.o;
	int rc = ps_opener_check(l->pid, &err);

	if (rc == 0 &&
	        (epoch == UINT64_MAX || (o->epochs && (epoch < o->epoch || epoch - o->epoch >= o->epochs))))
		rc = ps_error_set(&err, EINVAL,
		        "epoch %ju: outside of the epochs that were asked for (from %ju, %ju of them)",
		        (uintmax_t)epoch, (uintmax_t)o->epoch, (uintmax_t)o->epochs);
	if (rc == 0 && (l->failed || !ps_pipeline_stands_at(l->pipeline, epoch))) {
		ps_pipeline_stop(l->pipeline);
		ps_schedule_restart(&l->schedule, &l->options);
		rc = ps_pipeline_restart(l->pipeline, &(struct ps_position){.epoch = epoch}, &err);
		l->failed = rc;
		l->why = err;
		l->bad_run = 0;
		ps_share_begin(l, 0);
	}
	return rc < 0 ? ps_give_error(error, rc, &err) : 0;
}

int penstock_loader_length(struct penstock_loader *l, uint64_t epoch, uint64_t *ret_samples,
        uint64_t *ret_batches, struct penstock_error *error)
{
	struct ps_error err = {0};
	uint64_t total;
	int rc = ps_opener_check(l->pid, &err);

	if (rc == 0)
		rc = ps_schedule_length(&l->schedule, epoch, ret_samples, ret_batches, &total, &err);
	return rc < 0 ? ps_give_error(error, rc, &err) : 0;
}

int penstock_loader_total(
        struct penstock_loader *l, uint64_t epoch, uint64_t *ret_samples, struct penstock_error *error)
{
	struct ps_error err = {0};
	uint64_t samples, batches;
	int rc = ps_opener_check(l->pid, &err);

	if (rc == 0)
		rc = ps_schedule_length(&l->schedule, epoch, &samples, &batches, ret_samples, &err);
	return rc < 0 ? ps_give_error(error, rc, &err) : 0;
}
