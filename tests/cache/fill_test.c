/* The fetch engine with a real store and the pattern origin. */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <stdlib.h>
#include <unistd.h>

#include "fetch/fill_private.h"
#include "prefetch/prefetch.h"
#include "tests/cache/fill_fixture.h"

/* Less than the file: most of the file is streamed. */
#define TINY_CACHE_NBYTES (4 * PS_MIB)

static int setup_tiny_cache(void **state)
{
	*state = fixture_new(&(struct fixture_options){.cache_bytes = TINY_CACHE_NBYTES});
	return 0;
}

/* No reader ever times out. */
static int setup_patient(void **state)
{
	alarm(600);
	*state = fixture_new(&(struct fixture_options){.timeout_ms = 3600000});
	return 0;
}

static int setup_paced(void **state)
{
	*state = fixture_new(&(struct fixture_options){.max_bytes_per_s = 100 * PS_MIB});
	return 0;
}

/* Checks how many bytes the origin gave. On a very busy machine a request may be late and be hedged: each
 * hedged request asks for at most a block again. */
static void assert_origin_gave(const struct fixture *f, uint64_t nbytes)
{
	uint64_t hedged = atomic_load(&f->fill->origin.hedged_requests),
	         gave = atomic_load(&f->origin->nbytes);

	assert_in_range(gave, nbytes, nbytes + hedged * PS_MIB);
}

static void reads_give_the_origin_s_bytes(void **state)
{
	struct fixture *f = *state;

	for (uint64_t at = 0; at < FIXTURE_FILE_NBYTES; at += 700000)
		assert_int_equal(read_once(f, at, 1000000), 0);
	assert_int_equal(read_once(f, FIXTURE_FILE_NBYTES - 1, 1), 0);
	assert_origin_gave(f, FIXTURE_FILE_NBYTES);
}

static uint64_t ready_bytes(const struct ps_read_stats *stats)
{
	return atomic_load(&stats->counters.ready_bytes);
}

static void cached_bytes_are_found_without_a_waiting_read(void **state)
{
	struct fixture *f = *state;
	struct ps_read_stats stats;
	struct ps_read_bytes bytes;
	bool in_memory;

	ps_read_stats_init(&stats);
	assert_false(ps_fill_find(f->file, 5000, 100000, &stats, &bytes));
	assert_int_equal(f->origin->ngets, 0);
	assert_int_equal(read_once(f, 0, PS_MIB), 0);
	assert_true(ps_fill_find(f->file, 5000, 100000, &stats, &bytes));
	assert_true(segments_right(bytes.segs, bytes.nsegs, 5000, 105000, &in_memory));
	ps_fill_found_put(&bytes);
	assert_false(ps_fill_find(f->file, PS_MIB - 5000, 10000, &stats, &bytes));
	assert_int_equal(f->origin->ngets, 1);
	assert_int_equal(ready_bytes(&stats), 100000);
	assert_int_equal(ready_bytes(&f->fill->reads), 100000);
	ps_read_stats_fini(&stats);
}

static void two_readers_of_a_block_cost_one_request(void **state)
{
	struct fixture *f = *state;
	struct waited a, b;

	atomic_store(&f->origin->stall_after, 0);
	begin(f, &a, 0, 4096);
	begin(f, &b, 100000, 4096);
	atomic_store(&f->origin->released, true);
	assert_int_equal(end(&a), 0);
	assert_int_equal(end(&b), 0);
	assert_true(a.right && b.right);
	assert_int_equal(atomic_load(&f->origin->ngets), 1);
}

static void *random_reader(void *arg)
{
	struct fixture *f = arg;
	unsigned seed = (unsigned)(uintptr_t)&seed;

	for (int i = 0; i < 200; i++) {
		uint64_t offset =
		        (((uint64_t)rand_r(&seed) << 16) ^ (uint64_t)rand_r(&seed)) % FIXTURE_FILE_NBYTES;

		if (read_once(f, offset, 1 + (size_t)rand_r(&seed) % 300000) != 0)
			return f;
	}
	return NULL;
}

