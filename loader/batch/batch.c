#include "config.h"

#include "batch/batch.h"

#include <errno.h>
#include <string.h>

#include "base/size.h"
#include "batch/parts.h"
#include "image/pixel/pixel.h"

/* Slots -------------------------------------------------------------------------------------------------- */

bool ps_slot_place(size_t *used, size_t n, size_t nbytes, size_t *ret_at)
{
	size_t all, at;

	if (!ps_size_round_up(*used, PS_SLOT_ALIGN, &at) || !ps_size_mul(n, nbytes, &all) ||
	        !ps_size_add(at, all, &all) || all > PTRDIFF_MAX)
		return false;
	*ret_at = at;
	*used = all;
	return true;
}

static bool field_place(
        const struct ps_layout_field *f, struct ps_slot_layout *l, struct ps_slot_field *ret_field)
{
	struct ps_slot_field at = {{PS_SLOT_NONE, PS_SLOT_NONE}, PS_SLOT_NONE, PS_SLOT_NONE, PS_SLOT_NONE,
	        PS_SLOT_NONE, PS_SLOT_NONE, PS_SLOT_NONE, PS_SLOT_NONE};
	size_t *used = &l->fixed_nbytes, n = l->rows;
	bool ok = true;

	for (uint32_t plane = 0; plane < f->planes && !ps_field_is_late(f); plane++)
		ok = ok && ps_slot_place(used, n, f->row_nbytes, &at.data[plane]);
	if (f->made_what)
		ok = ok &&
		     ps_slot_place(used, n * ps_image_views(&f->image), sizeof(struct ps_image_ops), &at.ops);
	if (f->made)
		ok = ok && ps_slot_place(&l->made_nbytes, n, f->made_row_nbytes, &at.made);
	if (ps_field_is_padded(f))
		ok = ok && ps_slot_place(used, n, sizeof(int64_t), &at.lengths);
	if (f->form == PS_FORM_PADDED || f->parts & PS_PART_MASK)
		ok = ok && ps_slot_place(used, n, (size_t)f->row_items, &at.mask);
	if (f->parts & PS_PART_POSITIONS)
		ok = ok && ps_slot_place(used, n, (size_t)f->row_items * sizeof(int32_t), &at.positions);
	if (f->parts & PS_PART_SEGMENTS)
		ok = ok && ps_slot_place(used, n, (size_t)f->row_items * sizeof(int32_t), &at.segments);
	if (f->form == PS_FORM_RAGGED)
		ok = ok && ps_slot_place(used, n + 1, sizeof(uint64_t), &at.offsets);
	*ret_field = at;
	return ok;
}

/* False: larger than the address space, or out of memory. */
static bool slot_layout_make(const struct ps_batch_layout *layout, uint32_t rows, struct ps_slot_layout *l)
{
	bool ok = true;

	*l = (struct ps_slot_layout){
	        .rows = rows, .fields = calloc((size_t)layout->nfields + 1, sizeof(*l->fields))};
	ok = l->fields != NULL;
	for (uint32_t i = 0; i < layout->nfields && ok; i++)
		ok = field_place(&layout->fields[i], l, &l->fields[i]);
	if (layout->mixes)
		ok = ok && ps_slot_place(&l->fixed_nbytes, rows, sizeof(float), &l->mix_lambda) &&
		     ps_slot_place(&l->fixed_nbytes, rows, sizeof(int64_t), &l->mix_row);
	return ok &&
	       ps_slot_place(&l->fixed_nbytes, (size_t)rows + 1, sizeof(uint64_t),
	               &l->fields[PS_SLOT_KEYS(layout)].offsets) &&
	       ps_slot_place(&l->fixed_nbytes, rows, 1, &l->valid) &&
	       ps_slot_place(&l->fixed_nbytes, rows, sizeof(int64_t), &l->shards) &&
	       ps_slot_place(&l->fixed_nbytes, rows, sizeof(int64_t), &l->samples);
}

/* Batches ------------------------------------------------------------------------------------------------ */

