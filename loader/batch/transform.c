#include "config.h"

#include "batch/transform.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "batch/convert.h"
#include "order/rng.h"

struct penstock_sample {
	struct penstock_batch *batch;
	uint32_t row;
	struct ps_batch_worker *worker;
	uint64_t items[PS_PLAN_MAX_FIELDS]; /* of outputs that are no fixed shape */
	char text[256];
};

static uint8_t *output_at(const struct penstock_sample *s, uint32_t i)
{
	const struct ps_plan_field *f = &s->batch->plan->fields[i];

	if (!ps_field_is_late(f))
		return ps_batch_row(s->batch, i, 0, s->row);
	return s->batch->outputs[i] + s->row * (size_t)f->max_items * f->item_nbytes;
}

/* Rows are used again: what the callback leaves out must not be another sample's. */
static void outputs_begin(struct penstock_sample *s)
{
	for (uint32_t i = 0; i < s->batch->plan->nfields; i++) {
		const struct ps_plan_field *f = &s->batch->plan->fields[i];

		s->items[i] = 0;
		if (f->kind == PENSTOCK_OUTPUT && f->form == PS_FORM_FIXED)
			memset(output_at(s, i), 0, f->row_nbytes);
	}
}

/* Lengths, padding and masks, or pieces for when the batch is whole. */
static void outputs_end(struct penstock_sample *s)
{
	for (uint32_t i = 0; i < s->batch->plan->nfields; i++) {
		const struct ps_plan_field *f = &s->batch->plan->fields[i];
		const struct ps_slot_field *at = &s->batch->at.fields[i];
		uint64_t n = s->items[i];

		if (f->kind != PENSTOCK_OUTPUT)
			continue;
		if (ps_field_is_late(f)) {
			s->batch->pieces[i][s->row] = (struct ps_piece){.data = output_at(s, i), .items = n};
		} else if (f->form == PS_FORM_PADDED) {
			uint8_t *mask = s->batch->mem + at->mask + s->row * f->row_items;

			ps_fill(f->dtype, f->pad, output_at(s, i) + n * f->item_nbytes,
			        (size_t)(f->row_items - n) * f->item_elements);
			memcpy(s->batch->mem + at->lengths + s->row * sizeof(n), &n, sizeof(n));
			memset(mask, 1, (size_t)n);
			memset(mask + n, 0, (size_t)(f->row_items - n));
		}
	}
}

int ps_transform_run(
        struct penstock_batch *b, uint32_t row, struct ps_batch_worker *w, struct ps_load_error *err)
{
	struct penstock_sample s;
	int r;

	s.batch = b;
	s.row = row;
	s.worker = w;
	s.text[0] = 0;
	outputs_begin(&s);
	r = b->plan->transform(b->plan->transform_ctx, &s);
	if (r >= 0) {
		outputs_end(&s);
		return 0;
	}
	ps_load_error_set(
	        err, r == -ENOMEM ? ENOMEM : EBADMSG, "transform: %s", s.text[0] ? s.text : strerror(-r));
	return -err->err;
}

/* -- What the callback may call ------------------------------------------------------------------------ */

void penstock_sample_info(const struct penstock_sample *s, struct penstock_sample_info *ret_info)
{
	const struct ps_sample *in = s->batch->rows[s->row].sample;
	const struct ps_rng_key key = {.seed = s->worker->seed,
	        .epoch = s->batch->epoch,
	        .shard = in->file->shard,
	        .sample = in->ordinal,
	        .draw = in->draw};

	*ret_info = (struct penstock_sample_info){.key = in->key,
	        .shard = in->file->path,
	        .epoch = s->batch->epoch,
	        .shard_index = in->file->shard,
	        .sample_index = in->ordinal,
	        .random = ps_rng_u64(&key, PS_RNG_TRANSFORM, 0)};
}

static int field_find(const struct penstock_sample *s, const char *name)
{
	return ps_plan_lookup(s->batch->plan, name, strlen(name));
}

int penstock_sample_field(struct penstock_sample *s, const char *name, struct penstock_tensor *ret_tensor)
{
	int i = field_find(s, name);
	const struct ps_plan_field *f = i < 0 ? NULL : &s->batch->plan->fields[i];
	struct penstock_tensor t = {0};

	if (!f || f->kind == PENSTOCK_OUTPUT)
		return -ENOENT;
	t.data = ps_field_is_late(f) ? ps_batch_late_peek(s->batch, (uint32_t)i, s->row, s->worker)
	                             : ps_batch_row(s->batch, (uint32_t)i, 0, s->row);
	if (!t.data)
		return -ENOMEM;
	t.host = t.data;
	t.memory = PENSTOCK_MEMORY_HOST;
	t.dtype = (uint32_t)f->dtype;
	t.ndim = f->ndim;
	for (uint32_t d = 0; d < f->ndim; d++)
		t.shape[d] = f->shape[d];
	if (f->form != PS_FORM_FIXED)
		t.shape[0] = ps_batch_items(s->batch, (uint32_t)i, s->row);
	t.nbytes = f->form == PS_FORM_FIXED ? f->row_nbytes : t.shape[0] * f->item_nbytes;
	*ret_tensor = t;
	return 0;
}

void *penstock_sample_output(struct penstock_sample *s, const char *name, uint64_t *ret_items)
{
	int i = field_find(s, name);
	const struct ps_plan_field *f = i < 0 ? NULL : &s->batch->plan->fields[i];

	if (!f || f->kind != PENSTOCK_OUTPUT)
		return NULL;
	if (ret_items)
		*ret_items = f->form == PS_FORM_FIXED ? f->row_items : f->max_items;
	return output_at(s, (uint32_t)i);
}

int penstock_sample_set_items(struct penstock_sample *s, const char *name, uint64_t items)
{
	int i = field_find(s, name);
	const struct ps_plan_field *f = i < 0 ? NULL : &s->batch->plan->fields[i];

	if (!f || f->kind != PENSTOCK_OUTPUT)
		return -ENOENT;
	if (f->form == PS_FORM_FIXED ? items != f->row_items : items > f->max_items)
		return -EINVAL;
	s->items[i] = items;
	return 0;
}

int penstock_sample_fail(struct penstock_sample *s, const char *text)
{
	snprintf(s->text, sizeof(s->text), "%s", text);
	return -EBADMSG;
}
