/* The number of concurrent transfers: it grows while that raises throughput, and falls when the origin asks
 * for fewer requests.
 *
 * The method is hill climbing. While every connection is in use and a demand waits for one, the number
 * grows by half: a step. If the throughput then grows by the factor PS_CONCURRENCY_GAIN or more, the next
 * step follows. Otherwise the step is undone, and no step is tried for PS_CONCURRENCY_HOLD_MS. An answer of
 * 429 or 503 halves the number, and no step is tried for PS_CONCURRENCY_PUSHBACK_MS. So an origin that
 * limits each connection, as object stores do, gets many connections; a loopback or a saturated line gets
 * few.
 *
 * The initial number depends on the latency of the origin's first answer. PS_CONCURRENCY_NEAR connections
 * to a near origin (loopback, a local network) fill the line, and more would only cost CPU time; a far
 * origin needs many from the start. Until the first range request is answered, the latency of a listing's
 * answer is used: otherwise a file that is read right after the mount would have few connections during its
 * first round trips. The number of a far origin does not grow for PS_CONCURRENCY_FAR_HOLD_MS: new
 * connections are slow at first, and the bytes that a reader needs next would come over the newest ones.
 * Demand reads may use PS_CONCURRENCY_START or more (429 and 503 halve that, too): their requests are few,
 * and must not queue behind stalled ones.
 *
 *   state     when every connection is in use                                   else
 *   steady    after the hold: a step; then settling                             steady
 *   settling  after a period: measuring                                         step undone; steady
 *   measuring after a period: the gain is enough: a step; then settling;        step undone; steady
 *             else: the step is undone; then steady, with a hold
 *
 * Ownership: part of the fill engine. Threads: one at a time (the engine's lock). Never blocks. */
#ifndef PS_FETCH_CONCURRENCY_H
#define PS_FETCH_CONCURRENCY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

#define PS_CONCURRENCY_START 16
#define PS_CONCURRENCY_NEAR 4
#define PS_CONCURRENCY_FAR 64
#define PS_CONCURRENCY_NEAR_NS (5 * PS_NS_PER_MS) /* a first byte within this time: a near origin */
#define PS_CONCURRENCY_FAR_NS (20 * PS_NS_PER_MS) /* a first byte after this time: a far origin */
#define PS_CONCURRENCY_PERIOD_MS 150
#define PS_CONCURRENCY_GAIN 1.08
#define PS_CONCURRENCY_HOLD_MS 5000
#define PS_CONCURRENCY_FAR_HOLD_MS 1000
#define PS_CONCURRENCY_PUSHBACK_MS 15000

struct ps_concurrency {
	unsigned limit;  /* concurrent transfers, 1 to max; read by the caller */
	unsigned demand; /* the same for demand reads; at least limit */
	unsigned max;
	bool placed;     /* the initial number has been adapted to the origin */
	bool far;        /* the first answer took PS_CONCURRENCY_FAR_NS or more */
	unsigned before; /* limit before the step that is being tried */
	enum { PS_STEADY, PS_SETTLING, PS_MEASURING } state;
	uint64_t since_ns, since_bytes; /* start of the period */
	uint64_t hold_until_ns;
	double rate; /* throughput at `before`, in bytes a second */
	double seen; /* throughput of the last period in which every connection was in use; 0: there was none */
};

void ps_concurrency_init(struct ps_concurrency *c, unsigned max);
/* Reports the latency of an answer to another request than a range request; 0: there was no answer. No
 * effect after the first answer to a range request. */
void ps_concurrency_expect(struct ps_concurrency *c, uint64_t now_ns, uint64_t ns);
/* Reports the latency of an answer to a range request; only the first call has an effect. */
void ps_concurrency_first_byte(struct ps_concurrency *c, uint64_t now_ns, uint64_t ns);
/* Called often (every few ms to 50 ms) while there is traffic. total_bytes: received so far. saturated:
 * most connections are in use now, and a demand waits for one. */
void ps_concurrency_tick(struct ps_concurrency *c, uint64_t now_ns, uint64_t total_bytes, bool saturated);
/* How long nbytes would take over all connections: a round trip (first_byte_ns), and then at the throughput seen last,
 * or, as long as none was seen, at 1 MiB for each connection and round trip. */
uint64_t ps_concurrency_time_ns(const struct ps_concurrency *c, uint64_t nbytes, uint64_t first_byte_ns);
/* The origin asked for fewer requests. */
void ps_concurrency_pushback(struct ps_concurrency *c, uint64_t now_ns);

#endif
