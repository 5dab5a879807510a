/* Whether the thread that made a FUSE request is about to end. The kernel reports every signal alike, so this is
 * read from /proc.
 *
 * Threads: any. Blocks: neither on the thread's memory nor on a disk. */
#ifndef PS_FUSE_REQUESTER_H
#define PS_FUSE_REQUESTER_H

#include <sys/types.h>

enum ps_requester {
	PS_REQUESTER_LIVES, /* no signal is pending, or one that is handled, ignored, blocked, or stops it */
	PS_REQUESTER_ENDS,  /* a signal is pending that ends the process; exit() and execve() send one, too */
	/* its PID is 0 (it is in a PID namespace that this process does not see), the thread is gone, /proc
	 * is hidden (hidepid=), or it is the /proc of another PID namespace */
	PS_REQUESTER_UNKNOWN,
};

enum ps_requester ps_requester_of(pid_t tid);

#endif
