/* The order in which a dataset's shards are opened, and the start of the next before anybody asks for it.
 *
 * A shard that is passed through shows no reads, and one that is fetched shows its end too late: only OPEN tells in
 * time. Who opens N and then the shard `stride` names after it (1 for one reader or for workers that take turns, more
 * where ranks deal the shards out) is expected to go on so, and what comes next is wanted at a low priority.
 *
 * How much is paid in advance is earned: an eighth of the next shard at first, doubled by each that is opened
 * indeed, up to PS_SEQUENCE_AHEAD whole shards and half of the memory budget in all; back to an eighth when one was
 * begun in vain, so that what is wasted stays below what was of use. Of a shuffled order some shards follow each other
 * by chance: each vain start is followed by a pause, twice as long as the last (16 to 4,096 opens). Whatever the order,
 * a single opened shard starts nothing. Where loaders have told plans, nothing is guessed (plan_ahead.h).
 *
 * Ownership: the dataset's. Threads: any. Locks: one, before the engine's. Blocks: on the index, and on stat of a
 * data file; never on the network. */
#ifndef PS_PREFETCH_NEXT_SHARD_H
#define PS_PREFETCH_NEXT_SHARD_H

#include "index/index.h"

struct ps_dataset;
struct ps_sequence;
struct ps_fill_file;

#define PS_SEQUENCE_AHEAD 8     /* shards */
#define PS_SEQUENCE_SIBLINGS 16 /* the largest stride */
#define PS_SEQUENCE_RECENT 16   /* opens that are remembered: workers that take turns */
#define PS_SEQUENCE_PATIENCE 16 /* opens after which one that is still expected was begun in vain */

int ps_sequence_new(struct ps_dataset *dataset, struct ps_sequence **ret) PS_MUST_USE;
/* Takes back what was begun; before ps_fill_drain(). */
void ps_sequence_free(struct ps_sequence *seq);
/* The file behind a node that is worth starting, with a reference; NULL: there is none, or it is all there, or its version
 * is to be confirmed first. Of one that is `planned` the origin is asked for that; it is to be tried again. Blocks on the
 * index and on stat. */
struct ps_fill_file *ps_sequence_file(struct ps_dataset *dataset, uint64_t node, bool planned);
/* A file is being opened: before its opener knows. False: it was the last time too, and nothing follows. */
bool ps_sequence_begin(struct ps_sequence *seq, uint64_t node);
/* After that, when its opener need not wait for it. */
void ps_sequence_opened(struct ps_sequence *seq, const struct ps_node_row *row);
/* It was not opened to be read: nothing follows from that. */
void ps_sequence_forget(struct ps_sequence *seq, uint64_t node);

#endif
