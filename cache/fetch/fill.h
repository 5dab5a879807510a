/* The fill engine: demands for ranges of objects become transfers, transfers become answers and cached
 * blocks.
 *
 * Single flight: each chunk of a file is fetched by at most one request at a time, whatever readers there
 * are. A stream fetches whole blocks, a random reader the chunks that it reads. A reader is answered from
 * memory as soon as its own bytes have arrived, not when the request ends or the disk has them. Retries,
 * deadlines, memory and the number of connections are bounded here. docs/design/fetch.md has the states of a
 * block.
 *
 * Ownership: files are reference-counted; a file is the engine's view of one object through one origin.
 * Threads: everything from any thread, but new and free. The engine has a timer and a few disk threads of
 * its own. Locks: engine, then file, then those of the store and the budget. No lock is held while an
 * origin, the disk, or a caller's `done` is called. Blocks: never on network or disk, but ps_fill_drain()
 * and ps_fill_free(). */
#ifndef PS_FETCH_FILL_H
#define PS_FETCH_FILL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

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
#define PS_READ_MAX_SEGMENTS 17 /* each chunk that it touches may be in memory or in the file */

/* The bytes of one read: where they are, and what keeps them there. Not initialised: only the first nsegs
 * count. */
struct ps_read_bytes {
	size_t nsegs;
	struct ps_segment segs[PS_READ_MAX_SEGMENTS];
	struct ps_block_memory *bufs[PS_READ_MAX_SEGMENTS]; /* the memory of a segment, or NULL */
	struct ps_hold hold;                                /* of the segments in the file */
};

/* What the reads around a read look like; decides how much more than its own bytes is worth fetching. */
enum ps_access {
	PS_ACCESS_STREAM, /* the next of a sequence, or the head of the file: what follows is needed, too */
	PS_ACCESS_RANDOM, /* nothing near it was read lately: only its own bytes are known to be needed */
};

/* What became of reads: of all, or of those of one mount. */
struct ps_read_stats {
	_Atomic uint64_t bytes, ready_bytes; /* answered; of these, without waiting */
	struct ps_waits waits;
	struct ps_histogram latency; /* of all but cancelled ones */
};
void ps_read_stats_init(struct ps_read_stats *stats);
void ps_read_stats_fini(struct ps_read_stats *stats);
/* {"bytes", "ready_bytes", "stalled_seconds": in which a read waited, "waiting", "latency_seconds":
 * ps_histogram_json()}; the caller owns it. */
json_t *ps_read_stats_json(struct ps_read_stats *stats);

/* One read; the caller owns it, fills the first part and keeps it until done. */
struct ps_read {
	struct ps_handle *handle;
	uint64_t offset;
	size_t nbytes;               /* at most PS_READ_MAX_NBYTES; cut at the end of the file */
	struct ps_read_stats *stats; /* counted here, too, before done; NULL: only with all others */
	/* Once, as soon as the bytes are there, from whatever source. The segments are valid during the call
	 * only. nsegs 0 with errnum 0: at or past the end of the file. The read may be freed inside. */
	void (*done)(struct ps_read *read, int errnum, const struct ps_segment *segs, size_t nsegs);

