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
static void block_queue(struct ps_pipeline *p, uint32_t n)
{
	struct ps_block *block = calloc(1, sizeof(*block) + n * sizeof(struct ps_sample *));
	struct ps_lane *lane = &p->lanes[0];

	assert_non_null(block);
	block->n = block->left = n;
	for (uint32_t i = 0; i < n; i++)
		block->samples[i] = sample_new();
	if (lane->tail)
		lane->tail->next = block;
	else
		lane->head = block;
	lane->tail = block;
	lane->nqueued++;
}

struct fixture {
	struct ps_pipeline p;
	struct ps_lane lane;
	struct penstock_batch batch;
	struct ps_row rows[BATCH];
	struct ps_lane_position skipped[2];
};

/* One lane whose length is not known, one batch; the first `skip` samples of an epoch are passed over. */
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
	        .batch = BATCH,
	        .world = 1});
	assert_non_null(p->o.epochs);
	pthread_cond_init(&p->room, NULL);
	pthread_cond_init(&p->ready, NULL);
	ps_cost_init(&p->cost);
	p->lanes = &f->lane;
	p->nlanes = 1;
	p->skipped[0] = &f->skipped[0];
	p->skipped[1] = &f->skipped[1];
	p->ahead = PS_AHEAD_PLAIN;
	p->batches = &f->batch;
	sets = ps_order_sets(p->o.order, &nsets);
	assert_int_equal(ps_turns_init(&p->turns, sets, nsets), 0);
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
	ps_epoch_unref(p->claiming);
	ps_turns_fini(&p->turns);
	ps_epochs_free(p->o.epochs);
	ps_order_free(p->o.order);
	pthread_cond_destroy(&p->room);
	pthread_cond_destroy(&p->ready);
}

/* A unit without rows would let two workers finish one batch: another one may decode and finish it while
 * this one is about to look whether all rows are there. */
static void what_is_passed_over_is_no_unit(void **state)
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

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_passed_over_is_no_unit)};

	return cmocka_run_group_tests_name("claim", tests, NULL, NULL);
}
