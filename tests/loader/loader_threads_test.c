/* Threads and processes may hold and release batches, close a loader, read its statistics and fork at any
 * moment. */
#include "config.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>

#include "loader_fixture.h"

static void next_fails_and_does_not_hang_while_all_batches_are_held(void **state)
{
	struct setting s;
	struct penstock_loader *l;
	struct penstock_batch *held[3], *extra;
	struct penstock_error e;
	uint64_t before;

	(void)state;
	setting_init(&s);
	s.o.depth = 3;
	l = open_ok(&s.o, pattern, 1);
	for (int i = 0; i < 3; i++)
		assert_int_equal(penstock_loader_next(l, &held[i], NULL), 1);
	assert_int_equal(penstock_loader_next(l, &extra, &e), -EBUSY);
	assert_non_null(strstr(e.text, "all 3 batches are held"));
	before = batch_hash(0, held[0]);
	penstock_batch_release(held[1]); /* in any order */
	assert_int_equal(penstock_loader_next(l, &extra, NULL), 1);
	assert_int_equal(batch_hash(0, held[0]), before);
	penstock_loader_close(l);
}

/* A program's signals are handled in its own threads alone. */
static void no_thread_of_a_loader_takes_signals(void **state)
{
	struct setting s;
	struct penstock_loader *l;
	struct penstock_batch *b;
	struct dirent *entry;
	unsigned ntasks = 0;

	(void)state;
	setting_init(&s);
	l = open_ok(&s.o, pattern, 1);
	assert_int_equal(penstock_loader_next(l, &b, NULL), 1);
	DIR *tasks = opendir("/proc/self/task");
	assert_non_null(tasks);
	while ((entry = readdir(tasks))) {
		char path[300], line[128];
		unsigned long long blocked = 0;

		if (entry->d_name[0] == '.' || atoi(entry->d_name) == getpid())
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
		FILE *f = fopen(path, "re");
		if (!f)
			continue;
		while (fgets(line, sizeof(line), f))
			(void)sscanf(line, "SigBlk: %llx", &blocked);
		fclose(f);
		assert_true(blocked >> (SIGUSR1 - 1) & 1);
		assert_true(blocked >> (SIGINT - 1) & 1);
		ntasks++;
	}
	closedir(tasks);
	assert_true(ntasks > 0);
	penstock_batch_release(b);
	penstock_loader_close(l);
}

static void *release_late(void *batch)
{
	usleep(20000);
	penstock_batch_release(batch);
	return NULL;
}

