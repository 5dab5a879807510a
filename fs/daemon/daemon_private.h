/* The daemon of a cache directory: one cache, any number of mounts.
 *
 *   main      one thread: accepts clients, handles signals; ends with the last mount and client
 *   mount     one thread each, for the first mount, a resumed or a client's: attach, mount, serve, release
 *   client    a process connected to the control socket: `mount` (control_client.c), `status`, `umount`
 *
 *      client                          daemon
 *        │ do=mount, options, sources    │
 *        ├──────────────────────────────▶│ attaches the datasets, which may take long
 *        │ do=prepared, device, warning, then=kept
 *        │◀──────────────────────────────┤ (cancelled if the client ends meanwhile)
 *        │ mounts, in its own namespace  │
 *        │ do=mounted, mount + the descriptor
 *        ├──────────────────────────────▶│ starts the session
 *        │ do=serving                    │
 *        │◀──────────────────────────────┤
 *        │ stat of the mount             │
 *        │ do=answers, then=kept         │
 *        ├──────────────────────────────▶│ from here on the mount outlives its client
 *        │ do=kept                       │ and from here on its daemon
 *        │◀──────────────────────────────┤
 *        │ do=ended, after the unmount   │
 *        │◀──────────────────────────────┤
 *
 * do=own in place of do=mount requests a mount that lasts as long as its owners (owners.c): it carries an
 * owner's socket, and no mountpoint. If an equal mount exists, the owner joins it, and the daemon answers
 * do=joined. Otherwise the daemon sends do=where, the client answers do=here with a mountpoint, and the
 * exchange continues as above.
 *
 * Any step may be answered do=error with a text. If the client ends before "answers", its mount is ended.
 *
 * Threads: ps_daemon_run() is called from the main thread, before any other is started. The main thread
 * handles the signals: SIGTERM and SIGINT detach all mounts and end all sessions, even if files are open;
 * SIGHUP reopens the log. Locks: daemon.lock, which guards lists only. Errors: -errno and a text. */
#ifndef PS_DAEMON_DAEMON_PRIVATE_H
#define PS_DAEMON_DAEMON_PRIVATE_H

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "base/list.h"
#include "base/strbuf.h"
#include "daemon/daemon.h"
#include "fuse/fuse.h"

/* The clients' requests and the answers to them. */
#define PS_DO "do"
#define PS_WARNED "warned" /* a warning that the client cannot log itself */
#define PS_THEN "then"     /* the message after "answers", which both sides must know: "kept" */

/* A group of threads ------------------------------------------------------------------------------------- */

/* A group of threads that can be joined together. ps_thread_group_leave() is the last call of a thread's
 * function, but afterwards the C library still runs the thread's exit code, which frees memory. So the
 * process must not call exit() before all threads are joined.
 *
 * Each thread joins the one that ended before it; ps_thread_group_join() joins the last.
 *
 * Ownership: in the caller's memory. Threads: any. Locks: one of its own, a leaf. Errors: -errno. */
struct ps_thread_group {
	pthread_mutex_t lock; /* covers the members below */
	unsigned n;           /* threads that have not called ps_thread_group_leave() */
	bool any_gone;
	pthread_t gone; /* the last thread that ended, not joined yet; set if any_gone */
};

void ps_thread_group_init(struct ps_thread_group *threads);
void ps_thread_group_fini(struct ps_thread_group *threads);
/* Runs fn(arg), which calls ps_thread_group_leave() last. Blocks: no. */
int ps_thread_group_start(struct ps_thread_group *threads, void *(*fn)(void *), void *arg) PS_MUST_USE;
/* Removes the calling thread from the group's count, and then calls leaves(arg). Blocks until the thread
 * that ended before it has been joined. */
void ps_thread_group_leave(struct ps_thread_group *threads, void (*leaves)(void *arg), void *arg);
unsigned ps_thread_group_count(struct ps_thread_group *threads);
/* Call when the count is 0. Blocks until the last thread has ended. */
void ps_thread_group_join(struct ps_thread_group *threads);

/* The control socket ------------------------------------------------------------------------------------- */

/* The control socket of a cache directory: how other processes find the daemon that serves it.
 *
 * DIR/control, mode 0600 in a folder that is 0700. The daemon binds it once it holds the lock of the cache,
 * so a socket whose lock is free is a dead daemon's. Both ends check the peer: only the same user and root
 * may connect, and only they are sent credentials. Paths may be longer than the name of a socket can be.
 *
 * Threads: any. Blocks: never for long. Errors: -errno and a text. */
