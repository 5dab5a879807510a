/* The mount as the kernel sees it: a FUSE session over datasets of the cache, and its statistics. Callers
 * do not need libfuse.
 *
 *   ps_fs_new()            what the mount shows
 *   ps_session_start()     starts a thread with libfuse's loop over a mounted descriptor
 *   ps_session_now_answers()   call once the mount has answered: sets read-ahead, probes passthrough
 *   ps_session_await()     sleeps until the loop has ended: unmounted, aborted, or kicked
 *   ps_session_finish()    joins the thread; cancels reads, closes files
 *   ps_session_free()      after the last answer (ps_fs_drain())
 *   ps_fs_free()
 *
 * Files, from the top: session; restore; ops, names, ops_file, ops_xattr; member_view (--members);
 * virtual_files (.penstock/), status_json; fs; openmode; passthrough; handshake; mount_state;
 * requests_in_flight; access_pattern; metrics.
 *
 * Threads: start, await, finish and free from the mount's own thread; now_answers from any, once; kick from
 * any, but only while finish() has certainly not begun. Blocks: start and kick never; finish for a few
 * seconds at most. Errors: -errno and a text. */
#ifndef PS_FUSE_FUSE_H
#define PS_FUSE_FUSE_H

#include <jansson.h>
#include <linux/ioctl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>

#include "cache.h"
#include "members/members.h"
#include "options/options.h"

/* What is shown ------------------------------------------------------------------------------------------ */

struct ps_fs;

struct ps_fs_source {
	char *name; /* the folder's name; "": the source is the root */
	struct ps_dataset *dataset;
	uint64_t root;
	struct ps_fs *fs; /* set by the mount, as are the members below */
	struct ps_watch watch;
	struct ps_members *members; /* NULL: shards are shown as files */
};

/* All arguments are borrowed until free. A single source without a name is the root; sources with names
 * have a folder each. mounts(arg) returns the statistics of all mounts of the daemon, this one first; its
 * caller owns them. state_fd: the state that an earlier daemon of this mount has left (mount_state.h); taken
 * over, also on failure; -1: a new mount. NULL: out of memory, or the state cannot be read (see the log). */
struct ps_fs *ps_fs_new(struct ps_cache *cache, struct ps_fs_source *sources, size_t nsources,
        const struct ps_mount_options *options, const char *mountpoint, int state_fd,
        json_t *(*mounts)(void *arg), void *mounts_arg);
/* The descriptor of that state, borrowed; -1: there is none. */
int ps_fs_state_fd(const struct ps_fs *fs);
/* Call before the start if the daemon has a keeper: requests are then not read through cloned descriptors,
 * which would end with the daemon. */
void ps_fs_set_kept(struct ps_fs *fs);
/* Has another process open and close backing ids, as ps_backing_open() and ps_backing_close() do. That process
 * opens the file itself, by its name below the cache directory: -ESTALE if that is not the file open as fd.
 * close() may return before the id is closed: at most PS_BACKING_CLOSES are then under way. Call before the
 * start. */
#define PS_BACKING_CLOSES 32
struct ps_backing_ops {
	int (*open)(void *arg, int dev_fd, int fd, const char *name);
	int (*close)(void *arg, int dev_fd, int id);
};
void ps_fs_set_backing(struct ps_fs *fs, const struct ps_backing_ops *ops, void *arg);
/* The ioctls of passthrough, on a FUSE descriptor. Return a backing id (> 0) or -errno; close: 0 or
 * -errno. */
int ps_backing_open(int dev_fd, int fd);
int ps_backing_close(int dev_fd, int id);
void ps_fs_free(struct ps_fs *fs);
/* Waits until every request is answered, at most timeout_ms; false: some are still open. */
bool ps_fs_drain(struct ps_fs *fs, unsigned timeout_ms);

/* The session -------------------------------------------------------------------------------------------- */

struct ps_session {
	struct ps_fs *fs;
	dev_t dev; /* of the mount; 0: unknown */
	pthread_t thread;
	bool started;
	_Atomic bool ended; /* the loop has returned */
	int rc;             /* its result, once it has ended */
	sem_t end;
};

/* Sets the process's signal handlers and libfuse's log function. Call before the first start. */
void ps_session_setup(void);

/* fd: from ps_mountfd_mount(); taken over, also on failure. If an earlier daemon has begun the mount,
 * continues where that daemon ended: the kernel sends the unanswered requests again. */
int ps_session_start(
        struct ps_session *session, struct ps_fs *fs, int fd, dev_t dev, struct ps_error *err) PS_MUST_USE;
/* If the stored merged tree (--members=merge) is current, waits until it is shown, for a few seconds at most:
 * a program that reads it right after the mount must find it. Call after the start, without a lock. */
void ps_session_settle(struct ps_session *session);
/* What to do if the mount merges its members, and cannot show the merged tree yet. NULL: it can, or does not
 * merge. The caller frees it. */
char *ps_session_merge_advice(const struct ps_session *session);
void ps_session_now_answers(struct ps_session *session);
/* Asks the loop to end, even if files are open. The call has no effect just before libfuse begins to wait,
 * and while the kernel is being notified, which needs the loop. So repeat it until session->ended. */
void ps_session_kick(struct ps_session *session);
void ps_session_await(struct ps_session *session);
/* Kicks until the loop has ended. */
void ps_session_end(struct ps_session *session);
/* The FUSE descriptor; borrowed. -1: the session was not started. */
int ps_session_fd(const struct ps_session *session);
/* True if the kernel can send requests again to the next daemon. Call once the mount answers. */
bool ps_session_can_be_kept(const struct ps_session *session);
/* Ends the loop, and answers the requests that were read, at most until until_ns; the mount stays. The
 * process must exit afterwards: nothing may be freed. */
