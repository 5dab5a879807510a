/* Which object goes when room is needed. Pure decisions over a table of what is cached: no disk, no clock of
 * its own, so the simulator and the tests run the real code.
 *
 * Ownership: the policy owns its copies; plans are borrowed. Threads: one at a time (the store's lock).
 * Locks: that of the plans. Blocks: never. Cost: see victims.h. */
#ifndef PS_POLICY_POLICY_H
#define PS_POLICY_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"

#define PS_POLICY_DEFAULT "plan"

struct ps_plans;

/* What is cached, and may go: an object, or a part of a large one. */
struct ps_policy_item {
	struct ps_id id; /* of the item; a part's differs from its object's */
	uint32_t dataset;
	uint32_t part; /* 0: the whole object; n: its part n - 1, and ps_policy_object_id() tells of which */
	uint64_t nbytes;  /* allocated, or reserved if that is more */
	int64_t opened_s; /* last open */
	uint64_t seq;     /* orders opens, each item has another; need not survive a restart */
	bool busy;        /* somebody holds it: must not be chosen */
};

/* Parts have ids of their own: their object's, xor the part. Does it and undoes it. */
void ps_policy_part_id(struct ps_id *id, uint32_t part);
struct ps_id ps_policy_object_id(const struct ps_policy_item *item);

struct ps_policy_query {
	const struct ps_policy_item *items;
	size_t n;
	uint64_t need_nbytes;   /* more than 0 */
	int64_t now_s;          /* since 1970, as opened_s */
	const struct ps_id *id; /* the object that wants in; NULL: room is needed whoever for */
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

#endif
