#include "config.h"

#include "pipeline/pipeline.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>

/* Blocks queued for a lane, with the one that rows are taken from. Those that are not shuffled are small. */
#define AHEAD_SHUFFLED 2
#define AHEAD_PLAIN 8

#define UNIT_ROWS 64             /* most rows claimed at once ... */
#define UNIT_NBYTES (64UL << 10) /* ... while they are small: 50 to 100 us of work */

enum {
	STAGE_READ,
	STAGE_DECODE,
	STAGE_CONSUMER,
};

struct ps_pipeline {
	struct ps_pipeline_options o;
	struct ps_budget window;
	struct ps_lane_source source;
	atomic_bool stop; /* also read without the lock, by streams */
	int wake_fd;      /* readable once stop is set */
	pthread_t *threads;
	uint32_t nthreads;

	struct ps_position position; /* the consumer's: behind what was delivered */

	pthread_mutex_t lock; /* all below */
	pthread_cond_t work;  /* workers: a block was queued, a batch became free, an epoch was delivered */
	pthread_cond_t room;  /* readers: a lane's queue became shorter */
	pthread_cond_t ready; /* the consumer: a batch is finished, an epoch has ended, something failed */
	struct ps_lane *lanes;
	uint32_t nlanes;
	uint32_t ahead; /* most blocks queued for a lane */
	struct ps_turns turns;
	struct penstock_batch *batches;
	struct penstock_batch *filling; /* rows are claimed in it; NULL: none yet */
	uint64_t claim_epoch;           /* of the rows claimed next */
	uint64_t claim_seq;             /* of the next batch to be filled */
	uint64_t epoch_seq;             /* of the first batch of claim_epoch */
	struct {
		bool known;
		uint64_t seq; /* behind the epoch's last batch */
	} ends[2];            /* of the epochs that were claimed but not delivered, by epoch & 1 */
	uint64_t deliver_epoch, deliver_seq;
	uint64_t first_seq; /* of deliver_epoch */
	uint32_t nheld;
	int failed;
	struct ps_load_error why; /* of failed */
	struct ps_stage stages[PENSTOCK_NSTAGES];
	struct ps_stream_meter meter;
	uint64_t reread;
};

/* -- The lock must be held below this line ------------------------------------------------------------ */

static void fail_locked(struct ps_pipeline *p, int r, const struct ps_load_error *why)
{
	if (!p->failed) {
		p->failed = r;
		p->why = *why;
	}
	pthread_cond_broadcast(&p->ready);
	pthread_cond_broadcast(&p->work);
}

/* The lane whose next block is needed first, or NULL if all have enough. In a shuffled order the second block
 * is read once the first is half used: earlier would hold twice the window. */
static struct ps_lane *lane_choose(struct ps_pipeline *p)
{
	uint32_t half = ps_order_block_len(p->o.order) / 2;

	for (uint32_t queued = 0; queued < p->ahead; queued++) {
		for (uint32_t i = 0; i < p->nlanes; i++) {
			struct ps_lane *lane = &p->lanes[(p->turns.at + i) % p->nlanes];

			if (lane->busy || lane->ended || lane->nqueued != queued)
				continue;
			if (queued == 0 || p->ahead > AHEAD_SHUFFLED ||
			        lane->head->n - lane->head->at <= half)
				return lane;
		}
	}
	return NULL;
}

static void block_push(struct ps_lane *lane, struct ps_block *block)
{
	if (lane->tail)
		lane->tail->next = block;
	else
		lane->head = block;
	lane->tail = block;
	lane->nqueued++;
}

static void block_pop(struct ps_pipeline *p, struct ps_lane *lane)
{
	struct ps_block *block = lane->head;

	lane->head = block->next;
	if (!lane->head)
		lane->tail = NULL;
	lane->nqueued--;
	ps_block_free(block);
	pthread_cond_signal(&p->room);
}

