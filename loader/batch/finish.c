/* Finishing a batch: rows that replace bad ones, late fields, ids. */

#include "config.h"

#include "batch/batch.h"

#include <errno.h>
#include <string.h>

#include "base/number.h"
#include "base/size.h"
#include "batch/fields.h"
#include "batch/parts.h"

static void fail(struct penstock_batch *b, int errnum, const char *text)
{
	b->failed = -errnum;
	b->out_rows = 0;
	if (text)
		ps_error_set(&b->why, errnum, "%s", text);
}

static void row_copy(uint8_t *array, size_t row_nbytes, uint32_t to, uint32_t from)
{
	if (row_nbytes > 0)
		memcpy(array + to * row_nbytes, array + from * row_nbytes, row_nbytes);
}

/* Copies row `from` of a field in place over row `to`. */
static void field_repeat(struct penstock_batch *b, uint32_t i, uint32_t to, uint32_t from)
{
	const struct ps_layout_field *f = &b->layout->fields[i];
	const struct ps_slot_field *at = &b->at.fields[i];

	if (ps_field_is_late(f) || f->hidden)
		return;
	for (uint32_t plane = 0; plane < f->planes; plane++)
		row_copy(b->mem + at->data[plane], f->row_nbytes, to, from);
	ps_make_repeat(b, i, to, from);
	if (f->pack)
		ps_packed_repeat(b, i, to, from);
	if (f->form == PS_FORM_PADDED) {
		row_copy(b->mem + at->lengths, sizeof(int64_t), to, from);
		row_copy(b->mem + at->mask, (size_t)f->row_items, to, from);
	}
}

static void fixed_fill(struct penstock_batch *b)
{
	int64_t *shards = (int64_t *)(void *)(b->mem + b->at.shards);
	int64_t *samples = (int64_t *)(void *)(b->mem + b->at.samples);

	for (uint32_t i = 0; i < b->out_rows; i++) {
		const struct ps_sample *s = b->rows[b->sources[i]].sample;

		b->mem[b->at.valid + i] = b->sources[i] == i && !b->repeats;
		shards[i] = s->file->shard;
		samples[i] = (int64_t)(s->file->first + s->ordinal);
		for (uint32_t f = 0; f < b->layout->nfields && b->sources[i] != i; f++)
			field_repeat(b, f, i, b->sources[i]);
	}
}

/* Late fields -------------------------------------------------------------------------------------------- */

static uint64_t *offsets_of(const struct penstock_batch *b, uint32_t i)
{
	return (uint64_t *)(void *)(b->mem + b->at.fields[i].offsets);
}

/* Sizes a late field by its rows, and places it after *used. -E2BIG: larger than the address space. */
static int late_size(struct penstock_batch *b, uint32_t i, size_t *used)
{
	const struct ps_layout_field *f = i == PS_SLOT_KEYS(b->layout) ? NULL : &b->layout->fields[i];
	struct ps_late *late = &b->late[i];
	uint64_t total = 0, longest = 0;
	bool ok = true;

	for (uint32_t k = 0; k < b->out_rows && ok; k++) {
		uint64_t n = b->blank ? 0
		             : !f     ? b->rows[b->sources[k]].sample->key_len
		                      : b->pieces[i][b->sources[k]].items;

		if (!f || f->form == PS_FORM_RAGGED)
			offsets_of(b, i)[k] = total;
		ok = ps_u64_add(total, n, &total);
		longest = PS_MAX(longest, n);
	}
	if (!f || f->form == PS_FORM_RAGGED) {
		offsets_of(b, i)[b->out_rows] = total;
		late->items = total;
	} else {
		late->items = (longest + f->pad_multiple - 1) / f->pad_multiple * f->pad_multiple;
		ok = ok && ps_u64_mul(late->items, b->out_rows, &total);
	}
	for (uint32_t plane = 0; plane < (f ? f->planes : 1) && ok; plane++)
		ok = ps_slot_place(used, (size_t)total, f ? f->item_nbytes : 1, &late->data[plane]);
	if (f && f->form == PS_FORM_LONGEST)
		ok = ok && ps_slot_place(used, (size_t)total, 1, &late->mask);
	return ok ? 0 : -E2BIG;
}

/* Makes room for `used` bytes. A slot that has grown is not shrunk. */
static int slot_grow(struct penstock_batch *b, size_t used, struct ps_error *err)
{
	size_t nbytes;
	void *mem;

	if (used <= b->mem_nbytes)
		return 0;
	if (!ps_size_round_up(used + used / 4, PS_DEVICE_PAGE, &nbytes))
		return -E2BIG;
	mem = b->device->ops->resize(b->device, b->mem, b->mem_nbytes, nbytes, err);
	if (!mem)
		return -ENOMEM;
	if (b->budget)
		ps_byte_budget_force(b->budget, nbytes - b->mem_nbytes);
	b->grown_nbytes += nbytes - b->mem_nbytes;
	b->mem = mem;
	b->mem_nbytes = nbytes;
	return 0;
}

