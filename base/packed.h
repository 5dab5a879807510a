/* A long text, kept compressed in memory: a listing of a million names shrinks to a tenth. Text is
 * appended, then read from the beginning, window by window, any number of times.
 *
 * Ownership: a struct ps_packed is in the caller's memory; ps_packed_fini() frees what it holds. Threads:
 * one at a time. Blocks: never. */
#ifndef PS_BASE_PACKED_H
#define PS_BASE_PACKED_H

#include "base/strbuf.h"

/* compressed at a time; a shorter tail stays uncompressed */
#define PS_PACKED_BLOCK_NBYTES ((size_t)256 << 10)

struct ps_packed {
	size_t nbytes;
	struct ps_strbuf tail;   /* not yet compressed */
	struct ps_strbuf frames; /* zstd frames, one for each block */
	void *compressor;
	bool failed; /* out of memory; ps_packed_each() reports it */
};

#define ps_autopacked __attribute__((cleanup(ps_packed_fini)))

void ps_packed_fini(struct ps_packed *p);
void ps_packed_reset(struct ps_packed *p);
void ps_packed_add(struct ps_packed *p, const void *bytes, size_t n);
/* Frees the memory that only appending needs, for a text that is kept. Appending stays possible. */
void ps_packed_settle(struct ps_packed *p);

/* Receives a window of the text. `more`: text follows it. fn sets *ret_used to the bytes that it has
 * consumed; the next window begins with the rest, and has further text appended. A result other than 0 ends
 * the walk. */
typedef int (*ps_window_fn)(void *arg, const char *text, size_t n, bool more, size_t *ret_used);

/* 0, -ENOMEM, or what fn returned. Unless memory runs out, fn is called at least once. */
int ps_packed_each(const struct ps_packed *p, ps_window_fn fn, void *arg) PS_MUST_USE;

#endif
