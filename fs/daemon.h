/* Going into the background, with a parent that waits for the outcome.
 *
 *   ps_daemon_start()    forks; the parent stays inside until the child is ready or gone, and exits
 *   ps_daemon_commit()   the slow part is over; until here the child dies with the parent
 *   ps_daemon_ready()    the parent exits 0; the child leaves its terminal and session
 *   ps_daemon_failed()   the parent prints the one line and exits 1
 *
 * In the foreground (background false) there is no parent; ready and failed then tell systemd and stderr.
 * Threads: start before any is made; ready from any, once; failed instead of ready. */
#ifndef PS_DAEMON_H
#define PS_DAEMON_H

#include <stdbool.h>

#include "base/error.h"

struct ps_daemon {
	bool background;
	int pipe; /* to the parent, or -1 */
};

int ps_daemon_start(
        struct ps_daemon *daemon, const char *command, bool background, struct ps_error *err) PS_MUST_USE;
/* Call from the thread that called start (the kernel remembers the wish to die with the parent by thread).
 * False: the parent is gone, do not go on. */
bool ps_daemon_commit(struct ps_daemon *daemon) PS_MUST_USE;
void ps_daemon_ready(struct ps_daemon *daemon);
/* Returns the exit code for the caller. */
int ps_daemon_failed(struct ps_daemon *daemon, const char *command, const char *text);

#endif
