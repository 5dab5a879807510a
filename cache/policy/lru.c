/* Least recently used goes first, whatever it is. Here for comparison and for caches larger than what they
 * serve: a dataset twice the cache, read in epochs, hits 15 % of the time (the scan policy: 50 %). */
#include "policy/oldest.h"
#include "policy/policy_private.h"

struct ps_policy {
	char unused;
};

/* Nothing to remember: the same for everybody. */
static struct ps_policy stateless;

static struct ps_policy *lru_new(void)
{
	return &stateless;
}

static void lru_free(struct ps_policy *policy)
{
	(void)policy;
}

static void lru_opened(
        struct ps_policy *policy, uint32_t dataset, const struct ps_id *id, int64_t previous_s, int64_t now_s)
{
	(void)policy, (void)dataset, (void)id, (void)previous_s, (void)now_s;
}

/* The policy is not looked at: the store also asks us in the place of a policy that gives nothing up. */
static size_t lru_choose(struct ps_policy *policy, const struct ps_policy_item *items, size_t n,
        uint64_t need_nbytes, int64_t now_s, size_t *victims)
{
	size_t ncandidates = 0;

	(void)policy, (void)now_s;
	for (size_t i = 0; i < n; i++)
		if (!items[i].busy)
			victims[ncandidates++] = i;
	return ps_oldest_first(items, victims, ncandidates, need_nbytes);
}

const struct ps_policy_ops ps_policy_lru = {
        .name = "lru",
        .summary = "the least recently opened goes first",
        .new = lru_new,
        .free = lru_free,
        .opened = lru_opened,
        .choose = lru_choose,
};
