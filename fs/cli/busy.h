/* Who keeps a mount busy: processes with a file of it open, mapped, or as their folder, root or program.
 *
 * Never asks the mount's daemon: links in /proc are examined without their file system (AT_STATX_DONT_SYNC).
 * Processes that the caller may not look into are missed; the caller itself is left out. Threads: one. Blocks
 * on /proc only. */
#ifndef PS_CLI_BUSY_H
#define PS_CLI_BUSY_H

#include <stddef.h>
#include <sys/types.h>

#include "daemon/mounts.h"

struct ps_holder {
	pid_t pid;
	char comm[32];
	const char *how; /* "open file", "mapped file", "working folder", "root folder", "program" */
};

#define PS_HOLDERS_MAX 16 /* more are counted, not named */

/* Fills holders[0..min(result, PS_HOLDERS_MAX)); returns how many there are. */
size_t ps_holders_find(const struct ps_mount_info *mount, struct ps_holder holders[static PS_HOLDERS_MAX]);

#endif
