/* The public face: penstock.h over options, order, plan and pipeline. */
#include "config.h"

#include "penstock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/range.h"
#include "batch/make.h"
#include "batch/profile.h"
#include "budget.h"
#include "gpu_decode.h"
#include "lost.h"
#include "missing.h"
#include "options.h"
#include "get.h"
#include "order/plan.h"
#include "pipeline/pipeline.h"
#include "public.h"
#include "resume.h"
#include "stats.h"

struct penstock_loader {
	pid_t pid;
	struct ps_options options;
	struct ps_schedule schedule;
	struct ps_plan *plan;
	struct ps_plan
	        *made; /* the same for the pipeline, with fields that the device makes; NULL: it makes none */
	const char *made_not; /* why it makes none, though it may; NULL: it does, or may not */
	struct ps_device *device;
	struct ps_gpu_decode gpu;
	struct ps_pipeline *pipeline;
	uint64_t open_ns;
	struct penstock_budget *budget; /* shared; NULL: none */
	uint64_t budget_nbytes;         /* taken from it for batches and buffers */
	struct ps_profile *profile;     /* NULL: not kept */

	/* The calling thread's (next, set_epoch). */
	int failed;
	struct ps_load_error why;
	uint32_t bad_run; /* bad samples behind each other up to the last row delivered */

	struct ps_indexes *indexes;
	struct ps_getter *getter;    /* NULL: not asked for yet */
	struct ps_planner *planner;  /* NULL: nobody to tell */
	struct ps_state_print print; /* of shards and options; zero until it is needed */

	_Atomic uint64_t samples, batches, bad; /* relaxed: counts */
	struct ps_lost lost;
};

const char *penstock_version(void)
{
	return PACKAGE_VERSION;
}

static int pid_check(const struct penstock_loader *l, struct ps_load_error *err)
{
	if (l->pid == getpid())
		return 0;
	return ps_load_error_set(err, ECHILD,
	        "this loader belongs to process %d, which forked; open a loader in this process",
	        (int)l->pid);
}

/* Where a state says that this loader shall stand; makes `at`. */
static int state_read(struct penstock_loader *l, const void *bytes, size_t size, struct ps_position *at,
        uint32_t *ret_bad_run, struct ps_offload *ret_offload, struct ps_load_error *err)
{
	const struct penstock_options *o = &l->options.o;
	struct ps_state state;
	int r;

	ps_state_print_make(&l->print, &l->options);
	r = ps_state_read(&l->print, bytes, size, &state, err);
	if (r < 0)
		return r;
	/* One past the last epoch is a run that is over. */
	if (o->epochs && (state.epoch < o->epoch || state.epoch - o->epoch > o->epochs))
		r = ps_load_error_set(err, EINVAL,
		        "the state is of epoch %ju, outside of the epochs that were asked for (from %ju, %ju "
		        "of them)",
		        (uintmax_t)state.epoch, (uintmax_t)o->epoch, (uintmax_t)o->epochs);
	if (r == 0)
		r = ps_gpu_decode_resume(&l->gpu, &state, ret_offload, err);
	if (r == 0 && ps_position_init(at, ps_order_nlanes(l->schedule.order)) < 0)
		r = ps_load_error_set(err, ENOMEM, "out of memory");
	if (r == 0) {
		r = ps_resume_position(&l->schedule, &state, at, err);
		if (r < 0)
			ps_position_fini(at);
	}
	*ret_bad_run = state.bad_run;
	ps_state_fini(&state);
	return r;
}

/* Takes what batches and buffers need from the budget that is shared. */
static int budget_take(struct penstock_loader *l, uint64_t nbytes, struct ps_load_error *err)
{
	struct penstock_budget *b = l->options.o.budget;
	int r;

	if (!b)
		return 0;
	r = ps_public_budget_reserve(b, nbytes, err);
	if (r < 0)
		return r;
	l->budget = ps_public_budget_ref(b);
	l->budget_nbytes = nbytes;
	return 0;
}

