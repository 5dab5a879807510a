/* Read-ahead of one open file: recognises the streams among its reads, whoever makes them, and keeps a window
 * of wanted blocks before each. Random readers get nothing they did not ask for.
 *
 * One for all handles of a file: eight workers that each opened the same tar are eight streams here, or one
 * where they read the same place, and share the memory fairly.
 *
 * A stream's window starts small and doubles each time its reader had to wait, so that it comes to cover
 * bandwidth x delay of the origin and no more; it is bounded by the memory budget and the number of streams.
 * A forward skip of up to half a window keeps the stream (a tar reader passes over members it does not want).
 *
 *   read                                        the stream it makes or meets
 *   at offset 0                                 a stream at once: who reads the head mostly goes on
 *   elsewhere, near no stream                   a candidate: no window, a random read so far
 *   just after a candidate                      a stream; while most reads of the file are random, only after
 *                                               512 KiB in a row
 *   within half a window after a stream         goes on; doubles the window if it had to wait
 *
 * Ownership: the file's; a reference a handle. Threads: any; reads of one file come from several at once, and
 * a little out of order. Locks: one, before the engine's. Blocks: never. */
#ifndef PS_PREFETCH_READAHEAD_H
#define PS_PREFETCH_READAHEAD_H

#include "fetch/fill.h"

#define PS_STREAMS 32 /* of one file; the least recently used one gives way */

struct ps_readahead;

/* The file's; made by the first get. -ENOMEM. */
int ps_readahead_get(struct ps_fill_file *file, struct ps_readahead **ret) PS_MUST_USE;
/* The last put takes back what was wanted and not begun. The file is still referenced. */
void ps_readahead_put(struct ps_readahead *ra);

/* A read of [offset, offset + nbytes) comes: what it is, and the stream that ps_readahead_go() is told. */
unsigned ps_readahead_saw(
        struct ps_readahead *ra, uint64_t offset, uint64_t nbytes, enum ps_access *ret_access);
/* The read has been issued, and had to wait or not: wants what its stream's window has come to cover. */
void ps_readahead_go(struct ps_readahead *ra, unsigned stream, bool waited);

#endif
