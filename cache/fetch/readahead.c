#include "fetch/readahead.h"

#include "base/size.h"

#define WINDOW_FIRST (4 * PS_MIB)
#define WINDOW_MAX (512 * PS_MIB)
/* The kernel's own read-ahead issues reads of one stream in parallel, so they come out of order; and a tar
 * reader skips members it does not want. Both are still the same stream. */
#define BEHIND (2 * PS_MIB)
#define AHEAD_MIN (1 * PS_MIB)
#define STEP_MIN 2 /* blocks of one request: shorter ones cost the origin and us more than they bring */

void ps_readahead_init(struct ps_readahead *ra, struct ps_fill_file *file)
{
	*ra = (struct ps_readahead){.file = file};
	pthread_mutex_init(&ra->lock, NULL);
	for (int i = 0; i < PS_STREAMS; i++) {
		ra->streams[i].next = UINT64_MAX;
		ps_want_init(&ra->streams[i].want, file, PS_WANT_AHEAD);
	}
}

void ps_readahead_fini(struct ps_readahead *ra)
{
	for (int i = 0; i < PS_STREAMS; i++)
		ps_want_cancel(&ra->streams[i].want);
	pthread_mutex_destroy(&ra->lock);
}

static struct ps_stream *find_stream(struct ps_readahead *ra, uint64_t offset)
{
	for (int i = 0; i < PS_STREAMS; i++) {
		struct ps_stream *s = &ra->streams[i];
		uint64_t ahead = s->window / 2 > AHEAD_MIN ? s->window / 2 : AHEAD_MIN;

		if (s->next != UINT64_MAX && offset + BEHIND >= s->next && offset <= s->next + ahead)
			return s;
	}
	return NULL;
}

static struct ps_stream *oldest_stream(struct ps_readahead *ra)
{
	struct ps_stream *oldest = &ra->streams[0];

	for (int i = 0; i < PS_STREAMS; i++) {
		if (ra->streams[i].next == UINT64_MAX)
			return &ra->streams[i];
		if (ra->streams[i].used < oldest->used)
			oldest = &ra->streams[i];
	}
	ps_want_cancel(&oldest->want);
	return oldest;
}

/* Half of the budget a stream: several streams take turns, and demand keeps its reserve anyway. */
static uint64_t window_max(const struct ps_readahead *ra)
{
	uint64_t share = ps_budget_limit_bytes(ps_fill_budget(ps_fill_file_engine(ra->file))) / 2;

	return share < WINDOW_MAX ? share : WINDOW_MAX;
}

/* The stream that the read belongs to, moved on. The lock is held. */
static struct ps_stream *advance(struct ps_readahead *ra, uint64_t offset, uint64_t nbytes, bool waited)
{
	struct ps_stream *s = find_stream(ra, offset);

	if (!s) {
		s = oldest_stream(ra);
		s->next = offset + nbytes;
		/* Who opens a file and reads its head mostly goes on; elsewhere one read proves nothing. */
		s->window = offset == 0 ? WINDOW_FIRST : 0;
		s->wanted = 0;
	} else if (offset + nbytes > s->next) {
		s->next = offset + nbytes;
		if (!s->window)
			s->window = WINDOW_FIRST;
		else if (waited)
			s->window *= 2;
	}
	s->used = ++ra->clock;
	s->window = PS_MIN(s->window, window_max(ra));
	return s;
}

enum ps_access ps_readahead_access(struct ps_readahead *ra, uint64_t offset)
{
	PS_LOCK_SCOPE(&ra->lock);
	return offset == 0 || find_stream(ra, offset) ? PS_ACCESS_STREAM : PS_ACCESS_RANDOM;
}

void ps_readahead_saw(struct ps_readahead *ra, uint64_t offset, uint64_t nbytes, bool waited)
{
	struct ps_fill *fill = ps_fill_file_engine(ra->file);
	bool queued = false;
	{
		PS_LOCK_SCOPE(&ra->lock);
		struct ps_stream *s = advance(ra, offset, nbytes, waited);
		uint64_t from = (s->next + PS_BLOCK_SIZE - 1) / PS_BLOCK_SIZE;
		uint64_t target = (s->next + s->window) / PS_BLOCK_SIZE;
		/* So long that the connections there are cover the window. */
		uint64_t step = PS_MAX(s->window / PS_BLOCK_SIZE / ps_fill_connections(fill), STEP_MIN);

		/* In steps, so that requests are long; but at once when the reader has caught up. With the
		 * lock held: the stream given to another place meanwhile, the want would reach from there to
		 * here. */
		if (s->window && target > s->wanted && (target - s->wanted >= step || s->wanted <= from)) {
			from = PS_MAX(s->wanted, from);
			s->wanted = target;
			queued = from < target && ps_want_extend(&s->want, from, target, (unsigned)step);
		}
	}
	if (queued)
		ps_fill_pump(fill);
}
