/* libcuda.so.1 for tests: the driver functions that the loader calls, implemented with the fake device's
 * streams, which run work late and out of order. The mock finds calls without a context, copies from memory
 * that is not locked, and objects that were never destroyed. */
#include "config.h"

#include <stdatomic.h>
#include <stdio.h>

#include "device/kernels/cuda_driver.h"
#include "device/kernels/kernels.h"
#include "fake_device.c"
#include "kernel_lines.h"
#include "tests/ptx/mock.h"

enum {
	INVALID_VALUE = 1,
	INVALID_DEVICE = 101,
	NO_BINARY_FOR_GPU = 209,
	INVALID_CONTEXT = 201,
	INVALID_HANDLE = 400,
	HOST_MEMORY_ALREADY_REGISTERED = 712,
	STREAM_CAPTURE_UNSUPPORTED = 900,
	NOT_FOUND = 500,
	LAUNCH_OUT_OF_RESOURCES = 701,
	UNSPECIFIED_LAUNCH_FAILURE = 719,
};

#define DEVICE_ALIGN 256 /* of device memory; a driver's alignment is at least this */

#define EXPORT __attribute__((visibility("default")))

static struct ps_device *engine; /* keeps the fake's thread running */
static _Atomic long nobjects;    /* streams, events, modules, pieces, locked ranges, retained contexts */
static _Atomic long nurgent;
static _Atomic uint64_t largest; /* largest piece of device memory */
static _Thread_local uint32_t depth;
static _Thread_local ps_cu_capture_mode mode;
static _Atomic bool capturing; /* another thread captures a stream to a graph */

struct range {
	struct range *next;
	const char *from;
	size_t nbytes;
	uint64_t copied, ncopies; /* bytes and copies from the host; of `pieces` */
	void *shadow;             /* the PTX interpreter's: which thread accessed what; of `pieces` */
};
static pthread_mutex_t ranges_lock = PTHREAD_MUTEX_INITIALIZER; /* both lists */
static struct range *ranges;                                    /* of host memory that is locked */
static struct range *pieces;                                    /* of device memory */

static bool range_add(struct range **list, const void *p, size_t nbytes)
{
	struct range *r = malloc(sizeof(*r));

	if (!r)
		return false;
	*r = (struct range){.from = p, .nbytes = nbytes};
	PS_LOCK_SCOPE(&ranges_lock);
	r->next = *list;
	*list = r;
	return true;
}

static bool range_remove(struct range **list, const void *p)
{
	PS_LOCK_SCOPE(&ranges_lock);
	for (struct range **at = list; *at; at = &(*at)->next) {
		struct range *r = *at;

		if (r->from != p)
			continue;
		*at = r->next;
		free(r->shadow);
		free(r);
		return true;
	}
	return false;
}

/* The range that contains all of [p, p + nbytes); the lock is held. */
static struct range *range_find(struct range *list, const char *p, size_t nbytes)
{
	while (list && (p < list->from || p + nbytes > list->from + list->nbytes))
		list = list->next;
	return list;
}

static bool overlaps(struct range **list, const char *p, size_t nbytes)
{
	PS_LOCK_SCOPE(&ranges_lock);
	for (const struct range *r = *list; r; r = r->next)
		if (p < r->from + r->nbytes && r->from < p + nbytes)
			return true;
	return false;
}

/* A copy from the host, and the checksum of its source: a driver may read the source until the copy is
 * done. */
struct copy_job {
	void *to;
	const void *from;
	size_t nbytes;
	uint64_t sum;
};

static uint64_t sum_of(const uint8_t *p, size_t n)
{
	uint64_t h = 0, word;

	for (; n >= sizeof(word); p += sizeof(word), n -= sizeof(word)) {
		memcpy(&word, p, sizeof(word));
		h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
		h ^= h >> 29;
	}
	for (; n > 0; p++, n--)
		h = (h ^ *p) * UINT64_C(0x100000001b3);
	return h;
}

static void copy_do(void *arg)
{
	const struct copy_job *c = arg;

	memcpy(c->to, c->from, c->nbytes);
	if (sum_of(c->to, c->nbytes) == c->sum)
		return;
	fprintf(stderr, "mock driver: memory was changed that a stream had yet to read\n");
	abort();
}

/* NULL: the job is not a copy from the host. */
static const struct copy_job *copy_of(const struct job *j)
{
	return j->what == CALL && j->fn == copy_do ? j->arg : NULL;
}

