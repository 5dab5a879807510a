/* NVIDIA GPUs, over the driver's own interface and the device's primary context, which a program's other
 * libraries (torch, JAX) share. Slots are page-locked, on the NUMA node of the device where it has one. All
 * copies go over one stream, so they arrive in the order in which they were sent. */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "device/cuda_driver.h"
#include "device/device.h"
#include "device/host.h"

#define MEMORY_ALIGN (2UL << 20) /* the driver gives device memory by these */

struct cuda_device {
	struct ps_device base;
	const struct ps_cuda_driver *cu;
	ps_cu_device device;
	ps_cu_context context;
	ps_cu_stream stream;  /* of copies */
	int node;             /* -1: not known */
	pthread_mutex_t lock; /* copies, and the order of what is given to the stream; a leaf */
	struct ps_device_copies copies;
};

/* A stream that uses the mirror, and the event behind what it was given. */
struct user {
	void *stream;
	ps_cu_event left; /* made when the place is first taken, and kept */
};

struct cuda_mirror {
	struct ps_mirror base;
	ps_cu_event begin, sent;
	size_t under_way;     /* bytes of the copy that is not known to be over; 0: none is */
	pthread_mutex_t lock; /* the rest */
	struct user *users;
	uint32_t nusers, nplaces;
};

static struct cuda_device *of(struct ps_device *d)
{
	return PS_CONTAINER_OF(d, struct cuda_device, base);
}

static struct cuda_mirror *mirror_of(struct ps_mirror *m)
{
	return PS_CONTAINER_OF(m, struct cuda_mirror, base);
}

/* Calls work on the context of their thread; what a caller's thread has there comes back. */
static int enter(struct cuda_device *d, struct ps_load_error *err)
{
	ps_cu_result r = d->cu->context_push(d->context);

	return r == 0 ? 0 : ps_cuda_error(d->cu, r, err, "cannot use the GPU");
}

static void leave(struct cuda_device *d)
{
	ps_cu_context old;

	(void)d->cu->context_pop(&old);
}

/* -- Device and host memory ---------------------------------------------------------------------------- */

/* The NUMA node that the device hangs on, -1 if there are none. */
static int node_find(struct cuda_device *d)
{
	char id[32] = "", path[96];
	int node = -1;
	FILE *f;

	if (d->cu->device_bus_id(id, sizeof(id), d->device) != 0)
		return -1;
	for (char *c = id; *c; c++)
		if (*c >= 'A' && *c <= 'F')
			*c = (char)(*c - 'A' + 'a');
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/numa_node", id);
	f = fopen(path, "re");
	if (!f)
		return -1;
	if (fscanf(f, "%d", &node) != 1)
		node = -1;
	fclose(f);
	return node;
}

static void cuda_close(struct ps_device *device)
{
	struct cuda_device *d = of(device);

	if (d->stream && enter(d, NULL) == 0) {
		(void)d->cu->stream_destroy(d->stream);
		leave(d);
	}
	if (d->context)
		(void)d->cu->context_release(d->device);
	pthread_mutex_destroy(&d->lock);
	free(d);
}

static int device_start(struct cuda_device *d, struct ps_load_error *err)
{
	ps_cu_result r;
	int count = 0, e;

	r = d->cu->device_count(&count);
	if (r == 0 && d->base.ordinal >= (uint32_t)count)
		return ps_load_error_set(err, ENODEV,
		        "device cuda:%u: there are %d (see CUDA_VISIBLE_DEVICES)", d->base.ordinal, count);
	if (r == 0)
		r = d->cu->device_get(&d->device, (int)d->base.ordinal);
	if (r == 0)
		r = d->cu->context_retain(&d->context, d->device);
	if (r != 0) {
		(void)ps_cuda_error(d->cu, r, err, "device cuda");
		return -ENODEV;
	}
	d->node = node_find(d);
	e = enter(d, err);
	if (e < 0)
		return e;
	r = d->cu->stream_create(&d->stream, PS_CU_STREAM_NON_BLOCKING);
	leave(d);
	return r == 0 ? 0 : ps_cuda_error(d->cu, r, err, "device cuda: no stream");
}

