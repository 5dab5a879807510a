/* Who gets a row: the rows of each step of an epoch, dealt to the ranks home-first.
 *
 * A step is a stretch of the canonical sequence (order/steps.h), which also says how many of its rows each rank
 * has. Lane l is at home with rank l mod W, and rank v is on node v mod N.
 *
 *   1. A rank keeps the rows of its own lanes, lowest lanes first, up to its share.
 *   2. What is left over on a node, by lane and place in it, goes to the ranks of that node that have less than
 *      their share, by rank: the i-th row to the i-th gap.
 *   3. What is left over then, by node, goes to the gaps that are left, by node, likewise.
 *
 * A rank's rows are in the order of their positions. While all lanes of a single set go on, and W divides their
 * number and that of the step's rows, each rank has exactly its own lanes: such steps, at the beginning of an
 * epoch, are regular, and dealt by arithmetic. Others are dealt one by one, by walking over all rows of the step;
 * this rank's part of some hundred steps is kept ("a window").
 *
 * Ownership: a deal belongs to its creator, and borrows lengths and sequence.
 * Threads: any.   Locks: its own, a leaf, over the dealing of a window (G turns a step).
 * Errors: -ENOMEM.   Blocks: on the processor only. */
#ifndef PS_ORDER_DEAL_H
#define PS_ORDER_DEAL_H

#include "order/sequence.h"
#include "order/steps.h"

struct ps_deal_options {
	const struct ps_lane_set *sets; /* copied */
	uint32_t nsets;
	const uint64_t *lengths; /* of the lanes */
	const struct ps_sequence *sequence;
	struct ps_steps steps;
	uint64_t begin, end;  /* canonical positions that are given: `end` is behind the last, or PS_ENDLESS */
	uint32_t rank, nodes; /* this is rank of steps.world; nodes divides that */
};

struct ps_dealt {
	uint64_t index; /* of the lane's samples */
	uint32_t lane;
};

struct ps_deal;

int ps_deal_new(const struct ps_deal_options *options, struct ps_deal **ret_deal) PS_MUST_USE;
void ps_deal_free(struct ps_deal *deal); /* NULL is allowed */

/* The rows of this rank in a step: ps_steps_rows() of them. */
int ps_deal_step(struct ps_deal *deal, uint64_t step, struct ps_dealt *ret_rows) PS_MUST_USE;

enum {
	PS_DEAL_NONE = 0,  /* there is none any more in this epoch */
	PS_DEAL_FOUND = 1, /* it is *ret_index */
	PS_DEAL_LATER = 2, /* there is none before *ret_index: ask again from there */
};

/* Which sample of a lane, from `index` on, is the next of this rank. */
int ps_deal_next(struct ps_deal *deal, uint32_t lane, uint64_t index, uint64_t *ret_index) PS_MUST_USE;

/* Which of n samples of a lane, from `index` on, are of this rank. */
int ps_deal_wanted(
        struct ps_deal *deal, uint32_t lane, uint64_t index, uint32_t n, bool *ret_wanted) PS_MUST_USE;

#endif
