/* The number of connections, against origins made of arithmetic. */
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

/* Runs for so long against an origin of `each` bytes/s a connection and `all` together. */
static void run(struct world *w, uint64_t ms, double each, double all, bool saturated)
{
	for (uint64_t t = 0; t < ms * PS_NS_PER_MS; t += TICK_NS) {
		double rate = PS_MIN(each * w->c.limit, all);

		w->now_ns += TICK_NS;
		w->bytes += (uint64_t)(rate * TICK_NS / 1e9);
		ps_concurrency_tick(&w->c, w->now_ns, w->bytes, saturated);
	}
}

static struct world begin(unsigned max)
{
	struct world w = {.now_ns = PS_NS_PER_S};

	ps_concurrency_init(&w.c, max);
	return w;
}

static void limited_connections_are_multiplied(void **state)
{
	struct world w = begin(128);

	(void)state;
	run(&w, 2500, 50e6, 2e9, true);
	assert_in_range(w.c.limit, 36, 128);
	/* 2 GB/s need 40; beyond that there is no gain, and nothing stays above for long */
	run(&w, 10000, 50e6, 2e9, true);
	assert_in_range(w.c.limit, 36, 100);
}

static void a_saturated_line_gets_no_more(void **state)
{
	struct world w = begin(128);
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

static void a_lazy_reader_changes_nothing(void **state)
{
	struct world w = begin(128);

	(void)state;
	run(&w, 5000, 1e6, 1e9, false);
	assert_int_equal(w.c.limit, PS_CONCURRENCY_START);
}

static void pushback_halves_once_a_burst_and_holds(void **state)
{
	struct world w = begin(128);

	(void)state;
	for (int i = 0; i < 10; i++)
		ps_concurrency_pushback(&w.c, w.now_ns + (uint64_t)i * PS_NS_PER_MS);
	assert_int_equal(w.c.limit, PS_CONCURRENCY_START / 2);
	run(&w, PS_CONCURRENCY_PUSHBACK_MS - 1000, 1e6, 1e12, true);
	assert_int_equal(w.c.limit, PS_CONCURRENCY_START / 2);
	run(&w, 5000, 1e6, 1e12, true);
	assert_true(w.c.limit > PS_CONCURRENCY_START / 2);
}

static void stays_within_its_bounds(void **state)
{
	struct world w = begin(20);

	(void)state;
	run(&w, 20000, 1e6, 1e12, true);
	assert_int_equal(w.c.limit, 20);
	for (int i = 0; i < 20; i++) {
		w.now_ns += 60 * PS_NS_PER_S;
		ps_concurrency_pushback(&w.c, w.now_ns);
	}
	assert_int_equal(w.c.limit, 1);
	w = begin(0);
	assert_int_equal(w.c.limit, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(limited_connections_are_multiplied),
	        cmocka_unit_test(a_saturated_line_gets_no_more),
	        cmocka_unit_test(a_lazy_reader_changes_nothing),
	        cmocka_unit_test(pushback_halves_once_a_burst_and_holds),
	        cmocka_unit_test(stays_within_its_bounds),
	};

	return cmocka_run_group_tests_name("concurrency", tests, NULL, NULL);
}
