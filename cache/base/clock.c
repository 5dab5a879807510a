#include "base/clock.h"

#include <fcntl.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"

uint64_t ps_clock_mono_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * PS_NS_PER_S + (uint64_t)ts.tv_nsec;
}

int64_t ps_clock_real_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return ts.tv_sec;
}

int64_t ps_clock_real_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

void ps_clock_boot_id(char ret_id[static 37])
{
	ps_autofd int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, ret_id, 36);

	ret_id[n == 36 ? 36 : 0] = '\0';
}
