/* How bench computes idle times, quantiles and the bottleneck from a consumer's steps. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench_step.h"

static int nothing_drain(struct ps_bench_step *step, struct penstock_error *error)
{
	(void)step;
	(void)error;
	return 0;
}

static void nothing_free(struct ps_bench_step *step)
{
	free(step);
}

static const struct ps_bench_step_ops nothing = {.drain = nothing_drain, .free = nothing_free};

/* n steps of 10 ms, each after `gap` ms of waiting and with `copy` ms of copying; the first 10 wait 1000
 * ms. */
static struct ps_bench_idle idle_of(size_t n, float gap, float copy)
{
	struct ps_bench_step *s = calloc(1, sizeof(*s));
	struct penstock_error error;
	struct ps_bench_idle idle;

	assert_non_null(s);
	*s = (struct ps_bench_step){.ops = &nothing, .asked_ms = 10, .alone_ms = 8};
	for (size_t i = 0; i < n; i++)
		assert_true(ps_bench_step_add(
		        s, (struct ps_bench_cut){.gap = i < 10 ? 1000 : gap, .copy = copy, .busy = 10}));
	assert_int_equal(ps_bench_step_end(s, &idle, &error), 0);
	ps_bench_step_free(s);
	return idle;
}

static void idle_times_exclude_the_warm_up(void **unused)
{
	const struct ps_bench_idle i = idle_of(1010, 2, 3);

	(void)unused;
	assert_int_equal(i.steps, 1000);
	assert_true(i.seconds > 14.9 && i.seconds < 15.1);
	assert_true(i.gap > 1.99 && i.gap < 2.01);
	assert_true(i.copy > 2.99 && i.copy < 3.01);
	assert_true(i.beside_ms == 10 && i.alone_ms == 8);
	assert_int_equal(idle_of(20, 0, 0).steps, 10);
	assert_int_equal(idle_of(7, 0, 0).steps, 4);
	assert_int_equal(idle_of(0, 0, 0).steps, 0);
}

static void quantiles_do_not_need_sorted_values(void **unused)
{
	float values[] = {5, 1, 4, 2, 3}, one[] = {7};

	(void)unused;
	assert_true(ps_bench_quantile(values, 5, 0.5) == 3);
	assert_true(ps_bench_quantile(values, 5, 0.99) == 5);
	assert_true(ps_bench_quantile(values, 5, 0) == 1);
	assert_true(ps_bench_quantile(one, 1, 0.99) == 7);
}

static const char *bottleneck(float gap, float copy, double storage, double read, double decode)
{
	const struct ps_bench_idle idle = idle_of(100, gap, copy);
	struct penstock_stats s = {
	        .samples = 1, .wait_storage = storage, .wait_read = read, .wait_decode = decode};

	s.stages[2] = (struct penstock_stage){.name = "consumer", .busy = 99, .waiting_input = 1};
	ps_bench_step_judge(&idle, &s);
	assert_true(s.stages[2].busy == 99); /* measured values do not change */
	assert_true(s.advice[0]);
	return s.bottleneck;
}

static void the_bottleneck_is_the_stage_the_consumer_waited_for(void **unused)
{
	(void)unused;
	assert_string_equal(bottleneck(0.05F, 0.04F, 1, 1, 1), "consumer");
	assert_string_equal(bottleneck(1, 2, 1, 1, 1), "copy");
	assert_string_equal(bottleneck(2, 1, 0.1, 0.1, 1), "decode");
	assert_string_equal(bottleneck(2, 1, 1, 0.1, 0.1), "storage");
	assert_string_equal(bottleneck(0.2F, 0, 0.1, 1, 0.1), "read"); /* a loss of 2 % is enough */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(idle_times_exclude_the_warm_up),
	        cmocka_unit_test(quantiles_do_not_need_sorted_values),
	        cmocka_unit_test(the_bottleneck_is_the_stage_the_consumer_waited_for),
	};

	return cmocka_run_group_tests_name("bench step", tests, NULL, NULL);
}
