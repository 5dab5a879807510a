#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "device/private.h"
#include "image/image.h"

int ps_nvj_error(ps_nvj_status status, struct ps_error *err, const char *what)
{
	return ps_error_set(err, status == PS_NVJ_ALLOCATOR_FAILURE ? ENOMEM : EIO,
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
		r = cu->stream_sync(stream); /* no other thread uses this stream */
		(void)cu->memory_free(s->p);
	}
	*s = (struct ps_nvj_scratch){0};
	if (r == 0)
		r = cu->memory_alloc(&s->p, size);
	if (r == 0)
		s->nbytes = size;
	return r;
}

/* Test of the engine ------------------------------------------------------------------------------------ */

/* Tests whether the JPEG engine decodes at all. If a container or a virtual machine withholds it, the library
 * reports an engine, but each decode fails. */

#define SIDE 64u

/* An ordinary JPEG of SIDE x SIDE pixels: baseline, three components, chroma halved, the usual tables. */
/* clang-format would give each byte a line: */
/* clang-format off */
static const uint8_t picture[] = {
	0xff, 0xd8, 0xff, 0xe0, 0x00, 0x10, 0x4a, 0x46, 0x49, 0x46, 0x00, 0x01, 0x01, 0x00, 0x00, 0x01,
	0x00, 0x01, 0x00, 0x00, 0xff, 0xdb, 0x00, 0x43, 0x00, 0x50, 0x37, 0x3c, 0x46, 0x3c, 0x32, 0x50,
	0x46, 0x41, 0x46, 0x5a, 0x55, 0x50, 0x5f, 0x78, 0xc8, 0x82, 0x78, 0x6e, 0x6e, 0x78, 0xf5, 0xaf,
	0xb9, 0x91, 0xc8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
	0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
	0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xdb, 0x00, 0x43, 0x01, 0x55, 0x5a,
	0x5a, 0x78, 0x69, 0x78, 0xeb, 0x82, 0x82, 0xeb, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
	0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
	0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
	0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xc0,
	0x00, 0x11, 0x08, 0x00, 0x40, 0x00, 0x40, 0x03, 0x01, 0x22, 0x00, 0x02, 0x11, 0x01, 0x03, 0x11,
	0x01, 0xff, 0xc4, 0x00, 0x1f, 0x00, 0x00, 0x01, 0x05, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x00,
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09,
	0x0a, 0x0b, 0xff, 0xc4, 0x00, 0xb5, 0x10, 0x00, 0x02, 0x01, 0x03, 0x03, 0x02, 0x04, 0x03, 0x05,
	0x05, 0x04, 0x04, 0x00, 0x00, 0x01, 0x7d, 0x01, 0x02, 0x03, 0x00, 0x04, 0x11, 0x05, 0x12, 0x21,
	0x31, 0x41, 0x06, 0x13, 0x51, 0x61, 0x07, 0x22, 0x71, 0x14, 0x32, 0x81, 0x91, 0xa1, 0x08, 0x23,
	0x42, 0xb1, 0xc1, 0x15, 0x52, 0xd1, 0xf0, 0x24, 0x33, 0x62, 0x72, 0x82, 0x09, 0x0a, 0x16, 0x17,
	0x18, 0x19, 0x1a, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2a, 0x34, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3a,
	0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x49, 0x4a, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5a,
	0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7a,
	0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8a, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99,
	0x9a, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6, 0xb7,
	0xb8, 0xb9, 0xba, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7, 0xc8, 0xc9, 0xca, 0xd2, 0xd3, 0xd4, 0xd5,
	0xd6, 0xd7, 0xd8, 0xd9, 0xda, 0xe1, 0xe2, 0xe3, 0xe4, 0xe5, 0xe6, 0xe7, 0xe8, 0xe9, 0xea, 0xf1,
	0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8, 0xf9, 0xfa, 0xff, 0xc4, 0x00, 0x1f, 0x01, 0x00, 0x03,
	0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01,
	0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0xff, 0xc4, 0x00, 0xb5, 0x11, 0x00,
	0x02, 0x01, 0x02, 0x04, 0x04, 0x03, 0x04, 0x07, 0x05, 0x04, 0x04, 0x00, 0x01, 0x02, 0x77, 0x00,
	0x01, 0x02, 0x03, 0x11, 0x04, 0x05, 0x21, 0x31, 0x06, 0x12, 0x41, 0x51, 0x07, 0x61, 0x71, 0x13,
	0x22, 0x32, 0x81, 0x08, 0x14, 0x42, 0x91, 0xa1, 0xb1, 0xc1, 0x09, 0x23, 0x33, 0x52, 0xf0, 0x15,
	0x62, 0x72, 0xd1, 0x0a, 0x16, 0x24, 0x34, 0xe1, 0x25, 0xf1, 0x17, 0x18, 0x19, 0x1a, 0x26, 0x27,
	0x28, 0x29, 0x2a, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3a, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x49,
	0x4a, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5a, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69,
	0x6a, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7a, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88,
	0x89, 0x8a, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9a, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6,
	0xa7, 0xa8, 0xa9, 0xaa, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6, 0xb7, 0xb8, 0xb9, 0xba, 0xc2, 0xc3, 0xc4,
	0xc5, 0xc6, 0xc7, 0xc8, 0xc9, 0xca, 0xd2, 0xd3, 0xd4, 0xd5, 0xd6, 0xd7, 0xd8, 0xd9, 0xda, 0xe2,
	0xe3, 0xe4, 0xe5, 0xe6, 0xe7, 0xe8, 0xe9, 0xea, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8, 0xf9,
	0xfa, 0xff, 0xda, 0x00, 0x0c, 0x03, 0x01, 0x00, 0x02, 0x11, 0x03, 0x11, 0x00, 0x3f, 0x00, 0x68,
	0xa7, 0x0a, 0x60, 0xa7, 0x0a, 0xce, 0xc6, 0x36, 0x1c, 0x29, 0xc2, 0x98, 0x29, 0xc2, 0x9d, 0x8a,
	0xb0, 0xe1, 0x4e, 0x14, 0xc1, 0x4e, 0x14, 0xec, 0x3b, 0x0e, 0x14, 0xe1, 0x4c, 0x14, 0xe1, 0x45,
	0x87, 0x62, 0x98, 0xa7, 0x0a, 0x60, 0xa7, 0x0a, 0x2c, 0x2b, 0x0e, 0x14, 0xe1, 0x4c, 0x14, 0xe1,
	0x45, 0x87, 0x61, 0xc2, 0x9c, 0x29, 0x82, 0x9c, 0x29, 0xd8, 0x76, 0x1c, 0x29, 0xc2, 0x98, 0x29,
	0x45, 0x55, 0x8a, 0xb1, 0x50, 0x53, 0x85, 0x30, 0x53, 0x85, 0x4d, 0x89, 0xb0, 0xe1, 0x4e, 0x14,
	0xc1, 0x4a, 0x2a, 0xac, 0x55, 0x87, 0x8a, 0x51, 0x4d, 0x14, 0xa2, 0x9d, 0x87, 0x61, 0xe2, 0x94,
	0x53, 0x45, 0x28, 0xa2, 0xc3, 0xb1, 0x50, 0x52, 0x8a, 0x68, 0xa5, 0x14, 0x58, 0x56, 0x1e, 0x29,
	0x45, 0x34, 0x52, 0x8a, 0x2c, 0x3b, 0x0f, 0x14, 0xa2, 0x9a, 0x29, 0x45, 0x3b, 0x0e, 0xc3, 0xc5,
	0x28, 0xa6, 0x8a, 0x51, 0x4e, 0xc5, 0x58, 0xff, 0xd9,
};
/* clang-format on */

