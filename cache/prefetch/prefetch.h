/* Prefetch: fetching ahead of reads, within a file, from file to file, and by the plans of loaders.
 *
 * Files, from the top: plan_feed.c (lines of plans) and next_shard.c use plan_ahead.c (planned files);
 * readahead.c and whole_file.c use none of them. Each section describes ownership, threads and locks. */
#ifndef PS_PREFETCH_PREFETCH_H
#define PS_PREFETCH_PREFETCH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/cleanup.h"
#include "fetch/fill.h"

/* Read-ahead of one file --------------------------------------------------------------------------------- */

/* Read-ahead of one open file: recognises the streams among the reads of all its handles, and demands a
 * window of blocks ahead of each. For random reads nothing is fetched ahead.
 *
 * All handles of a file share one struct ps_readahead: eight workers that each opened the same tar are
 * eight streams here (or one, if they read the same place), and share the memory fairly.
 *
 * A stream's window starts small and doubles each time its reader had to wait; from a far origin it grows at
 * once to the most that it may have. So the window grows to the origin's bandwidth times its delay. It is at
 * most 7 times what the stream has read; the memory budget and the number of streams limit it, too. A
 * forward skip of up to half a window keeps the stream (a tar reader passes over members it does not want).
 *
 *   read                                        effect
 *   at offset 0                                 a stream at once: a reader of the head usually goes on; a
 *                                               candidate while most reads of the file are random
 *   elsewhere, near no stream                   a candidate: no window, a random read so far
 *   just after a candidate                      a stream; while most reads of the file are random, only after
 *                                               512 KiB in a row
 *   within half a window after a stream         goes on; doubles the window if it had to wait
 *
 * Ownership: the file's; each handle holds a reference. Threads: any; reads of one file come from several
 * threads at once, slightly out of order. Locks: one, before the engine's. Never blocks. */

#define PS_STREAMS 32 /* of one file; a new one replaces the least recently used */

struct ps_dataset;
struct ps_fill_file;
struct ps_readahead;

/* The read-ahead of the file, made by the first get. -ENOMEM. */
int ps_readahead_get(struct ps_fill_file *file, struct ps_readahead **ret) PS_MUST_USE;
/* The last put cancels demands that were not begun. The caller still holds the file. */
void ps_readahead_put(struct ps_readahead *ra);

/* Call it before a read of [offset, offset + nbytes): gives the access pattern, and returns the stream for
 * ps_readahead_go(). */
unsigned ps_readahead_saw(
        struct ps_readahead *ra, uint64_t offset, uint64_t nbytes, enum ps_access *ret_access);
/* Call it after the read was issued; waited: the read had to wait. Demands the blocks that the stream's
 * window covers now. */
void ps_readahead_go(struct ps_readahead *ra, unsigned stream, bool waited);
/* ps_readahead_saw() and ps_readahead_go() in one, for a read whose bytes are all cached. True:
 * ps_fill_pump() has to start new demands. */
bool ps_readahead_hit(struct ps_readahead *ra, uint64_t offset, uint64_t nbytes) PS_MUST_USE;

/* From now on the missing bytes of the file are fetched, after all reads that wait: at once, or a step with each
 * of the file's reads that is near no stream. */
void ps_readahead_whole(struct ps_readahead *ra, bool at_once);
bool ps_readahead_is_whole(struct ps_readahead *ra);

/* Scattered readers of a file ---------------------------------------------------------------------------- */

/* Decides when a file that is read here and there (a mapped model, tensors in shuffled order) is fetched as a
 * whole: rent or buy. Once its scattered readers have waited, within PS_FILL_SCATTERED_MS, as long as its missing
 * bytes would take, the rest is worth fetching: together they wait at most twice as long as if it had been
 * fetched at once.
 *
 * Never more than PS_WHOLE_FILE_NBYTES; only into room that is reserved for the file or free, so nothing is evicted
 * for it; never in a dataset for which loaders have plans; never again for a file that has lost bytes to an
 * eviction since.
 *
 * Threads: any. Locks: the dataset's, the plans' and the engine's, one after another. Never blocks on the network;
 * may create the file's data file. */
