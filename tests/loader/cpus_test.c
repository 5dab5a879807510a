#include "config.h"

#include "base/cpus.h"

#include <sched.h>

#include "base/cleanup.h"
#include "make_tar.h"

static void quotas_are_rounded_up_to_cpus(void **state)
{
	static const struct {
		const char *line;
		uint32_t cpus;
	} rows[] = {
	        {"max 100000\n", 0},
	        {"100000 100000\n", 1},
	        {"150000 100000\n", 2},
	        {"10000 100000\n", 1},
	        {"1600000 100000\n", 16},
	        {"0 100000\n", 0},
	        {"-1 100000\n", 0},
	        {"100000 0\n", 0},
	        {"100000", 0},
	        {"", 0},
	};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++)
		assert_int_equal(ps_cpus_parse_max(rows[i].line), rows[i].cpus);
}

static void usable_cpus_follow_affinity_and_local_world_size(void **state)
{
	cpu_set_t old, one;
	int first = 0;

	(void)state;
	unsetenv("LOCAL_WORLD_SIZE");
	assert_int_equal(sched_getaffinity(0, sizeof(old), &old), 0);
	assert_true(ps_cpus_usable() <= (uint32_t)CPU_COUNT(&old));
	setenv("LOCAL_WORLD_SIZE", "100000", 1);
	assert_int_equal(ps_cpus_usable(), 1);
	setenv("LOCAL_WORLD_SIZE", "nonsense", 1);
	assert_true(ps_cpus_usable() >= 1);
	unsetenv("LOCAL_WORLD_SIZE");
	while (!CPU_ISSET(first, &old))
		first++;
	CPU_ZERO(&one);
	CPU_SET(first, &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	assert_int_equal(ps_cpus_usable(), 1);
	assert_int_equal(sched_setaffinity(0, sizeof(old), &old), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(quotas_are_rounded_up_to_cpus),
	        cmocka_unit_test(usable_cpus_follow_affinity_and_local_world_size),
	};
	return cmocka_run_group_tests_name("cpus", tests, NULL, NULL);
}
