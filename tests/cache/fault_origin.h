/* An origin around another one, with faults: for tests of what stands above. Everything can be changed at run
 * time.
 *
 * Ownership: it owns the inner origin; close closes both. Threads: any. */
#ifndef PS_TEST_FAULT_ORIGIN_H
#define PS_TEST_FAULT_ORIGIN_H

#include <stdatomic.h>

#include "origin/origin.h"

struct ps_fault_origin {
	struct ps_origin origin; /* first: what is handed on */

	_Atomic unsigned delay_ms;   /* before each get reaches the inner origin */
	_Atomic unsigned fail_nth;   /* the nth get from now fails (1: the next); counts down to 0: none */
	_Atomic unsigned fail_every; /* every so many; 0: none */
	_Atomic int fail_errno;      /* EIO */
	_Atomic bool fail_retryable; /* true */
	_Atomic bool stalled;        /* gets wait here until this is false, or they are cancelled */
	_Atomic bool other_version;  /* what responses say is another version; gets fail with ESTALE */

	_Atomic unsigned ngets, nheads; /* that came */
	_Atomic uint64_t nbytes;        /* that were asked for */
	struct ps_fault_impl *impl;
};

/* Takes the inner origin over. */
struct ps_fault_origin *ps_fault_origin_new(struct ps_origin *inner);

#endif