static int cuda_open(uint32_t ordinal, struct ps_device **ret_device, struct ps_load_error *err)
{
	struct cuda_device *d = calloc(1, sizeof(*d));
	int r;

	if (!d)
		return ps_load_error_set(err, ENOMEM, "out of memory");
	d->base = (struct ps_device){.ops = &ps_device_cuda, .ordinal = ordinal};
	d->node = -1;
	pthread_mutex_init(&d->lock, NULL);
	r = ps_cuda_driver_get(&d->cu, err);
	if (r == 0)
		r = device_start(d, err);
	if (r < 0) {
		cuda_close(&d->base);
		return r;
	}
	*ret_device = &d->base;
	return 0;
}

static int memory_lock(struct cuda_device *d, void *p, size_t nbytes, struct ps_load_error *err)
{
	ps_cu_result r;
	int e = enter(d, err);

	if (e < 0)
		return e;
	r = d->cu->host_register(p, nbytes, PS_CU_HOST_REGISTER_PORTABLE);
	leave(d);
	if (r == 0)
		return 0;
	(void)ps_cuda_error(d->cu, r, err, "the driver refuses");
	ps_load_error_set(err, ENOMEM,
	        "cannot lock %zu MiB of memory for copies to the GPU (%s): raise `ulimit -l` and the memory "
	        "limit "
	        "of the container, or lower batch or depth",
	        nbytes >> 20, err ? err->text : "");
	return -ENOMEM;
}

static void memory_unlock(struct cuda_device *d, void *p)
{
	if (enter(d, NULL) < 0)
		return;
	(void)d->cu->host_unregister(p);
	leave(d);
}

static void *cuda_alloc(struct ps_device *device, size_t nbytes, struct ps_load_error *err)
{
	struct cuda_device *d = of(device);
	void *p = ps_host_alloc(nbytes);

	if (!p) {
		ps_load_error_set(err, ENOMEM, "no memory for a batch of %zu bytes", nbytes);
		return NULL;
	}
	ps_host_prefer_node(p, nbytes, d->node);
	if (memory_lock(d, p, nbytes, err) < 0) {
		ps_host_free(p, nbytes);
		return NULL;
	}
	return p;
}

static void cuda_free(struct ps_device *device, void *p, size_t nbytes)
{
	memory_unlock(of(device), p);
	ps_host_free(p, nbytes);
}

/* Locked memory cannot move. */
static void *cuda_resize(
        struct ps_device *device, void *p, size_t old_nbytes, size_t new_nbytes, struct ps_load_error *err)
{
	void *larger = cuda_alloc(device, new_nbytes, err);

	if (!larger)
		return NULL;
	memcpy(larger, p, PS_MIN(old_nbytes, new_nbytes));
	cuda_free(device, p, old_nbytes);
	return larger;
}

/* -- Mirrors ------------------------------------------------------------------------------------------- */

/* Frees its memory once nobody works on it; the context is entered. */
static void memory_give(struct cuda_device *d, struct cuda_mirror *m)
{
	for (uint32_t i = 0; i < m->nusers; i++)
		(void)d->cu->event_sync(m->users[i].left);
	m->nusers = 0;
	if (m->base.data)
		(void)d->cu->memory_free((ps_cu_pointer)(uintptr_t)m->base.data);
	m->base.data = NULL;
	m->base.nbytes = 0;
}

static ps_cu_result memory_take(struct cuda_device *d, struct cuda_mirror *m, size_t nbytes)
{
	size_t size = (nbytes + MEMORY_ALIGN - 1) & ~(MEMORY_ALIGN - 1);
	ps_cu_pointer p = 0;
	ps_cu_result r;

	memory_give(d, m);
	r = d->cu->memory_alloc(&p, size);
	if (r != 0)
		return r;
	m->base.data = (uint8_t *)(uintptr_t)p;
	m->base.nbytes = size;
	return 0;
}

