/* Limits hold: memory, space in the cache, connections, bytes from the origin. No reader starves because of
 * them. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "prefetch/prefetch.h"
#include "tests/cache/fill_fixture.h"

#define HANG_S 600 /* under a sanitizer on a busy machine a thousand files take minutes */

/* Memory ------------------------------------------------------------------------------------------------- */

#define NFILES 1000

static void readers_of_a_thousand_files_share_a_small_memory_budget(void **state)
{
	struct fixture_options options = {.memory_bytes = 16 * PS_MIB, .timeout_ms = 600000};
	struct fixture *f = fixture_new(&options);
	static struct ps_fill_file *files[NFILES];
	static struct ps_readahead *ras[NFILES];
	static struct waited w[NFILES];
	char url[64];

	(void)state;
	alarm(HANG_S);
	for (unsigned i = 0; i < NFILES; i++) {
		snprintf(url, sizeof(url), "http://pattern/%u.tar", i);
		files[i] = another_file(f, url);
		assert_int_equal(ps_readahead_get(files[i], &ras[i]), 0);
	}
	for (unsigned i = 0; i < NFILES; i++) {
		enum ps_access access;
		unsigned stream = ps_readahead_saw(ras[i], 0, 131072, &access);
		bool waited = begin_of(f, files[i], &w[i], access, 0, 131072);
		ps_readahead_go(ras[i], stream, waited);
	}
	for (unsigned i = 0; i < NFILES; i++) {
		assert_int_equal(end(&w[i]), 0);
		assert_true(w[i].right);
	}
	for (unsigned i = 0; i < NFILES; i++)
		ps_readahead_put(ras[i]);
	json_t *stats = ps_fill_memory_stats(f->fill);
	assert_true(json_integer_value(json_object_get(stats, "peak_bytes")) <= 16 * (json_int_t)PS_MIB);
	json_decref(stats);
	for (unsigned i = 0; i < NFILES; i++)
		ps_fill_file_put(files[i]);
	fixture_free(f);
	alarm(0);
}

/* Space in the cache ------------------------------------------------------------------------------------- */

static json_int_t store_stat(struct ps_store *store, const char *name)
{
	json_t *stats = ps_store_stats(store);
	json_int_t value = json_integer_value(json_object_get(stats, name));

	json_decref(stats);
	return value;
}

static void a_file_evicted_while_it_is_read_frees_its_space(void **state)
{
	struct fixture_options options = {.timeout_ms = 600000};
	struct fixture *f = fixture_new(&options);
	struct ps_fill_file *evicted = another_file(f, "http://pattern/evicted.tar");
	struct waited stuck, w;
	uint64_t ignored;

	(void)state;
	alarm(HANG_S);
	/* One reader waits throughout: the engine does not do the cleanup that follows a long idle time. */
	atomic_store(&f->origin->stall_url, "http://pattern/x.tar");
	atomic_store(&f->origin->stall_after, 0);
	begin(f, &stuck, 0, 4096);
	begin_of(f, evicted, &w, PS_ACCESS_STREAM, 0, PS_MIB);
	assert_int_equal(end(&w), 0);
	while (store_stat(f->store, "used_bytes") == 0)
		usleep(10000);
	assert_int_equal(ps_object_evict(ps_fill_file_object(evicted), &ignored), 0);
	for (unsigned i = 1; i < 8; i++) {
		begin_of(f, evicted, &w, PS_ACCESS_STREAM, i * PS_MIB, PS_MIB);
		assert_int_equal(end(&w), 0);
		assert_true(w.right);
	}
	assert_true(store_stat(f->store, "held_bytes") > 0);
	ps_fill_file_put(evicted);
	while (store_stat(f->store, "used_bytes") > 0)
		usleep(10000);
	atomic_store(&f->origin->released, true);
	assert_int_equal(end(&stuck), 0);
	fixture_free(f);
	alarm(0);
}

#define NWARMED 5

