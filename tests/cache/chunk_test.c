/* Partial blocks: chunks are stored, verified, completed to whole blocks and evicted. */
#include <errno.h>

#include "base/checksum.h"
#include "cache_test.h"

#define MIB TEST_MIB
#define KIB64 (TEST_MIB / 16)

static int write_chunks(struct ps_object *o, uint64_t block, unsigned first, unsigned n)
{
	char *buf = malloc(MIB);

	test_fill(o, block, buf);
	int rc = ps_object_write_chunks(o, block, first, n, buf + first * KIB64);
	free(buf);
	return rc;
}

static bool chunks_right(struct ps_object *o, uint64_t block, uint16_t set)
{
	char *want = malloc(MIB), *got = malloc(MIB);
	bool right = true;

	test_fill(o, block, want);
	for (unsigned c = 0; c < 16; c++) {
		uint64_t at = c * KIB64, n = PS_MIN(ps_object_block_nbytes(o, block) - at, KIB64);

		if (set >> c & 1)
			right = right &&
			        pread(ps_object_fd(o), got, n, (off_t)(block * MIB + at)) == (ssize_t)n &&
			        memcmp(got, want + at, n) == 0;
	}
	free(want);
	free(got);
	return right;
}

static void the_joined_checksum_of_parts_is_that_of_the_whole(void **state)
{
	unsigned char bytes[3000];

	(void)state;
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)(i * i >> 3);
	for (size_t cut = 0; cut <= sizeof(bytes); cut += 37)
		assert_int_equal(ps_crc32c_join(ps_crc32c(bytes, cut),
		                         ps_crc32c(bytes + cut, sizeof(bytes) - cut), sizeof(bytes) - cut),
		        ps_crc32c(bytes, sizeof(bytes)));
}

static void chunks_are_present_after_a_restart(void **state)
{
	struct ps_store *store = test_store_open(*state, 0, NULL);
	struct ps_object *o = test_object(store, 0, 2 * MIB + KIB64 + 7);

	assert_int_equal(ps_object_admit(o), 0);
	assert_int_equal(write_chunks(o, 1, 3, 2), 0);
	assert_int_equal(write_chunks(o, 1, 15, 1), 0);
	assert_int_equal(write_chunks(o, 2, 1, 1), 0);
	assert_int_equal(write_chunks(o, 2, 1, 2), -EINVAL); /* beyond the file's end */
	for (int pass = 0; pass < 2; pass++) {
		assert_int_equal(ps_object_block(o, 0), PS_BLOCK_ABSENT);
		assert_int_equal(ps_object_block(o, 1), PS_BLOCK_PARTIAL);
		assert_int_equal(ps_object_chunks(o, 1), 0x8018);
		assert_int_equal(ps_object_chunks(o, 2), 2);
		assert_int_equal(ps_object_cached_nbytes(o), 3 * KIB64 + 7);
		assert_true(chunks_right(o, 1, 0x8018) && chunks_right(o, 2, 2));
		assert_false(ps_object_complete(o));
		ps_object_put(o);
		ps_store_close(store);
		store = test_store_open(*state, 0, NULL);
		o = test_object(store, 0, 2 * MIB + KIB64 + 7);
	}
	ps_object_put(o);
	ps_store_close(store);
}

