/* Which rows a worker claims, on a pipeline without threads. */
#include "config.h"

#include "make_tar.h"
#include "pipeline/core.h"

#define BATCH 2

static struct ps_sample *sample_new(void)
{
	struct ps_sample *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	s->file = calloc(1, sizeof(*s->file));
	assert_non_null(s->file);
	s->file->fd = -1;
	atomic_init(&s->file->refs, 1);
	return s;
}

/* Queues a block of n samples for the first lane. */
static void block_of_epoch(struct ps_pipeline *p, uint64_t epoch, uint32_t n)
{
	struct ps_block *block = calloc(1, sizeof(*block) + n * sizeof(struct ps_sample *));

	assert_non_null(block);
	block->n = block->left = n;
	block->epoch = epoch;
	for (uint32_t i = 0; i < n; i++)
		block->samples[i] = sample_new();
	ps_block_push(p, &p->lanes[0], block);
}

static void block_queue(struct ps_pipeline *p, uint32_t n)
{
	block_of_epoch(p, 0, n);
}

struct fixture {
	struct ps_pipeline p;
	struct ps_lane lane;
	struct penstock_batch batch, *batches[1];
	struct ps_row rows[BATCH];
	struct ps_lane_position skipped[2];
};

/* A pipeline with one batch and one lane whose length is not known. It skips the first `skip` samples of an
 * epoch. */
static void fixture_init(struct fixture *f, uint64_t skip)
{
	struct ps_pipeline *p = &f->p;
	const struct ps_lane_set *sets;
	struct ps_epoch *epoch;
	uint32_t nsets;

	*f = (struct fixture){.batch = {.rows = f->rows, .cap = BATCH}};
	p->o = (struct ps_pipeline_options){.rows = BATCH, .depth = 1, .end_epoch = UINT64_MAX};
	p->o.order = ps_order_new(&(struct ps_order_options){.nshards = 1, .lanes = 1, .world = 1}, NULL);
	assert_non_null(p->o.order);
	p->o.epochs = ps_epochs_new(&(struct ps_epochs_options){.order = p->o.order,
	        .skip = skip,
	        .take = PS_ENDLESS,
	        .steps = PS_ENDLESS,
	        .samples = PS_ENDLESS,
	        .batch = BATCH,
	        .world = 1});
	assert_non_null(p->o.epochs);
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->work, NULL);
	pthread_cond_init(&p->room, NULL);
	pthread_cond_init(&p->ready, NULL);
	ps_cost_init(&p->cost);
	p->lanes = &f->lane;
	p->nlanes = 1;
	p->skipped[0] = &f->skipped[0];
	p->skipped[1] = &f->skipped[1];
	p->ahead = PS_AHEAD_PLAIN;
	f->batches[0] = &f->batch;
	p->batches = f->batches;
	p->nbatches = 1;
	sets = ps_order_sets(p->o.order, &nsets);
	assert_int_equal(ps_turns_init(&p->claim.turns, sets, nsets), 0);
	assert_int_equal(ps_epochs_get(p->o.epochs, 0, &epoch, NULL), 0);
	ps_epoch_begin(p, epoch);
}

static void fixture_fini(struct fixture *f)
{
	struct ps_pipeline *p = &f->p;

	while (f->lane.head)
		ps_block_pop(p, &f->lane);
	for (uint32_t i = 0; i < f->batch.nrows; i++)
		ps_sample_free(f->rows[i].sample);
	ps_epoch_unref(p->claim.info);
	ps_turns_fini(&p->claim.turns);
	ps_epochs_free(p->o.epochs);
	ps_order_free(p->o.order);
	pthread_mutex_destroy(&p->lock);
	pthread_cond_destroy(&p->work);
	pthread_cond_destroy(&p->room);
	pthread_cond_destroy(&p->ready);
}

/* A unit without rows would let two workers finish one batch: while its worker is about to check whether all
 * rows are there, another worker may decode the last row and finish the batch. */