/* Adds to *used what cu and document of N rows (`rows`) take at most. False: too large. */
static bool packed_nbytes(const struct ps_layout_field *f, uint32_t rows, size_t *used)
{
	size_t most = f->cu_pad, at;
	bool ok = f->cu_pad > 0 || ps_size_mul((size_t)f->row_items, rows, &most);

	if (f->pack == PS_PACK_NONE)
		return true;
	if (f->parts & PS_PART_CU)
		ok = ok && ps_slot_place(used, most + 1, sizeof(int32_t), &at);
	if (f->parts & PS_PART_DOCUMENT)
		ok = ok && ps_slot_place(used, most, sizeof(int64_t), &at);
	return ok;
}

/* Bytes that a slot begins with: that of cu and document in a full batch with as many parts as there can be, so that it
 * does not grow for them. */
static bool slot_nbytes(
        const struct ps_batch_layout *layout, const struct ps_slot_layout *l, size_t *ret_nbytes)
{
	*ret_nbytes = l->fixed_nbytes;
	for (uint32_t i = 0; i < layout->nfields; i++)
		if (!packed_nbytes(&layout->fields[i], l->rows, ret_nbytes))
			return false;
	return true;
}

/* Bytes of the memory that late outputs are written to before their place in the slot is known. */
static bool outputs_nbytes(const struct ps_layout_field *f, uint32_t rows, size_t *ret_nbytes)
{
	*ret_nbytes = 0;
	return f->kind != PENSTOCK_OUTPUT || !ps_field_is_late(f) ||
	       (ps_size_mul((size_t)f->max_items, f->item_nbytes, ret_nbytes) &&
	               ps_size_mul(*ret_nbytes, rows, ret_nbytes));
}

static int too_large(uint32_t rows, struct ps_error *err)
{
	return ps_error_set(err, E2BIG, "a batch of %u rows is larger than the address space", rows);
}

static int no_memory(uint32_t rows, struct ps_error *err)
{
	return ps_error_set(err, ENOMEM, "no memory for a batch of %u rows", rows);
}

int ps_batch_nbytes(
        const struct ps_batch_layout *layout, uint32_t rows, size_t *ret_nbytes, struct ps_error *err)
{
	struct ps_slot_layout l;
	bool ok = slot_layout_make(layout, rows, &l);
	size_t total = 0;

	if (!l.fields)
		return no_memory(rows, err);
	free(l.fields);
	ok = ok && slot_nbytes(layout, &l, &total);
	for (uint32_t i = 0; ok && i < layout->nfields; i++) {
		size_t n;

		ok = outputs_nbytes(&layout->fields[i], rows, &n) && ps_size_add(total, n, &total);
	}
	return ok && ps_size_round_up(total, PS_DEVICE_PAGE, ret_nbytes) ? 0 : too_large(rows, err);
}

/* Allocates the arrays by field, and those by row that late fields need. */
static bool fields_init(struct penstock_batch *b)
{
	const uint32_t nfields = b->layout->nfields;

	b->decoded = calloc(nfields, sizeof(*b->decoded));
	b->pieces = calloc(nfields, sizeof(*b->pieces));
	b->boxes = calloc(nfields, sizeof(*b->boxes));
	b->outputs = calloc(nfields, sizeof(*b->outputs));
	b->late = calloc((size_t)nfields + 1, sizeof(*b->late));
	if (!b->decoded || !b->pieces || !b->boxes || !b->outputs || !b->late)
		return false;
	for (uint32_t i = 0; i < nfields; i++) {
		const struct ps_layout_field *f = &b->layout->fields[i];
		size_t n;

		if (f->kind == PENSTOCK_BOXES && !(b->boxes[i] = calloc(b->cap, sizeof(*b->boxes[i]))))
			return false;
		if (!ps_field_is_late(f))
			continue;
		b->pieces[i] = calloc(b->cap, sizeof(*b->pieces[i]));
		if (!b->pieces[i] || !outputs_nbytes(f, b->cap, &n) ||
		        (n > 0 && !(b->outputs[i] = malloc(n))))
			return false;
	}
	return true;
}

