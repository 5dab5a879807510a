/* The members of tar shards: what is in a shard, by name, and where its bytes are.
 *
 *   ps_members_new()        the members of a dataset's shards, for one mount
 *   ps_members_table()      the table of one shard; made if the index does not have it
 *   ps_member_find(), ps_member_get()   names and attributes, from a table
 *   ps_member_read()        bytes of a member
 *   ps_members_stop(), ps_members_free()
 *
 * A table belongs to one version of a shard, that is to one node, and is kept in the index. It has all
 * members that are shown, as a tree of folders: ordinal 0 is the shard's top folder, and the entries of a
 * folder have consecutive ordinals, in the byte order of their names. When a table is made, it reserves a
 * run of consecutive node numbers: entry i has the number `first` + i, for ever.
 *
 * Names: leading slashes and components "." are dropped. Of members with the same name the last one is
 * shown. A hard link is shown as a file with the bytes of its target, a symbolic link as a relative link to
 * the same target, through folders only. Hidden, and counted: names with "..", empty names, names of more
 * than 4,095 bytes or with a component of more than 255 bytes, sparse files, devices and FIFOs,
 * links whose target is not shown, and files whose name a folder has, too. Of a damaged or truncated shard
 * the members before the damage are shown.
 *
 * Files, from the top: tables.c (the threads that make tables), merge.c (all shards in one tree), entries.c
 * (known tables), reads.c (open shards), by_index.c (an index beside a shard to a tree), psx.c (the bytes of
 * an index), scan.c (a tar to a tree), tree.c (members to a tree), row.c (the form of tables in the index).
 * members_private.h is private to this folder.
 *
 * Ownership: a ps_members belongs to its mount; tables live as long as it does. Threads: any, except for
 * new, stop and free. Locks: one for the states of tables, one for open shards. Blocking: only on the index,
 * except for await (which has a timeout), stop (which waits for the threads that make tables) and free
 * (which waits for opens under way). Errors: -errno, callbacks get a positive errno; EIO: ps_members_error()
 * has the text. */
#ifndef PS_MEMBERS_MEMBERS_H
#define PS_MEMBERS_MEMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "cache.h"

#define PS_MEMBER_NAME_MAX 255 /* bytes of a component */

struct ps_members;

/* merges: all shards are shown in one tree. When the first tree is shown, changed(arg, "") is called; when a
 * new tree replaces it, changed(arg, name) is called for each name in the top folder of the old or the new
 * tree. A thread of the members makes these calls; only the dataset's merge_lock is held. */
int ps_members_new(struct ps_dataset *dataset, bool merges, void (*changed)(void *arg, const char *name),
        void *arg, struct ps_members **ret) PS_MUST_USE;
/* Waits until the tables that the index has are known, and until the merged tree is shown if it is current;
 * timeout_ms at most. */
void ps_members_await(struct ps_members *members, uint64_t timeout_ms);
/* Has a thread look at all shards again, soon. Call it when the names of the dataset have changed. Never
 * blocks. */
void ps_members_look(struct ps_members *members);
/* Ends the making of tables, and calls back all waiters with ECANCELED; no table is made afterwards. */
void ps_members_stop(struct ps_members *members);
/* Closes the shards. Precondition: stop was called, and all reads have called back. */
void ps_members_free(struct ps_members *members);

/* The section "members"; the caller owns it. */
json_t *ps_members_stats(struct ps_members *members);

/* Tables ------------------------------------------------------------------------------------------------- */

struct ps_member_table {
	uint64_t shard; /* node of the shard */
	uint64_t first; /* node number of entry 0 */
	uint32_t n;     /* entries, with folders */
	uint32_t nfiles;
	uint64_t nbytes; /* of the files shown */
	uint32_t nhidden;
	/* The table was made from the index beside the shard. A stale index may match both ends of the
	 * shard, so the header before a member's data is checked before the data is read. */
	bool by_index;
	uint64_t size; /* of the shard; no member ends beyond it */
	int64_t mtime_s;
	char *hidden; /* why the first hidden member is hidden; "": none is */
	char *damage; /* the damage after the last member; "": none */
};

/* The table of a shard. Making it reads the shard once: all of it, or only its headers if the members are
 * large. If the dataset has the shard's index (NAME.psx, made by penstock-loader), and the index says that
 * it has all members, then only the index and both ends of the shard are read. An index has no times, so the
 * members have the shard's time. table is NULL if errnum is not 0. ESTALE: the node was superseded. The
 * callback may come before the call returns. */
typedef void (*ps_member_table_fn)(void *arg, int errnum, const struct ps_member_table *table);
void ps_members_table(struct ps_members *members, uint64_t shard, ps_member_table_fn fn, void *arg);
/* The table if it is known, without making it; else NULL. Blocks on the index. */
const struct ps_member_table *ps_members_known(struct ps_members *members, uint64_t shard);
/* The table whose run has this number, among those that were returned before; else NULL. Never blocks. */
const struct ps_member_table *ps_members_of(struct ps_members *members, uint64_t node);
/* Stores in ret_text why the table of this shard could not be made or, if it is known, the damage after its
 * last member; else "". */
