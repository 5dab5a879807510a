/* Who waits for whom: the time that a stage's threads wait, and what for.
 *
 * Threads and locks: guarded by the pipeline's lock, as the waiting itself is. */
#ifndef PS_PIPELINE_STAGE_H
#define PS_PIPELINE_STAGE_H

#include <pthread.h>
#include <stdint.h>

#include "base/clock.h"

enum ps_wait {
	PS_WAIT_INPUT,  /* for what the stage needs */
	PS_WAIT_OUTPUT, /* for room for what it made */
	PS_NWAITS,
};

/* What a wait of the consumer was for. */
enum ps_blame {
	PS_BLAME_STORAGE,
	PS_BLAME_READ,
	PS_BLAME_DECODE,
	PS_NBLAMES,
};

struct ps_stage {
	uint32_t nthreads;      /* that run now ... */
	uint64_t began_ns;      /* ... and the sum of the times they began at, less those that ended: below */
	uint64_t ns[PS_NWAITS]; /* of waits that are over */
	uint32_t now[PS_NWAITS];   /* threads that wait now ... */
	uint64_t since[PS_NWAITS]; /* ... and the sum of the times they began at */
};

/* A thread of the stage begins or ends, or is parked: what it does between is no time of the stage. */
static inline void ps_stage_enter(struct ps_stage *stage)
{
	stage->nthreads++;
	stage->began_ns += ps_clock_mono_ns();
}

static inline void ps_stage_leave(struct ps_stage *stage)
{
	stage->nthreads--;
	stage->began_ns -= ps_clock_mono_ns(); /* may wrap; the sum below is right all the same */
}

/* Waits on the condition once, and counts it. until_ns: of the monotonic clock, as the condition's must be
 * then; NULL: without end. */
static inline void ps_stage_wait(struct ps_stage *stage, enum ps_wait why, pthread_cond_t *cond,
        pthread_mutex_t *lock, const uint64_t *until_ns)
{
	uint64_t start = ps_clock_mono_ns();

	stage->now[why]++;
	stage->since[why] += start;
	if (until_ns) {
		const struct timespec until = {.tv_sec = (time_t)(*until_ns / 1000000000u),
		        .tv_nsec = (long)(*until_ns % 1000000000u)};

		pthread_cond_timedwait(cond, lock, &until);
	} else {
		pthread_cond_wait(cond, lock);
	}
	stage->now[why]--;
	stage->since[why] -= start;
	stage->ns[why] += ps_clock_mono_ns() - start;
}

/* Time spent in one kind of wait until `now`. */
static inline uint64_t ps_stage_waited(const struct ps_stage *stage, enum ps_wait why, uint64_t now)
{
	return stage->ns[why] + stage->now[why] * now - stage->since[why];
}

/* Time of all threads until `now`: those that ended count with what they had. */
static inline uint64_t ps_stage_total(const struct ps_stage *stage, uint64_t now)
{
	return stage->nthreads * now - stage->began_ns;
}

#endif
