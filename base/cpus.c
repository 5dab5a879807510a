#include "config.h"

#include "base/cpus.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

static uint32_t cpus_of(long long quota, long long period)
{
	if (quota <= 0 || period <= 0)
		return 0;
	return (uint32_t)PS_MIN((quota + period - 1) / period, 1 << 20);
}

uint32_t ps_cpus_parse_max(const char *line)
{
	long long quota, period;

	return sscanf(line, "%lld %lld", &quota, &period) == 2 ? cpus_of(quota, period) : 0;
}

static bool line_read(const char *path, char *line, int size)
{
	FILE *f = fopen(path, "re");
	bool ok = f && fgets(line, size, f);

	if (f)
		fclose(f);
	return ok;
}

/* The smallest limit of a control group (version 2) and all groups above it; 0: none. */
static uint32_t groups_limit(char *group)
{
	uint32_t least = 0;

	for (;;) {
		char path[4200], line[128], *slash;
		uint32_t n;

		snprintf(path, sizeof(path), "/sys/fs/cgroup%s/cpu.max", group);
		n = line_read(path, line, sizeof(line)) ? ps_cpus_parse_max(line) : 0;
		if (n && (!least || n < least))
			least = n;
		slash = strrchr(group, '/');
		if (!slash)
			return least;
		*slash = 0;
	}
}

static uint32_t cgroup_limit(void)
{
	char line[4096], quota[64], period[64];
	uint32_t n = 0;
	FILE *f = fopen("/proc/self/cgroup", "re");

	while (f && !n && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		if (strncmp(line, "0::/", 4) == 0)
			n = groups_limit(line + 3);
	}
	if (f)
		fclose(f);
	if (!n && line_read("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", quota, sizeof(quota)) &&
	        line_read("/sys/fs/cgroup/cpu/cpu.cfs_period_us", period, sizeof(period)))
		n = cpus_of(atoll(quota), atoll(period));
	return n;
}

static uint32_t affinity(void)
{
	/* The mask may be longer than cpu_set_t on large machines. */
	for (int cpus = 1024; cpus <= 1 << 16; cpus *= 4) {
		cpu_set_t *set = CPU_ALLOC(cpus);
		size_t nbytes = CPU_ALLOC_SIZE(cpus);
		int n = 0;

		if (!set)
			break;
		if (sched_getaffinity(0, nbytes, set) == 0)
			n = CPU_COUNT_S(nbytes, set);
		CPU_FREE(set);
		if (n > 0)
			return (uint32_t)n;
	}
	return 1;
}

uint32_t ps_cpus_usable(void)
{
	uint32_t n = affinity();
	uint32_t limit = cgroup_limit();
	const char *ranks = getenv("LOCAL_WORLD_SIZE");
	long local = ranks ? strtol(ranks, NULL, 10) : 1;

	if (limit && limit < n)
		n = limit;
	if (local > 1)
		n /= (uint32_t)PS_MIN(local, 1 << 16);
	return PS_MAX(n, 1u);
}
