#include "http/http.h"

#include <stdlib.h>

#include "base/clock.h"

/* Shorter pieces count as if they had lasted this long: many servers send the first part of each answer faster
 * than the rest. */
#define SAMPLE_MIN_NS PS_NS_PER_S

void ps_http_paces_init(struct ps_http_paces *all)
{
	*all = (struct ps_http_paces){0};
	pthread_mutex_init(&all->lock, NULL);
}

void ps_http_paces_fini(struct ps_http_paces *all)
{
	pthread_mutex_destroy(&all->lock);
}

static int by_rate(const void *a, const void *b)
{
	const struct ps_http_sample *x = a, *y = b;

	return (x->rate > y->rate) - (x->rate < y->rate);
}

/* The median rate of the last PS_HTTP_SLOW_NS, in bytes a second: half of the bytes came faster. Bytes are
 * counted, and not requests, because slow requests may be many, but bring few bytes. 0: not known. */
static double median(struct ps_http_paces *all, uint64_t now_ns)
{
	struct ps_http_sample recent[PS_HTTP_SAMPLES];
	uint64_t nbytes = 0, sum = 0;
	bool any_whole = false;
	size_t n = 0;
	{
		PS_LOCK_SCOPE(&all->lock);
		for (size_t i = 0; i < PS_MIN(all->n, (uint64_t)PS_HTTP_SAMPLES); i++) {
			const struct ps_http_sample *s = &all->samples[i];

			if (now_ns - PS_MIN(s->at_ns, now_ns) >= PS_HTTP_SLOW_NS)
				continue;
			any_whole = any_whole || s->whole;
			recent[n++] = *s;
		}
	}
	qsort(recent, n, sizeof(*recent), by_rate);
	/* Requests that were answered show what is possible; if there are none, those that run do. */
	for (size_t i = 0; i < n; i++)
		if (!recent[i].whole && any_whole)
			recent[i].nbytes = 0;
	for (size_t i = 0; i < n; i++)
		nbytes += recent[i].nbytes;
	for (size_t i = 0; i < n; i++)
		if ((sum += recent[i].nbytes) * 2 >= nbytes && sum)
			return recent[i].rate;
	return 0;
}

void ps_http_pace_begin(struct ps_http_pace *pace, uint64_t now_ns, uint64_t nbytes)
{
	*pace = (struct ps_http_pace){.since_ns = now_ns, .since_nbytes = nbytes};
}

void ps_http_pace_end(
        struct ps_http_pace *pace, struct ps_http_paces *all, uint64_t now_ns, uint64_t nbytes, bool whole)
{
	if (pace->since_ns) {
		uint64_t ns = PS_MAX(now_ns - pace->since_ns, SAMPLE_MIN_NS), n = nbytes - pace->since_nbytes;

		PS_LOCK_SCOPE(&all->lock);
		all->samples[all->n++ % PS_HTTP_SAMPLES] = (struct ps_http_sample){
		        .at_ns = now_ns, .nbytes = n, .whole = whole, .rate = (double)n * 1e9 / (double)ns};
	}
	*pace = (struct ps_http_pace){0};
}

bool ps_http_pace_is_slow(
        struct ps_http_pace *pace, struct ps_http_paces *all, uint64_t now_ns, uint64_t nbytes)
{
	if (pace->since_ns && now_ns - pace->since_ns >= PS_HTTP_SLOW_NS) {
		struct ps_http_pace next = {.before_ns = pace->since_ns,
		        .before_nbytes = pace->since_nbytes,
		        .since_ns = now_ns,
		        .since_nbytes = nbytes};

		ps_http_pace_end(pace, all, now_ns, nbytes, false);
		*pace = next;
	}
	if (!pace->before_ns)
		return false;
	double rate = (double)(nbytes - pace->before_nbytes) * 1e9 / (double)(now_ns - pace->before_ns);
	return rate * PS_HTTP_SLOW_FACTOR < median(all, now_ns);
}

bool ps_http_paces_try(struct ps_http_paces *all, uint64_t now_ns)
{
	PS_LOCK_SCOPE(&all->lock);
	if (all->tried_ns && now_ns - PS_MIN(all->tried_ns, now_ns) < PS_HTTP_SLOW_NS)
		return false;
	all->tried_ns = now_ns;
	return true;
}
