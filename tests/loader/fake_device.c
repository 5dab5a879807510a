#include "config.h"

#include "fake_device.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#define DELAY_US 300 /* the longest delay of a job */

enum what { COPY, RECORD, WAIT, CALL };

/* asked: number of recordings that were requested; done: number of the last recording that was executed. */
struct event {
	uint64_t asked, done;
	double at; /* seconds: time of that recording */
};

struct job {
	struct job *next;
	enum what what;
	struct event *event; /* RECORD, WAIT */
	uint64_t number;     /* number of the recording */
	void (*fn)(void *arg);
	void *arg;
	bool owns; /* `arg` is freed with the job, done or not */
	void *to;  /* COPY */
	const void *from;
	size_t nbytes;
};

struct ps_fake_stream {
	struct ps_fake_stream *next;
	struct job *head, **tail;
	bool busy; /* its first job is being executed */
};

struct user {
	struct ps_fake_stream *stream;
	struct event *left;
};

struct fake_mirror {
	struct ps_mirror base;
	struct ps_fake_stream *stream;
	struct event sent;
	struct user *users;
	uint32_t nusers, nplaces;
};

static struct {
	pthread_mutex_t lock; /* guards all of this struct */
	pthread_cond_t changed;
	uint32_t ndevices;
	bool stop, lost;
	uint32_t random;
	pthread_t thread;
	struct ps_fake_stream *streams;
	struct ps_device_copies copies;
} the = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static int lost(struct ps_error *err)
{
	return ps_error_set(err, EIO, "device fake: the device is lost");
}

/* The engine; the lock is held --------------------------------------------------------------------------- */

static uint32_t next_random(void)
{
	the.random = the.random * 1664525 + 1013904223;
	return the.random >> 8;
}

static bool runnable(const struct ps_fake_stream *s)
{
	const struct job *j = s->head;

	return j && !s->busy && (j->what != WAIT || j->event->done >= j->number || the.lost);
}

static struct ps_fake_stream *stream_choose(void)
{
	struct ps_fake_stream *chosen = NULL;
	uint32_t n = 0;

	for (struct ps_fake_stream *s = the.streams; s; s = s->next)
		if (runnable(s) && next_random() % ++n == 0)
			chosen = s;
	return chosen;
}

