/* What of a batch's slot is copied to its device: all that the device does not have already.
 *
 *   slot | rows of images                          | the rest |
 *        | row | row | on the GPU | on the GPU | row | ... ... |
 *        └─────┬─────┘                         └──────┬────────┘
 *            copied                                 copied
 *
 * Left out are rows whose image the GPU decodes (decode.h), by the row that each one's image comes from, and
 * rows beyond the batch's last in such a field. Their pixels come behind the copies, on the same stream, so
 * no copy can overwrite them.
 *
 * Ownership: a batch has the memory for its stretches.   Threads: as ps_batch_send().   Blocks: never. */
#ifndef PS_BATCH_SEND_H
#define PS_BATCH_SEND_H

#include "batch/batch.h"

/* Less than this is copied with what lies around it: a copy of its own costs the device and the driver a few
 * microseconds, in which a bus moves as much. */
#define PS_SEND_GAP (32UL << 10)

/* Of a batch some of whose fields have images that the GPU decodes. -ENOMEM. */
int ps_send_init(struct penstock_batch *batch, struct ps_load_error *err) PS_MUST_USE;

#endif
