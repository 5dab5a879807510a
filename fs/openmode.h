/* How a file is opened: through the page cache and the daemon, or passed through to its data file.
 *
 * The kernel wants one mode an inode while any handle of it, or a mapping, lives; a second mode is answered
 * EIO. A node's state follows from its handles:
 *
 *   state         handles              object complete: open as      otherwise: open as
 *   idle          none                 passed through                cached
 *   cached        cached, 1 or more    cached                        cached
 *   passed        passed, 1 or more    passed, same backing id       passed, same backing id (*)
 *
 *   (*) The object was evicted while passed through: its unlinked file is whole and its bytes are right, and
 * the kernel would refuse a cached handle.
 *
 * A handle counts from before its OPEN is answered until its RELEASE comes, which the kernel sends after the
 * last mapping is gone: so this table never believes a node freer than the kernel does. The backing id is
 * closed with the last passed handle.
 *
 * Ownership: the table is part of a ps_fs. Threads: any. Locks: one, held over the ioctl that makes a backing
 * id, which touches no disk. */
#ifndef PS_OPENMODE_H
#define PS_OPENMODE_H

#include <pthread.h>
#include <stdint.h>

#include "passthrough.h"

enum ps_open_mode { PS_MODE_CACHED, PS_MODE_PASSED };

struct ps_openmode_table {
	pthread_mutex_t lock;
	struct ps_openmode *nodes; /* with handles, by number */
};

void ps_openmode_init(struct ps_openmode_table *table);
void ps_openmode_fini(struct ps_openmode_table *table);

/* One more handle of `node`. complete_fd: its data file, if it is complete and verified, else -1.
 * *ret_backing_id is set for PS_MODE_PASSED. -ENOMEM. */
int ps_openmode_enter(struct ps_openmode_table *table, struct ps_passthrough *pt, uint64_t node,
        int complete_fd, enum ps_open_mode *ret_mode, int *ret_backing_id);
void ps_openmode_leave(struct ps_openmode_table *table, struct ps_passthrough *pt, uint64_t node);

#endif
