/* The memory budget for data in flight: it hands out up to its limit, in disjoint blocks, and takes them
 * back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "fetch/budget.h"

#define NBLOCKS 33 /* not a power of two */

static void is_all(const struct ps_block_memory *buf, uint8_t value)
{
	assert_int_equal((uintptr_t)buf->data % 4096, 0);
	assert_int_equal(buf->data[0], value);
	assert_memory_equal(buf->data, buf->data + 1, PS_BLOCK_SIZE - 1);
}

static void blocks_stay_disjoint_whichever_are_returned(void **state)
{
	struct ps_budget *budget = ps_budget_new(NBLOCKS * PS_BLOCK_SIZE);
	struct ps_block_memory *bufs[NBLOCKS + 1];

	(void)state;
	assert_non_null(budget);
	assert_int_equal(ps_budget_take(budget, PS_BUDGET_DEMAND, NBLOCKS + 1, bufs), NBLOCKS);
	assert_int_equal(ps_budget_take(budget, PS_BUDGET_DEMAND, 1, bufs + NBLOCKS), 0);
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < NBLOCKS; i++)
			memset(bufs[i]->data, (int)(i + round), PS_BLOCK_SIZE);
		/* Each round returns other blocks, so that blocks in use and free ones are neighbours. */
		for (unsigned i = 0; i < NBLOCKS; i++)
			if (i * 7 % 5 > round)
				ps_block_memory_unref(bufs[i]);
		ps_budget_trim(budget);
		for (unsigned i = 0; i < NBLOCKS; i++)
			if (i * 7 % 5 <= round)
				is_all(bufs[i], (uint8_t)(i + round));
		for (unsigned i = 0; i < NBLOCKS; i++)
			if (i * 7 % 5 > round)
				assert_int_equal(ps_budget_take(budget, PS_BUDGET_DEMAND, 1, &bufs[i]), 1);
		assert_int_equal(ps_budget_take(budget, PS_BUDGET_DEMAND, 1, bufs + NBLOCKS), 0);
	}
	for (unsigned i = 0; i < NBLOCKS; i++)
		ps_block_memory_unref(bufs[i]);
	ps_budget_free(budget);
}

static void prefetch_and_read_ahead_leave_a_reserve_for_demand(void **state)
{
	struct ps_budget *budget = ps_budget_new(32 * PS_BLOCK_SIZE);
	struct ps_block_memory *bufs[32];

	(void)state;
	assert_int_equal(ps_budget_take(budget, PS_BUDGET_LATER, 32, bufs), 16);
	assert_int_equal(ps_budget_take(budget, PS_BUDGET_LATER, 1, bufs + 16), 0);
	assert_int_equal(ps_budget_take(budget, PS_BUDGET_AHEAD, 16, bufs + 16), 8);
	assert_int_equal(ps_budget_take(budget, PS_BUDGET_DEMAND, 16, bufs + 24), 8);
	for (unsigned i = 0; i < 32; i++)
		ps_block_memory_unref(bufs[i]);
	ps_budget_free(budget);
}

static void a_block_stays_in_use_until_its_last_reference_is_dropped(void **state)
{
	struct ps_budget *budget = ps_budget_new(PS_BUDGET_MIN_BLOCKS * PS_BLOCK_SIZE);
	struct ps_block_memory *bufs[PS_BUDGET_MIN_BLOCKS + 1];

	(void)state;
	assert_int_equal(
	        ps_budget_take(budget, PS_BUDGET_DEMAND, PS_BUDGET_MIN_BLOCKS, bufs), PS_BUDGET_MIN_BLOCKS);
	struct ps_block_memory *again = ps_block_memory_ref(bufs[3]);
	ps_block_memory_unref(bufs[3]);
	assert_int_equal(ps_budget_take(budget, PS_BUDGET_DEMAND, 1, bufs + PS_BUDGET_MIN_BLOCKS), 0);
	ps_block_memory_unref(again);
	assert_int_equal(ps_budget_take(budget, PS_BUDGET_DEMAND, 1, &bufs[3]), 1);
	for (unsigned i = 0; i < PS_BUDGET_MIN_BLOCKS; i++)
		ps_block_memory_unref(bufs[i]);
	ps_budget_free(budget);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(blocks_stay_disjoint_whichever_are_returned),
	        cmocka_unit_test(prefetch_and_read_ahead_leave_a_reserve_for_demand),
	        cmocka_unit_test(a_block_stays_in_use_until_its_last_reference_is_dropped),
	};

	return cmocka_run_group_tests_name("budget", tests, NULL, NULL);
}
