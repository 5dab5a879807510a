#include "config.h"

#include "pipeline/pipeline.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/range.h"
#include "batch/batch.h"
#include "device/device.h"
#include "pipeline/core.h"

#define KEEP_SLABS 256 /* unused slabs that are kept: 16 MiB */

/* The consumer's side ------------------------------------------------------------------------------------ */

/* Sets the turns from the number of delivered batches, and the lanes from the turns. */
static void rewind_known(struct ps_pipeline *p, struct ps_epoch *epoch)
{
	uint64_t begin = ps_steps_begin(&epoch->steps, p->position.batches);

	ps_turns_reset(&p->claim.turns, epoch->lengths, epoch->shares);
	ps_turns_skip(&p->claim.turns, epoch->begin + begin - p->claim.turns.position);
	for (uint32_t i = 0; i < p->nlanes; i++) {
		const struct ps_lane_position *at = &p->position.lanes[i];
		uint64_t from = ps_turns_before(&p->claim.turns, i);
		bool usable = at->k != PS_PLACE_UNKNOWN &&
		              ps_order_block_begin(p->o.order, epoch->number, at->block) <= from;

		ps_lane_reset(&p->lanes[i], p->o.order, i, epoch->number, from, usable ? at : NULL);
	}
}

/* Sets the lanes to their saved positions, and the turns to the next lane. Lanes that have ended are found
 * again by reading. */
static void rewind_unknown(struct ps_pipeline *p, struct ps_epoch *epoch)
{
	uint64_t rows = p->position.rows, round = 0;

	ps_turns_reset(&p->claim.turns, NULL, epoch->shares);
	for (uint32_t i = 0; i < p->nlanes; i++) {
		const struct ps_lane_position *at = &p->position.lanes[i];
		uint64_t from = ps_order_block_begin(p->o.order, epoch->number, at->block) + at->taken;

		ps_lane_reset(&p->lanes[i], p->o.order, i, epoch->number, from,
		        at->k != PS_PLACE_UNKNOWN ? at : NULL);
		/* the largest `from` is the current round of the lanes that have not ended, or one less */
		round = PS_MAX(round, from);
	}
	if (rows > 0)
		ps_turns_set_lane(&p->claim.turns, p->position.turn,
		        ps_epochs_options(p->o.epochs)->skip + rows, round);
}

/* Sets everything to p->position. None of the pipeline's threads runs, but the consumer may release held
 * batches meanwhile; they are not changed. */
static int rewind_all(struct ps_pipeline *p, struct ps_error *err)
{
	struct ps_epoch *epoch;
	int rc = ps_epochs_get(p->o.epochs, p->position.epoch, &epoch, err);

	if (rc < 0)
		return rc;
	if (epoch->known)
		rewind_known(p, epoch);
	else
		rewind_unknown(p, epoch);
	PS_LOCK_SCOPE(&p->lock);
	for (uint32_t i = 0; i < p->nbatches; i++) {
		struct penstock_batch *b = p->batches[i];

		if (b->state == PS_BATCH_HELD)
			continue;
		(void)!ps_batch_wait(b, NULL); /* a lost device fails again later */
		ps_batch_clear(b);
		b->state = PS_BATCH_FREE;
	}
	ps_epoch_unref(p->claim.info);
	p->claim.info = epoch;
	memset(p->skipped[epoch->number & 1], 0, p->nlanes * sizeof(*p->skipped[0]));
	p->run.asking = false;
	p->claim.filling = NULL;
	memset(p->claim.due.n, 0, 2 * p->nsets * sizeof(*p->claim.due.n));
	if (p->feed)
		ps_numbers_begin(p->feed, epoch->number, p->position.batches);
	for (uint32_t i = 0; i < p->nlanes && epoch->number != p->o.end_epoch; i++) {
		if (p->feed)
			/* with a feed, lanes cannot seek numbers that are not fed yet */
			p->lanes[i].next = p->lanes[i].from;
		ps_due_put(p, &p->lanes[i]);
	}
	p->claim.epoch = p->deliver.epoch = epoch->number;
	p->claim.seq = p->deliver.seq = p->position.batches;
	p->claim.first_seq = p->deliver.first_seq = 0;
	p->ends[0].known = p->ends[1].known = false;
	p->failed = 0;
	return 0;
}

