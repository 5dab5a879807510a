/* Mounts and the daemons that serve them: what commands do with mounts that are there, what they ask for, and
 * serving it.
 *
 * Ladder of the folder: daemon (main loop, signals, the cache), control_server, mount (one and all), owners;
 * control_client; request, mountpoint, mounts, control_protocol; daemonize, timed_call, thread_group.
 * daemon_private.h is for these files alone.
 *
 * Errors: -errno and a text that says what to do, unless a function says otherwise. */
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

/* System calls that a wedged mount could hang, made in a child process and given up after a while.
 *
 * A child that hangs in the kernel is killed and left to init; the caller goes on. Threads: call from a
 * process without other threads (it forks and then runs ordinary code in the child). */
#define PS_TIMED_TIMEOUT_MS 2000
#define PS_TIMED_MAX_NBYTES (4u << 20) /* of output; more is -EFBIG */

/* Runs fn(arg, out) in a child. What it writes to the descriptor `out` becomes *ret_text (NUL-terminated, the
 * caller frees it; ret_text may be NULL). fn returns 0 or -errno, and so does this; -ETIMEDOUT: not within
 * timeout_ms. */
int ps_timed_run(int (*fn)(void *arg, int out), void *arg, int timeout_ms, char **ret_text) PS_MUST_USE;

/* Several at once, all within timeout_ms. The caller fills fn and arg, finds rc, and takes each text, which
 * frees the call. */
struct ps_timed_call {
	int (*fn)(void *arg, int out);
	void *arg;
	int rc;
	pid_t pid; /* private, as what follows */
	int out;
	struct ps_strbuf text;
};
void ps_timed_run_all(struct ps_timed_call *calls, size_t n, int timeout_ms);
char *ps_timed_take(struct ps_timed_call *call);

/* stat(); st_mode in *ret_mode (may be NULL). */
int ps_timed_stat(const char *path, int timeout_ms, mode_t *ret_mode) PS_MUST_USE;
/* realpath(); the caller frees it. */
int ps_timed_realpath(const char *path, int timeout_ms, char **ret_path) PS_MUST_USE;
/* umount2(). */
int ps_timed_umount(const char *path, int flags, int timeout_ms) PS_MUST_USE;
/* Runs a program with its words on stderr caught: 0, or -EIO with them in *ret_text. -ENOENT: no such
 * program. */
int ps_timed_exec(char *const argv[], int timeout_ms, char **ret_text) PS_MUST_USE;

/* Mounts that are there ---------------------------------------------------------------------------------- */

/* The penstock mounts of this mount namespace, from /proc/self/mountinfo: nothing here touches the mounts
 * themselves, so nothing hangs on a wedged one, but for what says that it asks the daemon.
 *
 * Ownership: a list and its strings belong to the caller until ps_mounts_fini(). Threads: one. */
struct ps_mount_info {
	unsigned long long mnt_id;
	unsigned dev_major, dev_minor;
	char *mountpoint, *fstype, *source; /* unescaped */
	uid_t uid;                          /* whose mount it is; (uid_t)-1: not said */
	gid_t gid;
};

struct ps_mounts {
	struct ps_mount_info *v;
	size_t n;
};

/* Those of penstock; with `any`, all. Later mounts cover earlier ones on the same path, and come later. */
int ps_mounts_read(const char *mountinfo, bool any, struct ps_mounts *ret) PS_MUST_USE;
void ps_mounts_fini(struct ps_mounts *mounts);
/* The topmost mount on exactly this path, or NULL. */
const struct ps_mount_info *ps_mounts_find(const struct ps_mounts *mounts, const char *path);

/* What distinguishes a mount from those before and after it on the same path: their device numbers may be
 * equal, for the kernel uses a number again. All 0: there is no penstock mount. */
struct ps_mount_id {
	dev_t dev;
	/* unique while the machine runs from Linux 6.8 on; before, one of the mounts there are */
	uint64_t number;
};

static inline bool ps_mount_id_same(struct ps_mount_id a, struct ps_mount_id b)
{
	return a.number && a.dev == b.dev && a.number == b.number;
}

