/* What the files of this folder share: stage.c (memory, places, threads, who serves a get), size.c (how long it is: by
 * headers, or by decoding), decompressor.c (when one runs, parks, ends; frames), output.c (plain bytes, and blocks that are
 * written beside decoding), input.c (compressed bytes), decompressing_origin.c (the origins, the gets that wait, what the
 * index keeps), frame.c (frames, maps of them, decoders). All but frame.c still call each other round and round.
 *
 * A decompressor decodes one stretch of a shard: the frames that a get touches, where a map tells of them, else
 * from the last known beginning of a frame to the end.
 *
 *   READY ──thread──▶ RUNNING ──▶ INPUT   (waits for compressed bytes) ──▶ READY
 *                        ├──────▶ MEMORY  (for room for a window)      ──▶ READY
 *                        ├──────▶ RETRY   (the origin failed, and may not the next time) ──▶ READY
 *                        ├──────▶ IDLE    (nobody wants what comes next) ──▶ READY, or ended after a while
 *                        └──────▶ ENDING  (until its pieces are back) ──▶ freed
 *
 * All under inflate->lock, but what belongs to a decompressor's thread while it is RUNNING. */
#ifndef PS_DECOMPRESS_DECOMPRESS_PRIVATE_H
#define PS_DECOMPRESS_DECOMPRESS_PRIVATE_H

#include <stdatomic.h>

#include "base/clock.h"
#include "base/log.h"
#include "decompress/frame.h"
#include "decompress/decompress.h"
#include "index/index.h"

#define PS_PIECE_NBYTES (512 * UINT64_C(1024)) /* of compressed bytes: one request */
#define PS_PIECES_FIRST 2
#define PS_PIECES_MAX 16
#define PS_OUT_NBYTES (2 * PS_BLOCK_SIZE)
/* A frame of up to so many bytes is handed out once it is known to be right; a longer one as it is decoded,
 * but for its end. */
#define PS_HOLD_NBYTES (16 * PS_BLOCK_SIZE)
#define PS_SPAN_NBYTES (4 * PS_BLOCK_SIZE) /* small frames are decoded together, up to so many bytes */
#define PS_DECOMPRESSOR_NBYTES (PS_OUT_NBYTES + PS_PIECES_FIRST * PS_PIECE_NBYTES)
#define PS_WRITES_MAX 4 /* blocks on their way to the disk beside decoding; their memory is no decompressor's */
#define PS_WALKS_MAX 4  /* windows over headers; their memory is no decompressor's either */
#define PS_WALK_NBYTES PS_MIB
#define PS_PART_RANGES 64
#define PS_DECOMPRESS_ATTEMPTS 8 /* of an origin that fails, without progress */
#define PS_DECOMPRESS_IDLE_NS (10 * PS_NS_PER_S)
#define PS_DECOMPRESS_BAD_NS (30 * PS_NS_PER_S) /* damaged data is not looked at again for so long */

struct ps_range {
	uint64_t from, end;
};

/* A get that waits, and what of it is in place. */
struct ps_part {
	struct ps_list link; /* inflater->parts */
	struct ps_origin_get *get;
	uint64_t submitted_ns, first_ns;
	struct ps_range have[PS_PART_RANGES]; /* of the file; in order, apart */
	unsigned nhave;
	size_t told;  /* bytes that progress() has heard of */
	bool telling; /* a thread is calling back */
	struct ps_error err;
};

/* Compressed bytes, asked for ahead. */
struct ps_packed_piece {
	struct ps_origin_get get;
	struct iovec iov;
	struct ps_decompressor *decompressor;
	uint8_t *data;
	size_t filled;
	uint64_t counted; /* of what came, in the figures */
	bool pending;
	struct ps_packed_piece *next_free;
};
struct ps_input {
	uint64_t at, next,
	        end; /* offsets: of what is decoded next, of what is asked for next, of the stretch's end */
	struct ps_packed_piece *pieces[PS_PIECES_MAX]; /* in order; the first has the byte at `at` */
	unsigned npieces, depth;
	struct ps_error err; /* of the first piece that failed */
};

