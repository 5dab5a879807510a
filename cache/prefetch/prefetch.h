/* Prefetch: what is fetched before it is asked for, within a file, from file to file, and by the plans of
 * loaders.
 *
 * Files, from the top: plan_feed.c (lines of plans) and next_shard.c use plan_ahead.c (planned files);
 * readahead.c stands alone. Ownership, threads, locks: each section. */
#ifndef PS_PREFETCH_PREFETCH_H
#define PS_PREFETCH_PREFETCH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/cleanup.h"
#include "fetch/fill.h"

/* Read-ahead of one file --------------------------------------------------------------------------------- */

/* Read-ahead of one open file: recognises the streams among its reads, whoever makes them, and keeps a window
 * of wanted blocks before each. Random readers get nothing they did not ask for.
 *
 * One for all handles of a file: eight workers that each opened the same tar are eight streams here, or one
 * where they read the same place, and share the memory fairly.
 *
 * A stream's window starts small and doubles each time its reader had to wait, so that it comes to cover
 * bandwidth x delay of the origin and no more; it is bounded by the memory budget and the number of streams.
 * A forward skip of up to half a window keeps the stream (a tar reader passes over members it does not want).
 *
 *   read                                        the stream it makes or meets
 *   at offset 0                                 a stream at once: who reads the head mostly goes on
 *   elsewhere, near no stream                   a candidate: no window, a random read so far
 *   just after a candidate                      a stream; while most reads of the file are random, only after
 *                                               512 KiB in a row
 *   within half a window after a stream         goes on; doubles the window if it had to wait
 *
 * Ownership: the file's; a reference a handle. Threads: any; reads of one file come from several at once, and
 * a little out of order. Locks: one, before the engine's. Blocks: never. */

#define PS_STREAMS 32 /* of one file; the least recently used one gives way */

struct ps_fill_file;
struct ps_readahead;

/* The file's; made by the first get. -ENOMEM. */
int ps_readahead_get(struct ps_fill_file *file, struct ps_readahead **ret) PS_MUST_USE;
/* The last put takes back what was wanted and not begun. The file is still referenced. */
void ps_readahead_put(struct ps_readahead *ra);

/* A read of [offset, offset + nbytes) comes: what it is, and the stream that ps_readahead_go() is told. */
unsigned ps_readahead_saw(
        struct ps_readahead *ra, uint64_t offset, uint64_t nbytes, enum ps_access *ret_access);
/* The read has been issued, and had to wait or not: wants what its stream's window has come to cover. */
void ps_readahead_go(struct ps_readahead *ra, unsigned stream, bool waited);
/* Both, for a read whose bytes are there. True: ps_fill_pump() has to start what is wanted now. */
bool ps_readahead_hit(struct ps_readahead *ra, uint64_t offset, uint64_t nbytes) PS_MUST_USE;

/* The next shard ----------------------------------------------------------------------------------------- */

/* The order in which a dataset's shards are opened, and the start of the next before anybody asks for it.
 *
 * A shard that is passed through shows no reads, and one that is fetched shows its end too late: only OPEN
 * tells in time. Who opens N and then the shard `stride` names after it (1 for one reader or for workers that
 * take turns, more where ranks deal the shards out) is expected to go on so, and what comes next is wanted at
 * a low priority.
 *
 * How much is paid in advance is earned: an eighth of the next shard at first, doubled by each that is opened
 * indeed, up to PS_NEXT_SHARD_AHEAD whole shards and half of the memory budget in all; back to an eighth when
 * one was begun in vain, so that what is wasted stays below what was of use. Of a shuffled order some shards
 * follow each other by chance: each vain start is followed by a pause, twice as long as the last (16 to 4,096
 * opens). Whatever the order, a single opened shard starts nothing. Where loaders have told plans, nothing is
 * guessed (prefetch.h).
 *
 * Ownership: the dataset's. Threads: any. Locks: one, before the engine's. Blocks: on the index, and on
 * stat of a data file; never on the network. */

struct ps_dataset;
struct ps_node_row;
struct ps_next_shard;

#define PS_NEXT_SHARD_AHEAD 8     /* shards */
#define PS_NEXT_SHARD_SIBLINGS 16 /* the largest stride */
#define PS_NEXT_SHARD_RECENT 16   /* opens that are remembered: workers that take turns */
#define PS_NEXT_SHARD_PATIENCE 16 /* opens after which one that is still expected was begun in vain */

