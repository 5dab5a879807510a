/* The daemon of a cache directory: one cache, any number of mounts.
 *
 *   main      starts with its own mount, accepts guests, hears signals; ends when neither mounts nor guests are left
 *   mount     a thread of each mount, its own or a guest's: attach, mount, serve, let go
 *   guest     a process that has connected to the control socket: `mount` (control_client.h), `status`, `umount`
 *
 *      guest                           daemon
 *        │ do=mount, options, sources    │
 *        ├──────────────────────────────▶│ attaches the datasets, which takes what it takes
 *        │ do=prepared, device, warning  │ (a guest that goes away meanwhile calls that off)
 *        │◀──────────────────────────────┤
 *        │ mounts, in its own namespace  │
 *        │ do=mounted, mount + the descriptor
 *        ├──────────────────────────────▶│ starts the session
 *        │ do=serving                    │
 *        │◀──────────────────────────────┤
 *        │ stat of the mount             │
 *        │ do=answers                    │
 *        ├──────────────────────────────▶│ from here on the mount lives without its guest
 *        │ do=ended, when it is gone     │
 *        │◀──────────────────────────────┤
 *
 * Any step may be answered do=error with a text. A guest that is gone before "answers" leaves nothing.
 *
 * Threads: run is called from the main thread, before there are others; it gets the signals: SIGTERM and SIGINT
 * detach all mounts and end all sessions, open files or not; SIGHUP opens the log anew.
 * Locks: daemon.lock, over lists only. Errors: -errno and a text. */
#ifndef PS_DAEMON_DAEMON_H
#define PS_DAEMON_DAEMON_H

#include "daemon/daemonize.h"
#include "daemon/request.h"

/* The guests' requests and the answers to them. */
#define PS_DO "do"
#define PS_WARNED "warned" /* what a guest's own log would say, if it had one */

struct ps_daemon_options {
	const struct ps_mount_options *options; /* cache_dir is set; log and cache are as it says */
	struct ps_mount_request *request;       /* the first mount's; taken over */
	struct ps_launch *launch;               /* is told of the first mount's success or failure */
};

/* Serves until the last mount is gone; then the cache is closed. Returns an exit code: of the first mount's
 * failure, too, though others may have been served meanwhile. -EBUSY: another process has the cache (nothing is
 * taken over, nobody is told); other failures to open it are told. */
int ps_daemon_run(const struct ps_daemon_options *options, int *ret_exit, struct ps_error *err) PS_MUST_USE;

#endif
