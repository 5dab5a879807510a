#include "config.h"

#include "pipeline/core.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* The pipeline's lock must be held for all functions of this file. */

/* The row claimed next, where ranks share lanes; NULL: no batch is being filled, or ranks do not share
 * lanes. */
static const struct ps_dealt *row_due(const struct ps_pipeline *p)
{
	const struct penstock_batch *b = p->claim.filling;

	return b && p->claim.info && p->claim.info->known && p->claim.info->world > 1 &&
	                       p->claim.dealt_at < b->want
	               ? &p->claim.dealt[p->claim.dealt_at]
	               : NULL;
}

/* The lane whose block holds the row that is claimed next. */
static uint32_t lane_due(const struct ps_pipeline *p)
{
	const struct ps_dealt *row = row_due(p);

	return row ? row->lane : p->claim.turns.lane;
}

void ps_block_push(struct ps_pipeline *p, struct ps_lane *lane, struct ps_block *block)
{
	if (block->epoch < p->claim.epoch) {
		ps_block_free(block);
		return;
	}
	if (lane->tail)
		lane->tail->next = block;
	else
		lane->head = block;
	lane->tail = block;
	if (lane->nqueued++ == 0 && lane->index == lane_due(p))
		pthread_cond_broadcast(&p->work);
}

void ps_block_pop(struct ps_pipeline *p, struct ps_lane *lane)
{
	struct ps_block *block = lane->head;

	lane->head = block->next;
	if (!lane->head)
		lane->tail = NULL;
	lane->nqueued--;
	ps_block_free(block);
	pthread_cond_signal(&p->room);
}

static struct penstock_batch *batch_open(struct ps_pipeline *p)
{
	struct penstock_batch *b = NULL;

	for (uint32_t i = 0; i < p->nbatches && !b; i++)
		if (p->batches[i]->state == PS_BATCH_FREE)
			b = p->batches[i];
	if (!b)
		return NULL;
	b->state = PS_BATCH_FILLING;
	b->epoch = p->claim.epoch;
	b->index = p->claim.seq - p->claim.first_seq;
	b->seq = p->claim.seq++;
	b->offload = ps_offload_at(&p->offload, b->epoch, b->index);
	b->want = b->cap;
	if (p->claim.info->known) {
		b->want = ps_epoch_rows(p->claim.info, b->index);
		b->repeats = ps_epoch_repeats(p->claim.info, b->index);
	} else if (p->claim.info->steps.samples != PS_ENDLESS) {
		b->want = ps_steps_rows(&p->claim.info->steps, b->index, 0);
	}
	p->claim.filling = b;
	return b;
}

/* Deals the rows of the batch that is being filled. */
static int step_deal(struct ps_pipeline *p)
{
	const struct ps_epoch *epoch = p->claim.info;
	uint64_t begin = epoch->begin + ps_steps_begin(&epoch->steps, p->claim.filling->index);

	if (epoch->world == 1 && !epoch->numbers)
		return 0;
	ps_turns_skip(&p->claim.turns,
	        begin - p->claim.turns.position); /* also skips the holes of the step before */
	if (epoch->world == 1)
		return 0;
	p->claim.dealt_at = 0;
	return ps_deal_step(epoch->deal, p->claim.filling->index, p->claim.dealt);
}

static void batch_close(struct ps_pipeline *p, struct penstock_batch *b)
{
	b->closed = true;
	b->pad = p->o.end == PENSTOCK_END_PAD || p->o.end == PENSTOCK_END_GATHER;
	p->claim.filling = NULL;
}

void ps_epoch_begin(struct ps_pipeline *p, struct ps_epoch *epoch)
{
	p->claim.info = epoch;
	memset(p->skipped[epoch->number & 1], 0, p->nlanes * sizeof(*p->skipped[0]));
	ps_turns_reset(&p->claim.turns, epoch->lengths, epoch->shares);
	if (epoch->known)
		ps_turns_skip(&p->claim.turns, epoch->begin - p->claim.turns.position);
	pthread_cond_broadcast(&p->work);
	pthread_cond_broadcast(&p->room);
}

/* Ends the epoch that is claimed: closes the batch that is being filled, whose rows may all be decoded
 * already. Lanes that have further samples of the epoch move to the next epoch (lane_serve() in
 * threads.c). */
