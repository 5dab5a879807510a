/* The plans that loaders have published: which objects will be needed, and about when.
 *
 *   rank    one rank of one run, as one open descriptor (a feed) tells of it; dropped with the feed, or
 *           after PS_PLANS_SILENT_S of silence
 *   epoch   of a rank: its files in about the order of need, each of them a use
 *   file    what a plan names: a node of a dataset, and the object that this node shows
 *
 * A use is over when the run's position is past it, or when its object was opened while the run was about
 * there (positions come once a second, short epochs pass in less). When a use is needed is told by its epoch,
 * not by its place in there: of what is needed in one epoch the cache can keep only so much, and all choices
 * give the same number of hits; one that ignores the place spreads them, and the misses, evenly over the
 * epoch, where "the nearest first" would serve one half of it from the cache and the other from the origin.
 *
 * Whoever may read the mount may tell plans, so all is bounded: ranks, epochs, files, and memory, of which
 * who is neither the mount's owner nor root has a quarter at most.
 *
 * Ownership: the store's. Threads: any. Locks: one, a leaf below the store's. Blocks: never.
 * Clock: seconds since 1970, given by the caller. */
#ifndef PS_POLICY_PLANS_H
#define PS_POLICY_PLANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "base/cleanup.h"
#include "base/hash.h"

#define PS_PLANS_SILENT_S 60
#define PS_PLANS_MAX_RANKS 256
#define PS_PLANS_MAX_EPOCHS 64    /* of a rank */
#define PS_PLANS_MAX_FILES 100000 /* of an epoch */
#define PS_PLANS_MAX_NBYTES (UINT64_C(128) << 20)
#define PS_PLANS_STRANGERS_SHARE 4 /* of ranks and bytes: one in so many */
#define PS_PLANS_JOB_LEN 64

struct ps_plans;

struct ps_plans *ps_plans_new(void); /* NULL: out of memory */
void ps_plans_free(struct ps_plans *plans);

/* Telling ---------------------------------------------------------------------------------------- */

struct ps_plan_teller {
	uint64_t feed; /* unique in this run of the daemon */
	bool stranger; /* neither the mount's owner nor root */
	/* Of which its files may be; borrowed until the feed is dropped. */
	const uint32_t *datasets;
	size_t ndatasets;
};
struct ps_plan_who {
	char job[PS_PLANS_JOB_LEN];
	uint32_t rank, world;
	uint64_t epoch;
};
struct ps_plan_file {
	uint64_t node;
	uint32_t dataset;
	struct ps_id id; /* of the object; all zero: not known yet */
};

/* The files of an epoch, which replace what was told of it before. -E2BIG: too many epochs or files;
 * -ENOSPC: too many ranks, or bytes; -ENOMEM. What was told before stays, then. */
int ps_plans_tell(struct ps_plans *plans, const struct ps_plan_teller *teller, const struct ps_plan_who *who,
        const struct ps_plan_file *files, size_t n, double now_s) PS_MUST_USE;
/* The rank is in who->epoch and through with so many of its files. Also a sign of life. -ESTALE: there is no
 * such rank (any more): it has to be told anew. */
int ps_plans_position(struct ps_plans *plans, const struct ps_plan_teller *teller,
        const struct ps_plan_who *who, uint64_t files_done, double now_s) PS_MUST_USE;
void ps_plans_drop_feed(struct ps_plans *plans, uint64_t feed);
/* Drops who was silent for too long. */
void ps_plans_expire(struct ps_plans *plans, double now_s);

/* Counts memory that a feed needs for what is not told yet (nbytes < 0: it does no longer). -ENOSPC. */
int ps_plans_charge(struct ps_plans *plans, const struct ps_plan_teller *teller, int64_t nbytes) PS_MUST_USE;

/* Files whose object is not known yet, from *cursor on (0 at first); and what it turned out to be. */
size_t ps_plans_nameless(
        struct ps_plans *plans, uint32_t dataset, size_t *cursor, uint64_t *ret_nodes, size_t max);
void ps_plans_name(struct ps_plans *plans, const struct ps_plan_file *file);

/* Asking ----------------------------------------------------------------------------------------- */

/* Does any rank that tells plans read from this dataset? */
bool ps_plans_any(struct ps_plans *plans, uint32_t dataset);

/* An object was opened; it was cached, at least in part. */
void ps_plans_opened(struct ps_plans *plans, const struct ps_id *object, bool cached);

enum ps_need {
	PS_NEED_UNKNOWN, /* no plan of a living rank ever named it */
	PS_NEED_NEVER,   /* one did, and none does any more */
	PS_NEED_PLANNED,
};
struct ps_plan_need {
	double when_s;   /* about */
	double margin_s; /* what is needed less than so much later is not worth less */
};
enum ps_need ps_plans_need(struct ps_plans *plans, const struct ps_id *object, struct ps_plan_need *ret);

/* The next files of the dataset that nobody has opened yet, of each rank, in about the order of need. */
size_t ps_plans_next(struct ps_plans *plans, uint32_t dataset, uint64_t *ret_nodes, size_t max);

/* {"ranks": [{"job", "rank", "world", "epoch", "files_done", "epochs", "files", "age_seconds"}], "active",
 *  "memory_bytes", "foreseen_opens", "foreseen_hits", "unforeseen_opens", "expired", "refused"}; the caller
 * owns it. */
json_t *ps_plans_stats(struct ps_plans *plans, double now_s);

#endif
