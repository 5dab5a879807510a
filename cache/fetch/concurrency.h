/* How many transfers at once are worth it: more while they bring more bytes, fewer when the origin asks for
 * it.
 *
 * Hill climbing. While every connection is in use and more is demanded, another half is added; if that brings
 * at least PS_CONCURRENCY_GAIN more, it goes on, else the step is taken back and nothing is tried for a
 * while. An answer of 429 or 503 halves the number and forbids steps for longer. An origin that limits each
 * connection (object stores do) so gets many, a loopback or a saturated line few.
 *
 * Where it begins depends on how far away the origin is, which its first answer tells: a near one (loopback,
 * a local network) fills the line with PS_CONCURRENCY_NEAR connections, and more only cost; a far one needs
 * many from the start. What somebody waits for may always use PS_CONCURRENCY_START: such requests are few,
 * and must not queue behind some that stall.
 *
 *   state    when every connection is in use                              else
 *   steady   after the hold: another half, settling                       stays
 *   settling after a period: measuring                                    steady, step taken back
 *   measuring after a period: gained: another half, settling;             steady, step taken back
 *             not: step back, steady, hold
 *
 * Ownership: part of the fill engine. Threads: one at a time (the engine's lock). Blocks: never. */
#ifndef PS_FETCH_CONCURRENCY_H
#define PS_FETCH_CONCURRENCY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

#define PS_CONCURRENCY_START 16
#define PS_CONCURRENCY_NEAR 4
#define PS_CONCURRENCY_FAR 24
#define PS_CONCURRENCY_NEAR_NS (5 * PS_NS_PER_MS) /* a first byte sooner than this comes from near, ... */
#define PS_CONCURRENCY_FAR_NS (20 * PS_NS_PER_MS) /* one later than this from far away */
#define PS_CONCURRENCY_PERIOD_MS 150
#define PS_CONCURRENCY_GAIN 1.08
#define PS_CONCURRENCY_HOLD_MS 5000
#define PS_CONCURRENCY_PUSHBACK_MS 15000

struct ps_concurrency {
	unsigned limit;  /* transfers at once, 1 to max; read by the caller */
	unsigned demand; /* of what somebody waits for; at least limit */
	unsigned max;
	bool placed;     /* near, far, or between */
	unsigned before; /* the step that is being tried */
	enum { PS_STEADY, PS_SETTLING, PS_MEASURING } state;
	uint64_t since_ns, since_bytes; /* of the period */
	uint64_t hold_until_ns;
	double rate; /* bytes a second at `before` */
};

void ps_concurrency_init(struct ps_concurrency *c, unsigned max);
/* How long the origin took to answer; only the first counts. */
void ps_concurrency_first_byte(struct ps_concurrency *c, uint64_t ns);
/* Called often (every few ms to 50 ms) while there is traffic. total_bytes: received so far. saturated: since
 * the last call all connections were in use and something waited for one. */
void ps_concurrency_tick(struct ps_concurrency *c, uint64_t now_ns, uint64_t total_bytes, bool saturated);
/* The origin asked for fewer requests. */
void ps_concurrency_pushback(struct ps_concurrency *c, uint64_t now_ns);

#endif