static void epoch_close(struct ps_pipeline *p)
{
	struct penstock_batch *b = p->claim.filling;

	if (b && b->nrows == 0) { /* all samples so far were skipped */
		b->state = PS_BATCH_FREE;
		p->claim.filling = NULL;
		p->claim.seq--;
	} else if (b) {
		batch_close(p, b);
		b->drop = p->o.end == PENSTOCK_END_DROP_LAST;
		if (b->drop)
			p->claim.seq--; /* no later batch has a number yet */
	}
	p->ends[p->claim.epoch & 1].known = true;
	p->ends[p->claim.epoch & 1].seq = p->claim.seq;
	p->claim.epoch++;
	p->claim.first_seq = p->claim.seq;
	ps_epoch_unref(ps_steal_ptr(&p->claim.info));
	for (uint32_t i = 0; i < p->nlanes; i++)
		while (p->lanes[i].head && p->lanes[i].head->epoch < p->claim.epoch)
			ps_block_pop(p, &p->lanes[i]);
	pthread_cond_broadcast(&p->room);
	pthread_cond_signal(&p->ready);
}

/* Claims the block's next sample as the next row. */
static void row_add(struct ps_pipeline *p, struct ps_unit *u, uint32_t lane, struct ps_block *block)
{
	struct penstock_batch *b = u->batch;
	struct ps_sample *s = block->samples[block->at++];

	block->left--;
	u->nbytes += s->wanted_nbytes;
	b->rows[b->nrows] = (struct ps_row){.sample = s, .lane = lane, .where = block->where};
	b->rows[b->nrows++].where.taken = block->at;
	u->n++;
	if (b->nrows == b->want)
		batch_close(p, b);
}

static bool unit_full(const struct ps_pipeline *p, const struct ps_unit *u)
{
	return u->batch->closed || ps_cost_is_unit(&p->cost, u->n, u->nbytes);
}

/* Lengths are known: rows by arithmetic ------------------------------------------------------------------ */

/* Claims the sample of this turn. False: it has not been read yet. */
static bool row_claim_known(struct ps_pipeline *p, struct ps_unit *u)
{
	const struct ps_dealt *due = row_due(p);
	uint32_t number = due ? due->lane : p->claim.turns.lane;
	uint64_t index = due ? due->index : p->claim.turns.index;
	struct ps_lane *lane = &p->lanes[number];
	struct ps_block *block = lane->head;

	if (!block || block->epoch != p->claim.epoch || block->begin > index)
		return false;
	block->at = (uint32_t)(index - block->begin);
	assert(block->at < block->n && block->samples[block->at]);
	if (due)
		p->claim.dealt_at++;
	else
		ps_turns_advance(&p->claim.turns);
	row_add(p, u, number, block);
	if (block->left == 0)
		ps_block_pop(p, lane);
	return true;
}

static enum ps_claim unit_claim_known(struct ps_pipeline *p, struct ps_unit *u)
{
	uint64_t step = p->claim.seq - p->claim.first_seq;

	if (!p->claim.filling) {
		bool fed =
		        p->feed && p->feed->over && p->feed->epoch == p->claim.epoch && step >= p->feed->fed;

		if (fed || step >= ps_steps_count(&p->claim.info->steps, p->claim.info->rank)) {
			epoch_close(p);
			return PS_CLAIMED;
		}
		if (p->feed && !ps_feed_has(p, p->claim.epoch, step * p->feed->batch))
			return PS_NO_INPUT;
		if (!batch_open(p))
			return PS_NO_ROOM;
		if (step_deal(p) < 0) {
			ps_pipeline_fail(
			        p, -ENOMEM, &(struct ps_error){.err = ENOMEM, .text = "out of memory"});
			return PS_NO_INPUT;
		}
	}
	*u = (struct ps_unit){.batch = p->claim.filling, .first = p->claim.filling->nrows};
	while (row_claim_known(p, u) && !unit_full(p, u))
		;
	if (ps_due_any(p))
		pthread_cond_signal(&p->room); /* how far lanes may be read ahead depends on the turns */
	return u->n > 0 ? PS_CLAIMED : PS_NO_INPUT;
}

/* Lengths are not known: ends are found while reading ---------------------------------------------------- */

/* Handles the end of this turn's lane. False: the epoch ended with it. */
static bool lane_finish(struct ps_pipeline *p, bool given)
{
	ps_turns_finish(&p->claim.turns, given);
	if (!p->claim.turns.over)
		return true;
	epoch_close(p);
	return false;
}

/* True if all samples of option `take` were claimed, including those before a resume. */
static bool all_is_taken(const struct ps_pipeline *p)
{
	const struct ps_epochs_options *o = ps_epochs_options(p->o.epochs);
	uint64_t at = p->claim.turns.position;

	return o->take == 0 || (at >= o->skip && at - o->skip >= o->take);
}

/* Takes the sample of this turn: claims it as the next row, or drops it if it is among the first `skip`.
 * False: the epoch ended with it. */
