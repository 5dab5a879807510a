/* Stats documents in Prometheus' text format. A series is named after its place in the document: of cache.used_bytes
 * penstock_cache_used_bytes, of the counters with _total, of a mount's penstock_mount_...; what is null, and so not
 * known, is left out. All series of a daemon bear its cache_dir, those of a mount its mountpoint as `mount`, too.
 * Threads: any. Blocks: never. */
#ifndef PS_FUSE_METRICS_H
#define PS_FUSE_METRICS_H

#include <jansson.h>

enum {
	PS_METRICS_CACHE = 1,  /* what a daemon has once */
	PS_METRICS_MOUNT = 2,  /* the mount that its document is of */
	PS_METRICS_MOUNTS = 4, /* all that its document tells of */
};

/* documents: an array of what ps_stats_daemon() makes, one of each daemon. up: {MOUNTPOINT: answers, ...}, or NULL. The
 * caller frees the text. NULL: out of memory. */
char *ps_metrics_text(const json_t *documents, unsigned parts, const json_t *up);

#endif
