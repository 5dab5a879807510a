/* What a thread is at, for profilers: NVTX ranges of the domain "penstock", which Nsight Systems shows on the
 * thread's row.
 *
 *   read      a reader fills a block of a lane, or seeks one
 *   decode    a worker decodes some rows of a batch
 *   finish    a worker makes a batch of its rows
 *   send        and gives its copy to the device
 *   next      the consumer asks for a batch
 *   wait        and there is none yet
 *   release   the consumer gives a batch back
 *
 * A range costs a call and a test where no profiler is there, and nothing where the library was built without
 * NVTX's headers. A tool comes in as NVTX says (NVTX_INJECTION64_PATH).
 *
 * Threads: any.   Blocks: the first range of the process, on the tool's own start. */
#ifndef PS_BASE_RANGE_H
#define PS_BASE_RANGE_H

#include "base/cleanup.h"

#ifdef HAVE_NVTX
void ps_range_begin(const char *name);
void ps_range_end(void); /* of the one that the thread began last */
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

/* Until the end of the enclosing block. */
#define PS_RANGE_SCOPE(name)                                                                            \
	const char *PS_CONCAT(ps_range_, __LINE__) __attribute__((cleanup(ps_cleanup_range), unused)) = \
	        (ps_range_begin(name), (name))

#endif
