#include "config.h"

#include "batch/slot.h"

#include "base/overflow.h"
#include "image/ops.h"

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
        const struct ps_plan_field *f, struct ps_slot_layout *l, struct ps_slot_field *ret_field)
{
	struct ps_slot_field at = {{PS_SLOT_NONE, PS_SLOT_NONE}, PS_SLOT_NONE, PS_SLOT_NONE, PS_SLOT_NONE,
	        PS_SLOT_NONE, PS_SLOT_NONE};
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
	if (f->form == PS_FORM_PADDED)
		ok = ok && ps_slot_place(used, n, (size_t)f->row_items, &at.mask);
	if (f->form == PS_FORM_RAGGED)
		ok = ok && ps_slot_place(used, n + 1, sizeof(uint64_t), &at.offsets);
	*ret_field = at;
	return ok;
}

bool ps_slot_layout_make(const struct ps_plan *plan, uint32_t rows, struct ps_slot_layout *l)
{
	bool ok = true;

	*l = (struct ps_slot_layout){.rows = rows, .fields = calloc((size_t)plan->nfields + 1, sizeof(*l->fields))};
	ok = l->fields != NULL;
	for (uint32_t i = 0; i < plan->nfields && ok; i++)
		ok = field_place(&plan->fields[i], l, &l->fields[i]);
	if (plan->mixes)
		ok = ok && ps_slot_place(&l->fixed_nbytes, rows, sizeof(float), &l->mix_lambda) &&
		     ps_slot_place(&l->fixed_nbytes, rows, sizeof(int64_t), &l->mix_row);
	return ok &&
	       ps_slot_place(&l->fixed_nbytes, (size_t)rows + 1, sizeof(uint64_t),
	               &l->fields[PS_SLOT_KEYS(plan)].offsets) &&
	       ps_slot_place(&l->fixed_nbytes, rows, 1, &l->valid) &&
	       ps_slot_place(&l->fixed_nbytes, rows, sizeof(int64_t), &l->shards) &&
	       ps_slot_place(&l->fixed_nbytes, rows, sizeof(int64_t), &l->samples);
}