/* Adds `add`, the number of items that earlier rows have in the field that add_offset_of names, to each of
 * the row's n numbers. False: a result is too large for the type. */
static bool offsets_add(const struct ps_layout_field *f, uint8_t *p, size_t n, uint64_t add)
{
	size_t size = ps_dtype_nbytes(f->dtype);

	for (size_t k = 0; k < n; k++, p += size) {
		struct ps_number v = ps_number_load(f->dtype, false, p);

		v.magnitude += add; /* the sum is below 2^63: both count items in memory */
		if (!ps_number_store(&v, f->dtype, p))
			return false;
	}
	return true;
}

static int ragged_write(struct penstock_batch *b, uint32_t i)
{
	const struct ps_layout_field *f = &b->layout->fields[i];
	const uint64_t *offsets = offsets_of(b, i);

	for (uint32_t k = 0; k < b->out_rows; k++) {
		const struct ps_piece *piece = &b->pieces[i][b->sources[k]];

		for (uint32_t plane = 0; plane < f->planes && piece->items > 0; plane++) {
			uint8_t *dst = b->mem + b->late[i].data[plane] + offsets[k] * f->item_nbytes;

			ps_batch_piece_write(b, i, b->sources[k], piece, plane, dst);
			if (f->offset_of >= 0 && !offsets_add(f, dst, (size_t)piece->items * f->item_elements,
			                                 offsets_of(b, (uint32_t)f->offset_of)[k]))
				return -ERANGE;
		}
	}
	return 0;
}

static void longest_write(struct penstock_batch *b, uint32_t i)
{
	const struct ps_layout_field *f = &b->layout->fields[i];
	const struct ps_late *late = &b->late[i];
	int64_t *lengths = (int64_t *)(void *)(b->mem + b->at.fields[i].lengths);

	for (uint32_t k = 0; k < b->out_rows; k++) {
		const struct ps_piece *piece = &b->pieces[i][b->sources[k]];
		uint8_t *mask = b->mem + late->mask + k * late->items;
		size_t n = (size_t)piece->items, rest = (size_t)(late->items - piece->items);

		for (uint32_t plane = 0; plane < f->planes; plane++) {
			uint8_t *dst = b->mem + late->data[plane] + k * late->items * f->item_nbytes;

			if (n > 0)
				ps_batch_piece_write(b, i, b->sources[k], piece, plane, dst);
			ps_fill(f->dtype, f->pad, dst + n * f->item_nbytes, rest * f->item_elements);
		}
		lengths[k] = (int64_t)n;
		memset(mask, 1, n);
		memset(mask + n, 0, rest);
	}
}

static int late_fill(struct penstock_batch *b)
{
	const uint32_t keys = PS_SLOT_KEYS(b->layout);
	size_t used = b->at.fixed_nbytes;
	int rc = late_size(b, keys, &used);

	for (uint32_t i = 0; i < b->layout->nfields && rc == 0; i++)
		if (ps_field_is_late(&b->layout->fields[i]) && !b->layout->fields[i].hidden)
			rc = late_size(b, i, &used);
	if (rc == 0 && b->max_ragged_nbytes &&
	        used - b->at.fixed_nbytes > b->max_ragged_nbytes + PS_DEVICE_PAGE)
		rc = -E2BIG;
	for (uint32_t i = 0; i < b->layout->nfields && rc == 0; i++)
		if (b->layout->fields[i].pack && !b->layout->fields[i].hidden)
			rc = ps_packed_size(b, i, &used, &b->why);
	if (rc == 0)
		rc = slot_grow(b, used, &b->why);
	if (rc < 0)
		return rc;
	b->used = used;
	for (uint32_t k = 0; k < b->out_rows && !b->blank; k++) {
		const struct ps_sample *s = b->rows[b->sources[k]].sample;

		memcpy(b->mem + b->late[keys].data[0] + offsets_of(b, keys)[k], s->key, s->key_len);
	}
	for (uint32_t i = 0; i < b->layout->nfields && rc == 0; i++) {
		if (b->layout->fields[i].hidden)
			continue;
		if (b->layout->fields[i].form == PS_FORM_RAGGED)
			rc = ragged_write(b, i);
		else if (b->layout->fields[i].form == PS_FORM_LONGEST)
			longest_write(b, i);
		else if (b->layout->fields[i].pack)
			ps_packed_write(b, i);
	}
	return rc;
}

