/* Checksums that origins give: an object's checksum is compared when the object is complete; an object that
 * does not match is evicted. */
#include <errno.h>

#include "cache_test.h"

#define MIB TEST_MIB
#define SIZE (3 * MIB + 7)
#define RETRY_MS 300

static struct ps_store *open_store(const char *dir, uint64_t limit)
{
	char path[4096];
	struct ps_store *store = NULL;
	struct ps_error err = {0};
	struct ps_store_options options = {
	        .dir = path, .limit_bytes = limit, .min_free_bytes = 1, .checksum_retry_ms = RETRY_MS};

	snprintf(path, sizeof(path), "%s/cache", dir);
	if (ps_store_open(&options, &store, &err) < 0)
		fail_msg("%s", err.text);
	return store;
}

/* The checksum of the object's right bytes. */
static void right_sum(struct ps_object *o, char ret[static PS_CHECKSUM_LEN])
{
	struct ps_checksum sum;
	char *buf = malloc(MIB);

	assert_int_equal(ps_checksum_init(&sum, "crc64nvme:0000000000000000", ps_object_size(o)), 0);
	for (uint64_t b = 0; b < ps_object_nblocks(o); b++) {
		test_fill(o, b, buf);
		ps_checksum_update(&sum, buf, ps_object_block_nbytes(o, b));
	}
	(void)ps_checksum_final(&sum, ret);
	ps_checksum_fini(&sum);
	free(buf);
}

static enum ps_sum wait_for_sum(struct ps_object *o)
{
	for (int i = 0; i < 2000 && ps_object_sum(o) == PS_SUM_PENDING; i++)
		usleep(5000);
	return ps_object_sum(o);
}

static const char wrong[] = "sha256:0000000000000000000000000000000000000000000000000000000000000000";

static void a_matching_object_is_passed_through_and_remembered(void **state)
{
	struct ps_store *store = open_store(*state, 1024 * MIB);
	struct ps_object *o = test_object(store, 1, SIZE);
	char sum[PS_CHECKSUM_LEN];

	right_sum(o, sum);
	ps_object_expect(o, sum, true);
	assert_int_equal(ps_object_sum(o), PS_SUM_PENDING);
	assert_int_equal(ps_object_pass_fd(o), -1);
	assert_int_equal(test_write_all(o), 0);
	assert_int_equal(wait_for_sum(o), PS_SUM_MATCHED);
	assert_true(ps_object_pass_fd(o) >= 0);
	ps_object_put(o);
	ps_store_close(store);

	store = open_store(*state, 1024 * MIB);
	o = test_object(store, 1, SIZE);
	ps_object_expect(o, sum, true);
	assert_int_equal(ps_object_sum(o), PS_SUM_MATCHED);
	assert_true(ps_object_pass_fd(o) >= 0);
	/* By now the origin lists another checksum. */
	ps_object_expect(o, wrong, true);
	assert_int_equal(ps_object_pass_fd(o), -1);
	assert_int_equal(wait_for_sum(o), PS_SUM_CORRUPT);
	ps_object_put(o);
	ps_store_close(store);
}

static void a_checksum_is_replaced_only_by_a_sure_one(void **state)
{
	struct ps_store *store = open_store(*state, 1024 * MIB);
	struct ps_object *o = test_object(store, 1, SIZE);
	char sum[PS_CHECKSUM_LEN];

	right_sum(o, sum);
	ps_object_expect(o, "md4:12", true); /* an unknown form */
	assert_int_equal(ps_object_sum(o), PS_SUM_NONE);
	ps_object_expect(o, sum, false);
	assert_int_equal(ps_object_sum(o), PS_SUM_PENDING);
	ps_object_expect(o, wrong, false);
	assert_int_equal(test_write_all(o), 0);
	assert_int_equal(wait_for_sum(o), PS_SUM_MATCHED);
	ps_object_put(o);
	ps_store_close(store);
}

