/* Steps of an epoch: which samples are in a step, and which ranks have rows of it. */
#include "order/order.h"

static uint64_t global(const struct ps_steps *s)
{
	return (uint64_t)s->batch * s->world;
}

static uint64_t rest(const struct ps_steps *s)
{
	return s->samples == PS_ENDLESS ? 0 : s->samples % global(s);
}

uint64_t ps_steps_begin(const struct ps_steps *s, uint64_t step)
{
	uint64_t full, begin;
	bool borrows; /* the last full step gives samples to the step after it */

	if (s->samples == PS_ENDLESS)
		return step * global(s);
	full = s->samples / global(s);
	begin = step > full ? s->samples : step * global(s);
	borrows =
	        s->end == PENSTOCK_END_SPLIT && s->batch > 1 && full > 0 && rest(s) > 0 && rest(s) < s->world;
	return borrows && step == full ? begin - s->world : begin;
}

/* A rank as the caller numbers them: those of a node follow each other. */
static uint32_t outer_rank(const struct ps_steps *s, uint32_t rank)
{
	uint32_t nodes = s->nodes ? s->nodes : s->world;

	return rank % nodes * (s->world / nodes) + rank / nodes;
}

static uint32_t inner_rank(const struct ps_steps *s, uint32_t outer)
{
	uint32_t nodes = s->nodes ? s->nodes : s->world, each = s->world / nodes;

	return outer % each * nodes + outer / each;
}

uint32_t ps_steps_rows(const struct ps_steps *s, uint64_t step, uint32_t rank)
{
	uint64_t n = ps_steps_begin(s, step + 1) - ps_steps_begin(s, step), below;

	if (s->end == PENSTOCK_END_GATHER) {
		below = (uint64_t)outer_rank(s, rank) * s->batch;
		return n > below ? (uint32_t)PS_MIN(n - below, s->batch) : 0;
	}
	return n > rank ? (uint32_t)((n - rank + s->world - 1) / s->world) : 0;
}

uint32_t ps_steps_source(const struct ps_steps *s, uint64_t step, uint32_t rank)
{
	uint64_t n = ps_steps_begin(s, step + 1) - ps_steps_begin(s, step);
	bool fills = s->end == PENSTOCK_END_PAD || s->end == PENSTOCK_END_SPLIT;

	if (s->end == PENSTOCK_END_GATHER && n > 0 && ps_steps_rows(s, step, rank) == 0)
		return inner_rank(s, (uint32_t)(outer_rank(s, rank) % ((n + s->batch - 1) / s->batch)));
	return fills && n > 0 && rank >= n ? (uint32_t)(rank % n) : rank;
}

uint64_t ps_steps_count(const struct ps_steps *s, uint32_t rank)
{
	uint64_t n;

	if (s->samples == PS_ENDLESS)
		return s->most;
	n = s->samples / global(s);
	if (s->end == PENSTOCK_END_PAD || s->end == PENSTOCK_END_SPLIT || s->end == PENSTOCK_END_GATHER)
		n += rest(s) > 0;
	else if (s->end == PENSTOCK_END_UNEVEN)
		n += rest(s) > rank;
	return n < s->most ? n : s->most;
}

uint64_t ps_steps_end(const struct ps_steps *s)
{
	uint64_t n = s->samples == PS_ENDLESS ? s->most : s->samples / global(s) + 1;

	if (n > s->most)
		n = s->most;
	if (n == PS_ENDLESS)
		return PS_ENDLESS;
	return s->end == PENSTOCK_END_DROP_LAST && s->samples != PS_ENDLESS
	               ? PS_MIN(n, s->samples / global(s)) * global(s)
	               : ps_steps_begin(s, n);
}
