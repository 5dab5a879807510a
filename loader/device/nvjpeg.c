#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "device/nvjpeg_private.h"

int ps_nvj_error(ps_nvj_status status, struct ps_load_error *err, const char *what)
{
	return ps_load_error_set(err, status == PS_NVJ_ALLOCATOR_FAILURE ? ENOMEM : EIO,
	        "nvJPEG: %s: %s (status %d)", what, ps_nvjpeg_status(status), status);
}

ps_cu_result ps_nvj_scratch_reserve(
        struct ps_nvjpeg *n, struct ps_nvj_scratch *s, size_t nbytes, ps_cu_stream stream)
{
	const struct ps_cuda_driver *cu = n->cuda->cu;
	size_t size = nbytes + nbytes / 2;
	ps_cu_result r = 0;

	if (nbytes <= s->nbytes)
		return 0;
	if (s->p) {
		r = cu->stream_sync(stream); /* nobody else works there */
		(void)cu->memory_free(s->p);
	}
	*s = (struct ps_nvj_scratch){0};
	if (r == 0)
		r = cu->memory_alloc(&s->p, size);
	if (r == 0)
		s->nbytes = size;
	return r;
}

/* -- The decoder ---------------------------------------------------------------------------------------- */

/* With the engine if there is one, and with interpolated chroma if the library can. */
static ps_nvj_status handle_create(struct ps_nvjpeg *n)
{
	static const unsigned flags[] = {PS_NVJ_INTERPOLATE, 0};
	static const ps_nvj_backend backends[] = {PS_NVJ_BACKEND_HARDWARE, PS_NVJ_BACKEND_DEFAULT};
	ps_nvj_status s = 0;

	for (size_t b = 0; b < PS_ARRAY_LEN(backends); b++) {
		for (size_t f = 0; f < PS_ARRAY_LEN(flags); f++) {
			s = n->lib->create(backends[b], NULL, NULL, flags[f], &n->handle);
			if (s == 0) {
				n->hardware = backends[b] == PS_NVJ_BACKEND_HARDWARE;
				n->flags = flags[f];
				return 0;
			}
			n->handle = NULL;
		}
	}
	return s;
}

static void decoders_free(struct ps_nvjpeg *n)
{
	for (uint32_t i = 0; i < PS_NVJ_ENGINE_TURNS; i++) {
		if (n->turns[i].state)
			(void)n->lib->state_destroy(n->turns[i].state);
		n->turns[i].state = NULL;
	}
	if (n->hybrid)
		(void)n->lib->decoder_destroy(n->hybrid);
	if (n->handle)
		(void)n->lib->destroy(n->handle);
	n->hybrid = NULL;
	n->handle = NULL;
}

/* Where there is an engine. */
static ps_nvj_status states_make(struct ps_nvjpeg *n)
{
	ps_nvj_status s = 0;

	for (uint32_t i = 0; i < PS_NVJ_ENGINE_TURNS && s == 0 && n->hardware; i++) {
		s = n->lib->state_create(n->handle, &n->turns[i].state);
		/* The least will do: once it was asked for, the library keeps its memory from batch to
		 * batch. */
		if (s == 0)
			(void)n->lib->batched_allocate(n->handle, n->turns[i].state, (int)n->most_rows, 1, 1,
			        PS_NVJ_CHROMA_444, PS_NVJ_OUTPUT_RGBI);
	}
	return s;
}

/* ps_nvjpeg_starts. Memory that is short is no fault of the library: another one would give other pixels. */
static int decoders_make(void *arg, const struct ps_nvjpeg_library *lib, struct ps_load_error *err)
{
	struct ps_nvjpeg *n = arg;
	ps_nvj_status s;

	n->lib = lib;
	s = handle_create(n);
	if (s == 0)
		s = n->lib->decoder_create(n->handle, PS_NVJ_BACKEND_HYBRID, &n->hybrid);
	if (s == 0)
		s = states_make(n);
	if (s == 0)
		return 0;
	decoders_free(n);
	return ps_load_error_set(err, s == PS_NVJ_ALLOCATOR_FAILURE ? ENOMEM : ENODEV,
	        "it does not start on this GPU and driver: %s (status %d)", ps_nvjpeg_status(s), s);
}

