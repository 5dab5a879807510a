/* The daemon of a cache directory: one cache, any number of mounts.
 *
 *   main      starts with its own mount, accepts clients, receives signals; ends when neither mounts nor clients are left
 *   mount     a thread of each mount, its own or a client's: attach, mount, serve, let go
 *   client    a process that has connected to the control socket: `mount` (control_client.c), `status`, `umount`
 *
 *      client                          daemon
 *        │ do=mount, options, sources    │
 *        ├──────────────────────────────▶│ attaches the datasets, which takes what it takes
 *        │ do=prepared, device, warning  │ (a client that goes away meanwhile calls that off)
 *        │◀──────────────────────────────┤
 *        │ mounts, in its own namespace  │
 *        │ do=mounted, mount + the descriptor
 *        ├──────────────────────────────▶│ starts the session
 *        │ do=serving                    │
 *        │◀──────────────────────────────┤
 *        │ stat of the mount             │
 *        │ do=answers                    │
 *        ├──────────────────────────────▶│ from here on the mount lives without its client
 *        │ do=ended, when it is gone     │
 *        │◀──────────────────────────────┤
 *
 * do=own in place of mount comes with the socket of an owner, and without a mountpoint. Answered do=joined,
 * there is such a mount already, which the owner has joined. Else do=where is answered by do=here,
 * mountpoint, and it goes on as above.
 *
 * Any step may be answered do=error with a text. A client that is gone before "answers" leaves nothing.
 *
 * Threads: run is called from the main thread, before there are others; it gets the signals: SIGTERM and
 * SIGINT detach all mounts and end all sessions, open files or not; SIGHUP opens the log again.
 * Locks: daemon.lock, over lists only. Errors: -errno and a text. */
#ifndef PS_DAEMON_DAEMON_PRIVATE_H
#define PS_DAEMON_DAEMON_PRIVATE_H

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "base/list.h"
#include "daemon/daemon.h"
#include "fuse/fuse.h"

/* The clients' requests and the answers to them. */
#define PS_DO "do"
#define PS_WARNED "warned" /* what a client's own log would say, if it had one */

/* A group of threads ------------------------------------------------------------------------------------- */

/* Detached threads whose end can be awaited, all at once. A thread that has announced its end still frees
 * what belongs to it; without the wait, an exit could take away what it needs for that.
 *
 * Each joins the one that went before it, and the last is joined by ps_thread_group_join().
 *
 * Ownership: in the caller's memory. Threads: any; a lock of its own, a leaf. Errors: -errno. */
struct ps_thread_group {
	pthread_mutex_t lock; /* over all below */
	unsigned n;           /* that have not gone */
	bool any_gone;
	pthread_t gone; /* the last one that went, which is not joined yet */
};

void ps_thread_group_init(struct ps_thread_group *threads);
void ps_thread_group_fini(struct ps_thread_group *threads);
/* Runs fn(arg), which calls ps_thread_group_go() last. Blocks: no. */
int ps_thread_group_start(struct ps_thread_group *threads, void *(*fn)(void *), void *arg) PS_MUST_USE;
/* The calling thread goes; `leaves` is called once it counts no more. Blocks until the one that went before
 * it has ended. */
void ps_thread_group_go(struct ps_thread_group *threads, void (*leaves)(void *arg), void *arg);
unsigned ps_thread_group_count(struct ps_thread_group *threads);
/* None counts any more: blocks until the last one has ended. */
void ps_thread_group_join(struct ps_thread_group *threads);

/* The control socket ------------------------------------------------------------------------------------- */

/* The control socket of a cache directory: how other processes find the daemon that serves it.
 *
 * DIR/control, mode 0600 in a folder that is 0700. The daemon binds it once it holds the lock of the cache,
 * so a socket without one is a dead daemon's. Both ends look whom they talk to: only the same user and root
 * are let in, and only they are sent credentials. Paths longer than a socket's name may be are no obstacle.
 *
 * Threads: any. Blocks: never for long. Errors: -errno and a text. */
/* Takes the place of a dead daemon's socket. The caller holds the lock of the cache. */
int ps_control_listen(const char *cache_dir, int *ret_fd, struct ps_error *err) PS_MUST_USE;
void ps_control_remove(const char *cache_dir);

/* -ENOENT: no process listens there. -EACCES: it is another user's. */
int ps_control_connect(const char *cache_dir, int *ret_fd, pid_t *ret_pid, struct ps_error *err) PS_MUST_USE;

