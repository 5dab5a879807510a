/* A progress line on a terminal: bytes, rate, time left. Silent if stderr is not a terminal.
 *
 * Threads: one. Blocks: on the terminal. */
#ifndef PS_BASE_PROGRESS_H
#define PS_BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct ps_progress {
	bool shown;  /* stderr is a terminal, and the line is wanted */
	bool drawn;  /* a line is on the screen, to be overwritten */
	bool counts; /* the line is a count (ps_progress_count()), and is removed at the end */
	uint64_t start_ns, drawn_ns;
	uint64_t start_nbytes; /* done before the start; not part of the rate */
};

void ps_progress_init(struct ps_progress *p, bool wanted, uint64_t start_nbytes);
/* Draws at most ten times a second, but always when done == total. `note` is a few words, or "". */
void ps_progress_update(struct ps_progress *p, uint64_t done, uint64_t total, const char *note);
/* For work of unknown length: "WHAT: N files". Draws at most ten times a second; ps_progress_end() removes
 * the line. */
void ps_progress_count(struct ps_progress *p, const char *what, uint64_t nfiles);
/* Ends the line, so that other output may follow. */
void ps_progress_end(struct ps_progress *p);

/* The line itself, without control characters; for tests. Returns buf. */
#define PS_PROGRESS_LEN 128
const char *ps_progress_text(uint64_t done, uint64_t total, uint64_t fresh_nbytes, uint64_t elapsed_ns,
        const char *note, char buf[static PS_PROGRESS_LEN]);

#endif
