#include "config.h"

#include <assert.h>

#include "pipeline/core.h"

/* All of it is called with the pipeline's lock held. */

#define UNIT_ROWS 64             /* most rows claimed at once ... */
#define UNIT_NBYTES (64UL << 10) /* ... while they are small: 50 to 100 us of work */

static void block_pop(struct ps_pipeline *p, struct ps_lane *lane)
{
	struct ps_block *block = lane->head;

	lane->head = block->next;
	if (!lane->head)
		lane->tail = NULL;
	lane->nqueued--;
	ps_block_free(block);
	pthread_cond_signal(&p->room);
}

static struct penstock_batch *batch_free_find(struct ps_pipeline *p)
{
	for (uint32_t i = 0; i < p->o.depth; i++)
		if (p->batches[i].state == PS_BATCH_FREE)
			return &p->batches[i];
	return NULL;
}

static struct penstock_batch *batch_open(struct ps_pipeline *p)
{
	struct penstock_batch *b = batch_free_find(p);

	if (!b)
		return NULL;
	b->state = PS_BATCH_FILLING;
	b->epoch = p->claim_epoch;
	b->index = p->claim_seq - p->epoch_seq;
	b->seq = p->claim_seq++;
	p->filling = b;
	return b;
}

/* All lanes have ended: closes the batch that is being filled, whose rows may all be decoded already. */
static void epoch_close(struct ps_pipeline *p)
{
	struct penstock_batch *b = p->filling;

	if (b) {
		b->closed = true;
		b->pad = p->o.end == PENSTOCK_END_PAD;
		b->drop = p->o.end == PENSTOCK_END_DROP_LAST;
		if (b->drop)
			p->claim_seq--; /* it was the last to get a number */
		p->filling = NULL;
	}
	p->ends[p->claim_epoch & 1].known = true;
	p->ends[p->claim_epoch & 1].seq = p->claim_seq;
	p->claim_epoch++;
	p->epoch_seq = p->claim_seq;
	ps_turns_reset(&p->turns);
	pthread_cond_signal(&p->ready);
}

/* Takes the sample whose turn it is for the next row. False if the epoch ended with it. */
static bool row_claim(struct ps_pipeline *p, struct ps_unit *u, uint64_t *nbytes)
{
	struct ps_lane *lane = &p->lanes[p->turns.at];
	struct ps_block *block = lane->head;
	struct penstock_batch *b = u->batch;
	struct ps_sample *s = block->samples[block->at++];
	bool last = block->last;

	*nbytes += s->wanted_nbytes;
	b->rows[b->nrows] = (struct ps_row){.sample = s, .lane = p->turns.at, .where = block->where};
	b->rows[b->nrows++].where.taken = block->at;
	u->n++;
	if (b->nrows == b->cap) {
		b->closed = true;
		p->filling = NULL;
	}
	if (block->at < block->n) {
		if (lane->nqueued < p->ahead)
			pthread_cond_signal(&p->room);
		ps_turns_advance(&p->turns);
		return true;
	}
	block_pop(p, lane);
	if (!last) {
		ps_turns_advance(&p->turns);
		return true;
	}
	ps_turns_finish(&p->turns);
	if (p->turns.alive > 0)
		return true;
	epoch_close(p);
	return false;
}

/* Passes over lanes that ended without another sample. PS_CLAIMED: a unit without rows, only to finish its
 * batch. */
static enum ps_claim lanes_pass(struct ps_pipeline *p, struct ps_unit *u)
{
	for (;;) {
		struct ps_lane *lane = &p->lanes[p->turns.at];
		struct penstock_batch *b = p->filling;

		if (p->failed || p->claim_epoch == p->o.end_epoch)
			return PS_NO_INPUT;
		/* The end of the epoch before the last one was not delivered. */
		if (p->ends[p->claim_epoch & 1].known)
			return PS_NO_ROOM;
		if (!lane->head)
			return PS_NO_INPUT;
		if (lane->head->at < lane->head->n)
			return b || batch_open(p) ? PS_CLAIMED : PS_NO_ROOM;
		assert(lane->head->last);
		block_pop(p, lane);
		ps_turns_finish(&p->turns);
		if (p->turns.alive > 0)
			continue;
		epoch_close(p);
		if (b && b->ndone == b->nrows) {
			*u = (struct ps_unit){.batch = b};
			return PS_CLAIMED;
		}
	}
}

enum ps_claim ps_unit_claim(struct ps_pipeline *p, struct ps_unit *u)
{
	uint64_t nbytes = 0;
	enum ps_claim c;

	u->batch = NULL;
	c = lanes_pass(p, u);
	if (c != PS_CLAIMED || u->batch)
		return c;
	*u = (struct ps_unit){.batch = p->filling, .first = p->filling->nrows};
	while (row_claim(p, u, &nbytes) && !u->batch->closed && u->n < UNIT_ROWS && nbytes < UNIT_NBYTES) {
		struct ps_lane *lane = &p->lanes[p->turns.at];

		if (!lane->head || lane->head->at == lane->head->n)
			break;
	}
	return PS_CLAIMED;
}