static int streams_make(struct ps_nvjpeg *n, struct ps_load_error *err)
{
	const struct ps_cuda_driver *cu = n->cuda->cu;
	ps_cu_result r = ps_cuda_stream_new(n->cuda, &n->stream);

	if (r == 0)
		r = cu->event_create(&n->begin, PS_CU_EVENT_DEFAULT);
	if (r == 0)
		r = cu->event_create(&n->end, PS_CU_EVENT_DEFAULT);
	for (uint32_t i = 0; i < PS_NVJ_ENGINE_TURNS && r == 0 && n->hardware; i++) {
		r = cu->event_create(
		        &n->turns[i].read, PS_CU_EVENT_DISABLE_TIMING | PS_CU_EVENT_BLOCKING_SYNC);
		if (r == 0)
			r = ps_nvj_scratch_reserve(n, &n->turns[i].scratch, PS_NVJ_SCRATCH, n->stream);
	}
	return r == 0 ? 0 : ps_cuda_error(cu, r, err, "nvJPEG: the GPU has no memory for decoding");
}

/* An engine that is broken is none: threads and GPU decode together then. *refused tells of it. */
static int engine_check(struct ps_nvjpeg *n, struct ps_load_error *refused, struct ps_load_error *err)
{
	struct ps_load_error broken;
	int r;

	if (!n->hardware)
		return 0;
	r = ps_nvj_engine_try(n, &broken, err);
	if (r < 0 || !broken.text[0])
		return r;
	n->hardware = false;
	ps_load_error_set(refused, ENODEV, "%s%s%s: %s", refused->text, refused->text[0] ? "; " : "",
	        n->lib->path, broken.text);
	return 0;
}

int ps_nvjpeg_new(struct ps_device *device, uint32_t most_rows, uint32_t most_workers,
        struct ps_nvjpeg **ret_nvjpeg, struct ps_load_error *ret_refused, struct ps_load_error *err)
{
	struct ps_nvjpeg *n = calloc(1, sizeof(*n));
	int r;

	*ret_refused = (struct ps_load_error){0};
	if (!n)
		return ps_load_error_set(err, ENOMEM, "out of memory");
	n->device = device;
	n->cuda = ps_cuda_of(device);
	n->most_rows = most_rows;
	n->most_workers = most_workers;
	pthread_mutex_init(&n->lock, NULL);
	pthread_mutex_init(&n->workers_lock, NULL);
	n->files = calloc(most_rows, sizeof(*n->files));
	n->lengths = calloc(most_rows, sizeof(*n->lengths));
	n->images = calloc(most_rows, sizeof(*n->images));
	n->workers = calloc(most_workers, sizeof(struct ps_nvjpeg_worker *));
	if (!n->files || !n->lengths || !n->images || !n->workers)
		r = ps_load_error_set(err, ENOMEM, "out of memory");
	else
		r = ps_cuda_enter(n->cuda, err);
	if (r == 0) {
		r = ps_nvjpeg_library_find(decoders_make, n, &n->lib, ret_refused, err);
		if (r == 0)
			r = streams_make(n, err);
		if (r == 0)
			r = engine_check(n, ret_refused, err);
		ps_cuda_leave(n->cuda);
	}
	if (r < 0) {
		ps_nvjpeg_free(n);
		return r;
	}
	*ret_nvjpeg = n;
	return 0;
}

static void gpu_free(struct ps_nvjpeg *n)
{
	const struct ps_cuda_driver *cu = n->cuda->cu;

	if (n->stream)
		(void)cu->stream_sync(n->stream);
	decoders_free(n);
	if (n->begin)
		(void)cu->event_destroy(n->begin);
	if (n->end)
		(void)cu->event_destroy(n->end);
	for (uint32_t i = 0; i < PS_NVJ_ENGINE_TURNS; i++) {
		if (n->turns[i].scratch.p)
			(void)cu->memory_free(n->turns[i].scratch.p);
		if (n->turns[i].read)
			(void)cu->event_destroy(n->turns[i].read);
	}
	if (n->stream)
		(void)cu->stream_destroy(n->stream);
}

void ps_nvjpeg_free(struct ps_nvjpeg *n)
{
	if (!n)
		return;
	if (n->cuda && ps_cuda_enter(n->cuda, NULL) == 0) {
		gpu_free(n);
		ps_cuda_leave(n->cuda);
	}
	pthread_mutex_destroy(&n->workers_lock);
	pthread_mutex_destroy(&n->lock);
	free(n->files);
	free(n->lengths);
	free(n->images);
	free(n->workers);
	free(n);
}

uint64_t ps_nvjpeg_print(const struct ps_nvjpeg *n)
{
	return (uint64_t)n->lib->version << 16 | n->flags << 1 | n->hardware;
}

const char *ps_nvjpeg_path(const struct ps_nvjpeg *n)
{
	return n->lib->path;
}

void ps_nvjpeg_stats(struct ps_nvjpeg *n, struct ps_nvjpeg_stats *ret_stats)
{
	PS_LOCK_SCOPE(&n->lock);
	*ret_stats = n->stats;
	ret_stats->hybrid = atomic_load_explicit(&n->nhybrid, memory_order_relaxed);
}

