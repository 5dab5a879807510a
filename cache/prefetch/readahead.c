#include "prefetch/prefetch.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/size.h"
#include "fetch/fill.h"

#define WINDOW_FIRST (4 * PS_MIB)
/* The window is at most this many times what the stream has read: a program that reads a part of a file costs
 * at most 8 times that part. The first MiB at the file's beginning counts as read. */
#define AHEAD_A_READ 7
#define READ_FIRST PS_MIB
/* The first window of a stream that began inside the file: smaller, because two reads in a row may be a
 * single record. */
#define WINDOW_MIDDLE (1 * PS_MIB)
#define WINDOW_MAX (512 * PS_MIB)
/* A read belongs to a stream even if it begins this far before the expected offset: the kernel's own
 * read-ahead issues reads in parallel, so they come out of order. */
#define BEHIND (2 * PS_MIB)
#define AHEAD_MIN (1 * PS_MIB)
/* how near a read must be to a candidate, in a file that is read at random */
#define NEAR_RANDOM (128 * PS_KIB)
/* Of a whole file that scattered readers want, at a time: what is fetched for nothing once they stop. */
#define WHOLE_STEP_CHUNKS (64 * PS_BLOCK_CHUNKS)

/* Limits of `strangers`, which a read near no stream raises, and a read of a proven stream lowers. From
 * RANDOM_FROM on, the file counts as read at random. Even such a file has short sequences: the kernel turns
 * one record of a mapped file into a few sequential reads. */
#define STRANGERS_MAX 16
#define RANDOM_FROM 4
/* In a file that is read at random, a candidate becomes a stream after this many sequential bytes. A stream
 * is proven after RUN_PROVES bytes. */
#define RUN_RANDOM (512 * PS_KIB)
#define RUN_PROVES (1 * PS_MIB)

struct stream {
	struct ps_demand demand; /* the demanded blocks that are not requested yet */
	uint64_t next;           /* offset where the next read is expected; UINT64_MAX: unused */
	uint64_t window;         /* bytes; 0: a candidate */
	uint64_t demanded;       /* blocks below it have been demanded */
	uint64_t used;           /* `clock` at the last read */
	uint64_t start;          /* offset of its first read */
	uint64_t nread;          /* bytes by which its reads have gone forward */
};

struct ps_readahead {
	struct ps_fill_file *file;
	pthread_mutex_t lock; /* protects what follows */
	uint64_t clock;
	unsigned strangers;
	struct stream streams[PS_STREAMS];
	/* The whole file, once ps_readahead_whole() was called: demanded in steps, as long as its readers read. */
	struct ps_demand rest;
	uint64_t rest_demanded; /* chunks below it have been demanded */
	bool whole, at_once;
};

static void *readahead_new(struct ps_fill_file *file)
{
	struct ps_readahead *ra = calloc(1, sizeof(*ra));

	if (!ra)
		return NULL;
	ra->file = file;
	pthread_mutex_init(&ra->lock, NULL);
	for (int i = 0; i < PS_STREAMS; i++) {
		ra->streams[i].next = UINT64_MAX;
		ps_demand_init(&ra->streams[i].demand, file, PS_DEMAND_AHEAD);
	}
	ps_demand_init(&ra->rest, file, PS_DEMAND_NEXT);
	return ra;
}

int ps_readahead_get(struct ps_fill_file *file, struct ps_readahead **ret)
{
	void *ra;
	int rc = ps_fill_file_share(file, readahead_new, &ra);

	if (rc == 0)
		*ret = ra;
	return rc;
}

void ps_readahead_put(struct ps_readahead *ra)
{
	if (!ps_fill_file_unshare(ra->file))
		return;
	for (int i = 0; i < PS_STREAMS; i++)
		ps_demand_cancel(&ra->streams[i].demand);
	ps_demand_cancel(&ra->rest);
	pthread_mutex_destroy(&ra->lock);
	free(ra);
}

/* The functions below need ra->lock held ----------------------------------------------------------------- */

static bool is_random(const struct ps_readahead *ra)
{
	return ra->strangers >= RANDOM_FROM;
}