static void eight_random_readers_fetch_each_block_once(void **state)
{
	struct fixture *f = *state;
	pthread_t threads[8];
	void *failed;

	for (int i = 0; i < 8; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, random_reader, f), 0);
	for (int i = 0; i < 8; i++) {
		pthread_join(threads[i], &failed);
		assert_null(failed);
	}
	assert_true(atomic_load(&f->origin->nbytes) <= FIXTURE_FILE_NBYTES);
}

static void a_reader_is_answered_before_the_request_ends(void **state)
{
	struct fixture *f = *state;
	struct waited w;

	atomic_store(&f->origin->stall_after, 300000);
	begin(f, &w, 1000, 200000);
	assert_int_equal(end(&w), 0);
	assert_true(w.right);
	begin(f, &w, 400000, 1000); /* bytes that have not come yet */
	atomic_store(&f->origin->released, true);
	assert_int_equal(end(&w), 0);
	assert_true(w.right);
}

static void a_retry_resumes_where_the_body_broke(void **state)
{
	struct fixture *f = *state;

	atomic_store(&f->origin->fail_next, 2);
	atomic_store(&f->origin->fail_errno, EIO);
	atomic_store(&f->origin->fail_retryable, true);
	atomic_store(&f->origin->fail_after, 400000);
	assert_int_equal(read_once(f, 0, PS_MIB), 0);
	assert_int_equal(atomic_load(&f->origin->ngets), 3);
	/* 1 MiB, and in two retries what was then still missing */
	assert_int_equal(atomic_load(&f->origin->nbytes), 3 * PS_MIB - 400000 - 800000);
}

static void an_answer_that_ends_early_is_an_error(void **state)
{
	struct fixture *f = *state;
	char text[PS_ERROR_TEXT_LEN];

	atomic_store(&f->origin->fail_next, 1000);
	atomic_store(&f->origin->fail_after, 0);
	assert_int_equal(read_once(f, 0, 4096), ETIMEDOUT);
	ps_fill_file_error(f->file, text, sizeof(text));
	if (!strstr(text, "the origin ended ") || !strstr(text, " bytes early"))
		fail_msg("%s", text);
}

static void an_error_after_the_last_byte_has_no_effect(void **state)
{
	struct fixture *f = *state;

	/* The transfer of a block delivers all bytes and then fails. Every other time it is the file's last
	 * block, which is short. */
	for (int i = 0; i < 4; i++) {
		atomic_store(&f->origin->fail_next, 1);
		atomic_store(&f->origin->fail_errno, i % 2 ? EPROTO : EIO);
		atomic_store(&f->origin->fail_retryable, i >= 2);
		atomic_store(&f->origin->fail_after, SIZE_MAX);
		uint64_t block = i % 2 ? 7u + (unsigned)i : FIXTURE_FILE_NBYTES / PS_MIB;
		assert_int_equal(read_once(f, block * PS_MIB + 100, 4096), 0);
		usleep(30000);
		uint64_t ignored;
		assert_int_equal(ps_object_evict(f->object, &ignored), 0);
		assert_int_equal(read_once(f, block * PS_MIB + 5000, 4096), 0);
	}
	assert_int_equal(atomic_load(&f->origin->ngets), 3);
}

static void a_refusal_is_not_retried_and_answers_at_once_for_a_second(void **state)
{
	struct fixture *f = *state;

	atomic_store(&f->origin->fail_next, 100);
	atomic_store(&f->origin->fail_errno, EACCES);
	assert_int_equal(read_once(f, 0, 4096), EACCES);
	assert_int_equal(read_once(f, 0, 4096), EACCES);
	assert_int_equal(atomic_load(&f->origin->ngets), 1);
	atomic_store(&f->origin->fail_next, 0);
	usleep((PS_FILL_FAILED_MS + 100) * 1000);
	assert_int_equal(read_once(f, 0, 4096), 0);
}

static void a_stalled_origin_times_out_once_and_then_fails_at_once(void **state)
{
	struct fixture *f = *state;
	struct waited w;
	uint64_t start = ps_clock_mono_ns();

	atomic_store(&f->origin->stall_after, 0);
	begin(f, &w, 0, 4096);
	assert_int_equal(end(&w), ETIMEDOUT);
	uint64_t took_ms = (w.answered_ns - start) / PS_NS_PER_MS;
	assert_true(took_ms >= TIMEOUT_MS && took_ms < TIMEOUT_MS + 1000);
	start = ps_clock_mono_ns();
	assert_int_equal(read_once(f, 4096, 4096), ETIMEDOUT);
	assert_true((ps_clock_mono_ns() - start) / PS_NS_PER_MS < 500);
}

