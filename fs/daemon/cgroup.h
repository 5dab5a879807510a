/* Leaving the control group of whoever started the daemon: when a job, a login session or a unit of systemd ends, all
 * processes of its group are killed, and mounts of others would go with them.
 *
 * Root's daemon goes to the group /penstock of the cgroup2 hierarchy; a user's to a group beside the others of the
 * user's own service manager, where it was started below that. Elsewhere, and in a container, it stays: the kernel
 * does not let it go. The caller's log says so.
 *
 * Threads: any; it moves all of the process. Blocks: on the kernel. */
#ifndef PS_DAEMON_CGROUP_H
#define PS_DAEMON_CGROUP_H

#include <stddef.h>
#include <sys/types.h>

void ps_cgroup_leave(void);

/* Where a process in `own` (as "/user.slice/...") goes: "" if it should stay. For tests. */
void ps_cgroup_target(const char *own, uid_t uid, char *ret, size_t room);

#endif
