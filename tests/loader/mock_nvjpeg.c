/* libnvjpeg.so.12 for tests: the functions that the loader calls, implemented with libjpeg-turbo and the
 * streams of mock_cuda.c. Work on a stream is done when the stream comes to it, from the file's bytes or
 * the pinned buffer as they are then: so memory that is reused too early gives wrong pixels. The engine's
 * pixels are also written at the call itself, since the real engine does not wait for its stream. By default
 * the mock has an engine, accepts the files that the real library accepts, and gives the same pixels as the
 * CPU. If the library is in a folder named does-not-start or no-memory, it fails as the name says. */
#include "config.h"

#include <setjmp.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include <dlfcn.h>

#include "device/nvjpeg_library.h"

#define EXPORT __attribute__((visibility("default")))

enum {
	NOT_INITIALIZED = 1,
	INVALID_PARAMETER = 2,
	ARCH_MISMATCH = 7,
};

/* For the test ------------------------------------------------------------------------------------------- */

static struct {
	_Atomic int no_hardware;   /* 1: Create reports no engine; 2: an engine that decodes nothing */
	_Atomic int no_flags;      /* 1: an old library, which refuses flags */
	_Atomic int fail_batches;  /* how many batched decodes of several images fail */
	_Atomic int refuse;        /* refuses files whose length is a multiple of this; -1: no memory */
	_Atomic int lighter;       /* added to each pixel */
	_Atomic int wider, higher; /* added to the size that is reported of a file */
	_Atomic long objects, engine, hybrid;
} the;

EXPORT void mock_nvjpeg_set(int no_hardware, int no_flags, int refuse, int lighter);
EXPORT void mock_nvjpeg_fail_batches(int n);
EXPORT void mock_nvjpeg_misread(int wider, int higher);
EXPORT long mock_nvjpeg_leaks(void);
EXPORT long mock_nvjpeg_count(int hybrid);

void mock_nvjpeg_set(int no_hardware, int no_flags, int refuse, int lighter)
{
	the.no_hardware = no_hardware;
	the.no_flags = no_flags;
	the.refuse = refuse;
	the.lighter = lighter;
}

void mock_nvjpeg_fail_batches(int n)
{
	the.fail_batches = n;
}

void mock_nvjpeg_misread(int wider, int higher)
{
	the.wider = wider;
	the.higher = higher;
}

long mock_nvjpeg_leaks(void)
{
	return the.objects;
}

/* Images that the hybrid decoder, or the engine, decoded since the last call. */
long mock_nvjpeg_count(int hybrid)
{
	return hybrid ? atomic_exchange(&the.hybrid, 0) : atomic_exchange(&the.engine, 0);
}

/* Decoding ----------------------------------------------------------------------------------------------- */

struct region {
	int x, y, width, height; /* width < 0: all */
};

struct pixels {
	uint8_t *rgb;
	uint32_t width, height;
};

struct failing {
	struct jpeg_error_mgr base;
	jmp_buf escape;
};

static void on_error(j_common_ptr c)
{
	longjmp(((struct failing *)(void *)c->err)->escape, 1);
}

static void on_message(j_common_ptr c, int level)
{
	if (level < 0 && c->err->msg_code != 0)
		c->err->num_warnings++;
}

/* Reads a file's headers into *ret_head and, with `ret`, its pixels, which the caller frees. Returns a
 * status. */
