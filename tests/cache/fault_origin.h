/* An origin that wraps another one and adds faults, for tests of the code that uses origins. Settings may
 * change at any time.
 *
 * Ownership: the wrapper owns the inner origin; close closes both. Threads: any. */
#ifndef PS_TEST_FAULT_ORIGIN_H
#define PS_TEST_FAULT_ORIGIN_H

#include <stdatomic.h>

#include "origin/origin.h"

struct ps_fault_origin {
	struct ps_origin origin; /* first: the code under test gets this */

	_Atomic unsigned delay_ms;   /* before each get reaches the inner origin */
	_Atomic unsigned fail_nth;   /* the nth get from now fails (1: the next); 0: none */
	_Atomic unsigned fail_every; /* each get whose number is a multiple of this fails; 0: none */
	_Atomic int fail_errno;      /* default EIO */
	_Atomic bool fail_retryable; /* default true */
	_Atomic bool stalled;        /* gets wait while this is true, unless they are cancelled */
	_Atomic bool other_version;  /* responses have another version; gets fail with ESTALE */

	_Atomic unsigned ngets, nheads; /* calls */
	_Atomic uint64_t nbytes;        /* requested */
	struct ps_fault_impl *impl;
};

/* Takes ownership of the inner origin. */
struct ps_fault_origin *ps_fault_origin_new(struct ps_origin *inner);

#endif
