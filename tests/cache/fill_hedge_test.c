/* Hedged requests: the duplicate of a late request, and the limits on duplicates. */
#include <errno.h>

#include "tests/cache/fill_fixture.h"

#define CHUNK ((uint64_t)64 * 1024)

static uint64_t stat_of(struct fixture *f, const char *name)
{
	json_t *stats = ps_fill_origin_stats(f->fill);
	uint64_t n = (uint64_t)json_integer_value(json_object_get(stats, name));

	json_decref(stats);
	return n;
}

/* Reads n chunks of the file one by one: each is a request of its own, and no chunk is read twice. */
static void read_chunks(struct fixture *f, unsigned from, unsigned n)
{
	for (unsigned i = from; i < from + n; i++)
		assert_int_equal(read_random(f, (i * 37 % 600) * CHUNK, CHUNK), 0);
}

static struct fixture *new_with_timeout(uint64_t timeout_ms)
{
	return fixture_new(&(struct fixture_options){.timeout_ms = timeout_ms});
}

static void a_late_request_is_hedged(void **state)
{
	struct fixture *f = new_with_timeout(60000);

	(void)state;
	read_chunks(f, 0, 500);
	uint64_t before = stat_of(f, "hedged_requests");
	atomic_store(&f->origin->stall_next, 1);
	read_chunks(f, 500, 1);
	assert_int_equal(atomic_load(&f->origin->stall_next), 0);
	assert_true(stat_of(f, "hedged_requests") > before);
	assert_true(stat_of(f, "hedged_bytes") > 0);
	/* No byte counts twice: at a hedge's end its received bytes replace its requested ones. */
	assert_true(stat_of(f, "hedged_bytes") <= stat_of(f, "hedged_requests") * CHUNK);
	fixture_free(f);
}

/* The origin may have replaced the object meanwhile, or a proxy may have an older version: bytes of two
 * versions are never mixed. */
static void a_hedge_answered_with_another_version_is_discarded(void **state)
{
	struct fixture *f = new_with_timeout(60000);

	(void)state;
	/* So many bytes are read first that two hedged requests are within 1 % of them. */
	struct waited w;
	struct ps_fill_file *file = another_file(f, "http://h/other");
	for (unsigned i = 0; i < 500; i++) {
		begin_of(f, file, &w, PS_ACCESS_RANDOM, i * 37 % 600 * CHUNK, CHUNK);
		assert_int_equal(end(&w), 0);
	}
	ps_fill_file_put(file);
	read_chunks(f, 0, 500);
	uint64_t before = stat_of(f, "hedged_requests");
	atomic_store(&f->origin->stall_next, 1);
	atomic_store(&f->origin->other_next, 1);
	read_chunks(f, 500, 1); /* the right bytes come from the next hedged request */
	assert_int_equal(atomic_load(&f->origin->other_next), 0);
	assert_true(stat_of(f, "hedged_requests") >= before + 2);
	fixture_free(f);
}

/* The late request covers a block of which its reader needs a part: later reads fetch the rest as usual. */
static void the_part_of_a_late_request_that_no_reader_needs_comes_later(void **state)
{
	struct fixture *f = new_with_timeout(60000);

	(void)state;
	struct ps_fill_file *other = another_file(f, "http://h/other");
	struct waited w;
	for (unsigned i = 0; i < 500; i++) {
		begin_of(f, other, &w, PS_ACCESS_RANDOM, i * 37 % 600 * CHUNK, CHUNK);
		assert_int_equal(end(&w), 0);
	}
	ps_fill_file_put(other);
	other = another_file(f, "http://h/third");
	atomic_store(&f->origin->stall_next, 1);
	begin_of(f, other, &w, PS_ACCESS_STREAM, 5 * PS_MIB, 2 * CHUNK);
	assert_int_equal(end(&w), 0);
	assert_true(w.right);
	assert_true(stat_of(f, "hedged_requests") > 0);
	for (unsigned i = 0; i < 16; i++) {
		begin_of(f, other, &w, PS_ACCESS_STREAM, 5 * PS_MIB + i * CHUNK, CHUNK);
		assert_int_equal(end(&w), 0);
		assert_true(w.right);
	}
	ps_fill_file_put(other);
	fixture_free(f);
}