/* The plan of what the pipeline does, when the device is open. */
static int pipeline_plan(struct penstock_loader *l, struct ps_load_error *err)
{
	const struct penstock_options *o = &l->options.o;
	const struct ps_device_ops *ops = l->device->ops;
	int r;

	if (!ops->mirror_new || !ops->cannot_make || o->device_pixels == PENSTOCK_PIXELS_OFF)
		return 0;
	l->made_not = o->transform || o->profile ? "a transform or a profile looks at them"
	                                         : ops->cannot_make(l->device);
	if (l->made_not)
		return 0;
	r = ps_plan_new(o, &l->made, err);
	if (r == 0)
		ps_make_plan(l->made, o->gpu_decode != 0);
	return r;
}

static int pipeline_make(struct penstock_loader *l, const struct ps_position *at, struct ps_load_error *err)
{
	const struct penstock_options *o = &l->options.o;
	struct ps_pipeline_options p = {.shards = l->options.shards.names,
	        .rows = o->batch,
	        .threads = o->threads,
	        .readers = o->readers,
	        .tune_threads = l->options.tune_threads,
	        .tune_readers = l->options.tune_readers,
	        .seed = o->seed,
	        .end_epoch = o->epochs ? o->epoch + o->epochs : UINT64_MAX,
	        .end = (enum penstock_end)o->end,
	        .max_sample_nbytes = o->memory_budget / 2};
	struct ps_memory m;
	size_t batch_nbytes;
	int r;

	p.device = l->device;
	p.nvjpeg = l->gpu.nvjpeg;
	p.offload = l->gpu.offload;
	p.plan = l->made ? l->made : l->plan;
	if (!ps_batch_nbytes(p.plan, o->batch, &batch_nbytes))
		return ps_load_error_set(
		        err, E2BIG, "a batch of %u rows is larger than memory can be", o->batch);
	r = ps_memory_plan(o, batch_nbytes, ps_order_nactive(l->schedule.order), &m, err);
	if (r < 0)
		return r;
	p.order = l->schedule.order;
	p.epochs = l->schedule.epochs;
	p.indexes = l->indexes;
	p.select = l->schedule.select;
	p.nshards = l->schedule.nshards;
	p.source = (enum ps_source)o->source;
	p.index_dir = o->index_dir;
	p.write_index = o->write_index != 0;
	r = ps_plan_windows(l->plan, o->token_stride, &p.windows, err);
	if (r < 0)
		return r;
	p.depth = m.depth;
	p.buf_nbytes = m.buf_nbytes;
	p.image_nbytes = m.image_nbytes;
	p.window_nbytes = m.window_nbytes;
	p.max_ragged_nbytes = o->memory_budget / 2 / m.depth;
	r = budget_take(l, o->memory_budget - m.window_nbytes, err);
	if (r < 0)
		return r;
	if (l->budget)
		p.shared = &l->budget->count;
	if (o->profile) {
		l->profile = ps_profile_new(l->plan);
		if (!l->profile)
			return ps_load_error_set(err, ENOMEM, "out of memory");
		p.profile = l->profile;
	}
	return ps_pipeline_new(&p, at, &l->pipeline, err);
}

/* The pipeline at a position. Shards that are missing are an error before its threads meet them. */
static int pipeline_put(struct penstock_loader *l, const struct ps_position *at, struct ps_load_error *err)
{
	int r = 0;

	if (l->options.o.on_error == PENSTOCK_FAIL)
		r = ps_missing_check(
		        l->schedule.order, at, l->options.shards.names, l->schedule.nshards, err);
	return r < 0 ? r : pipeline_make(l, at, err);
}

/* The pipeline at the beginning, or where the options' state says. */
static int pipeline_begin(struct penstock_loader *l, struct ps_load_error *err)
{
	const struct penstock_options *o = &l->options.o;
	struct ps_position at;
	int r;

	if (!o->state)
		return pipeline_put(l, &(struct ps_position){.epoch = o->epoch}, err);
	r = state_read(l, o->state, o->state_nbytes, &at, &l->bad_run, &l->gpu.offload, err);
	l->options.o.state = NULL; /* borrowed no longer */
	if (r < 0)
		return r;
	r = pipeline_put(l, &at, err);
	ps_position_fini(&at);
	return r;
}

