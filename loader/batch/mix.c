#include "config.h"

#include "batch/mix.h"

#include <errno.h>
#include <string.h>

static const struct ps_image_spec *image_of(const struct penstock_batch *b, const struct ps_plan_field *f)
{
	return f->kind == PENSTOCK_IMAGE ? &f->image : &b->plan->fields[f->leader].image;
}

/* One row of a picture field with its partner's. */
static void row_mix(const struct penstock_batch *b, const struct ps_plan_field *f, const struct ps_mix *mix,
        uint8_t *own, const uint8_t *other)
{
	const struct ps_image_spec *spec = image_of(b, f);
	size_t esize = ps_dtype_nbytes(f->dtype);
	bool planar = f->kind == PENSTOCK_MASK || spec->layout == PS_NCHW;
	uint32_t planes = (f->kind == PENSTOCK_MASK ? 1 : planar ? 3 : 1) * ps_image_views(spec);
	struct ps_mix_box box;

	if (mix->kind == PS_MIX_UP && f->kind == PENSTOCK_IMAGE) {
		ps_mix_blend(f->dtype, own, other, f->row_nbytes / esize, mix->weight);
	} else if (mix->kind == PS_MIX_CUT) {
		box = ps_mix_box_of(mix, spec->out_width, spec->out_height);
		ps_mix_paste(&box, own, other, planes, spec->out_width, spec->out_height,
		        planar ? esize : 3 * esize);
	}
}

static int field_mix(struct penstock_batch *b, uint32_t i, const struct ps_mix *mix)
{
	const struct ps_plan_field *f = &b->plan->fields[i];
	ps_autofree uint8_t *last = malloc(f->row_nbytes + 1);

	if (!last)
		return -ENOMEM;
	memcpy(last, ps_batch_row(b, i, 0, b->out_rows - 1), f->row_nbytes);
	for (uint32_t row = b->out_rows; row-- > 0;)
		row_mix(b, f, mix, ps_batch_row(b, i, 0, row),
		        row > 0 ? ps_batch_row(b, i, 0, row - 1) : last);
	return 0;
}

static uint32_t partner_of(const struct penstock_batch *b, uint32_t row)
{
	return row > 0 ? row - 1 : b->out_rows - 1;
}

/* Plane 1 of a label: the partner's plane 0. */
static void label_mix(struct penstock_batch *b, uint32_t i, bool mixed)
{
	for (uint32_t row = 0; row < b->out_rows; row++)
		memcpy(ps_batch_row(b, i, 1, row), ps_batch_row(b, i, 0, mixed ? partner_of(b, row) : row),
		        b->plan->fields[i].row_nbytes);
}

/* Of the first image: a box that was cut at an edge is smaller than what was drawn. */
static float lambda_of(const struct penstock_batch *b, const struct ps_mix *mix)
{
	const struct ps_image_spec *spec = NULL;
	struct ps_mix_box box;

	for (uint32_t i = 0; i < b->plan->nfields && !spec; i++)
		if (b->plan->fields[i].kind == PENSTOCK_IMAGE)
			spec = &b->plan->fields[i].image;
	if (mix->kind != PS_MIX_CUT || !spec)
		return (float)mix->weight / 65536;
	box = ps_mix_box_of(mix, spec->out_width, spec->out_height);
	return (float)(1 - (double)(box.x1 - box.x0) * (box.y1 - box.y0) /
	                           ((double)spec->out_width * spec->out_height));
}

int ps_batch_mix(struct penstock_batch *b)
{
	const struct ps_plan *plan = b->plan;
	const struct ps_rng_key key = {.seed = plan->seed, .epoch = b->epoch, .sample = b->index};
	struct ps_mix mix;
	float lambda;
	int r = 0;

	if (!plan->mixes)
		return 0;
	ps_mix_draw(&plan->mix, &key, &mix);
	b->mix = mix;
	lambda = lambda_of(b, &mix);
	for (uint32_t row = 0; row < b->out_rows; row++) {
		int64_t partner = mix.kind == PS_MIX_NONE ? row : partner_of(b, row);

		memcpy(b->mem + b->at.mix_lambda + row * sizeof(lambda), &lambda, sizeof(lambda));
		memcpy(b->mem + b->at.mix_row + row * sizeof(partner), &partner, sizeof(partner));
	}
	for (uint32_t i = 0; i < plan->nfields && r == 0; i++) {
		const struct ps_plan_field *f = &plan->fields[i];

		if (f->mixed_label)
			label_mix(b, i, mix.kind != PS_MIX_NONE);
		else if (mix.kind != PS_MIX_NONE && !f->made &&
		         (f->kind == PENSTOCK_IMAGE || f->kind == PENSTOCK_MASK))
			r = field_mix(b, i, &mix);
	}
	return r;
}
