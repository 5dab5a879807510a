/* The features that the INIT exchange with the kernel agrees on beyond those of libfuse 3.14: passthrough,
 * shared mappings of files that are open for direct I/O, and parallel lookups in one folder.
 *
 * libfuse >= 3.17 has the first two in its own API. Under an older libfuse we replace its I/O functions:
 * these read the kernel's offer and add the flags to the answer as both pass through.
 *
 * Ownership: part of a ps_fs. libfuse passes the session's user data, which begins with a ps_handshake, to
 * our I/O functions. Threads: install before the loop; the rest from any. Locks: none. Blocks: never. */
#ifndef PS_FUSE_HANDSHAKE_H
#define PS_FUSE_HANDSHAKE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

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
	unsigned stacked; /* stacked file systems below the cache directory: 0 or 1 */
	/* what the kernel agreed to, once the mount answers: */
	_Atomic bool passthrough, direct_mmap;
	_Atomic bool parallel_dirops; /* parallel lookups in one folder, as the kernel offers */
	_Atomic uint64_t init_unique; /* of the INIT being answered; 0 before and after */
};

/* Call after fuse_session_mount(). -ENOTSUP: this libfuse takes no custom I/O functions; the mount works,
 * but without these features. */
int ps_handshake_install(struct ps_handshake *hs, struct fuse_session *session);

/* For the init callback. */
void ps_handshake_init_op(struct ps_handshake *hs, struct fuse_conn_info *conn);

#endif