static bool is_supported(struct ps_nvjpeg *n)
{
	const struct ps_nvjpeg_library *lib = n->lib;
	ps_nvj_stream file;
	int is_not = 1;

	if (lib->stream_create(n->handle, &file) != 0)
		return false;
	if (lib->stream_parse(n->handle, picture, sizeof(picture), 0, 0, file) != 0 ||
	        lib->batched_supported(n->handle, file, &is_not) != 0)
		is_not = 1;
	(void)lib->stream_destroy(file);
	return !is_not;
}

/* Decodes a small picture with the engine and waits for it. *ret_broken: the reason why the engine cannot
 * be used; "" if it can. -EIO: the device is lost. The context must be entered, and the turns must exist. */
static int engine_try(struct ps_nvjpeg *n, struct ps_error *ret_broken, struct ps_error *err)
{
	const struct ps_nvj_turn *t = &n->turns[0];
	const unsigned char *file = picture;
	const size_t nbytes = sizeof(picture);
	ps_nvj_image to = {.channel = {(unsigned char *)(uintptr_t)t->scratch.p}, .pitch = {SIDE * 3}};
	ps_nvj_status s;
	ps_cu_result r;

	ps_error_clear(ret_broken);
	if (!is_supported(n)) /* the engine cannot be tested then */
		return 0;
	s = n->lib->batched_init(n->handle, t->state, 1, 1, PS_NVJ_OUTPUT_RGBI);
	if (s == 0)
		s = n->lib->batched(n->handle, t->state, &file, &nbytes, &to, n->stream);
	r = n->cuda->cu->stream_sync(n->stream);
	if (r != 0)
		return ps_cuda_error(n->cuda->cu, r, err, "nvJPEG: the GPU failed to decode a test image");
	/* other errors are about the picture, or memory */
	if (s != 0 && s != PS_NVJ_BAD_JPEG && s != PS_NVJ_NOT_SUPPORTED && s != PS_NVJ_ALLOCATOR_FAILURE)
		ps_error_set(ret_broken, ENODEV, "its engine for JPEG does not decode: %s (status %d)",
		        ps_nvjpeg_status(s), s);
	return 0;
}

