/* Times of a process, in nanoseconds. Threads: any. */
#ifndef PS_BASE_CLOCK_NS_H
#define PS_BASE_CLOCK_NS_H

#include <stdint.h>
#include <time.h>

static inline uint64_t ps_clock_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline uint64_t ps_mono_ns(void)
{
	return ps_clock_ns(CLOCK_MONOTONIC);
}

#endif