/* Aborts if memory is freed that a stream has yet to write to. */
static void must_not_be_written(const char *p)
{
	size_t nbytes = 0;

	pthread_mutex_lock(&ranges_lock);
	for (const struct range *r = pieces; r; r = r->next)
		if (r->from == p)
			nbytes = r->nbytes;
	pthread_mutex_unlock(&ranges_lock);
	PS_LOCK_SCOPE(&the.lock);
	for (const struct ps_fake_stream *s = the.streams; s && !the.lost; s = s->next)
		for (const struct job *j = s->head; j; j = j->next) {
			const struct copy_job *c = copy_of(j);

			if (c && (const char *)c->to < p + nbytes && p < (const char *)c->to + c->nbytes) {
				fprintf(stderr,
				        "mock driver: memory is freed that a stream has yet to write to\n");
				abort();
			}
		}
}

/* Aborts if memory is unlocked that a stream has yet to read: a driver need not wait for the stream. */
static void must_not_be_read(const char *p)
{
	size_t nbytes = 0;

	pthread_mutex_lock(&ranges_lock);
	for (const struct range *r = ranges; r; r = r->next)
		if (r->from == p)
			nbytes = r->nbytes;
	pthread_mutex_unlock(&ranges_lock);
	PS_LOCK_SCOPE(&the.lock);
	for (const struct ps_fake_stream *s = the.streams; s && !the.lost; s = s->next)
		for (const struct job *j = s->head; j; j = j->next) {
			const struct copy_job *c = copy_of(j);

			if (c && (const char *)c->from < p + nbytes &&
			        p < (const char *)c->from + c->nbytes) {
				fprintf(stderr,
				        "mock driver: memory is unlocked that a stream has yet to read\n");
				abort();
			}
		}
}

/* Waits until no stream has the event in its queue: a driver counts references. */
static void event_unused(const struct event *event)
{
	PS_LOCK_SCOPE(&the.lock);
	for (struct ps_fake_stream *s = the.streams; s;) {
		const struct job *j = s->head;

		while (j && j->event != event)
			j = j->next;
		if (j) {
			pthread_cond_wait(&the.changed, &the.lock);
			s = the.streams;
		} else {
			s = s->next;
		}
	}
}

/* Waits until all streams are idle, so that no work uses a module's code. */
static void all_sync(void)
{
	PS_LOCK_SCOPE(&the.lock);
	for (struct ps_fake_stream *s = the.streams; s;) {
		if (s->head) {
			pthread_cond_wait(&the.changed, &the.lock);
			s = the.streams;
		} else {
			s = s->next;
		}
	}
}

static ps_cu_result usable(void)
{
	if (capturing && mode == PS_CU_CAPTURE_GLOBAL)
		return STREAM_CAPTURE_UNSUPPORTED;
	PS_LOCK_SCOPE(&the.lock);
	return the.lost ? UNSPECIFIED_LAUNCH_FAILURE : depth == 0 ? INVALID_CONTEXT : 0;
}

/* The fake stream of a handle; all default streams are one stream. NULL: out of memory. */
static struct ps_fake_stream *stream_of(ps_cu_stream stream)
{
	static struct ps_fake_stream *common;
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

	if ((uintptr_t)stream > 2)
		return (struct ps_fake_stream *)(void *)stream;
	PS_LOCK_SCOPE(&lock);
	if (!common)
		common = ps_fake_stream_new();
	return common;
}

#define USABLE()                            \
	do {                                \
		ps_cu_result r_ = usable(); \
		if (r_ != 0)                \
			return r_;          \
	} while (0)

static ps_cu_result made(const void *p)
{
	nobjects += p != NULL;
	return p ? 0 : PS_CU_OUT_OF_MEMORY;
}

/* For the test ------------------------------------------------------------------------------------------- */

EXPORT void mock_cuda_lose(void);
EXPORT int mock_cuda_call(ps_cu_stream stream, void (*fn)(void *arg), void *arg);
EXPORT long mock_cuda_leaks(void);
EXPORT void mock_cuda_capture(int on);
EXPORT long mock_cuda_urgent(void);
EXPORT void mock_cuda_copied_to(const void *p, uint64_t *ret_nbytes, uint64_t *ret_ncopies);
EXPORT uint64_t mock_cuda_largest(void);

void mock_cuda_lose(void)
{
	ps_fake_lose();
}

