#include "config.h"

#include "batch/pictures.h"

#include <errno.h>

#include "base/clock.h"
#include "batch/decode.h"
#include "batch/make.h"

int ps_picture_worker_init(
        struct ps_batch_worker *w, const struct ps_plan *plan, uint32_t i, struct ps_load_error *err)
{
	const struct ps_plan_field *f = &plan->fields[i];

	if (f->kind == PENSTOCK_IMAGE) {
		struct ps_image_spec spec = f->image;

		spec.ticket = &w->ticket;
		if (f->made) {
			spec.dtype = PS_U8;
			spec.layout = PS_NCHW;
			spec.deferred = true;
		}
		w->decoders[i] = ps_image_decoder_new(&spec, err);
		if (!w->decoders[i])
			return -ENOMEM;
		if (f->leader >= 0)
			ps_image_decoder_follow(w->decoders[i], w->decoders[f->leader]);
	} else if (f->kind == PENSTOCK_MASK) {
		struct ps_mask_spec spec = f->mask;

		spec.ticket = &w->ticket;
		w->masks[i] = ps_mask_decoder_new(&spec);
		if (!w->masks[i])
			return ps_load_error_set(err, ENOMEM, "mask: out of memory for a decoder");
	}
	return 0;
}

static bool decodes(const struct ps_plan *plan, uint32_t i, uint32_t j)
{
	return plan->fields[j].kind == PENSTOCK_IMAGE && plan->fields[j].decoded_by == i;
}

struct ps_rng_key ps_picture_key(
        const struct penstock_batch *b, uint32_t row, const struct ps_batch_worker *w)
{
	const struct ps_sample *s = b->rows[row].sample;

	return (struct ps_rng_key){.seed = w->seed,
	        .epoch = b->epoch,
	        .shard = s->file->shard,
	        .sample = s->ordinal,
	        .draw = s->draw};
}

/* An image, and those of the same member behind it. */
static int image_decode(struct penstock_batch *b, uint32_t row, uint32_t i, const struct ps_sample_field *in,
        struct ps_batch_worker *w, struct ps_load_error *err)
{
	const struct ps_rng_key key = ps_picture_key(b, row, w);
	struct ps_image_decoder *decoders[PS_PLAN_MAX_FIELDS];
	void *dsts[PS_PLAN_MAX_FIELDS];
	uint32_t n = 0;
	int r = 0;

	for (uint32_t j = i; j < b->plan->nfields; j++) {
		if (!decodes(b->plan, i, j))
			continue;
		decoders[n] = w->decoders[j];
		dsts[n++] = ps_batch_row(b, j, 0, row);
	}
	if (n > 0)
		r = ps_image_decode_shared(decoders, dsts, n, in->data, (size_t)in->size, &key, err);
	for (uint32_t j = i; j < b->plan->nfields && r == 0; j++)
		if (decodes(b->plan, i, j))
			ps_make_row(b, row, j, w->decoders[j]);
	return r;
}

int ps_picture_decode_here(struct penstock_batch *b, uint32_t row, uint32_t i,
        const struct ps_sample_field *in, struct ps_batch_worker *w, struct ps_load_error *err)
{
	const struct ps_plan_field *f = &b->plan->fields[i];
	int r;

	if (f->kind == PENSTOCK_IMAGE) {
		r = image_decode(b, row, i, in, w, err);
	} else {
		const struct ps_image_placement p = ps_image_decoder_placement(w->decoders[f->leader]);

		r = ps_mask_decode(
		        w->masks[i], &p, in->data, (size_t)in->size, ps_batch_row(b, i, 0, row), err);
	}
	ps_image_ticket_give(&w->ticket);
	return r;
}

int ps_picture_decode(struct penstock_batch *b, uint32_t row, uint32_t i, const struct ps_sample_field *in,
        struct ps_batch_worker *w, struct ps_load_error *err)
{
	uint64_t begin;
	bool taken;
	int r;

	if (!b->decoded[i])
		return ps_picture_decode_here(b, row, i, in, w, err);
	begin = ps_clock_mono_ns();
	r = ps_decode_offer(b, row, i, in, w, err);
	taken = r == 1;
	if (r == 0)
		r = ps_picture_decode_here(b, row, i, in, w, err);
	if (r >= 0 && w->times)
		ps_offload_count(w->times, taken, ps_clock_mono_ns() - begin);
	return PS_MIN(r, 0);
}

void ps_picture_boxes(struct penstock_batch *b, uint32_t row, uint32_t i, const struct ps_batch_worker *w)
{
	const struct ps_plan_field *f = &b->plan->fields[i];
	const struct ps_image_placement p = ps_image_decoder_placement(w->decoders[f->leader]);

	b->boxes[i][row] = ps_boxes_map_of(&p, 0, f->box_shares);
}