static struct penstock_batch *batch_free_find(struct ps_pipeline *p)
{
	for (uint32_t i = 0; i < p->o.depth; i++)
		if (p->batches[i].state == PS_BATCH_FREE)
			return &p->batches[i];
	return NULL;
}

static struct penstock_batch *batch_open(struct ps_pipeline *p)
{
	struct penstock_batch *b = batch_free_find(p);

	if (!b)
		return NULL;
	b->state = PS_BATCH_FILLING;
	b->epoch = p->claim_epoch;
	b->index = p->claim_seq - p->epoch_seq;
	b->seq = p->claim_seq++;
	p->filling = b;
	return b;
}

/* All lanes have ended: closes the batch that is being filled, whose rows may all be decoded already. */
static void epoch_close(struct ps_pipeline *p)
{
	struct penstock_batch *b = p->filling;

	if (b) {
		b->closed = true;
		b->pad = p->o.end == PENSTOCK_END_PAD;
		b->drop = p->o.end == PENSTOCK_END_DROP_LAST;
		if (b->drop)
			p->claim_seq--; /* it was the last to get a number */
		p->filling = NULL;
	}
	p->ends[p->claim_epoch & 1].known = true;
	p->ends[p->claim_epoch & 1].seq = p->claim_seq;
	p->claim_epoch++;
	p->epoch_seq = p->claim_seq;
	ps_turns_reset(&p->turns);
	pthread_cond_signal(&p->ready);
}

struct unit {
	struct penstock_batch *batch;
	uint32_t first, n;
};

enum claim {
	CLAIMED,
	NO_INPUT,
	NO_ROOM,
};

/* Takes the sample whose turn it is for the next row. False if the epoch ended with it. */
static bool row_claim(struct ps_pipeline *p, struct unit *u, uint64_t *nbytes)
{
	struct ps_lane *lane = &p->lanes[p->turns.at];
	struct ps_block *block = lane->head;
	struct penstock_batch *b = u->batch;
	struct ps_sample *s = block->samples[block->at++];
	bool last = block->last;

	*nbytes += s->wanted_nbytes;
	b->rows[b->nrows] = (struct ps_row){.sample = s, .lane = p->turns.at, .where = block->where};
	b->rows[b->nrows++].where.taken = block->at;
	u->n++;
	if (b->nrows == b->cap) {
		b->closed = true;
		p->filling = NULL;
	}
	if (block->at < block->n) {
		if (lane->nqueued < p->ahead)
			pthread_cond_signal(&p->room);
		ps_turns_advance(&p->turns);
		return true;
	}
	block_pop(p, lane);
	if (!last) {
		ps_turns_advance(&p->turns);
		return true;
	}
	ps_turns_finish(&p->turns);
	if (p->turns.alive > 0)
		return true;
	epoch_close(p);
	return false;
}

/* Passes over lanes that ended without another sample. CLAIMED: a unit without rows, only to finish its
 * batch. */
static enum claim lanes_pass(struct ps_pipeline *p, struct unit *u)
{
	for (;;) {
		struct ps_lane *lane = &p->lanes[p->turns.at];
		struct penstock_batch *b = p->filling;

		if (p->failed || p->claim_epoch == p->o.end_epoch)
			return NO_INPUT;
		/* The end of the epoch before the last one was not delivered. */
		if (p->ends[p->claim_epoch & 1].known)
			return NO_ROOM;
		if (!lane->head)
			return NO_INPUT;
		if (lane->head->at < lane->head->n)
			return b || batch_open(p) ? CLAIMED : NO_ROOM;
		assert(lane->head->last);
		block_pop(p, lane);
		ps_turns_finish(&p->turns);
		if (p->turns.alive > 0)
			continue;
		epoch_close(p);
		if (b && b->ndone == b->nrows) {
			*u = (struct unit){.batch = b};
			return CLAIMED;
		}
	}
}

