/* Mounts and the daemons that serve them: how commands find existing mounts, request a mount, and serve it.
 *
 * Files, from the top: daemon (main loop, signals, the cache), control_server, keeper_resume, mount (a mount,
 * and the daemon's list of mounts), owners, keeper_link, helper; control_client; keeper; keeper_wire;
 * mount_request, mountpoint, mount_table, control_protocol; daemonize, sandbox, timed_call, thread_group. Only
 * these files include daemon_private.h.
 *
 * Errors: -errno and a text with advice, unless a function's comment says otherwise. */
#ifndef PS_DAEMON_DAEMON_H
#define PS_DAEMON_DAEMON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/strbuf.h"
#include "options/options.h"

/* Calls with a timeout ----------------------------------------------------------------------------------- */

/* System calls that could hang on a wedged mount, made by a child process with a timeout.
 *
 * A child that hangs in the kernel is killed and left for init to reap; the caller continues. Threads: call
 * from a process without other threads, since the forked child runs code that is not async-signal-safe. */
#define PS_TIMED_TIMEOUT_MS 2000
#define PS_TIMED_MAX_NBYTES (4u << 20) /* of output; more is -EFBIG */

/* Runs fn(arg, out) in a child. Its output on the descriptor `out` becomes *ret_text (NUL-terminated, the
 * caller frees it; ret_text may be NULL). Returns fn's result, 0 or -errno; -ETIMEDOUT: not within
 * timeout_ms. */
int ps_timed_run(int (*fn)(void *arg, int out), void *arg, int timeout_ms, char **ret_text) PS_MUST_USE;

/* Several calls in parallel, all within timeout_ms. The caller sets fn and arg, reads rc, and calls
 * ps_timed_take() for each call; that returns the text and frees the call. */
struct ps_timed_call {
	int (*fn)(void *arg, int out);
	void *arg;
	int rc;
	pid_t pid; /* private, as are the members below */
	int out;
	struct ps_strbuf text;
};
void ps_timed_run_all(struct ps_timed_call *calls, size_t n, int timeout_ms);
char *ps_timed_take(struct ps_timed_call *call);

/* stat(). *ret_mode is st_mode; ret_mode may be NULL. */
int ps_timed_stat(const char *path, int timeout_ms, mode_t *ret_mode) PS_MUST_USE;
/* realpath(); the caller frees it. */
int ps_timed_realpath(const char *path, int timeout_ms, char **ret_path) PS_MUST_USE;
/* umount2(). */
int ps_timed_umount(const char *path, int flags, int timeout_ms) PS_MUST_USE;
/* Runs a program and captures its stdout and stderr in *ret_text. 0; -EIO: the program failed; -ENOENT: no
 * such program. */
int ps_timed_exec(char *const argv[], int timeout_ms, char **ret_text) PS_MUST_USE;

/* Existing mounts ---------------------------------------------------------------------------------------- */

/* The penstock mounts of this mount namespace, from /proc/self/mountinfo. Most functions do not touch the
 * mounts themselves, so they do not hang on a wedged mount; the comment of a function that asks the daemon
 * says so.
 *
 * Ownership: a list and its strings belong to the caller until ps_mounts_fini(). Threads: one. */
struct ps_mount_info {
	unsigned long long mnt_id;
	unsigned dev_major, dev_minor;
	char *mountpoint, *fstype, *source; /* unescaped */
	uid_t uid;                          /* the mount's owner; (uid_t)-1: not in mountinfo */
	gid_t gid;
	bool allow_other; /* every user may use it */
};

struct ps_mounts {
	struct ps_mount_info *v;
	size_t n;
};

/* Lists the penstock mounts; with `any`, all mounts. A later mount covers an earlier one on the same path,
 * and is later in the list. */
int ps_mounts_read(const char *mountinfo, bool any, struct ps_mounts *ret) PS_MUST_USE;
void ps_mounts_fini(struct ps_mounts *mounts);
#define ps_automounts __attribute__((cleanup(ps_mounts_fini)))
/* Removes the mounts that are none of the caller's: root keeps all, another user the user's own and those
 * that root has mounted for every user. Returns how many were removed. */
size_t ps_mounts_keep_own(struct ps_mounts *mounts);
/* The topmost mount on exactly this path, or NULL. */
const struct ps_mount_info *ps_mounts_find(const struct ps_mounts *mounts, const char *path);

/* Distinguishes a mount from earlier and later ones on the same path. Their device numbers may be equal,
 * since the kernel reuses them. All 0: there is no penstock mount. */