static ps_nvj_status decode(const uint8_t *data, size_t nbytes, struct jpeg_decompress_struct *ret_head,
        const struct region *r, struct pixels *ret)
{
	struct jpeg_decompress_struct c;
	struct failing failing;
	uint8_t *volatile row = NULL;
	volatile ps_nvj_status status = 0;

	c.err = jpeg_std_error(&failing.base);
	failing.base.error_exit = on_error;
	failing.base.emit_message = on_message;
	if (ret)
		ret->rgb = NULL;
	if (setjmp(failing.escape)) {
		jpeg_destroy_decompress(&c);
		free(row);
		if (ret)
			free(ret->rgb);
		return PS_NVJ_BAD_JPEG;
	}
	jpeg_create_decompress(&c);
	jpeg_mem_src(&c, data, nbytes);
	jpeg_read_header(&c, TRUE);
	if (ret_head)
		*ret_head = c;
	if (ret) {
		if (c.num_components == 3)
			c.jpeg_color_space = JCS_YCbCr; /* nvJPEG promises no other colour space */
		c.out_color_space = JCS_RGB;
		c.do_block_smoothing = FALSE;
		jpeg_start_decompress(&c);
		ret->width = r->width < 0 ? c.output_width : (uint32_t)r->width;
		ret->height = r->width < 0 ? c.output_height : (uint32_t)r->height;
		ret->rgb = malloc((size_t)ret->width * ret->height * 3);
		row = malloc((size_t)c.output_width * 3);
		while (c.output_scanline < c.output_height) {
			uint32_t y = c.output_scanline - (r->width < 0 ? 0 : (uint32_t)r->y);
			JSAMPROW rows[] = {row};

			jpeg_read_scanlines(&c, rows, 1);
			if (y >= ret->height)
				continue;
			memcpy(ret->rgb + (size_t)y * ret->width * 3, row + (r->width < 0 ? 0 : 3 * r->x),
			        (size_t)ret->width * 3);
		}
		for (size_t i = 0; i < (size_t)ret->width * ret->height * 3 && the.lighter; i++)
			ret->rgb[i] =
			        (uint8_t)(ret->rgb[i] + the.lighter > 255 ? 255 : ret->rgb[i] + the.lighter);
		if (failing.base.num_warnings > 0) {
			free(ret->rgb);
			ret->rgb = NULL;
			status = PS_NVJ_BAD_JPEG;
		}
	}
	free(row);
	jpeg_destroy_decompress(&c);
	return status;
}

/* Streams ------------------------------------------------------------------------------------------------ */

struct job {
	_Atomic int *under_way; /* counts the job until it is done; may be NULL */
	const uint8_t *data;    /* the source: a file, ... */
	size_t nbytes;
	const struct pixels *from; /* ... or decoded pixels */
	struct pixels *keep;       /* the target: a buffer, ... */
	ps_nvj_image to;           /* ... or an image on the device */
};

static void job_do(void *arg)
{
	struct job *j = arg;
	struct pixels own = {0};
	const struct region all = {.width = -1};
	const struct pixels *p = j->from;

	if (j->data) {
		(void)decode(j->data, j->nbytes, NULL, &all, &own);
		p = &own;
	}
	if (j->keep && p->rgb) {
		free(j->keep->rgb);
		*j->keep = *p;
		j->keep->rgb = malloc((size_t)p->width * p->height * 3);
		memcpy(j->keep->rgb, p->rgb, (size_t)p->width * p->height * 3);
	}
	for (uint32_t y = 0; y < p->height && p->rgb && j->to.channel[0]; y++)
		memcpy(j->to.channel[0] + y * j->to.pitch[0], p->rgb + (size_t)y * p->width * 3,
		        (size_t)p->width * 3);
	free(own.rgb);
	if (j->under_way)
		atomic_fetch_sub(j->under_way, 1);
}

static ps_nvj_status give(ps_cu_stream stream, const struct job *job)
{
	static int (*call)(ps_cu_stream stream, void (*fn)(void *arg), void *arg);
	struct job *j = malloc(sizeof(*j));

	if (!call)
		*(void **)(void *)&call = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "mock_cuda_call");
	*j = *job;
	if (j->under_way)
		atomic_fetch_add(j->under_way, 1);
	if (call(stream, job_do, j) == 0)
		return 0;
	if (j->under_way)
		atomic_fetch_sub(j->under_way, 1);
	free(j);
	return PS_NVJ_EXECUTION_FAILED;
}

/* The library -------------------------------------------------------------------------------------------- */

