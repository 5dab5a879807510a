/* The eviction policies: which objects are evicted first, and which are admitted. */
#include "policy/policy.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "policy/policy_private.h"

/* Victims ------------------------------------------------------------------------------------------------ */

#define REMADE_AFTER_ITEMS 20000 /* for every 20,000 items the heap is kept a second longer */
#define REMADE_SHARE 16

static bool before(const struct ps_candidate *a, const struct ps_candidate *b)
{
	if (a->rank.when != b->rank.when)
		return a->rank.when > b->rank.when;
	if (a->rank.order != b->rank.order)
		return a->rank.order < b->rank.order;
	return a->seq < b->seq;
}

static void sift_down(struct ps_candidate *heap, size_t n, size_t i)
{
	const struct ps_candidate moved = heap[i];

	for (size_t child; (child = 2 * i + 1) < n; i = child) {
		if (child + 1 < n && before(&heap[child + 1], &heap[child]))
			child++;
		if (!before(&heap[child], &moved))
			break;
		heap[i] = heap[child];
	}
	heap[i] = moved;
}

static bool make(struct ps_victims *v, const struct ps_policy_query *q, ps_rank_fn rank, void *arg)
{
	if (v->cap < q->n) {
		size_t cap = PS_MAX(2 * v->cap, q->n);
		struct ps_candidate *heap = reallocarray(v->heap, cap, sizeof(*heap));
		if (!heap)
			return false;
		v->heap = heap;
		v->cap = cap;
	}
	v->n = 0;
	for (size_t i = 0; i < q->n; i++) {
		struct ps_candidate c = {.seq = q->items[i].seq, .slot = (uint32_t)i};
		if (!q->items[i].busy && rank(arg, q, &q->items[i], &c.rank))
			v->heap[v->n++] = c;
	}
	for (size_t i = v->n / 2; i-- > 0;)
		sift_down(v->heap, v->n, i);
	v->made = v->n;
	v->made_s = q->now_s;
	return true;
}

/* Makes the root a candidate whose rank is up to date. False: none is left. */
static bool settle_root(struct ps_victims *v, const struct ps_policy_query *q, ps_rank_fn rank, void *arg)
{
	while (v->n > 0) {
		struct ps_candidate *root = &v->heap[0], now = *root;
		const struct ps_policy_item *item = now.slot < q->n ? &q->items[now.slot] : NULL;

		/* The item was deleted, moved to another slot, opened since, or is held. If it can be
		 * evicted, the next heap has it again. */
		if (!item || item->seq != now.seq || item->busy || !rank(arg, q, item, &now.rank)) {
			*root = v->heap[--v->n];
		} else if (before(root, &now)) {
			*root = now;
		} else {
			*root = now; /* evicted even sooner */
			return true;
		}
		if (v->n > 0)
			sift_down(v->heap, v->n, 0);
	}
	return false;
}

static size_t take(struct ps_victims *v, const struct ps_policy_query *q, ps_rank_fn rank, void *arg,
        double later_than, size_t *victims)
{
	uint64_t sum = 0;
	size_t taken = 0;

	while (sum < q->need_nbytes && settle_root(v, q, rank, arg) && v->heap[0].rank.when > later_than) {
		sum += q->items[v->heap[0].slot].nbytes;
		victims[taken++] = v->heap[0].slot;
		v->heap[0] = v->heap[--v->n];
		if (v->n > 0)
			sift_down(v->heap, v->n, 0);
	}
	if (sum >= q->need_nbytes)
		return taken;
	/* Puts back what was taken. */
	for (size_t i = 0; i < taken; i++) {
		const struct ps_policy_item *item = &q->items[victims[i]];
		struct ps_candidate c = {.seq = item->seq, .slot = (uint32_t)victims[i]};
		size_t at = v->n;

		if (!rank(arg, q, item, &c.rank))
			continue;
		v->n++;
		for (size_t parent; at > 0 && before(&c, &v->heap[parent = (at - 1) / 2]); at = parent)
			v->heap[at] = v->heap[parent];
		v->heap[at] = c;
	}
	return 0;
}

