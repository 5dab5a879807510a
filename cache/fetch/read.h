/* One read of a file: what the mount asks, the engine answers and the figures count.
 *
 * Ownership: a read is its caller's until done. Threads, blocking: those of whoever takes it (cache.h, fill.h). */
#ifndef PS_FETCH_READ_H
#define PS_FETCH_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "base/stats.h"
#include "base/list.h"
#include "store/store.h"

struct ps_buf;
struct ps_handle;

/* Bytes in memory (data) or in a file (data NULL: fd at pos). */
struct ps_segment {
	const void *data;
	int fd;
	uint64_t pos;
	size_t nbytes;
};
#define PS_READ_MAX_NBYTES (UINT64_C(1) << 20)
#define PS_READ_MAX_SEGMENTS 17 /* each chunk that it touches may be in memory or in the file */

/* The bytes of one read: where they are, and what keeps them there. Not initialised: only the first nsegs count. */
struct ps_read_bytes {
	size_t nsegs;
	struct ps_segment segs[PS_READ_MAX_SEGMENTS];
	struct ps_buf *bufs[PS_READ_MAX_SEGMENTS]; /* the memory of a segment, or NULL */
	struct ps_hold hold;                       /* of the segments in the file */
};

/* What the reads around a read look like; decides how much more than its own bytes is worth fetching. */
enum ps_access {
	PS_ACCESS_STREAM, /* the next of a sequence, or the head of the file: what follows is wanted, too */
	PS_ACCESS_RANDOM, /* nothing near it was read lately: its own bytes are all that is known to be wanted */
};

/* What became of reads: of all, or of those of one mount. */
struct ps_read_stats {
	_Atomic uint64_t bytes, ready_bytes; /* answered; of these, without waiting */
	struct ps_waits waits;
	struct ps_histogram latency; /* of all but cancelled ones */
};
void ps_read_stats_init(struct ps_read_stats *stats);
void ps_read_stats_fini(struct ps_read_stats *stats);
/* {"bytes", "ready_bytes", "stalled_seconds": in which a read waited, "waiting", "latency_seconds": ps_histogram_json()};
 * the caller owns it. */
json_t *ps_read_stats_json(struct ps_read_stats *stats);

/* One read; the caller owns it, fills the first part and keeps it until done. */
struct ps_read {
	struct ps_handle *handle;
	uint64_t offset;
	size_t nbytes; /* at most PS_READ_MAX_NBYTES; cut at the end of the file */
	struct ps_read_stats *stats; /* counted here, too, before done; NULL: only with all others */
	/* Once, as soon as the bytes are there, from whatever source. The segments are valid during the call
	 * only. nsegs 0 with errnum 0: at or past the end of the file. The read may be freed inside. */
	void (*done)(struct ps_read *read, int errnum, const struct ps_segment *segs, size_t nsegs);

	struct { /* the cache's; under the file's lock while it waits */
		struct ps_list link;
		enum ps_access access; /* set before ps_fill_read() */
		bool waiting;
		bool waited; /* or still does */
		int errnum;
		uint64_t issued_ns, expires_ns;
		struct ps_read_bytes bytes;
	} priv;
};

#endif