static void cuda_mirror_free(struct ps_mirror *mirror)
{
	struct cuda_mirror *m;
	struct cuda_device *d;

	if (!mirror)
		return;
	m = mirror_of(mirror);
	d = of(mirror->device);
	if (enter(d, NULL) == 0) {
		if (m->under_way)
			(void)d->cu->event_sync(m->sent);
		memory_give(d, m);
		for (uint32_t i = 0; i < m->nplaces; i++)
			(void)d->cu->event_destroy(m->users[i].left);
		if (m->begin)
			(void)d->cu->event_destroy(m->begin);
		if (m->sent)
			(void)d->cu->event_destroy(m->sent);
		leave(d);
	}
	pthread_mutex_destroy(&m->lock);
	free(m->users);
	free(m);
}

static int cuda_mirror_new(
        struct ps_device *device, size_t nbytes, struct ps_mirror **ret_mirror, struct ps_load_error *err)
{
	struct cuda_device *d = of(device);
	struct cuda_mirror *m = calloc(1, sizeof(*m));
	ps_cu_result r;
	int e;

	if (!m)
		return ps_load_error_set(err, ENOMEM, "out of memory");
	m->base.device = device;
	pthread_mutex_init(&m->lock, NULL);
	e = enter(d, err);
	if (e < 0) {
		pthread_mutex_destroy(&m->lock);
		free(m);
		return e;
	}
	r = d->cu->event_create(&m->begin, PS_CU_EVENT_DEFAULT);
	if (r == 0)
		r = d->cu->event_create(&m->sent, PS_CU_EVENT_BLOCKING_SYNC);
	if (r == 0)
		r = memory_take(d, m, nbytes);
	leave(d);
	if (r != 0) {
		char what[96];

		cuda_mirror_free(&m->base);
		snprintf(what, sizeof(what), "cannot take %zu MiB of the GPU's memory for a batch",
		        nbytes >> 20);
		return ps_cuda_error(d->cu, r, err, what);
	}
	*ret_mirror = &m->base;
	return 0;
}

/* Nobody else's copy comes between the two events. */
static ps_cu_result copy_give(struct cuda_device *d, struct cuda_mirror *m, const void *slot, size_t nbytes)
{
	ps_cu_result r;

	PS_LOCK_SCOPE(&d->lock);
	r = d->cu->event_record(m->begin, d->stream);
	if (r == 0)
		r = d->cu->copy_to_device((ps_cu_pointer)(uintptr_t)m->base.data, slot, nbytes, d->stream);
	return r == 0 ? d->cu->event_record(m->sent, d->stream) : r;
}

static int cuda_send(struct ps_mirror *mirror, const void *slot, size_t nbytes, struct ps_load_error *err)
{
	struct cuda_mirror *m = mirror_of(mirror);
	struct cuda_device *d = of(mirror->device);
	const struct ps_cuda_driver *cu = d->cu;
	ps_cu_result r = 0;
	int e = enter(d, err);

	if (e < 0)
		return e;
	PS_LOCK_SCOPE(&m->lock);
	if (nbytes > mirror->nbytes)
		r = memory_take(d, m, nbytes + nbytes / 4);
	for (uint32_t i = 0; i < m->nusers && r == 0; i++)
		r = cu->stream_wait(d->stream, m->users[i].left, 0);
	m->nusers = 0;
	if (r == 0)
		r = copy_give(d, m, slot, nbytes);
	leave(d);
	if (r != 0)
		return ps_cuda_error(cu, r, err, "cannot copy a batch to the GPU");
	m->under_way = nbytes;
	return 0;
}

/* A copy is over: counts it. */
static void sent_count(struct cuda_device *d, struct cuda_mirror *m)
{
	float ms = 0;

	if (d->cu->event_elapsed(&ms, m->begin, m->sent) == 0) {
		PS_LOCK_SCOPE(&d->lock);
		d->copies.nbytes += m->under_way;
		d->copies.seconds += (double)ms / 1e3;
	}
	m->under_way = 0;
}