/* A new socket, or -1 and errno: root's daemon in its sandbox can make none. */
int ps_control_socket(void);
/* Binds the socket, replacing a dead daemon's. The caller holds the lock of the cache. */
int ps_control_listen(const char *cache_dir, int fd, struct ps_error *err) PS_MUST_USE;
void ps_control_remove(const char *cache_dir);

/* -ENOENT: no process listens. -EACCES: the daemon is another user's. */
int ps_control_connect(const char *cache_dir, int *ret_fd, pid_t *ret_pid, struct ps_error *err) PS_MUST_USE;

/* True if the peer process is root's or our own user's. ret_peer may be NULL. */
bool ps_control_trusts(int sock, struct ucred *ret_peer);

/* Descriptors that go with a message of a socket: of ours, at most two. */
#define PS_FDS_MAX 2
union ps_fds {
	char buf[CMSG_SPACE(PS_FDS_MAX * sizeof(int))];
	struct cmsghdr align;
};
void ps_fds_put(struct msghdr *msg, union ps_fds *room, const int *fds, size_t n);
/* Takes up to `max` descriptors out of a message that was received with a union ps_fds, and closes the
 * others. Returns how many. */
size_t ps_fds_take(struct msghdr *msg, int *ret, size_t max);

/* Messages over the control socket: lists of names and values, and at most one descriptor with each.
 *
 *   8 bytes "penstock" | protocol, 4 bytes | n, 4 bytes | n bytes: NAME\0 VALUE\0 NAME\0 VALUE\0 ...
 *
 * The numbers are the machine's own: both ends are on it. The first 16 bytes never change; the protocol's
 * number decides what the rest means. A value may contain any byte but NUL: paths and headers have no
 * defined encoding.
 *
 * Ownership: a message and its strings belong to the caller (ps_given_fini()); it may hold secrets.
 * Threads: any. Blocks: receive for at most timeout_ms (-1: no limit), send for at most PS_CONTROL_SEND_MS.
 * Errors: -EPIPE the peer closed the socket; -ETIMEDOUT; -EPROTO malformed or too long; -EPROTONOSUPPORT
 * another protocol, its number in *ret_protocol. */
#define PS_CONTROL_PROTOCOL 2
#define PS_CONTROL_MAX_NBYTES (8u << 20)
#define PS_CONTROL_MAX_PAIRS 65536
#define PS_CONTROL_SEND_MS 10000

/* fd -1: none. */
int ps_control_send(int sock, const struct ps_given *message, int fd) PS_MUST_USE;
/* A message of `word`, and of one value unless name is NULL. */
int ps_control_say(int sock, const char *word, const char *name, const char *value, int fd) PS_MUST_USE;
/* *ret_fd: the descriptor that came with the message, or -1; ret_fd NULL: a descriptor is closed. */
int ps_control_receive(
        int sock, int timeout_ms, struct ps_given *ret, int *ret_fd, uint32_t *ret_protocol) PS_MUST_USE;

/* Appends the body of a message; -EPROTO: too long. */
int ps_control_encode(const struct ps_given *message, struct ps_strbuf *ret) PS_MUST_USE;
/* The body of a message; -EPROTO, -ENOMEM. */
int ps_control_decode(const char *bytes, size_t nbytes, struct ps_given *ret) PS_MUST_USE;

/* The first value with this name, or NULL. */
const char *ps_control_get(const struct ps_given *message, const char *name);

/* Mounting ----------------------------------------------------------------------------------------------- */

/* Mounts a folder, which gives a FUSE descriptor, and detaches it.
 *
 * Uses mount(2) where that is allowed, else fusermount3. Does not use libfuse's sessions. Threads: any.
 * Blocks: on the kernel and on fusermount3, never on a mount's daemon. Errors: -errno and a text with
 * advice. */
struct ps_mountfd_options {
	const char *source; /* shown as the mount's device; no secrets */
	const char *mountpoint;
	bool allow_other;
	unsigned long flags;  /* further ones of mount(2) */
	const char *security; /* labels of SELinux: context="..."; NULL: none */
};

/* Read-only, nosuid, nodev, default_permissions, type fuse.penstock. The caller closes the descriptor; that
 * does not unmount. */
int ps_mountfd_mount(const struct ps_mountfd_options *options, int *ret_fd, struct ps_error *err) PS_MUST_USE;

