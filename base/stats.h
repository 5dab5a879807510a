/* Parts of statistics: histograms of latencies, the time during which at least one thread waits, and system
 * strings as valid JSON.
 *
 * Ownership: the caller's memory; a histogram of zeros is empty. Threads: any. Blocks: never. */
#ifndef PS_BASE_STATS_H
#define PS_BASE_STATS_H

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

/* Upper bounds of 100 us to 100 s, three a decade; the last bucket has no bound. Lock-free. */
#define PS_HISTOGRAM_BUCKETS 20
struct ps_histogram {
	_Atomic uint64_t counts[PS_HISTOGRAM_BUCKETS], sum_ns;
};
void ps_histogram_add(struct ps_histogram *histogram, uint64_t ns);
/* In Prometheus' form: {"buckets": {"0.0001": N, ..., "+Inf": N}, "sum": SECONDS, "count": N}; each bucket
 * includes all lower ones. */
json_t *ps_histogram_json(const struct ps_histogram *histogram);

/* Overlapping waits count once: ten readers that wait the same second have waited one second. */
struct ps_waits {
	pthread_mutex_t lock;
	unsigned n; /* threads that wait now */
	uint64_t since_ns, total_ns;
};
void ps_waits_init(struct ps_waits *waits);
void ps_waits_fini(struct ps_waits *waits);
void ps_waits_begin(struct ps_waits *waits, uint64_t now_ns);
void ps_waits_end(struct ps_waits *waits, uint64_t now_ns);
/* The total time so far; *ret_n: how many threads wait now. */
uint64_t ps_waits_ns(struct ps_waits *waits, unsigned *ret_n);

/* The text as a JSON string. If it is not UTF-8, each byte that is not ASCII becomes U+FFFD: paths and
 * names are bytes, JSON allows UTF-8 only, and one invalid string would make the whole document fail. NULL:
 * out of memory. */
json_t *ps_json_lossy(const char *text);

/* A copy of a document of others, for a terminal: control characters in its strings and names become \n,
 * \r, \t or \x1b. NULL: out of memory. */
json_t *ps_json_printable(const json_t *json);
/* json_dumps(), with those control characters escaped that JSON allows and a terminal may obey. The caller
 * frees it; NULL: out of memory. */
char *ps_json_dump(const json_t *json, size_t flags);

#endif
