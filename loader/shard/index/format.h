/* Private to this folder: the path of an index file, and an open index. base/psx.h has the format. */
#ifndef PS_SHARD_INDEX_FORMAT_H
#define PS_SHARD_INDEX_FORMAT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "shard/index/index.h"

#define PS_INDEX_MAX_TEXT 255 /* limit of a column's value, and of its name */

/* The path of an index ----------------------------------------------------------------------------------- */

/* Paths of indexes, folders of indexes, and writing of index files.
 *
 * Ownership: the caller's.   Threads: any.   Locks: none.   Blocks: on the disk.
 * Durability: an index is complete or absent: it is written to a temporary name, then renamed. An index
 * truncated by a power cut is refused as damaged.
 * Errors: 0 or -errno with a text. */

/* Makes the path of a shard's index; the caller frees it. NULL on error, with err filled. `dir` NULL: beside
 * the shard; else in that folder, named by the shard's base name, size and first header. */
char *ps_shard_index_path(
        const char *shard, const char *dir, uint64_t nbytes, uint64_t first, struct ps_error *err);

/* The indexes in a folder -------------------------------------------------------------------------------- */

struct ps_shard_index_folder;

/* Reads the names in a folder. -ENOTDIR: there is no such folder. */
int ps_shard_index_folder_read(
        const char *dir, struct ps_shard_index_folder **ret_folder, struct ps_error *err) PS_MUST_USE;
void ps_shard_index_folder_free(struct ps_shard_index_folder *folder); /* NULL is allowed */

/* False if a file was added to or removed from the folder since it was read. */
bool ps_shard_index_folder_is_current(const struct ps_shard_index_folder *folder);

/* Makes the path of the index that fits a shard's base name and size; the caller frees it. NULL on error,
 * with err filled: -ENOENT: none fits; -ENOTUNIQ: two fit, and only the shard's header could decide, but
 * reading it would cost a request. */
char *ps_shard_index_folder_find(
        const struct ps_shard_index_folder *folder, const char *shard, uint64_t nbytes, struct ps_error *err);

/* Makes the path of an index of a longer shard with that name and the same first header; the caller frees it.
 * NULL: there is none, or no memory. */
char *ps_shard_index_folder_find_longer(
        const struct ps_shard_index_folder *folder, const char *shard, uint64_t nbytes, uint64_t first);

/* True if the file is on a file system whose pages come over a network. */
bool ps_shard_index_fd_is_remote(int fd);

/* Writes the file `path`, with the permissions `mode`. */
int ps_shard_index_file_write(
        const char *path, mode_t mode, const void *data, size_t nbytes, struct ps_error *err) PS_MUST_USE;

/* An open index ------------------------------------------------------------------------------------------ */

/* Threads: any. Only the state of sections changes after opening. */

struct ps_shard_index_section {
	uint32_t kind, detail;
	const uint8_t *p;
	size_t n;
	uint64_t sum;
	/* 0: not checked; 1: sound; -1: damaged. Relaxed atomic: checking twice does no harm */
	_Atomic int state;
};

struct ps_shard_index_shape {
	uint32_t first, n; /* range in `members` */
};

struct ps_shard_index_shape_member {
	uint64_t lead; /* units */
	const char *suffix;
};

struct ps_shard_index_column {
	const struct ps_shard_index_section *section;
	const char *name;
	size_t name_len;
	const char *from; /* NULL: not in the file */
	size_t from_len;
	enum ps_column_type type;
	unsigned width;
	const uint8_t *present;
	const uint8_t *values;
};

struct ps_shard_index {
	uint8_t *data;
	size_t nbytes;
	bool mapped;
	char *path;
	uint64_t count, bad;
	uint32_t flags;
	struct ps_shard_index_binding binding;
	struct ps_shard_index_section sections[PS_PSX_MAX_SECTIONS];
	uint32_t nsections;
	struct ps_shard_index_section *samples, *keys;
	struct ps_shard_index_shape *shapes;
	uint32_t nshapes;
	struct ps_shard_index_shape_member *members;
	struct ps_windows windows; /* nbytes > 0: this is the index of a token stream, made without a file */
	bool is_rows;              /* this is the index of a unit of rows, made without a file */
	struct ps_shard_index_column columns[PS_INDEX_MAX_COLUMNS];
	uint32_t ncolumns;
};

#endif
