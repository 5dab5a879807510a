/* A long text kept in memory compressed: listings of a million names shrink to a tenth. It is added to at its
 * end, then read from its beginning, window by window, as often as wanted.
 *
 * Ownership: the caller's memory; fini frees what it holds. Threads: one at a time. Blocks: never. */
#ifndef PS_BASE_PACKED_H
#define PS_BASE_PACKED_H

#include "base/strbuf.h"

#define PS_PACKED_BLOCK_NBYTES ((size_t)256 << 10) /* what is compressed at a time; less is kept as it is */

struct ps_packed {
	size_t nbytes;
	struct ps_strbuf tail;   /* not compressed yet */
	struct ps_strbuf frames; /* of zstd, a block each */
	void *compressor;
	bool failed; /* out of memory; remembered, and reported by each */
};

#define ps_autopacked __attribute__((cleanup(ps_packed_fini)))

void ps_packed_fini(struct ps_packed *p);
void ps_packed_reset(struct ps_packed *p);
void ps_packed_add(struct ps_packed *p, const void *bytes, size_t n);
/* Gives back what only adding needs, of a text that is kept; it can be added to all the same. */
void ps_packed_settle(struct ps_packed *p);

/* Some text. `more`: more follows it. *ret_used bytes are done with; the others are given once more,
 * with what follows them, so one who needs to see further uses less than all. A result other than 0 ends the
 * walk. */
typedef int (*ps_window_fn)(void *arg, const char *text, size_t n, bool more, size_t *ret_used);

/* 0, -ENOMEM, or what fn returned. fn is called at least once. */
int ps_packed_each(const struct ps_packed *p, ps_window_fn fn, void *arg) PS_MUST_USE;

#endif
