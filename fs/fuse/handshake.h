/* What is agreed with the kernel when a session begins (INIT), beyond what libfuse 3.14 knows of:
 * passthrough, shared mappings of files that were opened for direct I/O, and lookups in one folder at once.
 *
 * libfuse >= 3.17 has both in its own API. With an older one its I/O functions are ours for the exchange: the
 * kernel's offer is read, and the answer completed, on their way through.
 *
 * Ownership: part of a ps_fs; libfuse hands the session's user data to our I/O functions, which begins with a
 * ps_handshake. Threads: install before the loop; the rest from any. Locks: none. Blocks: never. */
#ifndef PS_FUSE_HANDSHAKE_H
#define PS_FUSE_HANDSHAKE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* libfuse's low-level API, in one version for all of fs/. */
#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

/* From 3.17 on libfuse itself knows passthrough and direct I/O with mmap. */
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
#define PS_FUSE_KNOWS_PASSTHROUGH 1
#else
#define PS_FUSE_KNOWS_PASSTHROUGH 0
#endif

struct ps_handshake {
	/* set before install: */
	bool want_passthrough;
	unsigned stacked; /* how many file systems are stacked below the cache directory: 0 or 1 */
	/* what the kernel agreed to, once the mount answers: */
	_Atomic bool passthrough, direct_mmap;
	_Atomic bool parallel_dirops; /* lookups in one folder at once; offered */
	_Atomic uint64_t init_unique; /* of the INIT being answered; 0 before and after */
};

/* Call after fuse_session_mount(). -ENOTSUP: this libfuse cannot be looked over the shoulder, and nothing
 * will be agreed; the mount works without. */
int ps_handshake_install(struct ps_handshake *hs, struct fuse_session *session);

/* For the init callback. */
void ps_handshake_init_op(struct ps_handshake *hs, struct fuse_conn_info *conn);

#endif