/* NULL where there is nobody to tell, or no memory for it: a run does not need it. */
static struct ps_planner *planner_make(struct penstock_loader *l)
{
	const struct penstock_options *o = &l->options.o;

	return ps_planner_new(&(struct ps_planner_options){.order = l->schedule.order,
	        .shards = l->options.shards.names,
	        .nshards = l->schedule.nshards,
	        .job = o->job ? o->job : "loader",
	        .rank = o->rank,
	        .world = o->world,
	        .epoch = ps_pipeline_position(l->pipeline)->epoch,
	        .end_epoch = o->epochs ? o->epoch + o->epochs : UINT64_MAX,
	        .epochs = o->plan_epochs ? o->plan_epochs : PS_PLANNER_EPOCHS});
}

static int loader_make(struct penstock_loader *l, const struct penstock_options *options,
        const char *const *shards, size_t nshards, struct ps_load_error *err)
{
	const struct penstock_options *o = &l->options.o;
	struct ps_windows windows;
	int r = ps_options_make(&l->options, options, shards, nshards, err);

	if (r < 0)
		return r;
	if (ps_lost_init(&l->lost, l->options.shards.n) < 0)
		return ps_load_error_set(err, ENOMEM, "out of memory");
	l->indexes = ps_indexes_new(l->options.shards.names, l->options.shards.n, o->index_dir);
	if (!l->indexes)
		return ps_load_error_set(err, ENOMEM, "out of memory");
	r = ps_plan_new(o, &l->plan, err);
	if (r == 0)
		r = ps_plan_windows(l->plan, o->token_stride, &windows, err);
	if (r < 0)
		return r;
	ps_indexes_source(l->indexes, (enum ps_source)o->source, &windows);
	r = ps_schedule_make(&l->schedule, &l->options, l->indexes, err);
	if (r == 0)
		r = ps_device_open(o->device, &l->device, err);
	if (r == 0)
		r = pipeline_plan(l, err);
	if (r == 0)
		r = ps_gpu_decode_open(o, l->made, l->made_not, l->device, &l->gpu, err);
	if (r == 0)
		r = pipeline_begin(l, err);
	if (r == 0 && o->plan_epochs != UINT32_MAX)
		l->planner = planner_make(l);
	if (l->planner)
		ps_planner_at(l->planner, ps_pipeline_position(l->pipeline));
	return r;
}

int penstock_loader_open(const struct penstock_options *options, const char *const *shards, size_t nshards,
        struct penstock_loader **ret_loader, struct penstock_error *error)
{
	struct ps_load_error err = {0};
	struct penstock_loader *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return ps_give_error(error, -ENOMEM, &err);
	l->pid = getpid();
	l->open_ns = ps_mono_ns();
	r = loader_make(l, options, shards, nshards, &err);
	if (r < 0) {
		penstock_loader_close(l);
		return ps_give_error(error, r, &err);
	}
	*ret_loader = l;
	return 0;
}

void penstock_loader_close(struct penstock_loader *l)
{
	if (!l)
		return;
	if (l->pid != getpid()) {
		ps_pipeline_abandon(
		        l->pipeline); /* its threads may have held any lock when the process forked */
		return;
	}
	ps_planner_free(l->planner);
	ps_getter_free(l->getter);
	ps_pipeline_free(l->pipeline);
	ps_gpu_decode_close(&l->gpu);
	ps_device_close(l->device);
	ps_schedule_fini(&l->schedule);
	ps_profile_free(l->profile);
	ps_plan_free(l->plan);
	ps_plan_free(l->made);
	if (l->budget)
		ps_public_budget_release(l->budget, l->budget_nbytes);
	ps_public_budget_unref(l->budget);
	ps_lost_fini(&l->lost);
	ps_options_fini(&l->options);
	ps_indexes_free(l->indexes);
	free(l);
}

/* -- Delivery ----------------------------------------------------------------------------------------- */

static int bad_sample(const struct penstock_batch *b, uint32_t row, struct ps_load_error *err)
{
	return ps_sample_error_set(err, b->rows[row].sample, ps_batch_reason(b, row));
}