struct ps_mount_id {
	dev_t dev;
	/* from Linux 6.8 on unique until the next boot; on older kernels unique among the current mounts */
	uint64_t number;
};

static inline bool ps_mount_id_same(struct ps_mount_id a, struct ps_mount_id b)
{
	return a.number && a.dev == b.dev && a.number == b.number;
}

/* The id of the penstock mount on exactly this path. */
struct ps_mount_id ps_mounts_id(const char *mountpoint);
/* The number of the mount that contains the file of the O_PATH descriptor; 0: unknown. Asks no daemon. */
uint64_t ps_mounts_number(int fd);

/* Replaces "\040" and other octal escapes by their bytes, in place. */
void ps_mounts_unescape(char *s);

/* The path of an argument as mountinfo spells it. Resolves links of the parent folders, not the last part,
 * which may be a wedged mount. The caller frees it. */
int ps_mounts_resolve(const char *arg, char **ret_path, struct ps_error *err) PS_MUST_USE;

/* ps_mounts_resolve(), _read() and _find() in one: -EINVAL and a text if `arg` is not a penstock mount,
 * -ENOENT and a text if there is no such folder. The caller frees *ret (ps_mounts_fini), into which *ret_info
 * points. */
int ps_mounts_lookup(const char *arg, struct ps_mounts *ret, const struct ps_mount_info **ret_info,
        struct ps_error *err) PS_MUST_USE;

/* Reads the mount's own .penstock/stats; as root also that of another user's mount. Asks the daemon:
 * -ETIMEDOUT, -ENOTCONN. The user who mounted may have forged the document: see ps_json_printable(). A child
 * process that asks a daemon which never answers stays until the mount ends; while it is there, the mount is
 * not asked again (-ETIMEDOUT at once). */
int ps_mounts_stats(const struct ps_mount_info *info, int timeout_ms, json_t **ret) PS_MUST_USE;
/* Asks all mounts within timeout_ms. Returns an array of mounts->n answers, which the caller frees; `doc`
 * is set where rc is 0. NULL: out of memory. */
struct ps_mount_answer {
	int rc;
	json_t *doc;
};
struct ps_mount_answer *ps_mounts_ask(const struct ps_mounts *mounts, int timeout_ms) PS_MUST_USE;
/* The text for a mount whose ps_mounts_stats() failed with this -errno. */
const char *ps_mounts_why_not(int rc);
/* The pid in a stats document if it is a penstock process's, else 0. */
pid_t ps_mounts_pid(const json_t *stats);

/* What to do about an error of fusermount3, in parentheses; "": nothing is known. */
const char *ps_fusermount_advice(const char *words);

/* The mountpoint of a mount whose daemon serves this cache directory; NULL: none was found. The caller frees
 * it. Asks the daemons of all mounts of ps_mounts_keep_own(). */
char *ps_mounts_of_cache(const char *cache_dir);

/* Where to mount ----------------------------------------------------------------------------------------- */

/* Checks that a folder can be mounted on. Detaches the stale mount of a daemon that died.
 *
 * Threads: one, before any other is started (it forks). Blocks: at most a few seconds, whatever is mounted
 * there. Errors: -errno and a text with advice. */
/* *ret_path: the folder's real path; the caller frees it. */
int ps_mountpoint_check(const char *arg, bool nonempty, char **ret_path, struct ps_error *err) PS_MUST_USE;

/* Makes a folder for a mount of this source (in canonical form): $TMPDIR/penstock-UID/NAME, in a folder
 * that only our user may write. The same source gets the same folder, unless something is mounted there.
 * The caller frees *ret_path. *ret_lock_fd locks out other processes until it is closed; close it after
 * mounting. */
int ps_mountpoint_make(
        const char *source, char **ret_path, int *ret_lock_fd, struct ps_error *err) PS_MUST_USE;

/* Refuses a mount inside its own source, which would list itself for ever, and a cache below its own mount,
 * which would hide the cache. `source` is absolute if it is local; cache_dir need not exist. */
int ps_mountpoint_apart(
        const char *mountpoint, const char *source, const char *cache_dir, struct ps_error *err) PS_MUST_USE;

/* The request for a mount -------------------------------------------------------------------------------- */

/* A request to a daemon for one mount: its sources, options, and the environment that its credentials come
 * from.
 *
 * The requesting process resolves what only it can: it makes paths absolute, turns user names into numbers,
 * and reads header files. A local source is sent with device and inode, since the daemon may run in another
 * mount namespace, where the same path may be another folder.
 *
 * Ownership: a request owns its members; they may be secret, and fini wipes them. Threads: one. Errors:
 * -errno and a text. */