/* As ps_policy_ops.choose(); only items whose `when` is above later_than are chosen. */
static size_t victims_choose(struct ps_victims *v, const struct ps_policy_query *q, ps_rank_fn rank,
        void *arg, double later_than, size_t *victims)
{
	bool recent = q->n > PS_VICTIMS_EXACT && v->made_s != 0 && q->now_s >= v->made_s &&
	              q->now_s - v->made_s < 1 + (int64_t)(q->n / REMADE_AFTER_ITEMS) &&
	              v->made - v->n <= v->made / REMADE_SHARE;

	if (recent) {
		if (q->need_nbytes >= v->refused_nbytes && later_than >= v->refused_later_than)
			return 0;
	} else {
		if (!make(v, q, rank, arg))
			return 0;
		v->refused_nbytes = UINT64_MAX;
	}
	size_t n = take(v, q, rank, arg, later_than, victims);
	if (n == 0 && q->need_nbytes < v->refused_nbytes) {
		v->refused_nbytes = q->need_nbytes;
		v->refused_later_than = later_than;
	}
	return n;
}

/* Frees the heap. */
static void victims_fini(struct ps_victims *v)
{
	free(v->heap);
	*v = (struct ps_victims){0};
}

/* Ranks by the last open; the oldest is evicted first. */
static void rank_by_age(const struct ps_policy_item *item, struct ps_rank *ret)
{
	*ret = (struct ps_rank){.order = (uint64_t)PS_MAX(item->opened_s, 0)};
}

/* State of a policy -------------------------------------------------------------------------------------- */

struct ps_policy {
	struct ps_plans *plans; /* borrowed; NULL: no plans */
	struct ps_inuse *inuse;
	struct ps_victims victims;
	/* The times of the last dataset that was looked up: successive items mostly belong to one
	 * dataset. */
	uint32_t dataset;
	struct ps_inuse_times times;
};

static struct ps_policy *policy_new(struct ps_plans *plans)
{
	struct ps_policy *policy = calloc(1, sizeof(*policy));

	if (policy)
		policy->inuse = ps_inuse_new();
	if (!policy || !policy->inuse) {
		free(policy);
		return NULL;
	}
	policy->plans = plans;
	return policy;
}

static void policy_free(struct ps_policy *policy)
{
	ps_inuse_free(policy->inuse);
	victims_fini(&policy->victims);
	free(policy);
}

static const struct ps_inuse_times *times_of(struct ps_policy *policy, uint32_t dataset)
{
	if (dataset != policy->dataset) {
		policy->dataset = dataset;
		ps_inuse_times(policy->inuse, dataset, &policy->times);
	}
	return &policy->times;
}

/* lru ---------------------------------------------------------------------------------------------------- */

/* The least recently used object is evicted first. This policy is for comparison, and for caches that hold
 * all that they serve. If a dataset twice as large as the cache is read in epochs, 15 % of the reads are
 * hits (with the policy "plan" 50 %, without any plan). */

static void lru_opened(
        struct ps_policy *policy, uint32_t dataset, const struct ps_id *id, int64_t previous_s, int64_t now_s)
{
	(void)policy, (void)dataset, (void)id, (void)previous_s, (void)now_s;
}

static bool by_age(void *arg, const struct ps_policy_query *query, const struct ps_policy_item *item,
        struct ps_rank *ret)
{
	(void)arg, (void)query;
	rank_by_age(item, ret);
	return true;
}

static size_t lru_choose(struct ps_policy *policy, const struct ps_policy_query *query, size_t *victims)
{
	return victims_choose(&policy->victims, query, by_age, NULL, -INFINITY, victims);
}

size_t ps_policy_oldest(const struct ps_policy_query *query, size_t *victims)
{
	struct ps_victims once = {0};
	size_t n = victims_choose(&once, query, by_age, NULL, -INFINITY, victims);

	victims_fini(&once);
	return n;
}

const struct ps_policy_ops ps_policy_lru = {
        .name = "lru",
        .new = policy_new,
        .free = policy_free,
        .opened = lru_opened,
        .choose = lru_choose,
};

/* plan --------------------------------------------------------------------------------------------------- */

