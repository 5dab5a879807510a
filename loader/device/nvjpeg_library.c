#include "config.h"

#include "device/nvjpeg_library.h"

#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define PS_NVJPEG_TRIED 32 /* libraries that are remembered; a further one may be tried twice */

static const char *const sonames[] = {"libnvjpeg.so.13", "libnvjpeg.so.12", "libnvjpeg.so.11"};

/* Folders, as patterns of glob(3). With `variable`, the folder is relative to the value of that environment
 * variable, or to each part of a list. */
static const struct place {
	const char *variable, *folder;
	enum { LIBRARIES, PACKAGES } of;
} places[] = {
        {"CUDA_HOME", "/lib64", LIBRARIES},
        {"CUDA_PATH", "/lib64", LIBRARIES},
        {NULL, "/usr/local/cuda/lib64", LIBRARIES},
        {NULL, "/usr/local/cuda/targets/*-linux/lib", LIBRARIES},
        {NULL, "/usr/local/cuda-*/lib64", LIBRARIES},
        {"CONDA_PREFIX", "/lib", LIBRARIES},
        {"VIRTUAL_ENV", "/lib/python3*/site-packages", PACKAGES},
        {"CONDA_PREFIX", "/lib/python3*/site-packages", PACKAGES},
        {"PYTHONPATH", "", PACKAGES},
        {"PATH", "/../lib/python3*/site-packages", PACKAGES}, /* an environment that is not activated */
        {"HOME", "/.local/lib/python3*/site-packages", PACKAGES},
        {NULL, "/usr/local/lib/python3*/*-packages", PACKAGES},
        {NULL, "/usr/lib/python3/dist-packages", PACKAGES},
};

/* The library within a folder, as patterns of glob(3) without the number after "so.". Python packages of CUDA
 * 13 share one folder, those of CUDA 12 and 11 have one each, and torchvision has its own copy under a name
 * with a hash. */
static const char *const in_libraries[] = {"libnvjpeg.so.", NULL};
static const char *const in_packages[] = {
        "nvidia/*/lib/libnvjpeg.so.", "torchvision.libs/libnvjpeg*.so.", NULL};

/* An open library that has all functions, whether it starts or not. */
struct opened {
	struct opened *next;
	void *handle;
	struct ps_nvjpeg_library library;
};

static struct {
	pthread_mutex_t lock; /* guards all of this; entries of the list never change */
	struct opened *all;
} the = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* A search for a usable library. */
struct search {
	ps_nvjpeg_starts starts;
	void *arg;
	const struct ps_nvjpeg_library *found;
	int failed;                   /* -errno that ended the search; -ENODEV does not end it */
	struct ps_error why;          /* text of `failed` */
	struct ps_error *refused;     /* the text: each candidate and why */
	void *tried[PS_NVJPEG_TRIED]; /* handles: one library may be found in several places */
	uint32_t ntried;
};

const char *ps_nvjpeg_status(ps_nvj_status status)
{
	static const char *const texts[] = {"success", "not initialised", "invalid parameter", "damaged JPEG",
	        "kind of JPEG not supported", "out of memory", "execution failed", "not made for this GPU",
	        "internal error", "not implemented", "JPEG cut short"};
	unsigned i = (unsigned)status;

	return i < PS_ARRAY_LEN(texts) ? texts[i] : "unknown error";
}

/* A library ---------------------------------------------------------------------------------------------- */

static int symbols_find(void *handle, struct ps_nvjpeg_library *l, struct ps_error *err)
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
			return ps_error_set(err, ENODEV,
			        "it has no %s: it is not nvJPEG, or older than that of CUDA 11.2",
			        all[i].symbol);
	}
	return 0;
}

static void path_ask(void *handle, const char *name, char path[static 256])
{
	const struct link_map *map;
	bool known = dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map->l_name[0];

	snprintf(path, 256, "%s", known ? map->l_name : name);
}

/* The entry of an open library; NULL: the library lacks functions (named in the text), or memory has run
 * out. */
static const struct ps_nvjpeg_library *library_of(void *handle, const char *name, struct ps_error *err)
{
	struct opened *o;
	int number[3] = {0};

	PS_LOCK_SCOPE(&the.lock);
	for (o = the.all; o; o = o->next)
		if (o->handle == handle)
			return &o->library;
	o = calloc(1, sizeof(*o));
	if (!o) {
		ps_no_memory(err);
		return NULL;
	}
	if (symbols_find(handle, &o->library, err) < 0) {
		free(o);
		return NULL;
	}
	o->handle = handle;
	(void)o->library.property(PS_NVJ_PROPERTY_MAJOR, &number[0]);
	(void)o->library.property(PS_NVJ_PROPERTY_MINOR, &number[1]);
	(void)o->library.property(PS_NVJ_PROPERTY_PATCH, &number[2]);
	o->library.version = number[0] * 1000000 + number[1] * 1000 + number[2];
	path_ask(handle, name, o->library.path);
	o->next = the.all;
	the.all = o;
	return &o->library;
}

/* The search --------------------------------------------------------------------------------------------- */

static void refuse(struct search *s, const char *path, const char *why)
{
	bool first = !s->refused->text[0];

	ps_error_set(s->refused, ENODEV, "%s%s%s: %s", s->refused->text, first ? "" : "; ", path, why);
}