static void skipped_samples_make_no_unit(void **state)
{
	struct fixture f;
	struct ps_unit u;

	(void)state;
	fixture_init(&f, 4);
	block_queue(&f.p, 3);
	assert_int_equal(ps_unit_claim(&f.p, &u), PS_NO_INPUT);
	assert_int_equal(u.n, 0);
	block_queue(&f.p, 2);
	assert_int_equal(ps_unit_claim(&f.p, &u), PS_CLAIMED);
	assert_ptr_equal(u.batch, &f.batch);
	assert_int_equal(u.n, 1);
	assert_false(f.batch.closed);
	fixture_fini(&f);
}

static int count(
        void *ctx, uint64_t epoch, uint64_t pass, uint32_t shard, uint64_t *ret_count, struct ps_error *err)
{
	(void)ctx, (void)epoch, (void)pass, (void)shard, (void)err;
	*ret_count = 6;
	return 0;
}

/* If a lane's length is known, so is the block of the next row: no other block may be claimed. */
static void a_row_waits_for_its_own_block(void **state)
{
	struct fixture f;
	struct ps_unit u;
	struct ps_epoch *epoch;
	struct ps_epochs_options o;

	(void)state;
	fixture_init(&f, 0);
	o = *ps_epochs_options(f.p.o.epochs);
	o.known = true;
	o.repeat = 1;
	o.nshards = 1;
	o.counts.count = count;
	ps_epoch_unref(f.p.claim.info);
	ps_epochs_free(f.p.o.epochs);
	f.p.o.epochs = ps_epochs_new(&o);
	assert_int_equal(ps_epochs_get(f.p.o.epochs, 0, &epoch, NULL), 0);
	ps_epoch_begin(&f.p, epoch);
	block_queue(&f.p, 2);
	f.lane.head->begin = 2;
	assert_int_equal(ps_unit_claim(&f.p, &u), PS_NO_INPUT);
	f.lane.head->begin = 0;
	f.lane.head->epoch = 1;
	assert_int_equal(ps_unit_claim(&f.p, &u), PS_NO_INPUT);
	f.lane.head->epoch = 0;
	assert_int_equal(ps_unit_claim(&f.p, &u), PS_CLAIMED);
	assert_int_equal(u.n, 2);
	fixture_fini(&f);
}

/* The pipeline stores the ends of two epochs. A third epoch waits, so that a slow caller misses no end. */
static void no_claim_while_the_end_of_the_epoch_two_before_is_pending(void **state)
{
	struct fixture f;
	struct ps_unit u;

	(void)state;
	fixture_init(&f, 0);
	block_queue(&f.p, 2);
	f.p.ends[0].known = true;
	assert_int_equal(ps_unit_claim(&f.p, &u), PS_NO_ROOM);
	f.p.ends[0].known = false;
	f.p.ends[1].known = true;
	assert_int_equal(ps_unit_claim(&f.p, &u), PS_CLAIMED);
	fixture_fini(&f);
}

/* A reader may be in the middle of a block while its epoch is closed, by take= or steps=. */
static void a_block_of_a_closed_epoch_is_dropped(void **state)
{
	struct fixture f;

	(void)state;
	fixture_init(&f, 0);
	f.p.claim.epoch = 1;
	block_of_epoch(&f.p, 0, 2);
	assert_null(f.lane.head);
	assert_int_equal(f.lane.nqueued, 0);
	/* a block of the current epoch, and one of the epoch that is read ahead */
	block_of_epoch(&f.p, 1, 2);
	block_of_epoch(&f.p, 2, 2);
	assert_int_equal(f.lane.nqueued, 2);
	assert_int_equal(f.lane.head->epoch, 1);
	fixture_fini(&f);
}

struct sleeper {
	struct ps_pipeline *p;
	pthread_t thread;
	bool asleep;
	int r;
};

/* Waits as a worker that found nothing to claim does. */
static void *sleeper_main(void *arg)
{
	struct sleeper *s = arg;
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 5;
	pthread_mutex_lock(&s->p->lock);
	s->asleep = true;
	s->r = pthread_cond_timedwait(&s->p->work, &s->p->lock, &until);
	pthread_mutex_unlock(&s->p->lock);
	return NULL;
}