/* Is the process at the other end root's or our own user's? *ret_peer may be NULL. */
bool ps_control_trusts(int sock, struct ucred *ret_peer);

/* Messages over the control socket: lists of names and values, and at most one descriptor with each.
 *
 *   8 bytes "penstock" | protocol, 4 bytes | n, 4 bytes | n bytes: NAME\0 VALUE\0 NAME\0 VALUE\0 ...
 *
 * The numbers are the machine's own: both ends are on it. The first 16 bytes never change; the protocol's
 * number decides what the rest means. Any byte but NUL may stand in a value: paths and headers are no text in
 * any code.
 *
 * Ownership: a message and its strings belong to the caller (ps_given_fini()); it may hold secrets. Threads:
 * any.
 * Blocks: receive for at most timeout_ms (-1: no limit), send for at most PS_CONTROL_SEND_MS.
 * Errors: -EPIPE the other end is gone; -ETIMEDOUT; -EPROTO not of this form, or too long; -EPROTONOSUPPORT
 * another protocol, its number in *ret_protocol. */
#define PS_CONTROL_PROTOCOL 2
#define PS_CONTROL_MAX_NBYTES (8u << 20)
#define PS_CONTROL_MAX_PAIRS 65536
#define PS_CONTROL_SEND_MS 10000

/* fd -1: none. */
int ps_control_send(int sock, const struct ps_given *message, int fd) PS_MUST_USE;
/* *ret_fd: the descriptor that came with it, or -1; NULL: none is taken. */
int ps_control_receive(
        int sock, int timeout_ms, struct ps_given *ret, int *ret_fd, uint32_t *ret_protocol) PS_MUST_USE;

/* The body of a message; -EPROTO, -ENOMEM. */
int ps_control_decode(const char *bytes, size_t nbytes, struct ps_given *ret) PS_MUST_USE;

/* The first value of this name; NULL: there is none. */
const char *ps_control_get(const struct ps_given *message, const char *name);

/* Mounting ----------------------------------------------------------------------------------------------- */

/* The mount itself: from a folder to a descriptor that speaks FUSE, and back.
 *
 * mount(2) where that is allowed, else fusermount3. Knows nothing of libfuse's sessions.
 * Threads: any. Blocks: on the kernel and on fusermount3, never on a mount's daemon.
 * Errors: -errno and a text that says what to do. */
struct ps_mountfd_options {
	const char *source; /* shown as the mount's device; no secrets */
	const char *mountpoint;
	bool allow_other;
};

/* Read-only, nosuid, nodev, default_permissions, type fuse.penstock. The caller closes the descriptor; the
 * mount goes when it is unmounted. */
int ps_mountfd_mount(const struct ps_mountfd_options *options, int *ret_fd, struct ps_error *err) PS_MUST_USE;

/* Detaches what is mounted there if it is this mount; another one that is there meanwhile stays (-ENOENT).
 * Open files stay open. */
int ps_mountfd_detach(const char *mountpoint, struct ps_mount_id id);

/* One mount ---------------------------------------------------------------------------------------------- */

/* One mount of a daemon: its request, its datasets, its session.
 *
 *   new       options understood, datasets attached (this is what takes time)
 *   start     serves a descriptor
 *   finish    the session is over, the datasets are let go
 *   free      what was still to be answered has been
 *
 * Ownership: the daemon's. Threads: the mount's own; ps_mount_json() from any. Locks: none of its own.
 * Errors: -errno and a text. */
struct ps_mount {
	struct ps_list link; /* the daemon's, once it is started */
	struct ps_mount_request request;
	struct ps_mount_options *options; /* of each source; those of the first are the mount's */
	struct ps_fs_source *sources;
	size_t nsources;
	struct ps_given warnings; /* for who asked for the mount */
	char *device;             /* what is shown as the mount's device: sources without secrets */
	struct ps_fs *fs;
	struct ps_session session;
	struct ps_mount_id id;    /* once started; all 0: unknown */
	bool here;                /* in our own mount namespace: we may detach it */
	struct ps_owned *owned;   /* NULL: it has no owners, and stays until it is unmounted; daemon.lock */
	struct ps_daemon *daemon; /* once started */
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

/* The daemon --------------------------------------------------------------------------------------------- */

#define PS_CLIENTS_MAX 256 /* processes that are connected at once; more are refused */

struct ps_daemon {
	const struct ps_mount_options *options; /* of the first mount: cache and log are as they say */
	const struct ps_given *given;
	struct ps_mount_request *first;
	struct ps_daemonize *daemonize;
	struct ps_cache *cache;
	int wake_fd, listen_fd, owners_fd;
	int first_owner; /* of the first mount: main thread and its own, until it is there; -1: none */
	_Atomic bool first_cancelled;
	_Atomic bool leaked; /* a mount could not be freed, so the cache cannot be closed */