void ps_members_error(struct ps_members *members, uint64_t shard, char ret_text[static PS_ERROR_TEXT_LEN]);
/* Makes the tables of all shards, a few at a time; shards that fail are left out. Returns at once;
 * ps_members_stats() has the progress. */
void ps_members_make_all(struct ps_members *members);

#define PS_SHARD_SUFFIX_LEN 4 /* ".tar" */
/* True if a file of this name is shown as the folder of its members. */
bool ps_members_is_shard(const char *name);

/* Entries ------------------------------------------------------------------------------------------------ */

enum ps_member_kind { PS_MEMBER_FILE = 1, PS_MEMBER_FOLDER, PS_MEMBER_LINK };

struct ps_member {
	enum ps_member_kind kind;
	uint32_t ordinal, parent; /* ordinal of the folder; the top folder is its own parent */
	size_t name_len;
	char name[PS_MEMBER_NAME_MAX + 1]; /* "" for the top folder */
	int64_t mtime_s;                   /* 0: not known, of a folder or link */
	/* of a file */
	uint64_t offset, size; /* its bytes in the shard, as it is shown (decoded) */
	/* of a folder */
	uint32_t child, nchildren; /* the first entry's ordinal */
};

/* -ENOENT: no such entry. -EIO: the row is damaged, or the index cannot be read. */
int ps_member_get(struct ps_members *members, const struct ps_member_table *table, uint32_t ordinal,
        struct ps_member *ret) PS_MUST_USE;
/* -ENOENT; -ENOTDIR: `folder` is a file. */
int ps_member_find(struct ps_members *members, const struct ps_member_table *table, uint32_t folder,
        const char *name, struct ps_member *ret) PS_MUST_USE;
/* The target of a symbolic link, relative to its folder, and the path of an entry in its shard. The caller
 * frees them. */
int ps_member_link(struct ps_members *members, const struct ps_member_table *table, uint32_t ordinal,
        char **ret_target) PS_MUST_USE;
int ps_member_path(struct ps_members *members, const struct ps_member_table *table, uint32_t ordinal,
        char **ret_path) PS_MUST_USE;

/* True if the cache has room for all shards: then a read of one member fetches the whole blocks that it is
 * in (ps_read.whole_blocks), because the other members in these blocks will be read, too. Never blocks. */
bool ps_members_fit(struct ps_members *members);

/* Reads -------------------------------------------------------------------------------------------------- */

/* True if these segments are the header of a member of this size. */
bool ps_member_header_fits(const struct ps_segment *segs, size_t nsegs, uint64_t size);
/* Call it if a header does not match a table that was made from the index beside its shard. Deletes the
 * stored table, so that the next mount scans the shard. Blocks on the cache's index. */
void ps_members_distrust(struct ps_members *members, const struct ps_member_table *table);

/* Opens a shard, or finds it open; a few hundred shards stay open, each for a minute at most, so that the
 * rules of opens (revalidation, grants) hold for reads of members, too. */
struct ps_member_shard;
typedef void (*ps_member_open_fn)(void *arg, int errnum, struct ps_member_shard *shard);
/* Returns the shard with a reference; NULL: it is not open, call ps_member_open(). */
struct ps_member_shard *ps_member_opened(struct ps_members *members, uint64_t shard);
/* ESTALE: the node was superseded. */
void ps_member_open(struct ps_members *members, uint64_t shard, ps_member_open_fn fn, void *arg);
struct ps_handle *ps_member_handle(struct ps_member_shard *shard);
/* Puts the reference. Call it after the reads with the shard's handle have called back. failed: a read has
 * failed, so the next one opens the shard again. */
void ps_member_close(struct ps_member_shard *shard, bool failed);

/* All shards in one tree --------------------------------------------------------------------------------- */

/* The merged tree has the members of all shards. If two shards have a file of the same path, that of the
 * shard whose own path sorts later is shown; a folder hides files of the same name. The folders of the tree
 * have their own node numbers, with the bit PS_MERGED_FOLDER. */
#define PS_MERGED_FOLDER (UINT64_C(1) << 39)

/* The number of the top folder. -EAGAIN: no tree is shown yet. After ps_members_make_all() the missing
 * tables and the tree are being made. */
int ps_merged_root(struct ps_members *members, uint64_t *ret_folder) PS_MUST_USE;
/* The number of an entry: a member, or a folder with PS_MERGED_FOLDER. -ENOENT: no such entry. -ESTALE: the
 * tree that the folder belongs to may have been deleted. */
int ps_merged_find(
        struct ps_members *members, uint64_t folder, const char *name, uint64_t *ret_node) PS_MUST_USE;
/* The entries of a folder in name order, from a snapshot; as ps_dir_*(). */
struct ps_merged_dir;
int ps_merged_dir_open(struct ps_members *members, uint64_t folder, struct ps_merged_dir **ret) PS_MUST_USE;
int ps_merged_dir_read(
        struct ps_merged_dir *dir, uint64_t pos, const char **ret_name, uint64_t *ret_node) PS_MUST_USE;
void ps_merged_dir_close(struct ps_merged_dir *dir);

#endif