/* True if a read is near enough to the stream's expected offset. */
static bool belongs(const struct ps_readahead *ra, const struct stream *s, uint64_t offset)
{
	uint64_t behind = BEHIND, ahead = PS_MAX(s->window / 2, AHEAD_MIN);

	if (!s->window && is_random(ra))
		behind = ahead = NEAR_RANDOM;
	return s->next != UINT64_MAX && offset + behind >= s->next && offset <= s->next + ahead;
}

/* The nearest stream, as streams of several readers may be close together. */
static struct stream *find_stream(struct ps_readahead *ra, uint64_t offset)
{
	struct stream *best = NULL;
	uint64_t best_distance = UINT64_MAX;

	for (int i = 0; i < PS_STREAMS; i++) {
		struct stream *s = &ra->streams[i];
		uint64_t distance = offset > s->next ? offset - s->next : s->next - offset;

		if (distance < best_distance && belongs(ra, s, offset)) {
			best = s;
			best_distance = distance;
		}
	}
	return best;
}

static struct stream *oldest_stream(struct ps_readahead *ra)
{
	struct stream *oldest = &ra->streams[0];

	for (int i = 0; i < PS_STREAMS; i++) {
		if (ra->streams[i].next == UINT64_MAX)
			return &ra->streams[i];
		if (ra->streams[i].used < oldest->used)
			oldest = &ra->streams[i];
	}
	ps_demand_cancel(&oldest->demand);
	return oldest;
}

/* The streams of a file share half of the memory budget, and each gets at most a quarter of the budget;
 * demand reads have a reserve of their own. A larger window does not help a single stream: touching its fresh
 * memory would delay the first reads by more than the round trips of a far link. Streams without a read among
 * the last 4 * PS_STREAMS do not count. */
static uint64_t window_max(const struct ps_readahead *ra)
{
	uint64_t memory = ps_fill_memory_bytes(ps_fill_file_engine(ra->file));
	unsigned live = 0;

	for (int i = 0; i < PS_STREAMS; i++)
		live += ra->streams[i].window && ra->clock - ra->streams[i].used < 4 * PS_STREAMS;
	uint64_t share = PS_MIN(memory / 4, memory / 2 / PS_MAX(live, 1u));
	return PS_MAX(PS_MIN(share, WINDOW_MAX / PS_MAX(live, 1u)), WINDOW_FIRST);
}

static struct stream *begin_stream(struct ps_readahead *ra, uint64_t offset, uint64_t nbytes)
{
	struct stream *s = oldest_stream(ra);

	s->window = offset == 0 && !is_random(ra) ? WINDOW_FIRST : 0;
	s->next = offset + nbytes;
	s->demanded = 0;
	s->start = offset;
	s->nread = nbytes;
	if (offset)
		ra->strangers = PS_MIN(ra->strangers + 1, STRANGERS_MAX);
	return s;
}

static void go_on(struct ps_readahead *ra, struct stream *s, uint64_t offset, uint64_t end)
{
	if (end <= s->next)
		return;
	s->nread += end - PS_MAX(s->next, offset);
	s->next = end;
	if (!s->window && (!is_random(ra) || end - s->start >= RUN_RANDOM))
		s->window = WINDOW_MIDDLE;
	if (end - s->start >= RUN_PROVES)
		ra->strangers -= ra->strangers > 0;
}

/* The stream that a read of [offset, offset + nbytes) belongs to; a new one if none fits. */
static struct stream *saw(struct ps_readahead *ra, uint64_t offset, uint64_t nbytes)
{
	struct stream *s = find_stream(ra, offset);

	if (s)
		go_on(ra, s, offset, offset + nbytes);
	else
		s = begin_stream(ra, offset, nbytes);
	s->used = ++ra->clock;
	return s;
}

/* A reader that waits gets a larger window. From a far origin it gets all that it has earned: a window that
 * doubles would take a round trip for each step. */
