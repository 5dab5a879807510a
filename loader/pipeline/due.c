/* Which lane is read next: lanes that nobody reads wait in heaps, one for each set and for odd and even epochs,
 * by epoch, by the round in which their next block is needed, and by their place in that round. Rounds of
 * different sets do not compare; but a set that is behind its turns comes first.
 *
 * All of it is called with the pipeline's lock held; a lane's own members are read while nobody serves it. */
#include "config.h"

#include "pipeline/core.h"

static uint32_t set_of(const struct ps_pipeline *p, uint32_t lane)
{
	uint32_t d = 0;

	while (lane >= p->sets[d].first + p->sets[d].n)
		d++;
	return d;
}

/* Needed before the other one. */
static bool is_before(const struct ps_pipeline *p, uint32_t a, uint32_t b)
{
	const struct ps_lane *x = &p->lanes[a], *y = &p->lanes[b];

	if (x->epoch != y->epoch)
		return x->epoch < y->epoch;
	return x->next != y->next ? x->next < y->next : a < b;
}

static uint32_t *heap_of(const struct ps_pipeline *p, uint32_t set, uint32_t odd)
{
	return p->due.lanes + (size_t)odd * p->nlanes + p->sets[set].first;
}

static void down(const struct ps_pipeline *p, uint32_t *heap, uint32_t n)
{
	for (uint32_t i = 0, child = 1; child < n; i = child, child = 2 * i + 1) {
		uint32_t lane = heap[i];

		if (child + 1 < n && is_before(p, heap[child + 1], heap[child]))
			child++;
		if (!is_before(p, heap[child], lane))
			break;
		heap[i] = heap[child];
		heap[child] = lane;
	}
}

static void up(const struct ps_pipeline *p, uint32_t *heap, uint32_t i)
{
	uint32_t lane = heap[i];

	for (uint32_t above = (i - 1) / 2; i > 0 && is_before(p, lane, heap[above]); above = (i - 1) / 2) {
		heap[i] = heap[above];
		heap[above] = lane;
		i = above;
	}
}

int ps_due_init(struct ps_pipeline *p)
{
	p->due.lanes = calloc((size_t)2 * p->nlanes, sizeof(*p->due.lanes));
	p->due.n = calloc((size_t)2 * p->nsets, sizeof(*p->due.n));
	return p->due.lanes && p->due.n ? 0 : -1;
}

void ps_due_fini(struct ps_pipeline *p)
{
	free(p->due.lanes);
	free(p->due.n);
}

void ps_due_clear(struct ps_pipeline *p)
{
	for (uint32_t i = 0; i < 2 * p->nsets; i++)
		p->due.n[i] = 0;
}

void ps_due_put(struct ps_pipeline *p, struct ps_lane *lane)
{
	uint32_t set = set_of(p, lane->index), odd = (uint32_t)(lane->epoch & 1);
	uint32_t *heap = heap_of(p, set, odd), i = p->due.n[2 * set + odd]++;

	heap[i] = lane->index;
	lane->waits = true;
	up(p, heap, i);
}

/* The round that the claims are in. */
static uint64_t round_of(const struct ps_pipeline *p, uint32_t set)
{
	const struct ps_dealt *row = ps_row_due(p);

	if (row && set_of(p, row->lane) == set)
		return row->index;
	return ps_turns_round(&p->turns, p->sets[set].first);
}

/* The next blocks of a lane that begin up to this round may be read now. In a shuffled order the second block is
 * read once the first is half used: earlier would hold twice the window. */
static uint64_t round_ahead(const struct ps_pipeline *p, const struct ps_lane *lane, uint32_t set)
{
	uint32_t len = ps_order_block_len(p->o.order);
	uint64_t reach = ps_order_shuffles(p->o.order) ? len / 2 : (uint64_t)p->ahead * len;

	if (lane->epoch == p->claim_epoch && p->claiming)
		return round_of(p, set) + reach;
	return ps_epochs_options(p->o.epochs)->skip / p->nlanes + reach;
}

/* The lane's next sample is one of a step that is not fed yet. A single set, whose lanes never end: a position is
 * arithmetic. */
static bool waits_for_feed(const struct ps_pipeline *p, const struct ps_lane *lane)
{
	return p->feed && !ps_feed_has(p, lane->epoch, lane->next * p->nlanes + lane->index);
}

/* A block of this lane may be read now, or sought, or it is to leave its epoch. */
static bool may_be_read(const struct ps_pipeline *p, const struct ps_lane *lane, uint32_t set)
{
	if (lane->epoch < p->claim_epoch)
		return true;
	if (waits_for_feed(p, lane))
		return false;
	return lane->nqueued < p->ahead && lane->epoch <= p->claim_epoch + 1 &&
	       lane->next <= round_ahead(p, lane, set);
}

/* The heap whose first lane is to be read, or -1. */
static int64_t heap_due(const struct ps_pipeline *p)
{
	int64_t best = -1;
	bool best_empty = false;

	for (uint32_t i = 0; i < 2 * p->nsets; i++) {
		const struct ps_lane *lane;
		bool empty;

		if (p->due.n[i] == 0)
			continue;
		lane = &p->lanes[*heap_of(p, i / 2, i & 1)];
		if (!may_be_read(p, lane, i / 2))
			continue;
		empty = lane->nqueued == 0 && lane->epoch <= p->claim_epoch;
		if (best < 0 || (empty && !best_empty)) {
			best = i;
			best_empty = empty;
		}
	}
	return best;
}

/* The lane whose turn it is, if it waits behind others that have enough: a state that was not ours may say so. */
static struct ps_lane *turn_starves(const struct ps_pipeline *p)
{
	const struct ps_dealt *row = ps_row_due(p);
	struct ps_lane *lane = &p->lanes[row ? row->lane : p->turns.lane];

	return lane->waits && lane->nqueued == 0 && lane->epoch == p->claim_epoch && !waits_for_feed(p, lane) ? lane
	                                                                                                     : NULL;
}

bool ps_due_any(const struct ps_pipeline *p)
{
	return heap_due(p) >= 0 || turn_starves(p);
}

/* Takes the i-th of a heap out. */
static struct ps_lane *take(struct ps_pipeline *p, uint32_t *heap, uint32_t *n, uint32_t i)
{
	struct ps_lane *lane = &p->lanes[heap[i]];

	lane->waits = false;
	heap[i] = heap[--*n];
	if (i == 0)
		down(p, heap, *n);
	else if (i < *n) /* rare: all of it anew */
		for (uint32_t k = 1; k < *n; k++)
			up(p, heap, k);
	return lane;
}

struct ps_lane *ps_due_take(struct ps_pipeline *p)
{
	int64_t i = heap_due(p);
	struct ps_lane *starved;
	uint32_t set, odd, at = 0;

	if (i >= 0)
		return take(p, heap_of(p, (uint32_t)i / 2, i & 1), &p->due.n[i], 0);
	starved = turn_starves(p);
	if (!starved)
		return NULL;
	set = set_of(p, starved->index);
	odd = (uint32_t)(starved->epoch & 1);
	while (heap_of(p, set, odd)[at] != starved->index)
		at++;
	return take(p, heap_of(p, set, odd), &p->due.n[2 * set + odd], at);
}
