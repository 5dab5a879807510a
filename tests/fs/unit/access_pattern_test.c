/* How files were read predicts how the next one will be read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fuse/access_pattern.h"

#define KIB 1024u
#define READ_AHEAD (4096 * KIB)

static void direct(struct ps_access_pattern *a, pid_t tid, size_t nbytes, bool mapped, int n)
{
	struct ps_handle_reads seen = {.tid = tid};

	while (n-- > 0)
		ps_access_pattern_direct_read(a, &seen, nbytes, mapped);
}

static void cached(struct ps_access_pattern *a, pid_t tid, size_t nbytes, size_t read_ahead)
{
	struct ps_handle_reads seen = {.tid = tid};

	ps_access_pattern_cached_read(a, &seen, nbytes, read_ahead);
	/* A later READ, of a grown read-ahead, is ignored. */
	ps_access_pattern_cached_read(a, &seen, 1024 * KIB, read_ahead);
}

static void the_first_file_is_expected_to_be_read_in_large_pieces(void **state)
{
	struct ps_access_pattern a = {0};

	(void)state;
	assert_int_equal(ps_access_pattern_guess(&a, 7), PS_READS_LARGE);
	assert_int_equal(ps_access_pattern_guess(&a, 0), PS_READS_LARGE);
}

static void a_few_small_reads_predict_nothing(void **state)
{
	struct ps_access_pattern a = {0};

	(void)state;
	direct(&a, 7, 512, false, 7);
	assert_int_equal(ps_access_pattern_guess(&a, 7), PS_READS_LARGE);
}

static void direct_reads_predict_the_pattern(void **state)
{
	static const struct {
		size_t nbytes;
		bool mapped;
		enum ps_access_pattern_kind kind;
	} rows[] = {
	        {512, false, PS_READS_SMALL},
	        {10 * KIB, false, PS_READS_SMALL},
	        {64 * KIB, false, PS_READS_LARGE},
	        {256 * KIB, false, PS_READS_LARGE},
	        {1024 * KIB, false, PS_READS_WHOLE},
	        {1024 * KIB, true, PS_READS_MAPPED},
	        {4 * KIB, true, PS_READS_MAPPED},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ps_access_pattern a = {0};

		direct(&a, 7, rows[i].nbytes, rows[i].mapped, 8);
		assert_int_equal(ps_access_pattern_guess(&a, 7), rows[i].kind);
		assert_int_equal(ps_access_pattern_guess(&a, 8), rows[i].kind); /* a thread not seen before */
		assert_int_equal(ps_access_pattern_guess(&a, 0), rows[i].kind);
		assert_int_equal(ps_access_pattern_reads_whole(&a, 7), rows[i].kind == PS_READS_WHOLE);
		assert_false(ps_access_pattern_reads_whole(&a, 8)); /* only of the thread itself */
		assert_false(ps_access_pattern_reads_whole(&a, 0));
	}
}

static void the_first_read_ahead_through_the_page_cache_predicts_the_pattern(void **state)
{
	struct ps_access_pattern a = {0};

	(void)state;
	cached(&a, 7, 64 * KIB, READ_AHEAD); /* for a read of 10 KiB */
	assert_int_equal(ps_access_pattern_guess(&a, 7), PS_READS_SMALL);
	cached(&a, 7, 512 * KIB, READ_AHEAD); /* of 1 MiB */
	assert_int_equal(ps_access_pattern_guess(&a, 7), PS_READS_LARGE);
	cached(&a, 7, 32 * KIB, 128 * KIB); /* of 10 KiB, where the read-ahead is the kernel's default */
	assert_int_equal(ps_access_pattern_guess(&a, 7), PS_READS_SMALL);
	cached(&a, 7, 128 * KIB, 128 * KIB);
	assert_int_equal(ps_access_pattern_guess(&a, 7), PS_READS_LARGE);
}

static void large_reads_through_the_page_cache_are_whole_until_direct_reads_show_their_size(void **state)
{
	struct ps_access_pattern a = {0};

	(void)state;
	cached(&a, 7, 512 * KIB, READ_AHEAD);
	assert_true(ps_access_pattern_reads_whole(&a, 7));
	direct(&a, 7, 128 * KIB, false, 8);
	assert_false(ps_access_pattern_reads_whole(&a, 7));
	cached(&a, 7, 512 * KIB, READ_AHEAD);
	assert_false(ps_access_pattern_reads_whole(&a, 7));
	direct(&a, 7, 1024 * KIB, false, 8);
	assert_true(ps_access_pattern_reads_whole(&a, 7));
	cached(&a, 7, 512 * KIB, READ_AHEAD);
	assert_true(ps_access_pattern_reads_whole(&a, 7));
	direct(&a, 7, 10 * KIB, false, 8);
	cached(&a, 7, 512 * KIB, READ_AHEAD); /* not taken for whole again: reads of 40 KiB look like this */
	assert_false(ps_access_pattern_reads_whole(&a, 7));
}

static void each_thread_has_its_own_pattern(void **state)
{
	struct ps_access_pattern a = {0};

	(void)state;
	direct(&a, 7, 512, false, 8);
	direct(&a, 8, 1024 * KIB, false, 8);
	assert_int_equal(ps_access_pattern_guess(&a, 7), PS_READS_SMALL);
	assert_int_equal(ps_access_pattern_guess(&a, 8), PS_READS_WHOLE);
}

static void a_thread_that_maps_is_expected_to_map_again(void **state)
{
	struct ps_access_pattern a = {0};

	(void)state;
	direct(&a, 7, 1024 * KIB, true, 8);
	cached(&a, 7, 1024 * KIB, READ_AHEAD); /* a mapping's read-ahead looks like a large read's */
	assert_int_equal(ps_access_pattern_guess(&a, 7), PS_READS_MAPPED);
	cached(&a, 8, 1024 * KIB, READ_AHEAD);
	assert_int_equal(ps_access_pattern_guess(&a, 8), PS_READS_WHOLE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(the_first_file_is_expected_to_be_read_in_large_pieces),
	        cmocka_unit_test(a_few_small_reads_predict_nothing),
	        cmocka_unit_test(direct_reads_predict_the_pattern),
	        cmocka_unit_test(the_first_read_ahead_through_the_page_cache_predicts_the_pattern),
	        cmocka_unit_test(
	                large_reads_through_the_page_cache_are_whole_until_direct_reads_show_their_size),
	        cmocka_unit_test(each_thread_has_its_own_pattern),
	        cmocka_unit_test(a_thread_that_maps_is_expected_to_map_again),
	};

	return cmocka_run_group_tests_name("access_pattern", tests, NULL, NULL);
}