/* Acts as if a thread of the consumer captured a stream, in the default mode. */
void mock_cuda_capture(int on)
{
	capturing = on != 0;
}

/* For libraries that work on streams (mock_nvjpeg.c): the stream calls fn(arg) in its turn, then
 * free(arg). */
int mock_cuda_call(ps_cu_stream stream, void (*fn)(void *arg), void *arg)
{
	if (usable() != 0)
		return -1;
	struct ps_fake_stream *s = stream_of(stream);
	PS_LOCK_SCOPE(&the.lock);
	return s ? job_give(s, &(struct job){.what = CALL, .fn = fn, .arg = arg, .owns = true}) : -1;
}

/* Objects that were not destroyed, except the context that the test itself retains. */
long mock_cuda_leaks(void)
{
	return nobjects - 1 + depth;
}

/* How many streams of the greatest priority were created so far. */
long mock_cuda_urgent(void)
{
	return nurgent;
}

/* The largest piece of device memory that was allocated since the last call. */
uint64_t mock_cuda_largest(void)
{
	return atomic_exchange(&largest, 0);
}

/* Bytes and copies from the host to the piece of device memory that contains p, since the last call. */
void mock_cuda_copied_to(const void *p, uint64_t *ret_nbytes, uint64_t *ret_ncopies)
{
	struct range *r;

	*ret_nbytes = *ret_ncopies = 0;
	PS_LOCK_SCOPE(&ranges_lock);
	r = range_find(pieces, p, 1);
	if (!r)
		return;
	*ret_nbytes = r->copied;
	*ret_ncopies = r->ncopies;
	r->copied = r->ncopies = 0;
}

/* The driver --------------------------------------------------------------------------------------------- */

#define PROTOTYPE(name, symbol, args) EXPORT ps_cu_result name##_mock args __asm__(#symbol);
PS_CUDA_FUNCTIONS(PROTOTYPE)
#undef PROTOTYPE
EXPORT ps_cu_result cuMemcpyDtoHAsync_v2(void *to, ps_cu_pointer from, size_t n, ps_cu_stream stream);
EXPORT ps_cu_result cuMemcpyDtoDAsync_v2(ps_cu_pointer to, ps_cu_pointer from, size_t n, ps_cu_stream stream);

ps_cu_result init_mock(unsigned flags)
{
	return flags ? INVALID_VALUE : engine ? 0 : ps_device_fake.open(0, &engine, NULL) < 0;
}

ps_cu_result error_string_mock(ps_cu_result error, const char **ret_text)
{
	static _Thread_local char text[32];

	snprintf(text, sizeof(text), "mock error %d", error);
	*ret_text = text;
	return 0;
}

ps_cu_result device_count_mock(int *ret_count)
{
	*ret_count = 1;
	return 0;
}

ps_cu_result device_get_mock(ps_cu_device *ret_device, int ordinal)
{
	*ret_device = ordinal;
	return ordinal == 0 ? 0 : INVALID_DEVICE;
}

ps_cu_result device_bus_id_mock(char *text, int len, ps_cu_device device)
{
	(void)device;
	snprintf(text, (size_t)len, "0000:FF:1F.0");
	return 0;
}

ps_cu_result context_retain_mock(ps_cu_context *ret_context, ps_cu_device device)
{
	(void)device;
	nobjects++;
	*ret_context = (ps_cu_context)(void *)&the;
	return 0;
}

ps_cu_result context_release_mock(ps_cu_device device)
{
	(void)device;
	nobjects--;
	return 0;
}

ps_cu_result context_push_mock(ps_cu_context context)
{
	if ((void *)context != (void *)&the)
		return INVALID_CONTEXT;
	depth++;
	return 0;
}

ps_cu_result context_pop_mock(ps_cu_context *ret_context)
{
	if (depth == 0)
		return INVALID_CONTEXT;
	depth--;
	*ret_context = (ps_cu_context)(void *)&the;
	return 0;
}

ps_cu_result capture_mode_mock(ps_cu_capture_mode *io_mode)
{
	ps_cu_capture_mode old = mode;

	mode = *io_mode;
	*io_mode = old;
	return 0;
}

ps_cu_result stream_create_mock(ps_cu_stream *ret_stream, unsigned flags)
{
	USABLE();
	if (flags != PS_CU_STREAM_NON_BLOCKING)
		return INVALID_VALUE;
	*ret_stream = (ps_cu_stream)(void *)ps_fake_stream_new();
	return made(*ret_stream);
}