static int cuda_arrived(struct ps_mirror *mirror)
{
	struct cuda_mirror *m = mirror_of(mirror);
	struct cuda_device *d = of(mirror->device);
	ps_cu_result r;

	PS_LOCK_SCOPE(&m->lock);
	if (!m->under_way)
		return 1;
	if (enter(d, NULL) < 0)
		return -EIO;
	r = d->cu->event_query(m->sent);
	if (r == 0)
		sent_count(d, m);
	leave(d);
	return r == 0 ? 1 : r == PS_CU_NOT_READY ? 0 : -EIO;
}

static int cuda_wait(struct ps_mirror *mirror, struct ps_load_error *err)
{
	struct cuda_mirror *m = mirror_of(mirror);
	struct cuda_device *d = of(mirror->device);
	ps_cu_result r;
	int e = enter(d, err);

	if (e < 0)
		return e;
	r = d->cu->event_sync(m->sent); /* without the lock: others may ask for it, and wait on streams */
	leave(d);
	if (r != 0)
		return ps_cuda_error(d->cu, r, err, "a copy to the GPU failed");
	(void)cuda_arrived(mirror);
	return 0;
}

/* The place of a stream among the users; NULL: no memory, or *ret_r says what. */
static struct user *user_add(struct cuda_device *d, struct cuda_mirror *m, void *stream, ps_cu_result *ret_r)
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

static int cuda_use(struct ps_mirror *mirror, void *stream, struct ps_load_error *err)
{
	struct cuda_mirror *m = mirror_of(mirror);
	struct cuda_device *d = of(mirror->device);
	struct user *user;
	ps_cu_result r;
	int e = enter(d, err);

	if (e < 0)
		return e;
	PS_LOCK_SCOPE(&m->lock);
	user = user_add(d, m, stream, &r);
	if (user)
		r = d->cu->stream_wait((ps_cu_stream)stream, m->sent, 0);
	leave(d);
	if (r != 0)
		return ps_cuda_error(d->cu, r, err, "the stream cannot wait for the batch");
	return user ? 0 : ps_load_error_set(err, ENOMEM, "out of memory");
}

static int cuda_leave(struct ps_mirror *mirror, struct ps_load_error *err)
{
	struct cuda_mirror *m = mirror_of(mirror);
	struct cuda_device *d = of(mirror->device);
	ps_cu_result r = 0;
	int e;

	PS_LOCK_SCOPE(&m->lock);
	if (m->nusers == 0)
		return 0;
	e = enter(d, err);
	if (e < 0)
		return e;
	for (uint32_t i = 0; i < m->nusers && r == 0; i++)
		r = d->cu->event_record(m->users[i].left, (ps_cu_stream)m->users[i].stream);
	leave(d);
	return r == 0 ? 0
	              : ps_cuda_error(d->cu, r, err,
	                        "a stream that used the batch cannot be asked when it has done so (was it "
	                        "destroyed before the batch was released?)");
}

static void *cuda_event(struct ps_mirror *mirror)
{
	return mirror_of(mirror)->sent;
}

static void cuda_copies(struct ps_device *device, struct ps_device_copies *ret_copies)
{
	struct cuda_device *d = of(device);

	PS_LOCK_SCOPE(&d->lock);
	*ret_copies = d->copies;
}

const struct ps_device_ops ps_device_cuda = {
        .name = "cuda",
        .type = 2,
        .open = cuda_open,
        .close = cuda_close,
        .alloc = cuda_alloc,
        .resize = cuda_resize,
        .free = cuda_free,
        .mirror_new = cuda_mirror_new,
        .mirror_free = cuda_mirror_free,
        .send = cuda_send,
        .arrived = cuda_arrived,
        .wait = cuda_wait,
        .use = cuda_use,
        .leave = cuda_leave,
        .event = cuda_event,
        .copies = cuda_copies,
};
