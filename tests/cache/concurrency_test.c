/* The number of connections, with simulated origins. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "fetch/concurrency.h"

#define TICK_NS (20 * PS_NS_PER_MS)

struct world {
	struct ps_concurrency c;
	uint64_t now_ns, bytes;
};

/* Runs for `ms` with an origin that serves `each` bytes/s on a connection and `all` bytes/s in total. */
static void run(struct world *w, uint64_t ms, double each, double all, bool saturated)
{
	for (uint64_t t = 0; t < ms * PS_NS_PER_MS; t += TICK_NS) {
		double rate = PS_MIN(each * w->c.limit, all);

		w->now_ns += TICK_NS;
		w->bytes += (uint64_t)(rate * TICK_NS / 1e9);
		ps_concurrency_tick(&w->c, w->now_ns, w->bytes, saturated);
	}
}

/* The latency of an origin that is neither near nor far. */
static const uint64_t between_ns = PS_CONCURRENCY_NEAR_NS + 1;

static struct world begin(unsigned max, uint64_t first_byte_ns)
{
	struct world w = {.now_ns = PS_NS_PER_S};

	ps_concurrency_init(&w.c, max);
	ps_concurrency_first_byte(&w.c, w.now_ns, first_byte_ns);
	return w;
}

static void slow_connections_are_multiplied(void **state)
{
	struct world w = begin(128, between_ns);

	(void)state;
	run(&w, 2500, 50e6, 2e9, true);
	assert_in_range(w.c.limit, 36, 128);
	/* 2 GB/s need 40 connections; more bring no gain and do not stay for long */
	run(&w, 10000, 50e6, 2e9, true);
	assert_in_range(w.c.limit, 36, 100);
}

static void a_saturated_link_gets_no_more_connections(void **state)
{
	struct world w = begin(128, between_ns);
	unsigned most = 0;

	(void)state;
	for (int i = 0; i < 500; i++) {
		run(&w, 20, 1e9, 1e9, true);
		most = PS_MAX(most, w.c.limit);
	}
	assert_int_equal(most, PS_CONCURRENCY_START * 3 / 2);
	run(&w, 1000, 1e9, 1e9, true);
	assert_int_equal(w.c.limit, PS_CONCURRENCY_START);
}

static void a_slow_reader_changes_nothing(void **state)
{
	struct world w = begin(128, between_ns);

	(void)state;
	run(&w, 5000, 1e6, 1e9, false);
	assert_int_equal(w.c.limit, PS_CONCURRENCY_START);
}

static void a_burst_of_pushback_halves_the_limit_once_and_for_a_while(void **state)
{
	struct world w = begin(128, between_ns);

	(void)state;
	for (int i = 0; i < 10; i++)
		ps_concurrency_pushback(&w.c, w.now_ns + (uint64_t)i * PS_NS_PER_MS);
	assert_int_equal(w.c.limit, PS_CONCURRENCY_START / 2);
	run(&w, PS_CONCURRENCY_PUSHBACK_MS - 1000, 1e6, 1e12, true);
	assert_int_equal(w.c.limit, PS_CONCURRENCY_START / 2);
	run(&w, 5000, 1e6, 1e12, true);
	assert_true(w.c.limit > PS_CONCURRENCY_START / 2);
}

static void a_near_origin_gets_few_connections_and_a_far_one_many(void **state)
{
	struct world near = begin(128, PS_NS_PER_MS / 2), far = begin(128, 40 * PS_NS_PER_MS);

	(void)state;
	assert_int_equal(near.c.limit, PS_CONCURRENCY_NEAR);
	assert_int_equal(near.c.demand, PS_CONCURRENCY_START);
	assert_int_equal(far.c.limit, PS_CONCURRENCY_FAR);
	assert_int_equal(far.c.demand, PS_CONCURRENCY_FAR);
	/* The origin is near, but each connection is slow: the limit rises. */
	run(&near, 4000, 50e6, 2e9, true);
	assert_in_range(near.c.limit, 30, 100);
	/* Later answers do not reset the limit. */
	ps_concurrency_first_byte(&near.c, near.now_ns, PS_NS_PER_MS / 2);
	assert_in_range(near.c.limit, 30, 100);
	assert_int_equal(begin(3, 40 * PS_NS_PER_MS).c.limit, 3);
}