static void the_last_chunk_makes_the_block_whole(void **state)
{
	struct ps_verify_result r;
	struct ps_store *store = test_store_open(*state, 0, NULL);
	struct ps_object *o = test_object(store, 0, MIB + 3 * KIB64 + 100);

	assert_int_equal(ps_object_admit(o), 0);
	for (unsigned c = 0; c < 16; c++) {
		assert_int_equal(ps_object_block(o, 0), c == 0 ? PS_BLOCK_ABSENT : PS_BLOCK_PARTIAL);
		assert_int_equal(write_chunks(o, 0, c * 5 % 16, 1), 0);
	}
	assert_int_equal(ps_object_block(o, 0), PS_BLOCK_PRESENT);
	assert_int_equal(write_chunks(o, 1, 2, 2), 0);
	assert_int_equal(write_chunks(o, 1, 0, 2), 0);
	assert_true(ps_object_complete(o));
	assert_int_equal(ps_object_cached_nbytes(o), MIB + 3 * KIB64 + 100);
	ps_object_put(o);
	/* The checksum is joined from those of the chunks; it was never computed over the whole block. */
	assert_int_equal(ps_store_verify(store, NULL, NULL, NULL, &r), 0);
	assert_int_equal(r.blocks, 2);
	assert_int_equal(r.bad_blocks, 0);
	ps_store_close(store);
	store = test_store_open(*state, 0, NULL);
	o = test_object(store, 0, MIB + 3 * KIB64 + 100);
	assert_true(ps_object_complete(o));
	assert_true(test_right(o, 0) && test_right(o, 1));
	ps_object_put(o);
	ps_store_close(store);
}

static void a_whole_block_replaces_its_chunks(void **state)
{
	struct ps_store *store = test_store_open(*state, 0, NULL);
	struct ps_object *o = test_object(store, 0, 2 * MIB);

	assert_int_equal(ps_object_admit(o), 0);
	assert_int_equal(write_chunks(o, 0, 3, 4), 0);
	assert_int_equal(test_write(o, 0), 0);
	assert_int_equal(ps_object_block(o, 0), PS_BLOCK_PRESENT);
	assert_int_equal(ps_object_chunks(o, 0), 0xffff);
	assert_int_equal(ps_object_cached_nbytes(o), MIB);
	assert_int_equal(write_chunks(o, 0, 5, 1), 0); /* too late: nothing changes */
	assert_int_equal(ps_object_block(o, 0), PS_BLOCK_PRESENT);
	ps_object_put(o);
	ps_store_close(store);
}

static void after_a_power_cut_chunks_are_verified_before_they_count(void **state)
{
	struct ps_store *store = test_store_open(*state, 0, NULL);
	struct ps_object *o = test_object(store, 0, 2 * MIB);
	char *buf = malloc(MIB);

	assert_int_equal(ps_object_admit(o), 0);
	assert_int_equal(write_chunks(o, 0, 2, 3), 0);
	assert_int_equal(write_chunks(o, 1, 0, 2), 0);
	ps_object_put(o);
	ps_store_close(store);
	test_cut_the_power(*state);
	test_cut_the_power(*state);
	store = test_store_open(*state, 0, NULL);
	o = test_object_look(store, 0, 2 * MIB);
	assert_int_equal(ps_object_block(o, 0), PS_BLOCK_UNVERIFIED);
	assert_int_equal(ps_object_chunks(o, 0), 0);
	test_flip(*state, o, 3 * KIB64);
	assert_int_equal(ps_object_verify_block(o, 0, buf), -EILSEQ);
	assert_int_equal(ps_object_block(o, 0), PS_BLOCK_PARTIAL);
	assert_int_equal(ps_object_chunks(o, 0), 0x14);
	assert_int_equal(ps_object_verify_block(o, 0, buf), 0);

	/* New chunks do not verify their neighbours, and do not make the whole block count as verified. */
	assert_int_equal(ps_object_admit(o), 0);
	assert_int_equal(write_chunks(o, 1, 2, 14), 0);
	assert_int_equal(ps_object_block(o, 1), PS_BLOCK_UNVERIFIED);
	test_flip(*state, o, MIB + 100);
	assert_int_equal(ps_object_verify_block(o, 1, buf), -EILSEQ);
	assert_int_equal(ps_object_block(o, 1), PS_BLOCK_ABSENT);
	assert_int_equal(write_chunks(o, 1, 7, 1), 0);
	assert_int_equal(ps_object_chunks(o, 1), 0x80);
	ps_object_put(o);
	ps_store_close(store);

	store = test_store_open(*state, 0, NULL);
	o = test_object(store, 0, 2 * MIB);
	assert_int_equal(ps_object_chunks(o, 0), 0x14);
	assert_int_equal(ps_object_chunks(o, 1), 0x80);
	ps_object_put(o);
	ps_store_close(store);
	free(buf);
}