static void cancel_answers_a_waiting_read(void **state)
{
	struct fixture *f = *state;
	struct waited w;

	atomic_store(&f->origin->stall_after, 0);
	begin(f, &w, 0, 4096);
	ps_fill_cancel(f->file, &w.read);
	assert_int_equal(end(&w), ECANCELED);
	ps_fill_cancel(f->file, &w.read); /* no effect */
}

static void a_changed_object_serves_its_old_bytes_or_estale(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(read_once(f, 0, 4096), 0);
	atomic_store(&f->origin->fail_next, 1);
	atomic_store(&f->origin->fail_errno, ESTALE);
	assert_int_equal(read_once(f, 5 * PS_MIB, 4096), ESTALE);
	assert_true(ps_fill_file_doubted(f->file));
	assert_int_equal(read_once(f, 100, 4096), 0);
	usleep((PS_FILL_FAILED_MS + 100) * 1000);
	assert_int_equal(read_once(f, 5 * PS_MIB, 4096), ESTALE);
	assert_int_equal(read_once(f, 9 * PS_MIB, 4096), ESTALE);
}

/* Reports a read to the read-ahead, as a handle does. */
static void look_ahead(struct ps_readahead *ra, uint64_t offset, uint64_t nbytes, bool waited)
{
	enum ps_access access;

	ps_readahead_go(ra, ps_readahead_saw(ra, offset, nbytes, &access), waited);
}

static void bytes_that_the_cache_cannot_take_are_streamed(void **state)
{
	struct fixture *f = *state;
	struct ps_readahead *ra;

	assert_int_equal(ps_readahead_get(f->file, &ra), 0);
	for (uint64_t at = 0; at < FIXTURE_FILE_NBYTES; at += 131072) {
		assert_int_equal(read_once(f, at, 131072), 0);
		look_ahead(ra, at, 131072, true);
	}
	ps_readahead_put(ra);
	assert_true(ps_object_cached_nbytes(f->object) <= TINY_CACHE_NBYTES);
	/* Held blocks are dropped early only if memory is short. */
	assert_true(atomic_load(&f->origin->nbytes) < FIXTURE_FILE_NBYTES * 5 / 4);
}

static void sequential_reads_become_few_long_requests(void **state)
{
	struct fixture *f = *state;
	struct ps_readahead *ra;

	assert_int_equal(ps_readahead_get(f->file, &ra), 0);
	for (uint64_t at = 0; at < FIXTURE_FILE_NBYTES; at += 131072) {
		struct waited w;

		bool waited = begin(f, &w, at, 131072);
		look_ahead(ra, at, 131072, waited);
		assert_int_equal(end(&w), 0);
		assert_true(w.right);
	}
	ps_readahead_put(ra);
	assert_origin_gave(f, FIXTURE_FILE_NBYTES);
	assert_true(atomic_load(&f->origin->ngets) < 41);
}

static void random_reads_fetch_only_their_blocks(void **state)
{
	struct fixture *f = *state;
	static const uint64_t blocks[] = {30, 7, 21, 2, 38, 14};
	struct ps_readahead *ra;

	assert_int_equal(ps_readahead_get(f->file, &ra), 0);
	for (size_t i = 0; i < PS_ARRAY_LEN(blocks); i++) {
		assert_int_equal(read_once(f, blocks[i] * PS_MIB + 5000, 4096), 0);
		look_ahead(ra, blocks[i] * PS_MIB + 5000, 4096, true);
	}
	ps_readahead_put(ra);
	usleep(100000);
	assert_int_equal(atomic_load(&f->origin->nbytes), PS_ARRAY_LEN(blocks) * PS_MIB);
}

static void warming_fetches_the_whole_file(void **state)
{
	struct fixture *f = *state;

	ps_fill_warm(f->file);
	for (int i = 0; i < 3000 && !ps_object_complete(f->object); i++)
		usleep(20000);
	assert_true(ps_object_complete(f->object));
	assert_origin_gave(f, FIXTURE_FILE_NBYTES);
	assert_true(atomic_load(&f->origin->max_asked) > PS_MIB);
}

