/* Private to this folder: the stages of a batch between samples and device. */
#ifndef PS_BATCH_PARTS_H
#define PS_BATCH_PARTS_H

#include "batch/batch.h"
#include "batch/fields.h"

/* Fields that the device finishes ------------------------------------------------------------------------ */

/* Some devices finish image fields (device/device.h). A row of the slot then holds the u8 planes that crop,
 * resize and flips give, a quarter of the bytes of f32. Affine, colour, blur, noise and erase operations,
 * mixing, normalising and layout are done after the copy. The elements are those that the CPU would make, but
 * exist on the device alone.
 *
 *   layout ─ ps_make_layout() ─▶ slot, decoders ─▶ ps_make_row() for each row ─▶ ps_make_tell() at sending
 *
 * Threads: ps_make_row() on different rows at once; else as batch.h.   Errors: none. */

/* Stores the random choices of a row's field i, which was just decoded, in the slot. */
void ps_make_row(
        struct penstock_batch *batch, uint32_t row, uint32_t i, const struct ps_image_decoder *decoder);

/* Copies the stored choices of field i from row `from` to row `to`, which `from` replaces. */
void ps_make_repeat(struct penstock_batch *batch, uint32_t i, uint32_t to, uint32_t from);

/* Fills ret_makes with those fields of a finished batch that the device makes, and returns their number.
 * ret_makes has room for all fields of the layout. */
uint32_t ps_make_tell(const struct penstock_batch *batch, struct ps_make *ret_makes);

/* Bytes of device scratch memory that the device needs to make the fields. */
size_t ps_make_scratch(const struct ps_batch_layout *layout, uint32_t rows);

/* Copied stretches --------------------------------------------------------------------------------------- */

/* The parts of a batch's slot that are copied to its device: all that the device does not have already.
 *
 *   slot | rows of images                          | the rest |
 *        | row | row | on the GPU | on the GPU | row | ... ... |
 *        └─────┬─────┘                         └──────┬────────┘
 *            copied                                 copied
 *
 * In fields whose images the GPU decodes (batch.h), two kinds of rows are not copied: rows beyond the
 * batch's last, and rows whose image the GPU decodes (for a bad row, the image of the row that replaces
 * it). The GPU writes their pixels after the copies, on the same stream, so no copy can overwrite them.
 *
 * Ownership: a batch owns its stretches.   Threads: as ps_batch_send().   Blocks: never. */

/* A gap shorter than this is copied together with its neighbours: another copy costs the device and the
 * driver a few microseconds, and the bus moves as many bytes in that time. */
#define PS_SEND_GAP (32UL << 10)

/* Allocates the stretches of a batch with fields whose images the GPU decodes. -ENOMEM. */
int ps_send_init(struct penstock_batch *batch, struct ps_error *err) PS_MUST_USE;

/* Images of a row ---------------------------------------------------------------------------------------- */

/* Decodes a row's images, and the masks that follow them, into the slot, and stores how the row's boxes are
 * placed.
 *
 * Ownership, threads: as ps_batch_decode().   Errors: as ps_image_decode(). */

/* The key of the random choices for the row's images. */
struct ps_rng_key ps_picture_key(
        const struct penstock_batch *batch, uint32_t row, const struct ps_batch_worker *worker);

/* Decodes field i, an image or a mask, from its member's bytes. Where fields share a member's image, one
 * field decodes it for all of them, and the call does nothing for the others. Must be called for the fields
 * in their order. */
int ps_picture_decode(struct penstock_batch *batch, uint32_t row, uint32_t i,
        const struct ps_sample_field *member, struct ps_batch_worker *worker,
        struct ps_error *err) PS_MUST_USE;

/* As ps_picture_decode(), but on this thread, never on the GPU. */
int ps_picture_decode_here(struct penstock_batch *batch, uint32_t row, uint32_t i,
        const struct ps_sample_field *member, struct ps_batch_worker *worker,
        struct ps_error *err) PS_MUST_USE;

/* Stores how the boxes of a row are placed. The row's image must have been decoded. */
void ps_picture_boxes(
        struct penstock_batch *batch, uint32_t row, uint32_t i, const struct ps_batch_worker *worker);

/* Makes the decoders of field i, if it is an image or a mask. */
int ps_picture_worker_init(struct ps_batch_worker *worker, const struct ps_batch_layout *layout, uint32_t i,
        struct ps_error *err) PS_MUST_USE;

/* CutMix and MixUp --------------------------------------------------------------------------------------- */

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

int ps_batch_mix(struct penstock_batch *batch) PS_MUST_USE;

/* The caller's transform --------------------------------------------------------------------------------- */

/* The caller's transform: options.transform, called for each sound row on the thread that decoded it.
 *
 * Ownership: a penstock_sample is in the worker's memory, and valid during the call; its outputs are in the
 * batch.
 * Threads: the callback runs on all decoding threads at once.   Locks: none are held.
 * Errors: an error of the callback makes the row bad, with a text; -ENOMEM fails the batch. */

#define PS_CALL_ROWS 256 /* at most this many rows in one call of options.transform_unit */

int ps_transform_run(struct penstock_batch *batch, uint32_t row, struct ps_batch_worker *worker,
        struct ps_error *err) PS_MUST_USE;

/* Parts of layouts and rows ------------------------------------------------------------------------------ */

/* The part of ps_batch_layout_new() that makes one field, whose names and kind are set. */
int ps_layout_field_make(
        struct ps_layout_field *field, const struct penstock_field *in, struct ps_error *err) PS_MUST_USE;

/* The same for an image or a mask. */
int ps_layout_image_make(
        struct ps_layout_field *field, const struct penstock_field *in, struct ps_error *err) PS_MUST_USE;

/* After all fields are made from `in`: finds which fields follow which, and which share a decode. */
int ps_layout_images_join(
        struct ps_batch_layout *layout, const struct penstock_field *in, struct ps_error *err) PS_MUST_USE;

/* After ps_layout_images_join(): refuses options that would have no effect; the text names what they
 * need. */
int ps_layout_effects_check(const struct ps_batch_layout *layout, const struct penstock_field *in,
        struct ps_error *err) PS_MUST_USE;

/* Frees a sample's bytes except those of the members in `keep`, which has an entry for each field of the
 * layout; `keep` NULL: frees all. */
void ps_batch_bytes_drop(
        const struct ps_batch_layout *layout, struct ps_sample *sample, struct ps_sample_field *const *keep);

/* The elements of a late field's row, in the worker's memory; valid until the worker decodes the next row.
 * NULL: out of memory. */
const void *ps_batch_late_peek(const struct penstock_batch *batch, uint32_t field, uint32_t row,
        struct ps_batch_worker *worker) PS_MUST_USE;

/* Writes a piece of row `row` to dst; boxes are converted to the coordinates of the image's crop. */
void ps_batch_piece_write(const struct penstock_batch *batch, uint32_t field, uint32_t row,
        const struct ps_piece *piece, uint32_t plane, void *dst);

void ps_decode_clear(struct penstock_batch *batch);
void ps_decode_fini(struct penstock_batch *batch);

/* Offers field i of the row to the GPU. 1: the GPU decodes it; 0: it does not; -errno: the sample is bad, or
 * memory is short. */
int ps_decode_offer(struct penstock_batch *batch, uint32_t row, uint32_t i,
        const struct ps_sample_field *member, struct ps_batch_worker *worker,
        struct ps_error *err) PS_MUST_USE;

#endif
