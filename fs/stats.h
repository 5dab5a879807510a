/* What a mount tells of itself: one JSON document, and the same numbers for Prometheus.
 * Ownership: texts belong to the caller (free). NULL: out of memory. Threads: any. Blocks: never. */
#ifndef PS_STATS_H
#define PS_STATS_H

#include <jansson.h>

struct ps_fs;

/* {"version", "pid", "mounts": [{mountpoint, mounted_at, source, files, ...}], "cache": {...}, "origin":
 * {...}, "reads": {...}, "opens": {"passed", "direct", "cached"}, "passthrough": {"active", "reason",
 * "bytes": null, "opens", "open"}} */
char *ps_stats_json(struct ps_fs *fs);
char *ps_stats_metrics(struct ps_fs *fs);

#endif