	pthread_mutex_t lock;  /* what follows; mounts on the list are not freed while it is held */
	pthread_cond_t ended;  /* a mount has, or an owned one is there */
	struct ps_list mounts; /* those that are served, in order */
	struct ps_list owned;  /* mounts that processes may join: owners.c */
	uint64_t owner_id;     /* of the newest owner */
	struct ps_list clients;
	unsigned nclients;
	bool stopping, reported; /* reported: the parent knows the outcome, from the first mount's thread */
	int exit_code;

	struct ps_thread_group threads; /* the first mount's, and each client's */
};

/* mount.c */
/* All mounts, that one first; NULL: in their order. */
json_t *ps_daemon_mounts(struct ps_daemon *daemon, struct ps_mount *first);
/* Serves a descriptor, which it takes over. */
int ps_daemon_start_mount(struct ps_daemon *daemon, struct ps_mount *mount, int fd, struct ps_mount_id id,
        struct ps_error *err) PS_MUST_USE;
/* Waits until the mount's session is over, if it was started, and frees it. */
void ps_daemon_end_mount(struct ps_daemon *daemon, struct ps_mount *mount);
/* Waits until nothing is served on this device, and returns how many mounts there are then. */
unsigned ps_daemon_await_end(struct ps_daemon *daemon, dev_t dev);
/* A thread that the daemon waits for: it calls ps_daemon_thread_ends() last. */
int ps_daemon_thread(struct ps_daemon *daemon, void *(*fn)(void *), void *arg) PS_MUST_USE;
void ps_daemon_thread_ends(struct ps_daemon *daemon);
/* The main thread looks at everything again. */
void ps_daemon_wake(struct ps_daemon *daemon);

/* owners.c: mounts that last as long as their owners, sockets whose other ends processes have */
struct ps_owned;
/* Joins the mount that such a request has made, which takes *owner over: *ret_mountpoint, the caller's to
 * free. Or there is none: *ret_new, and the caller makes it, then calls serves or failed. Blocks while
 * another thread makes it, or *cancelled. */
int ps_owned_enter(struct ps_daemon *daemon, const struct ps_mount_request *request, int *owner,
        const _Atomic bool *cancelled, struct ps_owned **ret_new, char **ret_mountpoint,
        struct ps_error *err) PS_MUST_USE;
/* Those that wait for it fail, too, with this error, or (called_off: its process ended) try by themselves.
 * owned may be NULL. */
void ps_owned_failed(
        struct ps_daemon *daemon, struct ps_owned *owned, const struct ps_error *err, bool called_off);
/* The mount answers; takes *owner over. On failure it is as failed. */
int ps_owned_serves(struct ps_daemon *daemon, struct ps_owned *owned, struct ps_mount *mount, int *owner,
        struct ps_error *err) PS_MUST_USE;
/* Owners that have left, by the main thread: mounts without one are unmounted. Blocks on fusermount3, where
 * that is needed. */
void ps_owners_left(struct ps_daemon *daemon);
/* The two below need the daemon's lock held. ------------------------------------------------------------- */
/* The mount has ended: closes its owners' sockets. */
void ps_owned_end(struct ps_daemon *daemon, struct ps_mount *mount);
size_t ps_owned_count(const struct ps_mount *mount);
/* -------------------------------------------------------------------------------------------------- */

/* control_server.c */
void ps_client_accept(struct ps_daemon *daemon);
/* The two below need the daemon's lock held. ------------------------------------------------------------- */
/* Ends what clients wait for. */
void ps_clients_cancel(struct ps_daemon *daemon);
/* Fills p with those whose going away matters now; returns how many. */
size_t ps_clients_poll(struct ps_daemon *daemon, struct pollfd p[static 2 * PS_CLIENTS_MAX]);
/* -------------------------------------------------------------------------------------------------- */
void ps_clients_gone(struct ps_daemon *daemon, const struct pollfd *p, size_t n);

#endif