/* Detaches the mount `id`. If another mount is there meanwhile, it stays (-ENOENT). Open files stay
 * open. */
int ps_mountfd_detach(const char *mountpoint, struct ps_mount_id id);

/* True if the descriptor is one of /dev/fuse. */
bool ps_mountfd_is_fuse(int fd);
/* True if the descriptor's FUSE connection is there and has not ended. */
bool ps_mountfd_is_connected(int fd);
/* False if the mount with this device number is another connection's than the descriptor's. Linux 6.17 and later
 * report that; before, and for a descriptor without a connection, it is always true. */
bool ps_mountfd_may_be(int fd, dev_t dev);

/* One mount ---------------------------------------------------------------------------------------------- */

/* One mount of a daemon: its request, its datasets, its session. ps_mount_new() attaches the datasets, which is
 * what takes time; ps_daemon_start_mount() serves a descriptor; ps_daemon_end_mount() waits for the end.
 *
 * Ownership: the daemon's. Threads: the mount's own. Locks: none of its own. Errors: -errno and a text. */
struct ps_mount {
	struct ps_list link; /* the daemon's, once it is started */
	struct ps_mount_request request;
	struct ps_mount_options *options; /* one for each source; the first one's are the mount's */
	struct ps_fs_source *sources;
	size_t nsources;
	struct ps_given warnings; /* for the process that requested the mount */
	char *device;             /* shown as the mount's device: the sources without secrets */
	struct ps_fs *fs;
	struct ps_session session;
	struct ps_mount_id id;    /* once started; all 0: unknown */
	bool here;                /* in the daemon's own mount namespace, so the daemon may detach it */
	bool ending;              /* its session is to end; daemon.lock covers this */
	uint64_t kept;            /* its number at the keeper; 0: not kept; daemon.lock covers this */
	bool unkept;              /* the keeper must yet be asked to forget it; daemon.lock covers this */
	struct ps_owned *owned;   /* NULL: no owners, stays until it is unmounted; daemon.lock covers this */
	struct ps_daemon *daemon; /* once started */
};

/* Takes the request over, also on failure. Blocks until all sources are listed, or *cancelled. state_fd: the
 * state that an earlier daemon of this mount has left (fuse/mount_state.h); taken over, also on failure; the
 * stored listings are then used at once. -1: a new mount. */
int ps_mount_new(struct ps_cache *cache, struct ps_mount_request *request, int state_fd,
        const _Atomic bool *cancelled, struct ps_mount **ret, struct ps_error *err) PS_MUST_USE;

/* What it takes to detach a mount without the daemon's lock, since detaching may block. */
struct ps_mounted {
	char *mountpoint; /* NULL: the mount is in another mount namespace */
	struct ps_mount_id id;
	int fuse_fd; /* a copy */
};
/* The mount was started, and the daemon's lock is held. */
struct ps_mounted ps_mounted_of(const struct ps_mount *mount);
void ps_mounted_fini(struct ps_mounted *mounted);

/* The daemon --------------------------------------------------------------------------------------------- */

#define PS_CLIENTS_MAX 256 /* processes that are connected at once; more are refused */

struct ps_daemon {
	const struct ps_mount_options *options; /* of the first mount; they also decide cache and log */
	const struct ps_given *given;
	struct ps_mount_request *first;
	struct ps_daemonize *daemonize;
	struct ps_cache *cache;
	int wake_fd, listen_fd, owners_fd;
	int keeper;                      /* the socket to the keeper; -1: none */
	pthread_mutex_t keeper_lock;     /* covers `keeper` and what is sent there */
	bool keeper_stuck;               /* the keeper does not read; keeper_lock covers this */
	struct ps_keeper_items *resumed; /* received from the keeper; NULL: begins with its first mount */
	struct ps_helper *helper;        /* does what needs privileges; NULL: this process does it */
	int lock_fd;                     /* the lock of the cache, until the cache is open */
	pthread_t progress;              /* the thread that sends PS_KEEPER_PROGRESS; 0: none */
	_Atomic bool leaving; /* hands its mounts over to the next daemon and ends; set with the lock held */
	/* the first mount's owner, until the mount has it; used by the main thread and the mount's; -1:
	 * none */
	int first_owner;
	_Atomic bool first_cancelled;
	_Atomic bool leaked; /* a mount could not be freed, so the cache cannot be closed */

