#include "config.h"

#include "gpu_decode.h"

#include <errno.h>
#include <stdio.h>

#include "batch/batch.h"

static bool is_auto(const struct ps_gpu_decode *g)
{
	return g->asked < 0;
}

static struct ps_offload beginning(const struct ps_gpu_decode *g)
{
	if (!g->nvjpeg)
		return (struct ps_offload){0};
	if (is_auto(g))
		return (struct ps_offload){.tuning = true};
	return (struct ps_offload){.share = (uint32_t)(g->asked * PS_OFFLOAD_ALL + 0.5)};
}

/* Checks that some field of the layout can be decoded on the GPU. */
static int fields_check(const struct ps_batch_layout *layout, const char *made_not, struct ps_error *err)
{
	if (!layout)
		return ps_error_set(err, ENODEV,
		        "gpu_decode: the GPU cannot decode images that it does not finish: %s",
		        made_not ? made_not : "device_pixels is off");
	for (uint32_t i = 0; i < layout->nfields; i++)
		if (ps_decode_offloads(layout, i))
			return 0;
	return ps_error_set(err, ENODEV,
	        "gpu_decode: no image field that the GPU can decode: such a field has one view, follows no "
	        "other field, shares its member with no other field and has no dct_scale");
}

static int nvjpeg_open(const struct penstock_options *o, const struct ps_batch_layout *layout,
        const char *made_not, struct ps_device *device, struct ps_nvjpeg **ret_nvjpeg,
        struct ps_error *ret_refused, struct ps_error *err)
{
	int rc;

	if (device->ops != &ps_device_cuda)
		return ps_error_set(err, ENODEV, "gpu_decode: device %s: JPEGs are decoded on cuda only",
		        device->ops->name);
	rc = fields_check(layout, made_not, err);
	return rc < 0 ? rc : ps_nvjpeg_new(device, o->batch, o->threads, ret_nvjpeg, ret_refused, err);
}

int ps_gpu_decode_open(const struct penstock_options *o, const struct ps_batch_layout *layout,
        const char *made_not, struct ps_device *device, struct ps_gpu_decode *ret_gpu, struct ps_error *err)
{
	struct ps_gpu_decode g = {.asked = o->gpu_decode};
	int rc = 0;

	if (g.asked != 0)
		rc = nvjpeg_open(
		        o, layout, made_not, device, &g.nvjpeg, &g.refused, is_auto(&g) ? &g.why : err);
	if (rc < 0 && (!is_auto(&g) || rc != -ENODEV)) {
		if (is_auto(&g))
			*err = g.why;
		return rc;
	}
	g.offload = beginning(&g);
	*ret_gpu = g;
	return 0;
}

void ps_gpu_decode_close(struct ps_gpu_decode *g)
{
	ps_nvjpeg_free(g->nvjpeg);
	*g = (struct ps_gpu_decode){0};
}

void ps_gpu_decode_save(
        const struct ps_gpu_decode *g, const struct ps_offload *offload, struct ps_state *state)
{
	state->decodes = g->nvjpeg;
	if (!g->nvjpeg)
		return;
	state->offload = *offload;
	state->decoder = ps_nvjpeg_print(g->nvjpeg);
}

static bool same(const struct ps_offload *a, const struct ps_offload *b)
{
	return a->tuning == b->tuning && a->share == b->share && a->epoch == b->epoch && a->batch == b->batch;
}

static int refuse(const struct ps_gpu_decode *g, const struct ps_state *state, struct ps_error *err)
{
	char theirs[32] = "auto";

	if (!state->offload.tuning && state->offload.epoch == 0 && state->offload.batch == 0)
		snprintf(theirs, sizeof(theirs), "%g", state->offload.share / (double)PS_OFFLOAD_ALL);
	if (g->asked != 0 && !g->nvjpeg)
		return ps_error_set(err, ESTALE,
		        "the state was saved by a loader whose images a GPU decoded (gpu_decode %s), which "
		        "gives "
		        "other pixels; no GPU can decode here: %s",
		        theirs, g->why.text);
	return ps_error_set(err, ESTALE,
	        "the state was saved by a loader with gpu_decode %s, which gives other pixels than %g; open "
	        "this "
	        "loader with %s, or with auto, which continues with the state's share",
	        theirs, g->asked, theirs);
}

int ps_gpu_decode_resume(const struct ps_gpu_decode *g, const struct ps_state *state,
        struct ps_offload *ret_offload, struct ps_error *err)
{
	const struct ps_offload none = {0}, own = beginning(g);
	const struct ps_offload *theirs = state->decodes ? &state->offload : &none;

	if (!same(theirs, &none) && !g->nvjpeg)
		return refuse(g, state, err);
	if (!is_auto(g) && !same(theirs, &own))
		return refuse(g, state, err);
	if (state->decodes && g->nvjpeg && state->decoder != ps_nvjpeg_print(g->nvjpeg))
		return ps_error_set(err, ESTALE,
		        "the state was saved with another version of nvJPEG or another kind of GPU (%ju, "
		        "this is "
		        "%ju), which gives "
		        "other pixels; restart the epoch",
		        (uintmax_t)state->decoder, (uintmax_t)ps_nvjpeg_print(g->nvjpeg));
	*ret_offload = *theirs;
	return 0;
}
