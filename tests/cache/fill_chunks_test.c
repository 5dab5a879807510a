/* Random readers fetch the chunks that they read, and no byte twice. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fetch/fill_private.h"
#include "index/index_private.h"
#include "prefetch/prefetch.h"
#include "tests/cache/fill_fixture.h"

#define CHUNK PS_CHUNK_SIZE

/* Waits until this many bytes are on disk. */
static void settle(struct fixture *f, uint64_t cached_nbytes)
{
	for (int i = 0; i < 1000 && ps_object_cached_nbytes(f->object) != cached_nbytes; i++)
		usleep(5000);
	assert_int_equal(ps_object_cached_nbytes(f->object), cached_nbytes);
}

static void a_random_read_fetches_its_chunks_and_no_more(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(read_random(f, 7 * PS_MIB + 5 * CHUNK + 100, 4096), 0);
	assert_int_equal(atomic_load(&f->origin->nbytes), CHUNK);
	settle(f, CHUNK);
	/* The chunk is cached. */
	assert_int_equal(read_random(f, 7 * PS_MIB + 5 * CHUNK, CHUNK), 0);
	assert_int_equal(atomic_load(&f->origin->ngets), 1);
	/* A read over the beginning of the cached chunk fetches the chunk before it only. */
	assert_int_equal(read_random(f, 7 * PS_MIB + 5 * CHUNK - 10, 20), 0);
	assert_int_equal(atomic_load(&f->origin->nbytes), 2 * CHUNK);
	/* A read over a block boundary is one request. */
	assert_int_equal(read_random(f, 9 * PS_MIB - CHUNK, 2 * CHUNK), 0);
	assert_int_equal(atomic_load(&f->origin->ngets), 3);
	assert_int_equal(atomic_load(&f->origin->nbytes), 4 * CHUNK);
	/* The end of the file is a chunk of its own. */
	assert_int_equal(read_random(f, f->nbytes - 1, 1), 0);
	assert_int_equal(atomic_load(&f->origin->nbytes), 4 * CHUNK + 12345);
	settle(f, 4 * CHUNK + 12345);
}

static void the_first_200_random_reads_of_a_gigabyte_fetch_little_more(void **state)
{
	struct fixture_options options = {.file_nbytes = 1000000000};
	struct fixture *f = fixture_new(&options);
	unsigned seed = 1;
	uint64_t nbytes = 0;
	struct ps_readahead *ra;

	(void)state;
	assert_int_equal(ps_readahead_get(f->file, &ra), 0);
	for (int i = 0; i < 200; i++) {
		uint64_t offset =
		        ((uint64_t)rand_r(&seed) << 16 ^ (uint64_t)rand_r(&seed)) % (f->nbytes - 131072);
		struct waited w;

		enum ps_access access;
		unsigned stream = ps_readahead_saw(ra, offset, 131072, &access);
		bool waited = begin_of(f, f->file, &w, access, offset, 131072);
		ps_readahead_go(ra, stream, waited);
		assert_int_equal(end(&w), 0);
		assert_true(w.right);
		nbytes += 131072;
	}
	ps_readahead_put(ra);
	print_message("# %.2f bytes fetched per byte read\n",
	        (double)atomic_load(&f->origin->nbytes) / (double)nbytes);
	assert_true(atomic_load(&f->origin->nbytes) * 10 <= nbytes * 23);
	fixture_free(f);
}

/* The reads are like those of a mapped file: for the page faults of a record the kernel reads 128 KiB at a
 * time, here three times. */
static void a_few_sequential_reads_make_no_stream(void **state)
{
	struct fixture_options options = {.file_nbytes = 1000000000};
	struct fixture *f = fixture_new(&options);
	unsigned seed = 3;
	struct ps_readahead *ra;

	(void)state;
	assert_int_equal(ps_readahead_get(f->file, &ra), 0);
	for (int i = 0; i < 100; i++) {
		uint64_t at =
		        ((uint64_t)rand_r(&seed) << 16 ^ (uint64_t)rand_r(&seed)) % (f->nbytes - 400000);

		at -= at % 4096;
		for (int k = 0; k < 3; k++, at += 131072) {
			enum ps_access access;
			struct waited w;

			unsigned stream = ps_readahead_saw(ra, at, 131072, &access);
			bool waited = begin_of(f, f->file, &w, access, at, 131072);
			ps_readahead_go(ra, stream, waited);
			assert_int_equal(end(&w), 0);
			assert_true(w.right);
		}
	}
	ps_readahead_put(ra);
	/* A record of six chunks covers parts of seven. Four records look like streams until the access
	 * pattern is known. */
	assert_true(atomic_load(&f->origin->nbytes) < 100 * 7 * CHUNK * 2);
	fixture_free(f);
}

