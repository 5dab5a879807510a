/* An origin of a few names, for tests of datasets: lists, describes and serves what a table says, from a
 * thread of its own, and misbehaves on request. Bytes are those of the pattern origin.
 *
 * Threads: the table is changed under `lock`; the other settings are atomic and may change at any time. */
#ifndef PS_TESTS_NAMES_ORIGIN_H
#define PS_TESTS_NAMES_ORIGIN_H

#include <pthread.h>
#include <stdatomic.h>

#include "origin/origin.h"

#define TEST_NAMES 64

struct ps_names_origin {
	struct ps_origin origin; /* first */
	pthread_mutex_t lock;
	struct ps_names_entry {
		char path[64];    /* "": unused; its URL is http://names/PATH */
		uint64_t version; /* ETag and time */
		uint64_t size;
		bool gone;                      /* listed, but not there */
		bool unread;                    /* a folder, which could not be listed */
		bool unlisted;                  /* there, but no listing shows it */
		char checksum[PS_CHECKSUM_LEN]; /* that the listing tells */
		unsigned rewritten; /* other bytes and another ETag, but size and time as before */
	} entries[TEST_NAMES];

	_Atomic bool list_sizes;     /* the listing tells size and version */
	_Atomic bool list_no_etags;  /* nor does it tell ETags */
	_Atomic bool list_no_dates;  /* nor dates */
	_Atomic bool list_elsewhere; /* other URLs, of the same versions: http://names/elsewhere/PATH */
	_Atomic unsigned
	        list_many; /* so many files more, "many/0000000.tar.gz" and so on, which are not there */
	_Atomic bool gets_stall;              /* until false */
	_Atomic bool etag_changes;            /* with each get, and nothing else does */
	_Atomic bool list_stalls;             /* until it is stopped, or this is false */
	_Atomic int list_fails_at;            /* after so many names; -1: never */
	_Atomic int list_errno;               /* with this */
	_Atomic bool heads_stall;             /* until false, or abort */
	_Atomic int head_errno;               /* of every HEAD; 0: none. retryable */
	_Atomic unsigned head_retry_after_ms; /* that it asks for then */
	_Atomic int head_status;              /* the HTTP status of that; 0: none has answered */
	_Atomic int get_errno;  /* of every get; 0: none. EACCES: as a 403, else without an answer, or: */
	_Atomic int get_status; /* the HTTP status of that; 0: as above */
	_Atomic unsigned nheads, ngets, nlists;
	unsigned nserved; /* its thread's */
	void *impl;
};

struct ps_names_origin *ps_names_origin_new(void);
/* The name has this size and version from now on; size PS_SIZE_UNKNOWN removes it. */
void ps_names_origin_set(struct ps_names_origin *o, const char *path, uint64_t size, uint64_t version);

#endif