/* The plans of loaders (policy.h) decide; an object of no plan is judged by whether it is in use
 * (policy_private.h).
 *
 *   the object is                         it is needed
 *   named by a plan                       in the earliest epoch that names it
 *   no longer named, its run goes on      never
 *   of no plan, and in use                an epoch time (or 24 h) after its last open; if that is past, as long
 *                                         from now as it is past
 *   of no plan, and not in use            never
 *
 * Objects that are never needed are evicted first, the oldest before the others. If the new object is named
 * by a plan, objects that are needed later than it, by more than a part of an epoch (struct ps_plan_need),
 * are evicted next, those needed last first. So an object that is needed later than all cached ones, or
 * never, is streamed.
 *
 * Without any plan, objects in use stay. If the others do not make enough room, nothing is evicted and the
 * new object is streamed. So of a dataset twice as large as the cache, the half that was cached first gives
 * hits in every epoch, in whatever order it is read; and a dataset that is no longer opened is evicted. */

static void plan_opened(
        struct ps_policy *policy, uint32_t dataset, const struct ps_id *id, int64_t previous_s, int64_t now_s)
{
	ps_inuse_opened(policy->inuse, dataset, id, now_s);
	if (policy->plans)
		ps_plans_opened(policy->plans, id, previous_s != 0);
}

static enum ps_policy_need need_of(
        struct ps_policy *policy, const struct ps_id *object, struct ps_plan_need *ret)
{
	return policy->plans ? ps_plans_need(policy->plans, object, ret) : PS_NEED_UNKNOWN;
}

/* When an object in use is expected to be opened again. */
static double expected_s(const struct ps_inuse_times *times, int64_t opened_s, int64_t now_s)
{
	int64_t due_s = opened_s + (times->epoch_s > 0 ? times->epoch_s : times->window_s);

	return (double)(due_s > now_s ? due_s : now_s + (now_s - due_s));
}

static bool rank(void *arg, const struct ps_policy_query *query, const struct ps_policy_item *item,
        struct ps_rank *ret)
{
	struct ps_policy *policy = arg;
	struct ps_id object = item->id;
	struct ps_plan_need need;

	ps_policy_part_id(&object, item->part);
	enum ps_policy_need kind = need_of(policy, &object, &need);

	rank_by_age(item, ret);
	ret->when = INFINITY;
	if (kind == PS_NEED_PLANNED) {
		ret->when = need.when_s;
		/* It does not matter which objects of an epoch are chosen, but they should be spread over
		 * the epoch: so the order is that of their hashes. */
		memcpy(&ret->order, item->id.bytes, sizeof(ret->order));
	} else if (kind == PS_NEED_UNKNOWN) {
		const struct ps_inuse_times *times = times_of(policy, item->dataset);
		if (item->opened_s >= query->now_s - times->window_s)
			ret->when = expected_s(times, item->opened_s, query->now_s);
	}
	return true;
}

static size_t plan_choose(struct ps_policy *policy, const struct ps_policy_query *query, size_t *victims)
{
	double later_than = DBL_MAX; /* only objects that are never needed */
	struct ps_plan_need need;

	policy->dataset = query->dataset;
	ps_inuse_times(policy->inuse, policy->dataset, &policy->times);
	if (query->id) {
		enum ps_policy_need kind = need_of(policy, query->id, &need);
		if (kind == PS_NEED_NEVER)
			return 0;
		if (kind == PS_NEED_PLANNED)
			later_than = need.when_s + need.margin_s;
	}
	return victims_choose(&policy->victims, query, rank, policy, later_than, victims);
}

const struct ps_policy_ops ps_policy_plan = {
        .name = "plan",
        .follows_plans = true,
        .new = policy_new,
        .free = policy_free,
        .opened = plan_opened,
        .choose = plan_choose,
};

/* The table ---------------------------------------------------------------------------------------------- */

const struct ps_policy_ops *const ps_policies[] = {&ps_policy_plan, &ps_policy_lru, NULL};

const struct ps_policy_ops *ps_policy_find(const char *name)
{
	for (size_t i = 0; ps_policies[i]; i++)
		if (strcmp(ps_policies[i]->name, name) == 0)
			return ps_policies[i];
	return NULL;
}

void ps_policy_part_id(struct ps_id *id, uint32_t part)
{
	for (int i = 0; i < 4; i++)
		id->bytes[i] ^= (uint8_t)(part >> (8 * i));
}
