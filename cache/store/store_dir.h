/* The cache directory as such: made, marked, locked, salted. Who owns the lock may clean up in it.
 *
 * Ownership: descriptors and paths are the caller's. Threads: one. Errors: -errno with a text for a person.
 * Blocks: on disk; marker and salt are fsynced, once in a directory's life. */
#ifndef PS_STORE_STORE_DIR_H
#define PS_STORE_STORE_DIR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

#define PS_MARKER_NAME "penstock-cache"
#define PS_MARKER_FORMAT 1

/* Which folder holds the cache of `dir`, opened: `dir`, if it is ours alone to write to; else penstock-UID in it, for what
 * others may write to they may also fill with links and files of their own. make: what is not there is made, but for the
 * folders above `dir`. Refused with -EPERM: what belongs to neither us nor root (also where we are root), and a
 * penstock-UID that is not ours alone. -ENOENT. *ret_path is absolute, malloced; for messages, as who may rename folders
 * above may put another in its place. */
int ps_store_dir_find(const char *dir, bool make, int *ret_fd, char **ret_path, struct ps_error *err) PS_MUST_USE;
/* A folder in it, made 0700 if missing; never a link, nor another user's. Returns the descriptor. */
int ps_store_dir_sub(int dir_fd, const char *path, const char *name, struct ps_error *err) PS_MUST_USE;

/* Finds (and if need be makes) the directory, takes its lock, checks its marker. *ret_path is absolute,
 * malloced. */
int ps_store_dir_open(const char *dir, bool must_exist, int *ret_dir_fd, int *ret_lock_fd, char **ret_path,
        struct ps_error *err) PS_MUST_USE;
/* nbytes of salt, made if there is none. */
int ps_store_dir_salt(
        int dir_fd, const char *path, uint8_t *ret_salt, size_t nbytes, struct ps_error *err) PS_MUST_USE;
/* Renames a damaged index to index.broken-1, and says so with the text that err has. The one before becomes
 * index.broken-2; older ones are removed. */
int ps_store_dir_set_aside(int dir_fd, const char *path, struct ps_error *err) PS_MUST_USE;

/* A file of nbytes that is given up when the index, which writes when it is opened, finds the disk full; made when there
 * is room for it and as much again, and anew if it has another size; 0: left as it is. */
#define PS_RESERVE_NBYTES (UINT64_C(16) << 20)
#define PS_RESERVE_SMALL_NBYTES (UINT64_C(4) << 20)
void ps_store_dir_reserve(int dir_fd, uint64_t nbytes);
/* False: there was none. */
bool ps_store_dir_give_up_reserve(int dir_fd);

/* What the directory takes of the disk besides data files, with the folders that these will be in and a reserve of
 * reserve_nbytes, be they there or not. *ret_sorted_nbytes: the index's sorted files (*.sst) among it. */
uint64_t ps_store_dir_measure(int dir_fd, int data_fd, uint64_t reserve_nbytes, uint64_t *ret_sorted_nbytes);

#endif
