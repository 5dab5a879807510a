/* Saves and reads a loader's state. */
#include "config.h"

#include "loader.h"

#include <errno.h>

/* Makes the fingerprint, with one for each dataset of a mix. */
static int print_make(struct penstock_loader *l, struct ps_error *err)
{
	int rc = ps_state_print_make(&l->print, &l->options, err);

	for (uint32_t d = 0; d < l->schedule.run.nsets && rc == 0; d++)
		if (l->schedule.run.sets[d].shards == 0 &&
		        ps_state_set_hash(&l->options, d, &l->schedule.run.sets[d].shards) < 0)
			rc = ps_no_memory(err);
	return rc;
}

int ps_loader_state_read(struct penstock_loader *l, const void *bytes, size_t size, uint32_t flags,
        struct ps_resumed *ret_resumed, struct ps_error *err)
{
	const struct penstock_options *o = &l->options.o;
	struct ps_state state;
	int rc = print_make(l, err);

	*ret_resumed = (struct ps_resumed){0};
	if (rc == 0 && (flags & ~(uint32_t)(PENSTOCK_STATE_NEW_MIX | PENSTOCK_STATE_OTHER_FIELDS)))
		rc = ps_error_set(err, EINVAL, "state_flags: unknown flags %#x", flags);
	if (rc == 0)
		rc = ps_state_read(&l->print, &l->options, bytes, size, flags, &state, err);
	if (rc < 0)
		return rc;
	/* The state of a finished run has the epoch after the last one. */
	if (o->epochs && (state.epoch < o->epoch || state.epoch - o->epoch > o->epochs))
		rc = ps_error_set(err, EINVAL,
		        "the state is of epoch %ju, outside of the epochs that were asked for (from %ju, %ju "
		        "of them)",
		        (uintmax_t)state.epoch, (uintmax_t)o->epoch, (uintmax_t)o->epochs);
	if (rc == 0)
		rc = ps_gpu_decode_resume(&l->gpu, &state, &ret_resumed->offload, err);
	if (rc == 0)
		rc = ps_resume(&l->schedule, &l->options, &state, flags, &ret_resumed->run,
		        &ret_resumed->order, &ret_resumed->at, err);
	ret_resumed->bad_run = state.bad_run;
	ps_state_fini(&state);
	return rc;
}

struct ps_order *ps_loader_resume(struct penstock_loader *l, struct ps_resumed *r)
{
	struct ps_order *before;

	l->options.o.lanes = r->run.lanes;
	l->options.o.shuffle_window = r->run.window;
	ps_state_print_lanes(&l->print, &l->options);
	if (r->at.known && !ps_epochs_options(l->schedule.epochs)->known)
		l->schedule.counted = true;
	before = ps_schedule_resume(&l->schedule, &l->options, &r->run, r->order);
	r->order = NULL;
	l->bad_run = r->bad_run;
	ps_share_begin(l, r->at.batches);
	return before;
}

void ps_resumed_fini(struct ps_resumed *r)
{
	ps_position_fini(&r->at);
	ps_order_free(r->order);
	ps_run_fini(&r->run);
}

int penstock_loader_state_save(
        struct penstock_loader *l, void *buf, size_t size, struct penstock_error *error)
{
	struct ps_error err = {0};
	struct ps_offload offload;
	struct ps_state state;
	size_t need;
	int rc = ps_opener_check(l->pid, &err);

	if (rc < 0)
		return ps_give_error(error, rc, &err);
	need = ps_state_nbytes(ps_resume_nlanes(&l->schedule, ps_pipeline_position(l->pipeline)),
	        ps_resume_nsets(&l->schedule), l->gpu.nvjpeg);
	if (!buf) /* a size that suffices for any state of this loader */
		return (int)ps_state_nbytes(
		        ps_resume_most(&l->schedule), ps_resume_nsets(&l->schedule), l->gpu.nvjpeg);
	if (size < need)
		rc = ps_error_set(
		        &err, ENOBUFS, "the state has %zu bytes, but there is room for %zu", need, size);
	else
		rc = print_make(l, &err);
	if (rc == 0)
		rc = ps_resume_state(
		        &l->schedule, ps_pipeline_position(l->pipeline), l->bad_run, &state, &err);
	if (rc < 0)
		return ps_give_error(error, rc, &err);
	ps_pipeline_offload(l->pipeline, &offload);
	ps_gpu_decode_save(&l->gpu, &offload, &state);
	ps_state_write(&l->print, &state, buf);
	ps_state_fini(&state);
	return (int)need;
}

