/* What plans name next is fetched before it is opened.
 *
 * Of the files that the ranks of a dataset will open next, PS_PLAN_AHEAD_FILES are looked at, in order of
 * need; those that are not all there are fetched at the priority of what is expected, after all that anybody
 * waits for. First comes the head of each: a loader interleaves many shards, and needs the beginning of all of
 * them for its first batch. Then PS_PLAN_AHEAD_AT_ONCE at a time are fetched whole. What lies fetched and was
 * not opened yet takes a sixteenth of the cache at most (two files at least), since what is needed later had
 * to go for it, but free room may be filled. Of a file that the cache does not admit, only the head is fetched,
 * to memory, and that for the next PS_PLAN_AHEAD_TO_MEMORY files only.
 *
 * Ownership: the dataset's. Threads: any; has one of its own from the first plan on. Locks: one, a leaf.
 * Blocks: free on the disk, the others never. */
#ifndef PS_PREFETCH_PLAN_AHEAD_H
#define PS_PREFETCH_PLAN_AHEAD_H

#include <stdbool.h>

#include "base/cleanup.h"

#define PS_PLAN_AHEAD_FILES 64
#define PS_PLAN_AHEAD_AT_ONCE 8
#define PS_PLAN_AHEAD_SHARE 16
#define PS_PLAN_AHEAD_TO_MEMORY 2

struct ps_dataset;
struct ps_plan_ahead;

int ps_plan_ahead_new(struct ps_dataset *dataset, struct ps_plan_ahead **ret) PS_MUST_USE;
/* Takes back what was begun; before ps_fill_drain(). NULL is allowed. */
void ps_plan_ahead_free(struct ps_plan_ahead *ahead);
/* Something was told: starts the thread, if need be, and wakes it. */
void ps_plan_ahead_told(struct ps_plan_ahead *ahead);
/* A file was opened. False: there are no plans of this dataset. */
bool ps_plan_ahead_opened(struct ps_plan_ahead *ahead);

#endif
