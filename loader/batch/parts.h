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
 *   layout ─ ps_make_layout() ─▶ slot, decoders ─▶ ps_make_row() for each row ─▶ ps_batch_send()
 *
 * Threads: ps_make_row() on different rows at once; else as batch.h.   Errors: none. */

/* Stores the random choices of a row's field i, which was just decoded, in the slot. */
void ps_make_row(
        struct penstock_batch *batch, uint32_t row, uint32_t i, const struct ps_image_decoder *decoder);

/* Copies the stored choices of field i from row `from` to row `to`, which `from` replaces. */
void ps_make_repeat(struct penstock_batch *batch, uint32_t i, uint32_t to, uint32_t from);

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

/* Stores how the boxes of a row are placed. The row's image must have been decoded. */
void ps_picture_boxes(
        struct penstock_batch *batch, uint32_t row, uint32_t i, const struct ps_batch_worker *worker);

/* Makes the decoders of field i, if it is an image or a mask. */
int ps_picture_worker_init(struct ps_batch_worker *worker, const struct ps_batch_layout *layout, uint32_t i,
        struct ps_error *err) PS_MUST_USE;

/* Packed rows of tokens ---------------------------------------------------------------------------------- */

/* A field in packed rows (penstock_field.pack): x and y, and a row's positions, segments and mask, are in place; NAME:cu
 * and NAME:document are sized when the batch is complete. What is left of a row after its last document is padding, a
 * part of its own.
 *
 * Threads: ps_packed_put() on different rows at once; else as batch.h.
 * Errors: -EBADMSG with a text that names document, token and value; -E2BIG: more parts than cu_pad. */

/* Writes row `row` of field i, from its sample's piece, and takes note of the row's parts. */
int ps_packed_put(struct penstock_batch *batch, uint32_t row, uint32_t i, struct ps_batch_worker *worker,
        struct ps_error *err) PS_MUST_USE;

/* Copies what tells the parts of row `from` to row `to`, which `from` replaces. */
void ps_packed_repeat(struct penstock_batch *batch, uint32_t i, uint32_t to, uint32_t from);

/* Makes all rows padding. */
void ps_packed_blank(struct penstock_batch *batch, uint32_t i);

/* Places cu and document after *used, and writes them there. */
int ps_packed_size(struct penstock_batch *batch, uint32_t i, size_t *used, struct ps_error *err) PS_MUST_USE;
void ps_packed_write(struct penstock_batch *batch, uint32_t i);

/* Parts of layouts and rows ------------------------------------------------------------------------------ */

/* The part of ps_batch_layout_new() that makes one field, whose names and kind are set. */
int ps_layout_field_make(
        struct ps_layout_field *field, const struct penstock_field *in, struct ps_error *err) PS_MUST_USE;

/* After all fields are made from `in`: finds which fields follow which, and which share a decode. */
int ps_layout_images_join(
        struct ps_batch_layout *layout, const struct penstock_field *in, struct ps_error *err) PS_MUST_USE;

/* Frees a sample's bytes except those of the members in `keep`, which has an entry for each field of the
 * layout; `keep` NULL: frees all. */
void ps_batch_bytes_drop(
        const struct ps_batch_layout *layout, struct ps_sample *sample, struct ps_sample_field *const *keep);

/* Writes a piece of row `row` to dst; boxes are converted to the coordinates of the image's crop. */
void ps_batch_piece_write(const struct penstock_batch *batch, uint32_t field, uint32_t row,
        const struct ps_piece *piece, uint32_t plane, void *dst);

void ps_decode_clear(struct penstock_batch *batch);
void ps_decode_fini(struct penstock_batch *batch);

#endif
