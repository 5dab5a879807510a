/* What the files of the fill engine share; fill.c has their ladder.
 *
 * A chunk (64 KiB) of a block, by its block's buffer:
 *
 *                   claimed by a request            arrived
 *   missing (no bit) ───────────────▶ in `flight` ────────▶ in `whole` ──written──▶ in `stored`, or no buffer:
 *          ▲   ▲                          │                     │                   the store has it
 *          │   │ no waiter                │ attempts used up    │ the disk does not take it
 *          │   └──────────────────────────┤                     ▼
 *          │  after PS_FILL_FAILED_MS     ▼ a reader waits  buffer HELD ──▶ missing when memory is needed
 *          └───────────────────────── in `failed`
 *
 * A buffer as a whole is in one place:
 *
 *   NONE ──nothing in flight, chunks not stored──▶ DISK (queued, or being written) ──▶ NONE, or no buffer
 *     │                                             ▲  │ more came meanwhile     ├──▶ HELD ──▶ no buffer
 *     │                                             ├──┘                         └──▶ RETAINED ──▶ no buffer
 *     │                                             └── HELD, every second
 *     └──(a block that is unverified has no chunks)──▶ VERIFY ──▶ no buffer
 *
 * A whole block that was written is RETAINED for readers that follow, until one has read it to its end or
 * memory is needed. Readers are served from the buffer as far as it is filled, also in the middle of a chunk
 * (`have`).
 *
 * References of the file: each handle, queued demand, request, and buffer in DISK, HELD or VERIFY holds
 * one. */
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
/* Chunks between two that wait, which no reader needs yet: fetched with them they cost less than another
 * request. */
#define PS_REQUEST_BRIDGE_CHUNKS 1

enum ps_buffer_place { PS_PLACE_NONE, PS_PLACE_DISK, PS_PLACE_RETAINED, PS_PLACE_HELD, PS_PLACE_VERIFY };

struct ps_block_buffer {
	/* fill->disk_queue, retained or held: the engine's lock; on its way there, ps_outcome.disk: its
	 * thread's */
	struct ps_list link;
	struct ps_fill_file *file;
	uint64_t block;
	/* the file's lock: */
	enum ps_buffer_place place;
	struct ps_block_memory *memory; /* NULL: VERIFY, or only failed */
	uint16_t flight;                /* chunks that requests have claimed and that are not whole yet */
	uint16_t whole;                 /* all of the chunk is in memory */
	uint16_t stored;                /* of these, and the store has it */
	uint16_t failed; /* answer with errnum until then; may be in flight after a reader's timeout */
	uint32_t have[PS_BLOCK_CHUNKS]; /* bytes from each chunk's beginning that are in its memory */
	uint64_t failed_until_ns;
	int errnum;
	bool read;                /* to its end */
	bool retained;            /* is in fill->retained */
	struct ps_list read_link; /* fill->read_retained */
	bool awaited;             /* fetched for a reader, not only for the cache */
	uint64_t retained_ns;     /* since when it is RETAINED; the engine's lock */
};

struct ps_range_request {
	struct ps_origin_get get;  /* first: done() gets back to the request from it */
	struct ps_list link;       /* fill->running or fill->retries; the engine's lock */
	struct ps_fill_file *file; /* a reference */
	uint64_t first;            /* chunk */
	unsigned nchunks;
	size_t nbytes;             /* of the whole request */
	size_t base;               /* bytes that earlier attempts have brought */
	size_t filled;             /* bytes in place, base included */
	uint64_t counted;          /* of this attempt's bytes, in fill->origin_bytes */
	struct ps_tree_item retry; /* fill->retries */
	unsigned attempts;         /* since the last progress */
	uint64_t started_ns, retry_ns;
	_Atomic uint64_t touched_ns; /* submitted, or something came */
	bool preempted;              /* is being cancelled for another file; the engine's lock */
	bool checked, other_version; /* of this attempt's response */
	struct ps_hedge *hedge;      /* the engine's lock */
	unsigned nbufs;              /* a block each */
	struct ps_block_memory *bufs[PS_REQUEST_MAX_BLOCKS];
	struct iovec iov[PS_REQUEST_MAX_BLOCKS];
};

