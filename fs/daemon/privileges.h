/* What a daemon lets go of before it serves, and what is kept out of a core file.
 *
 * Threads: before any is made. Blocks: never. */
#ifndef PS_DAEMON_PRIVILEGES_H
#define PS_DAEMON_PRIVILEGES_H

#include <stddef.h>
#include <sys/types.h>

/* Root's daemon keeps the capabilities to mount, to unmount and to pass files through, and those to use a cache and a
 * source that belong to others; the rest goes, for what it starts, too. Nothing for other users. */
void ps_privileges_drop(void);

/* A core file of this process is to hold no memory of it, and so no credentials. Inherited by forks;
 * /proc/PID/coredump_filter takes it back. */
void ps_privileges_no_core(void);

/* Leaving the control group of whoever started the daemon: when a job, a login session or a unit of systemd ends, all
 * processes of its group are killed, and mounts of others would go with them.
 *
 * Root's daemon goes to the group /penstock of the cgroup2 hierarchy; a user's to a group beside the others of the
 * user's own service manager, where it was started below that. Elsewhere, and in a container, it stays: the kernel
 * does not let it go. The caller's log says so.
 *
 * Threads: any; it moves all of the process. Blocks: on the kernel. */
void ps_cgroup_leave(void);

/* Where a process in `own` (as "/user.slice/...") goes: "" if it should stay. For tests. */
void ps_cgroup_target(const char *own, uid_t uid, char *ret, size_t room);

#endif