static void position_set(struct ps_pipeline *p, const struct ps_position *at)
{
	if (at->known && !p->known) {
		ps_epochs_know(p->o.epochs);
		p->known = true;
	}
	ps_position_begin(&p->position, at->epoch);
	if (!at->lanes)
		return;
	p->position.batches = at->batches;
	p->position.rows = at->rows;
	p->position.turn = at->turn;
	memcpy(p->position.lanes, at->lanes, p->nlanes * sizeof(*at->lanes));
}

/* The source that lanes are read from. */
static struct ps_lane_source source_of(struct ps_pipeline *p)
{
	const struct ps_pipeline_options *o = &p->o;

	return (struct ps_lane_source){.order = o->order,
	        .epochs = o->epochs,
	        .indexes = o->indexes,
	        .select = o->select,
	        .shards = o->shards,
	        .nshards = o->nshards,
	        .files = &p->files,
	        .options = {.source = o->source,
	                .windows = o->windows,
	                .packing = o->packing,
	                .columns = o->columns,
	                .index_dir = o->index_dir,
	                .recover = true,
	                .stream = {.buf_nbytes = o->buf_nbytes,
	                        .stop = &p->stop,
	                        .wake_fd = p->wake_fd,
	                        .budget = &p->window},
	                .wants = ps_layout_wants,
	                .wants_ctx = o->layout,
	                .budget = &p->window,
	                .slabs = &p->slabs,
	                .sums = &p->sums,
	                .max_sample_nbytes = o->max_sample_nbytes}};
}

static void batch_free(struct penstock_batch *b)
{
	if (b)
		ps_batch_fini(b);
	free(b);
}

static int batch_add(struct ps_pipeline *p, struct ps_error *err)
{
	const struct ps_pipeline_options *o = &p->o;
	struct penstock_batch **batches, *b = calloc(1, sizeof(*b));
	int rc = b ? ps_batch_init(b, o->layout, o->device, o->rows, err) : ps_no_memory(err);

	if (rc == 0 && o->nvjpeg)
		rc = ps_decode_init(b, o->nvjpeg, err);
	if (rc == 0) {
		b->pipeline = p;
		b->pid = getpid();
		b->max_ragged_nbytes = o->max_ragged_nbytes;
		b->budget = &p->window;
		b->profile = o->profile;
		PS_LOCK_SCOPE(&p->lock);
		batches = reallocarray(p->batches, p->nbatches + 1, sizeof(*batches));
		if (batches) {
			p->batches = batches;
			p->batches[p->nbatches++] = b;
			pthread_cond_broadcast(&p->work);
			return 0;
		}
		rc = ps_no_memory(err);
	}
	batch_free(b);
	return rc;
}

int ps_pipeline_add_batch(struct ps_pipeline *p, uint64_t nbytes, struct ps_error *err)
{
	int rc = batch_add(p, err);

	if (rc == 0)
		atomic_fetch_add_explicit(&p->window.used, nbytes, memory_order_relaxed);
	return rc;
}

uint64_t ps_pipeline_held_nbytes(struct ps_pipeline *p)
{
	uint64_t most = 0;

	PS_LOCK_SCOPE(&p->lock);
	for (uint32_t i = 0; i < p->nbatches; i++)
		if (p->batches[i]->state == PS_BATCH_HELD)
			most = PS_MAX(most, (uint64_t)p->batches[i]->mem_nbytes);
	return most;
}

/* Makes all that depends on the order's lanes; -ENOMEM. */
static int lanes_make(struct ps_pipeline *p)
{
	struct ps_order *order = p->o.order;
	uint32_t rounds = PS_AHEAD_PLAIN_SAMPLES / ps_order_nactive(order) / ps_order_block_len(order);

	p->sets = ps_order_sets(order, &p->nsets);
	p->nlanes = ps_order_nlanes(order);
	p->ahead = ps_order_shuffles(order) ? PS_AHEAD_SHUFFLED
	                                    : PS_MIN(PS_MAX(rounds, 2u), (uint32_t)PS_AHEAD_PLAIN);
	p->lanes = calloc(p->nlanes, sizeof(*p->lanes));
	for (size_t i = 0; i < PS_ARRAY_LEN(p->skipped); i++)
		p->skipped[i] = calloc(p->nlanes, sizeof(*p->skipped[i]));
	p->claim.due.lanes = calloc((size_t)2 * p->nlanes, sizeof(*p->claim.due.lanes));
	p->claim.due.n = calloc((size_t)2 * p->nsets, sizeof(*p->claim.due.n));
	return p->lanes && p->skipped[0] && p->skipped[1] && p->claim.due.lanes && p->claim.due.n &&
	                       ps_turns_init(&p->claim.turns, p->sets, p->nsets) == 0 &&
	                       ps_position_init(&p->position, p->nlanes) == 0
	               ? 0
	               : -ENOMEM;
}

