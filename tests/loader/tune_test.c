/* Sizes of units of work and numbers of threads, which follow measurements. */
#include "config.h"

#include "pipeline/core.h"

#include <pthread.h>
#include <stdatomic.h>

#include "make_tar.h"
#include "penstock.h"

/* The rows of a unit once the cost is known. */
static uint32_t unit_rows(uint64_t row_nbytes, uint64_t row_ns)
{
	struct ps_cost c;
	uint32_t n = 0;

	ps_cost_init(&c);
	for (int unit = 0; unit < 100; unit++) {
		for (n = 1; !ps_cost_is_unit(&c, n, n * row_nbytes); n++)
			;
		ps_cost_learn(&c, n, n * row_nbytes, n * row_ns);
	}
	return n;
}

static void a_unit_is_50_to_100_us_of_work(void **state)
{
	static const struct {
		uint64_t nbytes, ns;
	} rows[] = {{100000, 1000000}, {10000, 90000}, {1000, 1000}, {1000, 30000}, {0, 700}, {50000, 2000}};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		uint32_t n = unit_rows(rows[i].nbytes, rows[i].ns);

		assert_true(n == 1 || n * rows[i].ns <= 100000);
		assert_true(n * rows[i].ns >= 49000);
	}
	assert_int_equal(unit_rows(100000, 1000000), 1); /* an image */
	assert_int_equal(unit_rows(0, 1), PS_UNIT_MAX_ROWS);
}

static void one_slow_unit_does_not_make_the_next_ones_small(void **state)
{
	struct ps_cost c;
	uint32_t n;

	(void)state;
	ps_cost_init(&c);
	for (int i = 0; i < 100; i++)
		ps_cost_learn(&c, 64, 64000, 64000);
	ps_cost_learn(&c, 64, 64000, 1000000000); /* the thread was not running */
	for (n = 1; !ps_cost_is_unit(&c, n, n * 1000); n++)
		;
	assert_in_range(n, 25, 100);
	double before = c.ns_per_weight;
	ps_cost_learn(&c, 0, 0, 1000000); /* a batch was closed: no rows, so nothing is learned */
	assert_true(c.ns_per_weight <= before && c.ns_per_weight >= before);
}

static void threads_that_wait_are_parked_and_come_back(void **state)
{
	struct ps_tune t = {.least = 1, .most = 16, .now = 16};

	(void)state;
	/* four threads are busy */
	for (int i = 0; i < 20; i++) {
		double idle = t.now > 4 ? 1 - 4.0 / t.now : 0.05;

		t.now = ps_tune_next(&t, &(struct ps_usage){.idle = idle});
	}
	assert_in_range(t.now, 5, 9);
	/* all threads are needed again */
	for (int i = 0; i < 20; i++)
		t.now = ps_tune_next(&t, &(struct ps_usage){.idle = 0.01, .starved = 0.5});
	assert_int_equal(t.now, 16);
	/* the next stage does not wait for them: no more are started */
	t.now = 3;
	assert_int_equal(ps_tune_next(&t, &(struct ps_usage){.idle = 0.01, .starved = 0}), 3);
	/* the threads wait for input themselves: more threads would not help */
	assert_int_equal(ps_tune_next(&t, &(struct ps_usage){.idle = 0.3, .starved = 0.5}), 3);
	t.fixed = true;
	assert_int_equal(ps_tune_next(&t, &(struct ps_usage){.idle = 1}), 3);
}

/* A slow sample ------------------------------------------------------------------------------------------ */

#define BATCH 8
#define DEPTH 4

static struct {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	int others; /* decoded while the slow one is not done */
} slow = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};

/* The first sample is done only after the rest of its batch and all other batches that the depth allows. */
static int wait_for_others(void *ctx, struct penstock_sample *sample)
{
	struct penstock_sample_info info;

	(void)ctx;
	penstock_sample_info(sample, &info);
	pthread_mutex_lock(&slow.lock);
	if (info.sample_index == 0) {
		while (slow.others < BATCH * DEPTH - 1)
			pthread_cond_wait(&slow.cond, &slow.lock);
	} else {
		slow.others++;
		pthread_cond_signal(&slow.cond);
	}
	pthread_mutex_unlock(&slow.lock);
	return 0;
}

static void a_slow_sample_does_not_stop_the_others(void **state)
{
	static const char *const shards[] = {"slow.tar"};
	struct penstock_options o;
	struct penstock_field f;
	struct penstock_loader *l;
	struct penstock_batch *b;
	struct penstock_error e;
	struct tar t = {0};
	char folder[64], *text = calloc(1, 10000);
	int n = 0, r;

	(void)state;
	assert_non_null(text);
	folder_enter(folder);
	for (int i = 0; i < BATCH * DEPTH * 2; i++) {
		char name[16];

		snprintf(name, sizeof(name), "%03d.txt", i);
		tar_add(&t, name, text, 10000); /* at first one such row is a unit */
	}
	tar_end(&t);
	tar_save(&t, "slow.tar");
	free(text);
	penstock_options_init(&o, sizeof(o));
	penstock_field_init(&f, sizeof(f), "txt", PENSTOCK_BYTES);
	o.fields = &f;
	o.nfields = 1;
	o.batch = BATCH;
	o.depth = DEPTH;
	o.threads = 2;
	o.order = PENSTOCK_ORDER_NONE;
	o.epochs = 1;
	o.transform = wait_for_others;
	if (penstock_loader_open(&o, shards, 1, &l, &e) < 0)
		fail_msg("%s", e.text);
	while ((r = penstock_loader_next(l, &b, &e)) == 1) {
		struct penstock_batch_info info;

		penstock_batch_info(b, &info);
		assert_int_equal(info.index, n++); /* batches come in order all the same */
		penstock_batch_release(b);
	}
	assert_int_equal(r, 0);
	assert_int_equal(n, DEPTH * 2);
	penstock_loader_close(l);
	folder_leave(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_unit_is_50_to_100_us_of_work),
	        cmocka_unit_test(one_slow_unit_does_not_make_the_next_ones_small),
	        cmocka_unit_test(threads_that_wait_are_parked_and_come_back),
	        cmocka_unit_test(a_slow_sample_does_not_stop_the_others),
	};

	return cmocka_run_group_tests_name("tune", tests, NULL, NULL);
}
