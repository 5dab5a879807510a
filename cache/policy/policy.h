/* What is evicted, and what the plans of loaders say of it. Pure: no disk, no network, the caller's clock.
 *
 * Files, from the top: eviction_policy.c (the policies, the choice of victims) uses datasets_in_use.c and
 * plans.c (plans of all ranks); plan_text.c (a line of a plan) uses none of them. policy_private.h is the
 * folder's own. */
#ifndef PS_POLICY_POLICY_H
#define PS_POLICY_POLICY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/hash.h"

/* Policies ----------------------------------------------------------------------------------------------- */

/* Which object is evicted first. Pure decisions over a table of what is cached: no disk, no clock of
 * its own, so the simulator and the tests run the real code.
 *
 * Ownership: the policy owns its copies; plans are borrowed. Threads: one at a time (the store's lock).
 * Locks: that of the plans. Blocks: never. Cost: see policy_private.h. */

#define PS_POLICY_DEFAULT "plan"

struct ps_plans;

/* What is cached, and may go: an object, or a part of a large one. */
struct ps_policy_item {
	struct ps_id id; /* of the item; a part's differs from its object's */
	uint32_t dataset;
	uint32_t part;   /* 0: the whole object; n: its part n - 1, and ps_policy_object_id() says of which */
	uint64_t nbytes; /* allocated, or reserved if that is more */
	int64_t opened_s; /* last open */
	uint64_t seq;     /* orders opens, each item has another; need not survive a restart */
	bool busy;        /* in use: must not be chosen */
};

/* Parts have ids of their own: their object's, xor the part. Does it and undoes it. */
void ps_policy_part_id(struct ps_id *id, uint32_t part);

struct ps_policy_query {
	const struct ps_policy_item *items;
	size_t n;
	uint64_t need_nbytes;   /* more than 0 */
	int64_t now_s;          /* since 1970, as opened_s */
	const struct ps_id *id; /* the object that wants in; NULL: room for any */
	uint32_t dataset;       /* of it */
};

struct ps_policy;

/* Prior knowledge, all strings borrowed for ever. */
struct ps_policy_ops {
	const char *name;
	bool follows_plans;
	struct ps_policy *(*new)(struct ps_plans *plans); /* NULL: out of memory */
	void (*free)(struct ps_policy *policy);
	/* An object of `dataset` was opened at now_s; previous_s: when before, or 0. Teaches epoch times. */
	void (*opened)(struct ps_policy *policy, uint32_t dataset, const struct ps_id *id, int64_t previous_s,
	        int64_t now_s);
	/* Chooses items until their nbytes sum to at least what is needed; writes indexes in order of
	 * eviction to victims[0..n) and returns how many. Returns 0 if what may go does not suffice, or is
	 * worth more than what wants in: nothing is evicted then and the new object is streamed. */
	size_t (*choose)(struct ps_policy *policy, const struct ps_policy_query *query, size_t *victims);
};

/* "plan", "scan", "lru"; NULL for another name. The table ends with NULL. */
const struct ps_policy_ops *ps_policy_find(const char *name);
extern const struct ps_policy_ops ps_policy_plan, ps_policy_scan, ps_policy_lru;
extern const struct ps_policy_ops *const ps_policies[];

/* The least recently opened, whatever any policy says of them: for what must be had. */
size_t ps_policy_oldest(const struct ps_policy_query *query, size_t *victims);

/* Plans -------------------------------------------------------------------------------------------------- */

/* The plans that loaders have published: which objects will be needed, and about when.
 *
 *   rank    one rank of one run, as one open descriptor (a feed) announces it; dropped with the feed, or
 *           after PS_PLANS_SILENT_S of silence
 *   epoch   of a rank: its files in about the order of need, each of them a use
 *   file    what a plan names: a node of a dataset, and the object that this node shows
 *
 * A use is over when the run's position is past it, or when its object was opened while the run was about
 * there (positions come once a second, short epochs pass in less). When a use is needed follows from its
 * epoch, not by its place in there: of what is needed in one epoch the cache can keep only so much, and all
 * choices give the same number of hits; one that ignores the place spreads them, and the misses, evenly over
 * the epoch, where "the nearest first" would serve one half of it from the cache and the other from the
 * origin.
 *
 * Every user that may read the mount may announce plans, so all is bounded: ranks, epochs, files, and memory,
 * of which who is neither the mount's owner nor root has a quarter at most.
 *
 * Ownership: the store's. Threads: any. Locks: one, a leaf below the store's. Blocks: never.
 * Clock: seconds since 1970, given by the caller. */

#define PS_PLANS_SILENT_S 60
#define PS_PLANS_MAX_RANKS 256
#define PS_PLANS_MAX_EPOCHS 64    /* of a rank */
#define PS_PLANS_MAX_FILES 100000 /* of an epoch */
#define PS_PLANS_MAX_NBYTES (UINT64_C(128) << 20)
#define PS_PLANS_OTHER_USERS_SHARE 4 /* of ranks and bytes: one in this many */
#define PS_PLANS_JOB_LEN 64

