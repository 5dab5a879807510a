#include "config.h"

#include "device/device.h"

#include <errno.h>
#include <string.h>

#include "image/pixel/pixel.h"

static void *cpu_resize(
        struct ps_device *device, void *p, size_t old_nbytes, size_t new_nbytes, struct ps_error *err)
{
	(void)device;
	p = ps_host_resize(p, old_nbytes, new_nbytes);
	if (!p)
		ps_error_set(err, ENOMEM, "no memory for a batch of %zu bytes", new_nbytes);
	return p;
}

static struct ps_device *cpu(void)
{
	static const struct ps_device_ops ops = {
	        .name = "cpu",
	        .type = 1,
	        .alloc = ps_host_slot_alloc,
	        .resize = cpu_resize,
	        .free = ps_host_slot_free,
	};
	static struct ps_device device = {.ops = &ops};

	return &device;
}

struct ps_device *ps_device_host(void)
{
	return cpu();
}

/* Devices with a number after their name. */
static const struct ps_device_ops *const numbered[] = {&ps_device_cuda, &ps_device_fake};

/* The number after `kind` in `name`, 0 if there is none; -1: it is not of that kind. */
static int64_t ordinal_of(const char *name, const char *kind)
{
	size_t len = strlen(kind);
	int64_t n = 0;

	if (strncmp(name, kind, len) != 0)
		return -1;
	if (name[len] == 0)
		return 0;
	if (name[len] != ':' || name[len + 1] == 0)
		return -1;
	for (const char *c = name + len + 1; *c; c++) {
		if (*c < '0' || *c > '9' || n > 9999)
			return -1;
		n = n * 10 + (*c - '0');
	}
	return n;
}

bool ps_device_is_named(const char *name)
{
	for (size_t i = 0; i < PS_ARRAY_LEN(numbered); i++)
		if (ordinal_of(name, numbered[i]->name) >= 0)
			return true;
	return strcmp(name, "cpu") == 0;
}

int ps_device_open(const char *name, struct ps_device **ret_device, struct ps_error *err)
{
	if (!name || strcmp(name, "cpu") == 0) {
		*ret_device = cpu();
		return 0;
	}
	for (size_t i = 0; i < PS_ARRAY_LEN(numbered); i++) {
		int64_t ordinal = ordinal_of(name, numbered[i]->name);

		if (ordinal >= 0)
			return numbered[i]->open((uint32_t)ordinal, ret_device, err);
	}
	return ps_error_set(err, ENODEV, "device %.40s: no such device; use cpu, cuda or cuda:N", name);
}

void ps_device_close(struct ps_device *device)
{
	if (device && device->ops->close)
		device->ops->close(device);
}
