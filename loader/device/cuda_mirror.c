/* Memory of the GPU for batches, the copies that fill it, and the kernels behind them. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "device/cuda_private.h"
#include "device/make_cuda.h"
#include "device/nvjpeg.h"

#define MEMORY_ALIGN (2UL << 20) /* the driver gives device memory by these */

/* A stream that uses the mirror, and the event behind what it was given. */
struct user {
	void *stream;
	ps_cu_event left; /* made when the place is first taken, and kept */
};

/*   made                 data
 *   | fields that kernels make | the slot's copy ... |   one piece of the device's memory */
struct cuda_mirror {
	struct ps_mirror base;
	size_t made_nbytes;
	ps_cu_event begin, copied, sent;
	size_t under_way;     /* bytes of the copies that are not known to be over; 0: none is */
	pthread_mutex_t lock; /* the rest */
	struct user *users;
	uint32_t nusers, nplaces;
};

static struct cuda_mirror *mirror_of(struct ps_mirror *m)
{
	return PS_CONTAINER_OF(m, struct cuda_mirror, base);
}

/* Frees its memory once nobody works on it; the context is entered. */
static void memory_give(struct ps_cuda_device *d, struct cuda_mirror *m)
{
	for (uint32_t i = 0; i < m->nusers; i++)
		(void)d->cu->event_sync(m->users[i].left);
	m->nusers = 0;
	if (m->base.made)
		(void)d->cu->memory_free((ps_cu_pointer)(uintptr_t)m->base.made);
	m->base.made = m->base.data = NULL;
	m->base.nbytes = 0;
}

static ps_cu_result memory_take(struct ps_cuda_device *d, struct cuda_mirror *m, size_t nbytes)
{
	size_t size = (m->made_nbytes + nbytes + MEMORY_ALIGN - 1) & ~(MEMORY_ALIGN - 1);
	ps_cu_pointer p = 0;
	ps_cu_result r;

	memory_give(d, m);
	r = d->cu->memory_alloc(&p, size);
	if (r != 0)
		return r;
	m->base.made = (uint8_t *)(uintptr_t)p;
	m->base.data = m->base.made + m->made_nbytes;
	m->base.nbytes = size - m->made_nbytes;
	return 0;
}

void ps_cuda_mirror_free(struct ps_mirror *mirror)
{
	struct cuda_mirror *m;
	struct ps_cuda_device *d;

	if (!mirror)
		return;
	m = mirror_of(mirror);
	d = ps_cuda_of(mirror->device);
	if (ps_cuda_enter(d, NULL) == 0) {
		if (m->under_way)
			(void)d->cu->event_sync(m->sent);
		memory_give(d, m);
		for (uint32_t i = 0; i < m->nplaces; i++)
			(void)d->cu->event_destroy(m->users[i].left);
		if (m->begin)
			(void)d->cu->event_destroy(m->begin);
		if (m->copied)
			(void)d->cu->event_destroy(m->copied);
		if (m->sent)
			(void)d->cu->event_destroy(m->sent);
		ps_cuda_leave(d);
	}
	pthread_mutex_destroy(&m->lock);
	free(m->users);
	free(m);
}

/* Kernels of all mirrors share one piece; called before anything runs. */
static ps_cu_result scratch_reserve(struct ps_cuda_device *d, size_t nbytes)
{
	ps_cu_pointer p = 0;
	ps_cu_result r;

	if (nbytes <= d->scratch_nbytes)
		return 0;
	r = d->cu->memory_alloc(&p, nbytes);
	if (r != 0)
		return r;
	if (d->scratch)
		(void)d->cu->memory_free(d->scratch);
	d->scratch = p;
	d->scratch_nbytes = nbytes;
	return 0;
}

static ps_cu_result mirror_make(
        struct ps_cuda_device *d, struct cuda_mirror *m, const struct ps_mirror_size *size)
{
	ps_cu_result r = d->cu->event_create(&m->begin, PS_CU_EVENT_DEFAULT);

	m->made_nbytes = (size->made + PS_DEVICE_PAGE - 1) & ~(size_t)(PS_DEVICE_PAGE - 1);
	if (r == 0)
		r = d->cu->event_create(&m->copied, PS_CU_EVENT_DEFAULT);
	if (r == 0)
		r = d->cu->event_create(&m->sent, PS_CU_EVENT_BLOCKING_SYNC | PS_CU_EVENT_DISABLE_TIMING);
	if (r == 0)
		r = memory_take(d, m, size->slot);
	return r == 0 ? scratch_reserve(d, size->scratch) : r;
}