/* Returns once the sleeper waits, with the pipeline's lock held. */
static void sleeper_begin(struct sleeper *s, struct ps_pipeline *p)
{
	*s = (struct sleeper){.p = p};
	assert_int_equal(pthread_create(&s->thread, NULL, sleeper_main, s), 0);
	for (;;) {
		pthread_mutex_lock(&p->lock);
		if (s->asleep)
			return;
		pthread_mutex_unlock(&p->lock);
		usleep(1000);
	}
}

/* Releases the lock and asserts that the sleeper is woken. */
static void sleeper_is_woken(struct sleeper *s)
{
	pthread_mutex_unlock(&s->p->lock);
	pthread_join(s->thread, NULL);
	assert_int_equal(s->r, 0);
}

static void workers_are_woken_by_a_new_epoch_and_by_a_new_block(void **state)
{
	struct fixture f;
	struct sleeper s;
	struct ps_epoch *epoch;

	(void)state;
	fixture_init(&f, 0);
	sleeper_begin(&s, &f.p);
	block_queue(&f.p, 1);
	sleeper_is_woken(&s);
	epoch = ps_steal_ptr(&f.p.claim.info); /* one worker fetches the epoch; the others wait */
	sleeper_begin(&s, &f.p);
	ps_epoch_begin(&f.p, epoch);
	sleeper_is_woken(&s);
	fixture_fini(&f);
}

#define LANES 7

/* The lane that is needed first is read first; a lane that is not needed yet is not read. */
static void lanes_are_read_in_the_order_of_need(void **state)
{
	static const uint64_t nexts[LANES] = {5, 3, 3, 0, 6, 1, 4};
	static const uint32_t order[LANES] = {3, 5, 1, 2, 6, 0, 4};
	struct fixture f;
	struct ps_lane lanes[LANES] = {0};
	struct ps_lane_set set = {.n = LANES};
	struct ps_pipeline *p = &f.p;
	struct ps_turns turns;
	uint32_t due[2 * LANES], ndue[2] = {0};

	(void)state;
	fixture_init(&f, 0);
	turns = p->claim.turns;
	p->lanes = lanes;
	p->nlanes = LANES;
	p->sets = &set;
	p->nsets = 1;
	assert_int_equal(ps_turns_init(&p->claim.turns, &set, 1), 0);
	ps_turns_reset(&p->claim.turns, NULL, NULL);
	p->claim.due.lanes = due;
	p->claim.due.n = ndue;
	for (uint32_t i = 0; i < LANES; i++) {
		lanes[i].index = i;
		lanes[i].next = nexts[i];
		ps_due_put(p, &lanes[i]);
	}
	for (uint32_t i = 0; i < LANES; i++) {
		struct ps_lane *lane = ps_due_take(p);

		assert_non_null(lane);
		assert_int_equal(lane->index, order[i]);
		assert_false(lane->waits);
	}
	assert_null(ps_due_take(p));
	/* Not read: a lane with as many blocks queued as it may have, and a lane whose turn is far ahead. */
	lanes[1].nqueued = p->ahead;
	ps_due_put(p, &lanes[1]);
	assert_null(ps_due_take(p));
	lanes[1].nqueued--;
	lanes[1].next = UINT64_C(1) << 40;
	assert_null(ps_due_take(p));
	lanes[1].next = 0;
	assert_ptr_equal(ps_due_take(p), &lanes[1]);
	ps_turns_fini(&p->claim.turns);
	p->claim.turns = turns;
	p->lanes = &f.lane;
	p->nlanes = 1;
	fixture_fini(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(skipped_samples_make_no_unit),
	        cmocka_unit_test(a_row_waits_for_its_own_block),
	        cmocka_unit_test(no_claim_while_the_end_of_the_epoch_two_before_is_pending),
	        cmocka_unit_test(a_block_of_a_closed_epoch_is_dropped),
	        cmocka_unit_test(workers_are_woken_by_a_new_epoch_and_by_a_new_block),
	        cmocka_unit_test(lanes_are_read_in_the_order_of_need),
	};

	return cmocka_run_group_tests_name("claim", tests, NULL, NULL);
}
