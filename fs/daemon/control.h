/* The control socket of a cache directory: how other processes find the daemon that serves it.
 *
 * DIR/control, mode 0600 in a folder that is 0700. The daemon binds it once it holds the lock of the cache, so a
 * socket without one is a dead daemon's. Both ends look whom they talk to: only the same user and root are let in,
 * and only they are told credentials. Paths longer than a socket's name may be are no obstacle.
 *
 * Threads: any. Blocks: never for long. Errors: -errno and a text. */
#ifndef PS_DAEMON_CONTROL_H
#define PS_DAEMON_CONTROL_H

#include <sys/socket.h>
#include <sys/types.h>

#include "base/error.h"

/* Takes the place of a dead daemon's socket. The caller holds the lock of the cache. */
int ps_control_listen(const char *cache_dir, int *ret_fd, struct ps_error *err) PS_MUST_USE;
void ps_control_remove(const char *cache_dir);

/* -ENOENT: nobody listens there. -EACCES: it is another user's. */
int ps_control_connect(const char *cache_dir, int *ret_fd, pid_t *ret_pid, struct ps_error *err) PS_MUST_USE;

/* Is whoever is at the other end root or our own user? *ret_peer may be NULL. */
bool ps_control_trusts(int sock, struct ucred *ret_peer);

#endif
