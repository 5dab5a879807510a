/* Saves and reads a loader's state. */
#include "config.h"

#include "loader.h"

#include <errno.h>

int ps_loader_state_read(struct penstock_loader *l, const void *bytes, size_t size, struct ps_position *at,
        uint32_t *ret_bad_run, struct ps_offload *ret_offload, struct ps_error *err)
{
	const struct penstock_options *o = &l->options.o;
	struct ps_state state;
	int rc;

	rc = ps_state_print_make(&l->print, &l->options, err);
	if (rc == 0)
		rc = ps_state_read(&l->print, bytes, size, &state, err);
	if (rc < 0)
		return rc;
	/* The state of a finished run has the epoch after the last one. */
	if (o->epochs && (state.epoch < o->epoch || state.epoch - o->epoch > o->epochs))
		rc = ps_error_set(err, EINVAL,
		        "the state is of epoch %ju, outside of the epochs that were asked for (from %ju, %ju "
		        "of them)",
		        (uintmax_t)state.epoch, (uintmax_t)o->epoch, (uintmax_t)o->epochs);
	if (rc == 0)
		rc = ps_gpu_decode_resume(&l->gpu, &state, ret_offload, err);
	if (rc == 0 && ps_position_init(at, ps_order_nlanes(l->schedule.order)) < 0)
		rc = ps_no_memory(err);
	if (rc == 0) {
		rc = ps_resume_position(&l->schedule, &state, at, err);
		if (rc < 0)
			ps_position_fini(at);
		else if (at->known && !ps_epochs_options(l->schedule.epochs)->known)
			l->schedule.counted = true;
	}
	*ret_bad_run = state.bad_run;
	ps_state_fini(&state);
	return rc;
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
	need = ps_state_nbytes(
	        ps_resume_nlanes(&l->schedule, ps_pipeline_position(l->pipeline)), l->gpu.nvjpeg);
	if (!buf) /* a size that suffices for any state of this loader */
		return (int)ps_state_nbytes(ps_resume_most(&l->schedule), l->gpu.nvjpeg);
	if (size < need)
		rc = ps_error_set(
		        &err, ENOBUFS, "the state has %zu bytes, but there is room for %zu", need, size);
	else
		rc = ps_state_print_make(&l->print, &l->options, &err);
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

int penstock_loader_state_load(
        struct penstock_loader *l, const void *state, size_t size, struct penstock_error *error)
{
	struct ps_error err = {0};
	struct ps_offload offload;
	struct ps_position at;
	uint32_t bad_run;
	int rc = ps_opener_check(l->pid, &err);

	if (rc == 0)
		rc = ps_loader_state_read(l, state, size, &at, &bad_run, &offload, &err);
	if (rc < 0)
		return ps_give_error(error, rc, &err);
	ps_pipeline_set_offload(l->pipeline, &offload);
	if (l->planner) {
		ps_planner_at(l->planner, &at);
		ps_planner_reads(l->planner, &at);
	}
	rc = ps_pipeline_restart(l->pipeline, &at, &err);
	l->failed = rc;
	l->why = err;
	l->bad_run = bad_run;
	ps_share_begin(l, at.batches);
	ps_position_fini(&at);
	return rc < 0 ? ps_give_error(error, rc, &err) : 0;
}
