/* Types and functions that the files of this folder share. The files are in layers, from the top down: each
 * uses those below it, none calls up. A lower file returns what happened, the one above decides what
 * follows:
 *
 *   stage.c                 threads; assigning gets; results of a decompressor's turn; making room
 *   size.c                  the size of a shard's content, by headers or by decoding; its waiters
 *   decompressor.c          decoding one stretch of a shard until it parks, fails or has ended
 *   output.c                plain bytes, for waiting gets and for the data file
 *   input.c                 compressed bytes, requested ahead
 *   decompressing_origin.c  the origins: references, objects, rows of the index; waiting gets
 *   resources.c             memory, spare buffers, queues of the threads
 *   frame.c                 frames, maps of them, decoders
 *
 * A decompressor decodes one stretch of a shard: the frames that a get touches, if the map of frames has
 * them, else everything from the last known beginning of a frame to the end.
 *
 *   READY ──thread──▶ RUNNING ──▶ INPUT   (waits for compressed bytes) ──▶ READY
 *                        ├──────▶ MEMORY  (for room for a window)      ──▶ READY
 *                        ├──────▶ RETRY   (after a retryable failure of the origin) ──▶ READY
 *                        ├──────▶ IDLE    (no get waits for what comes next) ──▶ READY, or ended after 10 s
 *                        └──────▶ ENDING  (until its pieces are back) ──▶ freed
 *
 * stage->lock protects everything here, except what belongs to a decompressor's thread while it is
 * RUNNING. */
#ifndef PS_DECOMPRESS_DECOMPRESS_PRIVATE_H
#define PS_DECOMPRESS_DECOMPRESS_PRIVATE_H

#include <stdatomic.h>

#include "base/clock.h"
#include "base/figures.h"
#include "base/log.h"
#include "decompress/decompress.h"
#include "decompress/frame.h"
#include "index/index.h"

#define PS_PIECE_NBYTES (512 * UINT64_C(1024)) /* compressed bytes of a piece, which is one request */
#define PS_PIECES_FIRST 2
#define PS_PIECES_MAX 16
#define PS_OUT_NBYTES (2 * PS_BLOCK_SIZE)
/* A frame of up to this size is handed out once its checksum has matched; a longer one while it is decoded,
 * except its end. */
#define PS_HOLD_NBYTES (16 * PS_BLOCK_SIZE)
#define PS_SPAN_NBYTES (4 * PS_BLOCK_SIZE) /* small frames are decoded together, up to this size */
#define PS_DECOMPRESSOR_NBYTES (PS_OUT_NBYTES + PS_PIECES_FIRST * PS_PIECE_NBYTES)
/* blocks written while others are decoded; their memory is taken in addition to `limit` */
#define PS_WRITES_MAX 4
#define PS_WAITING_GET_RANGES 64
#define PS_DECOMPRESS_ATTEMPTS 8 /* further attempts at a failing origin without progress */
#define PS_DECOMPRESS_TICK_NS (100 * PS_NS_PER_MS)
#define PS_DECOMPRESS_IDLE_NS (10 * PS_NS_PER_S)
#define PS_DECOMPRESS_BAD_NS (30 * PS_NS_PER_S) /* damaged data is not decoded again for this long */

struct ps_range {
	uint64_t from, end;
};

/* A waiting get, and the ranges of it that are filled. */
struct ps_waiting_get {
	struct ps_list link; /* shard->gets */
	struct ps_origin_get *get;
	uint64_t submitted_ns, first_ns;
	struct ps_range have[PS_WAITING_GET_RANGES]; /* ranges of the file; in order, disjoint */
	unsigned nhave;
	size_t reported; /* bytes that progress() has reported */
	bool reporting;  /* a thread is calling back */
	struct ps_error err;
};

/* Compressed bytes, requested ahead. */
struct ps_packed_piece {
	struct ps_origin_get get; /* first member */
	struct iovec iov;
	struct ps_decompressor *decompressor;
	uint8_t *data;
	size_t filled;
	/* received bytes that the statistics include; of these, bytes that tiers sent */
	uint64_t counted, counted_of_tiers;
	bool pending; /* requested, or about to be */
};
struct ps_input {
	uint64_t at;                                   /* offset of the bytes that are decoded next */
	uint64_t next;                                 /* offset of the bytes that are requested next */
	uint64_t end;                                  /* end of the stretch */
	struct ps_packed_piece *pieces[PS_PIECES_MAX]; /* in order; the first has the byte at `at` */
	unsigned npieces, depth;
	struct ps_error err; /* of the first piece that failed */
};