int ps_next_shard_new(struct ps_dataset *dataset, struct ps_next_shard **ret) PS_MUST_USE;
/* Takes back what was begun; before ps_fill_drain(). */
void ps_next_shard_free(struct ps_next_shard *seq);
/* A file is being opened: before its opener knows. False: it was the last time too, and nothing follows. */
bool ps_next_shard_begin(struct ps_next_shard *seq, uint64_t node);
/* After that, when its opener need not wait for it. */
void ps_next_shard_opened(struct ps_next_shard *seq, const struct ps_node_row *row);
/* It was not opened to be read: nothing follows from that. */
void ps_next_shard_forget(struct ps_next_shard *seq, uint64_t node);

/* Planned files ------------------------------------------------------------------------------------------ */

/* What plans name next is fetched before it is opened.
 *
 * Of the files that the ranks of a dataset will open next, PS_PLAN_AHEAD_FILES are looked at, in order of
 * need; those that are not all there are fetched at the priority of what is expected, after all that anybody
 * waits for. First comes the head of each: a loader interleaves many shards, and needs the beginning of all
 * of them for its first batch. Then PS_PLAN_AHEAD_AT_ONCE at a time are fetched whole. What lies fetched and
 * was not opened yet takes a sixteenth of the cache at most (two files at least), since what is needed later
 * had to go for it, but free room may be filled. Of a file that the cache does not admit, only the head is
 * fetched, to memory, and that for the next PS_PLAN_AHEAD_TO_MEMORY files only.
 *
 * Ownership: the dataset's. Threads: any; has one of its own from the first plan on. Locks: one, a leaf.
 * Blocks: free on the disk, the others never. */

#define PS_PLAN_AHEAD_FILES 64
#define PS_PLAN_AHEAD_AT_ONCE 8
#define PS_PLAN_AHEAD_SHARE 16
#define PS_PLAN_AHEAD_TO_MEMORY 2

struct ps_plan_ahead;

/* The file behind a node that is worth starting, with a reference; NULL: there is none, or it is all
 * there, or its version is to be confirmed first. Of one that is `planned` the origin is asked for that;
 * it is to be tried again. Blocks on the index and on stat. */
struct ps_fill_file *ps_planned_file(struct ps_dataset *dataset, uint64_t node, bool planned);
int ps_plan_ahead_new(struct ps_dataset *dataset, struct ps_plan_ahead **ret) PS_MUST_USE;
/* Takes back what was begun; before ps_fill_drain(). NULL is allowed. */
void ps_plan_ahead_free(struct ps_plan_ahead *ahead);
/* Something was told: starts the thread, if need be, and wakes it. */
void ps_plan_ahead_told(struct ps_plan_ahead *ahead);
/* A file was opened. False: there are no plans of this dataset. */
bool ps_plan_ahead_opened(struct ps_plan_ahead *ahead);

/* Plans, line by line ------------------------------------------------------------------------------------ */

/* Plans, line by line. Part of the cache's facade: what cache.h says of ownership, threads, blocking and
 * errors holds here, too. */

/* What a loader tells of the files it will read; policy/policy.h has the form. A feed is one teller; what
 * it told is dropped with it, or when it was silent for PS_PLANS_SILENT_S. */
struct ps_plan_feed;
/* Where its names lie: a folder of the mount, or "" where the mount shows one dataset. */
struct ps_plan_source {
	const char *name; /* borrowed as long as the feed */
	struct ps_dataset *dataset;
};
/* n > 0, of one cache. other_user: neither the mount's owner nor root; may tell less. -EOPNOTSUPP: the
 * policy follows no plans. */
int ps_plan_feed_new(const struct ps_plan_source *sources, size_t n, bool other_user,
        struct ps_plan_feed **ret) PS_MUST_USE;
/* The next bytes of its lines, cut anywhere; one call at a time. All lines in them are taken, and the
 * first error is returned: -EINVAL: a line is not of the form; -E2BIG: a line, or the files or epochs of a
 * rank; -ENOSPC: too much is told by all; -ESTALE: a position of a rank that was dropped: tell it anew.
 * Blocks on the index. */
int ps_plan_feed_write(struct ps_plan_feed *feed, const char *text, size_t n) PS_MUST_USE;
void ps_plan_feed_free(struct ps_plan_feed *feed);

#endif