	/* covers the members below; mounts on the list are not freed while it is held */
	pthread_mutex_t lock;
	/* a mount has ended, one with owners serves or failed, or a request was cancelled */
	pthread_cond_t ended;
	struct ps_list mounts; /* the mounts that are served, oldest first */
	struct ps_list owned;  /* mounts that processes may join: owners.c */
	uint64_t owner_id;     /* of the newest owner */
	struct ps_list clients;
	unsigned nclients;
	unsigned nmounting;    /* clients whose mounts are not yet served, or not yet given to the keeper */
	_Atomic bool resuming; /* there are mounts of an earlier daemon that are not served yet */
	_Atomic unsigned nresuming; /* the number of these mounts */
	uint64_t kept_number;       /* the newest kept mount's number at the keeper */
	/* reported: the first mount's thread has reported the outcome to the parent */
	bool stopping, reported;
	int exit_code;

	struct ps_thread_group threads; /* the first mount's, each resumed mount's, and each client's */
};

/* mount.c */
/* Statistics of all mounts, `first` first; NULL: oldest first. */
json_t *ps_daemon_mounts(struct ps_daemon *daemon, struct ps_mount *first);
/* Starts the mount's session on fd, which is taken over. */
int ps_daemon_start_mount(struct ps_daemon *daemon, struct ps_mount *mount, int fd, struct ps_mount_id id,
        struct ps_error *err) PS_MUST_USE;
/* Waits until the mount's session is over, if it was started, and until all requests are answered, at most the
 * timeout of the cache. Detaches the datasets, and frees the mount. */
void ps_daemon_end_mount(struct ps_daemon *daemon, struct ps_mount *mount);
/* Waits until no mount has this device number. Returns the number of mounts that are left, plus 1 if the
 * daemon stays without mounts (--serve). */
unsigned ps_daemon_await_end(struct ps_daemon *daemon, dev_t dev);
/* Cancels the request that has this flag. The lock is held. */
void ps_daemon_cancel(struct ps_daemon *daemon, _Atomic bool *cancelled);
/* Starts a thread whose end the daemon awaits: fn calls ps_daemon_thread_ends() last. */
int ps_daemon_thread(struct ps_daemon *daemon, void *(*fn)(void *), void *arg) PS_MUST_USE;
void ps_daemon_thread_ends(struct ps_daemon *daemon);
/* Wakes the main thread, which checks everything again. */
void ps_daemon_wake(struct ps_daemon *daemon);

/* owners.c: mounts that last as long as their owners. An owner is a process (with its forks) that holds one
 * end of a socket; the daemon has the other end, and sees there when the process ends. `owner` is the
 * daemon's end. */
struct ps_owned;
/* If an equal request has made a mount: joins it, takes *owner over, sets *ret_mountpoint, which the caller
 * frees. Otherwise sets *ret_new; the caller then makes the mount and calls ps_owned_set_serving() or
 * ps_owned_failed(). Blocks while another thread makes the mount, until *cancelled. */
int ps_owned_enter(struct ps_daemon *daemon, const struct ps_mount_request *request, int *owner,
        const _Atomic bool *cancelled, struct ps_owned **ret_new, char **ret_mountpoint,
        struct ps_error *err) PS_MUST_USE;
/* The mount could not be made. Threads that wait for it fail with the same error, or (called_off: the
 * requesting process ended) make it themselves. owned may be NULL. */
void ps_owned_failed(
        struct ps_daemon *daemon, struct ps_owned *owned, const struct ps_error *err, bool called_off);
/* The mount answers; takes *owner over. On failure does what ps_owned_failed() does. */
int ps_owned_set_serving(struct ps_daemon *daemon, struct ps_owned *owned, struct ps_mount *mount, int *owner,
        struct ps_error *err) PS_MUST_USE;
/* Called by the main thread: removes owners whose sockets were closed, and unmounts mounts without owners.
 * May block on fusermount3. */
void ps_owners_remove_gone(struct ps_daemon *daemon);
/* The two below need the daemon's lock held. ------------------------------------------------------------- */
/* The mount has ended: closes its owners' sockets. */
void ps_owned_end(struct ps_daemon *daemon, struct ps_mount *mount);
size_t ps_owned_count(const struct ps_mount *mount);
/* -------------------------------------------------------------------------------------------------- */

/* Called with the daemon's lock held: gives all owners of a mount to the keeper. */
int ps_owned_keep(struct ps_daemon *daemon, const struct ps_mount *mount);
/* Gives a resumed mount its owners, with their ids at the keeper. Takes descriptors over, and sets these to
 * -1 in fds; the caller closes the others. */
