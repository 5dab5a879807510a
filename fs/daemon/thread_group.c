#include "daemon/thread_group.h"

void ps_threads_init(struct ps_threads *threads)
{
	*threads = (struct ps_threads){0};
	pthread_mutex_init(&threads->lock, NULL);
}

void ps_threads_fini(struct ps_threads *threads)
{
	pthread_mutex_destroy(&threads->lock);
}

int ps_threads_start(struct ps_threads *threads, void *(*fn)(void *), void *arg)
{
	pthread_t thread;

	/* Counted first: it may have gone before we are told that it runs. */
	{
		PS_LOCK_SCOPE(&threads->lock);
		threads->n++;
	}
	int rc = -pthread_create(&thread, NULL, fn, arg);
	if (rc < 0) {
		PS_LOCK_SCOPE(&threads->lock);
		threads->n--;
	}
	return rc;
}

void ps_threads_go(struct ps_threads *threads, void (*leaves)(void *arg), void *arg)
{
	pthread_t before;
	bool any;

	{
		PS_LOCK_SCOPE(&threads->lock);
		any = threads->any_gone;
		before = threads->gone;
		threads->any_gone = true;
		threads->gone = pthread_self();
		threads->n--;
	}
	leaves(arg);
	if (any)
		pthread_join(before, NULL);
}

unsigned ps_threads_count(struct ps_threads *threads)
{
	PS_LOCK_SCOPE(&threads->lock);
	return threads->n;
}

void ps_threads_join(struct ps_threads *threads)
{
	pthread_t last;

	{
		PS_LOCK_SCOPE(&threads->lock);
		if (!threads->any_gone)
			return;
		threads->any_gone = false;
		last = threads->gone;
	}
	pthread_join(last, NULL);
}
