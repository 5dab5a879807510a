/* NVIDIA GPUs, used through the driver API and the device's primary context, which a program's other
 * libraries (torch, JAX) share. Slots are page-locked, on the device's NUMA node if it has one. All copies
 * are on one stream, so they arrive in the order in which they were sent. */

#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "device/device.h"
#include "device/private.h"

/* Device and host memory --------------------------------------------------------------------------------- */

/* The NUMA node of the device, or -1. */
static int node_find(struct ps_cuda_device *d)
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
	struct ps_cuda_device *d = ps_cuda_of(device);

	if (d->stream && ps_cuda_enter(d, NULL) == 0) {
		(void)d->cu->stream_destroy(d->stream);
		if (d->scratch)
			(void)d->cu->memory_free(d->scratch);
		ps_kernels_unload(&d->kernels);
		ps_cuda_leave(d);
	}
	if (d->context)
		(void)d->cu->context_release(d->device);
	pthread_mutex_destroy(&d->lock);
	pthread_mutex_destroy(&d->copies_lock);
	free(d);
}

static int device_start(struct ps_cuda_device *d, struct ps_error *err)
{
	ps_cu_result r;
	int count = 0, e;

	r = d->cu->device_count(&count);
	if (r == 0 && d->base.ordinal >= (uint32_t)count)
		return ps_error_set(err, ENODEV,
		        "device cuda:%u: there are %d devices (see CUDA_VISIBLE_DEVICES)", d->base.ordinal,
		        count);
	if (r == 0)
		r = d->cu->device_get(&d->device, (int)d->base.ordinal);
	if (r == 0)
		r = d->cu->context_retain(&d->context, d->device);
	if (r != 0) {
		(void)ps_cuda_error(d->cu, r, err, "device cuda");
		return -ENODEV;
	}
	d->node = node_find(d);
	e = ps_cuda_enter(d, err);
	if (e < 0)
		return e;
	r = ps_cuda_urgent_stream_new(d->cu, &d->stream);
	if (r == 0)
		d->has_kernels = ps_kernels_load(d->cu, &d->kernels, &d->no_kernels) == 0;
	ps_cuda_leave(d);
	return r == 0 ? 0 : ps_cuda_error(d->cu, r, err, "device cuda: cannot create a stream");
}

static int cuda_open(uint32_t ordinal, struct ps_device **ret_device, struct ps_error *err)
{
	struct ps_cuda_device *d = calloc(1, sizeof(*d));
	int rc;

	if (!d)
		return ps_no_memory(err);
	d->base = (struct ps_device){.ops = &ps_device_cuda, .ordinal = ordinal};
	d->node = -1;
	pthread_mutex_init(&d->lock, NULL);
	pthread_mutex_init(&d->copies_lock, NULL);
	rc = ps_cuda_driver_get(&d->cu, err);
	if (rc == 0)
		rc = device_start(d, err);
	if (rc < 0) {
		cuda_close(&d->base);
		return rc;
	}
	*ret_device = &d->base;
	return 0;
}

static void *cuda_alloc(struct ps_device *device, size_t nbytes, struct ps_error *err)
{
	struct ps_cuda_device *d = ps_cuda_of(device);
	void *p = ps_host_slot_alloc(device, nbytes, err);
	ps_cu_result r = 0;
	int rc;

	if (!p)
		return NULL;
	ps_host_prefer_node(p, nbytes, d->node);
	rc = ps_cuda_enter(d, err);
	if (rc == 0) {
		r = d->cu->host_register(p, nbytes, PS_CU_HOST_REGISTER_PORTABLE);
		ps_cuda_leave(d);
	}
	if (rc == 0 && r == 0)
		return p;
	if (r != 0) {
		(void)ps_cuda_error(d->cu, r, err, "the driver refuses");
		ps_error_set(err, ENOMEM,
		        "cannot lock %zu MiB of memory for copies to the GPU (%s): raise the memory limit of "
		        "the container (or `ulimit -l`), or lower batch or depth",
		        nbytes >> 20, err ? err->text : "");
	}
	ps_host_free(p, nbytes);
	return NULL;
}

static void cuda_free(struct ps_device *device, void *p, size_t nbytes)
{
	struct ps_cuda_device *d = ps_cuda_of(device);

	if (ps_cuda_enter(d, NULL) == 0) {
		(void)d->cu->host_unregister(p);
		ps_cuda_leave(d);
	}
	ps_host_free(p, nbytes);
}

static void cuda_copies(struct ps_device *device, struct ps_device_copies *ret_copies)
{
	struct ps_cuda_device *d = ps_cuda_of(device);

	PS_LOCK_SCOPE(&d->copies_lock);
	*ret_copies = d->copies;
}

