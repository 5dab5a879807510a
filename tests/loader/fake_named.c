/* Opens the device "fake" by its name: ps_device_open() of programs linked with --wrap=ps_device_open. */
#include <string.h>

#include "fake_device.h"

int __real_ps_device_open(const char *name, struct ps_device **ret_device, struct ps_error *err);
int __wrap_ps_device_open(const char *name, struct ps_device **ret_device, struct ps_error *err);

int __wrap_ps_device_open(const char *name, struct ps_device **ret_device, struct ps_error *err)
{
	if (name && strcmp(name, "fake") == 0)
		return ps_device_fake.open(0, ret_device, err);
	return __real_ps_device_open(name, ret_device, err);
}
