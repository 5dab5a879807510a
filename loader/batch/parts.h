/* Private to this folder: the parts of a batch's way from samples to its device. */
#ifndef PS_BATCH_PARTS_H
#define PS_BATCH_PARTS_H

#include "batch/batch.h"
#include "batch/fields.h"

/* Fields that the device finishes ------------------------------------------------------------------------ */

/* Image fields that the device finishes (device/device.h), where it can: a row of the slot is then u8 planes
 * as they come out of crop, resize and flips, a quarter of f32's bytes, and transforms, mixing, normalising
 * and layout are done after the copy. The batch's elements are the same, but are on the device alone.
 *
 *   layout ─ ps_make_layout() ─▶ slot, decoders ─▶ ps_make_row() of each row ─▶ ps_make_tell(), when it is sent
 *
 * Threads: ps_make_row() on different rows at once; else as batch.h.   Errors: none. */

/* Field i of the row was decoded: keeps what was drawn for it. */
void ps_make_row(
        struct penstock_batch *batch, uint32_t row, uint32_t i, const struct ps_image_decoder *decoder);

/* The same for a row that is replaced by another one. */
void ps_make_repeat(struct penstock_batch *batch, uint32_t i, uint32_t to, uint32_t from);

/* What the device is to make of a finished batch: returns how many fields; there is room for all of the
 * layout's. */
uint32_t ps_make_tell(const struct penstock_batch *batch, struct ps_make *ret_makes);

/* Scratch that this takes. */
size_t ps_make_scratch(const struct ps_batch_layout *layout, uint32_t rows);

/* What is copied ----------------------------------------------------------------------------------------- */

/* What of a batch's slot is copied to its device: all that the device does not have already.
 *
 *   slot | rows of images                          | the rest |
 *        | row | row | on the GPU | on the GPU | row | ... ... |
 *        └─────┬─────┘                         └──────┬────────┘
 *            copied                                 copied
 *
 * Left out are rows whose image the GPU decodes (batch.h), by the row that each one's image comes from, and
 * rows beyond the batch's last in such a field. Their pixels come after the copies, on the same stream, so
 * no copy can overwrite them.
 *
 * Ownership: a batch has the memory for its stretches.   Threads: as ps_batch_send().   Blocks: never. */

/* A shorter stretch is copied together with its neighbours: a copy of its own costs the device and the driver
 * a few microseconds, in which a bus moves as much. */
#define PS_SEND_GAP (32UL << 10)

/* Of a batch some of whose fields have images that the GPU decodes. -ENOMEM. */
int ps_send_init(struct penstock_batch *batch, struct ps_load_error *err) PS_MUST_USE;

/* Images of a row ---------------------------------------------------------------------------------------- */

/* Images of a row and the masks that follow them, decoded into their places; and where its boxes go.
 *
 * Ownership, threads: as ps_batch_decode().   Errors: as ps_image_decode(). */

/* What random choices of the row's pictures are drawn from. */
struct ps_rng_key ps_picture_key(
        const struct penstock_batch *batch, uint32_t row, const struct ps_batch_worker *worker);

/* Decodes field i, an image or a mask, from its member's bytes. Where fields share a member's image, the
 * field that decodes it does so for all of them, and the others have nothing to do. Fields come in their
 * order. */
int ps_picture_decode(struct penstock_batch *batch, uint32_t row, uint32_t i,
        const struct ps_sample_field *member, struct ps_batch_worker *worker,
        struct ps_load_error *err) PS_MUST_USE;

/* The same on this thread, whatever the GPU may do. */
int ps_picture_decode_here(struct penstock_batch *batch, uint32_t row, uint32_t i,
        const struct ps_sample_field *member, struct ps_batch_worker *worker,
        struct ps_load_error *err) PS_MUST_USE;

/* Keeps how the boxes of a row are to be placed: its image has been decoded. */
void ps_picture_boxes(
        struct penstock_batch *batch, uint32_t row, uint32_t i, const struct ps_batch_worker *worker);

