/* Verification: corruption and the effects of power cuts are found and reported, and wrong bytes are never
 * served. */
#include <errno.h>

#include "cache_test.h"

#define MIB TEST_MIB

static void fill(const char *dir, unsigned nobjects, uint64_t size)
{
	struct ps_store *store = test_store_open(dir, 0, NULL);

	for (unsigned i = 0; i < nobjects; i++) {
		struct ps_object *o = test_object(store, i, size);
		assert_int_equal(test_write_all(o), 0);
		ps_object_put(o);
	}
	ps_store_close(store);
}

static void verify_finds_nothing_in_sound_blocks(void **state)
{
	struct ps_verify_result r;

	fill(*state, 3, 2 * MIB + 7);
	struct ps_store *store = test_store_open(*state, 0, NULL);
	assert_int_equal(ps_store_verify(store, NULL, NULL, NULL, &r), 0);
	assert_int_equal(r.objects, 3);
	assert_int_equal(r.blocks, 9);
	assert_int_equal(r.nbytes, 3 * (2 * MIB + 7));
	assert_int_equal(r.bad_blocks, 0);
	assert_int_equal(r.missing_files, 0);
	ps_store_close(store);
}

static void verify_finds_a_flipped_bit_and_drops_the_block(void **state)
{
	struct ps_verify_result r;

	fill(*state, 3, 3 * MIB);
	struct ps_store *store = test_store_open(*state, 0, NULL);
	struct ps_object *o = test_object(store, 1, 3 * MIB);
	test_flip(*state, o, MIB + 5);
	assert_int_equal(ps_store_verify(store, NULL, NULL, NULL, &r), 0);
	assert_int_equal(r.bad_blocks, 1);
	assert_int_equal(ps_object_block(o, 0), PS_BLOCK_PRESENT);
	assert_int_equal(ps_object_block(o, 1), PS_BLOCK_ABSENT);
	assert_int_equal(test_stat(store, "crc_errors"), 1);
	assert_int_equal(ps_object_cached_nbytes(o), 2 * MIB);
	/* Once written again, the block is right. */
	assert_int_equal(ps_object_admit(o), 0);
	assert_int_equal(test_write(o, 1), 0);
	assert_true(test_right(o, 1));
	ps_object_put(o);
	assert_int_equal(ps_store_verify(store, NULL, NULL, NULL, &r), 0);
	assert_int_equal(r.bad_blocks, 0);
	assert_int_equal(r.blocks, 9);
	ps_store_close(store);
}

static void verify_counts_a_file_deleted_while_we_run(void **state)
{
	struct ps_verify_result r;
	char path[4096];

	fill(*state, 2, MIB);
	struct ps_store *store = test_store_open(*state, 0, NULL);
	struct ps_object *o = test_object(store, 0, MIB);
	test_data_path(o, *state, path, sizeof(path));
	ps_object_put(o);
	assert_int_equal(ps_store_commit(store), 0);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(ps_store_verify(store, NULL, NULL, NULL, &r), 0);
	assert_int_equal(r.missing_files, 1);
	assert_int_equal(r.blocks, 1);
	ps_store_close(store);
}

static uint64_t seen_done, seen_total;

static void see(void *arg, uint64_t done_nbytes, uint64_t total_nbytes)
{
	_Atomic bool *stop = arg;

	assert_true(done_nbytes > seen_done);
	seen_done = done_nbytes;
	seen_total = total_nbytes;
	if (stop && done_nbytes >= 2 * MIB)
		*stop = true;
}

static void verify_reports_progress_and_stops_on_request(void **state)
{
	struct ps_verify_result r;
	_Atomic bool stop = false;

	fill(*state, 2, 3 * MIB);
	struct ps_store *store = test_store_open(*state, 0, NULL);
	seen_done = 0;
	assert_int_equal(ps_store_verify(store, see, NULL, NULL, &r), 0);
	assert_int_equal(seen_done, 6 * MIB);
	assert_int_equal(seen_total, 6 * MIB);
	seen_done = 0;
	assert_int_equal(ps_store_verify(store, see, &stop, &stop, &r), -ECANCELED);
	assert_int_equal(r.blocks, 2);
	ps_store_close(store);
}

