/* What a thread does, for profilers: NVTX ranges in the domain "penstock", which Nsight Systems shows in
 * the thread's row. A range that is indented here is within the one above it.
 *
 *   read      a reader fills a block of a lane, or seeks in a lane
 *   decode    a worker decodes some rows of a batch
 *   finish    a worker makes a batch from its rows
 *   send        a worker starts the batch's copy to the device
 *   next      the consumer asks for a batch
 *   wait        the consumer waits for it
 *   release   the consumer gives a batch back
 *
 * Without a profiler a range costs a call and a test; in a library built without NVTX's headers, nothing. A
 * profiler attaches by NVTX's own means (NVTX_INJECTION64_PATH).
 *
 * Threads: any. Blocks: the first range of the process, on the start of the profiler. */
#ifndef PS_BASE_RANGE_H
#define PS_BASE_RANGE_H

#include "base/cleanup.h"

#ifdef HAVE_NVTX
void ps_range_begin(const char *name);
void ps_range_end(void); /* ends the range that the thread began last */
#else
static inline void ps_range_begin(const char *name)
{
	(void)name;
}

static inline void ps_range_end(void)
{
}
#endif

static inline void ps_cleanup_range(const char **name)
{
	(void)name;
	ps_range_end();
}

/* A range until the end of the enclosing block. */
#define PS_RANGE_SCOPE(name)                                                                            \
	const char *PS_CONCAT(ps_range_, __LINE__) __attribute__((cleanup(ps_cleanup_range), unused)) = \
	        (ps_range_begin(name), (name))

#endif
