/* Types and functions that the files of the fill engine share. fill.c shows which of these files may call
 * which.
 *
 * A chunk (64 KiB) of a block, by its block's buffer:
 *
 *                   claimed by a request            arrived
 *   missing (no bit) ───────────────▶ in `flight` ────────▶ in `whole` ─written─▶ in `stored`, or no buffer:
 *          ▲   ▲                          │                     │                   the store has it
 *          │   │ no waiter                │ attempts used up    │ the disk does not take it
 *          │   └──────────────────────────┤                     ▼
 *          │  after PS_FILL_FAILED_MS     ▼ a reader waits  buffer HELD ──▶ missing when memory is needed
 *          └───────────────────────── in `failed`
 *
 * A buffer as a whole is in one place:
 *
 *   NONE ──nothing in flight, chunks not stored──▶ DISK (queued, or being written) ──▶ NONE, or no buffer
 *     │                                             ▲  │ more chunks arrived     ├──▶ HELD ──▶ no buffer
 *     │                                             ├──┘                         └──▶ RETAINED ──▶ no buffer
 *     │                                             └── HELD, which is offered to the disk every second
 *     └──the store has the block unverified, no chunk in flight or in memory──▶ VERIFY ──▶ no buffer
 *
 * A whole block that was written is RETAINED for readers that follow, until a reader has read it to its end
 * or memory is needed. Readers are served from the buffer as far as it is filled, also up to the middle of
 * a chunk (`have`).
 *
 * References: each handle, queued demand, request, and buffer in DISK, HELD or VERIFY holds one reference of
 * its file. */
#ifndef PS_FETCH_FILL_PRIVATE_H
#define PS_FETCH_FILL_PRIVATE_H

#include <stdatomic.h>

#include "base/clock.h"
#include "base/log.h"
#include "fetch/budget.h"
#include "fetch/concurrency.h"
#include "fetch/fill.h"

#define PS_REQUEST_MAX_BLOCKS 16
#define PS_DISK_THREADS 2

#define PS_REQUEST_MAX_CHUNKS (PS_REQUEST_MAX_BLOCKS * PS_BLOCK_CHUNKS)
/* Maximum gap, in chunks that no reader needs yet, between two demands that become one request: fetching
 * the gap costs less than another request. */
#define PS_REQUEST_BRIDGE_CHUNKS 1

enum ps_buffer_place { PS_PLACE_NONE, PS_PLACE_DISK, PS_PLACE_RETAINED, PS_PLACE_HELD, PS_PLACE_VERIFY };

struct ps_block_buffer {
	/* on fill->disk.queue, retained or held: under the engine's lock; on ps_outcome.disk before that:
	 * belongs to the outcome's thread */
	struct ps_list link;
	struct ps_fill_file *file;
	uint64_t block;
	/* under the file's lock: */
	enum ps_buffer_place place;
	struct ps_block_memory *memory; /* NULL in VERIFY, or if chunks are only in `failed` */
	/* chunks that requests have claimed and that have not arrived whole */
	uint16_t flight;
	uint16_t whole;  /* chunks that are in memory as a whole */
	uint16_t stored; /* of `whole`, chunks that the store has, too */
	/* chunks that fail reads with errnum until failed_until_ns; if a reader timed out on such a chunk,
	 * it may be in `flight`, too */
	uint16_t failed;
	uint32_t have[PS_BLOCK_CHUNKS]; /* of each chunk, bytes in memory from its beginning */
	uint64_t failed_until_ns;
	int errnum;
	bool read;                /* a reader has read the block to its end */
	bool retained;            /* the buffer is on fill->parked.retained */
	struct ps_list read_link; /* fill->parked.read */
	bool awaited;             /* fetched for a reader, not only for the cache */
	bool from_afar;           /* some of its bytes are not stored by a tier on this disk */
	uint64_t retained_ns;     /* start of RETAINED; under the engine's lock */
};

