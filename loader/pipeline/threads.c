#include "config.h"

#include "pipeline/core.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/cleanup.h"
#include "base/range.h"
#include "batch/batch.h"
#include "device/device.h"

/* Called with the lock held, unless a comment says otherwise --------------------------------------------- */

/* Finishes and sends a batch whose rows are all decoded. The lock is not held. */
static int batch_make(struct penstock_batch *b, struct ps_batch_worker *w, struct ps_error *err)
{
	PS_RANGE_SCOPE("finish");
	int rc = ps_decode_submit(b, w, err);

	if (rc < 0)
		return rc;
	ps_batch_finish(b);
	if (b->failed)
		return 0;
	PS_RANGE_SCOPE("send");
	return ps_batch_send(b, err);
}

/* Called after each finished batch. Once enough is known, freezes the share of images that the GPU
 * decodes. */
static void offload_tune(struct ps_pipeline *p, const struct ps_offload_meter *now)
{
	struct ps_offload_costs costs;

	p->run.nfinished++;
	if (!p->offload.tuning)
		return;
	if (p->run.nfinished <= PS_OFFLOAD_COLD) {
		p->run.offload_from = *now;
		return;
	}
	costs = ps_offload_costs_of(&p->run.offload_from, now, PS_OFFLOAD_ROWS);
	ps_offload_settle(&p->offload, p->run.nfinished - PS_OFFLOAD_COLD, &costs, p->o.threads,
	        p->claim.epoch, p->claim.seq - p->claim.first_seq);
}

/* Finishes a batch; the lock is released meanwhile. */
static void batch_finish(struct ps_pipeline *p, struct penstock_batch *b, struct ps_batch_worker *w)
{
	struct ps_error err = {0};
	struct ps_offload_meter meter = {0};
	bool drop = b->drop, tuning = p->offload.tuning;
	int rc = 0;

	pthread_mutex_unlock(&p->lock);
	if (drop)
		ps_batch_clear(b);
	else
		rc = batch_make(b, w, &err);
	if (tuning)
		meter = ps_pipeline_meter(p);
	pthread_mutex_lock(&p->lock);
	if (rc < 0)
		ps_pipeline_fail(p, rc, &err);
	if (drop) {
		ps_batch_give(p, b);
		return;
	}
	if (tuning)
		offload_tune(p, &meter);
	b->state = PS_BATCH_FINISHED;
	if (b->seq == p->deliver.seq)
		pthread_cond_signal(&p->ready);
}

/* Parks the thread while its index is beyond the tuned number of threads. True: the lock was released, so
 * all guarded data may have changed. */
static bool park(struct ps_pipeline *p, int stage, uint32_t index)
{
	if (index < p->tunes[stage].now)
		return false;
	pthread_cond_signal(&p->room); /* passes on the signal that may have woken this thread */
	ps_stage_leave(&p->stages[stage]);
	while (index >= p->tunes[stage].now && !atomic_load(&p->stop))
		pthread_cond_wait(&p->unpark, &p->lock);
	ps_stage_enter(&p->stages[stage]);
	return true;
}

#define TUNE_NS 100000000 /* least time from one tuning to the next; each follows a finished batch */

/* Measures how the stages spent their time, and sets their numbers of threads. */
static void tune(struct ps_pipeline *p)
{
	const struct ps_tune_mark was = p->run.tuned;
	double in[PENSTOCK_NSTAGES], out[PENSTOCK_NSTAGES];

	if (ps_clock_mono_ns() - was.ns < TUNE_NS)
		return;
	ps_tune_mark(p, &p->run.tuned);
	for (int i = 0; i < PENSTOCK_NSTAGES; i++) {
		double total = (double)(p->run.tuned.total_ns[i] - was.total_ns[i]) + 1;

		in[i] = (double)(p->run.tuned.wait_ns[i][PS_WAIT_INPUT] - was.wait_ns[i][PS_WAIT_INPUT]) /
		        total;
		out[i] = (double)(p->run.tuned.wait_ns[i][PS_WAIT_OUTPUT] - was.wait_ns[i][PS_WAIT_OUTPUT]) /
		         total;
	}
	/* readers that wait for the disk do not count as idle: more readers keep more reads in flight */
	p->tunes[PS_STAGE_READ].now = ps_tune_next(&p->tunes[PS_STAGE_READ],
	        &(struct ps_usage){.idle = out[PS_STAGE_READ], .starved = in[PS_STAGE_DECODE]});
	p->tunes[PS_STAGE_DECODE].now = ps_tune_next(&p->tunes[PS_STAGE_DECODE],
	        &(struct ps_usage){.idle = in[PS_STAGE_DECODE] + out[PS_STAGE_DECODE],
	                .starved = in[PS_STAGE_CONSUMER]});
	pthread_cond_broadcast(&p->unpark);
}

/* Threads ------------------------------------------------------------------------------------------------ */

