/* One mount as the FUSE callbacks see it: what it shows, how, and what is open in it.
 *
 * Node ids: FUSE's root 1 stands for the root node of the only source or, where sources have names, for a
 * folder of these; 2 to PS_NODE_FIRST - 1 are the virtual files (virtual.h); all others are the cache's own,
 * each naming one version of one object for ever, so there is no table of names here and nothing to forget.
 *
 *   63        48 47          40 39                    0
 *   |  alias    |  source      |  number of the node  |     alias: openmode.h; source: whose node it is
 *
 * ps_fs_node() and ps_fs_ino() know. Ownership: a ps_fs belongs to the mount that made it; open files belong
 * to the kernel until it releases them, and what it never released is closed by ps_fs_close_all(). Threads:
 * any, but new,
 * free, watch, unwatch and close_all.   Locks: fs.lock covers the list of open files, and what of notifications is
 * said below.
 *
 * Notifications (names that changed) are written by the datasets' threads. The kernel holds one up while a
 * LOOKUP in the same folder waits for us, so the loop serves until it is done: ps_fs_hush() before the loop
 * is ended. */
#ifndef PS_FUSE_FS_H
#define PS_FUSE_FS_H

#include <pthread.h>
#include <sys/stat.h>

#include "fuse/access_pattern.h"
#include "base/list.h"
#include "cache.h"
#include "fuse/fuse.h"
#include "fuse/openmode.h"
#include "options/options.h"
#include "fuse/passthrough.h"
#include "fuse/requests_in_flight.h"

/* The kernel may keep what it was given: a node never changes, and OPEN answers ESTALE once it is superseded.
 */
#define PS_FS_TIMEOUT_S 1e6
/* A name that is not there may appear with the next listing. */
#define PS_FS_NEGATIVE_TIMEOUT_S 1.0
#define PS_FS_BLKSIZE (1 << 20)
enum ps_open_kind { PS_OPEN_FILE, PS_OPEN_DIR, PS_OPEN_VIRTUAL };

/* What fi->fh points at. */
struct ps_open {
	struct ps_list link; /* fs.opens */
	enum ps_open_kind kind;
	fuse_ino_t ino;
	struct ps_handle *handle; /* PS_OPEN_FILE */
	bool in_mode;             /* counted in fs.openmodes, as: */
	enum ps_open_mode mode;
	struct ps_handle_reads reads;
	struct ps_dir *dir;     /* PS_OPEN_DIR; NULL for a virtual folder */
	pthread_mutex_t reader; /* of a folder or a virtual file, one at a time; freeing waits for it */
	char *text;             /* PS_OPEN_VIRTUAL */
	size_t text_len;
	struct ps_plan_feed *feed; /* of .penstock/plan, once something was written to it; fs.background's */
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
	/* What all mounts of the daemon are, this one first; the caller owns it. */
	json_t *(*mounts)(void *arg);
	void *mounts_arg;
	struct fuse_session *session;
	struct ps_openmode_table openmodes;
	struct ps_access_pattern access_pattern;
	_Atomic size_t read_ahead_nbytes; /* the kernel's, for this mount */
	struct ps_inflight_table inflight;
	struct ps_background background;
	pthread_mutex_t lock; /* opens, closing, hushed, nnotifying */
	struct ps_list opens;
	bool closing; /* an open that succeeds now is closed at once */
	bool hushed;  /* no further notification begins */
	unsigned nnotifying;
	_Alignas(64) struct ps_read_stats reads; /* through the daemon; the kernel's own are not known */
};

/* From here on the kernel is notified of names that change: before the session's loop begins. */
void ps_fs_watch(struct ps_fs *fs);
/* After the loop has ended. */
void ps_fs_unwatch(struct ps_fs *fs);
/* True: no notification is under way, and none will be. Blocks never. */
bool ps_fs_hush(struct ps_fs *fs);

/* Makes and lists an open file; takes over what `like` holds, also on failure (NULL: out of memory or
 * closing). */
struct ps_open *ps_fs_open_new(struct ps_fs *fs, const struct ps_open *like);
void ps_fs_open_free(struct ps_fs *fs, struct ps_open *open);
/* Closes what is still open. Call after the loop has ended and all reads have been answered. */
void ps_fs_close_all(struct ps_fs *fs);

/* The folder of the sources' folders, which is no node of the cache. */
bool ps_fs_is_top(const struct ps_fs *fs, fuse_ino_t ino);
/* Of all others but the virtual ones: whose node it is, and its number there. */
const struct ps_fs_source *ps_fs_source(const struct ps_fs *fs, fuse_ino_t ino);
uint64_t ps_fs_node(const struct ps_fs *fs, fuse_ino_t ino);
fuse_ino_t ps_fs_ino(struct ps_fs *fs, const struct ps_fs_source *source, uint64_t node);
/* The root folder of a source. */
void ps_fs_root_attr(const struct ps_fs_source *source, struct ps_attr *ret);
/* source NULL: of a virtual node. */
void ps_fs_stat(const struct ps_fs *fs, const struct ps_fs_source *source, const struct ps_attr *attr,
        struct stat *ret);
/* What the kernel gets for an errno of the cache. */
int ps_fs_errno(int errnum);

#endif
