/* The fetch engine with random reads, cancels, faults and evictions, and with too little memory, cache and
 * connections. Whatever happens, no byte is wrong, no reader waits for ever, and afterwards every byte can
 * be read. PENSTOCK_TEST_SEED repeats a run, PENSTOCK_TEST_ROUNDS makes it longer. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "prefetch/prefetch.h"
#include "tests/cache/fill_fixture.h"

#define NFILES 8
#define NREADERS 6
#define FILE_NBYTES (6 * PS_MIB + 54321)
#define HANG_S 600

struct stress {
	struct fixture *f;
	struct ps_fill_file *files[NFILES];
	unsigned seed, rounds;
	bool answers; /* the origin answers in the end: no read times out */
	_Atomic bool stop;
	_Atomic unsigned nright, nfailed;
};

struct reader {
	struct stress *s;
	unsigned seed;
};

static unsigned below(unsigned *seed, unsigned n)
{
	return (unsigned)rand_r(seed) % n;
}

/* As in the mount, cached bytes are found before a waiting read is set up. True: a hit. */
static bool is_hit(struct ps_fill_file *file, struct ps_readahead *ra, uint64_t offset, size_t nbytes)
{
	struct ps_read_bytes bytes;
	uint64_t end = PS_MIN(offset + nbytes, FILE_NBYTES);
	bool in_memory;

	if (!ps_fill_find(file, offset, end - offset, NULL, &bytes))
		return false;
	bool wants = ps_readahead_hit(ra, offset, end - offset);
	bool right = segments_right(bytes.segs, bytes.nsegs, offset, end, &in_memory);
	ps_fill_found_put(&bytes);
	if (!right)
		fail_msg("wrong bytes of a hit at %llu", (unsigned long long)offset);
	if (wants)
		ps_fill_pump(ps_fill_file_engine(file));
	return true;
}

static void one_read(struct stress *s, unsigned *seed, struct ps_fill_file *file, struct ps_readahead *ra,
        uint64_t offset, size_t nbytes, bool cancels)
{
	struct waited w;
	enum ps_access access;

	if (below(seed, 4) > 0 && is_hit(file, ra, offset, nbytes)) {
		atomic_fetch_add(&s->nright, 1);
		return;
	}
	unsigned stream = ps_readahead_saw(ra, offset, nbytes, &access);
	bool waited = begin_of(s->f, file, &w, access, offset, nbytes);
	ps_readahead_go(ra, stream, waited);
	if (cancels) {
		usleep(below(seed, 2000));
		ps_fill_cancel(file, &w.read); /* `w` lives until we return, answered or not */
	}
	int errnum = end(&w);
	if (!errnum && !w.right)
		fail_msg("wrong bytes at %llu", (unsigned long long)offset);
	if (errnum && errnum != ECANCELED && (s->answers || (errnum != EIO && errnum != ETIMEDOUT)))
		fail_msg("a read ended with %d", errnum);
	atomic_fetch_add(errnum ? &s->nfailed : &s->nright, 1);
}

static struct ps_fill_file *open_again(struct stress *s, unsigned i)
{
	struct ps_fill_file *file;

	assert_int_equal(
	        ps_fill_file_get(s->f->fill, ps_fill_file_object(s->files[i]), &s->f->origin->origin, &file),
	        0);
	return file;
}

/* Does as programs do: opens a file, reads in order or at random, closes the file. */
static void *read_main(void *arg)
{
	struct reader *r = arg;
	struct stress *s = r->s;

	for (unsigned round = 0; round < s->rounds; round++) {
		struct ps_fill_file *file = open_again(s, below(&r->seed, NFILES));
		struct ps_readahead *ra;
		bool in_order = below(&r->seed, 2);
		uint64_t at = below(&r->seed, (unsigned)FILE_NBYTES);

		assert_int_equal(ps_readahead_get(file, &ra), 0);
		for (unsigned i = 0; i < 12; i++) {
			size_t nbytes = 1 + below(&r->seed, in_order ? 400000 : 150000);

			if (at >= FILE_NBYTES)
				at = 0;
			one_read(s, &r->seed, file, ra, at, nbytes, below(&r->seed, 10) == 0);
			at = in_order ? at + nbytes : below(&r->seed, (unsigned)FILE_NBYTES);
		}
		ps_readahead_put(ra);
		ps_fill_file_put(file);
	}
	return NULL;
}

