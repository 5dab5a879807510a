/* Image fields that the device finishes (device/make.h), where it can: a row of the slot is then u8 planes as
 * they come out of crop, resize and flips, a quarter of f32's bytes, and transforms, mixing, normalising and
 * layout are done behind the copy. The batch's elements are the same, but lie on the device alone.
 *
 *   plan ─ ps_make_plan() ─▶ slot, decoders ─▶ ps_make_row() of each row ─▶ ps_make_tell(), when it is sent
 *
 * Threads: ps_make_row() on different rows at once; else as batch.h.   Errors: none. */
#ifndef PS_BATCH_MAKE_H
#define PS_BATCH_MAKE_H

#include "batch/batch.h"

/* Marks the image fields that are worth it: all that are not sent as they are; with `all` those, too: the GPU
 * may decode them (decode.h). */
void ps_make_plan(struct ps_plan *plan, bool all);

/* Field i of the row was decoded: keeps what was drawn for it. */
void ps_make_row(
        struct penstock_batch *batch, uint32_t row, uint32_t i, const struct ps_image_decoder *decoder);

/* The same for a row that another one stands for. */
void ps_make_repeat(struct penstock_batch *batch, uint32_t i, uint32_t to, uint32_t from);

/* What the device is to make of a finished batch: returns how many fields; there is room for all of the plan's. */
uint32_t ps_make_tell(const struct penstock_batch *batch, struct ps_make *ret_makes);

/* Scratch that this takes. */
size_t ps_make_scratch(const struct ps_plan *plan, uint32_t rows);

#endif
