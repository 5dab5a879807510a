#include "config.h"

#include "batch/batch.h"

#include "batch/parts.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"

int ps_picture_worker_init(
        struct ps_batch_worker *w, const struct ps_batch_layout *layout, uint32_t i, struct ps_error *err)
{
	const struct ps_layout_field *f = &layout->fields[i];

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
			return ps_error_set(err, ENOMEM, "mask: out of memory for a decoder");
	}
	return 0;
}

static bool decodes(const struct ps_batch_layout *layout, uint32_t i, uint32_t j)
{
	return layout->fields[j].kind == PENSTOCK_IMAGE && layout->fields[j].decoded_by == i;
}

struct ps_rng_key ps_picture_key(
        const struct penstock_batch *b, uint32_t row, const struct ps_batch_worker *w)
{
	const struct ps_sample *s = b->rows[row].sample;

	return (struct ps_rng_key){.seed = w->seed,
	        .epoch = b->epoch,
	        .shard = s->file->shard,
	        .sample = s->file->first + s->ordinal,
	        .draw = s->draw};
}

/* Decodes an image, also for later fields of the same member. */
static int image_decode(struct penstock_batch *b, uint32_t row, uint32_t i, const struct ps_sample_field *in,
        struct ps_batch_worker *w, struct ps_error *err)
{
	const struct ps_rng_key key = ps_picture_key(b, row, w);
	struct ps_image_decoder *decoders[PS_LAYOUT_MAX_FIELDS];
	void *dsts[PS_LAYOUT_MAX_FIELDS];
	uint32_t n = 0;
	int rc = 0;

	for (uint32_t j = i; j < b->layout->nfields; j++) {
		if (!decodes(b->layout, i, j))
			continue;
		decoders[n] = w->decoders[j];
		dsts[n++] = ps_batch_row(b, j, 0, row);
	}
	if (n > 0)
		rc = ps_image_decode_shared(decoders, dsts, n, in->data, (size_t)in->size, &key, err);
	b->rows[row].truncated += n > 0 && rc == 0 && ps_image_decoder_is_truncated(decoders[0]);
	for (uint32_t j = i; j < b->layout->nfields && rc == 0; j++)
		if (decodes(b->layout, i, j))
			ps_make_row(b, row, j, w->decoders[j]);
	return rc;
}

/* As ps_picture_decode(), but on this thread, never on the GPU. */
static int decode_here(struct penstock_batch *b, uint32_t row, uint32_t i, const struct ps_sample_field *in,
        struct ps_batch_worker *w, struct ps_error *err)
{
	const struct ps_layout_field *f = &b->layout->fields[i];
	int rc;

	if (f->kind == PENSTOCK_IMAGE) {
		rc = image_decode(b, row, i, in, w, err);
	} else {
		const struct ps_image_placement p = ps_image_decoder_placement(w->decoders[f->leader]);

		rc = ps_mask_decode(
		        w->masks[i], &p, in->data, (size_t)in->size, ps_batch_row(b, i, 0, row), err);
	}
	ps_image_ticket_give(&w->ticket);
	return rc;
}

/* Offers field i of the row to the GPU. 1: the GPU decodes it; 0: it does not; -errno: the sample is bad, or
 * memory is short. */
static int decode_offer(struct penstock_batch *b, uint32_t row, uint32_t i, const struct ps_sample_field *in,
        struct ps_batch_worker *w, struct ps_error *err)
{
	const struct ps_sample *s = b->rows[row].sample;
	const struct ps_rng_key key = ps_picture_key(b, row, w);
	struct ps_image_outline outline;
	int rc;

	if (!b->decoded[i] || !w->nvjpeg ||
	        !ps_offload_takes(b->offload, w->seed, s->file->shard, s->ordinal))
		return 0;
	rc = ps_image_sketch(w->decoders[i], in->data, (size_t)in->size, &key, &outline, err);
	if (rc == 0)
		rc = ps_nvjpeg_take(w->nvjpeg, b->decoded[i], row, in->data, (size_t)in->size, &outline, err);
	if (rc == 1)
		ps_make_row(b, row, i, w->decoders[i]);
	return rc;
}

int ps_picture_decode(struct penstock_batch *b, uint32_t row, uint32_t i, const struct ps_sample_field *in,
        struct ps_batch_worker *w, struct ps_error *err)
{
	uint64_t begin;
	bool taken;
	int rc;