/* Gets the epoch that is claimed next; the lock is released meanwhile. */
static void epoch_ask(struct ps_pipeline *p)
{
	struct ps_error err = {0};
	struct ps_epoch *epoch = NULL;
	uint64_t number = p->claim.epoch; /* does not change until the epoch is begun */
	int rc;

	p->run.asking = true;
	pthread_mutex_unlock(&p->lock);
	rc = ps_epochs_get(p->o.epochs, number, &epoch, &err);
	pthread_mutex_lock(&p->lock);
	p->run.asking = false;
	if (rc < 0)
		ps_pipeline_fail(p, rc, &err);
	else
		ps_epoch_begin(p, epoch);
}

/* Decodes a claimed unit; the lock is released meanwhile. */
static void unit_run(struct ps_pipeline *p, const struct ps_unit *u, struct ps_batch_worker *w)
{
	uint64_t begin;

	pthread_mutex_unlock(&p->lock);
	begin = ps_clock_mono_ns();
	ps_range_begin("decode");
	for (uint32_t i = 0; i < u->n; i++)
		ps_batch_decode(u->batch, u->first + i, w);
	ps_range_end();
	/* The time of a transform_unit is not counted: it may wait for locks that other threads hold. */
	begin = ps_clock_mono_ns() - begin;
	ps_batch_transform(u->batch, u->first, u->n, w);
	pthread_mutex_lock(&p->lock);
	ps_cost_learn(&p->cost, u->n, u->nbytes, begin);
	u->batch->ndone += u->n;
	if (u->batch->closed && u->batch->ndone == u->batch->nrows) {
		batch_finish(p, u->batch, w);
		tune(p);
	}
	p->run.reread += w->reread;
	w->reread = 0;
}

static void *worker_main(void *arg)
{
	struct ps_pipeline *p = arg;
	struct ps_batch_worker w;
	struct ps_error err = {0};
	uint32_t index;
	int rc = ps_batch_worker_init(&w, p->o.layout, p->o.seed, &p->gate, &err);

	w.times = &p->times;
	if (rc == 0 && p->o.nvjpeg) {
		rc = ps_nvjpeg_worker_new(p->o.nvjpeg, &w.nvjpeg, &err);
		if (rc < 0)
			ps_batch_worker_fini(&w);
	}

	PS_LOCK_SCOPE(&p->lock);
	if (rc < 0) {
		ps_pipeline_fail(p, rc, &err);
		return NULL;
	}
	index = p->run.started[PS_STAGE_DECODE]++;
	ps_stage_enter(&p->stages[PS_STAGE_DECODE]);
	while (!atomic_load(&p->stop)) {
		struct ps_unit u;
		enum ps_claim c;

		if (park(p, PS_STAGE_DECODE, index))
			continue;
		c = ps_unit_claim(p, &u);
		if (c == PS_NO_EPOCH) {
			epoch_ask(p);
			continue;
		}
		if (c != PS_CLAIMED) {
			ps_stage_wait(&p->stages[PS_STAGE_DECODE],
			        c == PS_NO_ROOM ? PS_WAIT_OUTPUT : PS_WAIT_INPUT, &p->work, &p->lock, NULL);
			continue;
		}
		unit_run(p, &u, &w);
	}
	ps_stage_leave(&p->stages[PS_STAGE_DECODE]);
	pthread_mutex_unlock(&p->lock); /* transform_leave() may block */
	ps_batch_worker_fini(&w);
	pthread_mutex_lock(&p->lock);
	return NULL;
}

/* Moves a lane past holes of a feed. In claimed steps all remaining places count as holes, as their numbers
 * may be overwritten. False: the lane is at a step that is not fed yet. The lock is held, so no step is
 * delivered meanwhile. */
static bool feed_holes_pass(struct ps_pipeline *p, struct ps_lane *lane)
{
	uint64_t claimed = p->claim.seq - p->claim.first_seq - (p->claim.filling ? 1 : 0);

	for (lane->from = PS_MAX(lane->from, lane->at);; lane->from++) {
		uint64_t place = lane->from * p->nlanes + lane->index, step = place / p->feed->batch;

		lane->next = lane->from;
		if (!ps_feed_has(p, lane->epoch, place))
			return false;
		if (step >= claimed && ps_numbers_at(p->feed, place) >= 0)
			return true;
	}
}

/* Seeks or fills one block of a lane that was taken; the lock is released meanwhile. If the lane's epoch
 * was closed before all its samples were read, the lane moves to the next epoch, and a block of the old one
 * is dropped. */
