/* Threads are gone once they were joined, also what they free at their very end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/thread_group.h"

#define NTHREADS 8

static struct ps_threads threads;
static pthread_key_t key;
static _Atomic unsigned nleft, nended;

static void count_left(void *arg)
{
	(void)arg;
	nleft++;
}

/* Runs when the thread has returned; long enough for whoever does not wait for it. */
static void at_the_very_end(void *value)
{
	(void)value;
	usleep(50000);
	nended++;
}

static void *thread_main(void *arg)
{
	pthread_setspecific(key, &threads);
	usleep((useconds_t)(intptr_t)arg);
	ps_threads_go(&threads, count_left, NULL);
	return NULL;
}

static void all_have_ended_once_joined(void **state)
{
	(void)state;
	nleft = nended = 0;
	ps_threads_init(&threads);
	for (intptr_t i = 0; i < NTHREADS; i++)
		assert_int_equal(ps_threads_start(&threads, thread_main, (void *)(i % 3 * 1000)), 0);
	while (ps_threads_count(&threads) > 0)
		usleep(100);
	ps_threads_join(&threads);
	assert_int_equal(nended, NTHREADS);
	assert_int_equal(nleft, NTHREADS);
	ps_threads_fini(&threads);
}

static void without_any_there_is_nothing_to_wait_for(void **state)
{
	(void)state;
	ps_threads_init(&threads);
	assert_int_equal(ps_threads_count(&threads), 0);
	ps_threads_join(&threads);
	ps_threads_fini(&threads);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(all_have_ended_once_joined),
	        cmocka_unit_test(without_any_there_is_nothing_to_wait_for),
	};

	pthread_key_create(&key, at_the_very_end);
	return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
