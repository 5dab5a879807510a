/* Statistics of the fill engine, and its last failure. */
#include "fetch/fill_private.h"

#include <stdio.h>

#include <errno.h>

#include "base/stats.h"

void ps_fill_count_request(struct ps_fill *fill, bool failed)
{
	atomic_fetch_add(&fill->origin.requests, 1);
	atomic_fetch_add(&fill->origin.errors, failed);
}

void ps_fill_count_answer(struct ps_fill *fill, uint64_t first_byte_ns)
{
	if (first_byte_ns)
		ps_histogram_add(&fill->origin_latency, first_byte_ns);
}

void ps_fill_note_error(struct ps_fill *fill, const char *text)
{
	PS_LOCK_SCOPE(&fill->lock);
	snprintf(fill->last_error, sizeof(fill->last_error), "%s", text);
	fill->last_error_s = ps_clock_real_s();
}

json_t *ps_fill_origin_stats(struct ps_fill *fill)
{
	PS_LOCK_SCOPE(&fill->lock);

	/* Names in last_error need not be UTF-8. */
	return ps_figures_json(PS_SECTION_origin, &fill->origin, "{s:i,s:f,s:o,s:o,s:I}", "connections",
	        (int)atomic_load(&fill->connections), "timeout_seconds",
	        (double)fill->timeout_ns / PS_NS_PER_S, "latency_seconds",
	        ps_histogram_json(&fill->origin_latency), "last_error", ps_json_lossy(fill->last_error),
	        "last_error_at", (json_int_t)fill->last_error_s);
}

json_t *ps_fill_read_stats(struct ps_fill *fill)
{
	json_t *doc = ps_read_stats_json(&fill->reads);
	uint64_t bytes = atomic_load(&fill->reads.counters.bytes);
	uint64_t fetched = atomic_load(&fill->hits.fetched_bytes);
	json_t *hits = ps_figures_json(PS_SECTION_hits, &fill->hits, "{s:I}", "hit_bytes",
	        (json_int_t)(bytes > fetched ? bytes - fetched : 0));

	json_object_update(doc, hits);
	json_decref(hits);
	return doc;
}

void ps_read_stats_init(struct ps_read_stats *stats)
{
	*stats = (struct ps_read_stats){0};
	ps_waits_init(&stats->waits);
}

void ps_read_stats_fini(struct ps_read_stats *stats)
{
	ps_waits_fini(&stats->waits);
}

json_t *ps_read_stats_json(struct ps_read_stats *stats)
{
	unsigned waiting;
	uint64_t stalled_ns = ps_waits_ns(&stats->waits, &waiting);

	return ps_figures_json(PS_SECTION_reads, &stats->counters, "{s:f,s:I,s:o}", "stalled_seconds",
	        (double)stalled_ns / (double)PS_NS_PER_S, "waiting", (json_int_t)waiting, "latency_seconds",
	        ps_histogram_json(&stats->latency));
}

static void count_hit(struct ps_read_stats *stats, size_t nbytes, uint64_t ns)
{
	/* Relaxed: nothing is ordered by these sums. */
	atomic_fetch_add_explicit(&stats->counters.bytes, nbytes, memory_order_relaxed);
	atomic_fetch_add_explicit(&stats->counters.ready_bytes, nbytes, memory_order_relaxed);
	ps_histogram_add(&stats->latency, ns);
}

static void count(struct ps_read_stats *stats, const struct ps_read *read, uint64_t now_ns)
{
	uint64_t ns = now_ns - read->priv.issued_ns;

	if (!read->priv.errnum && !read->priv.waited) {
		count_hit(stats, read->nbytes, ns);
		return;
	}
	if (!read->priv.errnum)
		atomic_fetch_add_explicit(&stats->counters.bytes, read->nbytes, memory_order_relaxed);
	if (read->priv.errnum != ECANCELED)
		ps_histogram_add(&stats->latency, ns);
	if (read->priv.waited)
		ps_waits_end(&stats->waits, now_ns);
}

void ps_fill_count_read(struct ps_fill *fill, const struct ps_read *read)
{
	uint64_t now_ns = ps_clock_mono_ns();

	count(&fill->reads, read, now_ns);
	if (read->stats)
		count(read->stats, read, now_ns);
}

void ps_fill_count_hit(struct ps_fill *fill, struct ps_read_stats *stats, size_t nbytes, uint64_t issued_ns)
{
	uint64_t ns = ps_clock_mono_ns() - issued_ns;

	count_hit(&fill->reads, nbytes, ns);
	if (stats)
		count_hit(stats, nbytes, ns);
}

void ps_fill_count_wait(struct ps_fill *fill, const struct ps_read *read)
{
	ps_waits_begin(&fill->reads.waits, read->priv.issued_ns);
	if (read->stats)
		ps_waits_begin(&read->stats->waits, read->priv.issued_ns);
}

void ps_fill_count_bytes(struct ps_fill *fill, uint64_t of_origin, uint64_t of_tiers)
{
	atomic_fetch_add(&fill->origin.bytes, of_origin);
	atomic_fetch_add(&fill->tier_bytes, of_tiers);
}
