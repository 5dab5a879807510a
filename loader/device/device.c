#include "config.h"

#include "device/device.h"

#include <errno.h>
#include <string.h>

static const struct ps_device_ops host_ops = {
        .name = "cpu",
        .type = 1,
        .alloc = ps_host_slot_alloc,
        .resize = ps_host_slot_resize,
        .free = ps_host_slot_free,
};

struct ps_device *ps_device_host(void)
{
	static struct ps_device host = {.ops = &host_ops};

	return &host;
}

/* The number after "cuda" in `name`, 0 if there is none; -1: it is not of that kind. */
static int64_t cuda_ordinal(const char *name)
{
	size_t len = strlen("cuda");
	int64_t n = 0;

	if (strncmp(name, "cuda", len) != 0)
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
	return cuda_ordinal(name) >= 0 || strcmp(name, "cpu") == 0;
}

int ps_device_open(const char *name, struct ps_device **ret_device, struct ps_error *err)
{
	int64_t ordinal;

	if (!name || strcmp(name, "cpu") == 0) {
		*ret_device = ps_device_host();
		return 0;
	}
	ordinal = cuda_ordinal(name);
	if (ordinal >= 0)
		return ps_device_cuda.open((uint32_t)ordinal, ret_device, err);
	return ps_error_set(err, ENODEV, "device %.40s: no such device; use cpu, cuda or cuda:N", name);
}

void ps_device_close(struct ps_device *device)
{
	if (device && device->ops->close)
		device->ops->close(device);
}