#define PS_SOURCES_MAX 256 /* of one mount: eight bits of a node id (fuse/fs.h) */

struct ps_source_request {
	char *name;            /* the folder below the mount; "": the source is the mount's root */
	char *source;          /* absolute, with its secrets */
	struct ps_given given; /* its own options, applied after those of the mount */
	/* "DEVICE:INODE" of a local source, as the requesting process sees it; "": not local */
	char identity[48];
};

struct ps_mount_request {
	char *mountpoint; /* NULL: not chosen yet (mounts with owners only) */
	struct ps_given given;
	char **env; /* "NAME=value", NULL-terminated; never NULL */
	/* identifies mount namespace and root of the requesting process, for a mount with owners; else
	 * "" */
	char view[96];
	struct ps_source_request *sources;
	size_t nsources;
};

void ps_request_fini(struct ps_mount_request *request);
/* name: of the source's folder, or "". The source is made absolute and must parse. */
int ps_request_add_source(struct ps_mount_request *request, const char *name, const char *source,
        struct ps_error *err) PS_MUST_USE;
/* Copies the mount's options and the environment from *o, which ps_mount_options_finish() has completed. */
int ps_request_take_options(
        struct ps_mount_request *request, const struct ps_mount_options *o, struct ps_error *err) PS_MUST_USE;
/* Sets request->view from this process's mount namespace and root. The request is then one for a mount with
 * owners. */
int ps_request_take_view(struct ps_mount_request *request, struct ps_error *err) PS_MUST_USE;
/* Adds options of one source only. */
int ps_request_give_source(struct ps_source_request *source, const struct ps_mount_options *o) PS_MUST_USE;
/* Refuses equal names, and secrets that would be sent to the hosts of all sources. */
int ps_request_check(const struct ps_mount_request *request, struct ps_error *err) PS_MUST_USE;

/* True for "NAME=SOURCE"; false if there is a scheme or a slash before the "=". *ret_name_len is the name's
 * length. */
bool ps_source_has_name(const char *arg, size_t *ret_name_len);

int ps_request_encode(const struct ps_mount_request *request, struct ps_given *ret) PS_MUST_USE;
int ps_request_decode(
        const struct ps_given *message, struct ps_mount_request *ret, struct ps_error *err) PS_MUST_USE;

/* Checks that a local source is the same folder here as in the requesting process (device and inode). */
int ps_request_same_place(const struct ps_source_request *source, struct ps_error *err) PS_MUST_USE;

/* The options of one source of the request: the mount's, then its own. Call ps_mount_options_fini() on *ret
 * in any case. */
int ps_request_options(const struct ps_mount_request *request, const struct ps_source_request *source,
        struct ps_mount_options *ret, struct ps_error *err) PS_MUST_USE;

/* -EINVAL and a text if the option applies to none of these kinds of source. Such an option is most likely
 * a mistake, which the user would otherwise notice late. */
int ps_option_check_sources(const struct ps_opt *opt, const struct ps_source_request *sources,
        size_t nsources, struct ps_error *err) PS_MUST_USE;
/* The same for the first ngiven options of `given`. */
int ps_options_check_sources(const struct ps_given *given, size_t ngiven,
        const struct ps_source_request *sources, size_t nsources, struct ps_error *err) PS_MUST_USE;

/* The client of the control socket ----------------------------------------------------------------------- */

/* Requests for the daemon that already serves a cache directory. For a new mount, this process mounts, in
 * its own mount namespace and with its own privileges, and the daemon serves the mount. daemon_private.h
 * has the messages.
 *
 * Threads: one. Blocks: while the daemon lists the sources; with `stay`, until the mount has ended. Errors:
 * -errno and a text. */
struct ps_control_mount_options {
	int owner; /* the mount's owner: a socket, borrowed; -1: none */
	bool allow_other;
	unsigned long flags;  /* further ones of mount(2) */
	const char *security; /* labels of SELinux; NULL: none */
	bool stay; /* return only after the mount has ended; SIGTERM, SIGINT and SIGHUP unmount it */
	/* With an owner: called if there is no mount to join; sets the request's mountpoint. */
	int (*place)(void *arg, struct ps_error *err);
	void (*ready)(void *arg); /* called when the new mount answers, or when an existing one was joined */
	void *arg;
};

