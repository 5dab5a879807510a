/* The fill engine turns demands for ranges of objects into transfers, and transfers into answers and cached
 * blocks.
 *
 * Single flight: each chunk of a file is fetched by at most one request at a time, however many readers
 * want it. For a stream, whole blocks are fetched; for a random reader, only the chunks that it reads. A
 * reader is answered from memory as soon as its own bytes have arrived, not when the request ends or the
 * disk has them. The engine bounds retries, deadlines, memory and the number of connections.
 * docs/design/fetch.md has the states of a block.
 *
 * Ownership: files are reference-counted; a file is the engine's view of one object through one origin.
 * Threads: all calls from any thread, except new and free. The engine has a timer and a few disk threads of
 * its own. Locks: the engine's, then the file's, then those of the store and the budget. No lock is held
 * while an origin is asked for bytes, the disk is used, or a caller's `done` is called. Blocking: only
 * ps_fill_drain() and ps_fill_free() block on network or disk. */
#ifndef PS_FETCH_FILL_H
#define PS_FETCH_FILL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "base/figures.h"
#include "base/list.h"
#include "base/stats.h"
#include "base/tree.h"
#include "origin/origin.h"
#include "store/store.h"

struct ps_fill;
struct ps_fill_file;
struct ps_block_memory;
struct ps_handle;

/* Reads -------------------------------------------------------------------------------------------------- */

/* Bytes in memory (data) or in a file (data NULL: fd at pos). */
struct ps_segment {
	const void *data;
	int fd;
	uint64_t pos;
	size_t nbytes;
};
#define PS_READ_MAX_NBYTES (UINT64_C(1) << 20)
#define PS_READ_MAX_SEGMENTS 17 /* each chunk of the read may be in memory or in the file */

/* Where the bytes of one read are, and the references that keep them there. The arrays are not initialised:
 * only their first nsegs entries are valid. */
struct ps_read_bytes {
	size_t nsegs;
	struct ps_segment segs[PS_READ_MAX_SEGMENTS];
	struct ps_block_memory *bufs[PS_READ_MAX_SEGMENTS]; /* the memory of a segment, or NULL */
	struct ps_hold hold;                                /* of the segments in the file */
};

/* The access pattern around a read: decides how much is fetched beyond its own bytes. */
enum ps_access {
	/* the next of a sequence, or at the file's beginning: the bytes after it are needed, too */
	PS_ACCESS_STREAM,
	PS_ACCESS_RANDOM, /* no recent read nearby: only its own bytes are known to be needed */
};

/* Statistics of reads: of all reads of the engine, or of the reads of one mount. */
struct ps_read_stats {
	struct ps_reads_counters counters;
	struct ps_waits waits;
	struct ps_histogram latency; /* of all reads but cancelled ones */
};
void ps_read_stats_init(struct ps_read_stats *stats);
void ps_read_stats_fini(struct ps_read_stats *stats);
/* The section "reads"; the caller owns it. */
json_t *ps_read_stats_json(struct ps_read_stats *stats);

/* One read. The caller owns it, fills in the members before `priv`, and keeps it until `done` is called. */
struct ps_read {
	struct ps_handle *handle;
	uint64_t offset;
	size_t nbytes; /* at most PS_READ_MAX_NBYTES; cut at the end of the file */
	/* if the read has to be fetched, all of its blocks are: the bytes around it will be read, too */
	bool whole_blocks;
	/* nothing around it is expected to be read: it begins no read-ahead, and no stream */
	bool alone;
	/* the read is counted here, too, before `done`; NULL: only in the engine's statistics */
	struct ps_read_stats *stats;
	/* Called once, as soon as the bytes are there, whatever their source. The segments are valid only
	 * during the call. nsegs 0 with errnum 0: the read is at or past the end of the file. `done` may
	 * free the read. */
	void (*done)(struct ps_read *read, int errnum, const struct ps_segment *segs, size_t nsegs);

	struct { /* the cache's; protected by the file's lock while the read waits */
		struct ps_list link;
		struct ps_tree_item place; /* in ps_fill_file.waiters_by_offset */
		enum ps_access access;     /* set before ps_fill_read() */
		bool waiting;
		bool waited; /* it has waited, or still waits */
		int errnum;
		uint64_t issued_ns, overdue_ns, expires_ns;
		struct ps_read_bytes bytes;
	} priv;
};

/* The engine --------------------------------------------------------------------------------------------- */