/* Plain bytes [base, pos) are in data; of these [from, pos) were decoded. */
struct ps_out {
	uint8_t *data;
	size_t cap;
	uint64_t base, from, pos; /* base is the beginning of a block */
	uint64_t safe;            /* the bytes before it may be handed out */
	uint64_t flushed;         /* the bytes before it are written, or need not be */
	/* one byte for each chunk: a get took the whole chunk, so the engine writes it */
	uint8_t *given;
};

enum ps_decompressor_state {
	PS_DECOMPRESSOR_READY,
	PS_DECOMPRESSOR_RUNNING,
	PS_DECOMPRESSOR_INPUT,
	PS_DECOMPRESSOR_MEMORY,
	PS_DECOMPRESSOR_RETRY,
	PS_DECOMPRESSOR_IDLE,
	PS_DECOMPRESSOR_ENDING,
};

struct ps_decompressor {
	struct ps_list link;       /* shard->decompressors */
	struct ps_list ready_link; /* stage->ready */
	struct ps_decompressing *shard;
	enum ps_decompressor_state state;
	bool kill;
	bool asked;   /* a get has come that may need bytes that are already in `out` */
	bool drained; /* the decoder has no more output for its input so far */
	bool header;  /* a frame's header was read, and memory for the frame is not reserved yet */
	bool spans;   /* its end is known, and it decodes up to there even if no get waits */
	bool sizes;   /* it finds the size: it writes blocks of a file whose end is not known yet */
	uint64_t end; /* plain; UINT64_MAX: to the end of the shard */
	struct ps_decoder *decoder;
	struct ps_input input;
	struct ps_out out;
	unsigned npending; /* pieces at the origin */
	/* size of the shard's content as it was known when the decompressor was made; or PS_SIZE_UNKNOWN */
	uint64_t size;
	bool declared;        /* size is only what the first frame's header declares */
	uint64_t charge;      /* its memory, part of stage->used */
	uint64_t window;      /* the window's part of charge */
	uint64_t frame_plain; /* beginning of the frame */
	uint64_t hold_end;    /* end of a frame that is handed out as a whole */
	bool in_frame;
	unsigned attempts;
	uint64_t retry_ns, idle_ns;
};

/* A block that is written beside decoding: output.c. */
struct ps_write {
	struct ps_list link;            /* stage->writes, until a thread takes it */
	struct ps_decompressing *shard; /* a reference; NULL: the place is free */
	struct ps_object *object;       /* a reference */
	uint64_t block;
	uint8_t *data; /* PS_BLOCK_SIZE bytes, allocated with the first use of the place */
};

/* An unused buffer, whose first bytes are this. */
struct ps_spare {
	struct ps_spare *next;
	size_t cap;
};

struct ps_size_waiter {
	struct ps_size_waiter *next;
	ps_decompress_size_fn fn;
	void *arg;
	uint64_t expires_ns;
};

/* How the size is being found: not at all, from headers, by decoding everything (ALL). OPENS: a thread
 * opens the object that ALL will decode into, and has dropped the lock for that. */
enum ps_sizing { PS_SIZING_NO, PS_SIZING_HEADERS, PS_SIZING_OPENS, PS_SIZING_ALL };

/* A decompressing origin: a shard as the origin of its plain bytes. */
struct ps_decompressing {
	struct ps_origin origin; /* first member */
	struct ps_decompress *stage;
	struct ps_origin *base;
	struct ps_list link;      /* stage->shards */
	struct ps_list work_link; /* stage->work; holds a reference */
	unsigned refs;
	enum ps_coding coding;
	char *url, *object_url;  /* the shard's, and the decoded object's */
	struct ps_remote source; /* the version: part of the object's id */
	/* what responses must have: `source`, with the ETag of the first response if the listing gave
	 * none */
	struct ps_remote expect;
	struct ps_id id;
	uint64_t size; /* PS_SIZE_UNKNOWN: not known */
	bool declared; /* size is only what the first frame's header declares: more frames may follow */
	bool aborted;
	bool disproved; /* its size was wrong: ps_decompressing_get() makes a new origin for the shard */
	struct ps_object *object; /* a reference; NULL until it is opened or its size is looked for */
	_Atomic bool caches;      /* the cache admits the whole object */
	struct ps_frame_map map;
	/* as in struct ps_view_row: nodes below it were shown with a wrong declared size */
	uint64_t nodes_below;
	size_t nsaved; /* points of map that the index has */
	struct ps_list gets, decompressors;
	unsigned nwrites;              /* blocks to be written, or being written */
	struct ps_origin_get *refused; /* gets refused for lack of memory; chained by work.request */
	struct ps_range bad_range;     /* damaged range of its content; remembered until bad_until_ns */
	uint64_t bad_until_ns;
	struct ps_error bad;
	struct ps_error
	        trouble; /* why the origin has not given the bytes that were asked for last; or none */

