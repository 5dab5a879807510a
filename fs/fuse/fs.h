/* One mount as the FUSE callbacks see it: its sources, its options, its open files.
 *
 * Node ids: FUSE's root, 1, is the root node of the only source or, if sources have names, the top folder,
 * which has a folder for each source. 2 to PS_NODE_FIRST - 1 are the virtual files (virtual_files.c). All
 * others are node numbers of the cache; each names one version of one object for ever, so there is no table
 * of names here and nothing to forget.
 *
 *   63        48 47          40 39                    0
 *   |  alias    |  source      |  number of the node  |     alias: openmode.h; source: whose node it is
 *
 * ps_fs_node() and ps_fs_ino() convert between node ids and the cache's node numbers. Ownership: a ps_fs
 * belongs to the mount that made it. Open files belong to the kernel until it releases them;
 * ps_fs_close_all() closes those that it never released. Threads: any, but new, free, watch, unwatch and
 * close_all are called by the mount's own thread. Locks: fs.lock covers the list of open files and the
 * state of notifications.
 *
 * The datasets' threads notify the kernel of names that changed. The kernel blocks a notification while a
 * LOOKUP in the same folder waits for an answer, so the loop must serve until the notification is done:
 * call ps_fs_hush() before the loop is ended. */
#ifndef PS_FUSE_FS_H
#define PS_FUSE_FS_H

#include <pthread.h>
#include <sys/stat.h>

#include "fuse/access_pattern.h"
#include "base/list.h"
#include "cache.h"
#include "fuse/fuse.h"
#include "fuse/mount_state.h"
#include "fuse/openmode.h"
#include "options/options.h"
#include "fuse/passthrough.h"
#include "fuse/requests_in_flight.h"

/* How long the kernel may cache entries and attributes: long, since a node never changes. Once a node is
 * superseded, OPEN answers ESTALE. */
#define PS_FS_TIMEOUT_S 1e6
/* How long the kernel may cache that a name is missing: the next listing may add the name. */
#define PS_FS_NEGATIVE_TIMEOUT_S 1.0
#define PS_FS_BLKSIZE (1 << 20)
enum ps_open_kind {
	PS_OPEN_FILE,
	PS_OPEN_DIR,
	PS_OPEN_VIRTUAL,
	PS_OPEN_SNAPSHOT, /* of member_view.h: not an open file, but has a slot like one (mount_state.h) */
};

/* What fi->fh stands for: ps_op_open(). */
struct ps_open {
	struct ps_list link; /* fs.opens */
	uint64_t fh;
	enum ps_open_kind kind;
	fuse_ino_t ino;
	struct ps_handle *handle; /* PS_OPEN_FILE */
	_Atomic bool allowed;     /* as in its slot (mount_state.h) */
	bool in_mode;             /* counted in fs.openmodes, as `mode` */
	enum ps_open_mode mode;
	struct ps_handle_reads reads;
	struct ps_dir *dir;     /* PS_OPEN_DIR; NULL for a virtual folder */
	pthread_mutex_t reader; /* one reader at a time of a folder or a virtual file; freeing waits for it */
	char *text;             /* PS_OPEN_VIRTUAL */
	size_t text_len;
	/* of .penstock/plan, from the first PS_IOC_PLAN on; used by fs.background's thread */
	struct ps_plan_feed *feed;
};

#define PS_SOURCE_SHIFT 40
struct ps_fs {
	struct ps_passthrough passthrough; /* first: the session's user data begins with its handshake */
	struct ps_cache *cache;
	struct ps_fs_source *sources;
	size_t nsources;
	bool named; /* the sources have folders of their own */
	const struct ps_mount_options *options;
	const char *mountpoint;
	int64_t mounted_at_s;
	/* Statistics of all mounts of the daemon, this one first; the caller owns the result. */
	json_t *(*mounts)(void *arg);
	void *mounts_arg;
	struct fuse_session *session;
	struct ps_mount_state state; /* what the next daemon of this mount needs */
	bool resumed;                /* an earlier daemon has begun this mount */
	bool kept;                   /* the keeper has the descriptor, too; set before the loop begins */
	struct ps_openmode_table openmodes;
	struct ps_access_pattern access_pattern;
	_Atomic size_t read_ahead_nbytes; /* the kernel's, for this mount */
	_Atomic uint64_t nhanded_over;    /* answers to PS_IOC_DATA_FILE */
	struct ps_inflight_table inflight;
	struct ps_background background;
	pthread_mutex_t lock; /* opens, closing, hushed, nnotifying */
	struct ps_list opens;
	bool closing;                /* an open that still succeeds is closed at once */
	bool hushed;                 /* no new notification begins */
	struct ps_member_view *view; /* of a mount that shows members; member_view.h */
	unsigned nnotifying;
	/* reads that the daemon answered; it does not see the kernel's own reads by passthrough */
	_Alignas(64) struct ps_read_stats reads;
};