struct ps_range_request {
	struct ps_origin_get get;  /* first member: done() finds the request by it */
	struct ps_list link;       /* fill->running; under the engine's lock */
	struct ps_fill_file *file; /* a reference */
	uint64_t first;            /* chunk */
	unsigned nchunks;
	size_t nbytes; /* of the whole request */
	size_t base;   /* bytes that earlier attempts have brought */
	size_t filled; /* bytes in place, base included */
	/* bytes of this attempt that were added to fill->origin.bytes and to fill->tier_bytes */
	uint64_t counted, counted_of_tiers;
	struct ps_tree_item retry; /* fill->retries */
	unsigned attempts;         /* since the last progress */
	uint64_t started_ns, retry_ns;
	_Atomic uint64_t touched_ns; /* when it was submitted, or bytes last came */
	bool preempted;              /* is being cancelled for another file; under the engine's lock */
	bool checked, other_version; /* this attempt's response was compared, and has another version */
	struct ps_hedge *hedge;      /* the engine's lock */
	unsigned nbufs;              /* a block each */
	struct ps_block_memory *bufs[PS_REQUEST_MAX_BLOCKS];
	struct iovec iov[PS_REQUEST_MAX_BLOCKS];
};

/* A file's demands of one class; under the engine's lock. */
struct ps_file_demands {
	struct ps_fill_file *file;
	struct ps_tree_item place; /* in fill->queues, while there are demands */
	uint64_t since_ns;         /* when it got its place there */
	struct ps_list demands;    /* of ps_demand.link, oldest first */
};

struct ps_fill_file {
	struct ps_fill *fill;
	struct ps_object *object;
	struct ps_origin *origin;
	struct ps_tree_item place; /* in fill->files; under the engine's lock */
	struct ps_tree_item due;   /* in fill->due.files; under fill->due.lock */
	/* in the timer's list of files to look at; the timer holds a reference of each file in the list */
	struct ps_list due_link;
	/* under the engine's lock: */
	unsigned refs;
	unsigned nparked;   /* of `refs`: those of buffers in DISK, HELD or VERIFY */
	unsigned nrequests; /* at the origin, or waiting for another attempt */
	struct ps_file_demands demands[PS_DEMAND_CLASSES];
	struct ps_tree read_demands; /* those of readers, by their first chunk */
	unsigned nread_demands;
	unsigned nretained;     /* blocks */
	struct ps_demand warm;  /* the whole file; queued by ps_fill_warm() */
	bool warmed;            /* ps_fill_warm() was called: what a tier on this node has is written, too */
	struct ps_demand spare; /* used for a demand that could not be allocated */
	/* requests of this file that were pre-empted since one of its requests last received bytes */
	unsigned npreempted;
	bool draining;

	_Atomic bool allowed; /* its readers may be served from the store; never reset */
	/* The timer must look at all waiters of the file. */
	_Atomic bool look;

	pthread_mutex_t lock;             /* protects what follows */
	struct ps_block_buffer **buffers; /* one pointer a block */
	struct ps_tree waiters_by_offset; /* of ps_read.priv.place */
	struct ps_list waiters;           /* of ps_read.priv.link */
	/* how long reads near no stream have waited since scattered_since_ns; 0: none has */
	uint64_t scattered_ns, scattered_since_ns;
	unsigned nscattered;     /* such reads */
	void *shared;            /* made by ps_fill_file_share(); NULL: no references */
	unsigned nshared;        /* references of `shared` */
	struct ps_remote remote; /* the version; if the listing had no ETag, with the first response's */
	bool changed, doubted;
	bool sum_asked;            /* the checksum was requested, or need not be */
	uint64_t refused_until_ns; /* until then, fetches only what a reader waits for */
	uint64_t told_ns;          /* time of the last warning in the log */
	int errnum;                /* of `error`, as the origin gave it; 0: none */
	char error[PS_ERROR_TEXT_LEN];
	bool error_is_timeout; /* `error` says that the origin did not deliver in time */
	/* error of the last attempt that failed and is followed by another; "" after a success */
	int attempt_errnum;
	char attempt[PS_ERROR_TEXT_LEN];
};

/* Callbacks of the engine that origins call. */
struct ps_fill_events {
	void (*progress)(struct ps_origin_get *get, size_t nbytes_so_far);
	void (*done)(struct ps_origin_get *get, const struct ps_error *err);
	void (*hedge_done)(struct ps_origin_get *get, const struct ps_error *err);
};

struct ps_fill {
	struct ps_fill_events events;
	struct ps_budget *budget;
	uint64_t max_bytes_per_s;
	uint64_t timeout_ns;