/* The decoder -------------------------------------------------------------------------------------------- */

/* Creates the handle: with the engine if there is one, and with interpolated chroma if the library can. */
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

/* Implements ps_nvjpeg_starts. Lack of memory is an error, and ends the search: it is not the library's
 * fault, and another library would give other pixels. */
static int decoders_make(void *arg, const struct ps_nvjpeg_library *lib, struct ps_error *err)
{
	struct ps_nvjpeg *n = arg;
	ps_nvj_status s;

	n->lib = lib;
	s = handle_create(n);
	if (s == 0)
		s = n->lib->decoder_create(n->handle, PS_NVJ_BACKEND_HYBRID, &n->hybrid);
	for (uint32_t i = 0; i < PS_NVJ_ENGINE_TURNS && s == 0 && n->hardware; i++) {
		s = n->lib->state_create(n->handle, &n->turns[i].state);
		/* The smallest size suffices: after this call the library keeps its memory from batch to
		 * batch. */
		if (s == 0)
			(void)n->lib->batched_allocate(n->handle, n->turns[i].state, (int)n->most_rows, 1, 1,
			        PS_NVJ_CHROMA_444, PS_NVJ_OUTPUT_RGBI);
	}
	if (s == 0)
		return 0;
	decoders_free(n);
	return ps_error_set(err, s == PS_NVJ_ALLOCATOR_FAILURE ? ENOMEM : ENODEV,
	        "it does not start on this GPU and driver: %s (status %d)", ps_nvjpeg_status(s), s);
}

