/* Is a folder fit to be mounted on? Recovers the stale mount of a daemon that died.
 *
 * Threads: one, before any is made (it forks). Blocks: at most a few seconds, whatever is mounted there.
 * Errors: -errno and a text that says what to do. */
#ifndef PS_DAEMON_MOUNTPOINT_H
#define PS_DAEMON_MOUNTPOINT_H

#include <stdbool.h>

#include "base/error.h"
#include "daemon/mounts.h"

/* *ret_path: the folder's real path; the caller frees it. */
int ps_mountpoint_check(const char *arg, bool nonempty, char **ret_path, struct ps_error *err) PS_MUST_USE;

/* A mount within its own source would list itself for ever; a cache below its mount would be hidden by it.
 * `source` is absolute if it is local; cache_dir need not exist. */
int ps_mountpoint_apart(
        const char *mountpoint, const char *source, const char *cache_dir, struct ps_error *err) PS_MUST_USE;

/* The mount itself: from a folder to a descriptor that speaks FUSE, and back.
 *
 * mount(2) where that is allowed, else fusermount3. Knows nothing of libfuse's sessions.
 * Threads: any. Blocks: on the kernel and on fusermount3, never on a mount's daemon.
 * Errors: -errno and a text that says what to do. */
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
