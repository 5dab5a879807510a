/* Kernel passthrough: reads of a complete shard go from the kernel straight to the data file, and the daemon
 * is out of the way.
 *
 * libfuse before 3.17 does not know it, so the kernel's ABI (linux/fuse.h, protocol 7.40) is spoken here: the
 * reply to INIT announces FUSE_PASSTHROUGH with a stack depth, an ioctl on the session's descriptor turns a
 * data file into a backing id, and OPEN is answered with that id. It needs Linux 6.9, CAP_SYS_ADMIN in the
 * initial user namespace, and a cache directory that is not on a file system stacked too deep.
 *
 * Ownership: part of a ps_fs; libfuse hands the ps_fs to our I/O functions.
 * Threads: install before the loop; the rest from any. Locks: none. Blocks: never on disk or network.
 * Errors: -errno; a refusal for good turns passthrough off and is remembered as the reason. */
#ifndef PS_PASSTHROUGH_H
#define PS_PASSTHROUGH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fuse_api.h"

struct ps_passthrough {
	int dev_fd;            /* the session's; borrowed */
	unsigned stack_depth;  /* announced */
	const char *cache_dir; /* borrowed; probed once the kernel has agreed */
	bool wanted;
	_Atomic uint64_t init_unique; /* of the INIT being answered; 0 before and after */
	_Atomic bool offered;
	_Atomic bool active;
	_Atomic(const char *) reason;   /* why not active; a constant text */
	_Atomic uint64_t nopens, nopen; /* handles ever and now */
};

/* Takes over the session's I/O; call after fuse_session_mount(). With wanted false (-o passthrough=no)
 * nothing is announced. -ENOTSUP: this libfuse cannot be looked over the shoulder; the mount works without.
 */
int ps_passthrough_install(
        struct ps_passthrough *pt, struct fuse_session *session, const char *cache_dir, bool wanted);

/* Tries a backing id once and says so in the log; call when the mount answers. */
void ps_passthrough_probe(struct ps_passthrough *pt);

bool ps_passthrough_active(const struct ps_passthrough *pt);
/* "" while active. */
const char *ps_passthrough_reason(const struct ps_passthrough *pt);

/* A backing id (> 0) for the file open as fd, or -errno. The kernel keeps its own reference to the file. */
int ps_passthrough_backing_open(struct ps_passthrough *pt, int fd);
void ps_passthrough_backing_close(struct ps_passthrough *pt, int backing_id);

/* Answers OPEN; as fuse_reply_open(). */
int ps_passthrough_reply_open(fuse_req_t req, uint64_t fh, int backing_id);

/* libfuse's I/O functions get the session's user data; this tells where our part of it is. */
struct ps_passthrough *ps_passthrough_of(void *userdata);

#endif
