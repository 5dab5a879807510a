/* One mount of a daemon: its request, its datasets, its session.
 *
 *   new       options understood, datasets attached (this is what takes time)
 *   start     serves a descriptor
 *   finish    the session is over, the datasets are let go
 *   free      what was still to be answered has been
 *
 * Ownership: the daemon's. Threads: the mount's own; ps_mount_json() from any. Locks: none of its own.
 * Errors: -errno and a text. */
#ifndef PS_DAEMON_MOUNT_H
#define PS_DAEMON_MOUNT_H

#include "daemon/mounts.h"
#include "daemon/request.h"
#include "fuse/session.h"

struct ps_mount {
	struct ps_list link; /* the daemon's, once it is started */
	struct ps_mount_request request;
	struct ps_mount_options *options; /* of each source; those of the first are the mount's */
	struct ps_fs_source *sources;
	size_t nsources;
	struct ps_given warnings; /* for who asked for the mount */
	char *device; /* what is shown as the mount's device: sources without secrets */
	struct ps_fs fs;
	struct ps_session session;
	struct ps_mount_id id; /* once started; all 0: unknown */
	bool here;   /* in our own mount namespace: we may detach it */
	void *owner; /* the daemon */
};

/* Takes the request over, also on failure. Blocks until all sources are listed, or *cancelled. */
int ps_mount_new(struct ps_cache *cache, struct ps_mount_request *request, const _Atomic bool *cancelled,
        struct ps_mount **ret, struct ps_error *err) PS_MUST_USE;
int ps_mount_start(struct ps_mount *mount, int fd, struct ps_mount_id id, struct ps_error *err) PS_MUST_USE;
/* As ps_session_finish(). The mount is off the daemon's list. */
int ps_mount_finish(struct ps_mount *mount) PS_MUST_USE;
/* Waits for answers that others still wait for, which is at most the timeout of the cache. */
void ps_mount_free(struct ps_mount *mount);

/* {"mountpoint", "mounted_at", "source", "files", ...; "sources" if they have names}; the caller owns it. */
json_t *ps_mount_json(struct ps_mount *mount);

#endif
