#include "fuse/background.h"

void ps_background_init(struct ps_background *bg)
{
	*bg = (struct ps_background){0};
	pthread_mutex_init(&bg->lock, NULL);
	pthread_cond_init(&bg->cond, NULL);
	ps_list_init(&bg->jobs);
}

void ps_background_fini(struct ps_background *bg)
{
	pthread_cond_destroy(&bg->cond);
	pthread_mutex_destroy(&bg->lock);
}

/* The next one, or NULL at the end. */
static struct ps_job *next_job(struct ps_background *bg)
{
	PS_LOCK_SCOPE(&bg->lock);
	while (ps_list_empty(&bg->jobs) && !bg->stopping)
		pthread_cond_wait(&bg->cond, &bg->lock);
	if (ps_list_empty(&bg->jobs))
		return NULL;
	struct ps_job *job = PS_CONTAINER_OF(bg->jobs.next, struct ps_job, link);
	ps_list_remove(&job->link);
	return job;
}

static void *background_main(void *arg)
{
	struct ps_job *job;

	pthread_setname_np(pthread_self(), "fs-background");
	while ((job = next_job(arg)))
		job->run(job);
	return NULL;
}

int ps_background_start(struct ps_background *bg)
{
	int rc = -pthread_create(&bg->thread, NULL, background_main, bg);

	bg->started = rc == 0;
	return rc;
}

void ps_background_stop(struct ps_background *bg)
{
	if (!bg->started)
		return;
	pthread_mutex_lock(&bg->lock);
	bg->stopping = true;
	pthread_cond_signal(&bg->cond);
	pthread_mutex_unlock(&bg->lock);
	pthread_join(bg->thread, NULL);
	bg->started = false;
}

void ps_background_add(struct ps_background *bg, struct ps_job *job)
{
	PS_LOCK_SCOPE(&bg->lock);
	ps_list_append(&bg->jobs, &job->link);
	pthread_cond_signal(&bg->cond);
}