/* Plain bytes [base, pos) are in data; of these [from, pos) are real. */
struct ps_out {
	uint8_t *data;
	size_t cap;
	uint64_t base, from, pos; /* base is a block's */
	uint64_t safe;            /* up to here they are known to be right, or as good as can be known */
	uint64_t flushed;         /* up to here nothing more is written */
	uint8_t *given;           /* a byte a chunk: a get took all of it, so the engine writes it */
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
	struct ps_list link;     /* inflater->decompressors */
	struct ps_list run_link; /* inflate->ready */
	struct ps_decompressing *inflater;
	enum ps_decompressor_state state;
	bool kill;
	bool asked;   /* a get has come for what is in `out` already, perhaps */
	bool drained; /* the decoder gives nothing more for what it was given */
	bool waits;   /* for memory for the window of the frame that has begun */
	bool spans;   /* its end is known, and it goes there whoever waits */
	bool sizes;   /* finds out the size: writes blocks of a file whose end is not known yet */
	uint64_t end; /* plain; UINT64_MAX: to the end of the shard */
	struct ps_decoder *decoder;
	struct ps_input input;
	struct ps_out out;
	unsigned npending; /* pieces at the origin */
	uint64_t size;     /* of what the shard holds, as known when it began; PS_SIZE_UNKNOWN: it was not */
	bool declared;     /* by the first frame's header alone */
	uint64_t charge;   /* memory, of inflate->used */
	uint64_t window;   /* of it */
	uint64_t frame_plain; /* where the frame began */
	uint64_t hold_end;                  /* of a frame that is handed out as a whole */
	bool in_frame;
	unsigned attempts;
	uint64_t retry_ns, idle_ns;
};

struct ps_waiter {
	struct ps_waiter *next;
	ps_decompress_size_fn fn;
	void *arg;
	uint64_t expires_ns;
};

/* OPENS: a thread prepares ALL, without the lock. */
enum ps_size_state { PS_SIZING_NO, PS_SIZING_HEADERS, PS_SIZING_OPENS, PS_SIZING_ALL };

struct ps_decompressing {
	struct ps_origin origin; /* first */
	struct ps_decompress *inflate;
	struct ps_origin *base;
	struct ps_list link;      /* inflate->inflaters */
	struct ps_list work_link; /* inflate->work; holds a reference */
	unsigned refs;
	enum ps_coding coding;
	char *url, *object_url;  /* the shard's, and that of what it holds */
	struct ps_remote source; /* the version: part of the object's identity */
	struct ps_remote
	        expect; /* the same, with the ETag of the first response where the listing had none */
	struct ps_id id;
	uint64_t size; /* PS_SIZE_UNKNOWN: not known */
	bool declared; /* by the first frame's header alone: there may be others */
	bool aborted;
	bool disproved;           /* its size was wrong: nobody gets it any more */
	struct ps_object *object; /* a reference while there are decompressors, or somebody had it made */
	_Atomic bool caches;      /* the cache takes all of it */
	struct ps_frame_map map;
	uint64_t nodes_below; /* a size that was declared turned out wrong: as struct ps_view_row has it */
	size_t nsaved;        /* points that the index has */
	struct ps_list parts, decompressors;
	unsigned nwrites;          /* blocks on their way to the disk */
	struct ps_origin_get *refused;    /* for lack of memory; chained by work.request */
	struct ps_range bad_range; /* of what it holds, damaged; believed until then */
	uint64_t bad_until_ns;
	struct ps_error bad;

	enum ps_size_state sizing;
	struct ps_waiter *waiters;
	struct ps_sizing *headers;
};

