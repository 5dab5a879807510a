/* Images of a row and the masks that follow them, decoded into their places; and where its boxes go.
 *
 * Ownership, threads: as ps_batch_decode().   Errors: as ps_image_decode(). */
#ifndef PS_BATCH_PICTURES_H
#define PS_BATCH_PICTURES_H

#include "batch/batch.h"

/* What random choices of the row's pictures are drawn from. */
struct ps_rng_key ps_picture_key(
        const struct penstock_batch *batch, uint32_t row, const struct ps_batch_worker *worker);

/* Decodes field i, an image or a mask, from its member's bytes. Of fields that share a member's image the one
 * that decodes it does so for all of them; for the others nothing is left to do. Fields come in their order.
 */
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
int ps_picture_worker_init(struct ps_batch_worker *worker, const struct ps_plan *plan, uint32_t i,
        struct ps_load_error *err) PS_MUST_USE;

#endif