/* -ENOENT without a text: no daemon serves the cache, or the daemon is ending. */
int ps_control_mount(const char *cache_dir, const struct ps_mount_request *request,
        const struct ps_control_mount_options *options, struct ps_error *err) PS_MUST_USE;

/* The daemon's statistics (ps_stats_daemon()); the caller owns them. -ENOENT and a text: no daemon serves
 * the cache. */
int ps_control_status(const char *cache_dir, int timeout_ms, json_t **ret, struct ps_error *err) PS_MUST_USE;

/* Has the daemon hand its mounts over to a new daemon, which runs this process's program, and waits until the
 * cache has a daemon with another pid, *ret_pid. exe: a descriptor of the program; borrowed; only compared
 * with the new daemon's, since the keeper opens the program of this process itself. -ENOENT: as above. -EIO:
 * the daemon refused, or the program did not start and the old one serves again. -ETIMEDOUT: no new daemon
 * answers yet. */
int ps_control_upgrade(
        const char *cache_dir, int exe, int timeout_ms, pid_t *ret_pid, struct ps_error *err) PS_MUST_USE;

/* Waits until the daemon serves no mount with this device number. *ret_left: the number of mounts that it
 * still serves, plus 1 if it stays without mounts (--serve); 0: it ends. */
int ps_control_await_end(const char *cache_dir, dev_t dev, int timeout_ms, unsigned *ret_left,
        struct ps_error *err) PS_MUST_USE;

/* Into the background ------------------------------------------------------------------------------------ */

/* Runs the daemon in the background, with a parent that waits for the outcome.
 *
 *   ps_daemonize_start()      forks; does not return in the parent, which waits for the outcome and exits
 *   ps_daemonize_abandoned()  true: the user ended the parent, so the mount is not wanted any more
 *   ps_daemonize_ready()      the parent exits 0; the child leaves its terminal and folder
 *   ps_daemonize_failed()     the parent prints the line and exits 1; the child exits or serves others
 *
 * Inherited descriptors (the end of a pipe, a lock) stay open until ready or failed, since a source may be
 * the path of one (/dev/fd/N). Then the child closes them: otherwise the daemon would hold them for days.
 *
 * The child leaves session and process group at once: it may serve mounts of other processes later, and a
 * ^C for the process that started it must not end those. In the foreground (background false) there is no
 * parent; ready and failed then report to systemd and stderr.
 *
 * Threads: call start before any other thread is started; ready or failed from any thread, once. */
#define PS_DAEMONIZE_INHERITED 256 /* any beyond these stay open */

struct ps_daemonize {
	bool background;
	bool kept;  /* the keeper notifies the service manager */
	int pipe;   /* to the parent, or -1 */
	int notify; /* a socket for the service manager; -1: one can still be made */
	int inherited[PS_DAEMONIZE_INHERITED];
	unsigned ninherited;
};

int ps_daemonize_start(struct ps_daemonize *daemonize, const char *command, bool background,
        struct ps_error *err) PS_MUST_USE;
/* Adds a descriptor to close when the outcome is known. */
void ps_daemonize_let_go_of(struct ps_daemonize *daemonize, int fd);
/* tied: from now on the child gets SIGTERM when its parent ends; false: the child no longer gets it. Call
 * from one thread only. */
void ps_daemonize_tie(const struct ps_daemonize *daemonize, bool tied);
/* Call before a process without a keeper enters its sandbox, in which it can make no UNIX socket. */
void ps_daemonize_sandboxed(struct ps_daemonize *daemonize);
bool ps_daemonize_abandoned(const struct ps_daemonize *daemonize);
void ps_daemonize_ready(struct ps_daemonize *daemonize);
/* Called in the keeper, whose daemon reports to the parent: closes the keeper's copies of the terminal, the
 * pipe and the inherited descriptors. In the foreground the terminal stays open, for the next daemon. */
void ps_daemonize_keeper(struct ps_daemonize *daemonize);
/* Called in the keeper once the first mount answers. In the background leaves the control group. In the
 * foreground reports to systemd, which expects the report from the process that it started. */
void ps_daemonize_keeper_ready(const struct ps_daemonize *daemonize);
/* Returns the caller's exit code. */
int ps_daemonize_failed(struct ps_daemonize *daemonize, const char *command, const char *text);

/* Privileges --------------------------------------------------------------------------------------------- */

/* What a daemon gives up before it serves; no secrets in core files; leaving the control group.
 *
 * Threads: call before any other thread is started. Blocks: never. */
