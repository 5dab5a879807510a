/* Eviction policies, and the plans of loaders that they use. They use neither disk nor network; the caller
 * gives the time.
 *
 * Files, from the top: eviction_policy.c (the policies, the choice of victims) uses datasets_in_use.c and
 * plans.c (plans of all ranks); plan_text.c (a line of a plan) uses none of them. policy_private.h is
 * private to this folder. */
#ifndef PS_POLICY_POLICY_H
#define PS_POLICY_POLICY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/hash.h"

/* Policies ----------------------------------------------------------------------------------------------- */

/* An eviction policy chooses the objects to evict from a table of cached items. It uses neither disk nor
 * clock, so the simulator and the tests run the real code.
 *
 * Ownership: the policy owns its copies; plans are borrowed. Threads: one at a time (the store's lock).
 * Locks: that of the plans. Never blocks. Cost: see policy_private.h. */

#define PS_POLICY_DEFAULT "plan"

struct ps_plans;

/* A unit of eviction: an object, or a part of a large one. */
struct ps_policy_item {
	struct ps_id id; /* a part's id differs from its object's */
	uint32_t dataset;
	/* 0: the whole object; n: part n - 1 of an object; ps_policy_part_id() gives the object's id */
	uint32_t part;
	uint64_t nbytes;  /* allocated, or reserved if that is more */
	int64_t opened_s; /* last open */
	uint64_t seq;     /* order of opens, unique for each item; need not survive a restart */
	bool busy;        /* held or pinned: must not be chosen */
};

/* Turns an object's id into the id of one of its parts, or back: the two differ by an xor with the part's
 * number. */
void ps_policy_part_id(struct ps_id *id, uint32_t part);

struct ps_policy_query {
	const struct ps_policy_item *items;
	size_t n;
	uint64_t need_nbytes;   /* more than 0 */
	int64_t now_s;          /* since 1970, as opened_s */
	const struct ps_id *id; /* the object that needs the room; NULL: none */
	uint32_t dataset;       /* of that object */
};

struct ps_policy;

/* The functions of a policy; strings are static. */
struct ps_policy_ops {
	const char *name;
	bool follows_plans;
	struct ps_policy *(*new)(struct ps_plans *plans); /* NULL: out of memory */
	void (*free)(struct ps_policy *policy);
	/* An object of `dataset` was opened at now_s; previous_s: its previous open, or 0. The policy
	 * learns epoch times from this. */
	void (*opened)(struct ps_policy *policy, uint32_t dataset, const struct ps_id *id, int64_t previous_s,
	        int64_t now_s);
	/* Chooses items until their nbytes sum to at least need_nbytes; writes their indexes, in order of
	 * eviction, to victims[0..n), and returns how many. Returns 0 if the items that may be evicted do
	 * not suffice, or are worth more than the new object: then nothing is evicted, and the new object
	 * is streamed. */
	size_t (*choose)(struct ps_policy *policy, const struct ps_policy_query *query, size_t *victims);
};

/* "plan", "lru"; NULL for another name. The table ends with NULL. */
const struct ps_policy_ops *ps_policy_find(const char *name);
extern const struct ps_policy_ops ps_policy_plan, ps_policy_lru;
extern const struct ps_policy_ops *const ps_policies[];

/* Chooses the least recently opened items, whatever the policy: for room that must be made at any price. */
size_t ps_policy_oldest(const struct ps_policy_query *query, size_t *victims);

/* Plans -------------------------------------------------------------------------------------------------- */

/* The plans that loaders have announced: which objects will be needed, and about when.
 *
 *   rank    one rank of one run, as one open descriptor (a feed) announces it; dropped with the feed, or
 *           after PS_PLANS_SILENT_S of silence
 *   epoch   of a rank: its files in about the order of need; each file is a use
 *   file    a name in a plan: a node of a dataset, and the object that this node shows
 *
 * A use is over once the run's position is past it, or once its object was opened while the run was near
 * that place (positions come once a second, and a short epoch takes less time than that). All uses of an
 * epoch have the same time, whatever their place in the epoch. The cache can keep only a part of the
 * objects of an epoch, and every choice of them gives the same number of hits. A choice that ignores the
 * place spreads hits and misses evenly over the epoch, while "the nearest first" would serve one half from
 * the cache and the other from the origin.
 *
 * Every user that may read the mount may announce plans. So ranks, epochs, files and memory are bounded;
 * users other than the mount's owner and root get at most a quarter of ranks and memory.
 *
 * Ownership: the store's. Threads: any. Locks: one, a leaf, taken after the store's. Never blocks. Clock:
 * seconds since 1970, given by the caller. */

#define PS_PLANS_SILENT_S 60
#define PS_PLANS_MAX_RANKS 256
#define PS_PLANS_MAX_EPOCHS 64    /* of a rank */
#define PS_PLANS_MAX_FILES 100000 /* of an epoch */
#define PS_PLANS_MAX_NBYTES (UINT64_C(128) << 20)
#define PS_PLANS_OTHER_USERS_SHARE 4 /* of ranks and bytes: 1/4 of each */
#define PS_PLANS_JOB_LEN 64

struct ps_plans *ps_plans_new(void); /* NULL: out of memory */
void ps_plans_free(struct ps_plans *plans);