	pthread_mutex_t lock; /* protects what follows */
	struct ps_tree files; /* of ps_fill_file.place, by the address of their object */
	/* Files with demands, by class. Files without a pre-empted request come first; within both groups,
	 * files with the fewest requests come first; files with equally many take turns. */
	struct ps_tree queues[PS_DEMAND_CLASSES]; /* of ps_file_demands.place */
	struct ps_list running;                   /* of ps_range_request */
	struct ps_tree retries;                   /* of ps_range_request.retry, by retry_ns */
	struct {                                  /* hedge.c */
		struct ps_list running, tails;
		uint64_t pushback_ns; /* when an origin last asked to wait; 0: never */
	} hedge;
	struct {                               /* fill_file.c */
		struct ps_list retained, held; /* of ps_block_buffer */
		size_t nretained, nheld;
		uint64_t held_retry_ns;    /* when held blocks are next offered to the disk */
		pthread_mutex_t read_lock; /* a leaf */
		struct ps_list read;       /* of `retained`, those that were read to their end */
	} parked;
	struct {                      /* writeback.c; the threads: fill.c */
		struct ps_list queue; /* of ps_block_buffer */
		size_t nbusy;
		pthread_cond_t wake; /* the queue has work, or stopping */
		pthread_t threads[PS_DISK_THREADS];
		void *scratch[PS_DISK_THREADS]; /* one for each thread */
		unsigned nthreads;
	} disk;
	unsigned nending; /* transfers whose done has not returned */
	struct ps_concurrency concurrency;
	unsigned active;                    /* transfers at the origins */
	unsigned nbusy_files;               /* with requests */
	uint64_t ended_ns;                  /* when `active` last became 0 */
	uint64_t first_byte_ns;             /* latency of a request's first byte, smoothed; 0: not known */
	uint64_t next_start_ns;             /* the next request may start then, by max_bytes_per_s */
	bool paced;                         /* a demand waits for next_start_ns */
	char last_error[PS_ERROR_TEXT_LEN]; /* of a failed read or lookup; "": none */
	int64_t last_error_s;
	bool stopping;
	pthread_cond_t timer_cond; /* retries changed, or stopping */
	pthread_cond_t files_cond; /* something that ps_fill_drain() waits for is over */
	pthread_t timer_thread;
	bool timer_started;

	struct {                      /* fill_file.c; the timer: fill.c */
		pthread_mutex_t lock; /* a leaf: below those of the engine and of files */
		/* of ps_fill_file.due, by the time at which the timer must look at the file */
		struct ps_tree files;
		_Atomic uint64_t first_ns; /* the first of these times; UINT64_MAX: none */
	} due;

	/* Counters, and copies that are read without the lock. Relaxed order is enough: an old value does no
	 * harm. */
	_Atomic unsigned connections; /* a copy of concurrency.limit */
	_Atomic bool far;             /* a copy of concurrency.far */
	_Atomic uint64_t arrived_bytes;
	/* the connections of a far origin count as new while arrived_bytes is below this */
	_Atomic uint64_t cold_below_bytes;
	struct ps_origin_counters origin; /* hedged requests and bytes are also in the others */
	_Atomic uint64_t tier_bytes;      /* of range requests; not in origin.bytes */
	struct ps_hits_counters
	        hits; /* of arrived_bytes, those fetched for readers, not only for the cache */
	struct ps_read_stats reads;
	struct ps_histogram origin_latency;
};

/* What an event of a file leads to: collected under the file's lock, carried out without it. */
#define PS_OUTCOME_RANGES 8
struct ps_outcome {
	struct ps_list ready; /* reads to be answered, by priv.link */
	struct ps_list disk;  /* buffers for the disk threads */
	unsigned nmissing;
	struct {
		uint64_t from, end; /* chunks that a reader lacks and no request covers */
	} missing[PS_OUTCOME_RANGES];
	/* what a waiter lacks could not be demanded (`missing` is full, no memory, or the store or the file
	 * has changed): the timer looks at the waiters again */
	bool again;
};

static inline void ps_outcome_init(struct ps_outcome *outcome)
{
	ps_list_init(&outcome->ready);
	ps_list_init(&outcome->disk);
	outcome->nmissing = 0;
	outcome->again = false;
}

