/* An origin made of arithmetic, for tests of the fetch engine: byte i of every object is ps_pattern_byte(i).
 * It answers from a thread of its own and misbehaves on request.
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
	_Atomic uint64_t fresh_nbytes; /* of these, over a new connection: by hedged requests and retries */
	_Atomic int fail_next;         /* so many gets fail ... */
	_Atomic int fail_errno;        /* ... with this */
	_Atomic bool fail_retryable;
	_Atomic size_t fail_after; /* ... after so many bytes */
	_Atomic size_t
	        stall_after; /* bytes of a get after which it waits for release or cancel; SIZE_MAX: never */
	_Atomic(const char *) version; /* what all answers say that theirs is; NULL: what was expected */
	_Atomic int other_next; /* so many gets are answered with another version, its ETag and its bytes */
	_Atomic int stall_next; /* so many gets stall before their first byte until they are cancelled */
	_Atomic bool released;
	_Atomic(const char *) stall_url;      /* only gets of this URL stall; NULL: all */
	_Atomic(const char *) stall_prefix;   /* the same of URLs that begin so */
	_Atomic unsigned nactive, max_active; /* gets at once */
	_Atomic uint64_t max_asked;           /* the longest range asked for */
	void *impl;
};

static inline uint8_t ps_pattern_byte(uint64_t offset)
{
	uint64_t x = offset / 8 * UINT64_C(0x9e3779b97f4a7c15);

	return (uint8_t)(x >> (8 * (offset % 8)));
}

struct ps_pattern_origin *ps_pattern_origin_new(void);

#endif
