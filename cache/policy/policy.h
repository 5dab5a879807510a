/* Which object goes when room is needed. Pure decisions over a table of what is cached: no disk, no clock of
 * its own, so the simulator and the tests run the real code.
 *
 * Ownership: the policy owns its copies. Threads: one at a time (the store's lock). Blocks: never. */
#ifndef PS_POLICY_POLICY_H
#define PS_POLICY_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"

struct ps_policy_item {
	struct ps_id id;
	uint32_t dataset;
	uint64_t nbytes;  /* allocated, or reserved if that is more */
	int64_t opened_s; /* last open */
	uint64_t seq;     /* orders opens within one second; need not survive a restart */
	bool busy;        /* somebody holds it: must not be chosen */
};

struct ps_policy;

/* Prior knowledge, all strings borrowed for ever. */
struct ps_policy_ops {
	const char *name, *summary;
	struct ps_policy *(*new)(void); /* NULL: out of memory */
	void (*free)(struct ps_policy *policy);
	/* An object of `dataset` was opened at now_s; previous_s: when before, or 0. Teaches epoch times. */
	void (*opened)(struct ps_policy *policy, uint32_t dataset, const struct ps_id *id, int64_t previous_s,
	        int64_t now_s);
	/* Chooses from items[0..n) until their nbytes sum to at least need_nbytes; writes indexes in order of
	 * eviction to victims[0..n) and returns how many. Returns 0 if what may go does not suffice: nothing
	 * is evicted then and the new object is streamed. */
	size_t (*choose)(struct ps_policy *policy, const struct ps_policy_item *items, size_t n,
	        uint64_t need_nbytes, int64_t now_s, size_t *victims);
};

/* "scan", "lru"; NULL for another name. The table ends with a NULL name. */
const struct ps_policy_ops *ps_policy_find(const char *name);
extern const struct ps_policy_ops *const ps_policies[];

#endif