/* Of the penstock mount on exactly this path. */
struct ps_mount_id ps_mounts_id(const char *mountpoint);
/* The number of the mount that an O_PATH descriptor of its root belongs to; 0: it cannot be known. Asks no
 * daemon. */
uint64_t ps_mounts_number(int fd);

/* "\040" and the like to bytes, in place. */
void ps_mounts_unescape(char *s);

/* The path of an argument as mountinfo spells it. Resolves links of the parent folders, not the last part,
 * which may be a wedged mount. The caller frees it. */
int ps_mounts_resolve(const char *arg, char **ret_path, struct ps_error *err) PS_MUST_USE;

/* resolve, read and find in one: -EINVAL (-ENOENT) and a text when `arg` is no penstock mount. On success the
 * caller frees *ret (ps_mounts_fini) and *ret_info points into it. */
int ps_mounts_lookup(const char *arg, struct ps_mounts *ret, const struct ps_mount_info **ret_info,
        struct ps_error *err) PS_MUST_USE;

/* The mount's own .penstock/stats, also of another user's if we are root. Asks the daemon: -ETIMEDOUT,
 * -ENOTCONN. */
int ps_mounts_stats(const struct ps_mount_info *info, int timeout_ms, json_t **ret) PS_MUST_USE;
/* Of all mounts within timeout_ms: an array of mounts->n, the caller's to free; a document where rc is 0.
 * NULL: out of memory. */
struct ps_mount_answer {
	int rc;
	json_t *doc;
};
struct ps_mount_answer *ps_mounts_ask(const struct ps_mounts *mounts, int timeout_ms) PS_MUST_USE;
/* What to say of a mount that does not answer, of which this -errno came. */
const char *ps_mounts_why_not(int rc);
/* The pid in a stats document if a penstock process has it, else 0. */
pid_t ps_mounts_pid(const json_t *stats);

/* The mount that serves a cache directory, as "MOUNTPOINT"; NULL: none found. The caller frees it. Asks
 * daemons. */
char *ps_mounts_of_cache(const char *cache_dir);

/* Where to mount ----------------------------------------------------------------------------------------- */

/* Is a folder fit to be mounted on? Recovers the stale mount of a daemon that died.
 *
 * Threads: one, before any is made (it forks). Blocks: at most a few seconds, whatever is mounted there.
 * Errors: -errno and a text that says what to do. */
/* *ret_path: the folder's real path; the caller frees it. */
int ps_mountpoint_check(const char *arg, bool nonempty, char **ret_path, struct ps_error *err) PS_MUST_USE;

/* A folder for a mount of this source (its canonical form): $TMPDIR/penstock-UID/NAME, of which only we may
 * make others. The same source gets the same one, unless a mount is there. *ret_path is the caller's to
 * free; *ret_lock_fd keeps other processes off until it is closed, which is once the mount is there. */
int ps_mountpoint_make(
        const char *source, char **ret_path, int *ret_lock_fd, struct ps_error *err) PS_MUST_USE;

/* A mount within its own source would list itself for ever; a cache below its mount would be hidden by it.
 * `source` is absolute if it is local; cache_dir need not exist. */
int ps_mountpoint_apart(
        const char *mountpoint, const char *source, const char *cache_dir, struct ps_error *err) PS_MUST_USE;

/* The request for a mount -------------------------------------------------------------------------------- */

/* What is asked of a daemon: one mount, with its sources, options and the environment its credentials come
 * from.
 *
 * The asking process resolves what only it can: paths are absolute, names of users are numbers, files of
 * headers are read. A local source is sent with device and inode, since the daemon may live in another mount
 * namespace, where the same path is another folder.
 *
 * Ownership: the request's own; secret, wiped by fini. Threads: one. Errors: -errno and a text. */
#define PS_SOURCES_MAX 256 /* of one mount: eight bits of a node id (fs.h) */

struct ps_source_request {
	char *name;            /* of its folder below the mount; "": it is the mount */
	char *source;          /* absolute, with its secrets */
	struct ps_given given; /* its own options, which come after those of the mount */
	char identity[48];     /* "DEVICE:INODE" of a local source as who asks sees it; "": it is not local */
};