#define PROTOTYPE(name, symbol, args) EXPORT ps_nvj_status name##_mock args __asm__(#symbol);
PS_NVJPEG_FUNCTIONS(PROTOTYPE)
#undef PROTOTYPE

struct handle {
	bool hardware;
};

struct file {
	const uint8_t *data;
	size_t nbytes;
	unsigned width, height;
	bool plain, progressive;
	int ncomponents;
};

struct state {
	int n; /* of a batched decode */
	_Atomic int under_way;
	struct pixels *pinned, *buffer;
	struct region region;
};

static void *object_new(size_t nbytes)
{
	the.objects++;
	return calloc(1, nbytes);
}

static ps_nvj_status object_free(void *p)
{
	the.objects--;
	free(p);
	return 0;
}

static ps_nvj_status pixels_free(void *p)
{
	free(((struct pixels *)p)->rgb);
	return object_free(p);
}

ps_nvj_status property_mock(ps_nvj_property which, int *ret_value)
{
	*ret_value = which == PS_NVJ_PROPERTY_MAJOR ? 12 : 0;
	return 0;
}

ps_nvj_status create_mock(ps_nvj_backend backend, ps_nvj_dev_allocator *device,
        ps_nvj_pinned_allocator *pinned, unsigned flags, ps_nvj_handle *ret_handle)
{
	struct handle *h;
	Dl_info self;

	if (dladdr(&the, &self) && strstr(self.dli_fname, "/does-not-start/"))
		return NOT_INITIALIZED;
	if (dladdr(&the, &self) && strstr(self.dli_fname, "/no-memory/"))
		return PS_NVJ_ALLOCATOR_FAILURE;
	if (device || pinned || (flags && the.no_flags))
		return INVALID_PARAMETER;
	if (backend == PS_NVJ_BACKEND_HARDWARE && the.no_hardware == 1)
		return ARCH_MISMATCH;
	h = object_new(sizeof(*h));
	h->hardware = backend == PS_NVJ_BACKEND_HARDWARE;
	*ret_handle = (ps_nvj_handle)(void *)h;
	return 0;
}

ps_nvj_status destroy_mock(ps_nvj_handle handle)
{
	return object_free(handle);
}

ps_nvj_status state_create_mock(ps_nvj_handle handle, ps_nvj_state *ret_state)
{
	(void)handle;
	*ret_state = object_new(sizeof(struct state));
	return 0;
}

ps_nvj_status state_destroy_mock(ps_nvj_state state)
{
	return object_free(state);
}

/* Aborts if a decode of the state is under way: the real library's next decode does not wait before it
 * overwrites the state's memory. */
static void must_be_free(const struct state *s)
{
	if (s->under_way == 0)
		return;
	fprintf(stderr, "mock nvJPEG: a state is used again while its decode is under way\n");
	abort();
}

ps_nvj_status batched_init_mock(
        ps_nvj_handle handle, ps_nvj_state state, int n, int threads, ps_nvj_output output)
{
	(void)handle;
	if (n < 1 || threads < 1 || output != PS_NVJ_OUTPUT_RGBI)
		return INVALID_PARAMETER;
	must_be_free((struct state *)(void *)state);
	((struct state *)(void *)state)->n = n;
	return 0;
}

ps_nvj_status batched_allocate_mock(ps_nvj_handle handle, ps_nvj_state state, int n, int width, int height,
        ps_nvj_chroma chroma, ps_nvj_output output)
{
	(void)state;
	if (!((struct handle *)(void *)handle)->hardware || n < 1 || width < 1 || height < 1 ||
	        chroma != PS_NVJ_CHROMA_444 || output != PS_NVJ_OUTPUT_RGBI)
		return INVALID_PARAMETER;
	return 0;
}

