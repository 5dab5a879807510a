#include "config.h"

#include "device/kernels/kernels.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define IMAGE_MAX (256L << 20)

static const char *const entries[] = {
#define ENTRY(name, args, shared_nbytes, call) "ps_kernel_" #name,
        PS_KERNELS(ENTRY)
#undef ENTRY
};

/* The whole file; NULL with err. */
static void *file_read(const char *path, struct ps_error *err)
{
	FILE *f = fopen(path, "re");
	uint8_t *bytes = NULL;
	long n = -1;

	if (f && fseek(f, 0, SEEK_END) == 0)
		n = ftell(f);
	if (n > 0 && n <= IMAGE_MAX && fseek(f, 0, SEEK_SET) == 0)
		bytes = calloc(1, (size_t)n + 1);
	if (bytes && fread(bytes, 1, (size_t)n, f) != (size_t)n) {
		free(bytes);
		bytes = NULL;
	}
	if (f)
		fclose(f);
	if (!bytes)
		ps_error_set(err, ENODEV, "PENSTOCK_CUDA_KERNELS: %.200s cannot be read", path);
	return bytes;
}

static int module_load(struct ps_kernels *k, struct ps_error *err)
{
	const char *path = getenv("PENSTOCK_CUDA_KERNELS");
	ps_autofree void *file = path && path[0] ? file_read(path, err) : NULL;
	size_t nbytes;
	const void *image = path && path[0] ? file : ps_kernels_image(&nbytes);
	ps_cu_result r;

	if (path && path[0] && !file)
		return -ENODEV;
	if (!image)
		return ps_error_set(err, ENODEV, "the library was built without nvcc and has no kernels");
	r = k->cu->module_load(&k->module, image);
	if (r == 0)
		return 0;
	k->module = NULL;
	(void)ps_cuda_error(k->cu, r, err,
	        "the driver cannot run the library's kernels (install a newer driver, or build the library "
	        "with "
	        "--with-cuda-arch for this GPU)");
	return -ENODEV;
}

/* Gets a function, and asks for an attribute of it. A driver loads a function when it is first asked about
 * or run; so it is loaded now, and the first batch need not wait. */
static ps_cu_result function_get(struct ps_kernels *k, uint32_t i)
{
	int threads = 0;
	ps_cu_result r = k->cu->module_function(&k->functions[i], k->module, entries[i]);

	if (r == 0)
		r = k->cu->function_attribute(
		        &threads, PS_CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, k->functions[i]);
	return r == 0 && threads < (int)PS_KERNEL_THREADS ? PS_CU_OUT_OF_RESOURCES : r;
}

int ps_kernels_load(const struct ps_cuda_driver *driver, struct ps_kernels *ret_kernels, struct ps_error *err)
{
	struct ps_kernels k = {.cu = driver};
	int rc = module_load(&k, err);

	for (uint32_t i = 0; i < PS_NKERNELS && rc == 0; i++) {
		ps_cu_result result = function_get(&k, i);

		if (result != 0) {
			(void)ps_cuda_error(driver, result, err, entries[i]);
			rc = -ENODEV;
		}
	}
	if (rc < 0) {
		ps_kernels_unload(&k);
		return rc;
	}
	*ret_kernels = k;
	return 0;
}

void ps_kernels_unload(struct ps_kernels *k)
{
	if (k->module)
		(void)k->cu->module_unload(k->module);
	*k = (struct ps_kernels){0};
}

ps_cu_result ps_kernel_launch(const struct ps_kernels *k, enum ps_kernel which, uint64_t nblocks,
        const void *args, ps_cu_stream stream)
{
	void *all[] = {(void *)(uintptr_t)args};

	if (nblocks == 0)
		return 0;
	if (nblocks > INT_MAX)
		return PS_CU_INVALID_VALUE;
	return k->cu->launch(
	        k->functions[which], (unsigned)nblocks, 1, 1, PS_KERNEL_THREADS, 1, 1, 0, stream, all, NULL);
}
