/* Going into the background, with a parent that waits for the outcome.
 *
 *   ps_launch_start()      forks; the parent stays inside until the child is ready or gone, and exits
 *   ps_launch_abandoned()  the parent was ended by its user: what it asked for is not wanted any more
 *   ps_launch_ready()      the parent exits 0; the child lets go of terminal and folder
 *   ps_launch_failed()     the parent prints the one line and exits 1; so does the child, or goes on for others
 *
 * Descriptors that whoever started us has passed on (a pipe's end, a lock) stay open until then, as a source may be
 * named by one, and not longer: a daemon would hold them for days.
 *
 * The child leaves session and process group at once: it may come to serve others than who started it, whom a ^C
 * for that one does not concern. In the foreground (background false) there is no parent; ready and failed then
 * tell systemd and stderr.
 *
 * Threads: start before any is made; ready or failed from any, once. */
#ifndef PS_DAEMON_DAEMONIZE_H
#define PS_DAEMON_DAEMONIZE_H

#include <stdbool.h>

#include "base/error.h"

#define PS_LAUNCH_INHERITED 256 /* more stay open */

struct ps_launch {
	bool background;
	int pipe; /* to the parent, or -1 */
	int inherited[PS_LAUNCH_INHERITED];
	unsigned ninherited;
};

int ps_launch_start(
        struct ps_launch *launch, const char *command, bool background, struct ps_error *err) PS_MUST_USE;
/* From now on the child is ended together with its parent (by SIGTERM), or not any more. One thread only. */
void ps_launch_tie(const struct ps_launch *launch, bool tied);
bool ps_launch_abandoned(const struct ps_launch *launch);
void ps_launch_ready(struct ps_launch *launch);
/* Returns the exit code for the caller. */
int ps_launch_failed(struct ps_launch *launch, const char *command, const char *text);

#endif
