/* An event loop around one curl_multi: epoll, so that only the sockets with news cost anything.
 *
 * Ownership: one thread's. Threads: all from that thread, but ps_loop_wake(), from any. Locks: none.
 * Blocks: ps_loop_run() only. Errors: -errno. */
#ifndef PS_HTTP_TRANSFER_LOOP_H
#define PS_HTTP_TRANSFER_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include <curl/curl.h>

#include "base/error.h"

struct ps_loop {
	CURLM *multi;
	int epoll, event;
	uint64_t timer_ns; /* when curl wants to be called; UINT64_MAX: not */
};

int ps_loop_init(struct ps_loop *loop) PS_MUST_USE;
/* No handle is in the multi any more. */
void ps_loop_fini(struct ps_loop *loop);
/* Lets curl do what there is to do, after waiting for it until deadline_ns (monotonic; 0: not at all) or a wake.
 * *ret_idle: there was nothing. -EIO: curl failed, and says so in the log. */
int ps_loop_run(struct ps_loop *loop, uint64_t deadline_ns, bool *ret_idle) PS_MUST_USE;
/* Ends the wait under way, or the next. */
void ps_loop_wake(struct ps_loop *loop);

#endif
