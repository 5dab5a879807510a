/* The Hub's limits: so many requests of a class ("api" for listings, "resolvers" for files) in a window of some minutes.
 * Each answer tells how many are left and when the window ends; what is under way meanwhile is counted here, so that the
 * limit is kept and not run into.
 *
 * Ownership: an origin's. Threads: any. Locks: one, a leaf. Blocks: never. */
#ifndef PS_ORIGIN_HUB_LIMIT_H
#define PS_ORIGIN_HUB_LIMIT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum ps_hf_class { PS_HF_API, PS_HF_RESOLVERS, PS_HF_CLASSES };

struct ps_hf_limit {
	pthread_mutex_t lock; /* protects what follows */
	struct ps_hf_window {
		uint64_t until_ns; /* of CLOCK_MONOTONIC; past it, or 0: nothing is known */
		int64_t left;
		unsigned inflight;
	} windows[PS_HF_CLASSES];
};

void ps_hf_limit_init(struct ps_hf_limit *limit);
void ps_hf_limit_fini(struct ps_hf_limit *limit);

/* 0: a request may go out now, and is counted. Else it may in so many milliseconds. */
uint32_t ps_hf_limit_take(struct ps_hf_limit *limit, enum ps_hf_class class, uint64_t now_ns);
/* One that went out has been answered, or not. */
void ps_hf_limit_put(struct ps_hf_limit *limit, enum ps_hf_class class);
/* An answer's RateLimit; refused: it was a 429. Milliseconds after which one may ask again, 0 if one may now. */
uint32_t ps_hf_limit_told(struct ps_hf_limit *limit, const char *class, int64_t left, int64_t reset_s, bool refused,
        uint64_t now_ns);

#endif
