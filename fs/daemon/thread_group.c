#include "daemon/daemon_private.h"

void ps_thread_group_init(struct ps_thread_group *threads)
{
	*threads = (struct ps_thread_group){0};
	pthread_mutex_init(&threads->lock, NULL);
}

void ps_thread_group_fini(struct ps_thread_group *threads)
{
	pthread_mutex_destroy(&threads->lock);
}

int ps_thread_group_start(struct ps_thread_group *threads, void *(*fn)(void *), void *arg)
{
	pthread_t thread;

	/* Count it first: the thread may end before pthread_create() returns. */
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

void ps_thread_group_leave(struct ps_thread_group *threads, void (*leaves)(void *arg), void *arg)
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

unsigned ps_thread_group_count(struct ps_thread_group *threads)
{
	PS_LOCK_SCOPE(&threads->lock);
	return threads->n;
}

void ps_thread_group_join(struct ps_thread_group *threads)
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