int ps_owned_restore(struct ps_daemon *daemon, struct ps_mount *mount, int *fds, const uint64_t *ids,
        size_t n, struct ps_error *err) PS_MUST_USE;

/* The helper --------------------------------------------------------------------------------------------- */

/* helper.c: a process with privileges, which does what a daemon in its sandbox cannot do. Call
 * ps_helper_start() before any thread is started. With helper NULL this process does the work itself.
 * Threads: any. Blocks: for a backing id as long as the ioctl; else on the kernel and on fusermount3. All
 * calls fail if the helper was killed. */
struct ps_helper;
struct ps_backing_ops;
/* first: the mountpoint and allow_other of the only mount that ps_helper_mount() may make; NULL: none. cache_fd:
 * the cache directory (borrowed); the helper makes backing ids of files in it only. log_fd: of ps_log_relay_begin() (borrowed), or
 * -1; a process of the helper serves it. */
int ps_helper_start(const struct ps_mountfd_options *first, int cache_fd, int log_fd, struct ps_helper **ret,
        struct ps_error *err) PS_MUST_USE;
void ps_helper_free(struct ps_helper *helper);
/* As ps_mountfd_mount(). A helper uses only options->source, and takes the rest from `first`. */
int ps_helper_mount(struct ps_helper *helper, const struct ps_mountfd_options *options, int *ret_fd,
        struct ps_error *err) PS_MUST_USE;
/* As ps_mountfd_detach(). fuse_fd: the mount's, by which the helper sees that the mount is this daemon's; -1: it
 * is closed, and the mount has ended. */
int ps_helper_detach(struct ps_helper *helper, const char *mountpoint, struct ps_mount_id id, int fuse_fd);
int ps_helper_reopen_log(struct ps_helper *helper);
extern const struct ps_backing_ops ps_helper_backing; /* arg: the helper */

/* The keeper --------------------------------------------------------------------------------------------- */

/* The messages between the keeper (keeper.c) and its daemon (keeper_link.c), over a SOCK_SEQPACKET pair, each
 * with at most one descriptor. The keeper stores descriptors by mount, and sends them all to the next daemon.
 * It reads only the fields below, nothing from the descriptors. */
enum ps_keeper_kind {
	PS_KEEPER_LOCK = 1, /* the cache folder's lock: the daemon has the cache; the keeper answers DONE */
	PS_KEEPER_SETUP,    /* memfd: the options of the daemon; only from the keeper */
	/* of a mount, which is kept once SESSION has arrived */
	PS_KEEPER_REQUEST, /* memfd: struct ps_mount_request */
	PS_KEEPER_STATE,   /* memfd: fuse/mount_state.h */
	PS_KEEPER_CLIENT,  /* the socket of the process that waits for the mount's end */
	PS_KEEPER_OWNER,   /* the socket of an owner */
	PS_KEEPER_SESSION, /* the FUSE descriptor, with the mountpoint and mount id; refused if it is another */
	PS_KEEPER_DROP_OWNER,
	PS_KEEPER_DROP,     /* the mount has ended */
	PS_KEEPER_READY,    /* the first mount answers */
	PS_KEEPER_SERVING,  /* all mounts of the earlier daemon answer */
	PS_KEEPER_BUSY,     /* text: another daemon has the cache, or why the keeper refuses an upgrade */
	PS_KEEPER_UPGRADE,  /* a client whose program the next daemon is to run; answered by DONE or BUSY */
	PS_KEEPER_DONE,     /* from the keeper: all items were sent; or the answer to LOCK and UPGRADE */
	PS_KEEPER_PROGRESS, /* not SERVING yet, but closer to it than at the last message */
};
struct ps_keeper_message {
	uint32_t kind;
	uint32_t here; /* SESSION: the mount is in the keeper's mount namespace */
	uint64_t mount, owner;
	uint64_t starts; /* DONE: daemons before this one */
	struct ps_mount_id id;
	char text[4200]; /* SESSION: the mountpoint; only what is used is sent */
};
/* 0, -EPIPE, -EAGAIN (only with `dontwait`). fd -1: none. */
int ps_keeper_send(int sock, const struct ps_keeper_message *message, int fd, bool dontwait);
/* Waits for at most timeout_ms. *ret_fd: -1: none came. */
int ps_keeper_receive(int sock, int timeout_ms, struct ps_keeper_message *ret, int *ret_fd);

/* Sets how soon the kernel kills this process when memory runs out. */
void ps_oom_score_write(const char *score);