struct ps_decompress {
	struct ps_store *store;
	struct ps_fill *fill;
	pthread_mutex_t lock; /* protects what follows */
	pthread_cond_t cond;  /* work, ready, stopping; monotonic clock */
	pthread_cond_t gone;  /* an inflater was freed */
	struct ps_list inflaters, work, ready;
	struct ps_packed_piece *free_pieces; /* kept as the spares are */
	unsigned nfree_pieces;
	struct ps_spare {
		uint8_t *data;
		size_t cap;
	} spares[4];           /* buffers that no decompressor has: what is fresh costs a fault a page */
	uint64_t spare_nbytes; /* of them; memory of the stage until it is wanted */
	struct ps_list writes; /* blocks that no thread has begun to write */
	struct ps_write *free_writes[PS_WRITES_MAX];
	unsigned nwrites;
	pthread_cond_t written; /* the last one of an inflater */
	uint64_t limit, used;   /* memory; limit 0: not taken from the budget yet */
	unsigned ndecompressors, max_decompressors, nwaiters;
	unsigned nwalks;
	bool wanting; /* somebody waits for a place or for memory: nobody idles meanwhile */
	bool stopping;
	uint64_t next_tick_ns;
	unsigned nthreads;
	pthread_t threads[8];
	_Atomic uint64_t plain_bytes, packed_bytes, errors;
};

/* stage.c: the lock is held ----------------------------------------------------------------------- */
void ps_decompressing_wake(struct ps_decompressing *inflater); /* its parts and plan are looked at by a thread */
void ps_decompressor_wake(struct ps_decompressor *decompressor);
/* One more decompressor or waiter: there is something to look after from time to time. */
void ps_decompress_watch(struct ps_decompress *inflate, unsigned *count);
/* Does anything wait for a thread? */
bool ps_decompress_is_due(const struct ps_decompress *inflate);
/* A share of the engine's, from now on: its buffers wait for decompressors, so these must not wait for buffers.
 */
void ps_decompress_take_memory(struct ps_decompress *inflate);
/* Memory of the stage, if need be that of spare buffers. False: not now. */
bool ps_decompress_reserve(struct ps_decompress *inflate, uint64_t nbytes);
void ps_decompress_release(struct ps_decompress *inflate, uint64_t nbytes);
/* A buffer of `cap` bytes, a multiple of PS_OUT_NBYTES, aligned for the disk, whose memory is reserved. NULL:
 * there is no spare one. */
uint8_t *ps_spare_take(struct ps_decompress *inflate, size_t cap);
/* What it took is released; `data` may be NULL. */
void ps_spare_put(struct ps_decompress *inflate, uint8_t *data, size_t cap);
/* Those of more than `keep` bytes, pieces among them. */
void ps_spares_drop(struct ps_decompress *inflate, size_t keep);
/* Somebody (`decompressor`; NULL: one that is still to be made) has found none, or no place. Unpackers of less
 * use end soon; whoever ends wakes all. */
void ps_decompress_make_room(struct ps_decompress *inflate, const struct ps_decompressor *decompressor);
void ps_decompress_wake_all(struct ps_decompress *inflate); /* room or a place came free */

/* decompressing_origin.c: the lock is held ---------------------------------------------------------------------- */
void ps_decompressing_ref(struct ps_decompressing *inflater);
void ps_decompressing_unref(struct ps_decompressing *inflater); /* may drop the lock for a while */
/* The object, with a reference, or NULL. */
struct ps_object *ps_decompressing_hold(struct ps_decompressing *inflater);
/* What is known now goes to the index; drops the lock for it. */
void ps_decompressing_save(struct ps_decompressing *inflater);
/* The same, but that the size has to be found out again. */
void ps_decompressing_save_disproved(struct ps_decompressing *inflater);

/* A get of its base has ended: what came of it tells that its credentials may read the shard. The lock is not held. */
void ps_decompressing_proved(struct ps_decompressing *inflater, const struct ps_origin_get *get);