int ps_cuda_mirror_new(struct ps_device *device, const struct ps_mirror_size *size,
        struct ps_mirror **ret_mirror, struct ps_load_error *err)
{
	struct ps_cuda_device *d = ps_cuda_of(device);
	struct cuda_mirror *m = calloc(1, sizeof(*m));
	ps_cu_result r;
	int e;

	if (!m)
		return ps_load_error_set(err, ENOMEM, "out of memory");
	m->base.device = device;
	pthread_mutex_init(&m->lock, NULL);
	e = ps_cuda_enter(d, err);
	if (e < 0) {
		pthread_mutex_destroy(&m->lock);
		free(m);
		return e;
	}
	r = mirror_make(d, m, size);
	ps_cuda_leave(d);
	if (r != 0) {
		char what[96];

		ps_cuda_mirror_free(&m->base);
		snprintf(what, sizeof(what), "cannot take %zu MiB of the GPU's memory for a batch",
		        (size->slot + size->made + size->scratch) >> 20);
		return ps_cuda_error(d->cu, r, err, what);
	}
	*ret_mirror = &m->base;
	return 0;
}

static ps_cu_result slot_copy(struct ps_cuda_device *d, struct cuda_mirror *m, const struct ps_sending *s)
{
	ps_cu_result r = 0;

	for (uint32_t i = 0; i < s->nstretches && r == 0; i++) {
		const struct ps_stretch *at = &s->stretches[i];

		r = d->cu->copy_to_device((ps_cu_pointer)(uintptr_t)(m->base.data + at->at),
		        (const uint8_t *)s->slot + at->at, at->nbytes, d->stream);
	}
	return r;
}

/* A batch's copies and kernels stand behind each other: no other's come between, and scratch is its own; and
 * what another decoder put into the mirror comes behind the copies. */
static ps_cu_result batch_give(
        struct ps_cuda_device *d, struct cuda_mirror *m, const struct ps_sending *sending)
{
	const struct ps_make_places at = {
	        .slot = m->base.data, .made = m->base.made, .scratch = (uint8_t *)(uintptr_t)d->scratch};
	const struct ps_make *makes = sending->makes;
	ps_cu_result r;

	PS_LOCK_SCOPE(&d->lock);
	r = d->cu->event_record(m->begin, d->stream);
	if (r == 0)
		r = slot_copy(d, m, sending);
	if (r == 0)
		r = d->cu->event_record(m->copied, d->stream);
	for (uint32_t i = 0; i < sending->nmakes && r == 0; i++)
		if (makes[i].decoded)
			r = ps_nvjpeg_place(makes[i].decoded, makes[i].sources, makes[i].nimages,
			        m->base.data + makes[i].planes, d->stream);
	for (uint32_t i = 0; i < sending->nmakes && r == 0; i++)
		r = ps_make_launch(&d->kernels, &makes[i], &at, d->stream);
	return r == 0 ? d->cu->event_record(m->sent, d->stream) : r;
}

static size_t nbytes_of(const struct ps_sending *s)
{
	size_t sum = 0;

	for (uint32_t i = 0; i < s->nstretches; i++)
		sum += s->stretches[i].nbytes;
	return sum;
}

int ps_cuda_send(struct ps_mirror *mirror, const struct ps_sending *sending, struct ps_load_error *err)
{
	struct cuda_mirror *m = mirror_of(mirror);
	struct ps_cuda_device *d = ps_cuda_of(mirror->device);
	const struct ps_cuda_driver *cu = d->cu;
	ps_cu_result r = 0;
	int e = ps_cuda_enter(d, err);

	if (e < 0)
		return e;
	PS_LOCK_SCOPE(&m->lock);
	if (sending->nbytes > mirror->nbytes)
		r = memory_take(d, m, sending->nbytes + sending->nbytes / 4);
	for (uint32_t i = 0; i < m->nusers && r == 0; i++)
		r = cu->stream_wait(d->stream, m->users[i].left, 0);
	m->nusers = 0;
	if (r == 0)
		r = batch_give(d, m, sending);
	ps_cuda_leave(d);
	if (r != 0)
		return ps_cuda_error(cu, r, err,
		        sending->nmakes ? "cannot copy a batch to the GPU and finish it there"
		                        : "cannot copy a batch to the GPU");
	m->under_way = nbytes_of(sending);
	return 0;
}

