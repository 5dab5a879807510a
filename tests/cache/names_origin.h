/* An origin of a few names, for tests of datasets. It lists the names of a table, answers HEADs and gets for
 * them from a thread of its own, and fails or stalls on request. The bytes are those of the pattern origin,
 * each increased by the version's number.
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
		char path[64];    /* "": unused; the URL is http://names/PATH */
		uint64_t version; /* gives the ETag and the time */
		uint64_t size;
		bool gone;                      /* listed, but requests fail as with a 404 */
		bool unread;                    /* listed as a folder that could not be listed */
		bool unlisted;                  /* exists, but is not listed */
		char checksum[PS_CHECKSUM_LEN]; /* in listings; "": none */
		unsigned rewritten; /* other bytes and another ETag, but size and time as before */
	} entries[TEST_NAMES];

	_Atomic bool list_sizes;     /* listings have sizes and versions */
	_Atomic bool list_no_etags;  /* listings have no ETags */
	_Atomic bool list_no_dates;  /* listings have no dates */
	_Atomic bool list_elsewhere; /* listings have other URLs: http://names/elsewhere/PATH */
	/* listings have this many more files, "many/0000000.tar.gz" and so on; requests for them fail as
	 * with a 404 */
	_Atomic unsigned list_many;
	_Atomic bool gets_stall;              /* until false, or abort */
	_Atomic bool etag_changes;            /* with each get; size and time stay */
	_Atomic bool list_stalls;             /* until false, or until the listing is stopped */
	_Atomic int list_fails_at;            /* after this many names; -1: never */
	_Atomic int list_errno;               /* the error then */
	_Atomic bool heads_stall;             /* until false, or abort */
	_Atomic int head_errno;               /* of every HEAD, retryable; 0: none */
	_Atomic unsigned head_retry_after_ms; /* of such an error */
	_Atomic int head_status;              /* of such an error; 0: there was no answer */
	_Atomic int get_errno;                /* of every get; 0: none */
	_Atomic int get_status;               /* of such an error; 0: 403 for EACCES, else no answer */
	_Atomic unsigned nheads, ngets, nlists;
	unsigned nserved; /* for the origin's thread only */
	void *impl;
};

struct ps_names_origin *ps_names_origin_new(void);
/* Sets the size and version of a name; size PS_SIZE_UNKNOWN removes the name. */
void ps_names_origin_set(struct ps_names_origin *o, const char *path, uint64_t size, uint64_t version);

#endif