/* -- Workers -------------------------------------------------------------------------------------------- */

static ps_nvj_status worker_decoder_make(struct ps_nvjpeg_worker *w)
{
	const struct ps_nvjpeg_library *lib = w->n->lib;
	ps_nvj_handle handle = w->n->handle;
	ps_nvj_status s = lib->params_create(handle, &w->params);

	if (s == 0)
		s = lib->params_output(w->params, PS_NVJ_OUTPUT_RGBI);
	if (s == 0)
		s = lib->decoder_state_create(handle, w->n->hybrid, &w->state);
	if (s == 0)
		s = lib->buffer_create(handle, NULL, &w->buffer);
	if (s == 0)
		s = lib->buffer_attach(w->state, w->buffer);
	for (uint32_t i = 0; i < PS_NVJ_TURNS && s == 0; i++) {
		s = lib->stream_create(handle, &w->files[i]);
		if (s == 0)
			s = lib->pinned_create(handle, NULL, &w->pinned[i]);
	}
	return s;
}

static int worker_make(struct ps_nvjpeg_worker *w, struct ps_load_error *err)
{
	const struct ps_cuda_driver *cu = w->n->cuda->cu;
	ps_nvj_status s = worker_decoder_make(w);
	ps_cu_result r;

	if (s != 0)
		return ps_nvj_error(s, err, "cannot make a decoder for a thread");
	r = ps_cuda_stream_new(w->n->cuda, &w->stream);
	if (r == 0)
		r = cu->event_create(&w->last, PS_CU_EVENT_DISABLE_TIMING | PS_CU_EVENT_BLOCKING_SYNC);
	return r == 0 ? 0 : ps_cuda_error(cu, r, err, "nvJPEG: cannot make a stream for a thread");
}

int ps_nvjpeg_worker_new(struct ps_nvjpeg *n, struct ps_nvjpeg_worker **ret_worker, struct ps_load_error *err)
{
	struct ps_nvjpeg_worker *w = calloc(1, sizeof(*w));
	int r;

	if (!w)
		return ps_load_error_set(err, ENOMEM, "out of memory");
	w->n = n;
	r = ps_cuda_enter(n->cuda, err);
	if (r == 0) {
		r = worker_make(w, err);
		ps_cuda_leave(n->cuda);
	}
	if (r < 0) {
		ps_nvjpeg_worker_free(w);
		return r;
	}
	PS_LOCK_SCOPE(&n->workers_lock);
	n->workers[n->nworkers++] = w;
	*ret_worker = w;
	return 0;
}

static void worker_gpu_free(struct ps_nvjpeg_worker *w)
{
	const struct ps_nvjpeg_library *lib = w->n->lib;
	const struct ps_cuda_driver *cu = w->n->cuda->cu;

	if (w->stream)
		(void)cu->stream_sync(w->stream);
	for (uint32_t i = 0; i < PS_NVJ_TURNS; i++) {
		if (w->pinned[i])
			(void)lib->pinned_destroy(w->pinned[i]);
		if (w->files[i])
			(void)lib->stream_destroy(w->files[i]);
	}
	if (w->buffer)
		(void)lib->buffer_destroy(w->buffer);
	if (w->state)
		(void)lib->state_destroy(w->state);
	if (w->params)
		(void)lib->params_destroy(w->params);
	if (w->scratch.p)
		(void)cu->memory_free(w->scratch.p);
	if (w->last)
		(void)cu->event_destroy(w->last);
	if (w->stream)
		(void)cu->stream_destroy(w->stream);
}

void ps_nvjpeg_worker_free(struct ps_nvjpeg_worker *w)
{
	struct ps_nvjpeg *n;

	if (!w)
		return;
	n = w->n;
	pthread_mutex_lock(&n->workers_lock);
	for (uint32_t i = 0; i < n->nworkers; i++) {
		if (n->workers[i] == w) {
			n->workers[i] = n->workers[--n->nworkers];
			break;
		}
	}
	pthread_mutex_unlock(&n->workers_lock);
	if (ps_cuda_enter(n->cuda, NULL) == 0) {
		worker_gpu_free(w);
		ps_cuda_leave(n->cuda);
	}
	free(w);
}

ps_cu_result ps_nvj_wait_workers(struct ps_nvjpeg *n, ps_cu_stream stream)
{
	ps_cu_result r = 0;

	PS_LOCK_SCOPE(&n->workers_lock);
	for (uint32_t i = 0; i < n->nworkers && r == 0; i++)
		r = n->cuda->cu->stream_wait(stream, n->workers[i]->last, 0);
	return r;
}