static void the_latency_of_a_listing_counts_until_a_range_is_answered(void **state)
{
	struct world w = {.now_ns = PS_NS_PER_S};

	(void)state;
	ps_concurrency_init(&w.c, 128);
	ps_concurrency_expect(&w.c, w.now_ns, 0);
	assert_int_equal(w.c.limit, PS_CONCURRENCY_NEAR);
	ps_concurrency_expect(&w.c, w.now_ns, 80 * PS_NS_PER_MS);
	assert_int_equal(w.c.limit, PS_CONCURRENCY_FAR);
	assert_true(w.c.far);
	/* The first range shows that the server is near: only its listing took long. */
	ps_concurrency_first_byte(&w.c, w.now_ns, PS_NS_PER_MS);
	assert_int_equal(w.c.limit, PS_CONCURRENCY_NEAR);
	assert_int_equal(w.c.demand, PS_CONCURRENCY_START);
	assert_false(w.c.far);
	/* A later listing has no effect. */
	ps_concurrency_expect(&w.c, w.now_ns, 80 * PS_NS_PER_MS);
	assert_int_equal(w.c.limit, PS_CONCURRENCY_NEAR);
	/* After a push-back a listing does not raise the limit. */
	ps_concurrency_init(&w.c, 128);
	ps_concurrency_pushback(&w.c, 60 * PS_NS_PER_S);
	ps_concurrency_expect(&w.c, 60 * PS_NS_PER_S, 80 * PS_NS_PER_MS);
	assert_true(w.c.limit <= PS_CONCURRENCY_START);
}

static void a_far_origin_gets_no_more_connections_while_its_first_are_new(void **state)
{
	struct world w = begin(128, 40 * PS_NS_PER_MS);

	(void)state;
	run(&w, PS_CONCURRENCY_FAR_HOLD_MS - 50, 50e6, 1e12, true);
	assert_int_equal(w.c.limit, PS_CONCURRENCY_FAR);
	run(&w, 1000, 50e6, 1e12, true);
	assert_true(w.c.limit > PS_CONCURRENCY_FAR);
}

static void pushback_lowers_the_limit_for_demand_too(void **state)
{
	struct world w = begin(128, PS_NS_PER_MS / 2);

	(void)state;
	for (int i = 0; i < 5; i++) {
		w.now_ns += 60 * PS_NS_PER_S;
		ps_concurrency_pushback(&w.c, w.now_ns);
	}
	assert_int_equal(w.c.limit, 1);
	assert_int_equal(w.c.demand, 1);
}

static void the_limit_stays_within_its_bounds(void **state)
{
	struct world w = begin(20, between_ns);

	(void)state;
	run(&w, 20000, 1e6, 1e12, true);
	assert_int_equal(w.c.limit, 20);
	for (int i = 0; i < 20; i++) {
		w.now_ns += 60 * PS_NS_PER_S;
		ps_concurrency_pushback(&w.c, w.now_ns);
	}
	assert_int_equal(w.c.limit, 1);
	w = begin(0, between_ns);
	assert_int_equal(w.c.limit, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(slow_connections_are_multiplied),
	        cmocka_unit_test(a_saturated_link_gets_no_more_connections),
	        cmocka_unit_test(a_slow_reader_changes_nothing),
	        cmocka_unit_test(a_burst_of_pushback_halves_the_limit_once_and_for_a_while),
	        cmocka_unit_test(a_near_origin_gets_few_connections_and_a_far_one_many),
	        cmocka_unit_test(the_latency_of_a_listing_counts_until_a_range_is_answered),
	        cmocka_unit_test(a_far_origin_gets_no_more_connections_while_its_first_are_new),
	        cmocka_unit_test(pushback_lowers_the_limit_for_demand_too),
	        cmocka_unit_test(the_limit_stays_within_its_bounds),
	};

	return cmocka_run_group_tests_name("concurrency", tests, NULL, NULL);
}
