/* The fetch engine over a real store and an origin that misbehaves on demand. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/size.h"
#include "fetch/fill.h"
#include "fetch/readahead.h"
#include "tests/cache/pattern_origin.h"

/* Sanitizers make the arithmetic behind the origin ten times slower. */
#ifdef PS_SANITIZERS
#define TIMEOUT_MS 10000
#else
#define TIMEOUT_MS 1500
#endif

struct fixture {
	char dir[64];
	struct ps_store *store;
	struct ps_fill *fill;
	struct ps_pattern_origin *origin;
	struct ps_object *object;
	struct ps_fill_file *file;
};

static uint64_t file_nbytes = 40 * PS_MIB + 12345;

static uint64_t max_bytes_per_s; /* of the next fixture */

static void fixture_open(struct fixture *f, uint64_t cache_bytes)
{
	struct ps_error err = {0};
	struct ps_store_options store = {.dir = f->dir, .limit_bytes = cache_bytes, .min_free_bytes = 1};
	struct ps_fill_options fill = {.memory_bytes = 32 * PS_MIB,
	        .max_connections = 8,
	        .max_bytes_per_s = max_bytes_per_s,
	        .timeout_ms = TIMEOUT_MS};
	struct ps_remote remote = {.size = file_nbytes, .mtime_s = 1, .etag = "\"v1\""};

	snprintf(f->dir, sizeof f->dir, "/tmp/penstock-fill-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	if (ps_store_open(&store, &f->store, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(ps_fill_new(&fill, &f->fill), 0);
	f->origin = ps_pattern_origin_new();
	assert_int_equal(ps_object_get(f->store, "http://pattern/x.tar", &remote, 1, true, &f->object), 0);
	assert_int_equal(ps_fill_file_get(f->fill, f->object, &f->origin->origin, &f->file), 0);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void fixture_close(struct fixture *f)
{
	ps_fill_file_put(f->file);
	ps_fill_drain(f->fill, &f->origin->origin);
	ps_object_put(f->object);
	ps_fill_free(f->fill);
	f->origin->origin.ops->close(&f->origin->origin);
	ps_store_close(f->store);
	nftw(f->dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof *f);

	fixture_open(f, 10 * PS_GIB);
	*state = f;
	return 0;
}

static int setup_tiny_cache(void **state)
{
	struct fixture *f = calloc(1, sizeof *f);

	fixture_open(f, 4 * PS_MIB); /* less than the file: it streams */
	*state = f;
	return 0;
}

static int setup_paced(void **state)
{
	max_bytes_per_s = 100 * PS_MIB;
	int rc = setup(state);
	max_bytes_per_s = 0;
	return rc;
}

static int teardown(void **state)
{
	fixture_close(*state);
	free(*state);
	return 0;
}

/* A read that one can wait for. */
struct waited {
	struct ps_read read;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool done, right, in_memory;
	int errnum;
	uint64_t answered_ns;
};

static void read_done(struct ps_read *read, int errnum, const struct ps_segment *segs, size_t nsegs)
{
	struct waited *w = PS_CONTAINER_OF(read, struct waited, read);
	static _Thread_local uint8_t buf[PS_READ_MAX_NBYTES];
	uint64_t at = read->offset;
	bool right = true, in_memory = true;

	for (size_t i = 0; i < nsegs; i++) {
		const uint8_t *data = segs[i].data;

		if (!data) {
			in_memory = false;
			assert_int_equal(segs[i].pos, at);
			assert_int_equal(
			        pread(segs[i].fd, buf, segs[i].nbytes, (off_t)segs[i].pos), segs[i].nbytes);
			data = buf;
		}
		for (size_t k = 0; k < segs[i].nbytes; k++, at++)
			right = right && data[k] == ps_pattern_byte(at);
	}
	PS_LOCK_SCOPE(&w->lock);
	w->right = right && !errnum && at == read->offset + read->nbytes;
	w->in_memory = in_memory;
	w->errnum = errnum;
	w->answered_ns = ps_clock_mono_ns();
	w->done = true;
	pthread_cond_signal(&w->cond);
}

static void begin(struct fixture *f, struct waited *w, uint64_t offset, size_t nbytes)
{
	memset(w, 0, sizeof *w);
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->cond, NULL);
	w->read.offset = offset;
	w->read.nbytes = PS_MIN(nbytes, file_nbytes - offset);
	w->read.done = read_done;
	ps_fill_read(f->file, &w->read);
}

static int end(struct waited *w)
{
	PS_LOCK_SCOPE(&w->lock);
	while (!w->done)
		pthread_cond_wait(&w->cond, &w->lock);
	return w->errnum;
}

static int read_once(struct fixture *f, uint64_t offset, size_t nbytes)
{
	struct waited w;

	begin(f, &w, offset, nbytes);
	int errnum = end(&w);
	if (!errnum)
		assert_true(w.right);
	return errnum;
}

static void serves_the_origins_bytes(void **state)
{
	struct fixture *f = *state;

	for (uint64_t at = 0; at < file_nbytes; at += 700000)
		assert_int_equal(read_once(f, at, 1000000), 0);
	assert_int_equal(read_once(f, file_nbytes - 1, 1), 0);
	assert_int_equal(atomic_load(&f->origin->nbytes), file_nbytes);
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
		uint64_t offset = (((uint64_t)rand_r(&seed) << 16) ^ (uint64_t)rand_r(&seed)) % file_nbytes;

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
	assert_true(atomic_load(&f->origin->nbytes) <= file_nbytes);
}

static void a_reader_is_answered_before_the_request_ends(void **state)
{
	struct fixture *f = *state;
	struct waited w;

	atomic_store(&f->origin->stall_after, 300000);
	begin(f, &w, 1000, 200000);
	assert_int_equal(end(&w), 0);
	assert_true(w.right);
	begin(f, &w, 400000, 1000); /* behind the stall */
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
	/* 1 MiB, then what was left of it twice */
	assert_int_equal(atomic_load(&f->origin->nbytes), 3 * PS_MIB - 400000 - 800000);
}

static void an_error_after_the_last_byte_costs_nothing(void **state)
{
	struct fixture *f = *state;

	/* The file's last block is short; its transfer has brought all, and then ends badly. */
	for (int i = 0; i < 4; i++) {
		atomic_store(&f->origin->fail_next, 1);
		atomic_store(&f->origin->fail_errno, i % 2 ? EPROTO : EIO);
		atomic_store(&f->origin->fail_retryable, i >= 2);
		atomic_store(&f->origin->fail_after, SIZE_MAX);
		uint64_t block = i % 2 ? 7u + (unsigned)i : file_nbytes / PS_MIB;
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
	assert_true(ps_fill_file_changed(f->file));
	assert_int_equal(read_once(f, 100, 4096), 0);
	usleep((PS_FILL_FAILED_MS + 100) * 1000);
	assert_int_equal(read_once(f, 5 * PS_MIB, 4096), ESTALE);
	assert_int_equal(read_once(f, 9 * PS_MIB, 4096), ESTALE);
}

/* What a handle does around a read. */
static void look_ahead(struct ps_readahead *ra, uint64_t offset, uint64_t nbytes, bool waited)
{
	enum ps_access access;

	ps_readahead_go(ra, ps_readahead_saw(ra, offset, nbytes, &access), waited);
}

static void streams_what_the_cache_cannot_take(void **state)
{
	struct fixture *f = *state;
	struct ps_readahead *ra;

	assert_int_equal(ps_readahead_get(f->file, &ra), 0);
	for (uint64_t at = 0; at < file_nbytes; at += 131072) {
		assert_int_equal(read_once(f, at, 131072), 0);
		look_ahead(ra, at, 131072, true);
	}
	ps_readahead_put(ra);
	assert_int_equal(ps_object_cached_nbytes(f->object), 0);
	/* Held blocks are dropped before their time only under pressure. */
	assert_true(atomic_load(&f->origin->nbytes) < file_nbytes * 5 / 4);
}

static void sequential_reads_become_few_long_requests(void **state)
{
	struct fixture *f = *state;
	struct ps_readahead *ra;

	assert_int_equal(ps_readahead_get(f->file, &ra), 0);
	for (uint64_t at = 0; at < file_nbytes; at += 131072) {
		struct waited w;

		memset(&w, 0, sizeof w);
		begin(f, &w, at, 131072);
		look_ahead(ra, at, 131072, !w.done);
		assert_int_equal(end(&w), 0);
		assert_true(w.right);
	}
	ps_readahead_put(ra);
	assert_int_equal(atomic_load(&f->origin->nbytes), file_nbytes);
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

static void warming_brings_the_whole_file(void **state)
{
	struct fixture *f = *state;

	ps_fill_warm(f->file);
	for (int i = 0; i < 3000 && !ps_object_complete(f->object); i++)
		usleep(20000);
	assert_true(ps_object_complete(f->object));
	assert_int_equal(atomic_load(&f->origin->nbytes), file_nbytes);
	assert_true(atomic_load(&f->origin->max_asked) > PS_MIB);
}

/* Another file of the same origin; the test puts it. */
static struct ps_fill_file *another_file(struct fixture *f, const char *url)
{
	struct ps_remote remote = {.size = file_nbytes, .mtime_s = 1, .etag = "\"v1\""};
	struct ps_object *object;
	struct ps_fill_file *file;

	assert_int_equal(ps_object_get(f->store, url, &remote, 1, true, &object), 0);
	assert_int_equal(ps_fill_file_get(f->fill, object, &f->origin->origin, &file), 0);
	ps_object_put(object);
	return file;
}

static void begin_of(struct ps_fill_file *file, struct waited *w, uint64_t offset, size_t nbytes)
{
	struct fixture other = {.file = file};

	begin(&other, w, offset, nbytes);
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
	begin_of(other, &w, 5 * PS_MIB, 4096);
	assert_int_equal(end(&w), 0);
	assert_true(w.right);
	assert_true((ps_clock_mono_ns() - start) / PS_NS_PER_MS < 1000);
	atomic_store(&f->origin->released, true);
	for (unsigned i = 0; i < PS_ARRAY_LEN(stuck); i++)
		end(&stuck[i]);
	ps_fill_file_put(other);
}

static void retries_take_no_more_connections_than_there_are(void **state)
{
	struct fixture *f = *state;
	static struct waited w[30];

	atomic_store(&f->origin->fail_errno, EIO);
	atomic_store(&f->origin->fail_retryable, true);
	atomic_store(&f->origin->fail_next, 14);
	atomic_store(&f->origin->stall_after, 0);
	for (unsigned i = 0; i < PS_ARRAY_LEN(w); i++)
		begin(f, &w[i], i * PS_MIB, 4096);
	usleep(600000);
	atomic_store(&f->origin->released, true);
	for (unsigned i = 0; i < PS_ARRAY_LEN(w); i++)
		assert_int_equal(end(&w[i]), 0);
	assert_true(atomic_load(&f->origin->max_active) <= 8);
}

static void warming_again_and_again_queues_it_once(void **state)
{
	struct fixture *f = *state;

	atomic_store(&f->origin->stall_after, 0);
	for (int i = 0; i < 100; i++)
		ps_fill_warm(f->file);
	atomic_store(&f->origin->released, true);
	for (int i = 0; i < 500 && !ps_object_complete(f->object); i++)
		usleep(20000);
	assert_true(ps_object_complete(f->object));
	assert_int_equal(atomic_load(&f->origin->nbytes), file_nbytes);
}

static void nothing_is_fetched_ahead_of_a_file_that_is_refused(void **state)
{
	struct fixture *f = *state;

	atomic_store(&f->origin->fail_next, 100);
	atomic_store(&f->origin->fail_errno, EACCES);
	assert_int_equal(read_once(f, 0, 4096), EACCES);
	ps_fill_warm(f->file);
	usleep(100000);
	assert_int_equal(atomic_load(&f->origin->ngets), 1);
}

static void a_bandwidth_limit_is_made_use_of(void **state)
{
	struct fixture *f = *state;
	uint64_t start = ps_clock_mono_ns(), ms = 0;

	ps_fill_warm(f->file);
	for (int i = 0; i < 1000 && !ps_object_complete(f->object); i++)
		usleep(10000);
	ms = (ps_clock_mono_ns() - start) / PS_NS_PER_MS;
	assert_true(ps_object_complete(f->object));
	assert_true(ms > 200); /* 40 MiB of 100 MiB/s, the last 8 MiB without waiting */
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
	/* The teardown puts it once more. */
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
	/* The next block that is written takes its place. */
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

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(serves_the_origins_bytes),
	        TEST(two_readers_of_a_block_cost_one_request),
	        TEST(eight_random_readers_fetch_each_block_once),
	        TEST(a_reader_is_answered_before_the_request_ends),
	        TEST(a_retry_resumes_where_the_body_broke),
	        TEST(an_error_after_the_last_byte_costs_nothing),
	        TEST(a_refusal_is_not_retried_and_answers_at_once_for_a_second),
	        TEST(a_stalled_origin_times_out_once_and_then_fails_at_once),
	        TEST(cancel_answers_a_waiting_read),
	        TEST(a_changed_object_serves_its_old_bytes_or_estale),
	        cmocka_unit_test_setup_teardown(
	                streams_what_the_cache_cannot_take, setup_tiny_cache, teardown),
	        TEST(sequential_reads_become_few_long_requests),
	        TEST(random_reads_fetch_only_their_blocks),
	        TEST(warming_brings_the_whole_file),
	        TEST(a_stalled_file_leaves_connections_to_others),
	        TEST(retries_take_no_more_connections_than_there_are),
	        TEST(warming_again_and_again_queues_it_once),
	        TEST(nothing_is_fetched_ahead_of_a_file_that_is_refused),
	        cmocka_unit_test_setup_teardown(a_bandwidth_limit_is_made_use_of, setup_paced, teardown),
	        TEST(a_written_block_is_served_from_memory_until_it_was_read),
	        TEST(drain_ends_stalled_transfers_and_their_readers),
	};

	return cmocka_run_group_tests_name("fill", tests, NULL, NULL);
}
