/* An origin whose bytes are computed, for tests of the fetch engine: byte i of every object is
 * ps_pattern_byte(i). The origin answers from a thread of its own and fails or stalls on request.
 *
 * Threads: settings are atomic and may change at any time. */
#ifndef PS_TESTS_PATTERN_ORIGIN_H
#define PS_TESTS_PATTERN_ORIGIN_H

#include <stdatomic.h>

#include "origin/origin.h"

struct ps_pattern_origin {
	struct ps_origin origin; /* first */
	_Atomic unsigned ngets;
	_Atomic uint64_t nbytes;       /* requested */
	_Atomic uint64_t fresh_nbytes; /* of these, over new connections: by hedged requests and retries */
	_Atomic int fail_next;         /* this many gets fail ... */
	_Atomic int fail_errno;        /* ... with this */
	_Atomic bool fail_retryable;
	_Atomic size_t fail_after; /* ... after this many bytes */
	/* a get stalls after this many bytes until `released` or a cancel; SIZE_MAX: never */
	_Atomic size_t stall_after;
	_Atomic(const char *) version; /* the ETag of all answers; NULL: the expected one */
	_Atomic int other_next;        /* this many gets are answered with another version's ETag and bytes */
	_Atomic int stall_next; /* this many gets stall before their first byte until they are cancelled */
	_Atomic bool released;
	_Atomic(const char *) stall_url;      /* stall_after holds for this URL only; NULL: for all */
	_Atomic(const char *) stall_prefix;   /* stall_after holds for such URLs only; NULL: for all */
	_Atomic unsigned nactive, max_active; /* gets in flight, and their maximum */
	_Atomic uint64_t max_asked;           /* the longest range requested */
	void *impl;
};

static inline uint8_t ps_pattern_byte(uint64_t offset)
{
	uint64_t x = offset / 8 * UINT64_C(0x9e3779b97f4a7c15);

	return (uint8_t)(x >> (8 * (offset % 8)));
}

struct ps_pattern_origin *ps_pattern_origin_new(void);

#endif