/* A file's demands of one class. The engine's lock. */
struct ps_file_demands {
	struct ps_fill_file *file;
	struct ps_tree_item place; /* in fill->queues; none: there are no demands */
	uint64_t since_ns;         /* that place */
	struct ps_list demands;    /* of ps_demand.link, as they came */
};

struct ps_fill_file {
	struct ps_fill *fill;
	struct ps_object *object;
	struct ps_origin *origin;
	struct ps_tree_item place; /* fill->files; the engine's lock */
	struct ps_tree_item due;   /* fill->due; fill->due_lock */
	struct ps_list due_link;   /* of the timer, which has a reference while it uses it */
	/* the engine's lock: */
	unsigned refs;
	unsigned nparked;   /* of these: buffers in DISK, HELD or VERIFY */
	unsigned nrequests; /* at the origin, or waiting for another attempt */
	struct ps_file_demands demands[PS_DEMAND_CLASSES];
	struct ps_tree read_demands; /* those of readers, by their first chunk */
	unsigned nread_demands;
	unsigned nretained;     /* blocks */
	struct ps_demand warm;  /* all of it; queued by ps_fill_warm() */
	struct ps_demand spare; /* a demand for which there was no memory */
	unsigned npreempted;    /* requests that gave way since one brought something */
	bool draining;

	_Atomic bool allowed; /* the store's bytes are for its readers, too; never taken back */
	/* All its waiters are to be looked at by the timer. */
	_Atomic bool look;

	pthread_mutex_t lock;             /* protects what follows */
	struct ps_block_buffer **buffers; /* one pointer a block */
	struct ps_tree waiters_by_offset; /* of ps_read.priv.place */
	struct ps_list waiters;           /* of ps_read.priv.link */
	void *shared;                     /* ps_fill_file_share(); NULL: no reference is left */
	unsigned nshared;                 /* references of it */
	struct ps_remote remote; /* with the ETag of the first response, where the listing had none */
	bool changed, doubted;
	bool sum_asked;            /* or found to need no asking */
	uint64_t refused_until_ns; /* nothing is fetched that no waiter    for */
	uint64_t told_ns;          /* of the last warning in the log */
	char error[PS_ERROR_TEXT_LEN];
	char attempt[PS_ERROR_TEXT_LEN]; /* why the last attempt that will be repeated failed; "" after a
	                                    success */
};

/* The engine's, whom origins call back. */
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
	/* Files with demands, by class. First those of which no request was pre-empted; of these, and of the
	 * others, first those with the fewest requests; of these, they take turns. */
	struct ps_tree queues[PS_DEMAND_CLASSES];  /* of ps_file_demands.place */
	struct ps_list running;                    /* of ps_range_request */
	struct ps_tree retries;                    /* of ps_range_request.retry, by retry_ns */
	struct ps_list hedges, tails;              /* hedge.c */
	uint64_t pushback_ns;                      /* when an origin last asked to wait; 0: never */
	struct ps_list disk_queue, retained, held; /* of ps_block_buffer */
	pthread_mutex_t read_lock;                 /* a leaf */
	struct ps_list read_retained;              /* of those that are retained: read to their end */
	size_t nretained, nheld, ndisk_busy;
	uint64_t held_retry_ns; /* of what is held */
	unsigned nending;       /* transfers whose done has not returned */
	struct ps_concurrency concurrency;
	unsigned active;                    /* transfers at the origins */
	unsigned nbusy_files;               /* with requests */
	uint64_t first_byte_ns;             /* from a request to its first byte, smoothed; 0: not known */
	uint64_t next_start_ns;             /* max_bytes_per_s */
	bool paced;                         /* something waits for it */
	char last_error[PS_ERROR_TEXT_LEN]; /* of a read or lookup that failed; "" */
	int64_t last_error_s;
	bool stopping;
	pthread_cond_t disk_cond;  /* disk_queue has work, or stopping */
	pthread_cond_t timer_cond; /* retries changed, or stopping */
	pthread_cond_t files_cond; /* a file went away */

	pthread_t disk_threads[PS_DISK_THREADS], timer_thread;
	void *disk_scratch[PS_DISK_THREADS]; /* each taken by its thread */
	unsigned ndisk_threads;
	bool timer_started;

	pthread_mutex_t due_lock; /* a leaf: below those of the engine and of files */
	struct ps_tree due; /* of ps_fill_file.due, by when the timer is to look at the file at the latest */
	_Atomic uint64_t due_ns; /* of the first of them; UINT64_MAX: there is none */

	/* counters for stats; relaxed order is enough, nothing is inferred from them */
	_Atomic unsigned connections; /* a copy of concurrency.limit */
	_Atomic uint64_t arrived_bytes;
	_Atomic uint64_t origin_bytes, origin_requests, origin_errors, origin_retries;
	_Atomic uint64_t hedged_requests, hedged_bytes; /* also in origin_requests and origin_bytes */
	_Atomic uint64_t fetched_bytes; /* of arrived_bytes: for readers, not only for the cache */
	struct ps_read_stats reads;
	struct ps_histogram origin_latency;
};

