/* Kernel passthrough: the kernel reads the data file of a complete object itself, without the daemon.
 *
 * INIT agrees on passthrough (handshake.h); an ioctl turns an open data file into a backing id; OPEN is
 * answered with that id. Passthrough needs Linux 6.9, CAP_SYS_ADMIN in the initial user namespace, and a
 * cache directory with at most one stacked file system below it. libfuse's API is used from 3.17 on, the
 * kernel's before.
 *
 * Ownership: part of a ps_fs. Threads: install before the loop; the other functions from any. Locks: none.
 * Blocks: never on disk or network. Errors: -errno. A permanent error turns passthrough off and is kept as
 * the reason. */
#ifndef PS_FUSE_PASSTHROUGH_H
#define PS_FUSE_PASSTHROUGH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fuse/handshake.h"

struct ps_backing_ops; /* fuse.h */

struct ps_passthrough {
	struct ps_handshake handshake;
	const struct ps_backing_ops *backing; /* NULL: this process opens and closes backing ids itself */
	void *backing_arg;
	int dev_fd;            /* the session's; borrowed */
	const char *cache_dir; /* borrowed; probed after INIT */
	_Atomic bool active;
	_Atomic(const char *) reason; /* why passthrough is not active; a constant text */
};

/* Call after fuse_session_mount(). wanted is false with --no-passthrough: passthrough is then not announced
 * to the kernel. -ENOTSUP: as of ps_handshake_install(). */
int ps_passthrough_install(
        struct ps_passthrough *pt, struct fuse_session *session, const char *cache_dir, bool wanted);

/* Opens and closes one backing id, and logs why passthrough is off if that fails. Call when the mount
 * answers. */
void ps_passthrough_probe(struct ps_passthrough *pt);

bool ps_passthrough_active(const struct ps_passthrough *pt);
/* "" while active. */
const char *ps_passthrough_reason(const struct ps_passthrough *pt);

/* A backing id (> 0) for the file open as fd, whose name below the cache directory is `name`, or -errno. The
 * kernel keeps its own reference to the file. req: any of the session. */
int ps_passthrough_backing_open(struct ps_passthrough *pt, fuse_req_t req, int fd, const char *name);
void ps_passthrough_backing_close(struct ps_passthrough *pt, int backing_id);

/* Answers OPEN; as fuse_reply_open(). */
int ps_passthrough_reply_open(fuse_req_t req, struct fuse_file_info *fi, int backing_id);

#endif