/* Refuses a file that exists and cannot be opened. A missing file is not a candidate. */
static void refuse_unopened(struct search *s, const char *name)
{
	const char *why = dlerror();

	if (!why)
		why = "dlopen failed";
	if (!strstr(why, name))
		refuse(s, name, why);
	else if (!strstr(why, "No such file or directory"))
		ps_error_set(s->refused, ENODEV, "%s%s%s", s->refused->text, s->refused->text[0] ? "; " : "",
		        why); /* the text names the file itself */
}

static bool was_tried(struct search *s, void *handle)
{
	for (uint32_t i = 0; i < s->ntried; i++)
		if (s->tried[i] == handle)
			return true;
	if (s->ntried < PS_NVJPEG_TRIED)
		s->tried[s->ntried++] = handle;
	return false;
}

/* Tries a library; true: the search is over. Refused libraries stay open as well: some already use the
 * driver. */
static bool candidate_try(struct search *s, const char *name, int flags)
{
	void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL | flags);
	const struct ps_nvjpeg_library *l;
	struct ps_error why = {0};
	char path[256];
	int rc;

	if (!handle) {
		if (!(flags & RTLD_NOLOAD))
			refuse_unopened(s, name);
		return false;
	}
	if (was_tried(s, handle))
		return false;
	l = library_of(handle, name, &why);
	rc = !l ? -why.err : s->starts ? s->starts(s->arg, l, &why) : 0;
	path_ask(handle, name, path);
	if (rc == -ENODEV) {
		refuse(s, path, why.text);
		return false;
	}
	s->found = rc == 0 ? l : NULL;
	s->failed = rc;
	s->why = why;
	ps_error_prefix(&s->why, rc, "%s", path);
	return true;
}

static bool try_matching(struct search *s, const char *pattern)
{
	bool over = false;
	glob_t found;

	if (glob(pattern, 0, NULL, &found) == 0)
		for (size_t i = 0; i < found.gl_pathc && !over; i++)
			over = candidate_try(s, found.gl_pathv[i], 0);
	globfree(&found);
	return over;
}

/* Tries one folder, named by the first `len` bytes of `root` and place->folder. */
static bool try_folder(
        struct search *s, const char *root, int len, const struct place *place, const char *version)
{
	const char *const *in = place->of == PACKAGES ? in_packages : in_libraries;
	char pattern[512];

	for (; *in; in++)
		if (snprintf(pattern, sizeof(pattern), "%.*s%s/%s%s", len, root, place->folder, *in,
		            version) < (int)sizeof(pattern) &&
		        try_matching(s, pattern))
			return true;
	return false;
}

static bool try_places(struct search *s, const char *version)
{
	for (size_t k = 0; k < PS_ARRAY_LEN(places); k++) {
		const char *root = places[k].variable ? getenv(places[k].variable) : "";

		for (const char *end; root; root = *end ? end + 1 : NULL) {
			end = strchrnul(root, ':');
			if (places[k].variable && root[0] != '/')
				continue;
			if (try_folder(s, root, (int)(end - root), &places[k], version))
				return true;
		}
	}
	return false;
}

/* Reports that no library was found, and the remedy. */
static int none(const struct search *s, const char *named, struct ps_error *err)
{
	if (s->failed < 0)
		return ps_error_set(err, -s->failed, "nvJPEG: %s", s->why.text);
	if (named)
		return ps_error_set(err, ENODEV, "nvJPEG: PENSTOCK_NVJPEG: %s",
		        s->refused->text[0] ? s->refused->text : named);
	if (s->refused->text[0])
		return ps_error_set(err, ENODEV,
		        "nvJPEG: no library on this machine can be used: %s. Install one that is made for "
		        "this driver "
		        "(pip install nvidia-nvjpeg-cu12, say), name it in PENSTOCK_NVJPEG, or decode on the "
		        "processor (gpu_decode 0)",
		        s->refused->text);
	return ps_error_set(err, ENODEV,
	        "nvJPEG: no libnvjpeg.so.13, .12 or .11 here: install it (pip install nvidia-nvjpeg-cu12, or "
	        "the CUDA Toolkit's), name it in PENSTOCK_NVJPEG, or decode on the processor (gpu_decode 0)");
}

int ps_nvjpeg_library_find(ps_nvjpeg_starts starts, void *arg, const struct ps_nvjpeg_library **ret_library,
        struct ps_error *ret_refused, struct ps_error *err)
{
	const char *named = getenv("PENSTOCK_NVJPEG");
	struct ps_error refused;
	struct search s = {.starts = starts, .arg = arg, .refused = ret_refused ? ret_refused : &refused};

	*s.refused = (struct ps_error){0};
	if (named && named[0]) {
		(void)candidate_try(&s, named, 0);
		if (!s.found && s.failed == 0 && !s.refused->text[0])
			refuse(&s, named, "no such file");
	} else {
		named = NULL;
		bool over = false;

		for (size_t i = 0; i < PS_ARRAY_LEN(sonames) && !over; i++)
			over = candidate_try(&s, sonames[i], RTLD_NOLOAD);
		for (size_t i = 0; i < PS_ARRAY_LEN(sonames) && !over; i++)
			over = candidate_try(&s, sonames[i], 0);
		for (size_t i = 0; i < PS_ARRAY_LEN(sonames) && !over; i++)
			over = try_places(&s, strrchr(sonames[i], '.') + 1);
	}
	if (!s.found)
		return none(&s, named, err);
	*ret_library = s.found;
	return 0;
}