static void verify_finds_corruption_in_a_chunk(void **state)
{
	struct ps_verify_result r;
	struct ps_store *store = test_store_open(*state, 0, NULL);
	struct ps_object *o = test_object(store, 0, 3 * MIB);

	assert_int_equal(ps_object_admit(o), 0);
	assert_int_equal(write_chunks(o, 0, 2, 3), 0);
	assert_int_equal(write_chunks(o, 2, 1, 1), 0);
	test_flip(*state, o, 2 * MIB + KIB64 + 9);
	assert_int_equal(ps_store_verify(store, NULL, NULL, NULL, &r), 0);
	assert_int_equal(r.blocks, 2);
	assert_int_equal(r.nbytes, 4 * KIB64);
	assert_int_equal(r.bad_blocks, 1);
	assert_int_equal(ps_object_chunks(o, 0), 0x1c);
	assert_int_equal(ps_object_block(o, 2), PS_BLOCK_ABSENT);
	assert_int_equal(ps_object_cached_nbytes(o), 3 * KIB64);
	ps_object_put(o);
	ps_store_close(store);
}

static void chunks_are_evicted_with_their_object(void **state)
{
	uint64_t nbytes = 0;
	struct ps_store *store = test_store_open(*state, 0, NULL);
	struct ps_object *o = test_object(store, 0, 2 * MIB);

	assert_int_equal(ps_object_admit(o), 0);
	assert_int_equal(write_chunks(o, 1, 2, 3), 0);
	assert_int_equal(ps_store_commit(store), 0);
	assert_int_equal(ps_object_evict(o, &nbytes), 0);
	ps_object_put(o);
	o = test_object(store, 0, 2 * MIB);
	assert_int_equal(ps_object_block(o, 1), PS_BLOCK_ABSENT);
	assert_int_equal(ps_object_chunks(o, 1), 0);
	assert_int_equal(ps_object_cached_nbytes(o), 0);
	ps_object_put(o);
	ps_store_close(store);
	store = test_store_open(*state, 0, NULL);
	o = test_object(store, 0, 2 * MIB);
	assert_int_equal(ps_object_chunks(o, 1), 0);
	ps_object_put(o);
	ps_store_close(store);
}

static void an_object_of_partial_blocks_only_is_charged_and_kept(void **state)
{
	struct ps_store *store = test_store_open(*state, 0, NULL);
	struct ps_object *o = test_object(store, 0, 64 * MIB);

	assert_int_equal(ps_object_admit(o), 0);
	assert_int_equal(write_chunks(o, 40, 0, 1), 0);
	ps_object_put(o);
	assert_int_equal(test_stat(store, "objects"), 1);
	assert_in_range(test_stat(store, "used_bytes"), KIB64, 4 * KIB64);
	o = test_object(store, 0, 64 * MIB);
	assert_int_equal(ps_object_chunks(o, 40), 1);
	ps_object_put(o);
	ps_store_close(store);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, test_dir_setup, test_dir_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(the_joined_checksum_of_parts_is_that_of_the_whole),
	        TEST(chunks_are_present_after_a_restart),
	        TEST(the_last_chunk_makes_the_block_whole),
	        TEST(a_whole_block_replaces_its_chunks),
	        TEST(after_a_power_cut_chunks_are_verified_before_they_count),
	        TEST(verify_finds_corruption_in_a_chunk),
	        TEST(chunks_are_evicted_with_their_object),
	        TEST(an_object_of_partial_blocks_only_is_charged_and_kept),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("chunk", tests, NULL, NULL);
}
