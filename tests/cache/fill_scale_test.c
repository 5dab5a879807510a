/* The cost of a read does not grow with the number of waiters of a file, of open files, or of files that
 * wait for requests. The origin answers in the test's thread, so the CPU time of that thread is the
 * engine's: it is compared for N and 16 N. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/cache/fill_fixture.h"

#define NMORE 16
#define GROWS 3 /* a linear cost grows 16 times */
#define NQUEUED 8192
#define PIECE 4096 /* bytes for each progress(), as from a far origin */

/* An origin that answers when the test calls answer_one(). */
struct hand_origin {
	struct ps_origin origin; /* first */
	pthread_mutex_t lock;
	pthread_cond_t cond;
	size_t first, n;
	struct ps_origin_get *gets[NQUEUED];
};

static void hand_get(struct ps_origin *origin, struct ps_origin_get *get)
{
	struct hand_origin *o = (struct hand_origin *)origin;

	PS_LOCK_SCOPE(&o->lock);
	assert_true(o->n < NQUEUED);
	o->gets[(o->first + o->n++) % NQUEUED] = get;
	pthread_cond_signal(&o->cond);
}

/* Does nothing: the get is answered all the same. */
static void hand_cancel(struct ps_origin *origin, struct ps_origin_get *get)
{
	(void)origin, (void)get;
}

static const struct ps_origin_ops hand_ops = {.name = "hand", .get = hand_get, .cancel = hand_cancel};

/* Waits for a get and answers it at once and in full. */
static void answer_one(struct hand_origin *o)
{
	struct ps_origin_get *get;
	{
		PS_LOCK_SCOPE(&o->lock);
		while (o->n == 0)
			pthread_cond_wait(&o->cond, &o->lock);
		get = o->gets[o->first++ % NQUEUED];
		o->n--;
	}
	get->seen = get->expect;
	for (size_t at = PIECE; at < get->nbytes; at += PIECE)
		get->progress(get, at);
	get->progress(get, get->nbytes);
	get->nbytes_done = get->wire_nbytes = get->nbytes;
	get->done(get, &(struct ps_error){0});
}

struct counted {
	struct ps_read read;
	_Atomic unsigned *nanswered;
};

static void count(struct ps_read *read, int errnum, const struct ps_segment *segs, size_t nsegs)
{
	(void)segs, (void)nsegs;
	assert_int_equal(errnum, 0);
	atomic_fetch_add(((struct counted *)read)->nanswered, 1);
}

struct world {
	struct fixture *f;
	struct hand_origin o;
	unsigned n;
	struct ps_fill_file **files;
	struct counted *reads;
	_Atomic unsigned nanswered;
};

static void open_world(struct world *w, unsigned n, unsigned nfiles, uint64_t file_nbytes)
{
	const struct fixture_options options = {
	        .file_nbytes = file_nbytes, .memory_bytes = 64 * PS_MIB, .timeout_ms = 600000};
	struct ps_remote remote = {.size = file_nbytes, .mtime_s = 1, .etag = "\"v1\""};
	struct ps_object *object;
	char url[64];

	memset(w, 0, sizeof(*w));
	w->f = fixture_new(&options);
	w->o.origin.ops = &hand_ops;
	pthread_mutex_init(&w->o.lock, NULL);
	pthread_cond_init(&w->o.cond, NULL);
	w->n = n;
	w->files = calloc(nfiles + 1, sizeof(struct ps_fill_file *));
	w->reads = calloc(n, sizeof(*w->reads));
	assert_true(w->files && w->reads);
	for (unsigned i = 0; i < nfiles; i++) {
		snprintf(url, sizeof(url), "http://hand/%u.tar", i);
		assert_int_equal(ps_object_get(w->f->store, url, &remote, 1, true, &object), 0);
		assert_int_equal(ps_fill_file_get(w->f->fill, object, &w->o.origin, &w->files[i]), 0);
		ps_object_put(object);
	}
}

