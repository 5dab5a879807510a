/* Writes decoded blocks while the next ones are decoded: the disk takes as long for one as decoding does. */
#include <stdlib.h>
#include <string.h>

#include "fetch/inflate_private.h"

struct ps_block_job {
	struct ps_block_job *next;
	struct ps_inflater *inflater; /* a reference */
	struct ps_object *object;     /* a reference */
	uint64_t block;
	uint8_t *data;
};

/* The lock is held. NULL: no memory. */
static struct ps_block_job *job_take(struct ps_block_writer *writer)
{
	struct ps_block_job *job = writer->spare;

	if (job) {
		writer->spare = job->next;
		return job;
	}
	job = calloc(1, sizeof *job);
	if (job && posix_memalign((void **)&job->data, 4096, PS_BLOCK_SIZE) == 0)
		return job;
	free(job);
	return NULL;
}

bool ps_writer_put(
        struct ps_inflater *inflater, struct ps_object *object, uint64_t block, const uint8_t *data)
{
	struct ps_inflate *inflate = inflater->inflate;
	struct ps_block_writer *writer = &inflate->writer;
	struct ps_block_job *job = NULL;
	{
		PS_LOCK_SCOPE(&inflate->lock);
		while (writer->njobs >= PS_WRITER_JOBS)
			pthread_cond_wait(&writer->done, &inflate->lock);
		job = job_take(writer);
		if (!job)
			return false;
		writer->njobs++; /* its place, while the bytes are copied */
		inflater->nwrites++;
		ps_inflater_ref(inflater);
	}
	job->inflater = inflater;
	job->object = ps_object_ref(object);
	job->block = block;
	job->next = NULL;
	memcpy(job->data, data, PS_BLOCK_SIZE);
	PS_LOCK_SCOPE(&inflate->lock);
	*writer->tail = job;
	writer->tail = &job->next;
	pthread_cond_signal(&writer->cond);
	return true;
}

void ps_writer_wait(struct ps_inflater *inflater)
{
	struct ps_inflate *inflate = inflater->inflate;

	PS_LOCK_SCOPE(&inflate->lock);
	while (inflater->nwrites > 0)
		pthread_cond_wait(&inflate->writer.done, &inflate->lock);
}

/* The lock is held, and dropped meanwhile. */
static void write_one(struct ps_inflate *inflate, struct ps_block_job *job)
{
	struct ps_block_writer *writer = &inflate->writer;
	struct ps_inflater *inflater = job->inflater;

	pthread_mutex_unlock(&inflate->lock);
	if (inflater->caches && ps_object_write_block(job->object, job->block, job->data) < 0)
		inflater->caches = false; /* the store has told why */
	ps_object_put(ps_steal_ptr(&job->object));
	pthread_mutex_lock(&inflate->lock);
	job->next = writer->spare;
	writer->spare = job;
	writer->njobs--;
	inflater->nwrites--;
	pthread_cond_broadcast(&writer->done);
	ps_inflater_unref(inflater);
}

static void *writer_main(void *arg)
{
	struct ps_inflate *inflate = arg;
	struct ps_block_writer *writer = &inflate->writer;

	pthread_setname_np(pthread_self(), "inflate-write");
	PS_LOCK_SCOPE(&inflate->lock);
	for (;;) {
		struct ps_block_job *job = writer->head;

		if (job) {
			writer->head = job->next;
			if (!writer->head)
				writer->tail = &writer->head;
			write_one(inflate, job);
		} else if (writer->stopping) {
			return NULL;
		} else {
			pthread_cond_wait(&writer->cond, &inflate->lock);
		}
	}
}

int ps_writer_start(struct ps_inflate *inflate)
{
	struct ps_block_writer *writer = &inflate->writer;
	int rc = 0;

	writer->tail = &writer->head;
	pthread_cond_init(&writer->cond, NULL);
	pthread_cond_init(&writer->done, NULL);
	while (writer->nthreads < PS_WRITER_THREADS && rc == 0) {
		rc = -pthread_create(&writer->threads[writer->nthreads], NULL, writer_main, inflate);
		writer->nthreads += rc == 0;
	}
	return rc;
}

void ps_writer_stop(struct ps_inflate *inflate)
{
	struct ps_block_writer *writer = &inflate->writer;
	{
		PS_LOCK_SCOPE(&inflate->lock);
		writer->stopping = true;
		pthread_cond_broadcast(&writer->cond);
	}
	for (unsigned i = 0; i < writer->nthreads; i++)
		pthread_join(writer->threads[i], NULL);
	while (writer->spare) {
		struct ps_block_job *job = writer->spare;

		writer->spare = job->next;
		free(job->data);
		free(job);
	}
	pthread_cond_destroy(&writer->cond);
	pthread_cond_destroy(&writer->done);
}