static bool row_claim(struct ps_pipeline *p, struct ps_unit *u)
{
	const struct ps_epochs_options *o = ps_epochs_options(p->o.epochs);
	struct ps_lane *lane = &p->lanes[p->claim.turns.lane];
	struct ps_block *block = lane->head;
	bool last = block->last;

	if (p->claim.turns.position >= o->skip) {
		row_add(p, u, p->claim.turns.lane, block);
	} else {
		struct ps_lane_position *at = &p->skipped[p->claim.epoch & 1][p->claim.turns.lane];

		ps_sample_free(block->samples[block->at++]);
		block->left--;
		*at = block->where;
		at->taken = block->at;
	}
	if (block->at < block->n)
		last = false;
	else
		ps_block_pop(p, lane);
	if (last) {
		if (!lane_finish(p, true))
			return false;
	} else {
		ps_turns_advance(&p->claim.turns);
	}
	if (p->claim.turns.over || all_is_taken(p)) {
		epoch_close(p);
		return false;
	}
	return true;
}

/* Moves past lanes that have ended. False: nothing can be claimed, and *ret has the reason; PS_CLAIMED: the
 * epoch ended. */
static bool lanes_pass(struct ps_pipeline *p, enum ps_claim *ret)
{
	for (;;) {
		struct ps_lane *lane = &p->lanes[p->claim.turns.lane];

		*ret = PS_CLAIMED;
		if (p->claim.turns.over || all_is_taken(p) ||
		        (!p->claim.filling && p->claim.seq - p->claim.first_seq >=
		                                      ps_steps_count(&p->claim.info->steps, 0))) {
			epoch_close(p);
			return false;
		}
		if (!lane->head) {
			*ret = PS_NO_INPUT;
			return false;
		}
		if (lane->head->at < lane->head->n) {
			*ret = p->claim.filling || batch_open(p) ? PS_CLAIMED : PS_NO_ROOM;
			return *ret == PS_CLAIMED;
		}
		assert(lane->head->last);
		ps_block_pop(p, lane);
		if (!lane_finish(p, false))
			return false;
	}
}

static enum ps_claim unit_claim_unknown(struct ps_pipeline *p, struct ps_unit *u)
{
	struct penstock_batch *filling = p->claim.filling;
	enum ps_claim c;

	if (!lanes_pass(p, &c)) {
		/* The epoch ended, and all rows are decoded: the batch only has to be finished. */
		if (c == PS_CLAIMED && filling && filling->closed && filling->ndone == filling->nrows)
			*u = (struct ps_unit){.batch = filling};
		return c;
	}
	*u = (struct ps_unit){.batch = p->claim.filling, .first = p->claim.filling->nrows};
	while (row_claim(p, u) && !unit_full(p, u)) {
		struct ps_lane *lane = &p->lanes[p->claim.turns.lane];

		if (!lane->head || lane->head->at == lane->head->n)
			break;
	}
	if (u->n == 0)
		u->batch = NULL; /* all samples that were taken were dropped (option `skip`) */
	if (ps_due_any(p))
		pthread_cond_signal(&p->room);
	return PS_CLAIMED;
}

/* Lengths known or not ----------------------------------------------------------------------------------- */

enum ps_claim ps_unit_claim(struct ps_pipeline *p, struct ps_unit *u)
{
	enum ps_claim c;

	*u = (struct ps_unit){0};
	do {
		if (p->failed || p->claim.epoch == p->o.end_epoch)
			return PS_NO_INPUT;
		/* The end of the epoch two before this one is not delivered yet. */
		if (p->ends[p->claim.epoch & 1].known)
			return PS_NO_ROOM;
		if (!p->claim.info)
			return p->run.asking ? PS_NO_INPUT : PS_NO_EPOCH;
		c = p->claim.info->known ? unit_claim_known(p, u) : unit_claim_unknown(p, u);
	} while (c == PS_CLAIMED && !u->batch);
	return c;
}

/* Which lane is read next -------------------------------------------------------------------------------- */

/* Lanes that no thread reads wait in heaps: two for each set, for odd and even
 * epochs. A heap is sorted by epoch, by the round in which a lane's next block is needed, and by the lane's
 * place in that round. Rounds of different sets are not comparable: of the heaps' first lanes that may be
 * read, one without a queued block comes first.
 *
 * The pipeline's lock must be held. A lane's own members may be read here, as no thread serves a waiting
 * lane. */

/* True if lane a is needed before lane b. */
static bool is_before(const struct ps_pipeline *p, uint32_t a, uint32_t b)
{
	const struct ps_lane *x = &p->lanes[a], *y = &p->lanes[b];

	if (x->epoch != y->epoch)
		return x->epoch < y->epoch;
	return x->next != y->next ? x->next < y->next : a < b;
}

