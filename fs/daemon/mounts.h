/* The penstock mounts of this mount namespace, from /proc/self/mountinfo: nothing here touches the mounts
 * themselves, so nothing hangs on a wedged one, but for what says that it asks the daemon.
 *
 * Ownership: a list and its strings belong to the caller until ps_mounts_fini(). Threads: one. */
#ifndef PS_DAEMON_MOUNTS_H
#define PS_DAEMON_MOUNTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

struct ps_mount_info {
	unsigned long long mnt_id;
	unsigned dev_major, dev_minor;
	char *mountpoint, *fstype, *source; /* unescaped */
	uid_t uid; /* whose mount it is; (uid_t)-1: not said */
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

/* What distinguishes a mount from those before and after it on the same path: their device numbers may be equal,
 * for the kernel uses a number again. All 0: there is no penstock mount. */
struct ps_mount_id {
	dev_t dev;
	uint64_t number; /* unique while the machine runs from Linux 6.8 on; before, one of the mounts there are */
};

static inline bool ps_mount_id_same(struct ps_mount_id a, struct ps_mount_id b)
{
	return a.number && a.dev == b.dev && a.number == b.number;
}

/* Of the penstock mount on exactly this path. */
struct ps_mount_id ps_mounts_id(const char *mountpoint);
/* The number of the mount that an O_PATH descriptor of its root belongs to; 0: it cannot be known. Asks no daemon. */
uint64_t ps_mounts_number(int fd);

/* "\040" and the like to bytes, in place. */
void ps_mounts_unescape(char *s);

/* The path of an argument as mountinfo spells it. Resolves links of the parent folders, not the last part,
 * which may be a wedged mount. The caller frees it. */
int ps_mounts_resolve(const char *arg, char **ret_path, struct ps_error *err) PS_MUST_USE;

/* resolve, read and find in one: -EINVAL (-ENOENT) and a text when `arg` is no penstock mount. On success the caller
 * frees *ret (ps_mounts_fini) and *ret_info points into it. */
int ps_mounts_lookup(const char *arg, struct ps_mounts *ret, const struct ps_mount_info **ret_info,
        struct ps_error *err) PS_MUST_USE;

/* The mount's own .penstock/stats, also of another user's if we are root. Asks the daemon: -ETIMEDOUT, -ENOTCONN. */
int ps_mounts_stats(const struct ps_mount_info *info, int timeout_ms, json_t **ret) PS_MUST_USE;
/* Of all mounts within timeout_ms: an array of mounts->n, the caller's to free; a document where rc is 0. NULL: out of
 * memory. */
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

#endif
