/* Where the index of a shard is, of which version of the shard it must be, and how it is written.
 *
 * Ownership: the caller's.   Threads: any.   Locks: none.   Blocks: on the disk.
 * Durability: an index is complete or not there: written beside its name, then renamed. One that a power cut
 * left short is refused as any damaged one.
 * Errors: 0 or -errno with a text. */
#ifndef PS_SHARD_INDEX_FILE_H
#define PS_SHARD_INDEX_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cleanup.h"
#include "base/load_error.h"
#include "shard/index_format.h"

/* What a shard's file is like now: whether it changes while it is read. */
struct ps_index_version {
	uint64_t nbytes;
	int64_t mtime_ns;
	mode_t mode;
};

/* -EINVAL: not an ordinary file. */
int ps_index_version_read(
        const char *shard, struct ps_index_version *ret_version, struct ps_load_error *err) PS_MUST_USE;

bool ps_index_version_same(const struct ps_index_version *a, const struct ps_index_version *b);

/* What an index is bound to: the shard that it is of. */
struct ps_index_binding {
	uint64_t nbytes, plain_nbytes;
	uint64_t first;                  /* sum of its first header, decompressed */
	uint8_t sha256[PS_INDEX_SHA256]; /* of all its bytes; zeros: not known */
};

bool ps_index_sha256_known(const uint8_t sha256[static PS_INDEX_SHA256]);

/* The sum of a shard's first header, which is read for it. */
int ps_index_first_read(const char *shard, uint64_t *ret_first, struct ps_load_error *err) PS_MUST_USE;

/* The name of a shard's index, to be freed; NULL with err filled. `dir` NULL: beside the shard; else in that
 * folder, by the shard's base name, size and first header. */
char *ps_index_path(const char *shard, const char *dir, uint64_t nbytes, uint64_t first, struct ps_load_error *err);

/* -- The indexes in a folder ---------------------------------------------------------------------------- */

struct ps_index_folder;

/* Reads the names that are there. -ENOTDIR: there is no such folder. */
int ps_index_folder_read(const char *dir, struct ps_index_folder **ret_folder, struct ps_load_error *err) PS_MUST_USE;
void ps_index_folder_free(struct ps_index_folder *folder); /* NULL is allowed */

/* False: something was put into the folder, or taken from it, since it was read. */
bool ps_index_folder_is_current(const struct ps_index_folder *folder);

/* The path of the index that fits a shard's base name and size, to be freed; NULL with err filled: -ENOENT,
 * none does; -ENOTUNIQ, two do, and which of them it is can be told only by reading the shard, which is not
 * there yet. */
char *ps_index_folder_find(
        const struct ps_index_folder *folder, const char *shard, uint64_t nbytes, struct ps_load_error *err);

/* The path of one of a longer shard of that name that begins with the same header; NULL: there is none. */
char *ps_index_folder_find_longer(
        const struct ps_index_folder *folder, const char *shard, uint64_t nbytes, uint64_t first);

/* True if reading the shard costs no request: it is no remote file, or a mount has all of it. */
bool ps_index_shard_is_here(const char *shard);

/* True if the file is on a file system whose pages come over a network. */
bool ps_index_fd_is_remote(int fd);

/* Writes the file `path`, readable by those of `mode`. */
int ps_index_file_write(const char *path, mode_t mode, const void *data, size_t nbytes,
        struct ps_load_error *err) PS_MUST_USE;

#endif