enum ps_privileges {
	PS_PRIVILEGES_KEEPER, /* keeps what the next daemon needs until it is in its sandbox */
	PS_PRIVILEGES_HELPER,
	PS_PRIVILEGES_ALONE,  /* a daemon without a helper */
	PS_PRIVILEGES_DAEMON, /* may still read sources and credentials of other users */
	PS_PRIVILEGES_NONE,   /* the process that writes the log */
};
/* If the process is root's, drops all capabilities that such a process does not need, also for its child
 * processes. Does nothing for other users. */
void ps_privileges_drop(enum ps_privileges which);

/* Puts the daemon into its sandbox, for ever and with its child processes: it loses its privileges, cannot
 * gain any, and cannot make dangerous system calls; root's daemon can also change no files outside of the
 * cache folder (cache_fd, borrowed), with few exceptions. The helper does what the daemon then cannot do.
 * Returns which of these limits the kernel does not have ("no landlock"); "": it has all. */
const char *ps_sandbox_enter(int cache_fd);

/* Keeps this process's memory, and so its credentials, out of core files. Inherited by forks;
 * /proc/PID/coredump_filter can undo it. */
void ps_privileges_no_core(void);

/* Leaves the control group that the daemon was started in. When a job, a login session or a systemd unit
 * ends, all processes of its group are killed, which would end the mounts of other processes, too.
 *
 * Root's daemon moves to the group /penstock of the cgroup2 hierarchy. A user's daemon that was started
 * below the user's service manager moves to a sibling of the manager's other groups. Otherwise, and in a
 * container, it stays, because the kernel does not allow the move. The log reports that.
 *
 * Threads: any; the whole process moves. Blocks: on the kernel. */
void ps_cgroup_leave(void);

/* The control group of root's systemd unit that this process is in; "": it is in none. A part is a child
 * group, for processes that are killed separately; the unit needs Delegate=. Errors are logged at level
 * debug. */
void ps_cgroup_of_unit(char *ret, size_t room);
void ps_cgroup_enter_part(const char *unit, const char *part);
/* Has the kernel count memory by part, and if memory runs out kill all processes of this part together. */
void ps_cgroup_die_together(const char *unit, const char *part);

/* The group that a process in group `own` ("/user.slice/...") moves to; "": it stays. For tests. */
void ps_cgroup_target(const char *own, uid_t uid, char *ret, size_t room);

/* The daemon --------------------------------------------------------------------------------------------- */

struct ps_keeper_items;

/* Makes this process the keeper of a daemon, which is its child (docs/design/keeper.md). In the daemon
 * returns 0 and sets *ret_sock, the socket to the keeper; -1: there is no keeper, since the kernel cannot
 * send requests again. In the keeper returns only if the daemon found the cache in use by another daemon
 * (-EBUSY and the daemon's text); otherwise ends the process in the way the daemon ended. options: of this
 * daemon and the next ones. owner: the first mount's owner, or -1. Call before any thread is started. */
int ps_keeper_begin(struct ps_daemonize *daemonize, const struct ps_mount_options *options, int owner,
        int *ret_sock, struct ps_error *err) PS_MUST_USE;
/* Called in the daemon: reports to the keeper that another daemon has the cache, and ends the process. */
_Noreturn void ps_keeper_busy(int sock, const struct ps_error *err);
/* Runs a daemon that the keeper has started after the first one: takes over the mounts that the keeper has.
 * sock: to the keeper. Returns an exit code. */
int ps_daemon_resume(int sock);

struct ps_daemon_options {
	const struct ps_mount_options *options; /* with cache_dir set; also decide the log and the cache */
	/* the first mount's; taken over. NULL: there is none, and the daemon serves until a signal ends it */
	struct ps_mount_request *request;
	struct ps_daemonize *daemonize;  /* receives the first mount's success or failure */
	int keeper;                      /* the socket to the keeper; -1: none */
	struct ps_keeper_items *resumed; /* received from the keeper; NULL: begins with `request` */
	int owner;                       /* the first mount's owner: a socket, taken over; -1: none */
};

/* Serves until the last mount has ended, or a signal arrives, then closes the cache. *ret_exit is an exit
 * code; the first mount's failure sets it even if other mounts were served. -EBUSY: another process has the
 * cache; nothing is taken over and nothing reported. Other failures to open the cache are reported. */
int ps_daemon_run(const struct ps_daemon_options *options, int *ret_exit, struct ps_error *err) PS_MUST_USE;

#endif