static void a_stalled_file_leaves_connections_to_others(void **state)
{
	struct fixture *f = *state;
	struct ps_fill_file *other = another_file(f, "http://pattern/y.tar");
	static struct waited stuck[30];
	struct waited w;

	atomic_store(&f->origin->stall_url, "http://pattern/x.tar");
	atomic_store(&f->origin->stall_after, 0);
	ps_fill_warm(f->file);
	for (unsigned i = 0; i < PS_ARRAY_LEN(stuck); i++)
		begin(f, &stuck[i], i * PS_MIB, 4096);
	uint64_t start = ps_clock_mono_ns();
	begin_of(f, other, &w, PS_ACCESS_STREAM, 5 * PS_MIB, 4096);
	assert_int_equal(end(&w), 0);
	assert_true(w.right);
	assert_true((ps_clock_mono_ns() - start) / PS_NS_PER_MS < 1000);
	atomic_store(&f->origin->released, true);
	for (unsigned i = 0; i < PS_ARRAY_LEN(stuck); i++)
		end(&stuck[i]);
	ps_fill_file_put(other);
}

/* Starts reads of a chunk each. The first of them take all connections that one file may have, and stall. */
#define NBLOCKED 30
static void begin_blocked(struct fixture *f, struct waited *blocked)
{
	atomic_store(&f->origin->stall_after, 0);
	for (unsigned i = 0; i < NBLOCKED; i++)
		begin_of(f, f->file, &blocked[i], PS_ACCESS_RANDOM, i * PS_MIB, 4096);
}

static void release(struct fixture *f)
{
	atomic_store(&f->origin->released, true);
	atomic_store(&f->origin->stall_after, SIZE_MAX);
}

static void a_block_written_by_others_answers_waiting_reads(void **state)
{
	struct fixture *f = *state;
	static struct waited blocked[NBLOCKED];
	static uint8_t block[PS_BLOCK_SIZE] __attribute__((aligned(4096)));

	begin_blocked(f, blocked);
	for (unsigned i = 0; i < PS_MIB; i++)
		block[i] = ps_pattern_byte((NBLOCKED - 1) * PS_MIB + i);
	assert_int_equal(ps_object_admit(f->object), 0);
	assert_int_equal(ps_object_write_block(f->object, NBLOCKED - 1, block), 0);
	release(f);
	for (unsigned i = 0; i < NBLOCKED; i++)
		assert_int_equal(end(&blocked[i]), 0);
	assert_false(blocked[NBLOCKED - 1].in_memory);
	assert_true(blocked[NBLOCKED - 1].right);
	assert_int_equal(atomic_load(&f->origin->ngets), NBLOCKED - 1);
}

/* A decompressing origin reports what it decoded and stored beyond the requested range. */
static void a_block_reported_as_stored_answers_waiting_reads_at_once(void **state)
{
	struct fixture *f = *state;
	static struct waited blocked[NBLOCKED];
	static uint8_t block[PS_BLOCK_SIZE] __attribute__((aligned(4096)));

	begin_blocked(f, blocked);
	for (unsigned i = 0; i < PS_MIB; i++)
		block[i] = ps_pattern_byte((NBLOCKED - 1) * PS_MIB + i);
	assert_int_equal(ps_object_admit(f->object), 0);
	assert_int_equal(ps_object_write_block(f->object, NBLOCKED - 1, block), 0);
	/* Reports the preceding block: no read of the stored block is answered. */
	ps_fill_stored(f->fill, f->object, (NBLOCKED - 2) * PS_MIB, (NBLOCKED - 1) * PS_MIB);
	assert_false(blocked[NBLOCKED - 1].done);
	ps_fill_stored(f->fill, f->object, (NBLOCKED - 1) * PS_MIB, NBLOCKED * PS_MIB);
	assert_true(blocked[NBLOCKED - 1].done);
	assert_true(blocked[NBLOCKED - 1].right);
	release(f);
	for (unsigned i = 0; i < NBLOCKED; i++)
		assert_int_equal(end(&blocked[i]), 0);
}

