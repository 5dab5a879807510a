/* Transfers: a few threads, each driving many requests through its own curl_multi. What a
 * request is (URL, headers, what becomes of the body) is its owner's business: see struct ps_transfer_ops.
 *
 * Ownership: a transfer belongs to its submitter, who keeps it alive until done().
 * Threads: submit and cancel from any thread. begin, end, done and curl's callbacks of one transfer come from
 * one thread of the engine, with no lock held. A CURL handle is touched by that thread alone. Locks: one,
 * over the queues; nobody is called with it held. Blocking: submit and cancel never (the first submits start
 * threads); free waits until every transfer has ended, which it brings about by cancelling them. */
#ifndef PS_HTTP_TRANSFER_H
#define PS_HTTP_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/list.h"

#define PS_TRANSFER_MAX_THREADS 4 /* also no more than there are cores */

struct ps_transfer;
struct ps_transfers;

struct ps_transfer_ops {
	/* Sets the request up on a CURL handle that is fresh but for NOSIGNAL, PRIVATE and the like. -errno:
	 * end() follows with it. */
	int (*begin)(struct ps_transfer *t, void *curl);
	/* After ps_transfer_later(). NULL: never asked for. */
	void (*flush)(struct ps_transfer *t);
	/* Curl is done with this attempt. rc: a CURLcode (>= 0), the -errno of begin, -ECANCELED after
	 * cancel, -ETIMEDOUT after a stall, -ENOMEM (curl is NULL, begin was not called). True: begin again
	 * (a redirect); not after -ECANCELED. False: done() follows. The response's facts are to be read from
	 * curl here. */
	bool (*end)(struct ps_transfer *t, void *curl, int rc);
	/* The transfer is its owner's again: it may be freed or submitted anew. */
	void (*done)(struct ps_transfer *t);
};

struct ps_transfer {
	const struct ps_transfer_ops *ops;
	uint64_t stall_ns; /* an attempt untouched for so long ends with -ETIMEDOUT; 0: never */

	/* The engine's. */
	struct ps_list link, later;
	struct ps_transfer_thread *thread;
	void *curl;
	uint64_t touched_ns;
	bool busy, cancelled;
};

/* A transfer and what an origin keeps beside it: its own part of a get and a head (origin.h), so that handing one over cannot
 * fail. */
struct ps_transfer_work {
	struct ps_transfer transfer;
	void *owner;
	const void *kind;
	void *request;
	uint64_t submitted_ns;
	int rc; /* of one that ended before it began */
	int64_t key_expires_s; /* of the credential that the answer was given to; 0: none, or it does not expire */
	unsigned turn; /* what an origin counts for itself, from one submission to the next */
	bool refused;
};

/* Starts the first thread. name is at most 11 characters, shown by ps and top. max: so many transfers at once, the
 * others wait in the order of their submission; 0: no limit. */
int ps_transfers_new(
        const char *name, unsigned max, struct ps_transfers **ret, struct ps_error *err) PS_MUST_USE;
void ps_transfers_free(struct ps_transfers *all);

void ps_transfer_submit(struct ps_transfers *all, struct ps_transfer *t);

/* The end comes soon, with -ECANCELED unless it was on its way. No effect on one that is not submitted
 * (zeroed, or done); the memory must be there until this returns. */
void ps_transfer_cancel(struct ps_transfers *all, struct ps_transfer *t);

/* As cancel, of every transfer that there is and will be. */
void ps_transfers_abort(struct ps_transfers *all);

/* Something came: the stall clock starts anew. From curl's callbacks only. */
void ps_transfer_touch(struct ps_transfer *t);

/* flush() comes as soon as the thread has nothing more at hand, or has gone round PS_TRANSFER_ROUNDS times: what
 * comes in small pieces is told of in larger ones. Not if end() comes first. From curl's callbacks only. */
#define PS_TRANSFER_ROUNDS 8
void ps_transfer_later(struct ps_transfer *t);

#endif