/* Invalidates a name in the kernel, also a negative entry; open files stay open. The kernel takes the
 * folder's lock, so a LOOKUP that was answered earlier has ended when this returns. len 0: only the
 * folder's listing. No effect once the fs is hushed. */
void ps_fs_invalidate(struct ps_fs *fs, fuse_ino_t parent, const char *name, size_t len);

/* From here on the kernel is notified of names that change. Call before the session's loop begins. */
void ps_fs_watch(struct ps_fs *fs);
/* Call after the loop has ended. */
void ps_fs_unwatch(struct ps_fs *fs);
/* Stops new notifications. True: no earlier notification is still under way. Never blocks. */
bool ps_fs_hush(struct ps_fs *fs);

/* Makes an open file as a copy of `like` and adds it to the list and to the mount's state; takes over the
 * contents of `like`, also on failure. backing_id: of PS_MODE_PASSED. unique: the number of the OPEN that
 * is being answered (ps_handshake_request()); 0: none. NULL: out of memory, or the mount is closing its
 * files. */
struct ps_open *ps_fs_open_new(struct ps_fs *fs, const struct ps_open *like, int backing_id, uint64_t unique);
/* Call after an OPEN was answered with `fh`; rc: the result of that reply. Closes the file again if the
 * kernel does not want it any more. The open file may be closed by another thread meanwhile. */
void ps_fs_open_answered(struct ps_fs *fs, uint64_t fh, uint64_t unique, int rc);
/* Call before handling an OPEN that the kernel had sent to an earlier daemon, too: closes what that daemon
 * had opened for it. */
void ps_fs_open_again(struct ps_fs *fs, uint64_t unique);
/* If the mount's credentials may read the open file, records that for the next daemon, too. */
void ps_fs_open_allowed(struct ps_fs *fs, struct ps_open *open);
void ps_fs_open_free(struct ps_fs *fs, struct ps_open *open);
/* Adds an open file, whose slot exists, to the list. False: the mount is closing its files. */
bool ps_fs_open_list(struct ps_fs *fs, struct ps_open *open);
/* Closes all files that are still open. Call after the loop has ended and all reads are answered. */
void ps_fs_close_all(struct ps_fs *fs);

/* True for the top folder, which is not a node of the cache; false if a single source is the root. */
bool ps_fs_is_top(const struct ps_fs *fs, fuse_ino_t ino);
/* For all other node ids but the virtual ones: the source, and the node's number in it. */
const struct ps_fs_source *ps_fs_source(const struct ps_fs *fs, fuse_ino_t ino);
uint64_t ps_fs_node(const struct ps_fs *fs, fuse_ino_t ino);
/* The bits of a node id that name the source; NULL: none. */
uint64_t ps_fs_source_bits(const struct ps_fs *fs, const struct ps_fs_source *source);
fuse_ino_t ps_fs_ino(struct ps_fs *fs, const struct ps_fs_source *source, uint64_t node);
/* The root folder of a source. */
void ps_fs_root_attr(const struct ps_fs_source *source, struct ps_attr *ret);
/* source NULL: a virtual node. */
void ps_fs_stat(const struct ps_fs *fs, const struct ps_fs_source *source, const struct ps_attr *attr,
        struct stat *ret);
/* The errno that the kernel is given for an errno of the cache. */
int ps_fs_errno(int errnum);

#endif