static void waiters_for_a_doubted_version_are_answered(void **state)
{
	struct fixture *f = *state;
	static struct waited blocked[NBLOCKED];

	begin_blocked(f, blocked);
	ps_fill_file_doubt(f->file);
	assert_int_equal(end(&blocked[NBLOCKED - 1]), ESTALE);
	release(f);
	assert_int_equal(end(&blocked[0]), 0); /* its request was under way already */
	for (unsigned i = 1; i < NBLOCKED; i++)
		end(&blocked[i]);
}

static void wait_for_retained(struct fixture *f, size_t n)
{
	size_t seen = n + 1;

	for (int i = 0; i < 1000 && seen != n; i++) {
		usleep(5000);
		PS_LOCK_SCOPE(&f->fill->lock);
		seen = f->fill->parked.nretained;
	}
	assert_int_equal(seen, n);
}

static void blocks_are_retained_until_they_are_read_to_their_end(void **state)
{
	struct fixture *f = *state;
	struct ps_read_bytes bytes;

	for (uint64_t b = 0; b < 6; b++)
		assert_int_equal(read_once(f, b * PS_MIB, 4096), 0);
	wait_for_retained(f, 6);
	for (uint64_t b = 0; b < 6; b += 2) { /* each block twice, which counts once */
		for (int i = 0; i < 2; i++) {
			assert_true(ps_fill_find(f->file, b * PS_MIB, PS_MIB, NULL, &bytes));
			assert_non_null(bytes.segs[0].data);
			ps_fill_found_put(&bytes);
		}
	}
	/* The blocks that were read to their end are dropped when the next block is written. */
	assert_int_equal(read_once(f, 10 * PS_MIB, PS_MIB), 0);
	wait_for_retained(f, 3);
	assert_true(ps_fill_find(f->file, PS_MIB, PS_MIB, NULL, &bytes));
	assert_non_null(bytes.segs[0].data);
	ps_fill_found_put(&bytes);
}

/* True if some requests wait for a retry, and each of them lacks only a connection. */
static bool retries_are_due(struct ps_fill *fill)
{
	uint64_t now = ps_clock_mono_ns();

	PS_LOCK_SCOPE(&fill->lock);
	for (struct ps_tree_item *i = ps_tree_first(&fill->retries); i; i = ps_tree_next(i))
		if (i->key > now)
			return false;
	return !ps_tree_empty(&fill->retries);
}

static void retries_respect_the_limit_of_connections(void **state)
{
	struct fixture *f = *state;
	struct ps_fill_file *files[4] = {f->file};
	static struct waited w[40];

	/* One file alone gets at most three quarters of the connections. */
	for (unsigned i = 1; i < PS_ARRAY_LEN(files); i++)
		files[i] = another_file(f, (const char *[]){"", "http://h/1", "http://h/2", "http://h/3"}[i]);
	atomic_store(&f->origin->fail_errno, EIO);
	atomic_store(&f->origin->fail_retryable, true);
	atomic_store(&f->origin->fail_next, 14);
	atomic_store(&f->origin->stall_after, 0);
	for (unsigned i = 0; i < PS_ARRAY_LEN(w); i++)
		begin_of(f, files[i % 4], &w[i], PS_ACCESS_RANDOM, i / 4 * 2 * PS_MIB, 4096);
	while (atomic_load(&f->origin->max_active) <= 8 &&
	        (atomic_load(&f->origin->nactive) < 8 || !retries_are_due(f->fill)))
		usleep(1000);
	ps_fill_pump(f->fill);
	atomic_store(&f->origin->released, true);
	for (unsigned i = 0; i < PS_ARRAY_LEN(w); i++)
		assert_int_equal(end(&w[i]), 0);
	for (unsigned i = 1; i < PS_ARRAY_LEN(files); i++)
		ps_fill_file_put(files[i]);
	alarm(0);
	assert_int_equal(atomic_load(&f->origin->max_active), 8);
}

static void repeated_warming_queues_a_file_once(void **state)
{
	struct fixture *f = *state;

	atomic_store(&f->origin->stall_after, 0);
	for (int i = 0; i < 100; i++)
		ps_fill_warm(f->file);
	atomic_store(&f->origin->released, true);
	for (int i = 0; i < 500 && !ps_object_complete(f->object); i++)
		usleep(20000);
	assert_true(ps_object_complete(f->object));
	assert_origin_gave(f, FIXTURE_FILE_NBYTES);
}

