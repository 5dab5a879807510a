#include "config.h"

#include "device/kernels/cuda_driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>

static struct {
	pthread_once_t once;
	struct ps_cuda_driver driver;
	int failed; /* -errno */
	struct ps_error why;
} the = {.once = PTHREAD_ONCE_INIT};

int ps_cuda_error(
        const struct ps_cuda_driver *driver, ps_cu_result result, struct ps_error *err, const char *what)
{
	const char *text = NULL;

	if (driver->error_string(result, &text) != 0 || !text)
		text = "unknown error";
	return ps_error_set(err, result == PS_CU_OUT_OF_MEMORY ? ENOMEM : EIO, "%s: %s (CUDA error %d)", what,
	        text, result);
}

static int symbols_find(void *library, struct ps_cuda_driver *d, struct ps_error *err)
{
	struct {
		const char *symbol;
		void **place;
	} const all[] = {
#define ROW(name, symbol, args) {#symbol, (void **)(void *)&d->name},
	        PS_CUDA_FUNCTIONS(ROW)
#undef ROW
	};

	for (size_t i = 0; i < PS_ARRAY_LEN(all); i++) {
		*all[i].place = dlsym(library, all[i].symbol);
		if (!*all[i].place)
			return ps_error_set(err, ENODEV,
			        "device cuda: the NVIDIA driver has no %s: it is too old; use cpu, or a "
			        "driver of "
			        "CUDA 11 or later",
			        all[i].symbol);
	}
	return 0;
}

static int driver_open(struct ps_cuda_driver *d, struct ps_error *err)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	ps_cu_result result;
	int rc;

	if (!library) {
		const char *why = dlerror();

		return ps_error_set(err, ENODEV, "device cuda: no NVIDIA driver is installed (%s); use cpu",
		        why ? why : "dlopen");
	}
	rc = symbols_find(library, d, err);
	if (rc == 0) {
		result = d->init(0);
		if (result != 0) {
			(void)ps_cuda_error(d, result, err, "device cuda: the NVIDIA driver does not start");
			rc = -ENODEV;
		}
	}
	if (rc < 0)
		dlclose(library);
	return rc;
}

static void driver_open_once(void)
{
	the.failed = driver_open(&the.driver, &the.why);
}

int ps_cuda_driver_get(const struct ps_cuda_driver **ret_driver, struct ps_error *err)
{
	pthread_once(&the.once, driver_open_once);
	if (the.failed < 0)
		return ps_error_set(err, -the.failed, "%s", the.why.text);
	*ret_driver = &the.driver;
	return 0;
}

/* Contexts and streams ----------------------------------------------------------------------------------- */

/* How many contexts the calling thread has entered and not left, and its capture mode before the first. */
static _Thread_local uint32_t entered;
static _Thread_local ps_cu_capture_mode mode_before;

int ps_cuda_context_enter(const struct ps_cuda_driver *cu, ps_cu_context context, struct ps_error *err)
{
	ps_cu_result r = cu->context_push(context);

	if (r != 0)
		return ps_cuda_error(cu, r, err, "cannot use the GPU");
	if (entered++ == 0) {
		mode_before = PS_CU_CAPTURE_RELAXED;
		if (cu->capture_mode(&mode_before) != 0)
			mode_before = PS_CU_CAPTURE_GLOBAL;
	}
	return 0;
}

void ps_cuda_context_leave(const struct ps_cuda_driver *cu)
{
	ps_cu_context old;

	if (--entered == 0)
		(void)cu->capture_mode(&mode_before);
	(void)cu->context_pop(&old);
}

ps_cu_result ps_cuda_urgent_stream_new(const struct ps_cuda_driver *cu, ps_cu_stream *ret_stream)
{
	int least, greatest; /* the greatest priority has the lowest number */
	ps_cu_result r = cu->priorities(&least, &greatest);

	return r == 0 ? cu->stream_create_urgent(ret_stream, PS_CU_STREAM_NON_BLOCKING, greatest) : r;
}
