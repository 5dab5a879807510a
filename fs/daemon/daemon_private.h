/* The daemon inside: what daemon.c and control_server.c share. Callers outside see daemon.h only. */
#ifndef PS_DAEMON_DAEMON_PRIVATE_H
#define PS_DAEMON_DAEMON_PRIVATE_H

#include <poll.h>
#include <sys/socket.h>

#include "daemon/daemon.h"
#include "daemon/mount.h"
#include "daemon/thread_group.h"

#define PS_GUESTS_MAX 256 /* processes that are connected at once; more are refused */

struct ps_daemon {
	const struct ps_mount_options *options; /* of the first mount: cache and log are as they say */
	const struct ps_given *given;
	struct ps_mount_request *first;
	struct ps_launch *launch;
	struct ps_cache *cache;
	int wake_fd, listen_fd;
	_Atomic bool first_cancelled;
	_Atomic bool leaked; /* a mount could not be freed, so the cache cannot be closed */

	pthread_mutex_t lock;  /* what follows; mounts on the list are not freed while it is held */
	pthread_cond_t ended;  /* a mount has */
	struct ps_list mounts; /* those that are served, in order */
	struct ps_list guests;
	unsigned nguests;
	bool stopping, told; /* told: the launch has been, by the first mount's thread */
	int exit_code;

	struct ps_threads threads; /* the first mount's, and each guest's */
};

/* daemon.c */
/* All mounts, that one first; NULL: in their order. */
json_t *ps_daemon_mounts(struct ps_daemon *daemon, struct ps_mount *first);
/* Serves a descriptor, which it takes over. */
int ps_daemon_start_mount(
        struct ps_daemon *daemon, struct ps_mount *mount, int fd, struct ps_mount_id id, struct ps_error *err) PS_MUST_USE;
/* Waits until the mount's session is over, if it was started, and frees it. */
void ps_daemon_end_mount(struct ps_daemon *daemon, struct ps_mount *mount);
/* Waits until nothing is served on this device, and returns how many mounts there are then. */
unsigned ps_daemon_await_end(struct ps_daemon *daemon, dev_t dev);
/* A thread that the daemon waits for: it calls ps_daemon_thread_ends() last. */
int ps_daemon_thread(struct ps_daemon *daemon, void *(*fn)(void *), void *arg) PS_MUST_USE;
void ps_daemon_thread_ends(struct ps_daemon *daemon);

/* control_server.c */
void ps_guest_accept(struct ps_daemon *daemon);
/* The two below need the daemon's lock held. ----------------------------------------------------------- */
/* Ends what guests wait for. */
void ps_guests_cancel(struct ps_daemon *daemon);
/* Fills p with those whose going away matters now; returns how many. */
size_t ps_guests_poll(struct ps_daemon *daemon, struct pollfd p[static PS_GUESTS_MAX]);
/* ------------------------------------------------------------------------------------------------------ */
void ps_guests_gone(struct ps_daemon *daemon, const struct pollfd *p, size_t n);

#endif