/* A copy is over: counts it. */
static void sent_count(struct ps_cuda_device *d, struct cuda_mirror *m)
{
	float ms = 0;

	if (d->cu->event_elapsed(&ms, m->begin, m->copied) == 0) {
		PS_LOCK_SCOPE(&d->copies_lock);
		d->copies.nbytes += m->under_way;
		d->copies.seconds += (double)ms / 1e3;
	}
	m->under_way = 0;
}

int ps_cuda_arrived(struct ps_mirror *mirror, struct ps_load_error *err)
{
	struct cuda_mirror *m = mirror_of(mirror);
	struct ps_cuda_device *d = ps_cuda_of(mirror->device);
	ps_cu_result r;

	PS_LOCK_SCOPE(&m->lock);
	if (!m->under_way)
		return 1;
	if (ps_cuda_enter(d, err) < 0)
		return -EIO;
	r = d->cu->event_query(m->sent);
	if (r == 0)
		sent_count(d, m);
	ps_cuda_leave(d);
	if (r == PS_CU_NOT_READY)
		return 0;
	return r == 0 ? 1 : ps_cuda_error(d->cu, r, err, "copying a batch");
}

int ps_cuda_wait(struct ps_mirror *mirror, struct ps_load_error *err)
{
	struct cuda_mirror *m = mirror_of(mirror);
	struct ps_cuda_device *d = ps_cuda_of(mirror->device);
	ps_cu_result r;
	int e = ps_cuda_enter(d, err);

	if (e < 0)
		return e;
	r = d->cu->event_sync(m->sent); /* without the lock: others may ask for it, and wait on streams */
	ps_cuda_leave(d);
	if (r != 0)
		return ps_cuda_error(d->cu, r, err, "a copy to the GPU failed");
	(void)ps_cuda_arrived(mirror, NULL);
	return 0;
}

/* The place of a stream among the users; NULL: no memory, or *ret_r says what. */
static struct user *user_add(
        struct ps_cuda_device *d, struct cuda_mirror *m, void *stream, ps_cu_result *ret_r)
{
	*ret_r = 0;
	for (uint32_t i = 0; i < m->nusers; i++)
		if (m->users[i].stream == stream)
			return &m->users[i];
	if (m->nusers == m->nplaces) {
		struct user *users = realloc(m->users, (m->nplaces + 1) * sizeof(*users));

		if (!users)
			return NULL;
		m->users = users;
		*ret_r = d->cu->event_create(&users[m->nplaces].left, PS_CU_EVENT_DISABLE_TIMING);
		if (*ret_r != 0)
			return NULL;
		m->nplaces++;
	}
	m->users[m->nusers].stream = stream;
	return &m->users[m->nusers++];
}

int ps_cuda_use(struct ps_mirror *mirror, void *stream, struct ps_load_error *err)
{
	struct cuda_mirror *m = mirror_of(mirror);
	struct ps_cuda_device *d = ps_cuda_of(mirror->device);
	struct user *user;
	ps_cu_result r;
	int e = ps_cuda_enter(d, err);

	if (e < 0)
		return e;
	PS_LOCK_SCOPE(&m->lock);
	user = user_add(d, m, stream, &r);
	if (user)
		r = d->cu->stream_wait((ps_cu_stream)stream, m->sent, 0);
	ps_cuda_leave(d);
	if (r != 0)
		return ps_cuda_error(d->cu, r, err, "the stream cannot wait for the batch");
	return user ? 0 : ps_load_error_set(err, ENOMEM, "out of memory");
}

int ps_cuda_unuse(struct ps_mirror *mirror, struct ps_load_error *err)
{
	struct cuda_mirror *m = mirror_of(mirror);
	struct ps_cuda_device *d = ps_cuda_of(mirror->device);
	ps_cu_result r = 0;
	int e;

	PS_LOCK_SCOPE(&m->lock);
	if (m->nusers == 0)
		return 0;
	e = ps_cuda_enter(d, err);
	if (e < 0)
		return e;
	for (uint32_t i = 0; i < m->nusers && r == 0; i++)
		r = d->cu->event_record(m->users[i].left, (ps_cu_stream)m->users[i].stream);
	ps_cuda_leave(d);
	return r == 0 ? 0
	              : ps_cuda_error(d->cu, r, err,
	                        "a stream that used the batch cannot be asked when it has done so (was it "
	                        "destroyed before the batch was released?)");
}

void *ps_cuda_event(struct ps_mirror *mirror)
{
	return mirror_of(mirror)->sent;
}
