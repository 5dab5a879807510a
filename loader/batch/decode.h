/* Images of a batch that the GPU decodes (device/nvjpeg.h): offered row by row, submitted when all rows are
 * there.
 *
 * A field of images may have some if the device finishes it (made in plan.h), and it makes one view, follows
 * no other field and shares its member with none; masks and boxes may follow it. Which rows are offered is
 * offload.h's business. What the GPU does not take, now or at the end, the worker decodes itself.
 *
 * Ownership: rows belong to the batch.   Threads: offer: as ps_batch_decode(); the others one at a time.
 * Errors: -EIO or -ENOMEM with a text: of the device, not of the sample.   Blocks: as nvjpeg.h says. */
#ifndef PS_BATCH_DECODE_H
#define PS_BATCH_DECODE_H

#include "batch/batch.h"
#include "device/nvjpeg.h"

bool ps_decode_offloads(const struct ps_plan *plan, uint32_t field);

int ps_decode_init(
        struct penstock_batch *batch, struct ps_nvjpeg *nvjpeg, struct ps_load_error *err) PS_MUST_USE;
void ps_decode_clear(struct penstock_batch *batch);
void ps_decode_fini(struct penstock_batch *batch);

/* 1: the GPU decodes field i of the row; 0: not this one. A negative errno: the sample is bad, or there is no
 * memory. */
int ps_decode_offer(struct penstock_batch *batch, uint32_t row, uint32_t i,
        const struct ps_sample_field *member, struct ps_batch_worker *worker,
        struct ps_load_error *err) PS_MUST_USE;

/* All rows are there: rows that are refused now are decoded on this thread, or become bad. */
int ps_decode_submit(
        struct penstock_batch *batch, struct ps_batch_worker *worker, struct ps_load_error *err) PS_MUST_USE;

#endif