/* Puts what to do about a shard that cannot be read behind the text. */
static int lost_sample(const struct penstock_batch *b, uint32_t row, struct ps_load_error *err)
{
	return ps_load_error_set(err, EBADMSG, "%s; %s", err->text,
	        ps_lost_hint(b->rows[row].sample->file->path, b->rows[row].bad));
}

/* What on_error and max_bad make of a batch. */
static int policy_apply(struct penstock_loader *l, const struct penstock_batch *b, struct ps_load_error *err)
{
	const struct penstock_options *o = &l->options.o;

	if (o->on_error == PENSTOCK_FAIL && b->nbad > 0 && (!b->failed || b->failed == -EBADMSG)) {
		bad_sample(b, b->bad_rows[0], err);
		if (b->rows[b->bad_rows[0]].lost)
			return lost_sample(b, b->bad_rows[0], err);
		return ps_load_error_set(err, EBADMSG,
		        "%s; mend the shard, or pass over such samples by on_error skip", err->text);
	}
	if (b->nbad == 0 && b->nrows > 0)
		l->bad_run = 0; /* without a look at each row */
	for (uint32_t i = 0; i < b->nrows && b->nbad > 0; i++) {
		l->bad_run = b->rows[i].bad ? l->bad_run + 1 : 0;
		if (l->bad_run <= o->max_bad)
			continue;
		bad_sample(b, i, err);
		ps_load_error_prefix(err, "more than %u bad samples behind each other (max_bad)", o->max_bad);
		return b->rows[i].lost ? lost_sample(b, i, err) : -EBADMSG;
	}
	if (b->failed)
		*err = b->why;
	if (b->failed == -EBADMSG && b->nrows > 0 && b->rows[0].lost)
		return lost_sample(b, 0, err);
	return b->failed;
}

static int next(struct penstock_loader *l, struct penstock_batch **ret_batch, struct ps_load_error *err)
{
	struct penstock_batch *b;
	int r = pid_check(l, err);

	if (r < 0)
		return r;
	if (l->failed) {
		*err = l->why;
		return l->failed;
	}
	r = ps_pipeline_next(l->pipeline, &b, err);
	if (r == 1) {
		int e;

		if (b->nbad > 0)
			ps_lost_note(&l->lost, b);
		e = policy_apply(l, b, err);

		if (e == 0) {
			ps_pipeline_delivered(l->pipeline, b);
			if (l->planner)
				ps_planner_at(l->planner, ps_pipeline_position(l->pipeline));
			*ret_batch = b;
			atomic_fetch_add_explicit(&l->samples, b->nrows, memory_order_relaxed);
			atomic_fetch_add_explicit(&l->batches, 1, memory_order_relaxed);
			atomic_fetch_add_explicit(&l->bad, b->nbad, memory_order_relaxed);
			return 1;
		}
		ps_pipeline_release(b);
		r = e;
	}
	if (r < 0 && r != -EBUSY) {
		l->failed = r;
		l->why = *err;
	}
	return r;
}

int penstock_loader_next(
        struct penstock_loader *l, struct penstock_batch **ret_batch, struct penstock_error *error)
{
	struct ps_load_error err;
	int r;

	PS_RANGE_SCOPE("next");
	ps_load_error_clear(&err);
	r = next(l, ret_batch, &err);
	return r < 0 ? ps_give_error(error, r, &err) : r;
}

static int getter_make(struct penstock_loader *l, struct ps_load_error *err)
{
	const struct penstock_options *o = &l->options.o;

	return ps_getter_new(&(struct ps_get_options){.shards = l->options.shards.names,
	                             .nshards = l->schedule.nshards,
	                             .indexes = l->indexes,
	                             .plan = l->plan,
	                             .reading = *ps_pipeline_reading(l->pipeline),
	                             .seed = o->seed,
	                             .epoch = o->epoch,
	                             .max_ragged_nbytes = o->memory_budget / 4},
	        &l->getter, err);
}

static int get(struct penstock_loader *l, const uint64_t *numbers, uint32_t n,
        struct penstock_batch **ret_batch, struct ps_load_error *err)
{
	struct penstock_batch *b;
	int r = pid_check(l, err);