int ps_batch_init(struct penstock_batch *b, const struct ps_batch_layout *layout, struct ps_device *device,
        uint32_t rows, struct ps_error *err)
{
	size_t nbytes;
	int rc = 0;

	*b = (struct penstock_batch){.layout = layout, .device = device, .cap = rows};
	if (!slot_layout_make(layout, rows, &b->at) || !slot_nbytes(layout, &b->at, &nbytes) ||
	        !ps_size_round_up(nbytes, PS_DEVICE_PAGE, &nbytes)) {
		bool fields = b->at.fields != NULL;

		free(b->at.fields);
		*b = (struct penstock_batch){0};
		return fields ? too_large(rows, err) : no_memory(rows, err);
	}
	b->rows = calloc(rows, sizeof(*b->rows));
	b->bad_rows = calloc(rows, sizeof(*b->bad_rows));
	b->sources = calloc(rows, sizeof(*b->sources));
	if (!b->rows || !b->bad_rows || !b->sources || !fields_init(b))
		rc = no_memory(rows, err);
	if (rc == 0) {
		b->mem = device->ops->alloc(device, nbytes, err);
		rc = b->mem ? 0 : -ENOMEM;
	}
	if (b->mem)
		b->mem_nbytes = nbytes;
	if (rc == 0 && device->ops->mirror_new)
		rc = device->ops->mirror_new(device,
		        &(struct ps_mirror_size){.slot = nbytes,
		                .made = b->at.made_nbytes,
		                .scratch = ps_make_scratch(layout, rows)},
		        &b->mirror, err);
	if (rc < 0)
		ps_batch_fini(b);
	return rc;
}

int ps_batch_leave(struct penstock_batch *b, bool *ret_arrived, struct ps_error *err)
{
	int rc;

	*ret_arrived = true;
	if (!b->mirror)
		return 0;
	rc = b->device->ops->leave(b->mirror, err);
	if (rc == 0) {
		rc = b->device->ops->arrived(b->mirror, err);
		*ret_arrived = rc != 0;
	}
	return PS_MIN(rc, 0);
}

int ps_batch_wait(struct penstock_batch *b, struct ps_error *err)
{
	return b->mirror ? b->device->ops->wait(b->mirror, err) : 0;
}

void ps_batch_fini(struct penstock_batch *b)
{
	if (b->rows)
		ps_batch_clear(b);
	for (uint32_t i = 0; b->pieces && b->boxes && b->outputs && i < b->layout->nfields; i++) {
		free(b->pieces[i]);
		free(b->boxes[i]);
		free(b->outputs[i]);
	}
	free(b->late);
	free(b->pieces);
	free(b->boxes);
	free(b->outputs);
	free(b->at.fields);
	free(b->rows);
	free(b->bad_rows);
	free(b->sources);
	free(b->stretches);
	if (b->budget)
		ps_byte_budget_give(b->budget, b->grown_nbytes);
	if (b->mirror) {
		if (b->state == PS_BATCH_HELD)
			(void)b->device->ops->leave(b->mirror, NULL);
		b->device->ops->mirror_free(b->mirror); /* waits for the copy, which reads decoded images */
	}
	ps_decode_fini(b);
	free(b->decoded);
	if (b->mem)
		b->device->ops->free(b->device, b->mem, b->mem_nbytes);
	*b = (struct penstock_batch){0};
}

void ps_batch_clear(struct penstock_batch *b)
{
	ps_decode_clear(b);
	for (uint32_t i = 0; i < b->nrows; i++) {
		ps_sample_free(b->rows[i].sample);
		free(b->rows[i].reason);
		for (struct ps_some *some = b->rows[i].some, *next; some; some = next) {
			next = some->next;
			free(some->kept);
			free(some);
		}
		free(b->rows[i].parts);
		b->rows[i] = (struct ps_row){0};
	}
	b->nrows = b->ndone = b->out_rows = b->nbad = 0;
	b->closed = b->drop = b->pad = b->repeats = false;
	b->failed = 0;
	atomic_store_explicit(&b->ragged_nbytes, 0, memory_order_relaxed);
}

const char *ps_batch_reason(const struct penstock_batch *b, uint32_t row)
{
	const struct ps_row *r = &b->rows[row];

	if (r->reason)
		return r->reason;
	if (r->sample->reason)
		return r->sample->reason;
	return "out of memory";
}

void ps_batch_bytes_drop(
        const struct ps_batch_layout *layout, struct ps_sample *s, struct ps_sample_field *const *keep)
{
	for (uint32_t j = 0; j < s->nfields; j++) {
		struct ps_sample_field *in = &s->fields[j];
		bool kept = !in->data;

		for (uint32_t i = 0; keep && i < layout->nfields && !kept; i++)
			kept = keep[i] == in;
		if (!kept)
			ps_sample_drop(s, in);
	}
}