static inline void ps_outcome_demand(struct ps_outcome *outcome, uint64_t from, uint64_t end)
{
	for (unsigned i = 0; i < outcome->nmissing; i++)
		if (outcome->missing[i].from <= from && end <= outcome->missing[i].end)
			return;
	if (outcome->nmissing == PS_OUTCOME_RANGES) {
		outcome->again = true;
		return;
	}
	outcome->missing[outcome->nmissing].from = from;
	outcome->missing[outcome->nmissing++].end = end;
}

/* A turn: chunks [from, end) of one demand, which are taken off the queues together, and the requests for
 * them. */
#define PS_TURN_MAX_REQUESTS (PS_REQUEST_MAX_CHUNKS / 2)
struct ps_turn {
	struct ps_fill_file *file; /* a reference */
	enum ps_demand_class cls;
	uint64_t from, end; /* chunks */
	uint64_t most;      /* chunks of one request */
	size_t nbufs;       /* at most one for each block of the range */
	size_t nused;       /* buffers, from the first, that requests have taken */
	bool stuck;         /* no memory for a request, or for a block's buffer */
	unsigned nrequests; /* to be submitted */
	struct ps_block_memory *bufs[PS_REQUEST_MAX_BLOCKS];
	struct ps_range_request *requests[PS_TURN_MAX_REQUESTS];
};

static inline uint64_t ps_range_request_offset(const struct ps_range_request *request)
{
	return request->first * PS_CHUNK_SIZE;
}

/* The chunks of a block that [from, end) of the file touches. */
static inline uint16_t ps_chunks_touched(uint64_t block, uint64_t from, uint64_t end)
{
	uint64_t base = block * PS_BLOCK_SIZE;
	uint64_t first = from > base ? (from - base) / PS_CHUNK_SIZE : 0;
	uint64_t last = (PS_MIN(end, base + PS_BLOCK_SIZE) - base - 1) / PS_CHUNK_SIZE;

	return (uint16_t)((2u << last) - (1u << first));
}

/* All chunks that the block has. */
static inline uint16_t ps_chunks_of_block(const struct ps_fill_file *file, uint64_t block)
{
	return ps_chunks_touched(
	        block, 0, block * PS_BLOCK_SIZE + ps_object_block_nbytes(file->object, block));
}

/* True if origin is `base`, or is based on it. */
static inline bool ps_origin_is(const struct ps_origin *origin, const struct ps_origin *base)
{
	return origin == base || (origin->base && origin->base == base);
}

/* Chunks that the store has for this file's readers. */
static inline uint16_t ps_file_chunks(const struct ps_fill_file *file, uint64_t block)
{
	return atomic_load(&file->allowed) ? ps_object_chunks(file->object, block) : 0;
}

static inline enum ps_block_state ps_file_block(const struct ps_fill_file *file, uint64_t block)
{
	return atomic_load(&file->allowed) ? ps_object_block(file->object, block) : PS_BLOCK_ABSENT;
}

/* Copies the members of fill->concurrency that are read without the engine's lock. The lock is held. */
static inline void ps_fill_publish(struct ps_fill *fill)
{
	atomic_store(&fill->connections, fill->concurrency.limit);
	atomic_store(&fill->far, fill->concurrency.far);
}

/* fill_stats.c */
/* wait: a read begins to wait. read: a read is about to be answered, whether it waited or not. */
void ps_fill_count_wait(struct ps_fill *fill, const struct ps_read *read);
void ps_fill_count_read(struct ps_fill *fill, const struct ps_read *read);
/* Counts a read that found its bytes at once, also in stats (or NULL). */
void ps_fill_count_hit(struct ps_fill *fill, struct ps_read_stats *stats, size_t nbytes, uint64_t issued_ns);

/* fill_file.c */
struct ps_fill_file *ps_fill_file_ref(struct ps_fill_file *file); /* takes the engine's lock */
/* Makes the timer look at the file at the time `ns` or before. True: until now no time was set, or only a
 * later one. The timer is not woken. Any lock but due.lock may be held. */
bool ps_fill_file_due(struct ps_fill_file *file, uint64_t ns);
/* Walk over the files of an object, including those whose last reference was just put; NULL: no more. The
 * engine's lock is held. */