struct ps_plans *ps_plans_new(void); /* NULL: out of memory */
void ps_plans_free(struct ps_plans *plans);

/* Telling ------------------------------------------------------------------------------------------------ */

struct ps_plan_teller {
	uint64_t feed;   /* unique in this run of the daemon */
	bool other_user; /* neither the mount's owner nor root */
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

/* The files of an epoch, which replace what was announced of it before. -E2BIG: too many epochs or files;
 * -ENOSPC: too many ranks, or bytes; -ENOMEM. What was announced before stays, then. */
int ps_plans_tell(struct ps_plans *plans, const struct ps_plan_teller *teller, const struct ps_plan_who *who,
        const struct ps_plan_file *files, size_t n, double now_s) PS_MUST_USE;
/* The rank is in who->epoch and through with this many of its files. Also a sign of life. -ESTALE: there is
 * no such rank (any more): it has to be announced again. */
int ps_plans_position(struct ps_plans *plans, const struct ps_plan_teller *teller,
        const struct ps_plan_who *who, uint64_t files_done, double now_s) PS_MUST_USE;
void ps_plans_drop_feed(struct ps_plans *plans, uint64_t feed);
/* Drops who was silent for too long. */
void ps_plans_expire(struct ps_plans *plans, double now_s);

/* Counts memory that a feed needs for what is not announced yet (nbytes < 0: it does no longer). -ENOSPC. */
int ps_plans_charge(struct ps_plans *plans, const struct ps_plan_teller *teller, int64_t nbytes) PS_MUST_USE;

/* Files whose object is not known yet, from *cursor on (0 at first); and what it turned out to be. */
size_t ps_plans_nameless(
        struct ps_plans *plans, uint32_t dataset, size_t *cursor, uint64_t *ret_nodes, size_t max);
void ps_plans_name(struct ps_plans *plans, const struct ps_plan_file *file);

/* Asking ------------------------------------------------------------------------------------------------- */

/* Does any rank that announces plans read from this dataset? */
bool ps_plans_any(struct ps_plans *plans, uint32_t dataset);

/* An object was opened; it was cached, at least in part. */
void ps_plans_opened(struct ps_plans *plans, const struct ps_id *object, bool cached);

enum ps_policy_need {
	PS_NEED_UNKNOWN, /* no plan of a living rank ever named it */
	PS_NEED_NEVER,   /* one did, and none does any more */
	PS_NEED_PLANNED,
};
struct ps_plan_need {
	double when_s;   /* about */
	double margin_s; /* what is needed less than so much later is not worth less */
};
enum ps_policy_need ps_plans_need(
        struct ps_plans *plans, const struct ps_id *object, struct ps_plan_need *ret);

/* The next files of the dataset that are not opened yet, of each rank, in about the order of need. */
size_t ps_plans_next(struct ps_plans *plans, uint32_t dataset, uint64_t *ret_nodes, size_t max);

/* {"ranks": [{"job", "rank", "world", "epoch", "files_done", "epochs", "files", "age_seconds"}], "active",
 *  "memory_bytes", "foreseen_opens", "foreseen_hits", "unforeseen_opens", "expired", "refused"}; the caller
 * owns it. */
json_t *ps_plans_stats(struct ps_plans *plans, double now_s);

/* Plans as text ------------------------------------------------------------------------------------------ */

/* A line of what a loader announces: JSON, as `man penstock-mount` has it under PLANS.
 *
 *   {"penstock_plan": 1, "job": "NAME", "rank": 0, "world": 8, "epoch": 3, "files": ["a/x.tar", "a/y.tar"]}
 *   {"penstock_position": 1, "job": "NAME", "rank": 0, "epoch": 3, "files_done": 17}
 *
 * The text is of anybody who may read the mount: nothing is allocated, nothing is deep, the text is
 * overwritten. Threads: any. Blocks: never. */

#define PS_PLAN_DEPTH 32 /* of members that are passed over */

enum ps_plan_line_kind {
	PS_PLAN_LINE_OTHER, /* JSON, but of neither kind: a reader ignores it */
	PS_PLAN_LINE_EPOCH,
	PS_PLAN_LINE_POSITION,
};
struct ps_plan_line {
	enum ps_plan_line_kind kind;
	struct ps_plan_who who;
	uint64_t files_done;
	/* Names, each ended by NUL, one after the other: in the text that was parsed. */
	const char *files;
	size_t nfiles;
};

/* text[0..n) has no NUL. -EINVAL: no JSON object, or one of ours that lacks a member or has a bad one. */
int ps_plan_line_parse(char *text, size_t n, struct ps_plan_line *ret) PS_MUST_USE;

#endif