static uint64_t window_next(const struct ps_readahead *ra, const struct stream *s, bool waited)
{
	/* The largest window that the stream may have by what it has read. */
	uint64_t nread = s->start == 0 ? PS_MAX(s->nread, READ_FIRST) : s->nread;
	uint64_t earned = PS_MAX(AHEAD_A_READ * nread + (nread - s->nread), WINDOW_MIDDLE),
	         window = s->window;

	if (waited)
		window = ps_fill_is_far(ps_fill_file_engine(ra->file)) ? earned : 2 * window;
	return PS_MIN(PS_MIN(window, earned), window_max(ra));
}

/* Demands the next step of the whole file, once the one before was requested. True: ps_fill_pump() must start
 * it. */
static bool go_whole(struct ps_readahead *ra)
{
	uint64_t nblocks = ps_object_nblocks(ps_fill_file_object(ra->file)), from = ra->rest_demanded;

	if (!ra->whole || from >= nblocks * PS_BLOCK_CHUNKS || ps_demand_is_queued(&ra->rest))
		return false;
	ra->rest_demanded = ra->at_once ? nblocks * PS_BLOCK_CHUNKS : from + WHOLE_STEP_CHUNKS;
	return ps_demand_extend(&ra->rest, from, ra->rest_demanded, WHOLE_STEP_CHUNKS);
}

/* Demands the blocks that the stream's window newly covers. True: ps_fill_pump() must start them. */
static bool go(struct ps_readahead *ra, struct stream *s, bool waited)
{
	if (!s->window)
		return go_whole(ra);
	s->window = window_next(ra, s, waited);
	uint64_t from = (s->next + PS_BLOCK_SIZE - 1) / PS_BLOCK_SIZE;
	uint64_t target = (s->next + s->window) / PS_BLOCK_SIZE;
	uint64_t together = s->window / PS_CHUNK_SIZE; /* all connections together cover the window */
	uint64_t step = PS_MAX(ps_request_chunks(ra->file, PS_DEMAND_AHEAD, together) / PS_BLOCK_CHUNKS, 1u);

	/* Blocks are demanded in steps, so that requests are long; but at once if the reader has caught up.
	 * ra->lock is held over ps_demand_extend(): if another thread reused the stream for another offset
	 * in between, the demand would cover all blocks between the two offsets. */
	if (target <= s->demanded || (target - s->demanded < step && s->demanded > from))
		return false;
	from = PS_MAX(s->demanded, from);
	s->demanded = target;
	return from < target &&
	       ps_demand_extend(&s->demand, from * PS_BLOCK_CHUNKS, target * PS_BLOCK_CHUNKS, together);
}

/* The functions above need ra->lock held ----------------------------------------------------------------- */

unsigned ps_readahead_saw(
        struct ps_readahead *ra, uint64_t offset, uint64_t nbytes, enum ps_access *ret_access)
{
	PS_LOCK_SCOPE(&ra->lock);
	struct stream *s = saw(ra, offset, nbytes);

	*ret_access = s->window ? PS_ACCESS_STREAM : PS_ACCESS_RANDOM;
	return (unsigned)(s - ra->streams);
}

void ps_readahead_go(struct ps_readahead *ra, unsigned stream, bool waited)
{
	bool queued;
	{
		PS_LOCK_SCOPE(&ra->lock);
		queued = go(ra, &ra->streams[stream], waited);
	}
	if (queued)
		ps_fill_pump(ps_fill_file_engine(ra->file));
}

bool ps_readahead_hit(struct ps_readahead *ra, uint64_t offset, uint64_t nbytes)
{
	PS_LOCK_SCOPE(&ra->lock);
	return go(ra, saw(ra, offset, nbytes), false);
}

bool ps_readahead_is_whole(struct ps_readahead *ra)
{
	PS_LOCK_SCOPE(&ra->lock);
	return ra->whole;
}

void ps_readahead_whole(struct ps_readahead *ra, bool at_once)
{
	bool queued;
	{
		PS_LOCK_SCOPE(&ra->lock);
		ra->whole = true;
		ra->at_once = at_once;
		queued = go_whole(ra);
	}
	if (queued)
		ps_fill_pump(ps_fill_file_engine(ra->file));
}
