/* Joined threads have ended, also the destructors that run at their very end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/daemon_private.h"

#define NTHREADS 8

static struct ps_thread_group threads;
static pthread_key_t key;
static _Atomic unsigned nleft, nended;

static void count_left(void *arg)
{
	(void)arg;
	nleft++;
}

/* Runs when the thread has returned; long enough to catch a caller that does not wait for it. */
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
	ps_thread_group_leave(&threads, count_left, NULL);
	return NULL;
}

static void all_have_ended_once_joined(void **state)
{
	(void)state;
	nleft = nended = 0;
	ps_thread_group_init(&threads);
	for (intptr_t i = 0; i < NTHREADS; i++)
		assert_int_equal(ps_thread_group_start(&threads, thread_main, (void *)(i % 3 * 1000)), 0);
	while (ps_thread_group_count(&threads) > 0)
		usleep(100);
	ps_thread_group_join(&threads);
	assert_int_equal(nended, NTHREADS);
	assert_int_equal(nleft, NTHREADS);
	ps_thread_group_fini(&threads);
}

static void joining_an_empty_group_does_not_wait(void **state)
{
	(void)state;
	ps_thread_group_init(&threads);
	assert_int_equal(ps_thread_group_count(&threads), 0);
	ps_thread_group_join(&threads);
	ps_thread_group_fini(&threads);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(all_have_ended_once_joined),
	        cmocka_unit_test(joining_an_empty_group_does_not_wait),
	};

	pthread_key_create(&key, at_the_very_end);
	return cmocka_run_group_tests_name("thread_group", tests, NULL, NULL);
}