void ps_session_leave(struct ps_session *session, uint64_t until_ns);
/* Returns the loop's result. -EDEADLK: some reads do not end, so their files cannot be closed and nothing
 * may be freed. */
int ps_session_finish(struct ps_session *session) PS_MUST_USE;
void ps_session_free(struct ps_session *session);

/* Statistics --------------------------------------------------------------------------------------------- */

/* The number of daemons that were started for these mounts before this one. */
void ps_stats_set_restarts(uint64_t n);
/* entered: the daemon is in a sandbox. lacks: what the sandbox lacks, or why there is none; a constant text;
 * "": nothing. */
void ps_stats_set_sandbox(bool entered, const char *lacks);
/* The daemon's statistics with those of `mounts` (stolen); penstock(1) lists the fields. */
json_t *ps_stats_daemon(struct ps_cache *cache, json_t *mounts);
/* Adds the mount's own counters to `mount`, which holds those of its datasets. */
void ps_stats_add_mount(struct ps_fs *fs, json_t *mount);
/* The text of `doc`, which is stolen. The caller frees the text. NULL: out of memory. */
char *ps_stats_text(json_t *doc);
/* Call when the mount is about to end: records what the daemon's sums must keep of it. */
void ps_stats_mount_ends(const struct ps_fs *fs);

enum {
	PS_METRICS_CACHE = 1,  /* the daemon's own, once for all mounts */
	PS_METRICS_MOUNT = 2,  /* the document's first mount */
	PS_METRICS_MOUNTS = 4, /* all mounts of the document */
};

/* Stats documents in Prometheus' text format. A series is named after its path in the document:
 * cache.used_bytes becomes penstock_cache_used_bytes; counters end in _total; those of a mount begin with
 * penstock_mount_. Values that are null (not known) are left out. Every series has the label cache_dir;
 * those of a mount also have its mountpoint as the label `mount`.
 *
 * documents: an array of the results of ps_stats_daemon(), one for each daemon. up: {MOUNTPOINT: answers,
 * ...}, or NULL. The caller frees the text. NULL: out of memory. Threads: any. Blocks: never. */
char *ps_metrics_text(const json_t *documents, unsigned parts, const json_t *up);

/* Requests by ioctl -------------------------------------------------------------------------------------- */

/* The requests are made on a descriptor that is open for reading: on a read-only mount the kernel refuses
 * to open a file for writing. */
#define PS_IOC_TYPE 0xd7

/* Fetches the file's missing bytes at low priority. Returns at once. */
#define PS_IOC_WARM _IO(PS_IOC_TYPE, 1)
/* EVICT, PIN and UNPIN are for root and the mount's owner: EPERM for others.
 *
 * Evicts the file's data; returns the number of bytes. */
#define PS_IOC_EVICT _IOR(PS_IOC_TYPE, 2, uint64_t)
/* Pins the file. Returns the bytes that this reserved; 0: it was pinned already. ENOSPC: all pinned files
 * together would not fit. */
#define PS_IOC_PIN _IOR(PS_IOC_TYPE, 3, uint64_t)
/* Unpins the file. Returns the bytes that this released; 0: it was not pinned. */
#define PS_IOC_UNPIN _IOR(PS_IOC_TYPE, 4, uint64_t)
/* Returns what PS_IOC_PIN would return, and changes nothing. */
#define PS_IOC_PIN_NBYTES _IOR(PS_IOC_TYPE, 5, uint64_t)

/* On .penstock/plan: the next bytes of the text of plans, which a write would carry if the mount were
 * writable. The plans last as long as the descriptor is open. EINVAL: a line is malformed; E2BIG, ENOSPC:
 * over a limit; ESTALE: the text is a position in a plan that was dropped, so send the plan again; ENOTTY:
 * the mount's eviction policy uses no plans. loader/order/plan.c has a copy of these definitions, since the
 * loader includes nothing of the mount. */
#define PS_IOC_TEXT_NBYTES 8184
struct ps_ioc_text {
	uint32_t nbytes;
	char text[PS_IOC_TEXT_NBYTES];
};
#define PS_IOC_PLAN _IOW(PS_IOC_TYPE, 6, struct ps_ioc_text)

/* On the mount's root folder, for root and the mount's owner: lists the sources again. Returns when the
 * listing is done and the kernel has forgotten the names that changed. EINTR: a signal that ends the process came; the listing continues. Other
 * errors are the listing's; .penstock/stats has the text (listing_error). Returns the number of files, how
 * many of them are new, and how many have vanished. */
struct ps_ioc_refreshed {
	uint64_t nfiles, nadded, nvanished;
};
#define PS_IOC_REFRESH _IOR(PS_IOC_TYPE, 7, struct ps_ioc_refreshed)

/* On the root folder of a mount that shows members: makes the tables of all shards, which may read them all,
 * and with --members=merge the merged tree. Returns at once; .penstock/stats has the progress. ENOTTY: the
 * mount shows no members. */
#define PS_IOC_MEMBERS _IO(PS_IOC_TYPE, 8)

/* On a file: where its bytes are, for a reader that opens the data file itself, for root and the mount's
 * owner (docs/design/open-modes.md). The reader keeps the file open as long as it uses the data file. EPERM:
 * other users. ENODATA: the file is not complete and verified, or is large and not pinned, or is passed
 * through already. EACCES: the origin has to show again that the mount's credentials may read the file.
 * loader/shard/file/data_file.c has a copy of these definitions. */
#define PS_IOC_PATH_NBYTES 4096
struct ps_ioc_data_file {
	uint64_t dev, ino, nbytes;
	char path[PS_IOC_PATH_NBYTES];
};
#define PS_IOC_DATA_FILE _IOR(PS_IOC_TYPE, 9, struct ps_ioc_data_file)

#endif
