/* What becomes of revalidation when the origin does not answer: versions that are known are taken as they are.
 *
 *            no answer to a HEAD: connect, DNS, TLS, stall
 *   online ────────────────────────────────────────────────────▶ offline: opens do not wait; one of them asks, in the
 *      ▲                                                             │    background, after 1 s, 2 s, .. 30 s
 *      └──────────────── an HTTP answer, whatever it says ───────────┘
 *
 * An HTTP error of one object (500, 429) says nothing of others: that object alone is not asked about for a while.
 *
 * Threads: any. Locks: dataset.lock, as a leaf. Blocks: never. */
#ifndef PS_CATALOG_REVALIDATION_OFFLINE_H
#define PS_CATALOG_REVALIDATION_OFFLINE_H

#include "catalog/dataset.h"

void ps_offline_begin(struct ps_dataset *dataset);
void ps_offline_over(struct ps_dataset *dataset);
/* Revalidation of a node failed. */
void ps_offline_note(struct ps_dataset *dataset, uint64_t node, const struct ps_error *err);
/* A node of which nothing is known cannot be had: who asks within PS_FILL_FAILED_MS is told the same at once. The kernel
 * lets lookups of one name wait for one another, and each would wait as long again. */
void ps_offline_failed(struct ps_dataset *dataset, uint64_t node, int errnum);
/* The same, or 0. */
int ps_offline_errnum(struct ps_dataset *dataset, uint64_t node);
/* Is it vain to ask about this node now? *ret_ask: not for the caller to wait for, but it is time to ask. */
bool ps_offline_now(struct ps_dataset *dataset, uint64_t node, bool *ret_ask);

#endif