static void a_refused_file_is_not_warmed(void **state)
{
	struct fixture *f = *state;

	atomic_store(&f->origin->fail_next, 100);
	atomic_store(&f->origin->fail_errno, EACCES);
	assert_int_equal(read_once(f, 0, 4096), EACCES);
	ps_fill_warm(f->file);
	usleep(100000);
	assert_int_equal(atomic_load(&f->origin->ngets), 1);
}

static void a_bandwidth_limit_is_kept_and_used(void **state)
{
	struct fixture *f = *state;
	uint64_t start = ps_clock_mono_ns(), ms = 0;

	ps_fill_warm(f->file);
	for (int i = 0; i < 1000 && !ps_object_complete(f->object); i++)
		usleep(10000);
	ms = (ps_clock_mono_ns() - start) / PS_NS_PER_MS;
	assert_true(ps_object_complete(f->object));
	assert_true(ms > 200); /* 40 MiB at 100 MiB/s, of which 8 MiB need not wait */
	assert_true(ms < 2500);
}

static void drain_ends_stalled_transfers_and_their_readers(void **state)
{
	struct fixture *f = *state;
	struct waited w;

	atomic_store(&f->origin->stall_after, 1000);
	begin(f, &w, 3 * PS_MIB, 4096);
	ps_fill_warm(f->file);
	uint64_t start = ps_clock_mono_ns();
	ps_fill_file_put(f->file);
	ps_fill_drain(f->fill, &f->origin->origin);
	assert_int_equal(end(&w), ECANCELED);
	assert_true((ps_clock_mono_ns() - start) / PS_NS_PER_MS < 1000);
	/* The teardown puts the file, which is therefore opened again. */
	atomic_store(&f->origin->released, true);
	assert_int_equal(ps_fill_file_get(f->fill, f->object, &f->origin->origin, &f->file), 0);
}

static void wait_until_written(struct fixture *f, uint64_t block)
{
	for (int i = 0; i < 1000 && ps_object_block(f->object, block) != PS_BLOCK_PRESENT; i++)
		usleep(10000);
	assert_int_equal(ps_object_block(f->object, block), PS_BLOCK_PRESENT);
}

static void a_written_block_is_served_from_memory_until_it_was_read(void **state)
{
	struct fixture *f = *state;
	struct waited w;

	begin(f, &w, 0, 1000);
	assert_int_equal(end(&w), 0);
	wait_until_written(f, 0);
	begin(f, &w, 1000, PS_BLOCK_SIZE - 1000);
	assert_int_equal(end(&w), 0);
	assert_true(w.in_memory);
	/* The next written block replaces block 0 in memory. */
	begin(f, &w, 20 * PS_BLOCK_SIZE, 1000);
	assert_int_equal(end(&w), 0);
	wait_until_written(f, 20);
	for (int i = 0; i < 1000; i++) {
		begin(f, &w, 1000, 1000);
		assert_int_equal(end(&w), 0);
		if (!w.in_memory)
			break;
		usleep(10000);
	}
	assert_false(w.in_memory);
	assert_true(w.right);
}

static double stalled_s(struct fixture *f, json_int_t *ret_waiting)
{
	json_t *stats = ps_fill_read_stats(f->fill);
	double s = json_real_value(json_object_get(stats, "stalled_seconds"));

	*ret_waiting = json_integer_value(json_object_get(stats, "waiting"));
	json_decref(stats);
	return s;
}