#define PS_WHOLE_FILE_NBYTES (4 * PS_GIB)
/* Call it after a read near no stream had to wait. True: the rest of the file is worth fetching now. */
bool ps_whole_file_due(struct ps_dataset *dataset, uint64_t node, struct ps_fill_file *file);
/* Call it when a handle of a file that is fetched as a whole is closed: notes what is cached by now. */
void ps_whole_file_closed(struct ps_dataset *dataset, uint64_t node, struct ps_fill_file *file);
/* True if the option --whole names the file: all of it is fetched with its first read. */
bool ps_whole_file_named(const struct ps_dataset *dataset, const char *name);

/* The next shard ----------------------------------------------------------------------------------------- */

/* Recognises the order in which a dataset's shards are opened, and begins the next shard before it is
 * opened.
 *
 * Only opens can be used: the reads of a shard that is passed through are not seen, and the end of one that
 * is being fetched is seen too late. Once shard N and then the shard `stride` names after it have been
 * opened, the shard another `stride` names on is expected, and demanded at a low priority. The stride is 1
 * for one reader or for workers that take turns, and larger if shards are dealt out to ranks.
 *
 * The amount fetched ahead begins with an eighth of the next shard. It doubles with each right guess, up to
 * PS_NEXT_SHARD_AHEAD whole shards and half of the memory budget in all. After a wrong guess it is an
 * eighth again, so that wrong guesses waste less than right guesses save. In a shuffled order some shards
 * follow each other by chance. So no guess is made for a while after a wrong one; each wrong guess doubles
 * the next pause (16 to 4,096 opens), each right guess halves it. The open of a single shard never leads to
 * a guess. While loaders have plans for the dataset, nothing is guessed.
 *
 * Ownership: the dataset's. Threads: any. Locks: one, before the engine's. Blocks on the index, and on stat
 * of a data file; never on the network. */

struct ps_node_row;
struct ps_next_shard;

#define PS_NEXT_SHARD_AHEAD 8     /* shards */
#define PS_NEXT_SHARD_SIBLINGS 16 /* the largest stride */
#define PS_NEXT_SHARD_RECENT 16   /* remembered opens, for workers that take turns */
/* a fetched-ahead shard that is not opened within this many opens counts as a wrong guess */
#define PS_NEXT_SHARD_PATIENCE 16

int ps_next_shard_new(struct ps_dataset *dataset, struct ps_next_shard **ret) PS_MUST_USE;
/* Cancels its demands; call it before ps_fill_drain(). */
void ps_next_shard_free(struct ps_next_shard *seq);
/* Call it while a file is being opened, before the open is answered. False: the previous open was of the
 * same file, and ps_next_shard_opened() must not be called. */
bool ps_next_shard_begin(struct ps_next_shard *seq, uint64_t node);
/* Call it after true, once the open is answered. */
void ps_next_shard_opened(struct ps_next_shard *seq, const struct ps_node_row *row);
/* Undoes the last open of the file, because the file was not opened to be read. */
void ps_next_shard_forget(struct ps_next_shard *seq, uint64_t node);

/* Planned files ------------------------------------------------------------------------------------------ */

/* Fetches the files that plans name next, before they are opened.
 *
 * The thread looks at the PS_PLAN_AHEAD_FILES files that the ranks of a dataset will open next, in order of
 * need. Incomplete ones are fetched in class PS_DEMAND_NEXT, after all reads that wait. The heads of all
 * these files come first: a loader interleaves many shards, and needs the beginning of each. Then
 * PS_PLAN_AHEAD_AT_ONCE files at a time are fetched whole. Files that are fetched and not opened yet take at
 * most a sixteenth of the cache (but two files at least), because other files are evicted for them; while the
 * cache has free room, there is no such limit. Of a file that the cache does not admit, only the beginning is
 * fetched, to memory, and only for the next PS_PLAN_AHEAD_TO_MEMORY files.
 *
 * A loader that begins to read says where (ps_plan_ahead_reads()). These parts of files are demanded at once, in
 * class PS_DEMAND_AHEAD, whatever plans there are; otherwise the window of the file that is read first would come
 * before them.
 *
 * Ownership: the dataset's. Threads: any; a thread of its own runs from the first call of ps_plan_ahead_told()
 * or ps_plan_ahead_reads() on. Locks: one, a leaf. Blocking: ps_plan_ahead_free() waits for the thread, which uses
 * the disk; ps_plan_ahead_reads() waits, PS_PLAN_AHEAD_FIRST_MS at most, until the parts are demanded;
 * ps_planned_file() as below; the other calls never block. No call may be under way at ps_plan_ahead_free(). */

