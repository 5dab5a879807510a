#include "base/clock.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/cleanup.h"

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

uint64_t ps_clock_jitter(uint64_t most)
{
	uint32_t random;

	if (getrandom(&random, sizeof(random), GRND_NONBLOCK) != sizeof(random))
		random = (uint32_t)ps_clock_mono_ns();
	return random % (most + 1);
}

uint64_t ps_clock_backoff(uint64_t first, uint64_t most, unsigned failures)
{
	for (unsigned i = 1; i < failures && first < most; i++)
		first *= 2;
	return PS_MIN(first, most);
}

void ps_clock_boot_id(char ret_id[static 37])
{
	ps_autofd int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, ret_id, 36);

	ret_id[n == 36 ? 36 : 0] = '\0';
}

int64_t ps_clock_parse_rfc3339(const char *s)
{
	struct tm tm = {0};
	int used = 0, hours, minutes;
	char sign[2];

	if (sscanf(s, "%4d-%2d-%2d%*1[Tt ]%2d:%2d:%2d%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour,
	            &tm.tm_min, &tm.tm_sec, &used) != 6 ||
	        !used || tm.tm_mon < 1 || tm.tm_mon > 12 || tm.tm_mday < 1 || tm.tm_mday > 31)
		return -1;
	tm.tm_year -= 1900;
	tm.tm_mon--;
	s += used;
	if (*s == '.')
		s += 1 + strspn(s + 1, "0123456789");
	int64_t t = timegm(&tm);
	if (sscanf(s, "%1[+-]%2d:%2d", sign, &hours, &minutes) == 3)
		t -= (sign[0] == '-' ? -60 : 60) * (60 * (int64_t)hours + minutes);
	return t < 0 ? -1 : t;
}
