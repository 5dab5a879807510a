/* A line on stderr that tells how far long work has come; only where stderr is a terminal.
 *
 * Threads: any may count; the line is redrawn by whoever finds it old. */
#ifndef PS_TOOLS_PROGRESS_H
#define PS_TOOLS_PROGRESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct ps_progress {
	bool shown;
	const char *what, *unit; /* "pack", "shards" */
	uint64_t total;          /* units; 0: not known */
	pthread_mutex_t lock;    /* all below */
	uint64_t done, nbytes;
	double began, drawn;
};

void ps_progress_begin(struct ps_progress *progress, const char *what, const char *unit, uint64_t total);
void ps_progress_add(struct ps_progress *progress, uint64_t units, uint64_t nbytes);
void ps_progress_wipe(struct ps_progress *progress); /* so that lines can be printed */
void ps_progress_end(struct ps_progress *progress);  /* wipes it, too */

#endif