/* What an event at a file has brought about: collected under the file's lock, carried out without it. */
#define PS_OUTCOME_RANGES 8
struct ps_outcome {
	struct ps_list ready; /* reads to be answered, by priv.link */
	struct ps_list disk;  /* buffers for the disk threads */
	unsigned nmissing;
	struct {
		uint64_t from, end; /* chunks that a reader lacks and nobody fetches */
	} missing[PS_OUTCOME_RANGES];
	bool again; /* a reader waits for what cannot be arranged now: to be looked at later */
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

/* What is taken off the queues at once. */
#define PS_TURN_MAX_REQUESTS (PS_REQUEST_MAX_CHUNKS / 2)
struct ps_turn {
	struct ps_fill_file *file; /* a reference */
	enum ps_demand_class cls;
	uint64_t from, end; /* chunks */
	size_t nbufs;       /* one for each block of it, at most */
	size_t nused;       /* the first of them, which requests have taken */
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

/* The origin itself, or one that stands on it. */
static inline bool ps_origin_is(const struct ps_origin *origin, const struct ps_origin *base)
{
	return origin == base || (origin->base && origin->base == base);
}

/* What the store has for this file's readers. */
static inline uint16_t ps_file_chunks(const struct ps_fill_file *file, uint64_t block)
{
	return atomic_load(&file->allowed) ? ps_object_chunks(file->object, block) : 0;
}

static inline enum ps_block_state ps_file_block(const struct ps_fill_file *file, uint64_t block)
{
	return atomic_load(&file->allowed) ? ps_object_block(file->object, block) : PS_BLOCK_ABSENT;
}

/* fill_stats.c */
/* A read begins to wait; one that is about to be answered, whether it waited or not. */
void ps_fill_count_wait(struct ps_fill *fill, const struct ps_read *read);
void ps_fill_count_read(struct ps_fill *fill, const struct ps_read *read);
/* A read that found its bytes at once; stats or NULL. */
void ps_fill_count_hit(struct ps_fill *fill, struct ps_read_stats *stats, size_t nbytes, uint64_t issued_ns);

/* fill_file.c */
struct ps_fill_file *ps_fill_file_ref(struct ps_fill_file *file); /* takes the engine's lock */
/* The timer is to look at the file then at the latest. True: it was not to do so as soon. Any lock held
 * but due_lock. */
bool ps_fill_file_due(struct ps_fill_file *file, uint64_t ns);
/* The files of an object, in a row; NULL: no more. Also such as are on their way out. The engine's lock is
 * held. */
struct ps_fill_file *ps_fill_file_first(const struct ps_fill *fill, const struct ps_object *object);
struct ps_fill_file *ps_fill_file_next(const struct ps_fill_file *file);
/* The timer looks at all waiters of the file, at once. No lock of a file or of the engine held. */
void ps_fill_look_later(struct ps_fill_file *file);
/* Below: the file's lock is held. */
/* May a failure of this file go to the log? One a while does. */
bool ps_fill_may_tell(struct ps_fill_file *file, uint64_t now_ns);
struct ps_block_buffer *ps_block_buffer_new(struct ps_fill_file *file, uint64_t block);
void ps_block_buffer_free(struct ps_block_buffer *buffer); /* forgets it in the file; unrefs its memory */
/* The block's buffer, without failures whose time is over; NULL: none. */
struct ps_block_buffer *ps_block_buffer_find(struct ps_fill_file *file, uint64_t block, uint64_t now_ns);
/* Its place may become VERIFY: it has nothing but failures, which a check makes void. */
static inline bool ps_block_buffer_is_idle(const struct ps_block_buffer *buffer)
{
	return buffer->place == PS_PLACE_NONE && !buffer->memory && !buffer->flight;
}
/* The chunks that a request may claim: neither there, nor in flight, nor failed just now. */
uint16_t ps_block_buffer_missing(struct ps_fill_file *file, uint64_t block, uint64_t now_ns);
/* To be called when chunks are no longer in flight, or the disk is through with the buffer, which may be gone
 * afterwards. What is to be written is appended to `disk`, for ps_writeback_queue(). */
void ps_block_buffer_settle(struct ps_block_buffer *buffer, struct ps_list *disk);
/* A claim is given up. */
void ps_block_buffer_release(struct ps_block_buffer *buffer, unsigned chunk);
void ps_block_buffer_fail(struct ps_block_buffer *buffer, uint16_t chunks, int errnum, uint64_t until_ns);
/* A reader takes the block to its end, and no memory is needed for it any more. */
void ps_block_buffer_was_read(struct ps_block_buffer *buffer);
/* Retained blocks. */
/* Of a block that is on disk now, whose place is RETAINED; the caller has a reference of the file. No lock
 * held. */
void ps_retain_written(struct ps_fill *fill, struct ps_block_buffer *buffer);
/* Of one that the disk did not take; the buffer's reference of the file goes with it. No lock held. */
void ps_retain_held(struct ps_fill *fill, struct ps_block_buffer *buffer);
/* Drops kept blocks: of this file, or (NULL) of all. The engine's lock is held. */
void ps_retained_drop(struct ps_fill *fill, struct ps_fill_file *file);
/* Those that nobody came for; for the timer. No lock held. */
void ps_retained_drop_stale(struct ps_fill *fill, uint64_t now_ns);
/* Frees the memory of one block, kept or held; the engine's lock is held. False if there is none. */
bool ps_retained_reclaim(struct ps_fill *fill, struct ps_fill_file **ret_unref);
/* Asks the disk again for those that are held, once a second; true: it has. For the timer. No lock held. */
bool ps_retained_retry_held(struct ps_fill *fill, uint64_t now_ns);
/* Drops held blocks of this origin, or (NULL) of all. No lock held. */
void ps_retained_drop_held(struct ps_fill *fill, struct ps_origin *origin);

/* demand_queue.c */
/* A reader waits for chunks [from, end), at most PS_REQUEST_MAX_CHUNKS; joined with what is queued beside
 * them. No lock held. */
void ps_fill_demand(struct ps_fill_file *file, uint64_t from, uint64_t end);
/* Demands all of the file, for the cache. True: it was queued. No lock held. */
bool ps_demand_warm(struct ps_fill_file *file);
/* Takes a demand off its queue; its reference of the file is the caller's from now on, and the demand is
 * gone if it was on the heap. The engine's lock is held. */
void ps_demand_unqueue(struct ps_demand *demand);
/* A file's place in the queues follows its requests and pre-emptions: to be called after a change of
 * either. The engine's lock is held. */
void ps_demand_requeue(struct ps_fill_file *file);
/* The file that is first, of those with or without pre-emptions; NULL: none is. The engine's lock is held. */
struct ps_fill_file *ps_demand_first_file(
        const struct ps_fill *fill, enum ps_demand_class cls, bool preempted);
/* Readers' demands of files that have had no request for so long; `cap` at most are counted. The engine's
 * lock is held. */
unsigned ps_demand_count_starving(const struct ps_fill *fill, uint64_t since_ns, unsigned cap);
/* A turn takes chunks up to `next` off a demand: what is left is queued after the others of its file, and
 * the turn gets a reference of the file. The engine's lock is held. */
void ps_demand_take(struct ps_demand *demand, uint64_t next);
/* Drops demands of what is to be in the cache, and was evicted; all of an origin. No lock held. */
void ps_demand_drop_vain(struct ps_fill *fill);
void ps_demand_drop_of_origin(struct ps_fill *fill, struct ps_origin *origin);
/* Is it only to be in the cache, which does not take it any more? */
bool ps_demand_is_vain(enum ps_demand_class cls, struct ps_fill_file *file);

/* waiters.c */
/* A read that cannot be answered now joins the file's waiters: true, *outcome has what it needs. Else it
 * is in outcome->ready. No lock held. */
bool ps_waiters_join(struct ps_fill_file *file, struct ps_read *read, struct ps_outcome *outcome);
/* It leaves with ECANCELED, if it is still there. No lock held. */
void ps_waiters_cancel(struct ps_fill_file *file, struct ps_read *read, struct ps_outcome *outcome);
/* Answers reads chained by priv.link, each with priv.errnum or its bytes. No lock held. */
void ps_waiters_answer(struct ps_fill *fill, struct ps_list *reads);
/* Below: the file's lock is held. ------------------------------------------------------------------------ */
/* Looks at the readers that touch bytes [from, end), after something that they may wait for has ended:
 * those that can be answered (or failed) leave the file, and what others lack and nobody fetches is to be
 * demanded. */
void ps_waiters_look(struct ps_fill_file *file, uint64_t from, uint64_t end, struct ps_outcome *outcome);
/* Readers whose time is up leave, with ETIMEDOUT. True: that is to be logged, *ret_offset tells of which. */
bool ps_waiters_expire(
        struct ps_fill_file *file, uint64_t now_ns, struct ps_outcome *outcome, uint64_t *ret_offset);
/* All readers leave, with ECANCELED. */
void ps_waiters_cancel_all(struct ps_fill_file *file, struct ps_outcome *outcome);
/* When the first reader has waited long enough; UINT64_MAX: none waits. */
uint64_t ps_waiters_first_expiry_ns(const struct ps_fill_file *file);
/* The first reader, by offset, that waits for any of bytes [from, end); the next one; NULL: there is none. */
struct ps_read *ps_waiters_first(const struct ps_fill_file *file, uint64_t from, uint64_t end);
struct ps_read *ps_waiters_next(const struct ps_read *read, uint64_t from, uint64_t end);

/* writeback.c: no lock held */
/* Of all buffers of the list; takes a reference of the file for each. */
void ps_writeback_queue(struct ps_fill *fill, struct ps_list *buffers);
/* The next buffer for a disk thread; waits for one. NULL: the engine stops, and all is written. */
struct ps_block_buffer *ps_writeback_next(struct ps_fill *fill);
/* Writes or checks it; scratch: a block, aligned for the disk. Returns the file, with the buffer's reference
 * of it for the caller; NULL: the buffer is held, and keeps its reference. Blocks on the disk. */
struct ps_fill_file *ps_writeback_do(struct ps_fill *fill, struct ps_block_buffer *buffer, void *scratch,
        struct ps_outcome *outcome) PS_MUST_USE;

/* request_retry.c: no lock held unless it says so */
/* A request over chunks [first, end), which nobody else has in flight or in memory; it may come out shorter.
 * Takes *nused of the buffers, one for each block that has none. NULL: out of memory, or of buffers. The
 * file's lock is held. */
struct ps_range_request *ps_range_request_claim(struct ps_fill_file *file, uint64_t first, uint64_t end,
        struct ps_block_memory **bufs, size_t nbufs, size_t *nused);
/* Runs of the file more or less. The engine's lock is held. */
void ps_range_request_count(struct ps_fill_file *file, int more);
void ps_range_request_submit(struct ps_range_request *request);
void ps_range_request_free(struct ps_range_request *request);
/* Bytes [0, filled) of the request are in place: readers are to be answered, blocks of which nothing more
 * comes go to the disk. */
void ps_range_request_advance(struct ps_range_request *request, size_t filled, struct ps_outcome *outcome);
void ps_range_request_check_version(struct ps_range_request *request);
/* So many bytes of this attempt have come: what is new of them counts as the origin's. */
void ps_range_request_count_bytes(struct ps_range_request *request, uint64_t nbytes);
/* The same of a response beside the request's. */
bool ps_range_request_same_version(struct ps_fill_file *file, const struct ps_remote *seen);
/* An attempt has ended; gives_way: it was cancelled in favour of another one. True: the request is over, the
 * caller frees it. False: it waits for another attempt, which may have begun already. */
bool ps_range_request_end(struct ps_range_request *request, const struct ps_error *err, bool gives_way,
        struct ps_outcome *outcome) PS_MUST_USE;
/* What has not come of it cannot be had. */
void ps_range_request_fail(
        struct ps_range_request *request, const struct ps_error *err, struct ps_outcome *outcome);

/* hedge.c */
/* Asks once more for what one request is late with; for the timer. No lock held. */
void ps_hedge_look(struct ps_fill *fill, uint64_t now_ns);
/* A hedge has ended (fill->events.hedge_done). Counts in nending, which the caller takes back. No lock
 * held. */
struct ps_fill *ps_hedge_end(struct ps_origin_get *get, const struct ps_error *err) PS_MUST_USE;
/* Of a request that has ended: its hedge is cancelled, or (if it was faster) returned. No lock held. */
struct ps_hedge *ps_hedge_take(struct ps_range_request *request) PS_MUST_USE;
/* The request gets what it lacks of the hedge's bytes; frees the hedge. No lock held. */
void ps_hedge_use(struct ps_hedge *hedge, struct ps_range_request *request, struct ps_outcome *outcome);
/* Below: the engine's lock is held. A first byte of this origin came after so long. */
void ps_hedge_answered(struct ps_fill *fill, struct ps_origin *origin, uint64_t ns);
void ps_hedge_cancel_all(struct ps_fill *fill, struct ps_origin *origin);
void ps_hedge_forget(struct ps_fill *fill, struct ps_origin *origin); /* NULL: all */

/* schedule.c: no lock held */
/* Takes the next piece of work off the queues, as far as connections, memory and bandwidth allow; its
 * place among the active is taken. *ret_unref: a file to put, or NULL. */
bool ps_schedule_next(struct ps_fill *fill, struct ps_turn *turn, struct ps_fill_file **ret_unref);
/* Turns what of it is missing into requests: the caller submits turn->requests, and puts turn->file. */
void ps_schedule_claim(struct ps_fill *fill, struct ps_turn *turn, struct ps_outcome *outcome);
/* A retry that is due, for the caller to submit; NULL: none, or no connection; *ret_next_ns: when to ask
 * again, or UINT64_MAX. */
struct ps_range_request *ps_schedule_retry(struct ps_fill *fill, uint64_t now_ns, uint64_t *ret_next_ns);
/* Looks whether more or fewer transfers at once are worth it; for the timer. */
void ps_schedule_adapt(struct ps_fill *fill, uint64_t now_ns);
/* Cancels requests that stall for files that have none and wait; for the timer. */
void ps_schedule_make_room(struct ps_fill *fill, uint64_t now_ns);

#endif