ps_cu_result priorities_mock(int *ret_least, int *ret_greatest)
{
	USABLE();
	*ret_least = 0;
	*ret_greatest = -5;
	return 0;
}

ps_cu_result stream_create_urgent_mock(ps_cu_stream *ret_stream, unsigned flags, int priority)
{
	if (priority != -5)
		return INVALID_VALUE;
	nurgent++;
	return stream_create_mock(ret_stream, flags);
}

ps_cu_result stream_destroy_mock(ps_cu_stream stream)
{
	if (depth == 0)
		return INVALID_CONTEXT;
	ps_fake_stream_free((struct ps_fake_stream *)(void *)stream);
	nobjects--;
	return 0;
}

ps_cu_result stream_wait_mock(ps_cu_stream stream, ps_cu_event event, unsigned flags)
{
	USABLE();
	if (!event || flags)
		return INVALID_HANDLE;
	struct ps_fake_stream *s = stream_of(stream);
	PS_LOCK_SCOPE(&the.lock);
	return !s || wait_for(s, (struct event *)(void *)event) < 0 ? PS_CU_OUT_OF_MEMORY : 0;
}

ps_cu_result stream_sync_mock(ps_cu_stream stream)
{
	USABLE();
	ps_fake_stream_sync(stream_of(stream));
	return 0;
}

struct timed_event {
	struct event event; /* first */
	bool timed;
};

/* Whether the event was created with timing and has been recorded. */
static bool has_time(ps_cu_event event)
{
	const struct timed_event *e = (const struct timed_event *)(void *)event;

	PS_LOCK_SCOPE(&the.lock);
	return e && e->timed && e->event.asked > 0;
}

ps_cu_result event_create_mock(ps_cu_event *ret_event, unsigned flags)
{
	USABLE();
	if (flags > (PS_CU_EVENT_BLOCKING_SYNC | PS_CU_EVENT_DISABLE_TIMING))
		return INVALID_VALUE;
	struct timed_event *e = calloc(1, sizeof(*e));
	if (e)
		e->timed = !(flags & PS_CU_EVENT_DISABLE_TIMING);
	*ret_event = (ps_cu_event)(void *)e;
	return made(e);
}

ps_cu_result event_destroy_mock(ps_cu_event event)
{
	if (depth == 0)
		return INVALID_CONTEXT;
	event_unused((const struct event *)(void *)event);
	free(event);
	nobjects--;
	return 0;
}

ps_cu_result event_record_mock(ps_cu_event event, ps_cu_stream stream)
{
	USABLE();
	if (!event)
		return INVALID_HANDLE;
	struct ps_fake_stream *s = stream_of(stream);
	PS_LOCK_SCOPE(&the.lock);
	return !s || record(s, (struct event *)(void *)event) < 0 ? PS_CU_OUT_OF_MEMORY : 0;
}

ps_cu_result event_query_mock(ps_cu_event event)
{
	const struct event *e = (const struct event *)(void *)event;

	USABLE();
	PS_LOCK_SCOPE(&the.lock);
	return e->done == e->asked ? 0 : PS_CU_NOT_READY;
}

ps_cu_result event_sync_mock(ps_cu_event event)
{
	USABLE();
	PS_LOCK_SCOPE(&the.lock);
	event_sync((const struct event *)(void *)event);
	return the.lost ? UNSPECIFIED_LAUNCH_FAILURE : 0;
}

ps_cu_result event_elapsed_mock(float *ret_ms, ps_cu_event from, ps_cu_event to)
{
	USABLE();
	if (!has_time(from) || !has_time(to))
		return INVALID_HANDLE;
	if (event_query_mock(from) != 0 || event_query_mock(to) != 0)
		return PS_CU_NOT_READY;
	PS_LOCK_SCOPE(&the.lock);
	*ret_ms =
	        (float)((((const struct event *)(void *)to)->at - ((const struct event *)(void *)from)->at) *
	                1e3);
	return 0;
}

ps_cu_result memory_alloc_mock(ps_cu_pointer *ret_pointer, size_t nbytes)
{
	void *p;

	USABLE();
	if (nbytes == 0)
		return INVALID_VALUE;
	if (nbytes > largest)
		largest = nbytes;
	if (posix_memalign(&p, DEVICE_ALIGN, nbytes) != 0)
		p = NULL;
	if (p && mock_ptx_wanted())
		memset(p, 0xa5, nbytes); /* new device memory is not zeroed */
	if (p && !range_add(&pieces, p, nbytes)) {
		free(p);
		p = NULL;
	}
	*ret_pointer = (ps_cu_pointer)(uintptr_t)p;
	return made(p);
}