static void the_stalled_time_of_concurrent_readers_counts_once(void **state)
{
	struct fixture *f = *state;
	uint64_t start = ps_clock_mono_ns();
	struct waited w[10];
	json_int_t waiting;

	atomic_store(&f->origin->stall_after, 0);
	for (unsigned i = 0; i < 10; i++)
		begin(f, &w[i], i * PS_BLOCK_SIZE, 1000);
	usleep(300000);
	double s = stalled_s(f, &waiting);
	assert_true(s >= 0.3);
	assert_true(s <= (double)(ps_clock_mono_ns() - start) / 1e9);
	assert_int_equal(waiting, 10);
	atomic_store(&f->origin->released, true);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(end(&w[i]), 0);
	/* The time does not grow after the waits, nor by a read that need not wait. */
	s = stalled_s(f, &waiting);
	assert_int_equal(waiting, 0);
	assert_int_equal(read_once(f, 0, 1000), 0);
	usleep(20000);
	assert_true(stalled_s(f, &waiting) <= s);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

/* The origin replaces an object while it is read: a reader of the old version gets no bytes of the new
 * one. */
static void bytes_of_two_versions_are_not_mixed(void **state)
{
	struct fixture *f = *state;
	struct ps_remote unknown = {.size = f->nbytes, .mtime_s = 1};
	struct ps_object *object;
	struct ps_fill_file *file;
	struct waited w;

	assert_int_equal(read_random(f, 0, 1000), 0);
	atomic_store(&f->origin->version, "\"v2\"");
	assert_int_equal(read_random(f, 5 * PS_MIB, 1000), ESTALE);
	assert_int_equal(read_random(f, 0, 1000), 0); /* cached bytes stay */
	assert_int_equal(read_random(f, 9 * PS_MIB, 1000), ESTALE);
	atomic_store(&f->origin->version, "\"v1\"");

	/* If no listing gave an object's version, the first answer does. */
	assert_int_equal(ps_object_get(f->store, "http://h/unknown", &unknown, 1, true, &object), 0);
	assert_int_equal(ps_fill_file_get(f->fill, object, &f->origin->origin, &file), 0);
	ps_object_put(object);
	begin_of(f, file, &w, PS_ACCESS_RANDOM, 0, 1000);
	assert_int_equal(end(&w), 0);
	atomic_store(&f->origin->version, "\"v2\"");
	begin_of(f, file, &w, PS_ACCESS_RANDOM, 5 * PS_MIB, 1000);
	assert_int_equal(end(&w), ESTALE);
	ps_fill_file_put(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(reads_give_the_origin_s_bytes),
	        TEST(bytes_of_two_versions_are_not_mixed),
	        TEST(cached_bytes_are_found_without_a_waiting_read),
	        TEST(two_readers_of_a_block_cost_one_request),
	        TEST(eight_random_readers_fetch_each_block_once),
	        TEST(a_reader_is_answered_before_the_request_ends),
	        TEST(a_retry_resumes_where_the_body_broke),
	        TEST(an_answer_that_ends_early_is_an_error),
	        TEST(an_error_after_the_last_byte_has_no_effect),
	        TEST(a_refusal_is_not_retried_and_answers_at_once_for_a_second),
	        TEST(a_stalled_origin_times_out_once_and_then_fails_at_once),
	        TEST(cancel_answers_a_waiting_read),
	        TEST(a_changed_object_serves_its_old_bytes_or_estale),
	        cmocka_unit_test_setup_teardown(
	                bytes_that_the_cache_cannot_take_are_streamed, setup_tiny_cache, fixture_teardown),
	        TEST(sequential_reads_become_few_long_requests),
	        TEST(random_reads_fetch_only_their_blocks),
	        TEST(warming_fetches_the_whole_file),
	        TEST(a_stalled_file_leaves_connections_to_others),
	        TEST(blocks_are_retained_until_they_are_read_to_their_end),
	        TEST(a_block_written_by_others_answers_waiting_reads),
	        TEST(a_block_reported_as_stored_answers_waiting_reads_at_once),
	        TEST(waiters_for_a_doubted_version_are_answered),
	        cmocka_unit_test_setup_teardown(
	                retries_respect_the_limit_of_connections, setup_patient, fixture_teardown),
	        TEST(repeated_warming_queues_a_file_once),
	        TEST(a_refused_file_is_not_warmed),
	        cmocka_unit_test_setup_teardown(
	                a_bandwidth_limit_is_kept_and_used, setup_paced, fixture_teardown),
	        TEST(a_written_block_is_served_from_memory_until_it_was_read),
	        TEST(the_stalled_time_of_concurrent_readers_counts_once),
	        TEST(drain_ends_stalled_transfers_and_their_readers),
	};

	return cmocka_run_group_tests_name("fill", tests, NULL, NULL);
}
