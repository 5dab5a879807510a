/* A served mount: from a mounted descriptor through libfuse's loop to the end.
 *
 * ps_session_run() serves until the mount is gone (umount, or a connection that was aborted) or a signal asks
 * for the end: SIGTERM and SIGINT detach the mount and end the session, open files or not; SIGHUP opens the
 * log anew. Threads: one session a process; run is called from the main thread, which gets the signals.
 * Errors: -errno and a text. */
#ifndef PS_SESSION_H
#define PS_SESSION_H

#include "fs.h"

struct ps_session_events {
	/* The mount answers. Called once, from a thread of the session. */
	void (*ready)(void *arg);
	void *arg;
};

/* Installs the signal handlers: from here on a signal ends ps_session_run() as soon as it runs. Call once. */
int ps_session_signals(struct ps_error *err) PS_MUST_USE;

/* Mounts fs on fs->mountpoint and serves it. When it returns the mount is gone and no request is unanswered
 * but those that wait for ps_cache_close(); fs->session is still there, for their replies, until
 * ps_session_free(). */
int ps_session_run(
        struct ps_fs *fs, const struct ps_session_events *events, struct ps_error *err) PS_MUST_USE;
void ps_session_free(struct ps_fs *fs);

#endif