/* CutMix and MixUp --------------------------------------------------------------------------------------- */

/* Mixes one row of an image or mask field with its partner's. */
static void row_mix(const struct penstock_batch *b, const struct ps_layout_field *f, const struct ps_mix *mix,
        uint8_t *own, const uint8_t *other)
{
	const struct ps_image_spec *spec =
	        f->kind == PENSTOCK_IMAGE ? &f->image : &b->layout->fields[f->leader].image;
	size_t esize = ps_dtype_nbytes(f->dtype);
	bool planar = f->kind == PENSTOCK_MASK || f->image.layout == PS_NCHW;
	uint32_t channels = f->kind == PENSTOCK_MASK ? 1 : ps_image_channels(&f->image);
	uint32_t planes = (planar ? channels : 1) * ps_image_views(spec);
	struct ps_mix_box box;

	if (mix->kind == PS_MIX_UP && f->kind == PENSTOCK_IMAGE) {
		ps_mix_blend(f->dtype, own, other, f->row_nbytes / esize, mix->weight);
	} else if (mix->kind == PS_MIX_CUT) {
		box = ps_mix_box_of(mix, spec->out_width, spec->out_height);
		ps_mix_paste(&box, own, other, planes, spec->out_width, spec->out_height,
		        planar ? esize : channels * esize);
	}
}

