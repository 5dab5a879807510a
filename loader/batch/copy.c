#include "config.h"

#include "batch/batch.h"

#include "batch/parts.h"

#include <errno.h>
#include <string.h>

#include "device/device.h"
#include "image/image.h"
#include "image/pixel/pixel.h"

/* All PS_IMAGE_ bits that images of the field may have. A field that follows another one takes that one's
 * affine step. */
static uint32_t bits_of(const struct ps_batch_layout *layout, const struct ps_layout_field *f)
{
	const struct ps_transform_spec *t = &f->image.transforms;
	const struct ps_transform_spec *leader =
	        f->leader < 0 ? t : &layout->fields[f->leader].image.transforms;

	return (leader->affine > 0 ? PS_IMAGE_AFFINE : 0u) |
	       (t->jitter > 0 || t->gray > 0 ? PS_IMAGE_COLORS : 0u) | (t->blur > 0 ? PS_IMAGE_BLUR : 0u) |
	       (t->noise > 0 ? PS_IMAGE_NOISE : 0u) | (t->erase > 0 ? PS_IMAGE_ERASE : 0u);
}

void ps_make_layout(struct ps_batch_layout *layout, bool all)
{
	for (uint32_t i = 0; i < layout->nfields; i++) {
		struct ps_layout_field *f = &layout->fields[i];

		if (f->kind != PENSTOCK_IMAGE || ps_image_is_wide(&f->image) ||
		        (!all && f->dtype == PS_U8 && bits_of(layout, f) == 0))
			continue;
		f->made = true;
		f->made_what = bits_of(layout, f);
		f->made_row_nbytes = f->row_nbytes;
		f->row_nbytes =
		        (size_t)f->image.out_width * f->image.out_height * 3 * ps_image_views(&f->image);
	}
}

static struct ps_image_ops *ops_of(const struct penstock_batch *b, uint32_t i, uint32_t row)
{
	return (struct ps_image_ops *)(void *)(b->mem + b->at.fields[i].ops) +
	       (size_t)row * ps_image_views(&b->layout->fields[i].image);
}

void ps_make_row(struct penstock_batch *b, uint32_t row, uint32_t i, const struct ps_image_decoder *decoder)
{
	const struct ps_layout_field *f = &b->layout->fields[i];
	const struct ps_image_placement at = ps_image_decoder_placement(decoder);
	struct ps_image_ops *ops;

	if (b->at.fields[i].ops == PS_SLOT_NONE)
		return;
	ops = ops_of(b, i, row);
	for (uint32_t v = 0; v < at.nviews; v++)
		ps_transform_ops(&at.views[v].transform, &f->image.transforms, &ops[v]);
}

void ps_make_repeat(struct penstock_batch *b, uint32_t i, uint32_t to, uint32_t from)
{
	if (b->at.fields[i].ops != PS_SLOT_NONE)
		memcpy(ops_of(b, i, to), ops_of(b, i, from),
		        ps_image_views(&b->layout->fields[i].image) * sizeof(struct ps_image_ops));
}

static struct ps_make field_tell(const struct penstock_batch *b, uint32_t i)
{
	const struct ps_layout_field *f = &b->layout->fields[i];
	const struct ps_slot_field *at = &b->at.fields[i];
	struct ps_make m = {.decoded = b->decoded[i],
	        .sources = b->sources,
	        .planes = at->data[0],
	        .ops = at->ops == PS_SLOT_NONE ? PS_MAKE_NO_OPS : at->ops,
	        .to = at->made,
	        .nimages = b->out_rows * ps_image_views(&f->image),
	        .width = f->image.out_width,
	        .height = f->image.out_height,
	        .nviews = ps_image_views(&f->image),
	        .dtype = f->dtype,
	        .layout = f->image.layout,
	        .mix = b->mix.kind,
	        .weight = b->mix.weight};

	for (uint32_t k = 0; at->ops != PS_SLOT_NONE && k < m.nimages; k++)
		m.what |= ops_of(b, i, 0)[k].what;
	if (f->dtype != PS_U8 && !b->blank) /* a blank batch keeps scale and bias 0: all elements are zeros */
		ps_image_levels(&f->image, m.scale, m.bias);
	if (m.mix == PS_MIX_CUT) {
		struct ps_mix_box box = ps_mix_box_of(&b->mix, m.width, m.height);

		m.box[0] = box.x0;
		m.box[1] = box.y0;
		m.box[2] = box.x1;
		m.box[3] = box.y1;
	}
	return m;
}

size_t ps_make_scratch(const struct ps_batch_layout *layout, uint32_t rows)
{
	size_t most = 0;

	for (uint32_t i = 0; i < layout->nfields; i++) {
		const struct ps_layout_field *f = &layout->fields[i];

		if (f->made)
			most = PS_MAX(most, ps_make_scratch_nbytes(f->made_what,
			                            (uint64_t)rows * ps_image_views(&f->image),
			                            f->image.out_width, f->image.out_height));
	}
	return most;
}

/* Copied stretches --------------------------------------------------------------------------------------- */

/* True if the device has the image of row `row` already, or does not need it. */
static bool is_left_out(const struct penstock_batch *b, uint32_t i, uint32_t row)
{
	return row >= b->out_rows || ps_nvjpeg_has(b->decoded[i], b->sources[row]);
}

/* Adds the stretch between the end of the last hole and the next one, if it is not empty. */
static void stretch_add(struct ps_stretch *to, uint32_t *n, size_t from, size_t end)
{
	if (end > from)
		to[(*n)++] = (struct ps_stretch){.at = from, .nbytes = end - from};
}

/* Adds the stretch before each hole of field i: a hole is a run of rows that are not copied. *from moves to
 * the end of the last hole. */
static void field_cut(const struct penstock_batch *b, uint32_t i, uint32_t *n, size_t *from)
{
	const size_t first = b->at.fields[i].data[0], row_nbytes = b->layout->fields[i].row_nbytes;

	for (uint32_t row = 0, end; row < b->cap; row = end) {
		bool hole = is_left_out(b, i, row);

		for (end = row + 1; end < b->cap && is_left_out(b, i, end) == hole; end++)
			;
		if (!hole || (end - row) * row_nbytes < PS_SEND_GAP)
			continue;
		stretch_add(b->stretches, n, *from, first + row * row_nbytes);
		*from = first + end * row_nbytes;
	}
}

int ps_batch_send(struct penstock_batch *b, struct ps_error *err)
{
	const struct ps_stretch all = {.at = 0, .nbytes = b->used};
	struct ps_sending sending = {.slot = b->mem, .nbytes = b->used, .stretches = &all, .nstretches = 1};
	ps_autofree struct ps_make *makes = NULL;

	if (!b->mirror)
		return 0;
	makes = calloc(b->layout->nfields, sizeof(*makes));
	if (!makes)
		return ps_error_set(err, ENOMEM, "no memory to send a batch");
	sending.makes = makes;
	if (b->stretches) {
		size_t from = 0;

		sending.stretches = b->stretches;
		sending.nstretches = 0;
		for (uint32_t i = 0; i < b->layout->nfields; i++) /* in the slot's order */
			if (b->decoded[i])
				field_cut(b, i, &sending.nstretches, &from);
		stretch_add(b->stretches, &sending.nstretches, from, b->used);
	}
	for (uint32_t i = 0; i < b->layout->nfields; i++)
		if (b->layout->fields[i].made)
			makes[sending.nmakes++] = field_tell(b, i);
	return b->device->ops->send(b->mirror, &sending, err);
}