/* Makes the decoders of field i, if it is an image or a mask. */
int ps_picture_worker_init(struct ps_batch_worker *worker, const struct ps_batch_layout *layout, uint32_t i,
        struct ps_load_error *err) PS_MUST_USE;

/* CutMix and MixUp --------------------------------------------------------------------------------------- */

/* CutMix and MixUp of a finished batch, in place: row i with row i - 1, the first with the last. Rows are
 * gone through from the last one, so one row of scratch is enough. image/image.h has the arithmetic, and what
 * is drawn: the same for all ranks of a step.
 *
 * Images: all image fields (CutMix's box in the proportions of each); masks follow CutMix, and stay as they
 * are under MixUp. Labels stay; besides them are "__mix_lambda__" (f32: the share of a row's own label) and
 * "__mix_row__" (int64: the row that has the other one), and of each int64 or float field in place NAME:mix,
 * the other row's.
 *
 * Of fields that the device makes batch->mix says what it does.
 *
 * Threads: one at a time, on a batch whose rows are all there.   Errors: -ENOMEM. */

int ps_batch_mix(struct penstock_batch *batch) PS_MUST_USE;

/* The caller's own step ---------------------------------------------------------------------------------- */

/* The caller's own step: options.transform, called for each sound row on the thread that decoded it.
 *
 * Ownership: a penstock_sample lives on the worker's stack for the call; its outputs are in the batch.
 * Threads: the callback runs on all decoding threads at once.   Locks: none are held.
 * Errors: what the callback returns makes the row bad (-ENOMEM: fails the batch); with a text. */

#define PS_CALL_ROWS 256 /* of a unit */

int ps_transform_run(struct penstock_batch *batch, uint32_t row, struct ps_batch_worker *worker,
        struct ps_load_error *err) PS_MUST_USE;

/* Parts of layouts and rows ------------------------------------------------------------------------------ */

/* The part of it that makes one field, whose names and kind are set. */
int ps_layout_field_make(struct ps_layout_field *field, const struct penstock_field *in,
        struct ps_load_error *err) PS_MUST_USE;

/* Likewise, of an image or a mask. */
int ps_layout_image_make(struct ps_layout_field *field, const struct penstock_field *in,
        struct ps_load_error *err) PS_MUST_USE;

/* When all fields are made from `in`: which follow which, and which share a decode. */
int ps_layout_images_join(struct ps_batch_layout *layout, const struct penstock_field *in,
        struct ps_load_error *err) PS_MUST_USE;

/* Then: refuses options that would have no effect, and names what they need. */
int ps_layout_effects_check(const struct ps_batch_layout *layout, const struct penstock_field *in,
        struct ps_load_error *err) PS_MUST_USE;

/* Frees a sample's bytes but those of the members in `keep`, one a field of the layout; NULL: of all. */
void ps_batch_bytes_drop(
        const struct ps_batch_layout *layout, struct ps_sample *sample, struct ps_sample_field *const *keep);

/* A late field's elements of a row in memory of the worker, until it decodes the row's next; NULL: no memory.
 */
const void *ps_batch_late_peek(const struct penstock_batch *batch, uint32_t field, uint32_t row,
        struct ps_batch_worker *worker) PS_MUST_USE;

/* Writes a piece of row `row` to dst; boxes in the coordinates of its image's crop. */
void ps_batch_piece_write(const struct penstock_batch *batch, uint32_t field, uint32_t row,
        const struct ps_piece *piece, uint32_t plane, void *dst);

void ps_decode_clear(struct penstock_batch *batch);
void ps_decode_fini(struct penstock_batch *batch);

/* 1: the GPU decodes field i of the row; 0: not this one. A negative errno: the sample is bad, or there is no
 * memory. */
int ps_decode_offer(struct penstock_batch *batch, uint32_t row, uint32_t i,
        const struct ps_sample_field *member, struct ps_batch_worker *worker,
        struct ps_load_error *err) PS_MUST_USE;

#endif
