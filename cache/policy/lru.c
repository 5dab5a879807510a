/* Least recently used goes first, whatever it is. Here for comparison and for caches larger than what they
 * serve: a dataset twice the cache, read in epochs, hits 15 % of the time (the scan policy: 50 %). */
#include <math.h>

#include "base/cleanup.h"
#include "policy/policy.h"
#include "policy/victims.h"

struct ps_policy {
	struct ps_victims victims;
};

static struct ps_policy *lru_new(struct ps_plans *plans)
{
	(void)plans;
	return calloc(1, sizeof(struct ps_policy));
}

static void lru_free(struct ps_policy *policy)
{
	ps_victims_fini(&policy->victims);
	free(policy);
}

static void lru_opened(
        struct ps_policy *policy, uint32_t dataset, const struct ps_id *id, int64_t previous_s, int64_t now_s)
{
	(void)policy, (void)dataset, (void)id, (void)previous_s, (void)now_s;
}

static bool by_age(void *arg, const struct ps_policy_query *query, const struct ps_policy_item *item,
        struct ps_rank *ret)
{
	(void)arg, (void)query;
	ps_rank_by_age(item, ret);
	return true;
}

static size_t lru_choose(struct ps_policy *policy, const struct ps_policy_query *query, size_t *victims)
{
	return ps_victims_choose(&policy->victims, query, by_age, NULL, -INFINITY, victims);
}

size_t ps_policy_oldest(const struct ps_policy_query *query, size_t *victims)
{
	struct ps_victims once = {0};
	size_t n = ps_victims_choose(&once, query, by_age, NULL, -INFINITY, victims);

	ps_victims_fini(&once);
	return n;
}

const struct ps_policy_ops ps_policy_lru = {
        .name = "lru",
        .new = lru_new,
        .free = lru_free,
        .opened = lru_opened,
        .choose = lru_choose,
};
