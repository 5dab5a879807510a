#include "policy/victims.h"

#include <stdlib.h>

#include "base/cleanup.h"

#define REMADE_AFTER_ITEMS 20000 /* a second later for each */
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

static void sift_up(struct ps_candidate *heap, size_t i)
{
	const struct ps_candidate moved = heap[i];

	for (size_t parent; i > 0 && before(&moved, &heap[parent = (i - 1) / 2]); i = parent)
		heap[i] = heap[parent];
	heap[i] = moved;
}

static bool make(struct ps_victims *v, const struct ps_policy_query *q, ps_rank_fn rank, void *arg)
{
	if (v->cap < q->n) {
		size_t cap = PS_MAX(2 * v->cap, q->n);
		struct ps_candidate *heap = reallocarray(v->heap, cap, sizeof *heap);
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

static bool is_recent(const struct ps_victims *v, const struct ps_policy_query *q)
{
	return q->n > PS_VICTIMS_EXACT && v->made_s != 0 && q->now_s >= v->made_s &&
	       q->now_s - v->made_s < 1 + (int64_t)(q->n / REMADE_AFTER_ITEMS) &&
	       v->made - v->n <= v->made / REMADE_SHARE;
}

/* Brings to the root a candidate that is still what the heap says. False: none is left. */
static bool settle_root(struct ps_victims *v, const struct ps_policy_query *q, ps_rank_fn rank, void *arg)
{
	while (v->n > 0) {
		struct ps_candidate *root = &v->heap[0], now = *root;
		const struct ps_policy_item *item = now.slot < q->n ? &q->items[now.slot] : NULL;

		/* Gone, moved to another slot, opened since, held: the next heap will know. */
		if (!item || item->seq != now.seq || item->busy || !rank(arg, q, item, &now.rank)) {
			*root = v->heap[--v->n];
		} else if (before(root, &now)) {
			*root = now;
		} else {
			*root = now; /* it goes all the sooner */
			return true;
		}
		if (v->n > 0)
			sift_down(v->heap, v->n, 0);
	}
	return false;
}

static void put_back(struct ps_victims *v, const struct ps_policy_query *q, ps_rank_fn rank, void *arg,
        const size_t *slots, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct ps_policy_item *item = &q->items[slots[i]];
		struct ps_candidate c = {.seq = item->seq, .slot = (uint32_t)slots[i]};

		if (!rank(arg, q, item, &c.rank))
			continue;
		v->heap[v->n] = c;
		sift_up(v->heap, v->n++);
	}
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
	put_back(v, q, rank, arg, victims, taken);
	return 0;
}

size_t ps_victims_choose(struct ps_victims *v, const struct ps_policy_query *q, ps_rank_fn rank, void *arg,
        double later_than, size_t *victims)
{
	if (is_recent(v, q)) {
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

void ps_victims_fini(struct ps_victims *v)
{
	free(v->heap);
	*v = (struct ps_victims){0};
}

void ps_rank_by_age(const struct ps_policy_item *item, struct ps_rank *ret)
{
	*ret = (struct ps_rank){.order = (uint64_t)PS_MAX(item->opened_s, 0)};
}