	struct { /* the cache's; under the file's lock while it waits */
		struct ps_list link;
		struct ps_tree_item place; /* among those that wait, by offset */
		enum ps_access access;     /* set before ps_fill_read() */
		bool waiting;
		bool waited; /* or still does */
		int errnum;
		uint64_t issued_ns, expires_ns;
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
#define PS_FILL_CONNECTIONS 64 /* at most; see concurrency.h */
#define PS_FILL_TIMEOUT_MS 60000

/* A failed block answers at once for so long: the kernel repeats a failed read-ahead, which would double the
 * timeout. */
#define PS_FILL_FAILED_MS 1000

int ps_fill_new(const struct ps_fill_options *options, struct ps_fill **ret) PS_MUST_USE;
/* Every file has been put and every origin drained. Writes what is in memory to disk first. */
void ps_fill_free(struct ps_fill *fill);
uint64_t ps_fill_timeout_ns(const struct ps_fill *fill);
unsigned ps_fill_connections(const struct ps_fill *fill); /* transfers at once that are worth it now */
unsigned ps_fill_max_connections(const struct ps_fill *fill);
/* The memory for data in flight. give_up: another part of the cache uses nbytes of it from now on. stats:
 * {"limit_bytes", "used_bytes", "peak_bytes"}. */
uint64_t ps_fill_memory_bytes(const struct ps_fill *fill);
void ps_fill_give_up_memory(struct ps_fill *fill, uint64_t nbytes);
json_t *ps_fill_memory_stats(struct ps_fill *fill);

/* Files -------------------------------------------------------------------------------------------------- */

/* The file of (object, origin), shared by all who ask for the same pair. Takes a reference of the object; the
 * origin must live until ps_fill_drain(). -EIO: its data did not match their checksum lately. */
int ps_fill_file_get(struct ps_fill *fill, struct ps_object *object, struct ps_origin *origin,
        struct ps_fill_file **ret) PS_MUST_USE;
void ps_fill_file_put(struct ps_fill_file *file);
struct ps_object *ps_fill_file_object(struct ps_fill_file *file);
/* What the cache holds of the object may be used for this file's readers: its origin's credentials may
 * read it. Else that is so from the first answer of the origin on; until then all of it counts as missing.
 * An origin without `proved` needs none of this. */
void ps_fill_file_allow(struct ps_fill_file *file);
bool ps_fill_file_allowed(struct ps_fill_file *file);
struct ps_fill *ps_fill_file_engine(struct ps_fill_file *file);
/* A transfer found another version at the origin, or nothing: what stands for the name has to be asked
 * before the file is opened again. doubt() says so; trust() takes it back: the origin has confirmed the
 * version since. */
bool ps_fill_file_doubted(struct ps_fill_file *file);
void ps_fill_file_doubt(struct ps_fill_file *file);
void ps_fill_file_trust(struct ps_fill_file *file);
/* doubt() of the object, whoever has it open. */
void ps_fill_object_doubt(struct ps_fill *fill, const struct ps_object *object);
/* The text of the last failure, "" if none; cap is the buffer's size. */
void ps_fill_file_error(struct ps_fill_file *file, char *ret_text, size_t cap);
/* The same for an object that somebody has open through this origin, or one that stands on it; untouched
 * if nobody has, or nothing failed. */
void ps_fill_object_error(struct ps_fill *fill, const struct ps_object *object,
        const struct ps_origin *origin, char *ret_text, size_t cap);

/* An object of the caller's that all users of the file share, with a count of references: `make` is called
 * for the first one, with the file's lock held (it must not call the engine). -ENOMEM: it returned NULL. */
int ps_fill_file_share(
        struct ps_fill_file *file, void *(*make)(struct ps_fill_file *file), void **ret) PS_MUST_USE;
/* Takes a reference back. The last one: returns it, for the caller to free. NULL: others are left. */
void *ps_fill_file_unshare(struct ps_fill_file *file) PS_MUST_USE;

/* The bytes of a read, if all of them are in memory or on disk now: counted, with `stats` (or NULL) as in
 * struct ps_read, and valid until ps_fill_found_put(). Nothing is made or queued for it. False: the read
 * has to wait, or fails; nothing has happened. nbytes has been cut at the end of the file and is not 0;
 * the file outlives the put. */
bool ps_fill_find(struct ps_fill_file *file, uint64_t offset, size_t nbytes, struct ps_read_stats *stats,
        struct ps_read_bytes *ret) PS_MUST_USE;
void ps_fill_found_put(struct ps_read_bytes *bytes);

/* Answers now or later; see struct ps_read. read->nbytes has been cut at the end of the file and is not 0.
 * Returns true if the read had to wait (the answer may have been given all the same). */
bool ps_fill_read(struct ps_fill_file *file, struct ps_read *read);
void ps_fill_cancel(struct ps_fill_file *file, struct ps_read *read);

/* A range that is to be fetched though no reader waits for it. Initialise once; the engine keeps a
 * reference of the file while the demand is queued. extend() takes blocks, moves the end forward (never
 * back) and queues what is new: true if ps_fill_pump() has to start it; cancel() takes it off the queue,
 * and afterwards its memory may go. */
enum ps_demand_class {
	PS_DEMAND_READ,  /* a reader waits */
	PS_DEMAND_AHEAD, /* a reader's window */
	PS_DEMAND_NEXT,  /* of a file that is expected to be opened */
	PS_DEMAND_WARM,
	PS_DEMAND_CLASSES
};
struct ps_demand {
	struct ps_list link;       /* all under the engine's lock */
	struct ps_tree_item place; /* among its file's of readers, by `next` */
	struct ps_fill_file *file;
	uint64_t next, end;      /* chunks */
	unsigned request_blocks; /* length of one request, at most */
	enum ps_demand_class cls;
	bool queued, on_heap;
};
static inline void ps_demand_init(
        struct ps_demand *demand, struct ps_fill_file *file, enum ps_demand_class cls)
{
	*demand = (struct ps_demand){.file = file, .cls = cls};
	ps_list_init(&demand->link);
}
bool ps_demand_extend(struct ps_demand *demand, uint64_t from, uint64_t end, unsigned request_blocks);
void ps_demand_cancel(struct ps_demand *demand);
/* Starts requests for what is demanded, as far as connections, memory and bandwidth allow. */
void ps_fill_pump(struct ps_fill *fill);
/* Fetches all that is missing at the lowest priority, without an owner; once, however often it is asked for.
 */
void ps_fill_warm(struct ps_fill_file *file);

/* Bytes [from, end) of an object were written to the store by another thread than the engine's: readers
 * that wait for them are answered. Blocks on nothing; the caller holds no lock that an origin or a
 * reader's `done` takes. */
void ps_fill_stored(struct ps_fill *fill, const struct ps_object *object, uint64_t from, uint64_t end);

/* Forgets demands, ends transfers of this origin and waits until nothing refers to it. Readers that still
 * wait are answered ECANCELED. Blocks until transfers have ended and what arrived is written. */
void ps_fill_drain(struct ps_fill *fill, struct ps_origin *origin);

/* Counts a request that was made beside the engine (a HEAD) in ps_fill_origin_stats(). */
void ps_fill_count_request(struct ps_fill *fill, bool failed);
/* An answer's first byte came after so long; 0: none came. */
void ps_fill_count_answer(struct ps_fill *fill, uint64_t first_byte_ns);
/* And bytes that came beside it. */
void ps_fill_count_bytes(struct ps_fill *fill, uint64_t nbytes);

/* Remembers why a read or a lookup failed, for the same. */
void ps_fill_note_error(struct ps_fill *fill, const char *text);

/* {"bytes", "requests", "errors", "retries", "hedged_requests", "hedged_bytes", "connections",
 * "timeout_seconds", "latency_seconds", "last_error", "last_error_at"} and ps_read_stats_json() of all
 * reads with {"fetched_bytes": what reads and read-ahead have fetched, as readers see it, "hit_bytes": the
 * rest of "bytes"} */
json_t *ps_fill_origin_stats(struct ps_fill *fill);
json_t *ps_fill_read_stats(struct ps_fill *fill);

#endif