/* The bytes requested from the origin, without those of hedged requests: on a busy machine any request may
 * be late and be hedged. */
static uint64_t fetched_nbytes(struct fixture *f)
{
	return atomic_load(&f->origin->nbytes) - atomic_load(&f->origin->fresh_nbytes);
}

/* `late`: how many requests of the stream are late. */
static void stream_after_random_readers(struct fixture *f, int late)
{
	struct ps_verify_result verified;

	for (uint64_t b = 0; b < 40; b++)
		assert_int_equal(read_random(f, b * PS_MIB + (b * 5 % 13 + 2) * CHUNK, 2 * CHUNK), 0);
	assert_int_equal(fetched_nbytes(f), 80 * CHUNK);
	settle(f, 80 * CHUNK);
	for (uint64_t at = 0; at < f->nbytes; at += PS_MIB) {
		if (at == 39 * PS_MIB) /* its first request is for two chunks: less than 1 % of all bytes */
			atomic_store(&f->origin->stall_next, late);
		assert_int_equal(read_once(f, at, PS_MIB), 0);
	}
	print_message("# %" PRIu64 " bytes by hedged requests\n", atomic_load(&f->origin->fresh_nbytes));
	assert_int_equal(fetched_nbytes(f), f->nbytes);
	settle(f, f->nbytes);
	assert_true(ps_object_complete(f->object));
	assert_int_equal(ps_store_verify(f->store, NULL, NULL, NULL, &verified), 0);
	assert_int_equal(verified.blocks, 41);
	assert_int_equal(verified.bad_blocks, 0);
}

static void a_stream_fetches_only_what_random_readers_left(void **state)
{
	stream_after_random_readers(*state, 0);
}

static void a_stream_with_a_late_request_fetches_only_that_twice(void **state)
{
	struct fixture *f = fixture_new(&(struct fixture_options){.timeout_ms = 60000});

	(void)state;
	stream_after_random_readers(f, 1);
	assert_true(atomic_load(&f->origin->fresh_nbytes) > 0);
	fixture_free(f);
}

static void a_stream_does_not_fetch_a_cached_chunk_again(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(read_random(f, 5 * PS_MIB + 7 * CHUNK, CHUNK), 0);
	settle(f, CHUNK);
	assert_int_equal(read_once(f, 5 * PS_MIB, 100), 0);
	settle(f, PS_MIB);
	assert_int_equal(atomic_load(&f->origin->ngets), 3);
	assert_int_equal(atomic_load(&f->origin->nbytes), PS_MIB);
	assert_int_equal(ps_object_block(f->object, 5), PS_BLOCK_PRESENT);
}

static void two_readers_of_a_chunk_cost_one_request(void **state)
{
	struct fixture *f = *state;
	struct waited a, b, c;

	atomic_store(&f->origin->stall_after, 100);
	begin_of(f, f->file, &a, PS_ACCESS_RANDOM, 3 * CHUNK, 4096);
	begin_of(f, f->file, &b, PS_ACCESS_RANDOM, 3 * CHUNK + 8192, 4096);
	begin_of(f, f->file, &c, PS_ACCESS_STREAM, 0, 4096); /* all other chunks of the block */
	atomic_store(&f->origin->released, true);
	assert_int_equal(end(&a) | end(&b) | end(&c), 0);
	assert_true(a.right && b.right && c.right);
	settle(f, PS_MIB);
	assert_int_equal(atomic_load(&f->origin->ngets), 3);
	assert_int_equal(atomic_load(&f->origin->nbytes), PS_MIB);
}

static void a_reader_is_answered_in_the_middle_of_a_chunk(void **state)
{
	struct fixture *f = *state;
	struct waited w, rest;

	atomic_store(&f->origin->stall_after, 20000);
	begin_of(f, f->file, &w, PS_ACCESS_RANDOM, 3 * CHUNK + 100, 19900);
	assert_int_equal(end(&w), 0);
	assert_true(w.right);
	begin_of(f, f->file, &rest, PS_ACCESS_RANDOM, 3 * CHUNK + 19990, 100);
	atomic_store(&f->origin->released, true);
	assert_int_equal(end(&rest), 0);
	assert_true(rest.right);
	assert_int_equal(atomic_load(&f->origin->ngets), 1);
}