/* decompressing_origin.c: the lock is held ------------------------------------------------------------------ */
/* The first bytes at or after `from` of the part that are not there. False: none. */
bool ps_part_gap(const struct ps_part *part, uint64_t from, struct ps_range *ret);
/* Copies [from, end) of the file, as far as the part wants and lacks it. True: something came. */
bool ps_part_give(struct ps_part *part, uint64_t from, uint64_t end, const uint8_t *data);
/* Fails the parts that lack something of [from, end). */
void ps_parts_fail(struct ps_decompressing *inflater, uint64_t from, uint64_t end, const struct ps_error *err);
/* Tells those who asked what has become of their gets; drops the lock meanwhile. */
void ps_parts_settle(struct ps_decompressing *inflater);

/* decompressor.c --------------------------------------------------------------------------------- */
/* The lock is held. NULL: no room or no memory now. Beginning at a frame. */
struct ps_decompressor *ps_decompressor_new(
        struct ps_decompressing *inflater, struct ps_frame_point from, uint64_t packed_end, uint64_t end);
/* Not held; the decompressor is RUNNING. */
void ps_decompressor_run(struct ps_decompressor *decompressor);
/* The lock is held in those below: ends it soon, without a word to anybody. */
void ps_decompressor_kill(struct ps_decompressor *decompressor);
/* Memory beside its window. False: not now, or it has enough of it. */
bool ps_decompressor_reserve(struct ps_decompressor *decompressor, uint64_t nbytes);
/* Frees those that have ended and whose pieces are back. The lock is held, and may be dropped; so is a
 * reference. */
void ps_decompressors_reap(struct ps_decompressing *inflater);

/* input.c ----------------------------------------------------------------------------------- */
/* The lock is held in all.
 * What can be decoded next; 0: nothing yet. */
size_t ps_input_peek(struct ps_decompressor *decompressor, const uint8_t **ret);
void ps_input_consume(struct ps_decompressor *decompressor, size_t nbytes);
void ps_input_again(struct ps_decompressor *decompressor); /* after a failure: from `at` on */
void ps_input_cancel(struct ps_decompressor *decompressor);
void ps_input_fini(struct ps_decompressor *decompressor); /* nothing is pending */

/* output.c: the decompressor's thread, lock not held ------------------------------------------------- */
/* Hands out [.., safe), to whoever waits for it. */
void ps_out_deliver(struct ps_decompressor *decompressor);
/* Writes what nobody took, up to the last whole chunk (all of it at the end of the shard), and makes room. */
int ps_out_flush(struct ps_decompressor *decompressor, bool all);
/* Room for a frame of so many bytes beside what is there. */
int ps_out_grow(struct ps_decompressor *decompressor, uint64_t nbytes) PS_MUST_USE;

/* output.c ----------------------------------------------------------------------------------- */
/* Writes this one of inflate->writes. The lock is held, and dropped meanwhile. */
void ps_write_run(struct ps_decompress *inflate, struct ps_list *link);
/* Until what was put off is written. Lock not held. */
void ps_writes_wait(struct ps_decompressing *inflater);
void ps_writes_fini(struct ps_decompress *inflate);

/* size.c ------------------------------------------------------------------------------------ */
/* A decompressor that finds out the size has come to the end. Lock not held. */
int ps_size_found(struct ps_decompressor *decompressor) PS_MUST_USE;
/* Answers all who wait for the size; errnum 0: inflater->size. The lock is held, and dropped meanwhile. */
void ps_size_answer(struct ps_decompressing *inflater, int errnum, const char *text);
/* Waiters whose time is up. The lock is held, and dropped meanwhile. */
void ps_size_expire(struct ps_decompress *inflate, uint64_t now_ns);
/* Goes on with it, if that is possible now. The lock is held, and dropped meanwhile. */
void ps_size_step(struct ps_decompressing *inflater);

/* size.c: the lock is held ----------------------------------------------------------------- */
void ps_headers_cancel(struct ps_decompressing *inflater);
void ps_headers_free(struct ps_decompressing *inflater); /* but what is at the origin */

#endif
