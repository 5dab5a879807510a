/* Steps of an epoch: which samples are in a step, and which ranks have rows of it. */
#include "order/order.h"

static uint64_t global(const struct ps_steps *s)
{
	return (uint64_t)s->batch * s->world;
}

/* The samples after those that were delivered before a resume. */
static uint64_t left(const struct ps_steps *s)
{
	return s->samples == PS_ENDLESS ? PS_ENDLESS : s->samples > s->from ? s->samples - s->from : 0;
}

static uint64_t rest(const struct ps_steps *s)
{
	return s->samples == PS_ENDLESS ? 0 : left(s) % global(s);
}

uint64_t ps_steps_begin(const struct ps_steps *s, uint64_t step)
{
	uint64_t full, begin;
	bool borrows; /* the last full step gives samples to the step after it */

	step = step > s->done ? step - s->done : 0;
	if (s->samples == PS_ENDLESS)
		return s->from + step * global(s);
	full = left(s) / global(s);
	begin = step > full ? left(s) : step * global(s);
	borrows =
	        s->end == PENSTOCK_END_SPLIT && s->batch > 1 && full > 0 && rest(s) > 0 && rest(s) < s->world;
	return s->from + (borrows && step == full ? begin - s->world : begin);
}

uint64_t ps_steps_of(const struct ps_steps *s, uint64_t q)
{
	uint64_t step = s->done + (q - s->from) / global(s);

	/* with PENSTOCK_END_SPLIT the last full step may give its last rows to the step after it */
	return q >= ps_steps_begin(s, step + 1) ? step + 1 : step;
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
	n = s->done + left(s) / global(s);
	if (s->end == PENSTOCK_END_PAD || s->end == PENSTOCK_END_SPLIT || s->end == PENSTOCK_END_GATHER)
		n += rest(s) > 0;
	else if (s->end == PENSTOCK_END_UNEVEN)
		n += rest(s) > rank;
	return n < s->most ? n : s->most;
}

uint64_t ps_steps_end(const struct ps_steps *s)
{
	uint64_t full = left(s) / global(s), n = s->samples == PS_ENDLESS ? s->most : s->done + full + 1;

	if (n > s->most)
		n = s->most;
	if (n == PS_ENDLESS)
		return PS_ENDLESS;
	return s->end == PENSTOCK_END_DROP_LAST && s->samples != PS_ENDLESS
	               ? ps_steps_begin(s, PS_MIN(n, s->done + full))
	               : ps_steps_begin(s, n);
}
