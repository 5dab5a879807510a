/* What a mount tells of itself: one JSON document, and the same numbers for Prometheus.
 * Ownership: texts belong to the caller (free). NULL: out of memory. Threads: any. Blocks: never. */
#ifndef PS_FUSE_STATS_H
#define PS_FUSE_STATS_H

#include <stdbool.h>

#include <jansson.h>

struct ps_cache;
struct ps_fs;

/* "mounts" are all of the daemon, the one that is asked first.
 * {"version", "pid", "mounts": [{mountpoint, mounted_at, source, files, ...}], "cache": {...}, "origin":
 * {...}, "reads": {...}, "opens": {"passed", "direct", "cached"}, "passthrough": {"active", "reason",
 * "bytes": null, "opens", "open"}, "plans": ps_plans_stats() or null}
 * Not owner: for others than root and the mount's owner; nothing of other mounts but sums. */
char *ps_stats_json(struct ps_fs *fs, bool owner);
/* For Prometheus: of this mount; and what its daemon has once, whichever mount is asked. */
char *ps_stats_metrics(struct ps_fs *fs, bool owner);
char *ps_stats_cache_metrics(struct ps_fs *fs, bool owner);
/* The part "plans" of it. */
char *ps_stats_plans(struct ps_fs *fs, bool owner);

/* A mount is about to go: what it leaves for the sums of its daemon. */
void ps_stats_mount_ends(const struct ps_fs *fs);

/* What the mount itself counts, added to what its datasets tell. */
void ps_stats_add_mount(struct ps_fs *fs, json_t *mount);
/* What concerns all mounts of a daemon, and these (stolen). */
json_t *ps_stats_daemon(struct ps_cache *cache, json_t *mounts);
/* As a file; the document is stolen. */
char *ps_stats_text(json_t *doc);

#endif