static void a_file_evicted_while_it_is_warmed_frees_its_space(void **state)
{
	/* The cache has no room for the sixth and the seventh file: half of the memory holds their
	 * blocks. */
	struct fixture_options options = {.timeout_ms = 600000,
	        .cache_bytes = 64 * PS_MIB,
	        .file_nbytes = 12 * PS_MIB,
	        .memory_bytes = 32 * PS_MIB};
	struct fixture *f = fixture_new(&options);
	struct ps_fill_file *files[NWARMED + 2];
	struct waited stuck, w;
	uint64_t ignored;
	char url[64];

	(void)state;
	alarm(HANG_S);
	atomic_store(&f->origin->stall_url, "http://pattern/x.tar");
	atomic_store(&f->origin->stall_after, 0);
	begin(f, &stuck, 0, 4096);
	for (unsigned i = 0; i < PS_ARRAY_LEN(files); i++) {
		snprintf(url, sizeof(url), "http://pattern/%u.tar", i);
		files[i] = another_file(f, url);
		for (unsigned b = 0; b < (i < NWARMED ? 1 : 12); b++) {
			begin_of(f, files[i], &w, PS_ACCESS_STREAM, b * PS_MIB, PS_MIB);
			assert_int_equal(end(&w), 0);
		}
		while (i < NWARMED &&
		        store_stat(f->store, "used_bytes") + store_stat(f->store, "reserved_bytes") <
		                (json_int_t)(12 * PS_MIB * (i + 1)))
			usleep(10000);
	}
	for (unsigned i = 0; i < NWARMED; i++)
		ps_fill_warm(files[i]);
	for (unsigned i = 0; i < NWARMED; i++)
		assert_int_equal(ps_object_evict(ps_fill_file_object(files[i]), &ignored), 0);
	for (unsigned i = 0; i < PS_ARRAY_LEN(files); i++)
		ps_fill_file_put(files[i]);
	while (store_stat(f->store, "held_bytes") > 0)
		usleep(10000);
	atomic_store(&f->origin->released, true);
	assert_int_equal(end(&stuck), 0);
	fixture_free(f);
	alarm(0);
}

/* Connections -------------------------------------------------------------------------------------------- */

#define NSTALLED 6

static void many_stalled_files_do_not_block_readers_of_another_file(void **state)
{
	struct fixture_options options = {.memory_bytes = 64 * PS_MIB, .timeout_ms = 30000};
	struct fixture *f = fixture_new(&options);
	struct ps_fill_file *stalled[NSTALLED], *other = another_file(f, "http://pattern/fine.tar");
	static struct waited stuck[NSTALLED][20];
	struct waited w;
	char url[64];

	(void)state;
	alarm(HANG_S);
	atomic_store(&f->origin->stall_after, 0);
	for (unsigned i = 0; i < NSTALLED; i++) {
		snprintf(url, sizeof(url), "http://pattern/stalled-%u.tar", i);
		stalled[i] = another_file(f, url);
		for (unsigned k = 0; k < PS_ARRAY_LEN(stuck[i]); k++)
			begin_of(f, stalled[i], &stuck[i][k], PS_ACCESS_STREAM, 2 * k * PS_MIB, 4096);
	}
	usleep(300000);
	assert_int_equal(atomic_load(&f->origin->max_active), 8);
	atomic_store(&f->origin->stall_prefix, "http://pattern/stalled-");
	for (unsigned k = 0; k < 5; k++) {
		begin_of(f, other, &w, PS_ACCESS_STREAM, k * 3 * PS_MIB, 4096);
		uint64_t start = ps_clock_mono_ns();
		assert_int_equal(end(&w), 0);
		assert_true(w.right);
		assert_true((w.answered_ns - start) / PS_NS_PER_MS < 2000);
	}
	assert_true(atomic_load(&f->origin->max_active) <= 8);
	/* Pre-empted requests are sent again. */
	atomic_store(&f->origin->released, true);
	for (unsigned i = 0; i < NSTALLED; i++) {
		for (unsigned k = 0; k < PS_ARRAY_LEN(stuck[i]); k++) {
			assert_int_equal(end(&stuck[i][k]), 0);
			assert_true(stuck[i][k].right);
		}
		ps_fill_file_put(stalled[i]);
	}
	ps_fill_file_put(other);
	fixture_free(f);
	alarm(0);
}

/* Bytes from the origin ---------------------------------------------------------------------------------- */

struct reading {
	struct fixture *f;
	struct ps_readahead *ra;
	uint64_t end;
};