struct ps_fill_file *ps_fill_file_first(const struct ps_fill *fill, const struct ps_object *object);
struct ps_fill_file *ps_fill_file_next(const struct ps_fill_file *file);
/* Has the timer look soon at all waiters of the file. No lock of a file or of the engine is held. */
void ps_fill_look_later(struct ps_fill_file *file);
/* Below: the file's lock is held. */
/* True if a failure of this file may be logged now: the rate is limited for each file. */
bool ps_fill_may_log(struct ps_fill_file *file, uint64_t now_ns);
struct ps_block_buffer *ps_block_buffer_new(struct ps_fill_file *file, uint64_t block);
void ps_block_buffer_free(struct ps_block_buffer *buffer); /* removes it from the file; unrefs its memory */
/* The block's buffer, after dropping failures that have expired; NULL: none. */
struct ps_block_buffer *ps_block_buffer_find(struct ps_fill_file *file, uint64_t block, uint64_t now_ns);
/* True if the buffer may go to VERIFY: it has only failures, which the check clears. */
static inline bool ps_block_buffer_is_idle(const struct ps_block_buffer *buffer)
{
	return buffer->place == PS_PLACE_NONE && !buffer->memory && !buffer->flight;
}
/* The chunks that a request may claim: neither present, nor in flight, nor with an unexpired failure. */
uint16_t ps_block_buffer_missing(struct ps_fill_file *file, uint64_t block, uint64_t now_ns);
/* Call it when chunks are no longer in flight, or when the disk thread has finished with the buffer. It may
 * free the buffer. If there are chunks to write, it appends the buffer to `disk`, for
 * ps_writeback_queue(). */
void ps_block_buffer_settle(struct ps_block_buffer *buffer, struct ps_list *disk);
void ps_block_buffer_fail(struct ps_block_buffer *buffer, uint16_t chunks, int errnum, uint64_t until_ns);
/* A reader has read the block to its end: its memory need not be kept any longer. */
void ps_block_buffer_was_read(struct ps_block_buffer *buffer);
/* Retained blocks. */
/* Retains, or frees, a block that was just written, whose place is RETAINED. The caller has a reference of
 * the file. No lock held. */
void ps_retain_written(struct ps_fill *fill, struct ps_block_buffer *buffer);
/* Holds a block that the disk refused, and takes over the buffer's reference of the file. No lock held. */
void ps_retain_held(struct ps_fill *fill, struct ps_block_buffer *buffer);
/* Drops retained blocks of this file, or (NULL) of all. The engine's lock is held. */
void ps_retained_drop(struct ps_fill *fill, struct ps_fill_file *file);
/* Drops retained blocks that were not read in time; for the timer. No lock held. */
void ps_retained_drop_stale(struct ps_fill *fill, uint64_t now_ns);
/* Frees the memory of one retained or held block. False if there is none. The engine's lock is held. */
bool ps_retained_reclaim(struct ps_fill *fill, struct ps_fill_file **ret_unref);
/* Offers held blocks to the disk again, once a second. True: it has offered some. For the timer. No lock
 * held. */
bool ps_retained_retry_held(struct ps_fill *fill, uint64_t now_ns);
/* Drops held blocks of this origin, or (NULL) of all. No lock held. */
void ps_retained_drop_held(struct ps_fill *fill, struct ps_origin *origin);

/* demand_queue.c */
/* Demands chunks [from, end), at most PS_REQUEST_MAX_CHUNKS, for a waiting reader; joins them with queued
 * neighbours. No lock held. */
void ps_fill_demand(struct ps_fill_file *file, uint64_t from, uint64_t end);
/* Demands the whole file, for the cache. True: the demand was queued. No lock held. */
bool ps_demand_warm(struct ps_fill_file *file);
/* Takes a demand off its queue, and frees it if it was on the heap. Its reference of the file is the
 * caller's from now on. The engine's lock is held. */
void ps_demand_unqueue(struct ps_demand *demand);
/* Updates a file's place in the queues, which depends on its numbers of requests and pre-emptions. Call it
 * after a change of either. The engine's lock is held. */
void ps_demand_requeue(struct ps_fill_file *file);
/* The first file of those with or without pre-emptions; NULL: none. The engine's lock is held. */
struct ps_fill_file *ps_demand_first_file(
        const struct ps_fill *fill, enum ps_demand_class cls, bool preempted);