/* Claims the next rows of the epoch. */
static enum claim unit_claim(struct ps_pipeline *p, struct unit *u)
{
	uint64_t nbytes = 0;
	enum claim c;

	u->batch = NULL;
	c = lanes_pass(p, u);
	if (c != CLAIMED || u->batch)
		return c;
	*u = (struct unit){.batch = p->filling, .first = p->filling->nrows};
	while (row_claim(p, u, &nbytes) && !u->batch->closed && u->n < UNIT_ROWS && nbytes < UNIT_NBYTES) {
		struct ps_lane *lane = &p->lanes[p->turns.at];

		if (!lane->head || lane->head->at == lane->head->n)
			break;
	}
	return CLAIMED;
}

static void batch_give(struct ps_pipeline *p, struct penstock_batch *b)
{
	b->state = PS_BATCH_FREE;
	pthread_cond_broadcast(&p->work);
}

/* The lock is let go while the batch is finished. */
static void batch_finish(struct ps_pipeline *p, struct penstock_batch *b)
{
	bool drop = b->drop;

	pthread_mutex_unlock(&p->lock);
	if (drop)
		ps_batch_clear(b);
	else
		ps_batch_finish(b);
	pthread_mutex_lock(&p->lock);
	if (drop) {
		batch_give(p, b);
		return;
	}
	b->state = PS_BATCH_FINISHED;
	if (b->seq == p->deliver_seq)
		pthread_cond_signal(&p->ready);
}

/* -- Threads ------------------------------------------------------------------------------------------ */

static void *worker_main(void *arg)
{
	struct ps_pipeline *p = arg;
	struct ps_batch_worker w;
	struct ps_load_error err = {0};
	int r = ps_batch_worker_init(&w, p->o.plan, p->o.seed, &err);

	PS_LOCK_SCOPE(&p->lock);
	if (r < 0) {
		fail_locked(p, r, &err);
		return NULL;
	}
	while (!atomic_load(&p->stop)) {
		struct unit u;
		enum claim c = unit_claim(p, &u);

		if (c != CLAIMED) {
			ps_stage_wait(&p->stages[STAGE_DECODE], c == NO_ROOM ? PS_WAIT_OUTPUT : PS_WAIT_INPUT,
			        &p->work, &p->lock);
			continue;
		}
		pthread_mutex_unlock(&p->lock);
		for (uint32_t i = 0; i < u.n; i++)
			ps_batch_decode(u.batch, u.first + i, &w);
		pthread_mutex_lock(&p->lock);
		u.batch->ndone += u.n;
		if (u.batch->closed && u.batch->ndone == u.batch->nrows)
			batch_finish(p, u.batch);
		p->reread += w.reread;
		w.reread = 0;
	}
	ps_batch_worker_fini(&w);
	return NULL;
}

/* Fills one block of a lane; the lock is let go meanwhile. */
static void lane_serve(struct ps_pipeline *p, struct ps_lane *lane)
{
	struct ps_load_error err = {0};
	struct ps_block *block = NULL;
	int r;

	lane->busy = true;
	pthread_mutex_unlock(&p->lock);
	r = ps_lane_fill(lane, &p->source, &block, &err);
	pthread_mutex_lock(&p->lock);
	lane->busy = false;
	p->meter.nbytes += lane->meter.nbytes;
	p->stages[STAGE_READ].ns[PS_WAIT_INPUT] += lane->meter.wait_ns;
	lane->meter = (struct ps_stream_meter){0};
	if (r == 0) {
		lane->ended = lane->epoch == p->o.end_epoch;
		block_push(lane, block);
		if (lane == &p->lanes[p->turns.at] && lane->nqueued == 1)
			pthread_cond_broadcast(&p->work);
	} else if (r != -ECANCELED) {
		lane->ended = true;
		fail_locked(p, r, &err);
	}
}