static const char *cuda_cannot_make(struct ps_device *device)
{
	struct ps_cuda_device *d = ps_cuda_of(device);

	return d->has_kernels ? NULL : d->no_kernels.text;
}

/* Mirrors ------------------------------------------------------------------------------------------------ */

#define MEMORY_ALIGN (2UL << 20) /* the unit in which the driver allocates device memory */

/* A stream that uses the mirror, and an event after the stream's work on it. */
struct user {
	void *stream;
	ps_cu_event left; /* created when this entry is first used, and kept */
};

/*   made                 data
 *   | fields that kernels make | the slot's copy ... |   one piece of the device's memory */
struct cuda_mirror {
	struct ps_mirror base;
	size_t made_nbytes;
	ps_cu_event begin, copied, sent;
	/* bytes of the last send's copies until they are known to be finished; 0: none */
	size_t under_way;
	pthread_mutex_t lock; /* guards the rest */
	struct user *users;
	uint32_t nusers, nplaces;
};

static struct cuda_mirror *mirror_of(struct ps_mirror *m)
{
	return PS_CONTAINER_OF(m, struct cuda_mirror, base);
}

/* Frees the mirror's memory once no stream uses it. The context must be entered. */
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

static void cuda_mirror_free(struct ps_mirror *mirror)
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

static ps_cu_result mirror_make(
        struct ps_cuda_device *d, struct cuda_mirror *m, const struct ps_mirror_size *size)
{
	ps_cu_result r = d->cu->event_create(&m->begin, PS_CU_EVENT_DEFAULT);
	ps_cu_pointer scratch = 0;

	m->made_nbytes = (size->made + PS_DEVICE_PAGE - 1) & ~(size_t)(PS_DEVICE_PAGE - 1);
	if (r == 0)
		r = d->cu->event_create(&m->copied, PS_CU_EVENT_DEFAULT);
	if (r == 0)
		r = d->cu->event_create(&m->sent, PS_CU_EVENT_BLOCKING_SYNC | PS_CU_EVENT_DISABLE_TIMING);
	if (r == 0)
		r = memory_take(d, m, size->slot);
	if (r != 0 || size->scratch <= d->scratch_nbytes)
		return r;
	/* grows the scratch memory that the kernels of all mirrors share, before any kernel runs */
	r = d->cu->memory_alloc(&scratch, size->scratch);
	if (r != 0)
		return r;
	if (d->scratch)
		(void)d->cu->memory_free(d->scratch);
	d->scratch = scratch;
	d->scratch_nbytes = size->scratch;
	return 0;
}

static int cuda_mirror_new(struct ps_device *device, const struct ps_mirror_size *size,
        struct ps_mirror **ret_mirror, struct ps_error *err)
{
	struct ps_cuda_device *d = ps_cuda_of(device);
	struct cuda_mirror *m = calloc(1, sizeof(*m));
	ps_cu_result r;
	int rc;

	if (!m)
		return ps_no_memory(err);
	m->base.device = device;
	pthread_mutex_init(&m->lock, NULL);
	rc = ps_cuda_enter(d, err);
	if (rc < 0) {
		pthread_mutex_destroy(&m->lock);
		free(m);
		return rc;
	}
	r = mirror_make(d, m, size);
	ps_cuda_leave(d);
	if (r != 0) {
		char what[96];

		cuda_mirror_free(&m->base);
		snprintf(what, sizeof(what), "cannot take %zu MiB of the GPU's memory for a batch",
		        (size->slot + size->made + size->scratch) >> 20);
		return ps_cuda_error(d->cu, r, err, what);
	}
	*ret_mirror = &m->base;
	return 0;
}

/* Queues a batch's copies and kernels on the stream, with no other work between them, so the batch has the
 * scratch memory to itself. Pixels that the GPU decoded are moved into the mirror after the copies. */
static ps_cu_result batch_give(
        struct ps_cuda_device *d, struct cuda_mirror *m, const struct ps_sending *sending)
{
	const struct ps_make_places at = {
	        .slot = m->base.data, .made = m->base.made, .scratch = (uint8_t *)(uintptr_t)d->scratch};
	const struct ps_make *makes = sending->makes;
	ps_cu_result r;