/* Counts, up to `cap`, readers' demands of files that have had no request since since_ns. The engine's lock
 * is held. */
unsigned ps_demand_count_starving(const struct ps_fill *fill, uint64_t since_ns, unsigned cap);
/* Takes chunks up to `next` off a demand for a turn, which gets a reference of the file. The rest is queued
 * after the file's other demands. The engine's lock is held. */
void ps_demand_take(struct ps_demand *demand, uint64_t next);
/* Drops all demands of an origin, or (NULL) the vain ones of all. No lock held. */
void ps_demand_drop(struct ps_fill *fill, const struct ps_origin *origin);
/* True if fetching is useless now: the demand was made only for the cache, and the object was evicted. Such a
 * demand waits for memory, and keeps its file's disk space from being freed, for which the blocks that occupy
 * the memory may wait. */
bool ps_demand_is_vain(enum ps_demand_class cls, struct ps_fill_file *file);

/* waiters.c */
/* True: the read joins the file's waiters, and *outcome has what it needs. False: it can be answered now,
 * and is in outcome->ready. No lock held. */
bool ps_waiters_join(struct ps_fill_file *file, struct ps_read *read, struct ps_outcome *outcome);
/* Takes the read off the waiters with ECANCELED, if it still waits. No lock held. */
void ps_waiters_cancel(struct ps_fill_file *file, struct ps_read *read, struct ps_outcome *outcome);
/* Answers reads chained by priv.link, each with priv.errnum or its bytes. No lock held. */
void ps_waiters_answer(struct ps_fill *fill, struct ps_list *reads);
/* Below: the file's lock is held. ------------------------------------------------------------------------ */
/* Looks at the waiters that touch bytes [from, end), after something that they may wait for has ended.
 * Those that can be answered or have failed move to outcome->ready; chunks that others lack and no request
 * covers are added to outcome->missing. */
void ps_waiters_look(struct ps_fill_file *file, uint64_t from, uint64_t end, struct ps_outcome *outcome);
/* Takes readers whose time is up off the waiters, with ETIMEDOUT. True: log the timeout of the read at
 * *ret_offset. */
bool ps_waiters_expire(
        struct ps_fill_file *file, uint64_t now_ns, struct ps_outcome *outcome, uint64_t *ret_offset);
/* Takes all readers off the waiters, with ECANCELED. */
void ps_waiters_cancel_all(struct ps_fill_file *file, struct ps_outcome *outcome);
/* When the timer must look at the waiters: at the first deadline, or when ps_waiters_overdue() returns true.
 * UINT64_MAX: none waits. */
uint64_t ps_waiters_due_ns(const struct ps_fill_file *file);
/* Finds a reader that has used half of its time, or another quarter since it was found. Its bytes are
 * [*ret_from, *ret_end). False: there is none. */
bool ps_waiters_overdue(
        struct ps_fill_file *file, uint64_t now_ns, uint64_t *ret_from, uint64_t *ret_end) PS_MUST_USE;
/* Walk, by offset, over the readers that wait for any of bytes [from, end); NULL: no more. */
struct ps_read *ps_waiters_first(const struct ps_fill_file *file, uint64_t from, uint64_t end);
struct ps_read *ps_waiters_next(const struct ps_read *read, uint64_t from, uint64_t end);

/* writeback.c: no lock held */
/* Queues all buffers of the list for the disk threads; takes a reference of the file for each. */
void ps_writeback_queue(struct ps_fill *fill, struct ps_list *buffers);
/* Waits for the next buffer for a disk thread. NULL: the engine stops, and all buffers are written. */
struct ps_block_buffer *ps_writeback_next(struct ps_fill *fill);
/* Writes or checks a buffer; scratch: memory of a block, aligned for the disk. Returns the file, with the
 * buffer's reference of it; NULL: the buffer is held, and keeps that reference. Blocks on the disk. */
struct ps_fill_file *ps_writeback_do(struct ps_fill *fill, struct ps_block_buffer *buffer, void *scratch,
        struct ps_outcome *outcome) PS_MUST_USE;