struct ps_mount_request {
	char *mountpoint; /* NULL: of an owner's, not chosen yet */
	struct ps_given given;
	char **env;    /* "NAME=value", NULL-terminated; never NULL */
	char view[96]; /* of a mount for owners: how its process sees the file system; else "" */
	struct ps_source_request *sources;
	size_t nsources;
};

void ps_request_fini(struct ps_mount_request *request);
/* name is a folder's, or "". The source is made absolute, and must make sense. */
int ps_request_add_source(struct ps_mount_request *request, const char *name, const char *source,
        struct ps_error *err) PS_MUST_USE;
/* The options of the mount and the environment, from what was parsed and finished. */
int ps_request_take_options(
        struct ps_mount_request *request, const struct ps_mount_options *o, struct ps_error *err) PS_MUST_USE;
/* The mount is for owners that see the file system as this process does. */
int ps_request_take_view(struct ps_mount_request *request, struct ps_error *err) PS_MUST_USE;
/* Options of one source alone. */
int ps_request_give_source(struct ps_source_request *source, const struct ps_mount_options *o) PS_MUST_USE;
/* Names that are equal, secrets that would be sent to the hosts of all sources. */
int ps_request_check(const struct ps_mount_request *request, struct ps_error *err) PS_MUST_USE;

/* "NAME=SOURCE"? A scheme, or a slash before the "=", says no. On true *ret_name_len is the name's length. */
bool ps_source_has_name(const char *arg, size_t *ret_name_len);

int ps_request_encode(const struct ps_mount_request *request, struct ps_given *ret) PS_MUST_USE;
int ps_request_decode(
        const struct ps_given *message, struct ps_mount_request *ret, struct ps_error *err) PS_MUST_USE;

/* Is a local source here what it is to who asked? */
int ps_request_same_place(const struct ps_source_request *source, struct ps_error *err) PS_MUST_USE;

/* The options of one source of the request: those of the mount, then its own. fini in any case. */
int ps_request_options(const struct ps_mount_request *request, const struct ps_source_request *source,
        struct ps_mount_options *ret, struct ps_error *err) PS_MUST_USE;

/* Options that mean nothing to the sources they were given with are most likely a mistake, and one that shows
 * late: -EINVAL and a text if the option is for another kind of source than all of these. */
int ps_option_check_sources(const struct ps_opt *opt, const struct ps_source_request *sources,
        size_t nsources, struct ps_error *err) PS_MUST_USE;
/* The same of the first ngiven of given. */
int ps_options_check_sources(const struct ps_given *given, size_t ngiven,
        const struct ps_source_request *sources, size_t nsources, struct ps_error *err) PS_MUST_USE;

/* The client of the control socket ----------------------------------------------------------------------- */

/* Joining the daemon that serves a cache directory: this process mounts, in its own mount namespace and with
 * its own privileges, and the daemon serves. See daemon.h for the words that are exchanged.
 *
 * Threads: one. Blocks: as long as the daemon lists the sources; with `stay`, as long as the mount is there.
 * Errors: -errno and a text. */
struct ps_control_mount_options {
	int owner; /* of the mount: a socket, borrowed; -1: none */
	bool allow_other;
	bool stay; /* until the mount is gone; SIGTERM, SIGINT and SIGHUP take it away */
	/* With an owner: there is no mount to join, and the request needs a mountpoint. */
	int (*place)(void *arg, struct ps_error *err);
	void (*ready)(void *arg); /* the mount answers, or was joined */
	void *arg;
};

/* -ENOENT without a text: no daemon serves the cache, or it is just ending. */
int ps_control_mount(const char *cache_dir, const struct ps_mount_request *request,
        const struct ps_control_mount_options *options, struct ps_error *err) PS_MUST_USE;

/* What the daemon reports of all its mounts (ps_stats_daemon()); the caller owns it. -ENOENT, and a text: no
 * daemon serves the cache. */
int ps_control_status(const char *cache_dir, int timeout_ms, json_t **ret, struct ps_error *err) PS_MUST_USE;

/* Waits until the daemon serves nothing on this device any more. *ret_left: mounts that it still has. */
int ps_control_await_end(const char *cache_dir, dev_t dev, int timeout_ms, unsigned *ret_left,
        struct ps_error *err) PS_MUST_USE;