	PS_LOCK_SCOPE(&d->lock);
	r = d->cu->event_record(m->begin, d->stream);
	for (uint32_t i = 0; i < sending->nstretches && r == 0; i++) {
		const struct ps_stretch *s = &sending->stretches[i];

		r = d->cu->copy_to_device((ps_cu_pointer)(uintptr_t)(m->base.data + s->at),
		        (const uint8_t *)sending->slot + s->at, s->nbytes, d->stream);
	}
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

static int cuda_send(struct ps_mirror *mirror, const struct ps_sending *sending, struct ps_error *err)
{
	struct cuda_mirror *m = mirror_of(mirror);
	struct ps_cuda_device *d = ps_cuda_of(mirror->device);
	const struct ps_cuda_driver *cu = d->cu;
	ps_cu_result r = 0;
	int rc = ps_cuda_enter(d, err);

	if (rc < 0)
		return rc;
	PS_LOCK_SCOPE(&m->lock);
	if (sending->nbytes > mirror->nbytes)
		r = memory_take(d, m, sending->nbytes + sending->nbytes / 4);
	for (uint32_t i = 0; i < m->nusers && r == 0; i++)
		r = cu->stream_wait(d->stream, m->users[i].left, 0);
	m->nusers = 0;
	if (r == 0)
		r = batch_give(d, m, sending);
	if (r != 0)
		(void)cu->stream_sync(d->stream); /* the caller may free the memory that queued copies read */
	ps_cuda_leave(d);
	if (r != 0)
		return ps_cuda_error(cu, r, err,
		        sending->nmakes ? "cannot copy a batch to the GPU and finish it there"
		                        : "cannot copy a batch to the GPU");
	m->under_way = 0;
	for (uint32_t i = 0; i < sending->nstretches; i++)
		m->under_way += sending->stretches[i].nbytes;
	return 0;
}

static int cuda_arrived(struct ps_mirror *mirror, struct ps_error *err)
{
	struct cuda_mirror *m = mirror_of(mirror);
	struct ps_cuda_device *d = ps_cuda_of(mirror->device);
	ps_cu_result r;
	float ms = 0;

	PS_LOCK_SCOPE(&m->lock);
	if (!m->under_way)
		return 1;
	if (ps_cuda_enter(d, err) < 0)
		return -EIO;
	r = d->cu->event_query(m->sent);
	if (r == 0 && d->cu->event_elapsed(&ms, m->begin, m->copied) == 0) {
		PS_LOCK_SCOPE(&d->copies_lock);
		d->copies.nbytes += m->under_way;
		d->copies.seconds += (double)ms / 1e3;
	}
	if (r == 0)
		m->under_way = 0;
	ps_cuda_leave(d);
	if (r == PS_CU_NOT_READY)
		return 0;
	return r == 0 ? 1 : ps_cuda_error(d->cu, r, err, "a copy to the GPU failed");
}

static int cuda_wait(struct ps_mirror *mirror, struct ps_error *err)
{
	struct cuda_mirror *m = mirror_of(mirror);
	struct ps_cuda_device *d = ps_cuda_of(mirror->device);
	ps_cu_result r;
	int rc = ps_cuda_enter(d, err);

	if (rc < 0)
		return rc;
	/* without the lock: meanwhile other threads may query the mirror and make streams wait for it */
	r = d->cu->event_sync(m->sent);
	ps_cuda_leave(d);
	if (r != 0)
		return ps_cuda_error(d->cu, r, err, "a copy to the GPU failed");
	(void)cuda_arrived(mirror, NULL);
	return 0;
}

/* The place of a stream among the users; NULL: *ret_r is the driver's error, or 0 if memory has run out. */
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

static int cuda_use(struct ps_mirror *mirror, void *stream, struct ps_error *err)
{
	struct cuda_mirror *m = mirror_of(mirror);
	struct ps_cuda_device *d = ps_cuda_of(mirror->device);
	struct user *user;
	ps_cu_result r;
	int rc = ps_cuda_enter(d, err);

	if (rc < 0)
		return rc;
	PS_LOCK_SCOPE(&m->lock);
	user = user_add(d, m, stream, &r);
	if (user)
		r = d->cu->stream_wait((ps_cu_stream)stream, m->sent, 0);
	ps_cuda_leave(d);
	if (r != 0)
		return ps_cuda_error(d->cu, r, err, "the stream cannot wait for the batch");
	return user ? 0 : ps_no_memory(err);
}

static int cuda_leave(struct ps_mirror *mirror, struct ps_error *err)
{
	struct cuda_mirror *m = mirror_of(mirror);
	struct ps_cuda_device *d = ps_cuda_of(mirror->device);
	ps_cu_result r = 0;
	int rc;

	PS_LOCK_SCOPE(&m->lock);
	if (m->nusers == 0)
		return 0;
	rc = ps_cuda_enter(d, err);
	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < m->nusers && r == 0; i++)
		r = d->cu->event_record(m->users[i].left, (ps_cu_stream)m->users[i].stream);
	ps_cuda_leave(d);
	return r == 0 ? 0
	              : ps_cuda_error(d->cu, r, err,
	                        "cannot mark the end of a stream's work on the batch (was the stream "
	                        "destroyed before the batch was released?)");
}