static void waiting_reads_of_nearby_chunks_become_one_request(void **state)
{
	struct fixture_options options = {.max_connections = 1};
	struct fixture *f = fixture_new(&options);
	static struct waited first, w[6];

	(void)state;
	atomic_store(&f->origin->stall_after, 0);
	begin_of(f, f->file, &first, PS_ACCESS_RANDOM, 30 * PS_MIB, 4096);
	for (unsigned i = 0; i < PS_ARRAY_LEN(w); i++) /* every second chunk, over a block's border */
		begin_of(f, f->file, &w[i], PS_ACCESS_RANDOM, 4 * PS_MIB + (10 + 2 * i) * CHUNK, 4096);
	atomic_store(&f->origin->released, true);
	assert_int_equal(end(&first), 0);
	for (unsigned i = 0; i < PS_ARRAY_LEN(w); i++)
		assert_int_equal(end(&w[i]), 0);
	assert_int_equal(atomic_load(&f->origin->ngets), 2);
	fixture_free(f);
}

static void a_chunk_that_fails_does_not_affect_its_neighbours(void **state)
{
	struct fixture *f = *state;

	atomic_store(&f->origin->fail_next, 1);
	atomic_store(&f->origin->fail_errno, EIO);
	atomic_store(&f->origin->fail_after, 70000); /* the first of three chunks, and a part of the second */
	assert_int_equal(read_random(f, 2 * PS_MIB, 3 * CHUNK), EIO);
	assert_int_equal(read_random(f, 2 * PS_MIB + CHUNK, 10), EIO); /* fails at once, for a second */
	assert_int_equal(atomic_load(&f->origin->ngets), 1);
	assert_int_equal(read_random(f, 2 * PS_MIB, CHUNK), 0); /* the chunk that arrived is cached */
	assert_int_equal(read_random(f, 2 * PS_MIB + 3 * CHUNK, CHUNK), 0);
	assert_int_equal(atomic_load(&f->origin->ngets), 2);
	usleep((PS_FILL_FAILED_MS + 100) * 1000);
	assert_int_equal(read_random(f, 2 * PS_MIB + 50000, 3 * CHUNK), 0);
	settle(f, 4 * CHUNK);
	assert_int_equal(atomic_load(&f->origin->nbytes), 6 * CHUNK);
}

static void chunks_are_not_fetched_again_with_little_memory(void **state)
{
	struct fixture_options options = {.memory_bytes = 16 * PS_MIB, .file_nbytes = 256 * PS_MIB};
	struct fixture *f = fixture_new(&options);
	unsigned seed = 7;

	(void)state;
	for (int round = 0; round < 2; round++) {
		seed = 7;
		for (int i = 0; i < 300; i++)
			assert_int_equal(
			        read_random(f, (uint64_t)rand_r(&seed) % (f->nbytes - 4096), 4096), 0);
		usleep(50000);
		if (round == 0) {
			fixture_restart(f, &options);
		} else {
			assert_int_equal(atomic_load(&f->origin->nbytes), 0);
		}
	}
	fixture_free(f);
}

/* Writes to the data file and restarts under another boot id: cached blocks must be verified before use. */
static void cut_power(struct fixture *f)
{
	int fd = ps_object_fd(f->object);
	struct ps_index *index;
	char path[128], c;

	assert_int_equal(pread(fd, &c, 1, (off_t)(3 * PS_MIB + CHUNK)), 1);
	assert_int_equal(pwrite(fd, &c, 1, (off_t)(3 * PS_MIB + CHUNK)), 1);
	fixture_stop(f);
	snprintf(path, sizeof(path), "%s/index", f->dir);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ps_index_open_at_boot(path, 0, "another boot", &index, NULL), 0);
		ps_index_close(index);
	}
	fixture_start(f, &(struct fixture_options){0});
}

