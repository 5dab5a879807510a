#include "config.h"

#include "device/nvjpeg_library.h"

#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static const char *const sonames[] = {"libnvjpeg.so.13", "libnvjpeg.so.12", "libnvjpeg.so.11"};

/* Folders, as glob(3) takes them; behind a variable of the environment where one is named. The packages of
 * CUDA 13 share one folder, those of CUDA 12 and 11 have one each. */
static const struct {
	const char *variable, *folder;
} places[] = {
        {"CUDA_HOME", "/lib64"},
        {"CUDA_PATH", "/lib64"},
        {NULL, "/usr/local/cuda/lib64"},
        {NULL, "/usr/local/cuda/targets/*-linux/lib"},
        {NULL, "/usr/local/cuda-*/lib64"},
        {"CONDA_PREFIX", "/lib"},
        {"VIRTUAL_ENV", "/lib/python3*/site-packages/nvidia/*/lib"},
        {"CONDA_PREFIX", "/lib/python3*/site-packages/nvidia/*/lib"},
        {"HOME", "/.local/lib/python3*/site-packages/nvidia/*/lib"},
        {NULL, "/usr/local/lib/python3*/*-packages/nvidia/*/lib"},
        {NULL, "/usr/lib/python3/dist-packages/nvidia/*/lib"},
};

static struct {
	pthread_once_t once;
	struct ps_nvjpeg_library library;
	int failed; /* -errno */
	struct ps_load_error why;
} the = {.once = PTHREAD_ONCE_INIT};

const char *ps_nvjpeg_status(ps_nvj_status status)
{
	static const char *const texts[] = {"success", "not initialised", "invalid parameter", "damaged JPEG",
	        "kind of JPEG not supported", "out of memory", "execution failed", "not made for this GPU",
	        "internal error", "not implemented", "JPEG cut short"};
	unsigned i = (unsigned)status;

	return i < PS_ARRAY_LEN(texts) ? texts[i] : "unknown error";
}

static void *open_loaded(void)
{
	void *handle = NULL;

	for (size_t i = 0; i < PS_ARRAY_LEN(sonames) && !handle; i++)
		handle = dlopen(sonames[i], RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
	return handle;
}

static void *open_by_name(void)
{
	void *handle = NULL;

	for (size_t i = 0; i < PS_ARRAY_LEN(sonames) && !handle; i++)
		handle = dlopen(sonames[i], RTLD_NOW | RTLD_LOCAL);
	return handle;
}

static void *open_matching(const char *pattern)
{
	void *handle = NULL;
	glob_t found;

	if (glob(pattern, 0, NULL, &found) == 0)
		for (size_t i = 0; i < found.gl_pathc && !handle; i++)
			handle = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
	globfree(&found);
	return handle;
}

static void *open_in_places(void)
{
	void *handle = NULL;
	char pattern[512];

	for (size_t i = 0; i < PS_ARRAY_LEN(sonames) && !handle; i++) {
		for (size_t k = 0; k < PS_ARRAY_LEN(places) && !handle; k++) {
			const char *root = places[k].variable ? getenv(places[k].variable) : "";

			if (!root || (places[k].variable && root[0] != '/'))
				continue;
			if (snprintf(pattern, sizeof(pattern), "%s%s/%s", root, places[k].folder,
			            sonames[i]) < (int)sizeof(pattern))
				handle = open_matching(pattern);
		}
	}
	return handle;
}

static int symbols_find(void *handle, struct ps_nvjpeg_library *l, struct ps_load_error *err)
{
	struct {
		const char *symbol;
		void **place;
	} const all[] = {
#define ROW(name, symbol, args) {#symbol, (void **)(void *)&l->name},
	        PS_NVJPEG_FUNCTIONS(ROW)
#undef ROW
	};

	for (size_t i = 0; i < PS_ARRAY_LEN(all); i++) {
		*all[i].place = dlsym(handle, all[i].symbol);
		if (!*all[i].place)
			return ps_load_error_set(err, ENODEV,
			        "nvJPEG: the library has no %s: it is too old; use that of CUDA 11.2 or "
			        "later",
			        all[i].symbol);
	}
	return 0;
}

static void library_describe(struct ps_nvjpeg_library *l)
{
	int number[3] = {0};
	Dl_info info;

	(void)l->property(PS_NVJ_PROPERTY_MAJOR, &number[0]);
	(void)l->property(PS_NVJ_PROPERTY_MINOR, &number[1]);
	(void)l->property(PS_NVJ_PROPERTY_PATCH, &number[2]);
	l->version = number[0] * 1000000 + number[1] * 1000 + number[2];
	if (dladdr(*(void **)(void *)&l->create, &info) != 0 && info.dli_fname)
		snprintf(l->path, sizeof(l->path), "%s", info.dli_fname);
}

static int library_open(struct ps_nvjpeg_library *l, struct ps_load_error *err)
{
	const char *named = getenv("PENSTOCK_NVJPEG"), *why;
	void *handle = NULL;
	int r;

	if (named && named[0])
		handle = dlopen(named, RTLD_NOW | RTLD_LOCAL);
	else if (!(handle = open_loaded()) && !(handle = open_by_name()))
		handle = open_in_places();
	if (!handle && named && named[0]) {
		why = dlerror();
		return ps_load_error_set(err, ENODEV, "nvJPEG: PENSTOCK_NVJPEG: %s", why ? why : "dlopen");
	}
	if (!handle)
		return ps_load_error_set(err, ENODEV,
		        "nvJPEG: no libnvjpeg.so.13, .12 or .11 here: install it (pip install "
		        "nvidia-nvjpeg-cu12, or "
		        "the CUDA Toolkit's), name it in PENSTOCK_NVJPEG, or decode on the processor "
		        "(gpu_decode 0)");
	r = symbols_find(handle, l, err);
	if (r < 0)
		dlclose(handle);
	else
		library_describe(l);
	return r;
}

static void library_open_once(void)
{
	the.failed = library_open(&the.library, &the.why);
}

int ps_nvjpeg_library_get(const struct ps_nvjpeg_library **ret_library, struct ps_load_error *err)
{
	pthread_once(&the.once, library_open_once);
	if (the.failed < 0)
		return ps_load_error_set(err, -the.failed, "%s", the.why.text);
	*ret_library = &the.library;
	return 0;
}
