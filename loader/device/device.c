#include "config.h"

#include "device/device.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

static void *cpu_alloc(size_t nbytes)
{
	void *p = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	(void)madvise(
	        p, nbytes, MADV_HUGEPAGE); /* fewer faults; where the kernel has none, nothing is lost */
	return p;
}

static void cpu_free(void *p, size_t nbytes)
{
	munmap(p, nbytes);
}

static void *cpu_resize(void *p, size_t old_nbytes, size_t new_nbytes)
{
	p = mremap(p, old_nbytes, new_nbytes, MREMAP_MAYMOVE);
	return p == MAP_FAILED ? NULL : p;
}

static const struct ps_device_ops devices[] = {
        {"cpu", cpu_alloc, cpu_resize, cpu_free},
};

const struct ps_device_ops *ps_device_find(const char *name, struct ps_load_error *err)
{
	if (!name)
		return &devices[0];
	for (size_t i = 0; i < PS_ARRAY_LEN(devices); i++)
		if (strcmp(devices[i].name, name) == 0)
			return &devices[i];
	if (strcmp(name, "cuda") == 0 || strncmp(name, "cuda:", 5) == 0)
		ps_load_error_set(err, ENODEV,
		        "device %.40s: the CUDA device is not part of this build; use cpu", name);
	else
		ps_load_error_set(err, ENODEV, "device %.40s: no such device; use cpu", name);
	return NULL;
}