	if (r == 0 && (n == 0 || n > PS_OPTIONS_MAX_BATCH))
		r = ps_load_error_set(
		        err, EINVAL, "get of %u samples: must be 1 to %u", n, PS_OPTIONS_MAX_BATCH);
	if (r == 0 && !l->getter)
		r = getter_make(l, err);
	if (r == 0)
		r = ps_get(l->getter, numbers, n, &b, err);
	if (r < 0)
		return r;
	ps_lost_note(&l->lost, b);
	if (l->options.o.on_error == PENSTOCK_FAIL && b->nbad > 0 && (!b->failed || b->failed == -EBADMSG)) {
		r = bad_sample(b, b->bad_rows[0], err);
		if (b->rows[b->bad_rows[0]].lost)
			r = lost_sample(b, b->bad_rows[0], err);
	} else if (b->failed) {
		*err = b->why;
		r = b->failed;
	}
	if (r < 0)
		ps_get_free(b);
	else
		*ret_batch = b;
	return r;
}

int penstock_loader_get(struct penstock_loader *l, const uint64_t *numbers, uint32_t n,
        struct penstock_batch **ret_batch, struct penstock_error *error)
{
	struct ps_load_error err = {0};
	int r = get(l, numbers, n, ret_batch, &err);

	return r < 0 ? ps_give_error(error, r, &err) : 0;
}

int penstock_loader_wait(struct penstock_loader *l, uint32_t timeout_ms, struct penstock_error *error)
{
	struct ps_load_error err;
	int r;

	ps_load_error_clear(&err);
	r = pid_check(l, &err);
	if (r < 0)
		return ps_give_error(error, r, &err);
	return l->failed || ps_pipeline_wait(l->pipeline, timeout_ms);
}

int penstock_loader_set_epoch(struct penstock_loader *l, uint64_t epoch, struct penstock_error *error)
{
	struct ps_load_error err = {0};
	const struct penstock_options *o = &l->options.o;
	int r = pid_check(l, &err);

	if (r == 0 &&
	        (epoch == UINT64_MAX || (o->epochs && (epoch < o->epoch || epoch - o->epoch >= o->epochs))))
		r = ps_load_error_set(&err, EINVAL,
		        "epoch %ju: outside of the epochs that were asked for (from %ju, %ju of them)",
		        (uintmax_t)epoch, (uintmax_t)o->epoch, (uintmax_t)o->epochs);
	if (r == 0 && (l->failed || !ps_pipeline_stands_at(l->pipeline, epoch))) {
		r = ps_pipeline_restart(l->pipeline, &(struct ps_position){.epoch = epoch}, &err);
		l->failed = r;
		l->why = err;
		l->bad_run = 0;
	}
	return r < 0 ? ps_give_error(error, r, &err) : 0;
}

/* -- Length ------------------------------------------------------------------------------------------- */

int penstock_loader_length(struct penstock_loader *l, uint64_t epoch, uint64_t *ret_samples,
        uint64_t *ret_batches, struct penstock_error *error)
{
	struct ps_load_error err = {0};
	int r = pid_check(l, &err);

	if (r == 0)
		r = ps_schedule_length(&l->schedule, epoch, ret_samples, ret_batches, &err);
	return r < 0 ? ps_give_error(error, r, &err) : 0;
}

/* -- State -------------------------------------------------------------------------------------------- */

int penstock_loader_state_save(
        struct penstock_loader *l, void *buf, size_t size, struct penstock_error *error)
{
	struct ps_load_error err = {0};
	struct ps_offload offload;
	struct ps_state state;
	size_t need;
	int r = pid_check(l, &err);

	if (r < 0)
		return ps_give_error(error, r, &err);
	need = ps_state_nbytes(ps_resume_nlanes(&l->schedule), l->gpu.nvjpeg);
	if (!buf)
		return (int)need;
	if (size < need)
		r = ps_load_error_set(
		        &err, ENOBUFS, "the state has %zu bytes, but there is room for %zu", need, size);
	else
		r = ps_resume_state(
		        &l->schedule, ps_pipeline_position(l->pipeline), l->bad_run, &state, &err);
	if (r < 0)
		return ps_give_error(error, r, &err);
	ps_pipeline_offload(l->pipeline, &offload);
	ps_gpu_decode_save(&l->gpu, &offload, &state);
	ps_state_print_make(&l->print, &l->options);
	ps_state_write(&l->print, &state, buf);
	ps_state_fini(&state);
	return (int)need;
}