static void a_mismatching_object_is_evicted_and_refused_for_longer_each_time(void **state)
{
	struct ps_store *store = open_store(*state, 1024 * MIB);
	struct ps_refusal refusal;
	uint64_t last = 0;

	for (int i = 0; i < 2; i++) {
		struct ps_object *o = test_object(store, 1, SIZE);

		ps_object_expect(o, wrong, true);
		assert_int_equal(test_write_all(o), 0);
		assert_int_equal(wait_for_sum(o), PS_SUM_CORRUPT);
		assert_true(ps_object_corrupt(o));
		assert_true(ps_object_refusal(o, &refusal));
		assert_true(refusal.now);
		assert_true(refusal.nodes_below > last);
		assert_non_null(strstr(refusal.text, wrong));
		last = refusal.nodes_below;
		for (int k = 0; k < 2000 && test_stat(store, "objects") > 0; k++)
			usleep(5000);
		assert_int_equal(test_stat(store, "objects"), 0);
		ps_object_put(o);
		o = test_object(store, 1, SIZE);
		assert_false(ps_object_corrupt(o));
		assert_int_equal(ps_object_cached_nbytes(o), 0);
		while (ps_object_refusal(o, &refusal) && refusal.now)
			usleep(5000);
		assert_true(ps_object_refusal(o, &refusal));
		ps_object_put(o);
	}
	assert_int_equal(test_stat(store, "checksum_errors"), 2);
	ps_store_close(store);
}

static void an_object_is_compared_again_after_a_block_was_dropped(void **state)
{
	struct ps_store *store = open_store(*state, 1024 * MIB);
	struct ps_object *o = test_object(store, 1, SIZE);
	char sum[PS_CHECKSUM_LEN], *buf = malloc(MIB);
	struct ps_verify_result r;

	right_sum(o, sum);
	ps_object_expect(o, sum, true);
	assert_int_equal(test_write_all(o), 0);
	assert_int_equal(wait_for_sum(o), PS_SUM_MATCHED);
	test_flip(*state, o, MIB + 5);
	assert_int_equal(ps_store_verify(store, NULL, NULL, NULL, &r), 0);
	assert_int_equal(r.bad_blocks, 1);
	assert_int_equal(ps_object_sum(o), PS_SUM_PENDING);
	/* Other bytes replace the dropped block. */
	memset(buf, 'x', MIB);
	assert_int_equal(ps_object_admit(o), 0);
	assert_int_equal(ps_object_write_block(o, 1, buf), 0);
	assert_int_equal(wait_for_sum(o), PS_SUM_CORRUPT);
	free(buf);
	ps_object_put(o);
	ps_store_close(store);
}

/* The object is cached by extents, and all of it is present. */
static void a_large_object_is_compared_if_it_is_complete(void **state)
{
	struct ps_store *store = open_store(*state, 100 * MIB);
	struct ps_object *o = test_object(store, 1, 70 * MIB);
	char sum[PS_CHECKSUM_LEN];

	right_sum(o, sum);
	ps_object_expect(o, sum, true);
	assert_int_equal(test_write_all(o), 0);
	assert_int_equal(wait_for_sum(o), PS_SUM_MATCHED);
	ps_object_expect(o, wrong, true);
	assert_int_equal(wait_for_sum(o), PS_SUM_CORRUPT);
	for (int k = 0; k < 2000 && test_stat(store, "objects") > 0; k++)
		usleep(5000);
	assert_int_equal(test_stat(store, "objects"), 0);
	ps_object_put(o);
	for (int k = 0; k < 2000 && test_stat(store, "used_bytes") > 0; k++)
		usleep(5000);
	assert_int_equal(test_stat(store, "used_bytes"), 0);
	ps_store_close(store);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, test_dir_setup, test_dir_teardown)
	const struct CMUnitTest tests[] = {
	        TEST(a_matching_object_is_passed_through_and_remembered),
	        TEST(a_checksum_is_replaced_only_by_a_sure_one),
	        TEST(a_mismatching_object_is_evicted_and_refused_for_longer_each_time),
	        TEST(an_object_is_compared_again_after_a_block_was_dropped),
	        TEST(a_large_object_is_compared_if_it_is_complete),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