/* Writes the message, which holds secrets, to a memfd: it is never in a file. The caller closes the
 * descriptor. */
int ps_keeper_memfd(const struct ps_given *message);

struct ps_keeper_item {
	struct ps_keeper_message message;
	int fd;
	/* in the keeper, of SESSION: its device was a penstock mount of the keeper's namespace when it arrived */
	bool ours;
};
struct ps_keeper_items {
	struct ps_keeper_item **v;
	size_t n;
	uint64_t starts;
};

/* keeper_link.c. Without a keeper these functions do nothing. If the keeper has ended, the daemon goes on
 * alone. Threads: any. Blocks: if the keeper does not read, for a second, and then not again until it reads.
 * ready, serving and drop, which are called without the daemon's lock, try for 10 s. */
void ps_keeper_hold(struct ps_daemon *daemon);
void ps_keeper_ready(struct ps_daemon *daemon);
void ps_keeper_serving(struct ps_daemon *daemon);
void ps_keeper_progress(struct ps_daemon *daemon);
/* Call when the mount answers: from then on the mount outlives the daemon. client: the socket of a process
 * that waits for the mount's end, or -1. give_owners: ps_owned_keep(). */
void ps_keeper_keep(struct ps_daemon *daemon, struct ps_mount *mount, int client,
        int (*give_owners)(struct ps_daemon *daemon, const struct ps_mount *mount));
void ps_keeper_drop(struct ps_daemon *daemon, struct ps_mount *mount);
int ps_keeper_give_owner(struct ps_daemon *daemon, const struct ps_mount *mount, uint64_t owner, int fd);
/* Gives the keeper a new owner of a mount, if that is kept. If this fails, the mount is no longer kept: a
 * kept mount has all its owners. The daemon's lock is held. */
void ps_keeper_new_owner(struct ps_daemon *daemon, struct ps_mount *mount, uint64_t owner, int fd);
void ps_keeper_drop_owner(struct ps_daemon *daemon, const struct ps_mount *mount, uint64_t owner);
/* Asks the keeper again to forget mounts, if it could not be asked before. The main thread calls this. True:
 * the keeper still does not read; call again later. */
bool ps_keeper_forget(struct ps_daemon *daemon);
/* Asks the keeper to run, as the next daemon, the program of the process at the other end of `client` (a
 * socket, borrowed). On success sets `leaving`. -ENOTSUP: there is no keeper. -EBUSY: some mounts would end.
 * -EPERM: the keeper refuses that process. */
int ps_keeper_upgrade(struct ps_daemon *daemon, int client, struct ps_error *err) PS_MUST_USE;
/* keeper_resume.c */
/* All that the keeper has. The caller closes and frees what is left. */
int ps_keeper_receive_items(int sock, struct ps_keeper_items *items);
/* Sets the options that the keeper has for this daemon. */
int ps_keeper_set_up(struct ps_keeper_items *items, struct ps_mount_options *o, struct ps_error *err);
/* Takes the cache's lock out of the items; 0: it is not there. */
int ps_keeper_take_lock(struct ps_keeper_items *items);
/* Starts a thread for each mount that the keeper had. */
int ps_keeper_resume(struct ps_daemon *daemon);
/* From begin to end, or until all mounts are served, a thread reports to the keeper that the daemon makes
 * progress: that it reads or writes the disk, or that one more mount is served. */
int ps_keeper_progress_begin(struct ps_daemon *daemon);
void ps_keeper_progress_end(struct ps_daemon *daemon);

/* control_server.c */
/* Reports to a mount's client that the mount has ended. Takes the client's socket over. */
void ps_client_say_ended(int sock);
void ps_client_accept(struct ps_daemon *daemon);
/* The two below need the daemon's lock held. ------------------------------------------------------------- */
/* Cancels all clients, and wakes their threads if they wait for a message. */
void ps_clients_cancel(struct ps_daemon *daemon);
/* Fills p with the sockets of clients that are attaching, to notice those that end; returns how many. */
size_t ps_clients_poll(struct ps_daemon *daemon, struct pollfd p[static 2 * PS_CLIENTS_MAX]);
/* -------------------------------------------------------------------------------------------------- */
/* Cancels the clients that are attaching and whose socket, or whose owner's socket, has ended: p[0..n) is
 * the result of poll(). */
void ps_clients_gone(struct ps_daemon *daemon, const struct pollfd *p, size_t n);

#endif