ps_cu_result memory_free_mock(ps_cu_pointer pointer)
{
	if (depth == 0)
		return INVALID_CONTEXT;
	must_not_be_written((const char *)(uintptr_t)pointer);
	if (!range_remove(&pieces, (void *)(uintptr_t)pointer))
		return INVALID_VALUE;
	free((void *)(uintptr_t)pointer); /* without a wait for streams: the loader must have waited */
	nobjects--;
	return 0;
}

static bool is_locked(const char *p, size_t nbytes)
{
	PS_LOCK_SCOPE(&ranges_lock);
	return range_find(ranges, p, nbytes);
}

static ps_cu_result copy(void *to, const void *from, size_t nbytes, ps_cu_stream stream)
{
	struct job job = {.what = COPY, .to = to, .from = from, .nbytes = nbytes};

	struct ps_fake_stream *s = stream_of(stream);
	PS_LOCK_SCOPE(&the.lock);
	return !s || job_give(s, &job) < 0 ? PS_CU_OUT_OF_MEMORY : 0;
}

ps_cu_result copy_to_device_mock(ps_cu_pointer to, const void *from, size_t nbytes, ps_cu_stream stream)
{
	struct range *piece;

	USABLE();
	if (!is_locked(from, nbytes))
		return INVALID_VALUE;
	pthread_mutex_lock(&ranges_lock);
	piece = range_find(pieces, (const char *)(uintptr_t)to, nbytes);
	if (piece) {
		piece->copied += nbytes;
		piece->ncopies++;
	}
	pthread_mutex_unlock(&ranges_lock);
	if (!piece)
		return INVALID_VALUE;
	struct ps_fake_stream *s = stream_of(stream);
	struct copy_job *c = malloc(sizeof(*c));
	if (!s || !c) {
		free(c);
		return PS_CU_OUT_OF_MEMORY;
	}
	*c = (struct copy_job){(void *)(uintptr_t)to, from, nbytes, sum_of(from, nbytes)};
	PS_LOCK_SCOPE(&the.lock);
	if (job_give(s, &(struct job){.what = CALL, .fn = copy_do, .arg = c, .owns = true}) == 0)
		return 0;
	free(c);
	return PS_CU_OUT_OF_MEMORY;
}

ps_cu_result cuMemcpyDtoHAsync_v2(void *to, ps_cu_pointer from, size_t n, ps_cu_stream stream)
{
	USABLE();
	return copy(to, (const void *)(uintptr_t)from, n, stream);
}

ps_cu_result cuMemcpyDtoDAsync_v2(ps_cu_pointer to, ps_cu_pointer from, size_t n, ps_cu_stream stream)
{
	USABLE();
	return copy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, n, stream);
}

ps_cu_result host_register_mock(void *p, size_t nbytes, unsigned flags)
{
	USABLE();
	if (flags != PS_CU_HOST_REGISTER_PORTABLE || !p || nbytes == 0)
		return INVALID_VALUE;
	if (overlaps(&ranges, p, nbytes))
		return HOST_MEMORY_ALREADY_REGISTERED;
	return made(range_add(&ranges, p, nbytes) ? p : NULL);
}

ps_cu_result host_unregister_mock(void *p)
{
	if (depth == 0)
		return INVALID_CONTEXT;
	must_not_be_read(p);
	if (!range_remove(&ranges, p))
		return INVALID_VALUE;
	nobjects--;
	return 0;
}

/* Kernels: the code of kernels.h, run on host memory ----------------------------------------------------- */

/* A function of a module. */
struct function {
	const struct kernel *kernel;
	struct ptx_kernel *ptx; /* NULL: the kernel's C code is run */
};

struct module {
	struct function functions[PS_NKERNELS];
};

struct launch {
	const struct function *function;
	uint32_t nblocks;
	uint8_t args[];
};

/* All pieces of device memory, as they are now; NULL: out of memory. */
static struct ptx_range *pieces_now(size_t *ret_n)
{
	struct ptx_range *all;
	size_t n = 0;