static void lane_serve(struct ps_pipeline *p, struct ps_lane *lane)
{
	struct ps_error err = {0};
	struct ps_block *block = NULL;
	bool seek = p->known && !lane->sought;
	bool leave = lane->epoch < p->claim.epoch;
	uint64_t epoch = p->claim.epoch, reads = lane->epoch, next = 0;
	int rc = 0;

	if (p->feed && seek && !leave && !feed_holes_pass(p, lane)) {
		ps_due_put(p, lane);
		return;
	}
	pthread_mutex_unlock(&p->lock);
	ps_range_begin("read");
	if (leave)
		ps_lane_leave(lane, epoch);
	else if (seek)
		rc = ps_lane_seek(lane, &p->source, &next, &err);
	else
		rc = ps_lane_fill(lane, &p->source, &block, &err);
	ps_range_end();
	pthread_mutex_lock(&p->lock);
	lane->sought = seek && !leave && rc == 1;
	lane->next = lane->sought ? next : PS_MAX(lane->at, lane->from);
	p->run.meter.nbytes += lane->meter.nbytes;
	reads = block ? block->epoch : reads;
	if (p->run.read_of[reads & 3].epoch != reads)
		p->run.read_of[reads & 3].nbytes = 0;
	p->run.read_of[reads & 3].epoch = reads;
	p->run.read_of[reads & 3].nbytes += lane->meter.nbytes;
	p->stages[PS_STAGE_READ].ns[PS_WAIT_INPUT] += lane->meter.wait_ns;
	lane->meter = (struct ps_stream_meter){0};
	if (rc < 0) { /* the lane is not read any more */
		if (rc != -ECANCELED)
			ps_pipeline_fail(p, rc, &err);
		return;
	}
	if (block)
		ps_block_push(p, lane, block);
	if (lane->epoch != p->o.end_epoch)
		ps_due_put(p, lane);
}

static void *reader_main(void *arg)
{
	struct ps_pipeline *p = arg;
	uint32_t index;

	PS_LOCK_SCOPE(&p->lock);
	index = p->run.started[PS_STAGE_READ]++;
	ps_stage_enter(&p->stages[PS_STAGE_READ]);
	while (!atomic_load(&p->stop)) {
		struct ps_lane *lane;

		if (park(p, PS_STAGE_READ, index))
			continue;
		lane = ps_due_take(p);
		if (lane) {
			if (ps_due_any(p))
				pthread_cond_signal(&p->room);
			lane_serve(p, lane);
		} else {
			ps_stage_wait(&p->stages[PS_STAGE_READ], PS_WAIT_OUTPUT, &p->room, &p->lock, NULL);
		}
	}
	ps_stage_leave(&p->stages[PS_STAGE_READ]);
	return NULL;
}

/* The copier's thread: frees batches that were released before they had arrived on the device. */
static void *copier_main(void *arg)
{
	struct ps_pipeline *p = arg;

	PS_LOCK_SCOPE(&p->lock);
	while (!atomic_load(&p->stop)) {
		struct ps_error err = {0};
		struct penstock_batch *b = NULL;
		int rc;

		for (uint32_t i = 0; i < p->nbatches && !b; i++)
			if (p->batches[i]->state == PS_BATCH_LEFT)
				b = p->batches[i];
		if (!b) {
			pthread_cond_wait(&p->left, &p->lock);
			continue;
		}
		pthread_mutex_unlock(&p->lock);
		rc = ps_batch_wait(b, &err);
		pthread_mutex_lock(&p->lock);
		if (rc < 0)
			ps_pipeline_fail(p, rc, &err);
		ps_batch_give(p, b);
	}
	return NULL;
}

void ps_threads_stop(struct ps_pipeline *p)
{
	pthread_mutex_lock(&p->lock);
	atomic_store(&p->stop, true);
	if (p->wake_fd >= 0)
		(void)eventfd_write(p->wake_fd, 1);
	pthread_cond_broadcast(&p->work);
	pthread_cond_broadcast(&p->room);
	pthread_cond_broadcast(&p->unpark);
	pthread_cond_signal(&p->left);
	pthread_mutex_unlock(&p->lock);
	for (uint32_t i = 0; i < p->nthreads; i++)
		pthread_join(p->threads[i], NULL);
	p->nthreads = 0;
}

static int thread_start(struct ps_pipeline *p, uint32_t index, const char *name, void *(*run)(void *))
{
	char full[24];
	int rc;

	snprintf(full, sizeof(full), "ps-%s-%u", name, index);
	full[15] = 0; /* the kernel's limit */
	rc = ps_thread_start(&p->threads[p->nthreads], full, run, p);
	p->nthreads += rc == 0;
	return rc;
}

int ps_threads_start(struct ps_pipeline *p, struct ps_error *err)
{
	eventfd_t count;
	int rc = 0;

	atomic_store(&p->stop, false);
	(void)eventfd_read(p->wake_fd, &count);
	pthread_mutex_lock(&p->lock); /* other threads may read statistics */
	ps_tune_mark(p, &p->run.tuned);
	for (int i = PS_STAGE_READ; i <= PS_STAGE_DECODE; i++) {
		p->run.started[i] = 0;
		p->tunes[i].now = p->tunes[i].most;
	}
	pthread_mutex_unlock(&p->lock);
	for (uint32_t i = 0; i < p->o.readers && rc == 0; i++)
		rc = thread_start(p, i, "read", reader_main);
	for (uint32_t i = 0; i < p->o.threads && rc == 0; i++)
		rc = thread_start(p, i, "decode", worker_main);
	if (rc == 0 && p->o.device->ops->send)
		rc = thread_start(p, 0, "copy", copier_main);
	if (rc == 0)
		return 0;
	ps_threads_stop(p);
	return ps_error_set(
	        err, -rc, "cannot start %u threads: %s", p->o.readers + p->o.threads, strerror(-rc));
}
