/* Clocks. Threads: any. Errors: none. */
#ifndef PS_BASE_CLOCK_H
#define PS_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define PS_NS_PER_S UINT64_C(1000000000)
#define PS_NS_PER_MS UINT64_C(1000000)

static inline uint64_t ps_clock_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * PS_NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* Nanoseconds of CLOCK_MONOTONIC: for deadlines and durations, never stored. */
static inline uint64_t ps_clock_mono_ns(void)
{
	return ps_clock_ns(CLOCK_MONOTONIC);
}

/* Time since the epoch: for values that are stored or shown. */
int64_t ps_clock_real_s(void);
int64_t ps_clock_real_ms(void);

/* A random time up to `most`, both ends included, in the caller's unit. Clients that waited or failed together must
 * not come back together. */
uint64_t ps_clock_jitter(uint64_t most);
/* The pause after so many failures in a row: `first`, doubled for each further one, `most` at most. */
uint64_t ps_clock_backoff(uint64_t first, uint64_t most, unsigned failures);

/* "2026-01-02T03:04:05.678+01:00", "2026-01-02T03:04:05Z" to seconds since the epoch; -1: malformed. */
int64_t ps_clock_parse_rfc3339(const char *text);

/* The kernel's boot id (36 characters and NUL), or "" if /proc lacks it. Two equal non-empty ids mean that
 * the page cache was not lost in between. */
void ps_clock_boot_id(char ret_id[static 37]);

#endif