static int streams_make(struct ps_nvjpeg *n, struct ps_error *err)
{
	const struct ps_cuda_driver *cu = n->cuda->cu;
	ps_cu_result r = ps_cuda_urgent_stream_new(n->cuda->cu, &n->stream);

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

int ps_nvjpeg_new(struct ps_device *device, uint32_t most_rows, uint32_t most_workers,
        struct ps_nvjpeg **ret_nvjpeg, struct ps_error *ret_refused, struct ps_error *err)
{
	struct ps_nvjpeg *n = calloc(1, sizeof(*n));
	struct ps_error broken = {0};
	int rc;

	*ret_refused = (struct ps_error){0};
	if (!n)
		return ps_no_memory(err);
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
		rc = ps_no_memory(err);
	else
		rc = ps_cuda_enter(n->cuda, err);
	if (rc == 0) {
		rc = ps_nvjpeg_library_find(decoders_make, n, &n->lib, ret_refused, err);
		if (rc == 0)
			rc = streams_make(n, err);
		if (rc == 0 && n->hardware)
			rc = engine_try(n, &broken, err);
		/* A broken engine is not used: threads and GPU decode together then. */
		if (rc == 0 && broken.text[0]) {
			n->hardware = false;
			ps_error_set(ret_refused, ENODEV, "%s%s%s: %s", ret_refused->text,
			        ret_refused->text[0] ? "; " : "", n->lib->path, broken.text);
		}
		ps_cuda_leave(n->cuda);
	}
	if (rc < 0) {
		ps_nvjpeg_free(n);
		return rc;
	}
	*ret_nvjpeg = n;
	return 0;
}

void ps_nvjpeg_free(struct ps_nvjpeg *n)
{
	if (!n)
		return;
	if (n->cuda && ps_cuda_enter(n->cuda, NULL) == 0) {
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

/* Workers ------------------------------------------------------------------------------------------------ */

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

int ps_nvjpeg_worker_new(struct ps_nvjpeg *n, struct ps_nvjpeg_worker **ret_worker, struct ps_error *err)
{
	const struct ps_cuda_driver *cu = n->cuda->cu;
	struct ps_nvjpeg_worker *w = calloc(1, sizeof(*w));
	ps_nvj_status s;
	ps_cu_result r = 0;
	int rc;

	if (!w)
		return ps_no_memory(err);
	w->n = n;
	rc = ps_cuda_enter(n->cuda, err);
	if (rc == 0) {
		s = worker_decoder_make(w);
		if (s == 0)
			r = ps_cuda_urgent_stream_new(cu, &w->stream);
		if (s == 0 && r == 0)
			r = cu->event_create(
			        &w->last, PS_CU_EVENT_DISABLE_TIMING | PS_CU_EVENT_BLOCKING_SYNC);
		if (s != 0)
			rc = ps_nvj_error(s, err, "cannot make a decoder for a thread");
		else if (r != 0)
			rc = ps_cuda_error(cu, r, err, "nvJPEG: cannot make a stream for a thread");
		ps_cuda_leave(n->cuda);
	}
	if (rc < 0) {
		ps_nvjpeg_worker_free(w);
		return rc;
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

/* The memory of a batch's rows --------------------------------------------------------------------------- */

#define ALIGN 64u

static size_t aligned(size_t n)
{
	return (n + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

int ps_nvjpeg_rows_new(struct ps_nvjpeg *n, uint32_t nrows, uint32_t width, uint32_t height,
        struct ps_nvjpeg_rows **ret_rows, struct ps_error *err)
{
	struct ps_nvjpeg_rows *rows = calloc(1, sizeof(*rows));
	const struct ps_cuda_driver *cu = n->cuda->cu;
	ps_cu_result r;
	int rc;

	if (!rows)
		return ps_no_memory(err);
	*rows = (struct ps_nvjpeg_rows){.n = n, .nrows = nrows, .width = width, .height = height};
	rows->image_nbytes = (size_t)width * height * 3;
	rows->moves = aligned(nrows * sizeof(struct ps_tile_image));
	rows->pieces = rows->moves + aligned(nrows * sizeof(struct ps_move));
	/* the most that a row takes: its struct ps_tile_image, positions and weights */
	rows->sheet_nbytes = rows->pieces +
	                     nrows * aligned(sizeof(struct ps_tile_image) + ALIGN +
	                                     ((size_t)width + height) *
	                                             (sizeof(uint32_t) + PS_TILE_TAPS_MAX * sizeof(int16_t)));
	rows->used = rows->pieces;
	pthread_mutex_init(&rows->lock, NULL);
	rows->entries = calloc(nrows, sizeof(*rows->entries));
	rows->sheet = n->device->ops->alloc(n->device, rows->sheet_nbytes, err);
	if (!rows->entries || !rows->sheet)
		rc = ps_error_set(err, ENOMEM, "no memory for a batch's parameters");
	else
		rc = ps_cuda_enter(n->cuda, err);
	if (rc == 0) {
		r = cu->memory_alloc(&rows->planes, nrows * rows->image_nbytes);
		if (r == 0)
			r = cu->memory_alloc(&rows->device_sheet, rows->sheet_nbytes);
		if (r == 0)
			r = cu->event_create(
			        &rows->decoded, PS_CU_EVENT_DISABLE_TIMING | PS_CU_EVENT_BLOCKING_SYNC);
		if (r != 0)
			rc = ps_cuda_error(cu, r, err, "nvJPEG: the GPU has no memory for a batch");
		ps_cuda_leave(n->cuda);
	}
	if (rc < 0) {
		ps_nvjpeg_rows_free(rows);
		return rc;
	}
	*ret_rows = rows;
	return 0;
}

void ps_nvjpeg_rows_free(struct ps_nvjpeg_rows *rows)
{
	struct ps_nvjpeg *n;

	if (!rows)
		return;
	n = rows->n;
	if (rows->entries)
		ps_nvjpeg_rows_clear(rows);
	if (ps_cuda_enter(n->cuda, NULL) == 0) {
		if (rows->planes)
			(void)n->cuda->cu->memory_free(rows->planes);
		if (rows->device_sheet)
			(void)n->cuda->cu->memory_free(rows->device_sheet);
		if (rows->decoded)
			(void)n->cuda->cu->event_destroy(rows->decoded);
		ps_cuda_leave(n->cuda);
	}
	while (rows->files) {
		struct ps_nvj_files *f = rows->files;

		rows->files = f->next;
		n->device->ops->free(n->device, f->p, f->nbytes);
		free(f);
	}
	if (rows->sheet)
		n->device->ops->free(n->device, rows->sheet, rows->sheet_nbytes);
	pthread_mutex_destroy(&rows->lock);
	free(rows->entries);
	free(rows);
}

void ps_nvjpeg_rows_clear(struct ps_nvjpeg_rows *rows)
{
	struct ps_nvjpeg *n = rows->n;

	/* waits for rows that were given to the GPU, but not sent with a batch */
	if ((rows->engine || atomic_load(&rows->hybrid)) && ps_cuda_enter(n->cuda, NULL) == 0) {
		if (rows->engine)
			(void)n->cuda->cu->event_sync(rows->decoded);
		pthread_mutex_lock(&n->workers_lock);
		for (uint32_t i = 0; i < n->nworkers && atomic_load(&rows->hybrid); i++)
			(void)n->cuda->cu->event_sync(n->workers[i]->last);
		pthread_mutex_unlock(&n->workers_lock);
		ps_cuda_leave(n->cuda);
	}
	rows->engine = false;
	atomic_store(&rows->hybrid, false);
	atomic_store(&rows->used, rows->pieces);
	memset(rows->entries, 0, rows->nrows * sizeof(*rows->entries));
	for (struct ps_nvj_files *f = rows->files; f; f = f->next)
		f->used = 0;
}

/* Files -------------------------------------------------------------------------------------------------- */

const uint8_t *ps_nvj_file_keep(struct ps_nvjpeg_rows *rows, const void *data, size_t nbytes)
{
	struct ps_device *device = rows->n->device;
	struct ps_nvj_files *f;
	uint8_t *p;

	pthread_mutex_lock(&rows->lock);
	for (f = rows->files; f && f->nbytes - f->used < nbytes; f = f->next)
		;
	if (!f && (f = calloc(1, sizeof(*f)))) {
		*f = (struct ps_nvj_files){
		        .next = rows->files, .nbytes = PS_MAX(nbytes, rows->nrows * PS_NVJ_FILES)};
		f->p = device->ops->alloc(device, f->nbytes, NULL);
		if (f->p)
			rows->files = f;
		else
			free(ps_steal_ptr(&f));
	}
	p = f ? f->p + f->used : NULL;
	if (f)
		f->used = PS_MIN(f->used + aligned(nbytes), f->nbytes);
	pthread_mutex_unlock(&rows->lock);
	if (p)
		memcpy(p, data, nbytes);
	return p;
}

/* Parameters of the resize ------------------------------------------------------------------------------- */

/* Writes an axis to the sheet at *at and advances *at. The result has device addresses. */
static struct ps_tile_axis axis_put(
        struct ps_nvjpeg_rows *rows, const struct ps_resize_axis *axis, int shift, size_t *at)
{
	size_t first = *at, weights = (first + axis->n * sizeof(uint32_t) + 7) & ~(size_t)7;
	uintptr_t device = (uintptr_t)rows->device_sheet;

	memcpy(rows->sheet + first, axis->first, axis->n * sizeof(uint32_t));
	memcpy(rows->sheet + weights, axis->weights, (size_t)axis->n * axis->taps * sizeof(int16_t));
	*at = (weights + (size_t)axis->n * axis->taps * sizeof(int16_t) + 7) & ~(size_t)7;
	return (struct ps_tile_axis){.first = (const uint32_t *)(device + first),
	        .weights = (const int16_t *)(device + weights),
	        .taps = axis->taps,
	        .shift = shift};
}

bool ps_nvj_sheet_add(
        struct ps_nvjpeg_rows *rows, uint32_t row, const struct ps_image_outline *o, size_t *ret_nbytes)
{
	const struct ps_resize_axis *h = o->resize.h, *v = o->resize.v;
	struct ps_nvj_entry *e = &rows->entries[row];
	struct ps_tile_image *im;
	size_t at;

	if (h->n != rows->width || v->n != rows->height || h->taps > PS_TILE_TAPS_MAX ||
	        v->taps > PS_TILE_TAPS_MAX)
		return false;
	*ret_nbytes = aligned(sizeof(*im) + ((size_t)h->n + v->n) * sizeof(uint32_t) +
	                      ((size_t)h->n * h->taps + (size_t)v->n * v->taps) * sizeof(int16_t) + 32);
	at = atomic_fetch_add(&rows->used, *ret_nbytes);
	e->sheet = at;
	im = (struct ps_tile_image *)(void *)(rows->sheet + at);
	at += sizeof(*im);
	*im = (struct ps_tile_image){.nrows = o->region.height,
	        .rows = ps_tile_rows(v->first, v->taps, v->n),
	        .place = row,
	        .flip_v = o->resize.flip_v,
	        .most = 255 << o->resize.fraction};
	im->h = axis_put(rows, h, h->bits - o->resize.fraction, &at);
	im->v = axis_put(rows, v, v->bits + o->resize.fraction, &at);
	return true;
}

/* Moving rows to the batch ------------------------------------------------------------------------------ */

bool ps_nvjpeg_has(const struct ps_nvjpeg_rows *rows, uint32_t row)
{
	enum ps_nvj_who who = rows->entries[row].who;

	return who == PS_NVJ_ENGINE || who == PS_NVJ_HYBRID;
}

ps_cu_result ps_nvjpeg_place(struct ps_nvjpeg_rows *rows, const uint32_t *sources, uint32_t n,
        uint8_t *planes, ps_cu_stream stream)
{
	const struct ps_cuda_device *cuda = rows->n->cuda;
	struct ps_move *moves = (struct ps_move *)(void *)(rows->sheet + rows->moves);
	struct ps_move_args args = {
	        .moves = (const struct ps_move *)(uintptr_t)(rows->device_sheet + rows->moves),
	        .nbytes = (uint32_t)rows->image_nbytes};
	uint32_t count = 0;
	ps_cu_result r = 0;

	for (uint32_t i = 0; i < n; i++) {
		if (!ps_nvjpeg_has(rows, sources[i]))
			continue;
		moves[count++] = (struct ps_move){
		        .from = (const uint8_t *)(uintptr_t)rows->planes + sources[i] * rows->image_nbytes,
		        .to = planes + i * rows->image_nbytes};
	}
	args.n = count;
	if (rows->engine)
		r = cuda->cu->stream_wait(stream, rows->decoded, 0);
	if (r == 0 && atomic_load(&rows->hybrid))
		r = ps_nvj_wait_workers(rows->n, stream);
	if (r == 0 && count > 0)
		r = cuda->cu->copy_to_device(rows->device_sheet + rows->moves, rows->sheet + rows->moves,
		        count * sizeof(struct ps_move), stream);
	if (r == 0 && count > 0)
		r = ps_kernel_launch(&cuda->kernels, PS_KERNEL_move,
		        (uint64_t)count * ps_move_blocks(args.nbytes), &args, stream);
	if (r != 0)
		return r;
	rows->engine = false; /* from now on the wait for the batch's copy includes these rows */
	atomic_store(&rows->hybrid, false);
	return 0;
}