static int state_load(struct penstock_loader *l, const void *state, size_t size, struct ps_load_error *err)
{
	struct ps_offload offload;
	struct ps_position at;
	uint32_t bad_run;
	int r = state_read(l, state, size, &at, &bad_run, &offload, err);

	if (r < 0)
		return r;
	ps_pipeline_set_offload(l->pipeline, &offload);
	r = ps_pipeline_restart(l->pipeline, &at, err);
	l->failed = r;
	l->why = *err;
	l->bad_run = bad_run;
	ps_position_fini(&at);
	return r;
}

int penstock_loader_state_load(
        struct penstock_loader *l, const void *state, size_t size, struct penstock_error *error)
{
	struct ps_load_error err = {0};
	int r = pid_check(l, &err);

	if (r == 0)
		r = state_load(l, state, size, &err);
	return r < 0 ? ps_give_error(error, r, &err) : 0;
}

/* -- Statistics --------------------------------------------------------------------------------------- */

int penstock_loader_stats(struct penstock_loader *l, struct penstock_stats *ret_stats, size_t size,
        struct penstock_error *error)
{
	struct ps_load_error err = {0};
	struct ps_pipeline_stats p;
	struct penstock_stats s = {0};
	int r = pid_check(l, &err);

	if (r < 0)
		return ps_give_error(error, r, &err);
	ps_pipeline_stats(l->pipeline, &p);
	s.samples = atomic_load_explicit(&l->samples, memory_order_relaxed);
	s.batches = atomic_load_explicit(&l->batches, memory_order_relaxed);
	s.bad = atomic_load_explicit(&l->bad, memory_order_relaxed);
	s.bytes_read = p.nbytes_read;
	s.reread = p.reread;
	s.shards_lost = ps_lost_count(&l->lost);
	s.seconds = (double)(ps_mono_ns() - l->open_ns) / 1e9;
	ps_stats_fill(&s, &p);
	if (l->device->ops->copies) {
		struct ps_device_copies copies;

		l->device->ops->copies(l->device, &copies);
		s.copied_bytes = copies.nbytes;
		s.copy_seconds = copies.seconds;
	}
	snprintf(s.pixels, sizeof(s.pixels), "%s%s%s", l->made ? l->device->ops->name : "cpu",
	        l->made_not ? ": " : "", l->made_not ? l->made_not : "");
	if (!l->gpu.nvjpeg)
		snprintf(s.gpu_decode_why, sizeof(s.gpu_decode_why), "%.*s",
		        (int)sizeof(s.gpu_decode_why) - 1, l->gpu.why.text);
	else
		snprintf(s.gpu_library, sizeof(s.gpu_library), "%s", ps_nvjpeg_path(l->gpu.nvjpeg));
	snprintf(s.gpu_refused, sizeof(s.gpu_refused), "%.*s", (int)sizeof(s.gpu_refused) - 1,
	        l->gpu.refused.text);
	memset(ret_stats, 0, size);
	memcpy(ret_stats, &s, PS_MIN(size, sizeof(s)));
	return 0;
}

int penstock_loader_lost(struct penstock_loader *l, uint64_t n, struct penstock_lost *ret_lost)
{
	return ps_lost_get(&l->lost, n, ret_lost);
}

int penstock_loader_profile(struct penstock_loader *l, char *buf, size_t size, struct penstock_error *error)
{
	struct ps_load_error err = {0};
	ps_autofree char *text = NULL;
	size_t n = 0;
	int r = pid_check(l, &err);

	if (r == 0 && !l->profile)
		r = ps_load_error_set(&err, ENODATA, "the loader was opened without options.profile");
	if (r == 0)
		r = ps_profile_json(l->profile, &text, &n, &err);
	if (r == 0 && buf && size <= n)
		r = ps_load_error_set(
		        &err, ENOBUFS, "the profile has %zu bytes, but there is room for %zu", n + 1, size);
	if (r < 0)
		return ps_give_error(error, r, &err);
	if (buf)
		memcpy(buf, text, n + 1);
	return (int)n;
}