static void *read_in_order(void *arg)
{
	struct reading *r = arg;

	for (uint64_t at = 0; at < r->end; at += 131072) {
		struct waited w;
		enum ps_access access;

		unsigned stream = ps_readahead_saw(r->ra, at, 131072, &access);
		bool waited = begin_of(r->f, r->f->file, &w, access, at, 131072);
		ps_readahead_go(r->ra, stream, waited);
		if (end(&w) || !w.right)
			return r;
	}
	return NULL;
}

/* The number of bytes that the origin sent after n readers each read to `end`. *ret_hedged: some bytes were
 * requested twice because a request was late; on a busy machine any request may be late. */
static uint64_t origin_bytes(unsigned n, uint64_t file_nbytes, uint64_t end, bool *ret_hedged)
{
	struct fixture *f = fixture_new(&(struct fixture_options){.file_nbytes = file_nbytes});
	struct reading r = {.f = f, .end = end};
	pthread_t threads[8];

	assert_int_equal(ps_readahead_get(f->file, &r.ra), 0);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, read_in_order, &r), 0);
	for (unsigned i = 0; i < n; i++) {
		void *failed;

		pthread_join(threads[i], &failed);
		assert_null(failed);
	}
	usleep(300000); /* bytes still in flight */
	json_t *stats = ps_fill_origin_stats(f->fill);
	uint64_t nbytes = (uint64_t)json_integer_value(json_object_get(stats, "bytes"));
	*ret_hedged = json_integer_value(json_object_get(stats, "hedged_requests")) > 0;
	json_decref(stats);
	ps_readahead_put(r.ra);
	fixture_free(f);
	return nbytes;
}

static void any_number_of_sequential_readers_fetches_one_copy(void **state)
{
	const uint64_t nbytes = FIXTURE_FILE_NBYTES;
	const unsigned nreaders[] = {1, 8};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(nreaders); i++) {
		bool hedged;
		uint64_t sent = origin_bytes(nreaders[i], nbytes, nbytes, &hedged);

		/* Hedged requests add at most 1 %, and a cancelled request a part of a chunk. */
		assert_in_range(sent, nbytes, hedged ? nbytes + nbytes / 50 : nbytes);
	}
}

static void a_reader_that_stops_midway_costs_at_most_one_more_window(void **state)
{
	bool hedged;

	(void)state;
	/* A read-ahead window is at most half of the memory budget of 32 MiB. */
	assert_true(origin_bytes(1, 256 * PS_MIB, 48 * PS_MIB, &hedged) <= (48 + 16 + 2) * PS_MIB);
	/* A read of the file's head alone fetches the first windows. */
	assert_true(origin_bytes(1, 256 * PS_MIB, 4096, &hedged) <= 12 * PS_MIB);
}

struct first_read {
	unsigned ngets;
	uint64_t nbytes, max_asked;
};

/* What the first read of a file requests before any byte has arrived, if a listing took `answer_ns`. */
static struct first_read first_read(uint64_t answer_ns)
{
	struct fixture *f = fixture_new(&(struct fixture_options){
	        .file_nbytes = 64 * PS_MIB, .memory_bytes = 256 * PS_MIB, .max_connections = 64});
	_Atomic uint64_t answered_ns = answer_ns;
	struct ps_readahead *ra;
	enum ps_access access;
	struct waited w;

	f->origin->origin.answer_ns = &answered_ns;
	atomic_store(&f->origin->stall_after, 0);
	struct ps_fill_file *file = another_file(f, "http://pattern/first.tar");
	assert_int_equal(ps_readahead_get(file, &ra), 0);
	unsigned stream = ps_readahead_saw(ra, 0, 512 * 1024, &access);
	assert_true(begin_of(f, file, &w, access, 0, 512 * 1024));
	ps_readahead_go(ra, stream, true);
	struct first_read ret = {.ngets = atomic_load(&f->origin->ngets),
	        .nbytes = atomic_load(&f->origin->nbytes),
	        .max_asked = atomic_load(&f->origin->max_asked)};
	atomic_store(&f->origin->released, true);
	assert_int_equal(end(&w), 0);
	assert_true(w.right);
	ps_readahead_put(ra);
	ps_fill_file_put(file);
	fixture_free(f);
	return ret;
}

