/* Kernel passthrough: reads of a complete shard go from the kernel straight to the data file, and the daemon
 * is out of the way.
 *
 * The session's beginning agrees on it (handshake.h), a data file is turned into a backing id, and OPEN is
 * answered with that id. It needs Linux 6.9, CAP_SYS_ADMIN in the initial user namespace, and a cache
 * directory that is not on a file system stacked too deep. With libfuse >= 3.17 its API is used, before that
 * the kernel's.
 *
 * Ownership: part of a ps_fs. Threads: install before the loop; the rest from any. Locks: none.
 * Blocks: never on disk or network.
 * Errors: -errno; a refusal for good turns passthrough off and is remembered as the reason. */
#ifndef PS_FUSE_PASSTHROUGH_H
#define PS_FUSE_PASSTHROUGH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fuse/handshake.h"

struct ps_passthrough {
	struct ps_handshake handshake;
	int dev_fd;            /* the session's; borrowed */
	const char *cache_dir; /* borrowed; probed once the kernel has agreed */
	_Atomic bool active;
	_Atomic(const char *) reason; /* why not active; a constant text */
};

/* Call after fuse_session_mount(). With wanted false (--no-passthrough) nothing is announced. -ENOTSUP: see
 * ps_handshake_install(). */
int ps_passthrough_install(
        struct ps_passthrough *pt, struct fuse_session *session, const char *cache_dir, bool wanted);

/* Tries a backing id once and says so in the log; call when the mount answers. */
void ps_passthrough_probe(struct ps_passthrough *pt);

bool ps_passthrough_active(const struct ps_passthrough *pt);
/* "" while active. */
const char *ps_passthrough_reason(const struct ps_passthrough *pt);

/* A backing id (> 0) for the file open as fd, or -errno. The kernel keeps its own reference to the file.
 * req: any of the session. */
int ps_passthrough_backing_open(struct ps_passthrough *pt, fuse_req_t req, int fd);
void ps_passthrough_backing_close(struct ps_passthrough *pt, int backing_id);

/* Answers OPEN; as fuse_reply_open(). */
int ps_passthrough_reply_open(fuse_req_t req, struct fuse_file_info *fi, int backing_id);

#endif