struct ps_fill_options {
	uint64_t memory_bytes;    /* 0: ps_budget_default_bytes() */
	unsigned max_connections; /* 0: PS_FILL_CONNECTIONS */
	uint64_t max_bytes_per_s; /* 0: no limit */
	uint64_t timeout_ms;      /* 0: PS_FILL_TIMEOUT_MS */
};
#define PS_FILL_CONNECTIONS 64 /* maximum; see concurrency.h */
#define PS_FILL_TIMEOUT_MS 60000

/* For this long after a failure, reads of the failed chunks fail at once. The kernel repeats a failed
 * read-ahead; without this rule the second attempt would double the time until the reader gets its
 * error. */
#define PS_FILL_FAILED_MS 1000

int ps_fill_new(const struct ps_fill_options *options, struct ps_fill **ret) PS_MUST_USE;
/* Precondition: every file has been put and every origin drained. First writes the blocks in memory to
 * disk. */
void ps_fill_free(struct ps_fill *fill);
uint64_t ps_fill_timeout_ns(const struct ps_fill *fill);
bool ps_fill_is_far(const struct ps_fill *fill); /* the origin: concurrency.h */
unsigned ps_fill_max_connections(const struct ps_fill *fill);
/* The memory for data in flight. give_up: hands nbytes of it to another part of the cache, for good. stats:
 * the section "memory". */
uint64_t ps_fill_memory_bytes(const struct ps_fill *fill);
void ps_fill_give_up_memory(struct ps_fill *fill, uint64_t nbytes);
json_t *ps_fill_memory_stats(struct ps_fill *fill);

/* Files -------------------------------------------------------------------------------------------------- */

/* The file of (object, origin), shared by all callers that give the same pair. Takes a reference of the
 * object; the origin must live until ps_fill_drain(). -EIO: the object's data recently failed its
 * checksum. */
int ps_fill_file_get(struct ps_fill *fill, struct ps_object *object, struct ps_origin *origin,
        struct ps_fill_file **ret) PS_MUST_USE;
void ps_fill_file_put(struct ps_fill_file *file);
struct ps_object *ps_fill_file_object(struct ps_fill_file *file);
/* allow: the origin's credentials may read the object, so this file's readers may be served from the cache.
 * Without this call, all of the object counts as missing until the origin's first answer. Not needed for an
 * origin without `proved`. */
void ps_fill_file_allow(struct ps_fill_file *file);
bool ps_fill_file_allowed(struct ps_fill_file *file);
struct ps_fill *ps_fill_file_engine(struct ps_fill_file *file);
/* A file is doubted once a transfer found another version at the origin, or no object: the name must be
 * revalidated before the file is opened again. trust() ends the doubt: the origin has confirmed the version
 * since. */
bool ps_fill_file_doubted(struct ps_fill_file *file);
void ps_fill_file_doubt(struct ps_fill_file *file);
void ps_fill_file_trust(struct ps_fill_file *file);
/* Calls ps_fill_file_doubt() for all files of the object. */
void ps_fill_object_doubt(struct ps_fill *fill, const struct ps_object *object);
/* The origin's errno of the file's last failure, 0 if there was none, and its text; cap is the buffer's size. */
int ps_fill_file_error(struct ps_fill_file *file, char *ret_text, size_t cap);
/* The same for the object's open files whose origin is this one or is based on this one. ret_text is left
 * as it is if no such file is open, or none has failed: 0. */
int ps_fill_object_error(struct ps_fill *fill, const struct ps_object *object, const struct ps_origin *origin,
        char *ret_text, size_t cap);

/* Attaches a reference-counted structure of the caller's to the file, shared by all users of the file. The
 * first call creates it with `make`, while the file's lock is held: `make` must not call the engine.
 * -ENOMEM: `make` returned NULL. */
int ps_fill_file_share(
        struct ps_fill_file *file, void *(*make)(struct ps_fill_file *file), void **ret) PS_MUST_USE;
/* Releases a reference. If it was the last one, returns the shared structure, for the caller to free. NULL:
 * references are left. */
void *ps_fill_file_unshare(struct ps_fill_file *file) PS_MUST_USE;

/* Finds the bytes of a read, if all of them are in memory or on disk now, without allocating or queueing
 * anything. They are valid until ps_fill_found_put(). The read is counted, in `stats` (or NULL) as in
 * struct ps_read. False: the read has to wait, or fails; nothing has happened. Preconditions: nbytes has
 * been cut at the end of the file and is not 0; the file outlives the put. */
bool ps_fill_find(struct ps_fill_file *file, uint64_t offset, size_t nbytes, struct ps_read_stats *stats,
        struct ps_read_bytes *ret) PS_MUST_USE;
