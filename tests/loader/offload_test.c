/* Which samples the GPU decodes, which is a pure function, and how the GPU's share is found. */
#include "config.h"

#include "batch/batch.h"

#include <errno.h>
#include <stdlib.h>

#include "make_tar.h"

static void a_larger_share_contains_a_smaller_one(void **state)
{
	const uint32_t shares[] = {
	        0, 1, 1000, 20000, PS_OFFLOAD_HALF, 60000, PS_OFFLOAD_ALL - 1, PS_OFFLOAD_ALL};
	uint32_t taken[8] = {0};

	(void)state;
	for (uint64_t i = 0; i < 20000; i++) {
		bool before = false;

		for (size_t k = 0; k < 8; k++) {
			bool takes = ps_offload_takes(shares[k], 7, i / 100, i % 100);

			assert_true(takes || !before);
			before = takes;
			taken[k] += takes;
			assert_int_equal(takes, ps_offload_takes(shares[k], 7, i / 100, i % 100));
		}
	}
	assert_int_equal(taken[0], 0);
	assert_int_equal(taken[7], 20000);
	for (size_t k = 0; k < 8; k++)
		assert_in_range(
		        taken[k] + 300, shares[k] * 20000ULL / 65536, shares[k] * 20000ULL / 65536 + 600);
}

static void another_seed_chooses_other_samples(void **state)
{
	uint32_t same = 0;

	(void)state;
	for (uint64_t i = 0; i < 10000; i++)
		same += ps_offload_takes(PS_OFFLOAD_HALF, 1, 0, i) ==
		        ps_offload_takes(PS_OFFLOAD_HALF, 2, 0, i);
	assert_in_range(same, 4700, 5300);
}

static void the_gpu_gets_one_half_until_its_share_is_frozen(void **state)
{
	const struct ps_offload given = {.share = 20000}, tuning = {.tuning = true, .share = 5};
	const struct ps_offload frozen = {.share = 20000, .epoch = 2, .batch = 10};

	(void)state;
	assert_int_equal(ps_offload_at(&given, 0, 0), 20000);
	assert_int_equal(ps_offload_at(&tuning, 9, 9), PS_OFFLOAD_HALF);
	assert_int_equal(ps_offload_at(&frozen, 1, 99), PS_OFFLOAD_HALF);
	assert_int_equal(ps_offload_at(&frozen, 2, 9), PS_OFFLOAD_HALF);
	assert_int_equal(ps_offload_at(&frozen, 2, 10), 20000);
	assert_int_equal(ps_offload_at(&frozen, 3, 0), 20000);
	assert_int_equal(ps_offload_at(&(struct ps_offload){0}, 3, 0), 0);
}

/* With the balanced share, the threads and the GPU are busy for the same time. */
static void the_balanced_share_keeps_threads_and_gpu_busy(void **state)
{
	static const struct {
		struct ps_offload_costs costs;
		uint32_t threads;
	} some[] = {{{1e-3, 1e-5, 1e-4}, 4}, {{1e-3, 2e-4, 5e-5}, 16}, {{2e-3, 1e-5, 1e-3}, 1}};

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		const struct ps_offload_costs *c = &some[i].costs;
		double share = ps_offload_balance(c, some[i].threads) / (double)PS_OFFLOAD_ALL;
		double gpu = share * c->gpu;
		double threads = ((1 - share) * c->cpu + share * c->cpu_give) / some[i].threads;

		assert_true(share > 0 && share < 1);
		assert_true(gpu > 0.999 * threads && gpu < 1.001 * threads);
	}
	/* A GPU that decodes faster than the threads can feed it gets all images. */
	assert_int_equal(ps_offload_balance(&(struct ps_offload_costs){1e-3, 1e-5, 1e-9}, 8), PS_OFFLOAD_ALL);
	/* A GPU that costs the threads more than decoding, or whose speed is not known, gets none. */
	assert_int_equal(ps_offload_balance(&(struct ps_offload_costs){1e-3, 2e-3, 1e-9}, 8), 0);
	assert_int_equal(ps_offload_balance(&(struct ps_offload_costs){1e-3, 1e-5, 0}, 8), 0);
}

static void the_share_is_frozen_when_costs_are_known_or_at_the_limit(void **state)
{
	const struct ps_offload_meter none = {0};
	const struct ps_offload_meter some = {.cpu_rows = 100,
	        .cpu_ns = 100000000,
	        .gpu_rows = 100,
	        .gpu_ns = 1000000,
	        .engine_rows = 100,
	        .timed_rows = 100,
	        .timed_ns = 20000000};
	struct ps_offload_costs costs = ps_offload_costs_of(&none, &some, PS_OFFLOAD_ROWS);
	struct ps_offload o = {.tuning = true};

	(void)state;
	assert_true(costs.cpu == 1e-3 && costs.cpu_give == 1e-5 && costs.gpu == 2e-4);
	ps_offload_settle(&o, PS_OFFLOAD_LEAST - 1, &costs, 4, 1, 5);
	assert_true(o.tuning);
	ps_offload_settle(&o, PS_OFFLOAD_LEAST, &costs, 4, 1, 5);
	assert_false(o.tuning);
	assert_int_equal(o.share, ps_offload_balance(&costs, 4));
	assert_int_equal(o.epoch, 1);
	assert_int_equal(o.batch, 5);

	o = (struct ps_offload){.tuning = true};
	costs = ps_offload_costs_of(&none, &none, PS_OFFLOAD_ROWS);
	ps_offload_settle(&o, PS_OFFLOAD_MOST - 1, &costs, 4, 0, 0);
	assert_true(o.tuning);
	ps_offload_settle(&o, PS_OFFLOAD_MOST, &costs, 4, 0, 64);
	assert_false(o.tuning);
	assert_int_equal(o.share, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_larger_share_contains_a_smaller_one),
	        cmocka_unit_test(another_seed_chooses_other_samples),
	        cmocka_unit_test(the_gpu_gets_one_half_until_its_share_is_frozen),
	        cmocka_unit_test(the_balanced_share_keeps_threads_and_gpu_busy),
	        cmocka_unit_test(the_share_is_frozen_when_costs_are_known_or_at_the_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
