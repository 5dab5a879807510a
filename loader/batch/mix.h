/* CutMix and MixUp of a finished batch, in place: row i with row i - 1, the first with the last. Rows are
 * gone through from the last one, so one row of scratch is enough. image/mix.h has the arithmetic, and what
 * is drawn: the same for all ranks of a step.
 *
 * Images: all image fields (CutMix's box in the proportions of each); masks follow CutMix, and stay as they
 * are under MixUp. Labels stay; besides them are "__mix_lambda__" (f32: the share of a row's own label) and
 * "__mix_row__" (int64: the row that has the other one), and of each int64 or float field in place NAME:mix,
 * the other row's.
 *
 * Of fields that the device makes (make.h) batch->mix tells it what to do.
 *
 * Threads: one at a time, on a batch whose rows are all there.   Errors: -ENOMEM. */
#ifndef PS_BATCH_MIX_H
#define PS_BATCH_MIX_H

#include "batch/batch.h"

int ps_batch_mix(struct penstock_batch *batch) PS_MUST_USE;

#endif
