/* What loaders have told (plans.h) decides where they have, what is in use (inuse.h) where they have not.
 *
 *   the object is                         it is needed
 *   named by a plan                       when the first plan that names it says
 *   not named any more, its run goes on   never
 *   of no plan, and in use                an epoch time (or 24 h) after its last open; if that is over, later
 *   of no plan, and not in use            never
 *
 * What is never needed goes first, the oldest before the others; then, for an object of a plan only, what is
 * needed last, if that is later than the object itself by more than a part of an epoch (struct ps_plan_need).
 * So an object that is needed later than all that is there, or never, is streamed, and without any plan this
 * is the scan policy. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "policy/inuse.h"
#include "policy/plans.h"
#include "policy/policy.h"
#include "policy/victims.h"

struct ps_policy {
	struct ps_plans *plans; /* borrowed; NULL: there will be none */
	struct ps_inuse *inuse;
	struct ps_victims victims;
	/* Of the dataset that was asked for last: neighbours are mostly of one. */
	uint32_t dataset;
	struct ps_inuse_times times;
};

static struct ps_policy *plan_new(struct ps_plans *plans)
{
	struct ps_policy *policy = calloc(1, sizeof *policy);

	if (policy)
		policy->inuse = ps_inuse_new();
	if (!policy || !policy->inuse) {
		free(policy);
		return NULL;
	}
	policy->plans = plans;
	return policy;
}

static void plan_free(struct ps_policy *policy)
{
	ps_inuse_free(policy->inuse);
	ps_victims_fini(&policy->victims);
	free(policy);
}

static void plan_opened(
        struct ps_policy *policy, uint32_t dataset, const struct ps_id *id, int64_t previous_s, int64_t now_s)
{
	ps_inuse_opened(policy->inuse, dataset, id, now_s);
	if (policy->plans)
		ps_plans_opened(policy->plans, id, previous_s != 0);
}

static enum ps_need need_of(struct ps_policy *policy, const struct ps_id *object, struct ps_plan_need *ret)
{
	return policy->plans ? ps_plans_need(policy->plans, object, ret) : PS_NEED_UNKNOWN;
}

/* In use: when it is expected to be opened again. */
static double expected_s(const struct ps_inuse_times *times, int64_t opened_s, int64_t now_s)
{
	int64_t due_s = opened_s + (times->epoch_s > 0 ? times->epoch_s : times->window_s);

	return (double)(due_s > now_s ? due_s : now_s + (now_s - due_s));
}

static bool rank(void *arg, const struct ps_policy_query *query, const struct ps_policy_item *item,
        struct ps_rank *ret)
{
	struct ps_policy *policy = arg;
	struct ps_id object = ps_policy_object_id(item);
	struct ps_plan_need need;
	enum ps_need kind = need_of(policy, &object, &need);

	ps_rank_by_age(item, ret);
	ret->when = INFINITY;
	if (kind == PS_NEED_PLANNED) {
		ret->when = need.when_s;
		/* Which of those that are needed in the same epoch is all the same, but should not be one end
		 * of it. */
		memcpy(&ret->order, item->id.bytes, sizeof ret->order);
	} else if (kind == PS_NEED_UNKNOWN) {
		if (item->dataset != policy->dataset) {
			policy->dataset = item->dataset;
			ps_inuse_times(policy->inuse, item->dataset, &policy->times);
		}
		if (item->opened_s >= query->now_s - policy->times.window_s)
			ret->when = expected_s(&policy->times, item->opened_s, query->now_s);
	}
	return true;
}

static size_t plan_choose(struct ps_policy *policy, const struct ps_policy_query *query, size_t *victims)
{
	double later_than = DBL_MAX; /* what is never needed only */
	struct ps_plan_need need;

	policy->dataset = query->dataset;
	ps_inuse_times(policy->inuse, policy->dataset, &policy->times);
	if (query->id) {
		enum ps_need kind = need_of(policy, query->id, &need);
		if (kind == PS_NEED_NEVER)
			return 0;
		if (kind == PS_NEED_PLANNED)
			later_than = need.when_s + need.margin_s;
	}
	return ps_victims_choose(&policy->victims, query, rank, policy, later_than, victims);
}

const struct ps_policy_ops ps_policy_plan = {
        .name = "plan",
        .follows_plans = true,
        .new = plan_new,
        .free = plan_free,
        .opened = plan_opened,
        .choose = plan_choose,
};
