/* A thread for requests that wait for the cache's disk longer than a FUSE worker should: admission of a file,
 * which may unlink others, and eviction.
 *
 * Ownership: part of a ps_fs; a job belongs to its run function, which frees it. Jobs run one after another,
 * in order. Threads: add from any; start and stop from the session's. Locks: one, a leaf. */
#ifndef PS_FUSE_BACKGROUND_H
#define PS_FUSE_BACKGROUND_H

#include <pthread.h>
#include <stdbool.h>

#include "base/cleanup.h"
#include "base/list.h"

struct ps_job {
	struct ps_list link;
	void (*run)(struct ps_job *job);
};

struct ps_background {
	pthread_mutex_t lock; /* all below */
	pthread_cond_t cond;
	struct ps_list jobs;
	bool stopping, started;
	pthread_t thread;
};

void ps_background_init(struct ps_background *bg);
void ps_background_fini(struct ps_background *bg);
int ps_background_start(struct ps_background *bg) PS_MUST_USE;
/* What was added is done first. */
void ps_background_stop(struct ps_background *bg);
void ps_background_add(struct ps_background *bg, struct ps_job *job);

#endif
