/* The number of CPUs that this process may use, which is also the number of threads worth starting.
 *
 * The result is the minimum of the scheduler's affinity and the quotas of the process's control groups
 * (cpu.max, or cpu.cfs_quota_us of version 1). If LOCAL_WORLD_SIZE, the number of ranks on the machine, is
 * set, the minimum is divided by it. Threads: any. Errors: none; a limit that cannot be read is ignored.
 * Blocks: on /proc and /sys. */
#ifndef PS_BASE_CPUS_H
#define PS_BASE_CPUS_H

#include <stdint.h>

/* At least 1. */
uint32_t ps_cpus_usable(void);

/* For tests: the CPUs of one line of cpu.max ("max 100000", "150000 100000"); 0: no limit. */
uint32_t ps_cpus_parse_max(const char *line);

#endif
