/* How a file is opened: through the page cache and the daemon, straight through the daemon, or passed through
 * to its data file.
 *
 * What the kernel wants (tried on 6.18; fs/fuse/iomode.c): an inode is in one of two modes while any handle
 * of it lives: cached (a cached handle, or a shared mapping of a direct one) or passed (handles that name one
 * backing file). A handle of the other mode is answered EIO. A direct handle fits beside both, but a mapping
 * of it fails with ENODEV while the inode is passed; the daemon sees no mapping, so it takes each direct
 * handle for mapped. What does not fit gets an inode of its own: an *alias*, another node id of the same
 * version with the same st_ino.
 *
 *   handles of this     object complete,           object complete,        object incomplete
 *   node id             passthrough                no passthrough
 *   -----------------------------------------------------------------------------------------------
 *   none                passed                     cached                  direct, or cached (*)
 *   direct or cached    ESTALE: to an alias (**)   cached                  direct, or cached (*)
 *   passed              passed, same backing id    passed, same id (***)   passed, same id (***)
 *
 *   (*) Cached where the kernel does not allow a shared mapping of a direct handle, for those who read in small
 * pieces or map (access_pattern.h), and beside a direct handle that is mapped: each new mapping of a direct
 * handle empties the inode's page cache, and waits for all READs into it, deaf to signals.
 *   (**) OPEN answers ESTALE; the kernel looks the name up again, is given the alias, and opens that: an alias
 * that is passed already, or one without handles. The old handles and mappings stay as they are. Not for an
 * OPEN that may be the second of one open(2), after an ESTALE: a third is not tried, and the program would
 * see the error. It is opened as a cached one.
 *   (***) The object was evicted while passed through: its unlinked file is whole, its bytes are right. The
 * file goes with the last handle.
 *
 * A handle counts from before its OPEN is answered until its RELEASE comes, which the kernel sends after the
 * last mapping is gone and the inode's mode is given up: so this table never believes a node freer than the
 * kernel does. The backing id is closed with the last passed handle.
 *
 * An alias lives in the high bits of a node id. Nothing of it is stored: with the mount the kernel forgets
 * its inodes, and while it is mounted every alias of a node is as good as another.
 *
 * Ownership: the table is part of a ps_fs. Threads: any. Locks: one, a leaf, held over the ioctl that makes
 * or closes a backing id, which touches no disk. */
#ifndef PS_FUSE_OPENMODE_H
#define PS_FUSE_OPENMODE_H

#include <pthread.h>
#include <stdint.h>

#include "fuse/passthrough.h"

enum ps_open_mode { PS_MODE_CACHED, PS_MODE_DIRECT, PS_MODE_PASSED, PS_MODE_COUNT };

/* Node ids: the cache's number below, the alias above. */
#define PS_ALIAS_SHIFT 48
#define PS_ALIAS_MAX UINT64_C(0xffff)
static inline uint64_t ps_node_number(fuse_ino_t ino)
{
	return ino & ((UINT64_C(1) << PS_ALIAS_SHIFT) - 1);
}

/* Threads whose last OPEN was answered ESTALE, and who will come again. */
#define PS_STALE_SLOTS 128
struct ps_stale {
	pid_t tid;
	uint64_t at_ns;
};

struct ps_openmode_table {
	pthread_mutex_t lock;
	struct ps_openmode_node *nodes; /* with handles, by number */
	struct ps_stale stale[PS_STALE_SLOTS];
	uint64_t last_stale_ns;
	_Atomic uint64_t nopens[PS_MODE_COUNT], nopen[PS_MODE_COUNT]; /* handles ever and now */
	_Atomic uint64_t nupgrades;                                   /* OPENs sent to an alias */
};

void ps_openmode_init(struct ps_openmode_table *table);
void ps_openmode_fini(struct ps_openmode_table *table);

/* What must stay while the kernel reads the data file: its room is not free before. put is called once, with
 * nothing held; NULL: nothing to keep. */
struct ps_keep {
	void *arg;
	void (*put)(void *arg);
};

struct ps_openmode_wish {
	fuse_ino_t ino;
	pid_t tid;       /* who opens; 0: unknown */
	int complete_fd; /* the data file, if it is complete, verified, and may be passed through; else -1 */
	bool direct;     /* direct rather than cached, if it is not passed through */
	/* of complete_fd, until its backing id is closed; put at once if there is none */
	struct ps_keep keep;
};

/* One more handle of wish->ino, counted in *ret_mode. *ret_backing_id is set for PS_MODE_PASSED.
 * -ESTALE: nothing is counted, answer so. -ENOMEM. */
int ps_openmode_enter(struct ps_openmode_table *table, struct ps_passthrough *pt, fuse_req_t req,
        const struct ps_openmode_wish *wish, enum ps_open_mode *ret_mode, int *ret_backing_id);
void ps_openmode_leave(
        struct ps_openmode_table *table, struct ps_passthrough *pt, fuse_ino_t ino, enum ps_open_mode mode);

/* A direct handle of this node id is mapped: the kernel wants pages of it. */
void ps_openmode_mapped(struct ps_openmode_table *table, fuse_ino_t ino);

/* An OPEN of this thread is answered ESTALE for a reason of the cache's. */
void ps_openmode_stale(struct ps_openmode_table *table, pid_t tid);

/* The node id that a name which stands for `number` is looked up to. */
fuse_ino_t ps_openmode_ino(struct ps_openmode_table *table, uint64_t number);

#endif
