/* What a daemon lets go of before it serves, and what is kept out of a core file.
 *
 * Threads: before any is made. Blocks: never. */
#ifndef PS_DAEMON_PRIVILEGES_H
#define PS_DAEMON_PRIVILEGES_H

/* Root's daemon keeps the capabilities to mount, to unmount and to pass files through, and those to use a cache and a
 * source that belong to others; the rest goes, for what it starts, too. Nothing for other users. */
void ps_privileges_drop(void);

/* A core file of this process is to hold no memory of it, and so no credentials. Inherited by forks;
 * /proc/PID/coredump_filter takes it back. */
void ps_privileges_no_core(void);

#endif
