/* A listing on its way into the index: names get nodes, changed versions get new ones, vanished names go.
 *
 * Rows are committed in batches as the listing comes, so a listing of a million names needs little memory: 8
 * bytes a name to tell at the end which are gone, and the directories. A HEAD that was answered while the
 * listing ran is believed before it: the listing may have been written down earlier.
 *
 * Threads: one. Locks: names_lock of the dataset, for each name. Blocks: on the index. */
#ifndef PS_CATALOG_LISTING_MERGE_H
#define PS_CATALOG_LISTING_MERGE_H

#include "catalog/dataset.h"

struct ps_merge;

struct ps_merge *ps_merge_new(struct ps_dataset *dataset); /* NULL: out of memory */
void ps_merge_free(struct ps_merge *merge);
/* A ps_list_fn; arg is the merge. */
int ps_merge_add(void *merge, const struct ps_listed *listed);
/* After a whole listing: names that were not in it are removed, the dataset row is updated. An empty one
 * changes nothing: more likely something is missing at the origin than everything is gone. */
int ps_merge_finish(struct ps_merge *merge, uint64_t *ret_nfiles, uint64_t *ret_first_unsized);
/* Commits what the listing under way, if there is one, has decided. names_lock is held. */
int ps_merge_flush(struct ps_dataset *dataset);

#endif
