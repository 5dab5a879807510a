#include "config.h"

#include "batch/send.h"

#include <errno.h>

#include "batch/make.h"
#include "device/nvjpeg.h"

int ps_send_init(struct penstock_batch *b, struct ps_load_error *err)
{
	size_t most = 1; /* each hole has a row of its own, and makes one more of them */

	for (uint32_t i = 0; i < b->plan->nfields; i++)
		most += b->decoded[i] ? b->cap : 0;
	b->stretches = calloc(most, sizeof(*b->stretches));
	return b->stretches ? 0 : ps_load_error_set(err, ENOMEM, "no memory for a batch of %u rows", b->cap);
}

/* The device has, or does not need, the image of row `row`. */
static bool is_left_out(const struct penstock_batch *b, uint32_t i, uint32_t row)
{
	return row >= b->out_rows || ps_nvjpeg_has(b->decoded[i], b->sources[row]);
}

/* From the end of the last stretch up to a hole, if there is something between them. */
static void stretch_add(struct ps_stretch *to, uint32_t *n, size_t from, size_t end)
{
	if (end > from)
		to[(*n)++] = (struct ps_stretch){.at = from, .nbytes = end - from};
}

/* Cuts the holes of field i out of what begins at *from. */
static void field_cut(const struct penstock_batch *b, uint32_t i, uint32_t *n, size_t *from)
{
	const size_t first = b->at.fields[i].data[0], row_nbytes = b->plan->fields[i].row_nbytes;

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

/* To the batch's memory for them; returns how many. */
static uint32_t stretches_find(const struct penstock_batch *b)
{
	size_t from = 0;
	uint32_t n = 0;

	for (uint32_t i = 0; i < b->plan->nfields; i++) /* as they lie in the slot */
		if (b->decoded[i])
			field_cut(b, i, &n, &from);
	stretch_add(b->stretches, &n, from, b->used);
	return n;
}

int ps_batch_send(struct penstock_batch *b, struct ps_load_error *err)
{
	const struct ps_stretch all = {.at = 0, .nbytes = b->used};
	struct ps_sending sending = {.slot = b->mem, .nbytes = b->used, .stretches = &all, .nstretches = 1};
	ps_autofree struct ps_make *makes = NULL;

	if (!b->mirror)
		return 0;
	makes = calloc(b->plan->nfields, sizeof(*makes));
	if (!makes)
		return ps_load_error_set(err, ENOMEM, "no memory to send a batch");
	sending.makes = makes;
	if (b->stretches) {
		sending.stretches = b->stretches;
		sending.nstretches = stretches_find(b);
	}
	sending.nmakes = ps_make_tell(b, makes);
	return b->device->ops->send(b->mirror, &sending, err);
}
