/* The mount as the kernel sees it: a FUSE session over datasets of the cache, and what it says of itself.
 * Callers need nothing of libfuse.
 *
 *   ps_fs_new()            what the mount shows
 *   ps_session_start()     a thread runs libfuse's loop over a mounted descriptor; the mount can be asked from now on
 *   ps_session_answers()   a caller has seen it answer: what needs an answering mount is done
 *   ps_session_await()     sleeps until the loop has ended: unmounted, aborted, or kicked
 *   ps_session_finish()    no request is answered late, no file is open any more
 *   ps_session_free()      after the last answer (ps_fs_drain())
 *   ps_fs_free()
 *
 * Ladder of the folder: session; ops, ops_file, ops_xattr; virtual (.penstock/); fs; openmode; passthrough;
 * handshake; requests_in_flight; access_pattern; metrics.
 *
 * Threads: start, await, finish and free from the mount's own thread; answers from any, once; kick from any
 * while the caller knows that finish() has not begun. Blocks: start and kick not, finish for a few seconds at
 * most.
 * Errors: -errno and a text. */
#ifndef PS_FUSE_FUSE_H
#define PS_FUSE_FUSE_H

#include <jansson.h>
#include <linux/ioctl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>

#include "cache.h"
#include "options/options.h"

/* What is shown ------------------------------------------------------------------------------------------ */

struct ps_fs;

struct ps_fs_source {
	char *name; /* of its folder; "": it is the root */
	struct ps_dataset *dataset;
	uint64_t root;
	struct ps_fs *fs; /* set by the mount, as is what follows */
	struct ps_watch watch;
};

/* All is borrowed until free. One source without a name is the root, others have folders. mounts(arg): what
 * all mounts of the daemon are, this one first; the caller owns it. NULL: out of memory. */
struct ps_fs *ps_fs_new(struct ps_cache *cache, struct ps_fs_source *sources, size_t nsources,
        const struct ps_mount_options *options, const char *mountpoint, json_t *(*mounts)(void *arg),
        void *mounts_arg);
void ps_fs_free(struct ps_fs *fs);
/* Waits until every request is answered, at most timeout_ms; false: some are not. */
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

/* Before the first start: what the process's signals have to be for sessions. */
void ps_session_setup(void);

/* fd: what ps_mountfd_mount() gave; taken over, also on failure. */
int ps_session_start(
        struct ps_session *session, struct ps_fs *fs, int fd, dev_t dev, struct ps_error *err) PS_MUST_USE;
void ps_session_answers(struct ps_session *session);
/* Asks the loop to end, open files or not. It may come just before libfuse begins to wait, or while the
 * kernel is notified, which needs the loop: repeat it until session->ended. */
void ps_session_kick(struct ps_session *session);
void ps_session_await(struct ps_session *session);
/* The loop's result. -EDEADLK: reads do not end, and files cannot be closed under them; nothing may be
 * freed. */
int ps_session_finish(struct ps_session *session) PS_MUST_USE;
void ps_session_free(struct ps_session *session);

/* Statistics --------------------------------------------------------------------------------------------- */

/* What a daemon reports of itself and of these mounts (stolen); the fields are those of penstock(1). */
json_t *ps_stats_daemon(struct ps_cache *cache, json_t *mounts);
/* What the mount itself counts, added to what its datasets report. */
void ps_stats_add_mount(struct ps_fs *fs, json_t *mount);
/* As a file; the document is stolen. The caller frees it. NULL: out of memory. */
char *ps_stats_text(json_t *doc);
/* A mount is about to go: what it leaves for the sums of its daemon. */
void ps_stats_mount_ends(const struct ps_fs *fs);

enum {
	PS_METRICS_CACHE = 1,  /* what a daemon has once */
	PS_METRICS_MOUNT = 2,  /* the mount that its document is of */
	PS_METRICS_MOUNTS = 4, /* all that its document reports */
};

/* Stats documents in Prometheus' text format. A series is named after its place in the document: of
 * cache.used_bytes penstock_cache_used_bytes, of the counters with _total, of a mount's penstock_mount_...;
 * what is null, and so not known, is left out. All series of a daemon bear its cache_dir, those of a mount
 * its mountpoint as `mount`, too.
 *
 * documents: an array of what ps_stats_daemon() makes, one of each daemon. up: {MOUNTPOINT: answers, ...}, or
 * NULL. The caller frees the text. NULL: out of memory. Threads: any. Blocks: never. */
char *ps_metrics_text(const json_t *documents, unsigned parts, const json_t *up);

/* Requests by ioctl -------------------------------------------------------------------------------------- */

/* On a descriptor of a mounted file, opened for reading: a read-only mount refuses writing before it could
 * arrive. */
#define PS_IOC_TYPE 0xd7

/* Fetch what is missing of the file, at low priority. Returns at once. */
#define PS_IOC_WARM _IO(PS_IOC_TYPE, 1)
/* The three that change what is cached are for root and the mount's owner: EPERM for others.
 *
 * Drop the file's data from the cache; returns how many bytes were dropped. */
#define PS_IOC_EVICT _IOR(PS_IOC_TYPE, 2, uint64_t)
/* Keep the file's data in the cache. Returns the bytes that this reserved; 0: it was pinned already. ENOSPC:
 * all that is pinned would not fit. */
#define PS_IOC_PIN _IOR(PS_IOC_TYPE, 3, uint64_t)
/* Make it evictable again. Returns the bytes; 0: it was not pinned. */
#define PS_IOC_UNPIN _IOR(PS_IOC_TYPE, 4, uint64_t)
/* What PS_IOC_PIN would return. Changes nothing. */
#define PS_IOC_PIN_NBYTES _IOR(PS_IOC_TYPE, 5, uint64_t)

/* On .penstock/plan: the next bytes of what would be written to it. The plans last as long as the descriptor
 * is open.
 * EINVAL: a line is not of the form; E2BIG, ENOSPC: it is too much; ESTALE: a position of a plan that was
 * dropped, send it again; ENOTTY: the mount's policy follows no plans. loader/order/plan.c has a copy of
 * this: it stands alone. */
#define PS_IOC_TEXT_NBYTES 8184
struct ps_ioc_text {
	uint32_t nbytes;
	char text[PS_IOC_TEXT_NBYTES];
};
#define PS_IOC_PLAN _IOW(PS_IOC_TYPE, 6, struct ps_ioc_text)

/* On the mount's root folder, for root and the mount's owner: list the sources again. Returns when that is
 * done and the kernel has forgotten what it knew of names that changed; EINTR: the listing continues. Other
 * errors: of the listing, and .penstock/stats says more (listing_error). Returns the files there are, and of
 * these how many are new, and how many are gone. */
struct ps_ioc_refreshed {
	uint64_t nfiles, nadded, nvanished;
};
#define PS_IOC_REFRESH _IOR(PS_IOC_TYPE, 7, struct ps_ioc_refreshed)

#endif
