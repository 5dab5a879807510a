/* What the current epochs still use stays; what is no longer in use (inuse.h) goes, oldest first.
 *
 * If what is not in use does not suffice, nothing goes and the new object is streamed: of a dataset twice the
 * cache, the half that came first hits in every epoch, whatever the order, and a dataset that nobody opens
 * any more makes room. */
#include <math.h>
#include <stdlib.h>

#include "policy/inuse.h"
#include "policy/policy.h"
#include "policy/victims.h"

struct ps_policy {
	struct ps_inuse *inuse;
	struct ps_victims victims;
	/* Of the dataset that was asked for last: neighbours are mostly of one. */
	uint32_t dataset;
	struct ps_inuse_times times;
};

static struct ps_policy *scan_new(struct ps_plans *plans)
{
	struct ps_policy *policy = calloc(1, sizeof *policy);

	(void)plans;
	if (policy)
		policy->inuse = ps_inuse_new();
	if (policy && policy->inuse)
		return policy;
	free(policy);
	return NULL;
}

static void scan_free(struct ps_policy *policy)
{
	ps_inuse_free(policy->inuse);
	ps_victims_fini(&policy->victims);
	free(policy);
}

static void scan_opened(
        struct ps_policy *policy, uint32_t dataset, const struct ps_id *id, int64_t previous_s, int64_t now_s)
{
	(void)previous_s; /* says nothing of what else was opened in between */
	ps_inuse_opened(policy->inuse, dataset, id, now_s);
}

static bool not_in_use(void *arg, const struct ps_policy_query *query, const struct ps_policy_item *item,
        struct ps_rank *ret)
{
	struct ps_policy *policy = arg;

	if (item->dataset != policy->dataset) {
		policy->dataset = item->dataset;
		ps_inuse_times(policy->inuse, item->dataset, &policy->times);
	}
	ps_rank_by_age(item, ret);
	return item->opened_s < query->now_s - policy->times.window_s;
}

static size_t scan_choose(struct ps_policy *policy, const struct ps_policy_query *query, size_t *victims)
{
	policy->dataset = query->dataset;
	ps_inuse_times(policy->inuse, policy->dataset, &policy->times);
	return ps_victims_choose(&policy->victims, query, not_in_use, policy, -INFINITY, victims);
}

const struct ps_policy_ops ps_policy_scan = {
        .name = "scan",
        .new = scan_new,
        .free = scan_free,
        .opened = scan_opened,
        .choose = scan_choose,
};