static void close_world(struct world *w)
{
	for (unsigned i = 0; w->files[i]; i++)
		ps_fill_file_put(w->files[i]);
	ps_fill_drain(w->f->fill, &w->o.origin);
	fixture_free(w->f);
	free(w->files);
	free(w->reads);
}

static void begin_one(struct world *w, unsigned i, struct ps_fill_file *file, uint64_t offset)
{
	struct counted *c = &w->reads[i];

	c->nanswered = &w->nanswered;
	c->read = (struct ps_read){.offset = offset, .nbytes = 4096, .done = count};
	c->read.priv.access = PS_ACCESS_RANDOM;
	ps_fill_read(file, &c->read);
}

static void answer_all(struct world *w)
{
	while (atomic_load(&w->nanswered) < w->n)
		answer_one(&w->o);
}

static uint64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * PS_NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* The least of three runs, since other programs disturb the processor's caches. */
static double least(uint64_t (*cost)(unsigned n), unsigned n)
{
	uint64_t best = UINT64_MAX;

	for (int i = 0; i < 3; i++)
		best = PS_MIN(best, cost(n));
	return (double)best / n;
}

static void does_not_grow(const char *what, uint64_t (*cost)(unsigned n), unsigned n)
{
	double few = least(cost, n), many = least(cost, NMORE * n);

	print_message(
	        "# %s: %.2f us each of %u, %.2f us each of %u\n", what, few / 1e3, n, many / 1e3, NMORE * n);
	assert_true(many < GROWS * few);
}

/* The readers of one large file all wait, each for another block, in no order. */
static uint64_t cost_of_waiters(unsigned n)
{
	struct world w;

	open_world(&w, n, 1, n * PS_MIB);
	uint64_t start = cpu_ns();
	for (unsigned i = 0; i < n; i++)
		begin_one(&w, i, w.files[0], (uint64_t)i * 797 % n * PS_MIB + i % 13 * PS_CHUNK_SIZE);
	answer_all(&w);
	uint64_t ns = cpu_ns() - start;
	close_world(&w);
	return ns;
}

static void a_read_costs_the_same_with_many_waiters_of_its_file(void **state)
{
	(void)state;
	does_not_grow("waiters of a file", cost_of_waiters, 128);
}

/* Each file gets two reads: the second one looks whether it can join the first. */
static uint64_t cost_of_files(unsigned n)
{
	struct world w;

	open_world(&w, n, n / 2, 20 * PS_MIB);
	uint64_t start = cpu_ns();
	for (unsigned i = 0; i < n; i++)
		begin_one(&w, i, w.files[i % (n / 2)], i < n / 2 ? 0 : 19 * PS_MIB);
	answer_all(&w);
	uint64_t ns = cpu_ns() - start;
	close_world(&w);
	return ns;
}

static void a_read_costs_the_same_with_many_files_that_wait(void **state)
{
	(void)state;
	does_not_grow("files that wait", cost_of_files, 128);
}

/* Each file is opened and closed once more. */
static uint64_t cost_of_opens(unsigned n)
{
	struct ps_fill_file *again;
	struct world w;

	open_world(&w, n, n, PS_MIB);
	uint64_t start = cpu_ns();
	for (unsigned i = 0; i < n; i++) {
		struct ps_object *object = ps_fill_file_object(w.files[i]);

		assert_int_equal(ps_fill_file_get(w.f->fill, object, &w.o.origin, &again), 0);
		assert_ptr_equal(again, w.files[i]);
		ps_fill_file_put(again);
	}
	uint64_t ns = cpu_ns() - start;
	close_world(&w);
	return ns;
}

static void an_open_costs_the_same_with_many_open_files(void **state)
{
	(void)state;
	does_not_grow("open files", cost_of_opens, 128);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_read_costs_the_same_with_many_waiters_of_its_file),
	        cmocka_unit_test(a_read_costs_the_same_with_many_files_that_wait),
	        cmocka_unit_test(an_open_costs_the_same_with_many_open_files),
	};

	return cmocka_run_group_tests_name("fill_scale", tests, NULL, NULL);
}