#define PS_PLAN_AHEAD_FILES 64
#define PS_PLAN_AHEAD_AT_ONCE 8
#define PS_PLAN_AHEAD_READS 256 /* parts that are demanded; further ones are ignored */
#define PS_PLAN_AHEAD_FIRST_MS 50
#define PS_PLAN_AHEAD_SHARE 16
#define PS_PLAN_AHEAD_TO_MEMORY 2

struct ps_plan_ahead;

/* The file of a node, with a reference, if it is worth fetching. NULL: there is none, or it is complete, or
 * its version must be confirmed first. If `planned`, this asks the origin for that confirmation, and the
 * caller tries again later. Blocks on the index and on stat. */
struct ps_fill_file *ps_planned_file(struct ps_dataset *dataset, uint64_t node, bool planned);
int ps_plan_ahead_new(struct ps_dataset *dataset, struct ps_plan_ahead **ret) PS_MUST_USE;
/* Cancels its demands; call it before ps_fill_drain(). NULL is allowed. */
void ps_plan_ahead_free(struct ps_plan_ahead *ahead);
/* A plan has changed: starts the thread, if it does not run yet, and wakes it. */
void ps_plan_ahead_told(struct ps_plan_ahead *ahead);
/* A part of a file that is read now. */
struct ps_plan_read {
	uint64_t node;
	uint32_t dataset;      /* parts of other datasets are ignored */
	uint64_t from, nbytes; /* nbytes 0: not known */
};
void ps_plan_ahead_reads(struct ps_plan_ahead *ahead, const struct ps_plan_read *reads, size_t n);
/* A file was opened. False: no plan names this dataset. */
bool ps_plan_ahead_opened(struct ps_plan_ahead *ahead);

/* Plans, line by line ------------------------------------------------------------------------------------ */

/* Receives plans as text. Part of the cache's facade: the rules of cache.h for ownership, threads, blocking
 * and errors apply here, too. */

/* A feed receives the plans that one loader announces through one open descriptor; policy/policy.h
 * describes their form. The plans are dropped with the feed, or after PS_PLANS_SILENT_S of silence. */
struct ps_plan_feed;
/* A dataset whose files the plans may name. `name` is its folder in the mount, with which its files' names
 * begin; "" if the mount shows one dataset. */
struct ps_plan_source {
	const char *name; /* borrowed for the life of the feed */
	struct ps_dataset *dataset;
};
/* n > 0; all sources belong to one cache. other_user: neither the mount's owner nor root, with lower limits.
 * -EOPNOTSUPP: the eviction policy does not use plans. */
int ps_plan_feed_new(const struct ps_plan_source *sources, size_t n, bool other_user,
        struct ps_plan_feed **ret) PS_MUST_USE;
/* Takes the next bytes of the feed's text, which may end within a line; one call at a time. All complete
 * lines are handled, even after an error; the first error is returned. -EINVAL: a line does not have the
 * form. -E2BIG: a line is too long, or a rank has too many files or epochs. -ENOSPC: all plans together are
 * over the limits. -ESTALE: a position of a rank that was dropped: announce the plan again. Blocks on the
 * index. */
int ps_plan_feed_write(struct ps_plan_feed *feed, const char *text, size_t n) PS_MUST_USE;
void ps_plan_feed_free(struct ps_plan_feed *feed);

#endif
