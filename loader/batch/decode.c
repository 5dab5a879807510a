#include "config.h"

#include "batch/decode.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "batch/make.h"
#include "batch/pictures.h"
#include "batch/send.h"

bool ps_decode_offloads(const struct ps_plan *plan, uint32_t i)
{
	const struct ps_plan_field *f = &plan->fields[i];

	if (f->kind != PENSTOCK_IMAGE || !f->made || f->leader >= 0 || f->decoded_by != i ||
	        f->image.dct_scale || ps_image_views(&f->image) != 1)
		return false;
	for (uint32_t j = 0; j < plan->nfields; j++)
		if (j != i && plan->fields[j].kind == PENSTOCK_IMAGE && plan->fields[j].decoded_by == i)
			return false;
	return true;
}

int ps_decode_init(struct penstock_batch *b, struct ps_nvjpeg *nvjpeg, struct ps_load_error *err)
{
	int r = 0;

	for (uint32_t i = 0; i < b->plan->nfields && r == 0; i++)
		if (ps_decode_offloads(b->plan, i))
			r = ps_nvjpeg_rows_new(nvjpeg, b->cap, b->plan->fields[i].image.out_width,
			        b->plan->fields[i].image.out_height, &b->decoded[i], err);
	return r < 0 ? r : ps_send_init(b, err);
}

void ps_decode_clear(struct penstock_batch *b)
{
	for (uint32_t i = 0; b->decoded && i < b->plan->nfields; i++)
		if (b->decoded[i])
			ps_nvjpeg_rows_clear(b->decoded[i]);
}

void ps_decode_fini(struct penstock_batch *b)
{
	for (uint32_t i = 0; b->decoded && i < b->plan->nfields; i++)
		ps_nvjpeg_rows_free(ps_steal_ptr(&b->decoded[i]));
}

int ps_decode_offer(struct penstock_batch *b, uint32_t row, uint32_t i, const struct ps_sample_field *in,
        struct ps_batch_worker *w, struct ps_load_error *err)
{
	const struct ps_sample *s = b->rows[row].sample;
	const struct ps_rng_key key = ps_picture_key(b, row, w);
	struct ps_image_outline outline;
	int r;

	if (!b->decoded[i] || !w->nvjpeg ||
	        !ps_offload_takes(b->offload, w->seed, s->file->shard, s->ordinal))
		return 0;
	r = ps_image_sketch(w->decoders[i], in->data, (size_t)in->size, &key, &outline, err);
	if (r == 0)
		r = ps_nvjpeg_take(w->nvjpeg, b->decoded[i], row, in->data, (size_t)in->size, &outline, err);
	if (r == 1)
		ps_make_row(b, row, i, w->decoders[i]);
	return r;
}

/* A row that the GPU did not want after all. */
static void row_decode(struct penstock_batch *b, uint32_t row, uint32_t i, const uint8_t *data, size_t nbytes,
        struct ps_batch_worker *w)
{
	struct ps_row *r = &b->rows[row];
	struct ps_sample_field in = *ps_plan_find(&b->plan->fields[i], r->sample);
	struct ps_load_error err = {0};
	uint64_t begin = ps_clock_mono_ns();
	int e;

	in.data = (uint8_t *)(uintptr_t)data;
	in.size = nbytes;
	e = ps_picture_decode_here(b, row, i, &in, w, &err);
	if (e == 0 && w->times)
		ps_offload_count(w->times, false, ps_clock_mono_ns() - begin);
	if (e == 0)
		return;
	ps_load_error_prefix(&err, "field .%.100s", in.suffix);
	r->bad = -e;
	free(r->reason);
	r->reason = strdup(err.text);
}

int ps_decode_submit(struct penstock_batch *b, struct ps_batch_worker *w, struct ps_load_error *err)
{
	int r = 0;

	for (uint32_t i = 0; i < b->plan->nfields && r == 0; i++) {
		const uint8_t *data;
		size_t nbytes;

		if (!b->decoded[i])
			continue;
		r = ps_nvjpeg_submit(b->decoded[i], err);
		for (uint32_t row = 0; row < b->nrows && r == 0; row++)
			if (!b->rows[row].bad && ps_nvjpeg_refused(b->decoded[i], row, &data, &nbytes))
				row_decode(b, row, i, data, nbytes, w);
	}
	return r;
}