static void lanes_free(struct ps_pipeline *p)
{
	for (uint32_t i = 0; i < p->nlanes && p->lanes; i++)
		ps_lane_reset(&p->lanes[i], p->o.order, i, 0, 0, NULL);
	ps_turns_fini(&p->claim.turns);
	ps_position_fini(&p->position);
	free(ps_steal_ptr(&p->claim.due.lanes));
	free(ps_steal_ptr(&p->claim.due.n));
	free(ps_steal_ptr(&p->lanes));
	for (size_t i = 0; i < PS_ARRAY_LEN(p->skipped); i++)
		free(ps_steal_ptr(&p->skipped[i]));
}

/* Makes everything except threads and positions. On failure ps_pipeline_free() frees what was made. */
static int pipeline_init(struct ps_pipeline *p, const struct ps_pipeline_options *o, struct ps_error *err)
{
	int rc = 0;

	p->o = *o;
	p->offload = o->offload;
	p->window.limit = o->window_nbytes;
	p->window.parent = o->shared;
	ps_slab_pool_init(&p->slabs, KEEP_SLABS);
	ps_shard_sums_init(&p->sums);
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->work, NULL);
	pthread_cond_init(&p->room, NULL);
	pthread_cond_init(&p->unpark, NULL);
	pthread_cond_init(&p->left, NULL);
	ps_cond_init(&p->ready);
	ps_image_gate_init(&p->gate, o->image_nbytes);
	if (o->layout->transform_unit)
		ps_cost_init_calls(&p->cost, o->rows, o->depth, o->threads);
	else
		ps_cost_init(&p->cost);
	p->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	p->known = ps_epochs_options(o->epochs)->known;
	p->feed = ps_epochs_options(o->epochs)->numbers;
	if (p->feed && !ps_numbers_is_feed(p->feed))
		p->feed = NULL;
	p->files.most = PS_MAX(o->open_files, 1u);
	p->o.readers = PS_MIN(o->readers, ps_order_nlanes(o->order));
	p->tunes[PS_STAGE_READ] = (struct ps_tune){
	        .fixed = !o->tune_readers, .least = PS_MIN(4u, p->o.readers), .most = p->o.readers};
	p->tunes[PS_STAGE_DECODE] =
	        (struct ps_tune){.fixed = !o->tune_threads, .least = 1, .most = o->threads};
	p->claim.dealt = calloc(o->rows, sizeof(*p->claim.dealt));
	p->threads = calloc((size_t)o->readers + o->threads + 1, sizeof(*p->threads)); /* 1 for the copier */
	p->source = source_of(p);
	p->stages[PS_STAGE_CONSUMER] = (struct ps_stage){.nthreads = 1, .began_ns = ps_clock_mono_ns()};
	if (p->wake_fd < 0)
		return ps_error_set(err, errno, "cannot make an event descriptor: %s", strerror(errno));
	if (!p->threads || !p->claim.dealt || lanes_make(p) < 0)
		return ps_no_memory(err);
	for (uint32_t i = 0; i < o->depth && rc == 0; i++)
		rc = batch_add(p, err);
	return rc;
}

int ps_pipeline_new(const struct ps_pipeline_options *o, const struct ps_position *at,
        struct ps_pipeline **ret_pipeline, struct ps_error *err)
{
	struct ps_pipeline *p = calloc(1, sizeof(*p));
	int rc;

	if (!p)
		return ps_no_memory(err);
	rc = pipeline_init(p, o, err);
	if (rc == 0) {
		position_set(p, at);
		rc = rewind_all(p, err);
	}
	if (rc == 0)
		rc = ps_threads_start(p, err);
	if (rc < 0) {
		ps_pipeline_free(p);
		return rc;
	}
	*ret_pipeline = p;
	return 0;
}