/* range_request.c: no lock held unless it says so */
/* Makes a request for chunks [first, end), none of which is in flight or in memory; it may come out
 * shorter. Takes *nused of the buffers, one for each block without memory. NULL: out of memory, or of
 * buffers. The file's lock is held. */
struct ps_range_request *ps_range_request_claim(struct ps_fill_file *file, uint64_t first, uint64_t end,
        struct ps_block_memory *const *bufs, size_t nbufs, size_t *nused);
/* Adds `more` to the file's number of requests. The engine's lock is held. */
void ps_range_request_count(struct ps_fill_file *file, int more);
void ps_range_request_submit(struct ps_range_request *request);
void ps_range_request_free(struct ps_range_request *request);
/* A reader has waited for these bytes for long: the requests for them may be sent again. */
void ps_range_requests_overdue(struct ps_fill_file *file, uint64_t from, uint64_t end);
/* Bytes [0, filled) of the request have arrived: collects the readers to answer, and the blocks to write:
 * those without a chunk in flight. */
void ps_range_request_advance(struct ps_range_request *request, size_t filled, struct ps_outcome *outcome);
void ps_range_request_check_version(struct ps_range_request *request);
/* nbytes of this attempt have come: adds the part that was not counted yet to the origin's statistics. */
void ps_range_request_count_bytes(struct ps_range_request *request, uint64_t nbytes);
/* Compares the version of another response (a hedge's) with the file's. */
bool ps_range_request_same_version(struct ps_fill_file *file, const struct ps_remote *seen);
/* An attempt has ended; gives_way: it was cancelled for another file. True: the request is over, and the
 * caller frees it. False: it waits for another attempt, which may have begun already. */
bool ps_range_request_end(struct ps_range_request *request, const struct ps_error *err, bool gives_way,
        struct ps_outcome *outcome) PS_MUST_USE;
/* Fails the chunks of the request that have not arrived. */
void ps_range_request_fail(
        struct ps_range_request *request, const struct ps_error *err, struct ps_outcome *outcome);

/* hedge.c */
/* Hedges a late request; for the timer. No lock held. */
void ps_hedge_look(struct ps_fill *fill, uint64_t now_ns);
/* A hedge has ended (fill->events.hedge_done). Increments nending, which the caller decrements. No lock
 * held. */
struct ps_fill *ps_hedge_end(struct ps_origin_get *get, const struct ps_error *err) PS_MUST_USE;
/* Cancels the hedge of a request that has ended, or returns it if it was faster. No lock held. */
struct ps_hedge *ps_hedge_take(struct ps_range_request *request) PS_MUST_USE;
/* Copies the bytes that the request lacks from the hedge, and frees the hedge. No lock held. */
void ps_hedge_use(struct ps_hedge *hedge, struct ps_range_request *request, struct ps_outcome *outcome);
/* Below: the engine's lock is held. Records the latency of a first byte from this origin. */
void ps_hedge_answered(struct ps_fill *fill, struct ps_origin *origin, uint64_t ns);
void ps_hedge_cancel_all(struct ps_fill *fill, struct ps_origin *origin);
void ps_hedge_forget(struct ps_fill *fill, struct ps_origin *origin); /* origin NULL: all */

/* schedule.c: no lock held */
/* Takes the next piece of work off the queues, as far as connections, memory and bandwidth allow, and
 * counts it in fill->active. *ret_unref: a file to put, or NULL. */
bool ps_schedule_next(struct ps_fill *fill, struct ps_turn *turn, struct ps_fill_file **ret_unref);
/* Turns the turn's missing chunks into requests. The caller submits turn->requests, and puts turn->file. */
void ps_schedule_claim(struct ps_fill *fill, struct ps_turn *turn, struct ps_outcome *outcome);
/* A retry that is due, for the caller to submit; NULL: none, or no connection. *ret_next_ns: when to call
 * again, or UINT64_MAX. */
struct ps_range_request *ps_schedule_retry(struct ps_fill *fill, uint64_t now_ns, uint64_t *ret_next_ns);
/* Adapts the number of transfers at once; for the timer. */
void ps_schedule_adapt(struct ps_fill *fill, uint64_t now_ns);
/* Cancels stalled requests in favour of waiting files that have none; for the timer. */
void ps_schedule_make_room(struct ps_fill *fill, uint64_t now_ns);

#endif
