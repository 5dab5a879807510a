/* The caller's own step: options.transform, called for each sound row on the thread that decoded it.
 *
 * Ownership: a penstock_sample lives on the worker's stack for the call; its outputs lie in the batch.
 * Threads: the callback runs on all decoding threads at once.   Locks: none are held.
 * Errors: what the callback returns makes the row bad (-ENOMEM: fails the batch); with a text. */
#ifndef PS_BATCH_TRANSFORM_H
#define PS_BATCH_TRANSFORM_H

#include "batch/batch.h"

int ps_transform_run(struct penstock_batch *batch, uint32_t row, struct ps_batch_worker *worker,
        struct ps_load_error *err) PS_MUST_USE;

#endif