void ps_pipeline_free(struct ps_pipeline *p)
{
	if (!p)
		return;
	ps_threads_stop(p);
	lanes_free(p);
	for (uint32_t i = 0; i < p->nbatches; i++)
		batch_free(p->batches[i]);
	ps_epoch_unref(p->claim.info);
	free(p->batches);
	free(p->claim.dealt);
	free(p->threads);
	if (p->wake_fd >= 0)
		close(p->wake_fd);
	pthread_cond_destroy(&p->work);
	pthread_cond_destroy(&p->room);
	pthread_cond_destroy(&p->unpark);
	pthread_cond_destroy(&p->left);
	ps_image_gate_fini(&p->gate);
	pthread_cond_destroy(&p->ready);
	ps_slab_pool_fini(&p->slabs);
	ps_shard_sums_fini(&p->sums);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

void ps_pipeline_abandon(struct ps_pipeline *p)
{
	for (uint32_t i = 0; i < p->nbatches; i++)
		/* device drivers do not work after a fork */
		ps_host_free(p->batches[i]->mem, p->batches[i]->mem_nbytes);
	close(p->wake_fd);
}

bool ps_pipeline_stands_at(struct ps_pipeline *p, uint64_t epoch)
{
	PS_LOCK_SCOPE(&p->lock);
	return !p->failed && p->deliver.epoch == epoch && p->deliver.seq == p->deliver.first_seq &&
	       (!p->feed || (p->feed->fed == 0 && !p->feed->over));
}

void ps_pipeline_stop(struct ps_pipeline *p)
{
	ps_threads_stop(p);
}

int ps_pipeline_reorder(struct ps_pipeline *p, struct ps_order *order, struct ps_error *err)
{
	ps_epoch_unref(ps_steal_ptr(&p->claim.info)); /* of the order before */
	lanes_free(p);
	p->o.order = p->source.order = order;
	return lanes_make(p) < 0 ? ps_no_memory(err) : 0;
}

int ps_pipeline_restart(struct ps_pipeline *p, const struct ps_position *at, struct ps_error *err)
{
	int rc;

	ps_threads_stop(p);
	position_set(p, at);
	rc = rewind_all(p, err);
	return rc < 0 ? rc : ps_threads_start(p, err);
}

/* True if all batches of the epoch that is being delivered were delivered. */
static bool epoch_is_over(const struct ps_pipeline *p)
{
	return p->ends[p->deliver.epoch & 1].known && p->ends[p->deliver.epoch & 1].seq == p->deliver.seq;
}

/* The next batch to deliver, if it is finished; else NULL. Batch numbers continue over the ends of epochs;
 * an epoch's end is delivered before the next batch. */
static struct penstock_batch *batch_due(struct ps_pipeline *p)
{
	for (uint32_t i = 0; i < p->nbatches && !epoch_is_over(p); i++)
		if (p->batches[i]->state == PS_BATCH_FINISHED && p->batches[i]->seq == p->deliver.seq)
			return p->batches[i];
	return NULL;
}

/* True if no more batches may be fed in this epoch. */
static bool feed_is_full(const struct ps_pipeline *p)
{
	return p->feed->over || p->feed->fed >= ps_epochs_options(p->o.epochs)->steps;
}

/* True if all fed batches were delivered, and more may be fed. */
static bool feed_is_dry(const struct ps_pipeline *p)
{
	return p->feed && !feed_is_full(p) && p->deliver.seq - p->deliver.first_seq >= p->feed->fed;
}

static bool all_held(const struct ps_pipeline *p)
{
	return p->deliver.nheld == p->nbatches;
}

/* True if next() would not wait. */
static bool next_is_known(struct ps_pipeline *p)
{
	return p->failed || feed_is_dry(p) || all_held(p) || p->deliver.epoch == p->o.end_epoch ||
	       epoch_is_over(p) || batch_due(p);
}

/* Waits, and divides the wait among its causes. Decoding gets the share of the time in which workers were
 * busy meanwhile; reading, and the storage that readers waited for, share the rest. */
static void consumer_wait(struct ps_pipeline *p, const uint64_t *until_ns)
{
	enum { READ = PS_STAGE_READ, DECODE = PS_STAGE_DECODE, IN = PS_WAIT_INPUT, OUT = PS_WAIT_OUTPUT };
	struct ps_tune_mark from, to;
	double wait, workers, idle, readers, storage, read, slow;

	PS_RANGE_SCOPE("wait");
	ps_tune_mark(p, &from);
	ps_stage_wait(&p->stages[PS_STAGE_CONSUMER], PS_WAIT_INPUT, &p->ready, &p->lock, until_ns);
	ps_tune_mark(p, &to);
	wait = (double)(to.wait_ns[PS_STAGE_CONSUMER][IN] - from.wait_ns[PS_STAGE_CONSUMER][IN]);
	workers = (double)(to.total_ns[DECODE] - from.total_ns[DECODE]);
	idle = (double)(to.wait_ns[DECODE][IN] - from.wait_ns[DECODE][IN]);
	readers = (double)(to.total_ns[READ] - from.total_ns[READ]) -
	          (double)(to.wait_ns[READ][OUT] - from.wait_ns[READ][OUT]);
	storage = (double)(to.wait_ns[READ][IN] - from.wait_ns[READ][IN]);
	read = workers > 0 ? wait * PS_MIN(idle / workers, 1.0) : 0;
	slow = readers > 0 ? read * PS_MIN(storage / readers, 1.0) : 0;
	p->deliver.blame_ns[PS_BLAME_STORAGE] += slow;
	p->deliver.blame_ns[PS_BLAME_READ] += read - slow;
	p->deliver.blame_ns[PS_BLAME_DECODE] += wait - read;
}

int ps_pipeline_next(struct ps_pipeline *p, struct penstock_batch **ret_batch, struct ps_error *err)
{
	PS_LOCK_SCOPE(&p->lock);
	if (all_held(p) && !p->failed && p->deliver.epoch != p->o.end_epoch && !epoch_is_over(p))
		return ps_error_set(err, EBUSY,
		        "all %u batches are held: release one before asking for the next, add one "
		        "(penstock_loader_add_batch), "
		        "or open with a larger depth",
		        p->nbatches);
	struct penstock_batch *b;
	while (!(b = batch_due(p)) && !next_is_known(p))
		consumer_wait(p, NULL);
	if (p->failed) {
		if (err)
			*err = p->why;
		return p->failed;
	}
	if (p->deliver.epoch == p->o.end_epoch)
		return 0;
	if (feed_is_dry(p))
		return ps_error_set(err, EAGAIN, "no batch was fed: call penstock_loader_feed() first");
	if (!b) {
		p->ends[p->deliver.epoch & 1].known = false; /* the epoch's end is delivered now */
		p->deliver.empty_epochs += p->position.batches == 0;
		p->deliver.epoch++;
		p->deliver.first_seq = p->deliver.seq;
		if (p->feed)
			ps_numbers_begin(p->feed, p->deliver.epoch, 0);
		ps_position_begin(&p->position, p->deliver.epoch);
		pthread_cond_broadcast(&p->work);
		return 0;
	}
	b->state = PS_BATCH_HELD;
	p->deliver.seq++;
	p->deliver.nheld++;
	*ret_batch = b;
	return 1;
}

int ps_pipeline_feed(struct ps_pipeline *p, const int64_t *numbers, uint32_t n, struct ps_error *err)
{
	int rc;

	PS_LOCK_SCOPE(&p->lock);
	if (p->deliver.epoch == p->o.end_epoch)
		return ps_error_set(err, EINVAL, "feed: the last epoch is over");
	if (n > 0 && !p->feed->over && feed_is_full(p))
		return ps_error_set(err, EINVAL, "feed: the epoch has %ju steps, and all were fed",
		        (uintmax_t)p->feed->fed);
	rc = ps_numbers_give(p->feed, p->deliver.seq - p->deliver.first_seq, numbers, n, err);
	if (rc < 0)
		return rc;
	pthread_cond_broadcast(&p->room);
	pthread_cond_broadcast(&p->work);
	return !feed_is_full(p) && p->feed->fed - (p->deliver.seq - p->deliver.first_seq) < p->o.depth;
}

bool ps_pipeline_wait(struct ps_pipeline *p, uint32_t timeout_ms)
{
	const uint64_t until_ns = ps_clock_mono_ns() + timeout_ms * UINT64_C(1000000);

	PS_LOCK_SCOPE(&p->lock);
	while (!next_is_known(p) && ps_clock_mono_ns() < until_ns)
		consumer_wait(p, &until_ns);
	return next_is_known(p);
}

bool ps_pipeline_wait_released(struct ps_pipeline *p, uint32_t timeout_ms)
{
	const uint64_t until_ns = ps_clock_mono_ns() + timeout_ms * PS_NS_PER_MS;

	PS_LOCK_SCOPE(&p->lock);
	while (all_held(p) && ps_clock_mono_ns() < until_ns)
		ps_cond_wait_until(&p->ready, &p->lock, until_ns);
	return !all_held(p);
}

void ps_pipeline_delivered(struct ps_pipeline *p, const struct penstock_batch *b)
{
	/* Lanes that gave only skipped samples have no row that shows their position. */
	if (!p->known && p->position.batches == 0)
		memcpy(p->position.lanes, p->skipped[b->epoch & 1], p->nlanes * sizeof(*p->position.lanes));
	for (uint32_t i = 0; i < b->nrows; i++) {
		uint32_t lane = b->rows[i].lane;

		p->position.lanes[lane] = b->rows[i].where;
		p->position.turn = lane + 1 == p->position.nlanes ? 0 : lane + 1;
	}
	p->position.batches++;
	p->position.rows += p->o.rows; /* fewer only in the last batch of an epoch */
}

const struct ps_shard_options *ps_pipeline_reading(const struct ps_pipeline *p)
{
	return &p->source.options;
}

const struct ps_position *ps_pipeline_position(const struct ps_pipeline *p)
{
	return &p->position;
}

void ps_pipeline_offload(struct ps_pipeline *p, struct ps_offload *ret_offload)
{
	PS_LOCK_SCOPE(&p->lock);
	*ret_offload = p->offload;
}

void ps_pipeline_set_offload(struct ps_pipeline *p, const struct ps_offload *offload)
{
	PS_LOCK_SCOPE(&p->lock);
	p->offload = *offload;
}

void ps_pipeline_release(struct penstock_batch *b)
{
	struct ps_pipeline *p = b->pipeline;
	struct ps_error err;
	bool arrived;
	int rc;

	ps_error_clear(&err);
	assert(b->state == PS_BATCH_HELD); /* must not be released twice */
	rc = ps_batch_leave(b, &arrived, &err);
	ps_batch_clear(b);
	PS_LOCK_SCOPE(&p->lock);
	if (p->deliver.nheld-- == p->nbatches)
		pthread_cond_signal(&p->ready);
	if (rc < 0)
		ps_pipeline_fail(p, rc, &err);
	if (arrived || rc < 0) {
		ps_batch_give(p, b);
	} else {
		b->state = PS_BATCH_LEFT;
		pthread_cond_signal(&p->left);
	}
}

uint64_t ps_pipeline_epoch_nbytes(struct ps_pipeline *p, uint64_t epoch)
{
	PS_LOCK_SCOPE(&p->lock);
	return p->run.read_of[epoch & 3].epoch == epoch ? p->run.read_of[epoch & 3].nbytes : 0;
}

void ps_pipeline_stats(struct ps_pipeline *p, struct ps_pipeline_stats *ret_stats)
{
	struct ps_offload_meter meter = ps_pipeline_meter(p);
	struct ps_tune_mark m;

	PS_LOCK_SCOPE(&p->lock);
	ps_tune_mark(p, &m);
	*ret_stats = (struct ps_pipeline_stats){.nbytes_read = p->run.meter.nbytes,
	        .empty_epochs = p->deliver.empty_epochs,
	        .reread = p->run.reread,
	        .readers = p->tunes[PS_STAGE_READ].now,
	        .workers = p->tunes[PS_STAGE_DECODE].now};
	memcpy(ret_stats->total_ns, m.total_ns, sizeof(m.total_ns));
	memcpy(ret_stats->wait_ns, m.wait_ns, sizeof(m.wait_ns));
	for (int i = 0; i < PS_NBLAMES; i++)
		ret_stats->blame_ns[i] = (uint64_t)p->deliver.blame_ns[i];
	ret_stats->engine_images = meter.engine_rows;
	ret_stats->hybrid_images = meter.hybrid_rows;
	ret_stats->cpu_images = meter.cpu_rows;
	ret_stats->offload = ps_offload_at(&p->offload, p->claim.epoch, p->claim.seq - p->claim.first_seq);
	ret_stats->costs = ps_offload_costs_of(&(struct ps_offload_meter){0}, &meter, 1);
}