static void *reader_main(void *arg)
{
	struct ps_pipeline *p = arg;

	PS_LOCK_SCOPE(&p->lock);
	while (!atomic_load(&p->stop)) {
		struct ps_lane *lane = lane_choose(p);

		if (lane)
			lane_serve(p, lane);
		else
			ps_stage_wait(&p->stages[STAGE_READ], PS_WAIT_OUTPUT, &p->room, &p->lock);
	}
	return NULL;
}

/* Stops and joins all threads. */
static void threads_stop(struct ps_pipeline *p)
{
	pthread_mutex_lock(&p->lock);
	atomic_store(&p->stop, true);
	if (p->wake_fd >= 0)
		(void)eventfd_write(p->wake_fd, 1);
	pthread_cond_broadcast(&p->work);
	pthread_cond_broadcast(&p->room);
	pthread_mutex_unlock(&p->lock);
	for (uint32_t i = 0; i < p->nthreads; i++)
		pthread_join(p->threads[i], NULL);
	p->nthreads = 0;
	PS_LOCK_SCOPE(&p->lock);
	for (int i = STAGE_READ; i <= STAGE_DECODE; i++) {
		p->stages[i].before_ns = ps_stage_total(&p->stages[i], ps_mono_ns());
		p->stages[i].nthreads = 0;
	}
}

static int thread_start(struct ps_pipeline *p, int stage, const char *name, void *(*run)(void *))
{
	struct ps_stage *s = &p->stages[stage];
	char full[16];
	int r = pthread_create(&p->threads[p->nthreads], NULL, run, p);

	if (r != 0)
		return -r;
	snprintf(full, sizeof(full), "ps-%s-%u", name, s->nthreads);
	pthread_setname_np(p->threads[p->nthreads], full);
	PS_LOCK_SCOPE(&p->lock);
	p->nthreads++;
	s->nthreads++;
	return 0;
}

/* Starts the threads with all signals blocked: they belong to the program. */
static int threads_start(struct ps_pipeline *p, struct ps_load_error *err)
{
	sigset_t all, old;
	eventfd_t count;
	int r = 0;

	atomic_store(&p->stop, false);
	(void)eventfd_read(p->wake_fd, &count);
	pthread_mutex_lock(&p->lock); /* others may ask for statistics */
	for (int i = STAGE_READ; i <= STAGE_DECODE; i++)
		p->stages[i].start_ns = ps_mono_ns();
	pthread_mutex_unlock(&p->lock);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	for (uint32_t i = 0; i < p->o.readers && r == 0; i++)
		r = thread_start(p, STAGE_READ, "read", reader_main);
	for (uint32_t i = 0; i < p->o.threads && r == 0; i++)
		r = thread_start(p, STAGE_DECODE, "decode", worker_main);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r == 0)
		return 0;
	threads_stop(p);
	return ps_load_error_set(
	        err, -r, "cannot start %u threads: %s", p->o.readers + p->o.threads, strerror(-r));
}

/* -- The consumer's side ------------------------------------------------------------------------------ */

/* Puts everything at p->position; no thread of ours runs, but held batches may be released meanwhile. They
 * stay as they are. */
static void rewind_all(struct ps_pipeline *p)
{
	uint64_t epoch = p->position.epoch;

	for (uint32_t i = 0; i < p->nlanes; i++) {
		ps_lane_reset(&p->lanes[i], i, epoch, &p->position.lanes[i]);
		p->lanes[i].ended = epoch == p->o.end_epoch;
	}
	PS_LOCK_SCOPE(&p->lock);
	for (uint32_t i = 0; i < p->o.depth; i++) {
		struct penstock_batch *b = &p->batches[i];

		if (b->state == PS_BATCH_HELD)
			continue;
		ps_batch_clear(b);
		b->state = PS_BATCH_FREE;
	}
	ps_turns_reset(&p->turns);
	p->turns.at = p->position.turn;
	p->filling = NULL;
	p->claim_epoch = p->deliver_epoch = epoch;
	p->claim_seq = p->deliver_seq = p->position.batches;
	p->epoch_seq = p->first_seq = 0;
	p->ends[0].known = p->ends[1].known = false;
	p->failed = 0;
}

