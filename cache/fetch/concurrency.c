#include "fetch/concurrency.h"

#include "base/cleanup.h"
#include "base/size.h"

void ps_concurrency_init(struct ps_concurrency *c, unsigned max)
{
	*c = (struct ps_concurrency){.max = PS_MAX(max, 1u)};
	c->limit = PS_MIN(c->max, (unsigned)PS_CONCURRENCY_NEAR);
	c->demand = PS_MIN(c->max, (unsigned)PS_CONCURRENCY_START);
}

static void set_limit(struct ps_concurrency *c, unsigned limit)
{
	c->limit = PS_MIN(limit, c->max);
	c->demand = PS_MAX(c->demand, c->limit);
}

static void set_far(struct ps_concurrency *c, uint64_t now_ns)
{
	c->far = true;
	c->hold_until_ns = now_ns + PS_CONCURRENCY_FAR_HOLD_MS * PS_NS_PER_MS;
	set_limit(c, PS_CONCURRENCY_FAR);
}

void ps_concurrency_expect(struct ps_concurrency *c, uint64_t now_ns, uint64_t ns)
{
	if (!c->placed && !c->far && ns >= PS_CONCURRENCY_FAR_NS)
		set_far(c, now_ns);
}

void ps_concurrency_first_byte(struct ps_concurrency *c, uint64_t now_ns, uint64_t ns)
{
	if (c->placed)
		return;
	if (c->far && ns < PS_CONCURRENCY_FAR_NS) /* the server was slow to list, but is not far */
		ps_concurrency_init(c, c->max);
	c->placed = true;
	if (ns >= PS_CONCURRENCY_FAR_NS)
		set_far(c, now_ns);
	else if (ns >= PS_CONCURRENCY_NEAR_NS)
		set_limit(c, PS_CONCURRENCY_START);
}

static void begin_period(struct ps_concurrency *c, uint64_t now_ns, uint64_t total_bytes)
{
	c->since_ns = now_ns;
	c->since_bytes = total_bytes;
}

static void step_up(struct ps_concurrency *c)
{
	c->before = c->limit;
	set_limit(c, c->limit + (c->limit + 1) / 2);
	c->state = c->limit > c->before ? PS_SETTLING : PS_STEADY;
}

static void step_back(struct ps_concurrency *c, uint64_t hold_until_ns)
{
	if (c->state != PS_STEADY)
		c->limit = c->before;
	c->state = PS_STEADY;
	c->hold_until_ns = hold_until_ns;
}

void ps_concurrency_tick(struct ps_concurrency *c, uint64_t now_ns, uint64_t total_bytes, bool saturated)
{
	uint64_t period_ns = PS_CONCURRENCY_PERIOD_MS * PS_NS_PER_MS;

	if (!saturated || !c->since_ns) {
		/* The number of connections does not limit the rate now, so the step cannot be judged. */
		step_back(c, c->hold_until_ns);
		begin_period(c, now_ns, total_bytes);
		return;
	}
	if (now_ns - c->since_ns < period_ns)
		return;
	double rate = (double)(total_bytes - c->since_bytes) * 1e9 / (double)(now_ns - c->since_ns);
	c->seen = rate;
	switch (c->state) {
	case PS_STEADY:
		c->rate = rate;
		if (now_ns >= c->hold_until_ns)
			step_up(c);
		break;
	case PS_SETTLING: /* new connections are still in their handshakes */
		c->state = PS_MEASURING;
		break;
	case PS_MEASURING:
		if (rate >= c->rate * PS_CONCURRENCY_GAIN) {
			c->rate = rate;
			step_up(c);
		} else {
			step_back(c, now_ns + PS_CONCURRENCY_HOLD_MS * PS_NS_PER_MS);
		}
		break;
	}
	begin_period(c, now_ns, total_bytes);
}

uint64_t ps_concurrency_time_ns(const struct ps_concurrency *c, uint64_t nbytes, uint64_t first_byte_ns)
{
	double rate = c->seen;

	if (rate <= 0)
		rate = (double)c->limit * PS_MIB * 1e9 / (double)PS_MAX(first_byte_ns, PS_NS_PER_MS);
	return first_byte_ns + (uint64_t)((double)nbytes * 1e9 / rate);
}

void ps_concurrency_pushback(struct ps_concurrency *c, uint64_t now_ns)
{
	uint64_t hold = now_ns + PS_CONCURRENCY_PUSHBACK_MS * PS_NS_PER_MS;

	/* Requests that are in flight together are refused together: their push-backs count as one. */
	if (c->hold_until_ns + PS_NS_PER_S > hold)
		return;
	step_back(c, hold);
	c->limit = PS_MAX(1u, c->limit / 2);
	c->demand = PS_MAX(c->limit, c->demand / 2);
	c->placed = true; /* the push-back has shown the origin's limit */
}
