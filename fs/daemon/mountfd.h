/* The mount itself: from a folder to a descriptor that speaks FUSE, and back.
 *
 * mount(2) where that is allowed, else fusermount3. Knows nothing of libfuse's sessions.
 * Threads: any. Blocks: on the kernel and on fusermount3, never on a mount's daemon.
 * Errors: -errno and a text that says what to do. */
#ifndef PS_DAEMON_MOUNTFD_H
#define PS_DAEMON_MOUNTFD_H

#include <stdbool.h>

#include "daemon/mounts.h"

struct ps_mountfd_options {
	const char *source; /* shown as the mount's device; no secrets */
	const char *mountpoint;
	bool allow_other;
};

/* Read-only, nosuid, nodev, default_permissions, type fuse.penstock. The caller closes the descriptor; the
 * mount goes when it is unmounted. */
int ps_mountfd_mount(const struct ps_mountfd_options *options, int *ret_fd, struct ps_error *err) PS_MUST_USE;

/* Detaches what is mounted there if it is this mount; another one that is there meanwhile stays (-ENOENT). Open
 * files stay open. */
int ps_mountfd_detach(const char *mountpoint, struct ps_mount_id id);

#endif