/* Announcing plans --------------------------------------------------------------------------------------- */

struct ps_plan_teller {
	uint64_t feed;   /* unique in this run of the daemon */
	bool other_user; /* neither the mount's owner nor root */
	/* the datasets that the plan's files may belong to; borrowed until the feed is dropped */
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

/* Announces the files of an epoch; they replace the epoch's previous ones. -E2BIG: too many epochs or
 * files; -ENOSPC: too many ranks, or bytes; -ENOMEM. After an error the previous files stay. */
int ps_plans_tell(struct ps_plans *plans, const struct ps_plan_teller *teller, const struct ps_plan_who *who,
        const struct ps_plan_file *files, size_t n, double now_s) PS_MUST_USE;
/* Reports the rank's position: it is in who->epoch, and has finished files_done of that epoch's files. Also
 * serves as a heartbeat. -ESTALE: the rank is not known (any more), and its plan must be announced
 * again. */
int ps_plans_position(struct ps_plans *plans, const struct ps_plan_teller *teller,
        const struct ps_plan_who *who, uint64_t files_done, double now_s) PS_MUST_USE;
void ps_plans_drop_feed(struct ps_plans *plans, uint64_t feed);
/* Drops ranks that were silent for PS_PLANS_SILENT_S. */
void ps_plans_expire(struct ps_plans *plans, double now_s);

/* Counts a feed's memory for lines that are not complete yet (nbytes < 0: less). -ENOSPC. */
int ps_plans_charge(struct ps_plans *plans, const struct ps_plan_teller *teller, int64_t nbytes) PS_MUST_USE;

/* ps_plans_nameless: gives the nodes of files whose object is not known yet, from *cursor on (0 at first).
 * ps_plans_name: sets the object of a file. */
size_t ps_plans_nameless(
        struct ps_plans *plans, uint32_t dataset, size_t *cursor, uint64_t *ret_nodes, size_t max);
void ps_plans_name(struct ps_plans *plans, const struct ps_plan_file *file);

/* Queries ------------------------------------------------------------------------------------------------ */

/* True if a rank that reads from this dataset has announced a plan. */
bool ps_plans_any(struct ps_plans *plans, uint32_t dataset);

/* An object was opened; cached: at least a part of it was cached. */
void ps_plans_opened(struct ps_plans *plans, const struct ps_id *object, bool cached);

enum ps_policy_need {
	PS_NEED_UNKNOWN, /* no plan of a present rank has ever named the object */
	PS_NEED_NEVER,   /* a plan named the object, and no use of it is left */
	PS_NEED_PLANNED,
};
struct ps_plan_need {
	double when_s;   /* estimate */
	double margin_s; /* two objects whose times differ by less than this are worth the same */
};
enum ps_policy_need ps_plans_need(
        struct ps_plans *plans, const struct ps_id *object, struct ps_plan_need *ret);

/* The next files of the dataset that are not opened yet, of all ranks, in about the order of need. */
size_t ps_plans_next(struct ps_plans *plans, uint32_t dataset, uint64_t *ret_nodes, size_t max);

/* The section "plans"; the caller owns it. */
json_t *ps_plans_stats(struct ps_plans *plans, double now_s);

/* Plans as text ------------------------------------------------------------------------------------------ */

/* A line of a plan: JSON, described in penstock-mount(1) under PLANS.
 *
 *   {"penstock_plan": 1, "job": "NAME", "rank": 0, "world": 8, "epoch": 3, "files": ["a/x.tar", "a/y.tar"]}
 *   {"penstock_position": 1, "job": "NAME", "rank": 0, "epoch": 3, "files_done": 17}
 *   {"penstock_reads": 1, "files": ["a/x.tar", "a/y.tar"], "from": [0, 81920], "bytes": 3000000}
 *
 * The text may come from any user that may read the mount. So the parser allocates nothing and limits the
 * depth; it overwrites the text. jansson takes up to 1.2 GiB of memory for a line of 16 MiB, and refuses names
 * that are not UTF-8. Threads: any. Never blocks. */

#define PS_PLAN_DEPTH 32 /* of the values of unknown members */
#define PS_PLAN_READS 64 /* offsets of a line; further ones are ignored */

enum ps_plan_line_kind {
	PS_PLAN_LINE_OTHER, /* JSON of another kind, which is ignored */
	PS_PLAN_LINE_EPOCH,
	PS_PLAN_LINE_POSITION,
	PS_PLAN_LINE_READS,
};
struct ps_plan_line {
	enum ps_plan_line_kind kind;
	struct ps_plan_who who;
	uint64_t files_done; /* of an epoch's plan: 0 if the plan does not say */
	/* Of what is read: the offset in each file, 0 for files after these, and how many bytes of each are
	 * needed; 0: not known. */
	uint64_t from[PS_PLAN_READS];
	uint32_t nfrom;
	uint64_t nbytes;
	/* Names, one after another, each terminated by NUL; they point into the parsed text. */
	const char *files;
	size_t nfiles;
};

/* text[0..n) has no NUL. -EINVAL: not a JSON object, or a plan or position with a missing or invalid
 * member. */
int ps_plan_line_parse(char *text, size_t n, struct ps_plan_line *ret) PS_MUST_USE;

#endif