static void position_set(struct ps_pipeline *p, const struct ps_position *at)
{
	ps_position_begin(&p->position, at->epoch);
	if (!at->lanes)
		return;
	p->position.batches = at->batches;
	p->position.turn = at->turn;
	memcpy(p->position.lanes, at->lanes, p->nlanes * sizeof(*at->lanes));
}

int ps_pipeline_new(const struct ps_pipeline_options *o, const struct ps_position *at,
        struct ps_pipeline **ret_pipeline, struct ps_load_error *err)
{
	struct ps_pipeline *p = calloc(1, sizeof(*p));
	int r = 0;

	if (!p)
		return ps_load_error_set(err, ENOMEM, "out of memory");
	p->o = *o;
	p->window.limit = o->window_nbytes;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->work, NULL);
	pthread_cond_init(&p->room, NULL);
	pthread_cond_init(&p->ready, NULL);
	p->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	p->nlanes = ps_order_nlanes(o->order);
	p->ahead = ps_order_shuffles(o->order) ? AHEAD_SHUFFLED : AHEAD_PLAIN;
	p->o.readers = PS_MIN(o->readers, p->nlanes);
	p->lanes = calloc(p->nlanes, sizeof(*p->lanes));
	p->batches = calloc(o->depth, sizeof(*p->batches));
	p->threads = calloc((size_t)o->readers + o->threads, sizeof(*p->threads));
	p->source = (struct ps_lane_source){.order = o->order,
	        .shards = o->shards,
	        .options = {.stream = {.buf_nbytes = o->buf_nbytes, .stop = &p->stop, .wake_fd = p->wake_fd},
	                .wants = ps_plan_wants,
	                .wants_ctx = o->plan,
	                .budget = &p->window,
	                .max_sample_nbytes = o->max_sample_nbytes}};
	p->stages[STAGE_CONSUMER] = (struct ps_stage){.nthreads = 1, .start_ns = ps_mono_ns()};
	if (p->wake_fd < 0)
		r = ps_load_error_set(err, errno, "cannot make an event descriptor: %s", strerror(errno));
	else if (!p->lanes || !p->batches || !p->threads || ps_turns_init(&p->turns, p->nlanes) < 0 ||
	         ps_position_init(&p->position, p->nlanes) < 0)
		r = ps_load_error_set(err, ENOMEM, "out of memory");
	for (uint32_t i = 0; i < o->depth && r == 0; i++) {
		r = ps_batch_init(&p->batches[i], o->plan, o->device, o->rows, err);
		p->batches[i].pipeline = p;
		p->batches[i].pid = getpid();
		p->batches[i].max_ragged_nbytes = o->max_ragged_nbytes;
		p->batches[i].budget = &p->window;
	}
	if (r == 0) {
		position_set(p, at);
		rewind_all(p);
		r = threads_start(p, err);
	}
	if (r < 0) {
		ps_pipeline_free(p);
		return r;
	}
	*ret_pipeline = p;
	return 0;
}