ps_nvj_status batched_mock(ps_nvj_handle handle, ps_nvj_state state, const unsigned char *const *data,
        const size_t *nbytes, ps_nvj_image *to, ps_cu_stream stream)
{
	struct state *s = (struct state *)(void *)state;
	const struct region all = {.width = -1};

	must_be_free(s);
	if (((struct handle *)(void *)handle)->hardware && the.no_hardware == 2)
		return PS_NVJ_EXECUTION_FAILED;
	if (the.refuse < 0)
		return PS_NVJ_ALLOCATOR_FAILURE;
	if (s->n > 1 && the.fail_batches > 0 && the.fail_batches-- > 0)
		return PS_NVJ_EXECUTION_FAILED;
	for (int i = 0; i < s->n; i++) {
		struct pixels p;
		ps_nvj_status status = decode(data[i], nbytes[i], NULL, &all, &p);

		if (status == 0)
			free(p.rgb);
		if (status != 0 || (the.refuse && nbytes[i] % (size_t)the.refuse == 0))
			return PS_NVJ_BAD_JPEG;
	}
	/* As was observed with the real library, the engine begins at once and does not wait for earlier
	 * work on the stream; later work on the stream waits for the engine. */
	for (int i = 0; i < s->n; i++) {
		struct job now = {.data = data[i], .nbytes = nbytes[i], .to = to[i]}, later = now;
		ps_nvj_status status;

		if (((struct handle *)(void *)handle)->hardware)
			job_do(&now);
		later.under_way = &s->under_way;
		status = give(stream, &later);
		if (status != 0)
			return status;
		the.engine++;
	}
	return 0;
}

ps_nvj_status batched_supported_mock(ps_nvj_handle handle, ps_nvj_stream stream, int *ret_is_not)
{
	const struct file *f = (const struct file *)(void *)stream;

	*ret_is_not = !((struct handle *)(void *)handle)->hardware || !f->plain || f->progressive ||
	              (f->ncomponents != 1 && f->ncomponents != 3);
	return 0;
}

ps_nvj_status stream_create_mock(ps_nvj_handle handle, ps_nvj_stream *ret_file)
{
	(void)handle;
	*ret_file = object_new(sizeof(struct file));
	return 0;
}

ps_nvj_status stream_destroy_mock(ps_nvj_stream file)
{
	return object_free(file);
}

ps_nvj_status stream_parse_mock(ps_nvj_handle handle, const unsigned char *data, size_t nbytes,
        int save_metadata, int save_stream, ps_nvj_stream file)
{
	struct jpeg_decompress_struct head;
	ps_nvj_status status = decode(data, nbytes, &head, NULL, NULL);

	(void)handle;
	(void)save_metadata;
	(void)save_stream;
	if (status != 0)
		return status;
	if (head.data_precision != 8)
		return PS_NVJ_NOT_SUPPORTED;
	*(struct file *)(void *)file = (struct file){.data = data,
	        .nbytes = nbytes,
	        .width = head.image_width,
	        .height = head.image_height,
	        .plain = !head.arith_code,
	        .progressive = head.progressive_mode,
	        .ncomponents = head.num_components};
	return 0;
}

ps_nvj_status stream_size_mock(ps_nvj_stream file, unsigned *ret_width, unsigned *ret_height)
{
	*ret_width = ((struct file *)(void *)file)->width + (unsigned)the.wider;
	*ret_height = ((struct file *)(void *)file)->height + (unsigned)the.higher;
	return 0;
}

ps_nvj_status decoder_create_mock(ps_nvj_handle handle, ps_nvj_backend backend, ps_nvj_decoder *ret_decoder)
{
	(void)handle;
	if (backend != PS_NVJ_BACKEND_HYBRID)
		return INVALID_PARAMETER;
	*ret_decoder = object_new(1);
	return 0;
}

ps_nvj_status decoder_destroy_mock(ps_nvj_decoder decoder)
{
	return object_free(decoder);
}

ps_nvj_status decoder_supported_mock(
        ps_nvj_decoder decoder, ps_nvj_stream file, ps_nvj_params params, int *ret_is_not)
{
	const struct file *f = (const struct file *)(void *)file;

	(void)decoder;
	(void)params;
	*ret_is_not = !f->plain || (f->ncomponents != 1 && f->ncomponents != 3);
	return 0;
}