/* Where a unit of columns is in its file: the order of its bytes is the source's, so its first byte. */
static void unit_place(void *options, uint32_t unit, uint64_t epoch, uint64_t pass, uint64_t ordinal,
        uint64_t *ret_offset, uint64_t *ret_nbytes)
{
	const struct ps_options *p = options;

	(void)epoch;
	(void)pass;
	(void)ordinal;
	(void)ret_nbytes; /* the number of bytes is not known */
	if (p->ranges)
		*ret_offset = p->ranges[2 * (size_t)unit];
}

struct ps_planner *ps_loader_planner(struct penstock_loader *l, const struct ps_position *at)
{
	const struct penstock_options *o = &l->options.o;
	const struct ps_numbers *numbers = l->options.numbers;
	struct ps_planner_parts parts = {.files = l->options.file_of,
	        .nfiles = l->options.nfiles,
	        .place = unit_place,
	        .ctx = &l->options};

	if (l->packing)
		parts = (struct ps_planner_parts){.files = l->packing->file_of,
		        .nfiles = l->packing->nfiles,
		        .place = ps_packing_place,
		        .ctx = l->packing};
	return ps_planner_new(&(struct ps_planner_options){.order = l->schedule.order,
	                              .shards = l->options.files,
	                              .nshards = l->schedule.nshards,
	                              .parts = parts,
	                              .job = o->job ? o->job : "loader",
	                              .rank = o->rank,
	                              .world = o->world,
	                              .end_epoch = o->epochs ? o->epoch + o->epochs : UINT64_MAX,
	                              .epochs = PS_PLANNER_EPOCHS,
	                              .uses = l->schedule.uses.n ? &l->schedule.uses : NULL,
	                              .batch = o->batch,
	                              .fed = numbers && ps_numbers_is_feed(numbers),
	                              .repeats_of = l->schedule.epochs},
	        at);
}

int penstock_loader_state_load_as(struct penstock_loader *l, const void *state, size_t size, uint32_t flags,
        struct penstock_error *error)
{
	struct ps_error err = {0};
	struct ps_order *before;
	struct ps_resumed r = {0};
	bool reorders;
	int rc = ps_opener_check(l->pid, &err);

	if (rc == 0)
		rc = ps_loader_state_read(l, state, size, flags, &r, &err);
	if (rc < 0)
		return ps_give_error(error, rc, &err);
	reorders = r.order;
	if (reorders) { /* the planner's thread uses the order */
		ps_planner_free(l->planner);
		l->planner = NULL;
	}
	ps_pipeline_stop(l->pipeline);
	before = ps_loader_resume(l, &r);
	ps_pipeline_set_offload(l->pipeline, &r.offload);
	if (reorders) {
		rc = ps_pipeline_reorder(l->pipeline, l->schedule.order, &err);
		ps_order_free(before);
		if (rc == 0 && l->options.files)
			l->planner = ps_loader_planner(l, &r.at);
	}
	if (l->planner) {
		ps_planner_at(l->planner, &r.at);
		ps_planner_reads(l->planner, &r.at);
	}
	if (rc == 0)
		rc = ps_pipeline_restart(l->pipeline, &r.at, &err);
	l->failed = rc;
	l->why = err;
	ps_resumed_fini(&r);
	return rc < 0 ? ps_give_error(error, rc, &err) : 0;
}

int penstock_loader_state_load(
        struct penstock_loader *l, const void *state, size_t size, struct penstock_error *error)
{
	return penstock_loader_state_load_as(l, state, size, 0, error);
}