/* Into the background ------------------------------------------------------------------------------------ */

/* Going into the background, with a parent that waits for the outcome.
 *
 *   ps_daemonize_start()      forks; the parent stays inside until the child is ready or gone, and exits
 *   ps_daemonize_abandoned()  the parent was ended by its user: what it asked for is not wanted any more
 *   ps_daemonize_ready()      the parent exits 0; the child lets go of terminal and folder
 *   ps_daemonize_failed()     the parent prints the one line and exits 1; so does the child, or goes on for others
 *
 * Descriptors that were passed on to us (a pipe's end, a lock) stay open until then, as a source may be
 * named by one, and not longer: a daemon would hold them for days.
 *
 * The child leaves session and process group at once: it may come to serve others than who started it, whom a
 * ^C for that one does not concern. In the foreground (background false) there is no parent; ready and failed
 * then report to systemd and stderr.
 *
 * Threads: start before any is made; ready or failed from any, once. */
#define PS_DAEMONIZE_INHERITED 256 /* more stay open */

struct ps_daemonize {
	bool background;
	int pipe; /* to the parent, or -1 */
	int inherited[PS_DAEMONIZE_INHERITED];
	unsigned ninherited;
};

int ps_daemonize_start(struct ps_daemonize *daemonize, const char *command, bool background,
        struct ps_error *err) PS_MUST_USE;
/* One more that is closed when the outcome is known. */
void ps_daemonize_let_go_of(struct ps_daemonize *daemonize, int fd);
/* From now on the child is ended together with its parent (by SIGTERM), or not any more. One thread only. */
void ps_daemonize_tie(const struct ps_daemonize *daemonize, bool tied);
bool ps_daemonize_abandoned(const struct ps_daemonize *daemonize);
void ps_daemonize_ready(struct ps_daemonize *daemonize);
/* Returns the exit code for the caller. */
int ps_daemonize_failed(struct ps_daemonize *daemonize, const char *command, const char *text);

/* Privileges --------------------------------------------------------------------------------------------- */

/* What a daemon lets go of before it serves, and what is kept out of a core file.
 *
 * Threads: before any is made. Blocks: never. */
/* Root's daemon keeps the capabilities to mount, to unmount and to pass files through, and those to use a
 * cache and a source that belong to others; it drops the rest, for what it starts, too. Nothing for other
 * users. */
void ps_privileges_drop(void);

/* A core file of this process is to hold no memory of it, and so no credentials. Inherited by forks;
 * /proc/PID/coredump_filter takes it back. */
void ps_privileges_no_core(void);

/* Leaving the control group that the daemon was started in: when a job, a login session or a unit of systemd
 * ends, all processes of its group are killed, and mounts of others would go with them.
 *
 * Root's daemon goes to the group /penstock of the cgroup2 hierarchy; a user's to a group beside the others
 * of the user's own service manager, where it was started below that. Elsewhere, and in a container, it
 * stays: the kernel does not let it go. The caller's log says so.
 *
 * Threads: any; it moves all of the process. Blocks: on the kernel. */
void ps_cgroup_leave(void);

/* Where a process in `own` (as "/user.slice/...") goes: "" if it should stay. For tests. */
void ps_cgroup_target(const char *own, uid_t uid, char *ret, size_t room);

/* The daemon --------------------------------------------------------------------------------------------- */

struct ps_daemon_options {
	const struct ps_mount_options *options; /* cache_dir is set; log and cache are as it says */
	struct ps_mount_request *request;       /* the first mount's; taken over */
	struct ps_daemonize *daemonize;         /* gets the first mount's success or failure */
	int owner;                              /* of the first mount: a socket, taken over; -1: none */
};

/* Serves until the last mount is gone; then the cache is closed. Returns an exit code: of the first mount's
 * failure, too, though others may have been served meanwhile. -EBUSY: another process has the cache (nothing
 * is taken over, nothing reported); other failures to open it are reported. */
int ps_daemon_run(const struct ps_daemon_options *options, int *ret_exit, struct ps_error *err) PS_MUST_USE;

#endif