static void after_a_power_cut_blocks_are_checked_before_they_count(void **state)
{
	char *buf = malloc(MIB);

	fill(*state, 1, 3 * MIB);
	/* Two starts that end in a power cut follow the clean stop of fill(). */
	test_cut_the_power(*state);
	test_cut_the_power(*state);
	struct ps_store *store = test_store_open(*state, 0, NULL);
	struct ps_object *o = test_object_look(store, 0, 3 * MIB);
	for (uint64_t b = 0; b < 3; b++)
		assert_int_equal(ps_object_block(o, b), PS_BLOCK_UNVERIFIED);
	assert_false(ps_object_complete(o));
	assert_int_equal(ps_object_cached_nbytes(o), 3 * MIB);
	test_flip(*state, o, 2 * MIB);

	assert_int_equal(ps_object_verify_block(o, 0, buf), 0);
	assert_int_equal(ps_object_block(o, 0), PS_BLOCK_PRESENT);
	char *want = malloc(MIB);
	test_fill(o, 0, want);
	assert_memory_equal(buf, want, MIB);
	assert_int_equal(ps_object_verify_block(o, 2, buf), -EILSEQ);
	assert_int_equal(ps_object_block(o, 2), PS_BLOCK_ABSENT);
	assert_int_equal(ps_object_verify_block(o, 2, buf), -ENOENT);
	ps_object_put(o);
	ps_store_close(store);

	/* Verified blocks stay verified. A clean stop does not make the others verified. */
	store = test_store_open(*state, 0, NULL);
	o = test_object_look(store, 0, 3 * MIB);
	assert_int_equal(ps_object_block(o, 0), PS_BLOCK_PRESENT);
	assert_int_equal(ps_object_block(o, 1), PS_BLOCK_UNVERIFIED);
	assert_int_equal(ps_object_block(o, 2), PS_BLOCK_ABSENT);
	/* A block that is written instead of verified counts, too. */
	assert_int_equal(ps_object_admit(o), 0);
	assert_int_equal(test_write(o, 1), 0);
	assert_int_equal(test_write(o, 2), 0);
	assert_true(ps_object_complete(o));
	ps_object_put(o);
	ps_store_close(store);
	free(want);
	free(buf);
}

static void a_hole_where_a_block_should_be_is_bad(void **state)
{
	char path[4096], *buf = malloc(MIB);

	fill(*state, 1, 2 * MIB);
	test_cut_the_power(*state);
	test_cut_the_power(*state);
	struct ps_store *store = test_store_open(*state, 0, NULL);
	struct ps_object *o = test_object_look(store, 0, 2 * MIB);
	test_data_path(o, *state, path, sizeof(path));
	/* What a power cut leaves of a file whose data was not written back yet. */
	int fd = open(path, O_WRONLY);
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)MIB), 0);
	close(fd);
	assert_int_equal(ps_object_verify_block(o, 0, buf), -EILSEQ);
	assert_int_equal(ps_object_verify_block(o, 1, buf), 0);
	ps_object_put(o);
	ps_store_close(store);
	free(buf);
}

static void the_checksum_is_crc32c(void **state)
{
	struct ps_store *store = test_store_open(*state, 0, NULL);
	struct ps_remote remote = {.size = 9, .mtime_s = 0, .etag = "\"c\""};
	struct ps_object *o = NULL;
	struct ps_extent_row row;
	struct ps_id id;

	assert_int_equal(ps_object_get(store, "http://h/check", &remote, 1, true, &o), 0);
	assert_int_equal(ps_object_admit(o), 0);
	assert_int_equal(ps_object_write_block(o, 0, "123456789"), 0);
	assert_int_equal(ps_store_commit(store), 0);
	ps_object_id("http://h/check", &remote, "raw", &id);
	assert_int_equal(index_get_extent(ps_store_index(store), &id, 0, &row), 0);
	assert_int_equal(row.crc[0], 0xE3069283); /* the check value of CRC-32C/iSCSI */
	ps_object_put(o);
	ps_store_close(store);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, test_dir_setup, test_dir_teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
	        TEST(verify_finds_nothing_in_sound_blocks),
	        TEST(verify_finds_a_flipped_bit_and_drops_the_block),
	        TEST(verify_counts_a_file_deleted_while_we_run),
	        TEST(verify_reports_progress_and_stops_on_request),
	        TEST(after_a_power_cut_blocks_are_checked_before_they_count),
	        TEST(a_hole_where_a_block_should_be_is_bad),
	        TEST(the_checksum_is_crc32c),
	};

	return cmocka_run_group_tests_name("verify", tests, NULL, NULL);
}