/* The request covers the end of a block and the beginning of the next: each block gets its part. */
static void a_hedged_request_may_span_two_blocks(void **state)
{
	struct fixture *f = new_with_timeout(60000);
	struct waited w;

	(void)state;
	struct ps_fill_file *other = another_file(f, "http://h/other");
	for (unsigned i = 0; i < 500; i++) {
		begin_of(f, other, &w, PS_ACCESS_RANDOM, i * 37 % 600 * CHUNK, CHUNK);
		assert_int_equal(end(&w), 0);
	}
	ps_fill_file_put(other);
	other = another_file(f, "http://h/third");
	atomic_store(&f->origin->stall_next, 1);
	begin_of(f, other, &w, PS_ACCESS_RANDOM, 6 * PS_MIB - 2 * CHUNK, 4 * CHUNK);
	assert_int_equal(end(&w), 0);
	assert_true(w.right);
	assert_int_equal(stat_of(f, "hedged_requests"), 1);
	assert_int_equal(stat_of(f, "hedged_bytes"), 4 * CHUNK);
	ps_fill_file_put(other);
	fixture_free(f);
}

static void at_most_one_percent_of_the_bytes_is_requested_twice(void **state)
{
	struct fixture *f = new_with_timeout(1000);
	unsigned nfailed = 0;

	(void)state;
	read_chunks(f, 0, 210);
	for (unsigned i = 210; i < 215; i++) {
		atomic_store(&f->origin->stall_next, 1);
		nfailed += read_random(f, (i * 37 % 600) * CHUNK, CHUNK) == ETIMEDOUT;
		atomic_store(&f->origin->stall_next, 0);
		assert_true(stat_of(f, "hedged_bytes") * 100 <= stat_of(f, "bytes"));
	}
	assert_true(stat_of(f, "hedged_requests") <= 2);
	assert_true(nfailed >= 3);
	fixture_free(f);
}

static void an_origin_that_pushes_back_gets_no_hedged_requests(void **state)
{
	struct fixture *f = new_with_timeout(1000);

	(void)state;
	read_chunks(f, 0, 150);
	atomic_store(&f->origin->fail_errno, EAGAIN);
	atomic_store(&f->origin->fail_retryable, true);
	atomic_store(&f->origin->fail_next, 1);
	read_chunks(f, 150, 1);
	uint64_t before = stat_of(f, "hedged_requests");
	atomic_store(&f->origin->stall_next, 1);
	assert_int_equal(read_random(f, (151 * 37 % 600) * CHUNK, CHUNK), ETIMEDOUT);
	assert_int_equal(stat_of(f, "hedged_requests"), before);
	fixture_free(f);
}

static void a_hedge_that_is_pushed_back_is_not_followed_by_another(void **state)
{
	struct fixture *f = new_with_timeout(2000);

	(void)state;
	read_chunks(f, 0, 500);
	uint64_t before = stat_of(f, "hedged_requests");
	atomic_store(&f->origin->fail_errno, EAGAIN);
	atomic_store(&f->origin->fail_retryable, true);
	atomic_store(&f->origin->stall_next, 1);
	atomic_store(&f->origin->fail_next, 1);
	assert_int_equal(read_random(f, (500 * 37 % 600) * CHUNK, CHUNK), ETIMEDOUT);
	assert_int_equal(atomic_load(&f->origin->fail_next), 0);
	assert_int_equal(stat_of(f, "hedged_requests"), before + 1);
	fixture_free(f);
}

static void requests_are_not_hedged_when_all_are_late(void **state)
{
	struct fixture *f = new_with_timeout(1000);
	struct waited w[8];
	unsigned nfailed = 0;

	(void)state;
	read_chunks(f, 0, 450);
	uint64_t before = stat_of(f, "hedged_requests");
	atomic_store(&f->origin->stall_next, PS_ARRAY_LEN(w));
	for (unsigned i = 0; i < PS_ARRAY_LEN(w); i++)
		begin_of(f, f->file, &w[i], PS_ACCESS_RANDOM, ((450 + i) * 37 % 600) * CHUNK, CHUNK);
	for (unsigned i = 0; i < PS_ARRAY_LEN(w); i++)
		nfailed += end(&w[i]) == ETIMEDOUT;
	/* The first request may have been late before the others were. */
	assert_true(stat_of(f, "hedged_requests") <= before + 1);
	assert_true(nfailed + 1 >= PS_ARRAY_LEN(w));
	fixture_free(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_late_request_is_hedged),
	        cmocka_unit_test(a_hedge_answered_with_another_version_is_discarded),
	        cmocka_unit_test(the_part_of_a_late_request_that_no_reader_needs_comes_later),
	        cmocka_unit_test(a_hedged_request_may_span_two_blocks),
	        cmocka_unit_test(at_most_one_percent_of_the_bytes_is_requested_twice),
	        cmocka_unit_test(an_origin_that_pushes_back_gets_no_hedged_requests),
	        cmocka_unit_test(a_hedge_that_is_pushed_back_is_not_followed_by_another),
	        cmocka_unit_test(requests_are_not_hedged_when_all_are_late),
	};

	return cmocka_run_group_tests_name("fill_hedge", tests, NULL, NULL);
}