static uint32_t *heap_of(const struct ps_pipeline *p, uint32_t set, uint32_t odd)
{
	return p->claim.due.lanes + (size_t)odd * p->nlanes + p->sets[set].first;
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

void ps_due_put(struct ps_pipeline *p, struct ps_lane *lane)
{
	uint32_t set = ps_lane_set_of(p->sets, lane->index), odd = (uint32_t)(lane->epoch & 1);
	uint32_t *heap = heap_of(p, set, odd), i = p->claim.due.n[2 * set + odd]++;

	heap[i] = lane->index;
	lane->waits = true;
	up(p, heap, i);
}

/* The last round for which blocks of this lane may be read now. In a shuffled order the second block is read
 * once the first is half used; reading it earlier would hold twice the window in memory. */
static uint64_t round_ahead(const struct ps_pipeline *p, const struct ps_lane *lane, uint32_t set)
{
	uint32_t len = ps_order_block_len(p->o.order);
	uint64_t reach = ps_order_shuffles(p->o.order) ? len / 2 : (uint64_t)p->ahead * len;
	const struct ps_dealt *row = row_due(p);

	if (lane->epoch != p->claim.epoch || !p->claim.info)
		return ps_epochs_options(p->o.epochs)->skip / p->nlanes + reach;
	if (row && ps_lane_set_of(p->sets, row->lane) == set)
		return row->index + reach;
	return ps_turns_round(&p->claim.turns, p->sets[set].first) + reach;
}

/* True if the lane's next sample is in a step that is not fed yet. With a feed there is a single set, whose
 * lanes never end, so the position is arithmetic. */
static bool waits_for_feed(const struct ps_pipeline *p, const struct ps_lane *lane)
{
	return p->feed && !ps_feed_has(p, lane->epoch, lane->next * p->nlanes + lane->index);
}

/* True if the lane needs a reader now: to read or seek a block, or to leave its epoch. */
static bool may_be_read(const struct ps_pipeline *p, const struct ps_lane *lane, uint32_t set)
{
	if (lane->epoch < p->claim.epoch)
		return true;
	if (waits_for_feed(p, lane))
		return false;
	return lane->nqueued < p->ahead && lane->epoch <= p->claim.epoch + 1 &&
	       lane->next <= round_ahead(p, lane, set);
}

/* The heap whose first lane must be read now; -1: none. */
static int64_t heap_due(const struct ps_pipeline *p)
{
	int64_t best = -1;
	bool best_empty = false;

	for (uint32_t i = 0; i < 2 * p->nsets; i++) {
		const struct ps_lane *lane;
		bool empty;

		if (p->claim.due.n[i] == 0)
			continue;
		lane = &p->lanes[*heap_of(p, i / 2, i & 1)];
		if (!may_be_read(p, lane, i / 2))
			continue;
		empty = lane->nqueued == 0 && lane->epoch <= p->claim.epoch;
		if (best < 0 || (empty && !best_empty)) {
			best = i;
			best_empty = empty;
		}
	}
	return best;
}

/* The lane of this turn, if it has no block and waits in its heap after lanes that have enough blocks. This
 * can happen after resuming from another rank's state. NULL: the lane of this turn is not such a lane. */
static struct ps_lane *turn_starves(const struct ps_pipeline *p)
{
	struct ps_lane *lane = &p->lanes[lane_due(p)];

	return lane->waits && lane->nqueued == 0 && lane->epoch == p->claim.epoch && !waits_for_feed(p, lane)
	               ? lane
	               : NULL;
}

bool ps_due_any(const struct ps_pipeline *p)
{
	return heap_due(p) >= 0 || turn_starves(p);
}

/* Removes the i-th lane from a heap. */
static struct ps_lane *take(struct ps_pipeline *p, uint32_t *heap, uint32_t *n, uint32_t i)
{
	struct ps_lane *lane = &p->lanes[heap[i]];

	lane->waits = false;
	heap[i] = heap[--*n];
	if (i == 0)
		down(p, heap, *n);
	else if (i < *n) /* rare: rebuild the heap */
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
		return take(p, heap_of(p, (uint32_t)i / 2, i & 1), &p->claim.due.n[i], 0);
	starved = turn_starves(p);
	if (!starved)
		return NULL;
	set = ps_lane_set_of(p->sets, starved->index);
	odd = (uint32_t)(starved->epoch & 1);
	while (heap_of(p, set, odd)[at] != starved->index)
		at++;
	return take(p, heap_of(p, set, odd), &p->claim.due.n[2 * set + odd], at);
}
