/* Names of a shard list that stand for files which are looked for: wildcards and folders.
 *
 *   data/t*.tar   what glob(7) matches; hidden files only where the pattern has their dot. A file that has the
 *                 name as it is written is meant itself
 *   data          a folder: the files in it whose names end as those of tar shards do (PS_LIST_SUFFIXES)
 *
 * What is found comes in the order of its bytes, the same in every locale.
 *
 * Ownership: as the list's.   Threads: one at a time.   Blocks: on the file system.
 * Errors: -ENOENT where nothing is found, the errno of reading a folder, or -ENOMEM, -E2BIG. */
#ifndef PS_SHARD_LIST_FIND_H
#define PS_SHARD_LIST_FIND_H

#include "shard/list.h"

#define PS_LIST_SUFFIXES ".tar", ".tar.zst", ".tar.gz", ".tgz", ".tar.lz4"

/* Puts what is found in the place of each name from `from` on that stands for files; a folder only where it is the
 * only name. On error the list ends at `from`. */
int ps_list_find(struct ps_list *list, size_t from, struct ps_load_error *err) PS_MUST_USE;

#endif