static void after_a_power_cut_a_chunk_is_served_only_if_it_is_right(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(read_random(f, 3 * PS_MIB + CHUNK, 2 * CHUNK), 0);
	assert_int_equal(read_random(f, 6 * PS_MIB, CHUNK), 0);
	settle(f, 3 * CHUNK);
	/* Flips one bit of a chunk and restores the file's times. */
	int fd = ps_object_fd(f->object);
	struct stat st;
	unsigned char c;
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(pread(fd, &c, 1, (off_t)(3 * PS_MIB + CHUNK + 7)), 1);
	c ^= 1;
	assert_int_equal(pwrite(fd, &c, 1, (off_t)(3 * PS_MIB + CHUNK + 7)), 1);
	assert_int_equal(futimens(fd, (struct timespec[2]){st.st_atim, st.st_mtim}), 0);
	cut_power(f);
	assert_int_equal(read_random(f, 3 * PS_MIB, 4 * CHUNK), 0);
	assert_int_equal(read_random(f, 6 * PS_MIB, CHUNK), 0);
	/* The bad chunk and the two that were never cached are fetched, the good one between them is not. */
	assert_int_equal(atomic_load(&f->origin->nbytes), 3 * CHUNK);
}

/* Reads an unverified block whose buffer waits for the disk. Returns how many bytes the origin gave. */
static uint64_t read_with_held_buffer(struct fixture *f)
{
	struct ps_block_buffer *held;
	struct ps_list disk;
	{
		PS_LOCK_SCOPE(&f->file->lock);
		held = ps_block_buffer_new(f->file, 3);
		assert_non_null(held);
		held->place = PS_PLACE_HELD;
	}
	assert_int_equal(read_random(f, 3 * PS_MIB + CHUNK, 100), 0);
	ps_list_init(&disk);
	{
		PS_LOCK_SCOPE(&f->file->lock);
		held->place = PS_PLACE_NONE;
		ps_block_buffer_settle(held, &disk);
	}
	ps_writeback_queue(f->fill, &disk);
	return atomic_load(&f->origin->nbytes);
}

static void an_unverified_block_whose_buffer_is_held_is_fetched(void **state)
{
	struct fixture *f = *state;
	uint64_t nbytes = 0;

	assert_int_equal(read_random(f, 3 * PS_MIB + CHUNK, CHUNK), 0);
	settle(f, CHUNK);
	/* The store verifies the block in the background, too, and may be faster. */
	for (int i = 0; i < 100 && nbytes == 0; i++) {
		cut_power(f);
		nbytes = read_with_held_buffer(f);
	}
	assert_int_equal(nbytes, CHUNK);
}

static void an_error_is_reported_although_an_earlier_chunk_stalls(void **state)
{
	struct fixture *f = *state;
	struct waited stalled;

	atomic_store(&f->origin->stall_next, 1);
	begin_of(f, f->file, &stalled, PS_ACCESS_RANDOM, 2 * PS_MIB, 100);
	while (atomic_load(&f->origin->stall_next) > 0)
		usleep(1000);
	atomic_store(&f->origin->fail_errno, EACCES);
	atomic_store(&f->origin->fail_next, 1);
	assert_int_equal(read_random(f, 2 * PS_MIB + CHUNK, 10), EACCES);
	assert_int_equal(read_random(f, 2 * PS_MIB + CHUNK - 10, 20), EACCES);
	ps_fill_cancel(f->file, &stalled.read);
	assert_int_equal(end(&stalled), ECANCELED);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(a_random_read_fetches_its_chunks_and_no_more),
	        cmocka_unit_test(the_first_200_random_reads_of_a_gigabyte_fetch_little_more),
	        cmocka_unit_test(a_few_sequential_reads_make_no_stream),
	        TEST(a_stream_fetches_only_what_random_readers_left),
	        cmocka_unit_test(a_stream_with_a_late_request_fetches_only_that_twice),
	        TEST(a_stream_does_not_fetch_a_cached_chunk_again),
	        TEST(two_readers_of_a_chunk_cost_one_request),
	        TEST(a_reader_is_answered_in_the_middle_of_a_chunk),
	        cmocka_unit_test(waiting_reads_of_nearby_chunks_become_one_request),
	        TEST(a_chunk_that_fails_does_not_affect_its_neighbours),
	        cmocka_unit_test(chunks_are_not_fetched_again_with_little_memory),
	        TEST(after_a_power_cut_a_chunk_is_served_only_if_it_is_right),
	        TEST(an_unverified_block_whose_buffer_is_held_is_fetched),
	        TEST(an_error_is_reported_although_an_earlier_chunk_stalls),
	};

	return cmocka_run_group_tests_name("fill_chunks", tests, NULL, NULL);
}
