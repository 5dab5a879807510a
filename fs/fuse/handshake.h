/* The features that the INIT exchange with the kernel agrees on beyond those of libfuse 3.14: passthrough,
 * shared mappings of files that are open for direct I/O, and parallel lookups in one folder. For a daemon
 * that takes a mount over, the stored exchange is replayed to its session: the kernel is not asked again.
 *
 * We replace libfuse's I/O functions: these read the kernel's offer, and add flags to the answer that
 * libfuse before 3.17 does not know.
 *
 * Ownership: part of a ps_fs. libfuse passes the session's user data, which begins with a ps_handshake, to
 * our I/O functions. Threads: install before the loop; the rest from any. Locks: none. Blocks: never. */
#ifndef PS_FUSE_HANDSHAKE_H
#define PS_FUSE_HANDSHAKE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fuse/mount_state.h"

/* libfuse's low-level API, in one version for all of fs/. */
#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

/* libfuse supports passthrough and mmap of direct files from 3.17 on. */
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
#define PS_FUSE_KNOWS_PASSTHROUGH 1
#else
#define PS_FUSE_KNOWS_PASSTHROUGH 0
#endif

struct ps_handshake {
	/* set before install: */
	bool want_passthrough;
	unsigned stacked;           /* stacked file systems below the cache directory: 0 or 1 */
	struct ps_state_head *kept; /* NULL: nothing is kept of the exchange */
	/* what the kernel agreed to, once the mount answers: */
	_Atomic bool passthrough, direct_mmap;
	_Atomic bool parallel_dirops; /* parallel lookups in one folder, as the kernel offers */
	_Atomic bool resends;         /* the kernel can send again what was not answered */
	_Atomic uint64_t init_unique; /* of the INIT being answered; 0 before and after */
	bool replays;                 /* that INIT is an old one, whose answer the kernel has */
};

/* Call after fuse_session_mount(). -ENOTSUP: this libfuse takes no custom I/O functions; the mount works,
 * but without these features. */
int ps_handshake_install(struct ps_handshake *hs, struct fuse_session *session);

/* Replays the stored INIT, so that the session agrees on what the earlier session agreed on. Call after
 * install, before the loop. -EPROTO: no INIT is stored, or it is not accepted. */
int ps_handshake_replay(struct ps_handshake *hs, struct fuse_session *session);
/* Has the kernel send again the requests that an earlier daemon read and did not answer. fd: the
 * session's. */
int ps_handshake_resend(int fd);
/* Has the kernel look up each name again, and detach other mounts on folders of this mount (from Linux 6.16
 * on; before, no effect). */
void ps_handshake_forget_names(int fd);

/* The number of the request that this thread has read last. The kernel would send the request again with the
 * same number; *ret_again: it did. */
uint64_t ps_handshake_request(bool *ret_again);

/* For the init callback. */
void ps_handshake_init_op(struct ps_handshake *hs, struct fuse_conn_info *conn);

#endif
