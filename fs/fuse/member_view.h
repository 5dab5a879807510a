/* A mount that shows the members of tar shards (--members).
 *
 *   mode     a shard DIR/x.tar is shown as
 *   yes      the folder DIR/x; the folder DIR/x.tar, if the dataset has another x there
 *   both     the file DIR/x.tar and, unless the dataset has another x there, the folder DIR/x
 *   merge    not at all; the source's folder has the merged tree
 *
 * OPEN and OPENDIR are answered ENOSYS once: from then on the kernel sends neither, nor RELEASE, and keeps
 * pages and folders until a notification. So a file whose pages the kernel has is opened, read and closed
 * without a request. It follows that READ, READDIR and IOCTL know a node id only: a READ opens the shard, a
 * READDIR takes an open folder from the view.
 *
 * Node ids are as in fs.h; the alias says what the number means:
 *
 *   0                  a folder or a file of the dataset; a member, if the number is in the range of a table;
 *                      with PS_MERGED_FOLDER a folder of the merged tree
 *   PS_ALIAS_SHARD     the folder of a shard's members; the number is the shard's
 *   PS_ALIAS_SNAPSHOT  the text of a file of .penstock/ at one LOOKUP, until the kernel forgets it
 *
 * Locks: view.lock, a leaf. */
#ifndef PS_FUSE_MEMBER_VIEW_H
#define PS_FUSE_MEMBER_VIEW_H

#include "base/tree.h"
#include "fuse/fs.h"
#include "members/members.h"

/* Places ------------------------------------------------------------------------------------------------- */

enum ps_place_kind {
	PS_PLACE_VIRTUAL,  /* the folder .penstock */
	PS_PLACE_SNAPSHOT, /* one of its files */
	PS_PLACE_TOP,      /* the folder of the sources */
	PS_PLACE_MERGED,   /* a folder of the merged tree */
	PS_PLACE_SHARD,    /* the folder of a shard's members */
	PS_PLACE_MEMBER,   /* a member; its number is table->first + ordinal */
	PS_PLACE_NODE,     /* a folder or file of the dataset */
};

/* What a node id is. */
struct ps_place {
	enum ps_place_kind kind;
	const struct ps_fs_source *source;
	uint64_t number;                     /* without the bits of alias and source */
	const struct ps_member_table *table; /* of a member */
	uint32_t ordinal;
};

/* In names.c, also for a mount that shows no members. -EAGAIN: the merged tree is not made yet. */
int ps_place_of(struct ps_fs *fs, fuse_ino_t ino, struct ps_place *ret);

/* The view ----------------------------------------------------------------------------------------------- */

/* What a mount that shows members has besides a struct ps_fs. Ownership: the fs's. */

#define PS_VIEW_DIRS 16

/* A folder that is being read: the kernel sends a position, and reading on from there is cheap. */
struct ps_view_dir {
	fuse_ino_t ino;  /* 0: the slot is free; a folder that a READDIR uses has no slot */
	uint64_t folder; /* its number, which differs from one merged tree to the next */
	struct ps_dir *dir;
	struct ps_merged_dir *merged;
	uint64_t pos; /* of the next entry */
	uint64_t used_ns;
};

struct ps_snapshot {
	struct ps_tree_item by_number;
	uint64_t fh; /* of its slot (mount_state.h), if `kept` */
	bool kept;
	fuse_ino_t file; /* the virtual file */
	char *text;
	size_t len;
	int64_t made_s;
	struct ps_plan_feed *feed; /* of .penstock/plan, after the first ioctl */
};

struct ps_member_view {
	pthread_mutex_t lock; /* protects what follows */
	pthread_cond_t left;  /* `ninside` is 0 */
	unsigned ninside;
	bool ending;
	struct ps_tree snapshots;
	struct ps_view_dir dirs[PS_VIEW_DIRS];
};

/* Starts the threads that make tables; does nothing if the mount shows no members. After an error call stop
 * and free, too. */
int ps_member_view_start(struct ps_fs *fs) PS_MUST_USE;
/* Call when no request can come. From then on ps_member_view_enter() returns false, and no callback is
 * between enter and leave. A callback that may come after the mount's end may ask the dataset for more, or
 * use the background thread, only between an enter() that returned true and leave(). Of a mount that shows no
 * members, enter() is always true. */
void ps_member_view_end(struct ps_fs *fs);
bool ps_member_view_enter(struct ps_fs *fs) PS_MUST_USE;
void ps_member_view_leave(struct ps_fs *fs);
/* Ends the threads that make tables; closes shards, folders and snapshots. Call when no request can come. */
void ps_member_view_stop(struct ps_fs *fs);
/* Closes open folders that were not read for a while: they keep a snapshot of the index. */
void ps_member_view_close_old(struct ps_fs *fs);
/* After the last answer. */
void ps_member_view_free(struct ps_fs *fs);

/* A new snapshot of a virtual file; NULL: out of memory. `owner` as for ps_virtual_text(). */
struct ps_snapshot *ps_snapshot_new(struct ps_fs *fs, fuse_ino_t file, bool owner, uint64_t *ret_number);
/* Restores a snapshot of an earlier daemon; NULL: it is lost. */
struct ps_snapshot *ps_snapshot_restore(struct ps_fs *fs, uint64_t fh, fuse_ino_t file, uint64_t number);
/* Valid until the kernel forgets it. */
struct ps_snapshot *ps_snapshot_find(struct ps_fs *fs, uint64_t number);
void ps_snapshot_forget(struct ps_fs *fs, uint64_t number);
void ps_snapshot_stat(
        const struct ps_fs *fs, const struct ps_snapshot *snapshot, uint64_t number, struct stat *ret);

/* The number of an alias, in a node id. */
enum { PS_ALIAS_SHARD = 1, PS_ALIAS_SNAPSHOT = 2 };
static inline fuse_ino_t ps_alias_ino(uint64_t alias, uint64_t number)
{
	return number | alias << PS_ALIAS_SHIFT;
}

#endif
