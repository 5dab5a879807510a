/* index="make": makes the indexes that a list of shards lacks, where that is quick.
 *
 * A shard is walked over only if reading it costs no request: it is local, or its mount has all of it. The walk ends when
 * the whole of it would take more than PS_INDEX_AUTO_S by what it took so far; what was made stays. One process at a time in
 * a folder: the others wait for it and find what it made.
 *
 * Ownership: borrows all.   Threads: any.   Locks: a lock file in the folder of the indexes.
 * Blocks: on the disk, up to about PS_INDEX_AUTO_S, or as long as another process makes them.
 * Errors: -EINVAL with a text that says what there would be to read and how long it would take; others of the disk. */
#ifndef PS_SHARD_INDEX_AUTO_H
#define PS_SHARD_INDEX_AUTO_H

#include "shard/index.h"

/* What a text says where an index is missing, of those who can ask for it; the programs cannot. */
#define PS_INDEX_AUTO_HINT "; or have short ones made here (index=\"make\")"

#define PS_INDEX_AUTO_S 10

int ps_index_auto(struct ps_indexes *indexes, char *const *shards, size_t nshards, const char *dir,
        struct ps_load_error *err) PS_MUST_USE;

#endif
