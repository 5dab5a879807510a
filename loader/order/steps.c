#include "config.h"

#include "order/steps.h"

static uint64_t global(const struct ps_steps *s)
{
	return (uint64_t)s->batch * s->world;
}

static uint64_t rest(const struct ps_steps *s)
{
	return s->samples == PS_ENDLESS ? 0 : s->samples % global(s);
}

/* The last full step gives samples to the one behind it. */
static bool borrows(const struct ps_steps *s)
{
	return s->end == PENSTOCK_END_SPLIT && s->batch > 1 && s->samples != PS_ENDLESS &&
	       s->samples >= global(s) && rest(s) > 0 && rest(s) < s->world;
}

uint64_t ps_steps_begin(const struct ps_steps *s, uint64_t step)
{
	uint64_t full, begin;

	if (s->samples == PS_ENDLESS)
		return step * global(s);
	full = s->samples / global(s);
	begin = step > full ? s->samples : step * global(s);
	return borrows(s) && step == full ? begin - s->world : begin;
}

uint32_t ps_steps_rows(const struct ps_steps *s, uint64_t step, uint32_t rank)
{
	uint64_t n = ps_steps_begin(s, step + 1) - ps_steps_begin(s, step);

	return n > rank ? (uint32_t)((n - rank + s->world - 1) / s->world) : 0;
}

uint64_t ps_steps_count(const struct ps_steps *s, uint32_t rank)
{
	uint64_t n;

	if (s->samples == PS_ENDLESS)
		return s->most;
	n = s->samples / global(s);
	if (s->end == PENSTOCK_END_PAD || s->end == PENSTOCK_END_SPLIT)
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
