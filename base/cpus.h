/* How many threads are worth having: the CPUs that this process may run on.
 *
 * The least of the scheduler's affinity and the quota of the control groups that the process is in (cpu.max,
 * or cpu.cfs_quota_us of version 1), shared with the other ranks of the machine where LOCAL_WORLD_SIZE says
 * how many there are. Threads: any.   Errors: none; what cannot be read does not limit.   Blocks: on /proc
 * and /sys. */
#ifndef PS_BASE_CPUS_H
#define PS_BASE_CPUS_H

#include <stdint.h>

/* 1 at least. */
uint32_t ps_cpus_usable(void);

/* For tests: the CPUs that one line of cpu.max ("max 100000", "150000 100000") allows; 0: no limit. */
uint32_t ps_cpus_parse_max(const char *line);

#endif
