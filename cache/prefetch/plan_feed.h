/* Plans, line by line. Part of the cache's facade: what cache.h says of ownership, threads, blocking and errors holds here,
 * too. */
#ifndef PS_PREFETCH_PLAN_FEED_H
#define PS_PREFETCH_PLAN_FEED_H

#include <stdbool.h>
#include <stddef.h>

#include "base/cleanup.h"

struct ps_dataset;

/* What a loader tells of the files it will read; policy/plan_text.h has the form. A feed is one teller; what it told
 * is dropped with it, or when it was silent for PS_PLANS_SILENT_S. */
struct ps_plan_feed;
/* Where its names lie: a folder of the mount, or "" where the mount shows one dataset. */
struct ps_plan_source {
	const char *name; /* borrowed as long as the feed */
	struct ps_dataset *dataset;
};
/* n > 0, of one cache. stranger: neither the mount's owner nor root; may tell less. -EOPNOTSUPP: the policy follows no
 * plans. */
int ps_plan_feed_new(const struct ps_plan_source *sources, size_t n, bool stranger,
        struct ps_plan_feed **ret) PS_MUST_USE;
/* The next bytes of its lines, cut anywhere; one call at a time. All lines in them are taken, and the first error is
 * returned: -EINVAL: a line is not of the form; -E2BIG: a line, or the files or epochs of a rank; -ENOSPC: too much
 * is told by all; -ESTALE: a position of a rank that was dropped: tell it anew. Blocks on the index. */
int ps_plan_feed_write(struct ps_plan_feed *feed, const char *text, size_t n) PS_MUST_USE;
void ps_plan_feed_free(struct ps_plan_feed *feed);

#endif