	if (!b->decoded[i])
		return decode_here(b, row, i, in, w, err);
	begin = ps_clock_mono_ns();
	rc = decode_offer(b, row, i, in, w, err);
	taken = rc == 1;
	if (rc == 0)
		rc = decode_here(b, row, i, in, w, err);
	if (rc >= 0 && w->times)
		ps_offload_count(w->times, taken, ps_clock_mono_ns() - begin);
	return PS_MIN(rc, 0);
}

void ps_picture_boxes(struct penstock_batch *b, uint32_t row, uint32_t i, const struct ps_batch_worker *w)
{
	const struct ps_layout_field *f = &b->layout->fields[i];
	const struct ps_image_placement p = ps_image_decoder_placement(w->decoders[f->leader]);

	b->boxes[i][row] = ps_boxes_map_of(&p, 0, f->box_shares);
}

/* Images that the GPU decodes ---------------------------------------------------------------------------- */

bool ps_decode_offloads(const struct ps_batch_layout *layout, uint32_t i)
{
	const struct ps_layout_field *f = &layout->fields[i];

	if (f->kind != PENSTOCK_IMAGE || !f->made || f->leader >= 0 || f->decoded_by != i ||
	        f->image.dct_scale || ps_image_views(&f->image) != 1)
		return false;
	for (uint32_t j = 0; j < layout->nfields; j++)
		if (j != i && layout->fields[j].kind == PENSTOCK_IMAGE && layout->fields[j].decoded_by == i)
			return false;
	return true;
}

int ps_decode_init(struct penstock_batch *b, struct ps_nvjpeg *nvjpeg, struct ps_error *err)
{
	size_t most = 1; /* each hole is at least one row, and adds at most one stretch */
	int rc = 0;

	for (uint32_t i = 0; i < b->layout->nfields && rc == 0; i++) {
		if (!ps_decode_offloads(b->layout, i))
			continue;
		rc = ps_nvjpeg_rows_new(nvjpeg, b->cap, b->layout->fields[i].image.out_width,
		        b->layout->fields[i].image.out_height, &b->decoded[i], err);
		most += b->cap;
	}
	if (rc < 0)
		return rc;
	b->stretches = calloc(most, sizeof(*b->stretches));
	return b->stretches ? 0 : ps_error_set(err, ENOMEM, "no memory for a batch of %u rows", b->cap);
}

void ps_decode_clear(struct penstock_batch *b)
{
	for (uint32_t i = 0; b->decoded && i < b->layout->nfields; i++)
		if (b->decoded[i])
			ps_nvjpeg_rows_clear(b->decoded[i]);
}

void ps_decode_fini(struct penstock_batch *b)
{
	for (uint32_t i = 0; b->decoded && i < b->layout->nfields; i++)
		ps_nvjpeg_rows_free(ps_steal_ptr(&b->decoded[i]));
}

/* Decodes a row that the GPU refused after it was submitted. */
static void row_decode(struct penstock_batch *b, uint32_t row, uint32_t i, const uint8_t *data, size_t nbytes,
        struct ps_batch_worker *w)
{
	struct ps_row *r = &b->rows[row];
	struct ps_sample_field in = *ps_layout_find(&b->layout->fields[i], r->sample);
	struct ps_error err = {0};
	uint64_t begin = ps_clock_mono_ns();
	int rc;

	in.data = (uint8_t *)(uintptr_t)data;
	in.size = nbytes;
	rc = decode_here(b, row, i, &in, w, &err);
	if (rc == 0 && w->times)
		ps_offload_count(w->times, false, ps_clock_mono_ns() - begin);
	if (rc == 0)
		return;
	ps_error_prefix(&err, rc, "field .%.100s", in.suffix);
	r->bad = -rc;
	free(r->reason);
	r->reason = strdup(err.text);
}

int ps_decode_submit(struct penstock_batch *b, struct ps_batch_worker *w, struct ps_error *err)
{
	int rc = 0;

	for (uint32_t i = 0; i < b->layout->nfields && rc == 0; i++) {
		const uint8_t *data;
		size_t nbytes;

		if (!b->decoded[i])
			continue;
		rc = ps_nvjpeg_submit(b->decoded[i], err);
		for (uint32_t row = 0; row < b->nrows && rc == 0; row++)
			if (!b->rows[row].bad && ps_nvjpeg_refused(b->decoded[i], row, &data, &nbytes))
				row_decode(b, row, i, data, nbytes, w);
	}
	return rc;
}