static void the_first_read_opens_many_connections_to_a_far_origin_only(void **state)
{
	struct first_read far = first_read(80 * PS_NS_PER_MS), near = first_read(PS_NS_PER_MS);

	(void)state;
	assert_int_equal(far.nbytes, 8 * PS_MIB);
	assert_in_range(far.ngets, 32, 48);
	assert_in_range(far.max_asked, 1, 256 * 1024);
	assert_true(near.nbytes <= 8 * PS_MIB);
	assert_in_range(near.ngets, 1, 5);
	/* Before the first answer the latency is not known. */
	assert_in_range(first_read(0).ngets, 1, 5);
}

/* The longest request, in MiB, for 32 MiB that no reader waits for, if so many MiB are wanted at the same time. */
static uint64_t longest_mib(enum ps_demand_class cls, uint64_t together_mib)
{
	struct fixture *f = fixture_new(&(struct fixture_options){
	        .file_nbytes = 64 * PS_MIB, .memory_bytes = 256 * PS_MIB, .max_connections = 64});
	struct ps_demand demand;

	ps_demand_init(&demand, f->file, cls);
	assert_true(
	        ps_demand_extend(&demand, 0, 32 * PS_BLOCK_CHUNKS, together_mib * PS_MIB / PS_CHUNK_SIZE));
	ps_fill_pump(f->fill);
	while (ps_demand_is_queued(&demand))
		usleep(1000);
	ps_demand_cancel(&demand);
	uint64_t asked = atomic_load(&f->origin->max_asked);
	fixture_free(f);
	return asked / PS_MIB;
}

static void connections_share_what_is_wanted_at_the_same_time(void **state)
{
	(void)state;
	/* Before the first answer there are four connections, and a file has three of them. */
	assert_int_equal(longest_mib(PS_DEMAND_AHEAD, 0), 16);
	assert_int_equal(longest_mib(PS_DEMAND_AHEAD, 18), 6);
	assert_int_equal(longest_mib(PS_DEMAND_AHEAD, 3), 2);
	assert_int_equal(longest_mib(PS_DEMAND_NEXT, 0), 8);
	assert_int_equal(longest_mib(PS_DEMAND_NEXT, 15), 5);
	assert_int_equal(longest_mib(PS_DEMAND_NEXT, 3), 4);
}

/* A program reads the beginning of a file and closes it. */
static void at_most_eight_times_the_read_bytes_are_requested(void **state)
{
	const uint64_t parts[] = {PS_MIB, 3 * PS_MIB}, steps[] = {64 * 1024, 512 * 1024, PS_MIB};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(parts) * PS_ARRAY_LEN(steps); i++) {
		uint64_t part = parts[i / PS_ARRAY_LEN(steps)], step = steps[i % PS_ARRAY_LEN(steps)];
		struct fixture *f = fixture_new(&(struct fixture_options){
		        .file_nbytes = 200 * PS_MIB, .memory_bytes = 512 * PS_MIB, .max_connections = 64});
		struct ps_readahead *ra;

		assert_int_equal(ps_readahead_get(f->file, &ra), 0);
		for (uint64_t at = 0; at < part; at += step) {
			enum ps_access access;
			unsigned stream = ps_readahead_saw(ra, at, step, &access);

			assert_int_equal(read_once(f, at, step), 0);
			ps_readahead_go(ra, stream, true); /* as if each read had waited */
		}
		usleep(100000); /* requests that are still to be made */
		assert_true(atomic_load(&f->origin->nbytes) <= 8 * part);
		ps_readahead_put(ra);
		fixture_free(f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(readers_of_a_thousand_files_share_a_small_memory_budget),
	        cmocka_unit_test(a_file_evicted_while_it_is_read_frees_its_space),
	        cmocka_unit_test(a_file_evicted_while_it_is_warmed_frees_its_space),
	        cmocka_unit_test(many_stalled_files_do_not_block_readers_of_another_file),
	        cmocka_unit_test(any_number_of_sequential_readers_fetches_one_copy),
	        cmocka_unit_test(a_reader_that_stops_midway_costs_at_most_one_more_window),
	        cmocka_unit_test(the_first_read_opens_many_connections_to_a_far_origin_only),
	        cmocka_unit_test(connections_share_what_is_wanted_at_the_same_time),
	        cmocka_unit_test(at_most_eight_times_the_read_bytes_are_requested),
	};

	return cmocka_run_group_tests_name("fill_limits", tests, NULL, NULL);
}