static void job_do(struct job *j)
{
	switch (j->what) {
	case COPY:
		memcpy(j->to, j->from, j->nbytes);
		break;
	case CALL:
		j->fn(j->arg);
		break;
	case RECORD:
	case WAIT:
		break;
	}
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* Executes a stream's first job; releases the lock meanwhile. */
static void stream_step(struct ps_fake_stream *s)
{
	struct job *j = s->head;
	uint32_t us = next_random() % DELAY_US;
	struct timespec ts = {.tv_nsec = (long)us * 1000};
	bool is_lost = the.lost;

	s->busy = true;
	pthread_mutex_unlock(&the.lock);
	if (!is_lost) {
		(void)nanosleep(&ts, NULL);
		job_do(j);
	}
	pthread_mutex_lock(&the.lock);
	if (j->what == RECORD) {
		j->event->done = j->number;
		j->event->at = now();
	}
	if (j->what == COPY && !is_lost) {
		the.copies.nbytes += j->nbytes;
		the.copies.seconds += us / 1e6;
	}
	s->busy = false;
	s->head = j->next;
	if (!s->head)
		s->tail = &s->head;
	if (j->owns)
		free(j->arg);
	free(j);
	pthread_cond_broadcast(&the.changed);
}

static void *engine_main(void *arg)
{
	(void)arg;
	PS_LOCK_SCOPE(&the.lock);
	for (;;) {
		struct ps_fake_stream *s = stream_choose();

		if (s)
			stream_step(s);
		else if (the.stop)
			return NULL;
		else
			pthread_cond_wait(&the.changed, &the.lock);
	}
}

static int job_give(struct ps_fake_stream *s, const struct job *what)
{
	struct job *j = malloc(sizeof(*j));

	if (!j)
		return -ENOMEM;
	*j = *what;
	j->next = NULL;
	*s->tail = j;
	s->tail = &j->next;
	pthread_cond_broadcast(&the.changed);
	return 0;
}

static int record(struct ps_fake_stream *s, struct event *event)
{
	struct job j = {.what = RECORD, .event = event, .number = event->asked + 1};
	int rc = job_give(s, &j);

	if (rc == 0)
		event->asked++;
	return rc;
}

static int wait_for(struct ps_fake_stream *s, struct event *event)
{
	struct job j = {.what = WAIT, .event = event, .number = event->asked};

	return job_give(s, &j);
}

static void event_sync(const struct event *event)
{
	uint64_t number = event->asked;

	while (event->done < number && !the.lost)
		pthread_cond_wait(&the.changed, &the.lock);
}

static void stream_sync(const struct ps_fake_stream *s)
{
	while (s->head)
		pthread_cond_wait(&the.changed, &the.lock);
}

static struct ps_fake_stream *stream_new(void)
{
	struct ps_fake_stream *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->tail = &s->head;
	s->next = the.streams;
	the.streams = s;
	return s;
}

static void stream_free(struct ps_fake_stream *s)
{
	struct ps_fake_stream **at = &the.streams;

	stream_sync(s);
	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	free(s);
}

/* Streams of tests --------------------------------------------------------------------------------------- */

struct ps_fake_stream *ps_fake_stream_new(void)
{
	PS_LOCK_SCOPE(&the.lock);
	return stream_new();
}

void ps_fake_stream_free(struct ps_fake_stream *s)
{
	if (!s)
		return;
	PS_LOCK_SCOPE(&the.lock);
	stream_free(s);
}

int ps_fake_stream_call(struct ps_fake_stream *s, void (*fn)(void *arg), void *arg)
{
	struct job j = {.what = CALL, .fn = fn, .arg = arg};

	PS_LOCK_SCOPE(&the.lock);
	return job_give(s, &j);
}

void ps_fake_stream_sync(struct ps_fake_stream *s)
{
	PS_LOCK_SCOPE(&the.lock);
	stream_sync(s);
}

static bool is_busy(void)
{
	for (const struct ps_fake_stream *s = the.streams; s; s = s->next)
		if (s->busy)
			return true;
	return false;
}

void ps_fake_lose(void)
{
	PS_LOCK_SCOPE(&the.lock);
	the.lost = true;
	pthread_cond_broadcast(&the.changed);
	/* From now on no job touches memory, so it can be freed without waiting for streams. */
	while (is_busy())
		pthread_cond_wait(&the.changed, &the.lock);
}

/* The device --------------------------------------------------------------------------------------------- */

static int fake_open(uint32_t ordinal, struct ps_device **ret_device, struct ps_error *err)
{
	struct ps_device *d = calloc(1, sizeof(*d));

	if (!d)
		return ps_no_memory(err);
	*d = (struct ps_device){.ops = &ps_device_fake, .ordinal = ordinal};
	PS_LOCK_SCOPE(&the.lock);
	if (the.ndevices == 0) {
		int rc;

		the.stop = the.lost = false;
		the.copies = (struct ps_device_copies){0};
		rc = pthread_create(&the.thread, NULL, engine_main, NULL);
		if (rc != 0) {
			free(d);
			return ps_error_set(err, rc, "device fake: %s", strerror(rc));
		}
	}
	the.ndevices++;
	*ret_device = d;
	return 0;
}

static void fake_close(struct ps_device *device)
{
	bool last;

	free(device);
	pthread_mutex_lock(&the.lock);
	last = --the.ndevices == 0;
	the.stop = last;
	pthread_cond_broadcast(&the.changed);
	pthread_mutex_unlock(&the.lock);
	if (last)
		pthread_join(the.thread, NULL);
}

static struct fake_mirror *mirror_of(struct ps_mirror *m)
{
	return PS_CONTAINER_OF(m, struct fake_mirror, base);
}

/* Waits until the streams that use the mirror have left it, or the device is lost. */
static void users_sync(struct fake_mirror *m)
{
	for (uint32_t i = 0; i < m->nusers; i++)
		event_sync(m->users[i].left);
	m->nusers = 0;
}

static void fake_mirror_free(struct ps_mirror *mirror)
{
	struct fake_mirror *m;

	if (!mirror)
		return;
	m = mirror_of(mirror);
	pthread_mutex_lock(&the.lock);
	users_sync(m);
	if (m->stream)
		stream_free(m->stream);
	for (uint32_t i = 0; i < m->nplaces; i++) {
		while (m->users[i].left->done < m->users[i].left->asked)
			/* the event's recording is still in a stream */
			pthread_cond_wait(&the.changed, &the.lock);
		free(m->users[i].left);
	}
	pthread_mutex_unlock(&the.lock);
	free(m->users);
	free(mirror->data);
	free(m);
}

static int fake_mirror_new(struct ps_device *device, const struct ps_mirror_size *size,
        struct ps_mirror **ret_mirror, struct ps_error *err)
{
	struct fake_mirror *m = calloc(1, sizeof(*m));

	if (m) {
		m->base = (struct ps_mirror){
		        .device = device, .data = malloc(size->slot), .nbytes = size->slot};
		m->stream = ps_fake_stream_new();
	}
	if (!m || !m->base.data || !m->stream) {
		fake_mirror_free(m ? &m->base : NULL);
		return ps_no_memory(err);
	}
	*ret_mirror = &m->base;
	return 0;
}

/* This device finishes no fields: its cannot_make is NULL. */
static int fake_send(struct ps_mirror *mirror, const struct ps_sending *sending, struct ps_error *err)
{
	struct fake_mirror *m = mirror_of(mirror);
	size_t nbytes = sending->nbytes;
	int rc = 0;

	PS_LOCK_SCOPE(&the.lock);
	if (the.lost)
		return lost(err);
	if (nbytes > mirror->nbytes) {
		uint8_t *data = malloc(nbytes);

		if (!data)
			return ps_no_memory(err);
		users_sync(m);
		free(mirror->data);
		mirror->data = data;
		mirror->nbytes = nbytes;
	}
	for (uint32_t i = 0; i < m->nusers && rc == 0; i++)
		rc = wait_for(m->stream, m->users[i].left);
	m->nusers = 0;
	for (uint32_t i = 0; i < sending->nstretches && rc == 0; i++) {
		const struct ps_stretch *at = &sending->stretches[i];
		const struct job copy = {.what = COPY,
		        .to = mirror->data + at->at,
		        .from = (const uint8_t *)sending->slot + at->at,
		        .nbytes = at->nbytes};

		rc = job_give(m->stream, &copy);
	}
	if (rc == 0)
		rc = record(m->stream, &m->sent);
	return rc == 0 ? 0 : ps_error_set(err, -rc, "out of memory");
}

static int fake_arrived(struct ps_mirror *mirror, struct ps_error *err)
{
	const struct fake_mirror *m = mirror_of(mirror);

	PS_LOCK_SCOPE(&the.lock);
	return the.lost ? lost(err) : m->sent.done == m->sent.asked;
}

static int fake_wait(struct ps_mirror *mirror, struct ps_error *err)
{
	const struct fake_mirror *m = mirror_of(mirror);

	PS_LOCK_SCOPE(&the.lock);
	event_sync(&m->sent);
	return the.lost ? lost(err) : 0;
}

static struct user *user_add(struct fake_mirror *m, struct ps_fake_stream *stream)
{
	for (uint32_t i = 0; i < m->nusers; i++)
		if (m->users[i].stream == stream)
			return &m->users[i];
	if (m->nusers == m->nplaces) {
		struct user *users = realloc(m->users, (m->nplaces + 1) * sizeof(*users));

		if (!users)
			return NULL;
		m->users = users;
		users[m->nplaces].left = calloc(1, sizeof(*users->left));
		if (!users[m->nplaces].left)
			return NULL;
		m->nplaces++;
	}
	m->users[m->nusers].stream = stream;
	return &m->users[m->nusers++];
}

static int fake_use(struct ps_mirror *mirror, void *stream, struct ps_error *err)
{
	struct fake_mirror *m = mirror_of(mirror);

	PS_LOCK_SCOPE(&the.lock);
	if (the.lost)
		return lost(err);
	if (!user_add(m, stream) || wait_for(stream, &m->sent) < 0)
		return ps_no_memory(err);
	return 0;
}

static int fake_leave(struct ps_mirror *mirror, struct ps_error *err)
{
	struct fake_mirror *m = mirror_of(mirror);

	PS_LOCK_SCOPE(&the.lock);
	if (the.lost)
		return lost(err);
	for (uint32_t i = 0; i < m->nusers; i++)
		if (record(m->users[i].stream, m->users[i].left) < 0)
			return ps_no_memory(err);
	return 0;
}

static void *fake_event(struct ps_mirror *mirror)
{
	return &mirror_of(mirror)->sent;
}

static void fake_copies(struct ps_device *device, struct ps_device_copies *ret_copies)
{
	(void)device;
	PS_LOCK_SCOPE(&the.lock);
	*ret_copies = the.copies;
}

const struct ps_device_ops ps_device_fake = {
        .name = "fake",
        .type = 1, /* to users, its tensors are in host memory */
        .open = fake_open,
        .close = fake_close,
        .alloc = ps_host_slot_alloc,
        .resize = ps_host_slot_copy,
        .free = ps_host_slot_free,
        .mirror_new = fake_mirror_new,
        .mirror_free = fake_mirror_free,
        .send = fake_send,
        .arrived = fake_arrived,
        .wait = fake_wait,
        .use = fake_use,
        .leave = fake_leave,
        .event = fake_event,
        .copies = fake_copies,
};