static void *trouble_main(void *arg)
{
	struct reader *r = arg;
	struct stress *s = r->s;
	struct ps_pattern_origin *o = s->f->origin;

	while (!atomic_load(&s->stop)) {
		uint64_t ignored;
		unsigned file = below(&r->seed, NFILES);

		switch (below(&r->seed, 5)) {
		case 0:
			atomic_store(&o->fail_errno, EIO);
			atomic_store(&o->fail_retryable, s->answers || below(&r->seed, 4) > 0);
			atomic_store(&o->fail_after, below(&r->seed, 300000));
			atomic_store(&o->fail_next, (int)below(&r->seed, 4));
			break;
		case 1:
			if (s->answers)
				break;
			atomic_store(&o->released, false);
			atomic_store(&o->stall_after, below(&r->seed, 200000));
			break;
		case 2:
			assert_int_equal(ps_object_evict(ps_fill_file_object(s->files[file]), &ignored), 0);
			break;
		case 3:
			ps_fill_warm(s->files[file]);
			break;
		default:
			atomic_store(&o->released, true);
			atomic_store(&o->stall_after, SIZE_MAX);
		}
		usleep(1000 + below(&r->seed, 20000));
	}
	atomic_store(&o->released, true);
	atomic_store(&o->stall_after, SIZE_MAX);
	atomic_store(&o->fail_next, 0);
	return NULL;
}

static void run(struct stress *s)
{
	struct reader readers[NREADERS + 1];
	pthread_t threads[NREADERS + 1];

	for (unsigned i = 0; i <= NREADERS; i++) {
		readers[i] = (struct reader){.s = s, .seed = s->seed * 100 + i};
		assert_int_equal(pthread_create(&threads[i], NULL, i < NREADERS ? read_main : trouble_main,
		                         &readers[i]),
		        0);
	}
	for (unsigned i = 0; i < NREADERS; i++)
		pthread_join(threads[i], NULL);
	atomic_store(&s->stop, true);
	pthread_join(threads[NREADERS], NULL);
}

/* A failed block answers with its error for a second. After that every byte can be read, and no reader
 * waits. */
static void all_is_well(struct stress *s)
{
	struct ps_verify_result verified;
	json_t *stats;

	usleep((PS_FILL_FAILED_MS + 200) * 1000);
	for (unsigned i = 0; i < NFILES; i++) {
		for (uint64_t at = 0; at < FILE_NBYTES; at += PS_MIB) {
			struct waited w;

			begin_of(s->f, s->files[i], &w, PS_ACCESS_STREAM, at, PS_MIB);
			assert_int_equal(end(&w), 0);
			assert_true(w.right);
		}
	}
	assert_int_equal(ps_store_verify(s->f->store, NULL, NULL, NULL, &verified), 0);
	assert_int_equal(verified.bad_blocks, 0);
	stats = ps_fill_read_stats(s->f->fill);
	assert_int_equal(json_integer_value(json_object_get(stats, "waiting")), 0);
	json_decref(stats);
	stats = ps_fill_memory_stats(s->f->fill);
	assert_true(json_integer_value(json_object_get(stats, "peak_bytes")) <=
	            json_integer_value(json_object_get(stats, "limit_bytes")));
	json_decref(stats);
}

static void stress(const struct fixture_options *options, bool answers)
{
	const char *seed = getenv("PENSTOCK_TEST_SEED"), *rounds = getenv("PENSTOCK_TEST_ROUNDS");
	struct stress s = {.seed = seed ? (unsigned)atoi(seed) : (unsigned)getpid(),
	        .answers = answers,
	        .rounds = rounds ? (unsigned)atoi(rounds) : 12};
	char url[64];

	print_message("# PENSTOCK_TEST_SEED=%u\n", s.seed);
	alarm(HANG_S * s.rounds / 10);
	s.f = fixture_new(options);
	for (unsigned i = 0; i < NFILES; i++) {
		snprintf(url, sizeof(url), "http://pattern/%u.tar", i);
		s.files[i] = another_file(s.f, url);
	}
	run(&s);
	all_is_well(&s);
	print_message("# %u reads right, %u failed\n", atomic_load(&s.nright), atomic_load(&s.nfailed));
	for (unsigned i = 0; i < NFILES; i++)
		ps_fill_file_put(s.files[i]);
	fixture_free(s.f);
	alarm(0);
}

static void reads_are_right_with_room_for_all_files(void **state)
{
	(void)state;
	stress(
	        &(struct fixture_options){
	                .file_nbytes = FILE_NBYTES, .memory_bytes = 16 * PS_MIB, .timeout_ms = 2000},
	        false);
}

/* A reader that no thread wakes would time out: none does. */
static void no_reader_times_out_if_the_origin_answers(void **state)
{
	(void)state;
	stress(&(struct fixture_options){.file_nbytes = FILE_NBYTES,
	               .memory_bytes = 16 * PS_MIB,
	               .cache_bytes = 14 * PS_MIB,
	               .max_connections = 2,
	               .timeout_ms = 60000},
	        true);
}

static void reads_are_right_with_room_for_two_of_eight_files(void **state)
{
	(void)state;
	stress(&(struct fixture_options){.file_nbytes = FILE_NBYTES,
	               .memory_bytes = 16 * PS_MIB,
	               .cache_bytes = 14 * PS_MIB,
	               .max_connections = 3,
	               .timeout_ms = 2000},
	        false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(reads_are_right_with_room_for_all_files),
	        cmocka_unit_test(reads_are_right_with_room_for_two_of_eight_files),
	        cmocka_unit_test(no_reader_times_out_if_the_origin_answers),
	};

	return cmocka_run_group_tests_name("fill_stress", tests, NULL, NULL);
}