static void batches_are_added_while_all_are_held(void **state)
{
	struct setting s;
	struct penstock_loader *l, *plain;
	struct penstock_batch *held[64], *b;
	struct penstock_error e;
	uint64_t want[64];
	pthread_t thread;
	int n = 0, r;

	(void)state;
	setting_init(&s);
	plain = open_ok(&s.o, pattern, 1);
	for (int i = 0; i < 5; i++) {
		assert_int_equal(penstock_loader_next(plain, &b, NULL), 1);
		want[i] = batch_hash(0, b);
		penstock_batch_release(b);
	}
	penstock_loader_close(plain);
	s.o.depth = 2;
	l = open_ok(&s.o, pattern, 1);
	assert_int_equal(penstock_loader_wait_released(l, 0, NULL), 1); /* none is held */
	for (; n < 2; n++)
		assert_int_equal(penstock_loader_next(l, &held[n], NULL), 1);
	assert_int_equal(penstock_loader_wait_released(l, 10, NULL), 0);
	for (; n < 5; n++) {
		assert_int_equal(penstock_loader_next(l, &held[n], &e), -EBUSY);
		assert_int_equal(penstock_loader_add_batch(l, NULL), 0);
		assert_int_equal(penstock_loader_next(l, &held[n], NULL), 1);
	}
	for (int i = 0; i < n; i++)
		assert_int_equal(batch_hash(0, held[i]), want[i]);
	assert_int_equal(pthread_create(&thread, NULL, release_late, held[3]), 0);
	assert_int_equal(penstock_loader_wait_released(l, 3600000, NULL), 1);
	pthread_join(thread, NULL);
	assert_int_equal(penstock_loader_next(l, &held[3], NULL), 1);
	assert_int_equal(penstock_loader_set_epoch(l, 0, NULL), 0); /* held batches stay valid */
	assert_int_equal(batch_hash(0, held[0]), want[0]);
	for (int i = 0; i < n; i++)
		penstock_batch_release(held[i]);
	assert_int_equal(penstock_loader_next(l, &b, NULL), 1);
	assert_int_equal(batch_hash(0, b), want[0]);
	while ((r = penstock_loader_add_batch(l, &e)) == 0)
		n++;
	assert_int_equal(r, -ENOBUFS);
	assert_non_null(strstr(e.text, "has no room for another batch of"));
	penstock_loader_close(l);
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* After the last batch no further batch can end the wait: only a release can. */
static void a_release_ends_a_wait_after_the_last_batch(void **state)
{
	struct setting s;
	struct penstock_loader *l;
	struct penstock_batch *held[2], *b;
	pthread_t thread;
	double start;
	int r;

	(void)state;
	setting_init(&s);
	s.o.depth = 2;
	s.o.batch = SHARDS * PER_SHARD / 2;
	l = open_ok(&s.o, pattern, 1);
	for (int i = 0; i < 2; i++)
		assert_int_equal(penstock_loader_next(l, &held[i], NULL), 1);
	while ((r = penstock_loader_next(l, &b, NULL)) == -EBUSY) /* until the end is known */
		usleep(1000);
	assert_int_equal(r, 0);
	start = seconds();
	assert_int_equal(pthread_create(&thread, NULL, release_late, held[0]), 0);
	assert_int_equal(penstock_loader_wait_released(l, 20000, NULL), 1);
	assert_true(seconds() - start < 10);
	pthread_join(thread, NULL);
	penstock_loader_close(l);
}

static int transform_waits(void *gate, struct penstock_sample *sample)
{
	(void)sample;
	pthread_mutex_lock(gate);
	pthread_mutex_unlock(gate);
	return 0;
}

static void a_wait_ends_after_its_timeout(void **state)
{
	pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
	struct setting s;
	struct penstock_loader *l;

	(void)state;
	setting_init(&s);
	s.o.transform = transform_waits;
	s.o.transform_ctx = &gate;
	pthread_mutex_lock(&gate);
	l = open_ok(&s.o, pattern, 1);
	assert_int_equal(penstock_loader_wait(l, 0, NULL), 0);
	assert_int_equal(penstock_loader_wait(l, 30, NULL), 0);
	pthread_mutex_unlock(&gate);
	assert_int_equal(penstock_loader_wait(l, 60000, NULL), 1);
	penstock_loader_close(l);
}

/* With the default number of threads, threads that mostly wait are put aside: the consumer takes many times
 * as long for a batch as they do. */
#ifdef __SANITIZE_THREAD__
#define CONSUMER_US 300000
#define AT_MOST_S 30
#else
#define CONSUMER_US 20000
#define AT_MOST_S 3
#endif
static void a_loader_with_idle_threads_can_be_closed(void **state)
{
	double start = seconds();
	struct setting s;
	struct penstock_loader *l;
	struct penstock_batch *b;
	struct penstock_stats stats;
	uint32_t most = 0;

	(void)state;
	setting_init(&s);
	s.o.threads = 0;
	s.o.epochs = 0;
	l = open_ok(&s.o, pattern, 1);
	do { /* a machine with one CPU has no thread to put aside */
		if (penstock_loader_next(l, &b, NULL) == 1)
			penstock_batch_release(b);
		usleep(CONSUMER_US);
		assert_int_equal(penstock_loader_stats(l, &stats, sizeof(stats), NULL), 0);
		most = most > stats.stages[1].threads ? most : stats.stages[1].threads;
	} while (stats.stages[1].threads == most && seconds() - start < AT_MOST_S);
	assert_true(most == 1 || stats.stages[1].threads < most);
	usleep(20000);
	penstock_loader_close(l);
}

static void closing_at_any_moment_neither_hangs_nor_leaks(void **state)
{
	(void)state;
	for (int n = 0; n < 12; n++) {
		struct setting s;
		struct penstock_loader *l;
		struct penstock_batch *b;

		setting_init(&s);
		s.o.threads = 1 + (uint32_t)n % 4;
		s.o.epochs = 0;
		l = open_ok(&s.o, pattern, 1);
		for (int i = 0; i < n; i++) {
			int rc = penstock_loader_next(l, &b, NULL);

			assert_true(rc >= 0);
			if (rc == 1)
				penstock_batch_release(b);
		}
		penstock_loader_close(l);
	}
}

static void a_forked_child_gets_errors_and_can_close(void **state)
{
	struct setting s;
	struct penstock_loader *l;
	struct penstock_batch *b, *other;
	int status;
	pid_t pid;

	(void)state;
	setting_init(&s);
	l = open_ok(&s.o, pattern, 1);
	assert_int_equal(penstock_loader_next(l, &b, NULL), 1);
	pid = fork();
	if (pid == 0) {
		struct penstock_error e;
		struct penstock_stats stats;
		int bad = penstock_loader_next(l, &other, &e) != -ECHILD;

		bad = bad || !strstr(e.text, "open a loader in this process");
		bad = bad || penstock_loader_stats(l, &stats, sizeof(stats), NULL) != -ECHILD;
		bad = bad || penstock_loader_set_epoch(l, 0, NULL) != -ECHILD;
		penstock_batch_release(b);
		penstock_loader_close(l);
		_exit(bad);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	penstock_batch_release(b);
	assert_int_equal(penstock_loader_next(l, &b, NULL), 1);
	penstock_loader_close(l);
}

static atomic_bool restless_stop;

static void *restless(void *loader)
{
	while (!atomic_load(&restless_stop)) {
		struct penstock_stats stats;

		if (penstock_loader_stats(loader, &stats, sizeof(stats), NULL) < 0)
			return loader;
		for (int i = 0; i < PENSTOCK_NSTAGES; i++)
			if (stats.stages[i].busy > 1e6 || stats.stages[i].waiting_input > 1e6 ||
			        stats.stages[i].waiting_output > 1e6)
				return loader;
	}
	return NULL;
}

static void *releaser(void *batch)
{
	penstock_batch_release(batch);
	return NULL;
}

static void other_threads_may_read_statistics_and_release_at_any_moment(void **state)
{
	struct setting s;
	struct penstock_loader *l;
	pthread_t watch, other;
	void *wrong;

	(void)state;
	setting_init(&s);
	s.o.epochs = 0;
	l = open_ok(&s.o, pattern, 1);
	assert_int_equal(pthread_create(&watch, NULL, restless, l), 0);
	for (uint64_t i = 0; i < 20; i++) {
		struct penstock_batch *b;

		assert_int_equal(penstock_loader_next(l, &b, NULL), 1);
		assert_int_equal(pthread_create(&other, NULL, releaser, b), 0);
		assert_int_equal(penstock_loader_set_epoch(l, i, NULL), 0);
		pthread_join(other, NULL);
	}
	atomic_store(&restless_stop, true);
	pthread_join(watch, &wrong);
	assert_null(wrong);
	penstock_loader_close(l);
}

static void stage_times_are_at_most_threads_times_the_run(void **state)
{
	struct setting s;
	struct penstock_loader *l;
	struct penstock_batch *b;
	struct penstock_stats stats;

	(void)state;
	setting_init(&s);
	l = open_ok(&s.o, pattern, 1);
	while (penstock_loader_next(l, &b, NULL) == 1)
		penstock_batch_release(b);
	assert_int_equal(penstock_loader_stats(l, &stats, sizeof(stats), NULL), 0);
	assert_int_equal(stats.samples, SHARDS * PER_SHARD);
	assert_int_equal(stats.batches, 8);
	assert_true(stats.bytes_read > 1000000);
	for (int i = 0; i < PENSTOCK_NSTAGES; i++) {
		const struct penstock_stage *st = &stats.stages[i];
		double all = st->busy + st->waiting_input + st->waiting_output;

		assert_true(st->busy >= 0 && st->waiting_input >= 0 && st->waiting_output >= 0);
		assert_true(all <= stats.seconds * st->threads * 1.01 + 0.001);
	}
	penstock_loader_close(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(next_fails_and_does_not_hang_while_all_batches_are_held),
	        cmocka_unit_test(no_thread_of_a_loader_takes_signals),
	        cmocka_unit_test(batches_are_added_while_all_are_held),
	        cmocka_unit_test(a_release_ends_a_wait_after_the_last_batch),
	        cmocka_unit_test(a_wait_ends_after_its_timeout),
	        cmocka_unit_test(a_loader_with_idle_threads_can_be_closed),
	        cmocka_unit_test(closing_at_any_moment_neither_hangs_nor_leaks),
	        cmocka_unit_test(a_forked_child_gets_errors_and_can_close),
	        cmocka_unit_test(other_threads_may_read_statistics_and_release_at_any_moment),
	        cmocka_unit_test(stage_times_are_at_most_threads_times_the_run),
	};

	return cmocka_run_group_tests_name("loader_threads", tests, shards_make, shards_remove);
}