	enum ps_sizing sizing;
	struct ps_size_waiter *waiters;
	struct ps_headers *headers; /* holds a reference */
};

struct ps_decompress {
	struct ps_store *store;
	struct ps_fill *fill;
	pthread_mutex_t lock;    /* protects what follows */
	pthread_cond_t cond;     /* work, ready, writes, stopping; monotonic clock */
	pthread_cond_t gone;     /* a decompressing origin was freed */
	struct ps_list shards;   /* of struct ps_decompressing */
	struct ps_list work;     /* those whose gets, size or ended decompressors a thread must look at */
	struct ps_list ready;    /* decompressors */
	struct ps_spare *spares; /* unused buffers: fresh memory costs a fault for each page */
	uint64_t spare_nbytes;   /* of the spares; freed when a decompressor needs the memory */
	struct ps_write write_places[PS_WRITES_MAX];
	struct ps_list writes;  /* blocks that no thread has begun to write */
	pthread_cond_t written; /* all queued blocks of a shard were written */
	uint64_t limit, used;   /* memory, in bytes; limit 0: not taken from the budget yet */
	unsigned ndecompressors, max_decompressors, nwaiters;
	/* the last shards of unknown size that were in trouble, and the cause that the log has */
	struct ps_told {
		struct ps_id id;
		int err, http_status;
	} told[256];
	unsigned next_told;
	bool wanting; /* a place or memory was lacking: decompressors end instead of becoming idle */
	bool stopping;
	uint64_t next_tick_ns;
	unsigned nthreads;
	pthread_t threads[8];
	struct ps_inflate_counters counters;
};

/* The lock is held in all functions below, unless they say otherwise. */

/* resources.c -------------------------------------------------------------------------------------------- */
/* Takes the stage's share of the engine's memory, once and in advance: the engine's buffers are held by
 * gets that wait for decompressors, so decompressors must never wait for the engine to free memory. */
void ps_decompress_take_memory(struct ps_decompress *stage);
/* Adds to stage->used, and frees spare buffers if necessary. False: there is no memory now. */
bool ps_decompress_reserve(struct ps_decompress *stage, uint64_t nbytes);
/* Reserves memory for a decompressor's buffers (its window is reserved elsewhere). False: no memory now, or
 * the decompressor has its maximum already. */
bool ps_decompressor_reserve(struct ps_decompressor *decompressor, uint64_t nbytes);
/* Takes a buffer of `cap` bytes, aligned for the disk: a spare one, or a new one. The caller has reserved its
 * memory. NULL: out of memory. */
uint8_t *ps_spare_take(struct ps_decompress *stage, size_t cap);
/* Keeps the buffer, if there is room for it beside stage->used and the other spares. `data` may be NULL. */
void ps_spare_put(struct ps_decompress *stage, void *data, size_t cap);
/* Frees spare buffers until they have `keep` bytes at most. */
void ps_spares_drop(struct ps_decompress *stage, uint64_t keep);
/* Increments *count, of decompressors or waiters, and has a thread look at them each tick. */
void ps_decompress_watch(struct ps_decompress *stage, unsigned *count);
/* True if other work waits for a thread. */
bool ps_decompress_is_due(const struct ps_decompress *stage);
/* Has a thread look at the shard's gets, size and ended decompressors. */
void ps_decompressing_wake(struct ps_decompressing *shard);
/* Makes a parked decompressor READY. */
void ps_decompressor_wake(struct ps_decompressor *decompressor);

/* decompressing_origin.c --------------------------------------------------------------------------------- */
/* Undoes a `refs++`; may drop the lock for a while. */
void ps_decompressing_unref(struct ps_decompressing *shard);
/* The object, with a new reference, or NULL. */
struct ps_object *ps_decompressing_hold(struct ps_decompressing *shard);
/* Saves map and size in the index (of a disproved shard no size: it has to be found again); drops the lock
 * meanwhile. */
void ps_decompressing_save(struct ps_decompressing *shard);
/* Notes the outcome of a request, which may be tried again. Waiters whose time is over get it. While the size is not
 * known, each new cause of failures is logged once, and is the last error of `penstock status`. The lock is not
 * held. */
void ps_decompressing_note(struct ps_decompressing *shard, const struct ps_error *err);
/* The size is known: a later failure of the same cause is logged again. */
void ps_decompressing_untell(struct ps_decompressing *shard);
/* A get of its base origin has ended: if bytes came, the origin's credentials may read the shard. The lock
 * is not held. */
