/* The mode in which a file is opened: cached (the kernel's page cache, filled by the daemon), direct (every
 * read goes to the daemon), or passed (passthrough: the kernel reads the data file).
 *
 * What Linux requires (tested on 6.18; its fs/fuse/iomode.c): while any handle of an inode lives, the inode
 * is in one of two modes: cached (it has a cached handle, or a shared mapping of a direct handle) or passed
 * (its handles name one backing file). A handle of the other mode is answered EIO. A direct handle fits
 * both modes, but mapping it fails with ENODEV while the inode is passed. The daemon sees no mappings, so
 * it counts each direct handle as mapped. A handle that does not fit gets an inode of its own: an *alias*,
 * another node id of the same version with the same st_ino.
 *
 *   handles of this     object complete,           object complete,        object incomplete
 *   node id             passthrough                no passthrough
 *   -----------------------------------------------------------------------------------------------
 *   none                passed                     cached, or direct (*)   direct, or cached (*)
 *   direct or cached    ESTALE: to an alias (**)   cached, or direct (*)   direct, or cached (*)
 *   passed              passed, same backing id    passed, same id (***)   passed, same id (***)
 *
 *   (*) Cached if the kernel does not allow a shared mapping of a direct handle, if the thread reads in small
 *   pieces or maps (access_pattern.h), or if a direct handle of the node is mapped: each new mapping of a
 *   direct handle empties the inode's page cache, and waits uninterruptibly for all READs into it.
 *   (**) OPEN answers ESTALE; the kernel looks the name up again, is given the alias, and opens that. The
 *   alias is one that is passed already, or one without handles. The old handles and mappings stay as they
 *   are. Exception: an OPEN that may be the second of one open(2), after an ESTALE. The kernel does not try
 *   a third, and the program would see the error; so the file is opened as cached.
 *   (***) The object was evicted while passed through. Its unlinked file is whole and its bytes are right;
 *   the file system frees it with the last handle.
 *
 * A handle counts from before its OPEN is answered until its RELEASE arrives. The kernel sends RELEASE after
 * the last mapping is gone and after it has given up the inode's mode. So a node that has no handles in this
 * table has none in the kernel either. The backing id is closed with the last passed handle.
 *
 * The alias is the high bits of a node id. Nothing of it is stored on disk: when the mount ends the kernel
 * forgets its inodes, and until then all aliases of a node are interchangeable. The next daemon of a mount
 * finds aliases, modes and backing ids in the slots of open files, and the threads that were answered ESTALE
 * in the mount's state (mount_state.h).
 *
 * Ownership: the table is part of a ps_fs. Threads: any. Locks: one, held over the ioctl that makes a
 * backing id, which touches no disk, and over the lock of the helper that makes it (fuse.h). */
#ifndef PS_FUSE_OPENMODE_H
#define PS_FUSE_OPENMODE_H

#include <pthread.h>
#include <stdint.h>

#include "fuse/passthrough.h"

enum ps_open_mode { PS_MODE_CACHED, PS_MODE_DIRECT, PS_MODE_PASSED, PS_MODE_COUNT };

/* A node id has the cache's number in its low bits, the alias in its high bits. */
#define PS_ALIAS_SHIFT 48
#define PS_ALIAS_MAX UINT64_C(0xffff)
static inline uint64_t ps_node_number(fuse_ino_t ino)
{
	return ino & ((UINT64_C(1) << PS_ALIAS_SHIFT) - 1);
}

struct ps_openmode_table {
	pthread_mutex_t lock;
	struct ps_openmode_node *nodes; /* the nodes that have handles, by number */
	struct ps_state_head *head;     /* borrowed */
	/* opens ever; handles that are open now */
	_Atomic uint64_t nopens[PS_MODE_COUNT], nopen[PS_MODE_COUNT];
	_Atomic uint64_t nupgrades; /* OPENs sent to an alias */
};

/* head: borrowed. */
void ps_openmode_init(struct ps_openmode_table *table, struct ps_state_head *head);
void ps_openmode_fini(struct ps_openmode_table *table);

/* A reference to the object that is kept while the kernel reads its data file, so that the file's space is
 * not freed meanwhile. put() releases the reference; it is called once, without a lock held. put NULL: there
 * is no reference. */
struct ps_keep {
	void *arg;
	void (*put)(void *arg);
};

struct ps_openmode_wish {
	fuse_ino_t ino;
	pid_t tid;       /* the thread that opens; 0: unknown */
	int complete_fd; /* the data file, if it is complete, verified, and may be passed through; else -1 */
	const char *complete_name; /* the name of that file below the cache directory; borrowed */
	bool direct;               /* if the file is not passed through: direct, not cached */
	/* reference for complete_fd: put when the backing id is closed, or at once if none is opened */
	struct ps_keep keep;
};

/* Chooses *ret_mode for a new handle of wish->ino and counts the handle in it. *ret_backing_id is set for
 * PS_MODE_PASSED. -ESTALE: not counted; answer OPEN with ESTALE. -ENOMEM: not counted. */
int ps_openmode_enter(struct ps_openmode_table *table, struct ps_passthrough *pt, fuse_req_t req,
        const struct ps_openmode_wish *wish, enum ps_open_mode *ret_mode, int *ret_backing_id);
void ps_openmode_leave(
        struct ps_openmode_table *table, struct ps_passthrough *pt, fuse_ino_t ino, enum ps_open_mode mode);

/* Counts a handle that an earlier daemon has opened in this mode; takes over the reference. -ENOMEM. */
int ps_openmode_restore(struct ps_openmode_table *table, fuse_ino_t ino, enum ps_open_mode mode,
        int backing_id, const struct ps_keep *keep);

/* Call when the kernel reads pages through a direct handle of this node id: records that such a handle is
 * mapped. */
void ps_openmode_mapped(struct ps_openmode_table *table, fuse_ino_t ino);

/* Records that the cache answers an OPEN of this thread with ESTALE. */
void ps_openmode_stale(struct ps_openmode_table *table, pid_t tid);

/* The node id that LOOKUP answers for a name of the cache's node `number`. */
fuse_ino_t ps_openmode_ino(struct ps_openmode_table *table, uint64_t number);

#endif
