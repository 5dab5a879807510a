/* The FUSE session of one mount: from a mounted descriptor through libfuse's loop to the end.
 *
 *   start()     a thread runs the loop; the mount can be asked from now on
 *   answers()   somebody has seen it answer: what needs an answering mount is done
 *   await()     sleeps until the loop has ended: unmounted, aborted, or kicked
 *   finish()    no request is answered late, no file is open any more
 *   free()      after the last answer
 *
 * Threads: start, await, finish and free from the mount's own thread; answers from any, once; kick from any while
 * the caller knows that finish() has not begun. Blocks: start and kick not, finish for a few seconds at most.
 * Errors: -errno and a text. */
#ifndef PS_FUSE_SESSION_H
#define PS_FUSE_SESSION_H

#include <semaphore.h>

#include "fuse/fs.h"

struct ps_session {
	struct ps_fs *fs;
	dev_t dev; /* of the mount; 0: unknown */
	pthread_t thread;
	bool started;
	_Atomic bool ended; /* the loop has returned */
	int rc;             /* its result, once it has ended */
	sem_t end;
};

/* Before the first start: what the process's signals have to be for sessions. */
void ps_session_setup(void);

/* fd: what ps_mountfd_mount() gave; taken over, also on failure. */
int ps_session_start(struct ps_session *session, struct ps_fs *fs, int fd, dev_t dev, struct ps_error *err) PS_MUST_USE;
void ps_session_answers(struct ps_session *session);
/* Tells the loop to end, open files or not. It may come just before libfuse begins to wait, or while the kernel is notified,
 * which needs the loop: repeat it until session->ended. */
void ps_session_kick(struct ps_session *session);
void ps_session_await(struct ps_session *session);
/* The loop's result. -EDEADLK: reads do not end, and files cannot be closed under them; nothing may be freed. */
int ps_session_finish(struct ps_session *session) PS_MUST_USE;
void ps_session_free(struct ps_session *session);

#endif