	PS_LOCK_SCOPE(&ranges_lock);
	for (struct range *r = pieces; r; r = r->next)
		n++;
	all = calloc(n + 1, sizeof(*all));
	*ret_n = all ? n : 0;
	for (struct range *r = pieces; r && all; r = r->next)
		all[--n] = (struct ptx_range){.from = r->from, .nbytes = r->nbytes, .shadow = &r->shadow};
	return all;
}

/* A fault loses the device, as on a GPU. */
static void ptx_do(const struct launch *l)
{
	struct ptx_launch p = {.grid = {l->nblocks, 1, 1},
	        .block = {PS_KERNEL_THREADS, 1, 1},
	        .shared_most = 48 << 10,
	        .params = l->args};
	struct ptx_range *known = pieces_now(&p.nranges);

	p.ranges = known;
	if (!known || !mock_ptx_launch(l->function->ptx, &p)) {
		PS_LOCK_SCOPE(&the.lock);
		the.lost = true;
		pthread_cond_broadcast(&the.changed);
	}
	free(known);
}

static void launch_do(void *arg)
{
	struct launch *l = arg;

	if (l->function->ptx)
		ptx_do(l);
	else
		l->function->kernel->run(l->args, l->nblocks);
}

EXPORT void mock_cuda_refuse_kernels(int refuse);
EXPORT void mock_cuda_fail_launches(int fail);
static _Atomic int refuse_kernels, fail_launches;

void mock_cuda_fail_launches(int fail)
{
	fail_launches = fail;
}

void mock_cuda_refuse_kernels(int refuse)
{
	refuse_kernels = refuse;
}

ps_cu_result module_load_mock(ps_cu_module *ret_module, const void *image)
{
	USABLE();
	if (!image)
		return INVALID_VALUE;
	if (refuse_kernels)
		return NO_BINARY_FOR_GPU;
	*ret_module = (ps_cu_module)calloc(1, sizeof(struct module));
	return made(*ret_module);
}

ps_cu_result module_unload_mock(ps_cu_module module)
{
	if (depth == 0)
		return INVALID_CONTEXT;
	all_sync();
	free(module);
	nobjects--;
	return 0;
}

ps_cu_result module_function_mock(ps_cu_function *ret_function, ps_cu_module module, const char *name)
{
	USABLE();
	if (!module)
		return INVALID_HANDLE;
	for (size_t i = 0; i < PS_ARRAY_LEN(kernels); i++) {
		struct function *f = &((struct module *)(void *)module)->functions[i];

		if (strcmp(kernels[i].name, name) != 0)
			continue;
		*f = (struct function){.kernel = &kernels[i]};
		if (mock_ptx_wanted())
			f->ptx = mock_ptx_kernel(name, kernels[i].args_nbytes);
		*ret_function = (ps_cu_function)(void *)f;
		return mock_ptx_wanted() && !f->ptx ? NOT_FOUND : 0;
	}
	return NOT_FOUND;
}

ps_cu_result function_attribute_mock(
        int *ret_value, ps_cu_function_attribute attribute, ps_cu_function function)
{
	USABLE();
	if (!function || attribute != PS_CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)
		return INVALID_VALUE;
	const struct ptx_kernel *ptx = ((const struct function *)(const void *)function)->ptx;
	*ret_value = ptx ? (int)ptx_kernel_facts(ptx).threads_most : 1024;
	return 0;
}

ps_cu_result launch_mock(ps_cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_nbytes, ps_cu_stream stream,
        void **args, void **extra)
{
	const struct function *f = (const struct function *)(const void *)function;
	struct ps_fake_stream *s;
	struct launch *l;

	USABLE();
	if (grid_x == 0 || grid_y != 1 || grid_z != 1 || block_x != PS_KERNEL_THREADS || block_y != 1 ||
	        block_z != 1 || shared_nbytes != 0 || extra || !args)
		return INVALID_VALUE;
	if (fail_launches)
		return LAUNCH_OUT_OF_RESOURCES;
	s = stream_of(stream);
	l = malloc(sizeof(*l) + f->kernel->args_nbytes);
	if (!s || !l) {
		free(l);
		return PS_CU_OUT_OF_MEMORY;
	}
	*l = (struct launch){.function = f, .nblocks = grid_x};
	memcpy(l->args, args[0], f->kernel->args_nbytes);
	PS_LOCK_SCOPE(&the.lock);
	if (job_give(s, &(struct job){.what = CALL, .fn = launch_do, .arg = l, .owns = true}) == 0)
		return 0;
	free(l);
	return PS_CU_OUT_OF_MEMORY;
}