ps_nvj_status decoder_state_create_mock(ps_nvj_handle handle, ps_nvj_decoder decoder, ps_nvj_state *ret_state)
{
	(void)decoder;
	return state_create_mock(handle, ret_state);
}

ps_nvj_status pinned_create_mock(
        ps_nvj_handle handle, ps_nvj_pinned_allocator *allocator, ps_nvj_pinned *ret_buffer)
{
	(void)handle;
	(void)allocator;
	*ret_buffer = object_new(sizeof(struct pixels));
	return 0;
}

ps_nvj_status pinned_destroy_mock(ps_nvj_pinned buffer)
{
	return pixels_free(buffer);
}

ps_nvj_status buffer_create_mock(
        ps_nvj_handle handle, ps_nvj_dev_allocator *allocator, ps_nvj_buffer *ret_buffer)
{
	(void)handle;
	(void)allocator;
	*ret_buffer = object_new(sizeof(struct pixels));
	return 0;
}

ps_nvj_status buffer_destroy_mock(ps_nvj_buffer buffer)
{
	return pixels_free(buffer);
}

ps_nvj_status pinned_attach_mock(ps_nvj_state state, ps_nvj_pinned buffer)
{
	((struct state *)(void *)state)->pinned = (struct pixels *)(void *)buffer;
	return 0;
}

ps_nvj_status buffer_attach_mock(ps_nvj_state state, ps_nvj_buffer buffer)
{
	((struct state *)(void *)state)->buffer = (struct pixels *)(void *)buffer;
	return 0;
}

struct params {
	ps_nvj_output output;
	struct region region;
};

ps_nvj_status params_create_mock(ps_nvj_handle handle, ps_nvj_params *ret_params)
{
	struct params *p = object_new(sizeof(*p));

	(void)handle;
	p->region.width = -1;
	*ret_params = (ps_nvj_params)(void *)p;
	return 0;
}

ps_nvj_status params_destroy_mock(ps_nvj_params params)
{
	return object_free(params);
}

ps_nvj_status params_output_mock(ps_nvj_params params, ps_nvj_output output)
{
	((struct params *)(void *)params)->output = output;
	return 0;
}

ps_nvj_status params_region_mock(ps_nvj_params params, int x, int y, int width, int height)
{
	((struct params *)(void *)params)->region = (struct region){x, y, width, height};
	return 0;
}

ps_nvj_status decode_host_mock(ps_nvj_handle handle, ps_nvj_decoder decoder, ps_nvj_state state,
        ps_nvj_params params, ps_nvj_stream file)
{
	const struct params *p = (const struct params *)(void *)params;
	const struct file *f = (const struct file *)(void *)file;
	struct state *s = (struct state *)(void *)state;

	(void)handle;
	(void)decoder;
	if (the.refuse < 0)
		return PS_NVJ_ALLOCATOR_FAILURE;
	if (!s->pinned || !s->buffer || p->output != PS_NVJ_OUTPUT_RGBI)
		return INVALID_PARAMETER;
	free(s->pinned->rgb);
	return decode(f->data, f->nbytes, NULL, &p->region, s->pinned);
}

ps_nvj_status decode_transfer_mock(ps_nvj_handle handle, ps_nvj_decoder decoder, ps_nvj_state state,
        ps_nvj_stream file, ps_cu_stream stream)
{
	const struct state *s = (const struct state *)(void *)state;

	(void)handle;
	(void)decoder;
	(void)file;
	return give(stream, &(struct job){.from = s->pinned, .keep = s->buffer});
}

ps_nvj_status decode_device_mock(ps_nvj_handle handle, ps_nvj_decoder decoder, ps_nvj_state state,
        ps_nvj_image *to, ps_cu_stream stream)
{
	const struct state *s = (const struct state *)(void *)state;

	(void)handle;
	(void)decoder;
	the.hybrid++;
	return give(stream, &(struct job){.from = s->buffer, .to = *to});
}