static int field_mix(struct penstock_batch *b, uint32_t i, const struct ps_mix *mix)
{
	const struct ps_layout_field *f = &b->layout->fields[i];
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

/* Lambda for labels, from the first image's box: a box cut at an edge is smaller than the drawn one. */
static float lambda_of(const struct penstock_batch *b, const struct ps_mix *mix)
{
	const struct ps_image_spec *spec = NULL;
	struct ps_mix_box box;

	for (uint32_t i = 0; i < b->layout->nfields && !spec; i++)
		if (b->layout->fields[i].kind == PENSTOCK_IMAGE)
			spec = &b->layout->fields[i].image;
	if (mix->kind != PS_MIX_CUT || !spec)
		return (float)mix->weight / 65536;
	box = ps_mix_box_of(mix, spec->out_width, spec->out_height);
	return (float)(1 - (double)(box.x1 - box.x0) * (box.y1 - box.y0) /
	                           ((double)spec->out_width * spec->out_height));
}

/* CutMix and MixUp of a finished batch, in place: row i is mixed with row i - 1, the first row with the
 * last. Rows are processed from the last to the first, so one row of scratch is enough. image/image.h has
 * the arithmetic and the random choices, which are the same for all ranks of a step.
 *
 * All image fields are mixed; CutMix's box is scaled to the size of each. CutMix is applied to masks, too;
 * MixUp leaves them unchanged. Labels are unchanged. The batch gets the tensors "__mix_lambda__" (f32: the
 * share of a row's own label), "__mix_row__" (int64: the row of the other label) and, for each int64 or
 * float field in place, NAME:mix with the other row's values.
 *
 * For fields that the device makes, only batch->mix is set: the device mixes them.
 *
 * Threads: one at a time, on a batch whose rows are all decoded.   Errors: -ENOMEM. */
static int batch_mix(struct penstock_batch *b)
{
	const struct ps_batch_layout *layout = b->layout;
	const struct ps_rng_key key = {.seed = layout->seed, .epoch = b->epoch, .sample = b->index};
	struct ps_mix mix;
	float lambda;
	int rc = 0;

	if (!layout->mixes)
		return 0;
	ps_mix_draw(&layout->mix, &key, &mix);
	b->mix = mix;
	lambda = lambda_of(b, &mix);
	for (uint32_t row = 0; row < b->out_rows; row++) {
		int64_t partner = mix.kind == PS_MIX_NONE ? row : partner_of(b, row);

		memcpy(b->mem + b->at.mix_lambda + row * sizeof(lambda), &lambda, sizeof(lambda));
		memcpy(b->mem + b->at.mix_row + row * sizeof(partner), &partner, sizeof(partner));
	}
	for (uint32_t i = 0; i < layout->nfields && rc == 0; i++) {
		const struct ps_layout_field *f = &layout->fields[i];

		/* plane 1 of a label is plane 0 of the partner */
		for (uint32_t row = 0; row < b->out_rows && f->mixed_label; row++)
			memcpy(ps_batch_row(b, i, 1, row),
			        ps_batch_row(b, i, 0, mix.kind == PS_MIX_NONE ? row : partner_of(b, row)),
			        f->row_nbytes);
		if (mix.kind != PS_MIX_NONE && !f->made &&
		        (f->kind == PENSTOCK_IMAGE || f->kind == PENSTOCK_MASK))
			rc = field_mix(b, i, &mix);
	}
	return rc;
}

/* The whole batch ---------------------------------------------------------------------------------------- */

static const char too_large[] = "the ragged fields of one batch are larger than memory_budget / (2 * depth); "
                                "raise memory_budget, lower batch or depth, or set max_bytes";

/* Fills a batch without a good row with zeros and empty ragged fields; padded fields in place with padding, and
 * integers with the missing value, if they have one. */
static void blank_fill(struct penstock_batch *b)
{
	int64_t *shards = (int64_t *)(void *)(b->mem + b->at.shards);
	int64_t *samples = (int64_t *)(void *)(b->mem + b->at.samples);

	b->out_rows = b->pad ? b->cap : b->nrows;
	ps_decode_clear(b); /* drops the GPU's results for rows that are bad in another field */
	memset(b->mem, 0, b->at.fixed_nbytes);
	for (uint32_t i = 0; i < b->out_rows; i++) {
		b->sources[i] = 0;
		shards[i] = samples[i] = -1;
	}
	for (uint32_t i = 0; i < b->layout->nfields; i++) {
		const struct ps_layout_field *f = &b->layout->fields[i];
		const uint8_t *element = f->form == PS_FORM_PADDED ? f->pad
		                         : f->has_missing          ? f->missing
		                                                   : NULL;

		for (uint32_t plane = 0; plane < f->planes && element; plane++)
			ps_fill(f->dtype, element, ps_batch_row(b, i, plane, 0),
			        b->out_rows * (f->row_nbytes / ps_dtype_nbytes(f->dtype)));
		if (b->pieces[i])
			b->pieces[i][0] = (struct ps_piece){0};
		if (f->pack)
			ps_packed_blank(b, i);
	}
}

static void rows_fill(struct penstock_batch *b)
{
	int rc;

	if (b->blank)
		blank_fill(b);
	/* Row i is itself delivered as row i, or the next good one, cyclic over the rows that have a sample. */
	for (uint32_t i = 0; i < b->out_rows && !b->blank; i++) {
		b->sources[i] = i % b->nrows;
		while (b->rows[b->sources[i]].bad)
			b->sources[i] = (b->sources[i] + 1) % b->nrows;
	}
	if (!b->blank)
		fixed_fill(b);
	rc = batch_mix(b);
	if (rc == 0)
		rc = late_fill(b);
	if (rc == -E2BIG)
		fail(b, E2BIG, b->why.text[0] ? NULL : too_large);
	else if (rc == -ERANGE)
		fail(b, ERANGE,
		        "add_offset_of: the batch has more items than the field's dtype can count; use "
		        "int64");
	else if (rc < 0)
		fail(b, -rc, b->why.text[0] ? NULL : "no memory for a ragged field");
}

/* Counts the bad rows. Some kinds of bad rows fail the batch. */
static void rows_judge(struct penstock_batch *b)
{
	for (uint32_t i = 0; i < b->nrows; i++) {
		if (b->rows[i].bad == ENOMEM)
			fail(b, ENOMEM, "no memory to decode a sample");
		if (b->rows[i].bad == PS_ROW_CANCELS && !b->failed) {
			ps_error_set(&b->why, ECANCELED, "%s", ps_batch_reason(b, i));
			fail(b, ECANCELED, NULL);
		}
		if (b->rows[i].bad == PS_ROW_OVERFLOWS && !b->failed) {
			ps_sample_error_set(&b->why, b->rows[i].sample, ps_batch_reason(b, i));
			b->why.err = E2BIG;
			b->why.cause = PS_CAUSE_OPTIONS; /* a limit is too low */
			fail(b, E2BIG, NULL);
		}
		if (b->rows[i].bad)
			b->bad_rows[b->nbad++] = i;
	}
}

void ps_batch_finish(struct penstock_batch *b)
{
	b->nbad = 0;
	b->failed = 0;
	ps_error_clear(&b->why);
	b->used = b->at.fixed_nbytes;
	b->out_rows = b->pad ? b->cap : b->nrows;
	rows_judge(b);
	b->blank = b->nbad == b->nrows;
	if (b->failed) {
		b->out_rows = 0;
	} else if (b->max_ragged_nbytes &&
	           atomic_load_explicit(&b->ragged_nbytes, memory_order_relaxed) > b->max_ragged_nbytes) {
		fail(b, E2BIG, too_large);
	} else {
		rows_fill(b);
	}
	if (b->profile && !b->failed && !b->repeats)
		ps_profile_batch(b->profile, b);
	for (uint32_t i = 0; i < b->nrows; i++)
		ps_batch_bytes_drop(b->layout, b->rows[i].sample, NULL);
}
