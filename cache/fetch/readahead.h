/* Read-ahead of one open file: recognises sequential streams among its reads and keeps a window of wanted
 * blocks before each. Random readers get nothing they did not ask for.
 *
 * A stream's window starts small and doubles each time its reader had to wait, so that it comes to cover
 * bandwidth x delay of the origin and no more; it is bounded by a share of the memory budget.
 *
 * Ownership: part of a handle. Threads: any; reads of one handle come from several at once, and a little out
 * of order. Locks: one, a leaf but for the engine's. Blocks: never. */
#ifndef PS_FETCH_READAHEAD_H
#define PS_FETCH_READAHEAD_H

#include "fetch/fill.h"

#define PS_STREAMS 8 /* of one handle; workers that share a descriptor read at as many places */

struct ps_readahead {
	pthread_mutex_t lock;      /* protects what follows */
	struct ps_fill_file *file; /* the handle's */
	uint64_t clock;
	struct ps_stream {
		struct ps_want want; /* first block not asked for yet .. */
		uint64_t next;       /* offset where the next read is expected; UINT64_MAX: unused */
		uint64_t window;     /* bytes; 0: not known to be sequential yet */
		uint64_t wanted;     /* blocks below it have been asked for */
		uint64_t used;
	} streams[PS_STREAMS];
};

void ps_readahead_init(struct ps_readahead *ra, struct ps_fill_file *file);
void ps_readahead_fini(struct ps_readahead *ra);
/* What a read at this offset is going to be. */
enum ps_access ps_readahead_access(struct ps_readahead *ra, uint64_t offset);
/* A read of [offset, offset + nbytes) was issued, and had to wait or not. */
void ps_readahead_saw(struct ps_readahead *ra, uint64_t offset, uint64_t nbytes, bool waited);

#endif