void ps_decompressing_proved(struct ps_decompressing *shard, const struct ps_origin_get *get);
/* The get's first missing bytes at or after `from`. False: none. */
bool ps_waiting_get_gap(const struct ps_waiting_get *waiting, uint64_t from, struct ps_range *ret);
/* Copies to the get what it lacks of [from, end) of the file. True: bytes were copied. */
bool ps_waiting_get_copy(struct ps_waiting_get *waiting, uint64_t from, uint64_t end, const uint8_t *data);
/* Fails the gets that lack any byte of [from, end). */
void ps_waiting_gets_fail(
        struct ps_decompressing *shard, uint64_t from, uint64_t end, const struct ps_error *err);
/* Calls progress() and done() of the gets with news; drops the lock meanwhile. */
void ps_waiting_gets_answer(struct ps_decompressing *shard);

/* input.c ------------------------------------------------------------------------------------------------ */
/* The bytes that can be decoded next; 0: none yet. */
size_t ps_input_peek(struct ps_decompressor *decompressor, const uint8_t **ret);
/* Requests pieces ahead; more than before if `deeper` and if there is memory. Called by the decompressor's
 * thread. True: the lock was dropped meanwhile. */
bool ps_input_request(struct ps_decompressor *decompressor, bool deeper);
void ps_input_cancel(struct ps_decompressor *decompressor);
/* Drops all pieces, and the error. Precondition: no piece is pending. */
void ps_input_reset(struct ps_decompressor *decompressor);

/* output.c: the decompressor's thread -------------------------------------------------------------------- */
/* Hands out the bytes before out.safe to waiting gets; drops the lock meanwhile. */
void ps_out_deliver(struct ps_decompressor *decompressor);
/* Writes bytes that no get took, up to the last whole chunk (or, at the end of the shard, all), and makes
 * room in the buffer. The lock is not held. */
void ps_out_flush(struct ps_decompressor *decompressor, bool all);
/* Makes room for `nbytes` after the bytes in the buffer. -EAGAIN: no memory now. The lock is not held. */
int ps_out_grow(struct ps_decompressor *decompressor, uint64_t nbytes) PS_MUST_USE;
/* Writes this element of stage->writes; drops the lock meanwhile. */
void ps_write_run(struct ps_decompress *stage, struct ps_list *link);
/* Waits until the shard's blocks are written. The lock is not held. */
void ps_writes_wait(struct ps_decompressing *shard);

/* decompressor.c ----------------------------------------------------------------------------------------- */
/* Makes a READY decompressor that begins at a frame. NULL: no place or no memory now. */
struct ps_decompressor *ps_decompressor_new(
        struct ps_decompressing *shard, struct ps_frame_point from, uint64_t packed_end, uint64_t end);

/* Result of a decompressor's turn. */
enum ps_turn {
	PS_TURN_GOES_ON, /* only inside decompressor.c */
	PS_TURN_PARKED,  /* it waits, and another thread may run it by now */
	PS_TURN_NO_ROOM, /* the same; it waits for memory */
	PS_TURN_KILLED,
	PS_TURN_DECODED, /* its stretch is decoded to the end */
	PS_TURN_FAILED,  /* plain bytes from out.safe up to failure.end cannot be decoded */
};
struct ps_failure {
	struct ps_error err;
	uint64_t end;
};
/* Runs a turn of a RUNNING decompressor; drops the lock while it decodes. After the last three results the
 * caller ends the decompressor. */
enum ps_turn ps_decompressor_run(struct ps_decompressor *decompressor, struct ps_failure *ret);
/* Ends a decompressor. True: it is freed, with its place and memory. False: it is ENDING, until its pieces
 * are back. May drop the lock. */
bool ps_decompressor_end(struct ps_decompressor *decompressor);
/* Frees decompressors that are ENDING and whose pieces are back. The caller has a reference of the shard.
 * True: there were some. */
bool ps_decompressors_reap(struct ps_decompressing *shard);

/* size.c ------------------------------------------------------------------------------------------------- */
/* Continues finding the size, if that is possible now; drops the lock meanwhile. True: a place or memory is
 * lacking. */
bool ps_size_step(struct ps_decompressing *shard);
/* The decompressor that finds the size has decoded the whole shard; drops the lock meanwhile. */
void ps_size_decoded(struct ps_decompressor *decompressor);
/* The size cannot be found: answers all waiters; drops the lock meanwhile. */
void ps_size_fail(struct ps_decompressing *shard, const struct ps_error *err);
/* Answers waiters whose time is up; drops the lock meanwhile. */
void ps_size_expire(struct ps_decompress *stage, uint64_t now_ns);
/* Ends requests for headers. */
void ps_size_cancel(struct ps_decompressing *shard);

#endif