static void *cuda_event(struct ps_mirror *mirror)
{
	return mirror_of(mirror)->sent;
}

/* Making fields ------------------------------------------------------------------------------------------ */

static ps_cu_result finish(const struct ps_kernels *k, const struct ps_make *m,
        const struct ps_images *images, void *to, ps_cu_stream stream)
{
	static const enum ps_kernel which[][2] = {
	        [PS_U8] = {PS_KERNEL_finish_u8_nchw, PS_KERNEL_finish_u8_nhwc},
	        [PS_F32] = {PS_KERNEL_finish_f32_nchw, PS_KERNEL_finish_f32_nhwc},
	        [PS_F16] = {PS_KERNEL_finish_f16_nchw, PS_KERNEL_finish_f16_nhwc},
	        [PS_BF16] = {PS_KERNEL_finish_bf16_nchw, PS_KERNEL_finish_bf16_nhwc},
	};
	struct ps_finish_args a = {
	        .images = *images, .to = to, .mix = m->mix, .weight = m->weight, .nviews = m->nviews};
	uint64_t nblocks = (uint64_t)ps_finish_blocks(m->dtype, m->layout, images->npixels) * m->nimages;

	memcpy(a.scale, m->scale, sizeof(a.scale));
	memcpy(a.bias, m->bias, sizeof(a.bias));
	memcpy(a.box, m->box, sizeof(a.box));
	return ps_kernel_launch(k, which[m->dtype][m->layout], nblocks, &a, stream);
}

/* Launches each step that some image has, in order. */
static ps_cu_result transform(
        const struct ps_kernels *k, uint32_t what, const struct ps_transform_args *a, ps_cu_stream stream)
{
	const struct ps_images *im = &a->images;
	const uint64_t n = im->nimages, pixels = ps_transform_blocks(im->npixels) * n;
	const uint64_t values = ps_transform_blocks(3 * im->npixels) * n;
	const uint64_t tiles = ps_blur_tiles(im->width, im->height) * n;
	const struct {
		uint32_t what;
		enum ps_kernel kernel;
		uint64_t nblocks;
	} steps[] = {
	        {PS_IMAGE_AFFINE, PS_KERNEL_affine, pixels},
	        {PS_IMAGE_CONTRAST, PS_KERNEL_gray, pixels},
	        {PS_IMAGE_COLORS, PS_KERNEL_colors, pixels},
	        {PS_IMAGE_BLUR, PS_KERNEL_blur_across, tiles},
	        {PS_IMAGE_BLUR, PS_KERNEL_blur_down, tiles},
	        {PS_IMAGE_NOISE, PS_KERNEL_noise, values},
	        {PS_IMAGE_ERASE, PS_KERNEL_erase, values},
	};
	ps_cu_result r = 0;

	for (size_t i = 0; i < PS_ARRAY_LEN(steps) && r == 0; i++)
		if (what & steps[i].what)
			r = ps_kernel_launch(k, steps[i].kernel, steps[i].nblocks, a, stream);
	return r;
}

ps_cu_result ps_make_launch(const struct ps_kernels *k, const struct ps_make *m,
        const struct ps_make_places *at, ps_cu_stream stream)
{
	struct ps_images images = {.planes = at->slot + m->planes,
	        .nimages = m->nimages,
	        .width = m->width,
	        .height = m->height,
	        .npixels = m->width * m->height};

	struct ps_transform_args a;
	ps_cu_result r = 0;

	if (m->ops != PS_MAKE_NO_OPS && m->what != 0) {
		images.ops = (struct ps_image_ops *)(void *)(at->slot + m->ops);
		images.moved = at->scratch;
		a = (struct ps_transform_args){.images = images,
		        .between = (int16_t *)(void *)(at->scratch + ps_make_moved_nbytes(m->what, m->nimages,
		                                                             m->width, m->height))};
		r = transform(k, m->what, &a, stream);
	}
	return r == 0 ? finish(k, m, &images, at->made + m->to, stream) : r;
}

/* The device's functions --------------------------------------------------------------------------------- */

const struct ps_device_ops ps_device_cuda = {
        .name = "cuda",
        .type = 2,
        .open = cuda_open,
        .close = cuda_close,
        .alloc = cuda_alloc,
        .resize = ps_host_slot_copy, /* locked memory cannot move */
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
        .cannot_make = cuda_cannot_make,
};