void ps_pipeline_free(struct ps_pipeline *p)
{
	if (!p)
		return;
	threads_stop(p);
	for (uint32_t i = 0; i < p->nlanes && p->lanes; i++)
		ps_lane_reset(&p->lanes[i], i, 0, NULL);
	for (uint32_t i = 0; i < p->o.depth && p->batches; i++)
		ps_batch_fini(&p->batches[i]);
	ps_turns_fini(&p->turns);
	ps_position_fini(&p->position);
	free(p->lanes);
	free(p->batches);
	free(p->threads);
	if (p->wake_fd >= 0)
		close(p->wake_fd);
	pthread_cond_destroy(&p->work);
	pthread_cond_destroy(&p->room);
	pthread_cond_destroy(&p->ready);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

void ps_pipeline_abandon(struct ps_pipeline *p)
{
	for (uint32_t i = 0; i < p->o.depth; i++)
		p->o.device->free(p->batches[i].mem, p->batches[i].mem_nbytes);
	close(p->wake_fd);
}

bool ps_pipeline_stands_at(struct ps_pipeline *p, uint64_t epoch)
{
	PS_LOCK_SCOPE(&p->lock);
	return !p->failed && p->deliver_epoch == epoch && p->deliver_seq == p->first_seq;
}

int ps_pipeline_restart(struct ps_pipeline *p, const struct ps_position *at, struct ps_load_error *err)
{
	threads_stop(p);
	position_set(p, at);
	rewind_all(p);
	return threads_start(p, err);
}

int ps_pipeline_next(struct ps_pipeline *p, struct penstock_batch **ret_batch, struct ps_load_error *err)
{
	PS_LOCK_SCOPE(&p->lock);
	if (p->nheld == p->o.depth)
		return ps_load_error_set(err, EBUSY,
		        "all %u batches are held: release one before asking for the next, or open with a "
		        "larger depth",
		        p->o.depth);
	for (;;) {
		if (p->failed) {
			if (err)
				*err = p->why;
			return p->failed;
		}
		if (p->deliver_epoch == p->o.end_epoch)
			return 0;
		if (p->ends[p->deliver_epoch & 1].known &&
		        p->ends[p->deliver_epoch & 1].seq == p->deliver_seq) {
			p->ends[p->deliver_epoch & 1].known = false;
			p->deliver_epoch++;
			p->first_seq = p->deliver_seq;
			ps_position_begin(&p->position, p->deliver_epoch);
			pthread_cond_broadcast(&p->work);
			return 0;
		}
		for (uint32_t i = 0; i < p->o.depth; i++) {
			struct penstock_batch *b = &p->batches[i];

			if (b->state != PS_BATCH_FINISHED || b->seq != p->deliver_seq)
				continue;
			b->state = PS_BATCH_HELD;
			p->deliver_seq++;
			p->nheld++;
			*ret_batch = b;
			return 1;
		}
		ps_stage_wait(&p->stages[STAGE_CONSUMER], PS_WAIT_INPUT, &p->ready, &p->lock);
	}
}

void ps_pipeline_delivered(struct ps_pipeline *p, const struct penstock_batch *b)
{
	for (uint32_t i = 0; i < b->nrows; i++)
		ps_position_take(&p->position, b->rows[i].lane, &b->rows[i].where);
	p->position.batches++;
}

const struct ps_position *ps_pipeline_position(const struct ps_pipeline *p)
{
	return &p->position;
}

void ps_pipeline_release(struct penstock_batch *b)
{
	struct ps_pipeline *p = b->pipeline;

	assert(b->state == PS_BATCH_HELD); /* not released twice */
	ps_batch_clear(b);
	PS_LOCK_SCOPE(&p->lock);
	p->nheld--;
	batch_give(p, b);
}

void ps_pipeline_stats(struct ps_pipeline *p, struct ps_pipeline_stats *ret_stats)
{
	uint64_t now;

	PS_LOCK_SCOPE(&p->lock);
	now = ps_mono_ns(); /* not before the lock: waits may begin until then */
	*ret_stats = (struct ps_pipeline_stats){.nbytes_read = p->meter.nbytes,
	        .reread = p->reread,
	        .readers = p->stages[STAGE_READ].nthreads,
	        .workers = p->stages[STAGE_DECODE].nthreads};
	for (int i = 0; i < PENSTOCK_NSTAGES; i++) {
		ret_stats->total_ns[i] = ps_stage_total(&p->stages[i], now);
		for (int w = 0; w < PS_NWAITS; w++)
			ret_stats->wait_ns[i][w] = ps_stage_waited(&p->stages[i], (enum ps_wait)w, now);
	}
}
