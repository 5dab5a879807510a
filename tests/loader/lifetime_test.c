/* Which memory a loader holds and for how long, and in which process and thread a loader may be used. */
#include "config.h"

#include "penstock.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>

#include "make_tar.h"
#include "batches.h"

#define SAMPLES 400

static char folder[64];
static const char *const shards[] = {"n-{0..3}.tar"};

/* Allocations, counted by the kind of thread that makes them --------------------------------------------- */

static atomic_int in_workers, in_consumer, in_readers;
static _Thread_local int is_worker = -1;
static _Thread_local bool is_consumer;

static void count(void)
{
	if (is_worker < 0) {
		char name[16] = "";

		pthread_getname_np(pthread_self(), name, sizeof(name));
		is_worker = strncmp(name, "ps-decode", 9) == 0 ? 1 : strncmp(name, "ps-", 3) == 0 ? 0 : -1;
	}
	if (is_worker == 1)
		atomic_fetch_add(&in_workers, 1);
	if (is_worker == 0)
		atomic_fetch_add(&in_readers, 1);
	if (is_consumer)
		atomic_fetch_add(&in_consumer, 1);
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

void *__wrap_malloc(size_t n)
{
	count();
	return __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
	count();
	return __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
	count();
	return __real_realloc(p, n);
}

/* Shards of numbers and texts ---------------------------------------------------------------------------- */

static int setup(void **state)
{
	(void)state;
	folder_enter(folder);
	for (int s = 0; s < 4; s++) {
		struct tar t = {0};
		char name[64], text[64];

		for (int i = 0; i < SAMPLES / 4; i++) {
			snprintf(text, sizeof(text), "%d", i);
			snprintf(name, sizeof(name), "%d-%d.cls", s, i);
			tar_add_text(&t, name, text);
			snprintf(name, sizeof(name), "%d-%d.txt", s, i);
			tar_add_text(&t, name, "some text" + i % 9);
		}
		tar_end(&t);
		snprintf(name, sizeof(name), "n-%d.tar", s);
		tar_save(&t, name);
	}
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	folder_leave(folder);
	return 0;
}

struct setting {
	struct penstock_options o;
	struct penstock_field f[3];
};

static void setting_init(struct setting *s)
{
	penstock_options_init(&s->o, sizeof(s->o));
	penstock_field_init(&s->f[0], sizeof(s->f[0]), "cls", PENSTOCK_INT64);
	penstock_field_init(&s->f[1], sizeof(s->f[1]), "txt", PENSTOCK_TEXT);
	s->f[1].pad_to = 16;
	penstock_field_init(&s->f[2], sizeof(s->f[2]), "TXT;txt", PENSTOCK_BYTES);
	s->o.fields = s->f;
	s->o.nfields = 3;
	s->o.batch = 16;
	s->o.threads = 2;
	s->o.memory_budget = 64 << 20;
}

static void run_epochs(struct penstock_loader *l, int n)
{
	struct penstock_batch *b;
	struct penstock_error e;
	int rc;

	for (int i = 0; i < n; i++) {
		while ((rc = penstock_loader_next(l, &b, &e)) == 1)
			penstock_batch_release(b);
		if (rc < 0)
			fail_msg("%s", e.text);
	}
}

/* Readers allocate samples. Decode threads and the consumer allocate neither rows nor batches. */
static void decode_threads_and_consumer_allocate_nothing_per_batch(void **state)
{
	struct setting s;
	struct penstock_loader *l;

	(void)state;
	setting_init(&s);
	l = open_ok(&s.o, shards, 1);
	run_epochs(l, 3); /* until ragged fields have grown to the size they need */
	is_consumer = true;
	atomic_store(&in_workers, 0);
	atomic_store(&in_consumer, 0);
	run_epochs(l, 5);
	is_consumer = false;
	assert_true(atomic_load(&in_readers) > 0); /* the counters work */
	/* At most 2 for each of the 5 epochs, which have 25 batches each. */
	assert_in_range(atomic_load(&in_workers), 0, 2 * 5);
	assert_int_equal(atomic_load(&in_consumer), 0);
	penstock_loader_close(l);
}

static void batches_reuse_the_same_slots(void **state)
{
	const void *slots[3] = {0};
	struct setting s;
	struct penstock_loader *l;
	struct penstock_batch *b;
	int n = 0;

	(void)state;
	setting_init(&s);
	s.o.depth = 3;
	s.o.nfields = 2;
	l = open_ok(&s.o, shards, 1);
	run_epochs(l, 2);
	for (int i = 0; i < 20; i++) {
		struct penstock_batch_info info;
		int k = 0;

		assert_int_equal(penstock_loader_next(l, &b, NULL), 1);
		penstock_batch_info(b, &info);
		while (k < n && slots[k] != info.slot)
			k++;
		assert_true(k < 3);
		if (k == n)
			slots[n++] = info.slot;
		penstock_batch_release(b);
	}
	penstock_loader_close(l);
}

static void *closer(void *loader)
{
	penstock_loader_close(loader);
	return NULL;
}

static void a_loader_may_be_closed_on_another_thread(void **state)
{
	(void)state;
	for (int i = 0; i < 5; i++) {
		struct setting s;
		struct penstock_batch *b;
		struct penstock_loader *l;
		pthread_t thread;

		setting_init(&s);
		l = open_ok(&s.o, shards, 1);
		for (int k = 0; k < i; k++)
			assert_int_equal(penstock_loader_next(l, &b, NULL), 1); /* held */
		assert_int_equal(pthread_create(&thread, NULL, closer, l), 0);
		pthread_join(thread, NULL);
	}
}

/* Fork --------------------------------------------------------------------------------------------------- */

/* 0 if the call failed as it must in a forked child. */
static int refused(int r, const struct penstock_error *e)
{
	return r != -ECHILD || !strstr(e->text, "open a loader in this process");
}

static int child_calls(struct penstock_loader *l, const void *saved, size_t saved_size)
{
	struct penstock_batch *b;
	struct penstock_stats stats;
	struct penstock_error e;
	struct penstock_lost lost;
	uint64_t samples, batches;
	char state[8192];
	int bad = 0;

#define REFUSED(call)                     \
	do {                              \
		memset(&e, 0, sizeof(e)); \
		bad += refused(call, &e); \
	} while (0)
	REFUSED(penstock_loader_next(l, &b, &e));
	REFUSED(penstock_loader_wait(l, 10, &e));
	REFUSED(penstock_loader_set_epoch(l, 1, &e));
	REFUSED(penstock_loader_length(l, 0, &samples, &batches, &e));
	REFUSED(penstock_loader_state_save(l, state, sizeof(state), &e));
	REFUSED(penstock_loader_state_load(l, saved, saved_size, &e));
	REFUSED(penstock_loader_stats(l, &stats, sizeof(stats), &e));
#undef REFUSED
	bad += penstock_loader_lost(l, 0, &lost) != -ECHILD;
	return bad;
}

static void calls_in_a_forked_child_fail_except_release_and_close(void **state)
{
	struct setting s;
	struct penstock_loader *l;
	struct penstock_batch *b;
	struct penstock_tensor t;
	char saved[8192];
	int status, n;
	pid_t pid;

	(void)state;
	setting_init(&s);
	l = open_ok(&s.o, shards, 1);
	assert_int_equal(penstock_loader_next(l, &b, NULL), 1);
	n = penstock_loader_state_save(l, saved, sizeof(saved), NULL);
	assert_true(n > 0);
	pid = fork();
	if (pid == 0) {
		int bad = child_calls(l, saved, (size_t)n);

		alarm(20);
		bad += penstock_batch_field(b, "cls", &t, NULL) < 0; /* a held batch may be read */
		penstock_batch_release(b);
		penstock_loader_close(l);
#ifndef __SANITIZE_THREAD__ /* ThreadSanitizer starts no threads in a child of a process with threads */
		l = open_ok(&s.o, shards, 1); /* the child may open a loader of its own */
		bad += penstock_loader_next(l, &b, NULL) != 1;
		penstock_loader_close(l);
#endif
		_exit(bad);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	penstock_batch_release(b);
	run_epochs(l, 2);
	penstock_loader_close(l);
}

static void device_batch_calls_fail_in_a_forked_child(void **state)
{
	struct setting s;
	struct penstock_loader *l;
	struct penstock_batch *b;
	int status;
	pid_t pid;

	(void)state;
	setting_init(&s);
	s.o.device = "fake";
	l = open_ok(&s.o, shards, 1);
	assert_int_equal(penstock_loader_next(l, &b, NULL), 1);
	assert_int_equal(penstock_batch_sync(b, NULL), 0); /* the child has no copy to wait for */
	pid = fork();
	if (pid == 0) {
		struct penstock_error e = {0};
		int bad;

		alarm(20);
		bad = refused(penstock_batch_sync(b, &e), &e);
		e = (struct penstock_error){0};
		bad += refused(penstock_batch_use(b, NULL, &e), &e);
		penstock_batch_release(b);
		penstock_loader_close(l);
		_exit(bad);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	penstock_batch_release(b);
	penstock_loader_close(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(decode_threads_and_consumer_allocate_nothing_per_batch),
	        cmocka_unit_test(batches_reuse_the_same_slots),
	        cmocka_unit_test(a_loader_may_be_closed_on_another_thread),
	        cmocka_unit_test(calls_in_a_forked_child_fail_except_release_and_close),
	        cmocka_unit_test(device_batch_calls_fail_in_a_forked_child),
	};

	return cmocka_run_group_tests_name("lifetime", tests, setup, teardown);
}