void ps_fill_found_put(struct ps_read_bytes *bytes);

/* Answers the read before it returns or later; see struct ps_read. Precondition: read->nbytes has been cut
 * at the end of the file and is not 0. Returns true if the read had to wait (it may have been answered
 * since). */
bool ps_fill_read(struct ps_fill_file *file, struct ps_read *read);
void ps_fill_cancel(struct ps_fill_file *file, struct ps_read *read);
/* True if at least PS_FILL_SCATTERED_READS reads near no stream (PS_ACCESS_RANDOM) have waited within
 * PS_FILL_SCATTERED_MS, and all together as long as nbytes would take over all connections. */
#define PS_FILL_SCATTERED_READS 8
#define PS_FILL_SCATTERED_MS 30000
bool ps_fill_file_is_scattered(struct ps_fill_file *file, uint64_t nbytes);

/* A range that is to be fetched. A caller may own demands for which no reader waits, and initialises each
 * once; the engine holds a reference of the file while the demand is queued. ps_demand_extend() moves the
 * demand's end forward (never back) and queues the new part. `together` is how many chunks, of this demand or of
 * others, are wanted at the same time: requests are so short that the connections share them; 0: long requests.
 * It returns true if ps_fill_pump() has to start the demand. ps_demand_cancel() takes the demand off the queue; after
 * that the demand may be freed. */
enum ps_demand_class {
	PS_DEMAND_READ,  /* a reader waits */
	PS_DEMAND_AHEAD, /* a reader's window */
	PS_DEMAND_NEXT,  /* the file is expected to be opened */
	PS_DEMAND_WARM,
	PS_DEMAND_CLASSES
};
struct ps_demand {
	struct ps_list link;       /* all members are under the engine's lock */
	struct ps_tree_item place; /* in ps_fill_file.read_demands, by `next` */
	struct ps_fill_file *file;
	uint64_t next, end, together; /* chunks */
	enum ps_demand_class cls;
	bool queued, on_heap;
};
static inline void ps_demand_init(
        struct ps_demand *demand, struct ps_fill_file *file, enum ps_demand_class cls)
{
	*demand = (struct ps_demand){.file = file, .cls = cls};
	ps_list_init(&demand->link);
}
bool ps_demand_extend(struct ps_demand *demand, uint64_t from, uint64_t end, uint64_t together);
/* The maximum length of a request for such a demand, in chunks. */
uint64_t ps_request_chunks(const struct ps_fill_file *file, enum ps_demand_class cls, uint64_t together);
void ps_demand_cancel(struct ps_demand *demand);
/* True until all of it was requested. */
bool ps_demand_is_queued(struct ps_demand *demand);
/* Starts requests for queued demands, as far as connections, memory and bandwidth allow. */
void ps_fill_pump(struct ps_fill *fill);
/* Fetches all missing bytes of the file at the lowest priority. The engine owns this demand, and does not
 * queue it again while it is queued. */
void ps_fill_warm(struct ps_fill_file *file);

/* Bytes [from, end) of an object were written to the store by another thread than the engine's: readers
 * that wait for them are answered. Never blocks. The caller holds no lock that an origin or a reader's
 * `done` takes. */
void ps_fill_stored(struct ps_fill *fill, const struct ps_object *object, uint64_t from, uint64_t end);

/* Drops this origin's demands, ends its transfers, and waits until no file refers to it. Readers that still
 * wait are answered ECANCELED. Blocks until the transfers have ended and the bytes that arrived are
 * written. */
void ps_fill_drain(struct ps_fill *fill, struct ps_origin *origin);

/* Counts in ps_fill_origin_stats() a request that is not the engine's own, such as a HEAD. */
void ps_fill_count_request(struct ps_fill *fill, bool failed);
/* Counts the time until an answer's first byte; 0: none came. */
void ps_fill_count_answer(struct ps_fill *fill, uint64_t first_byte_ns);
/* Counts bytes that came from an origin, and from tiers. */
void ps_fill_count_bytes(struct ps_fill *fill, uint64_t of_origin, uint64_t of_tiers);

/* Keeps the text of a failed read or lookup for ps_fill_origin_stats(). */
void ps_fill_note_error(struct ps_fill *fill, const char *text);

/* The section "origin"; and "reads" of all reads with "hits". Of a decoded file fetched_bytes are decoded bytes. */
json_t *ps_fill_origin_stats(struct ps_fill *fill);
json_t *ps_fill_read_stats(struct ps_fill *fill);

#endif
