#include "fuse/access_pattern.h"

#include "base/cleanup.h"

/* Fewer reads may be those of a header, and show no pattern. */
#define ENOUGH_READS 8
/* The kernel's first read-ahead: 4 times the read for reads up to 32 KiB; this much or more for larger
 * reads. */
#define FIRST_LARGE_NBYTES (256u * 1024)

#define KIND_BITS 2

static _Atomic uint64_t *slot_of(const struct ps_access_pattern *pattern, pid_t tid)
{
	return (_Atomic uint64_t *)&pattern->threads[(uint32_t)tid * UINT32_C(2654435761) >> 24];
}
_Static_assert(PS_ACCESS_PATTERN_SLOTS == 256, "the hash has 8 bits");

/* The kind of the thread's earlier files; -1: the thread is unknown. */
static int known(const struct ps_access_pattern *pattern, pid_t tid)
{
	uint64_t seen = tid > 0 ? atomic_load_explicit(slot_of(pattern, tid), memory_order_relaxed) : 0;

	return seen >> KIND_BITS == (uint64_t)tid && seen ? (int)(seen & ((1 << KIND_BITS) - 1)) : -1;
}

enum ps_access_pattern_kind ps_access_pattern_guess(const struct ps_access_pattern *pattern, pid_t tid)
{
	int kind = known(pattern, tid);

	return kind >= 0 ? (enum ps_access_pattern_kind)kind
	                 : (enum ps_access_pattern_kind)atomic_load_explicit(
	                           &pattern->latest, memory_order_relaxed);
}

bool ps_access_pattern_reads_whole(const struct ps_access_pattern *pattern, pid_t tid)
{
	return known(pattern, tid) == PS_READS_WHOLE;
}

static void learn(struct ps_access_pattern *pattern, pid_t tid, enum ps_access_pattern_kind kind)
{
	if (tid > 0)
		atomic_store_explicit(slot_of(pattern, tid), (uint64_t)tid << KIND_BITS | (uint64_t)kind,
		        memory_order_relaxed);
	atomic_store_explicit(&pattern->latest, (int)kind, memory_order_relaxed);
}

void ps_access_pattern_direct_read(
        struct ps_access_pattern *pattern, struct ps_handle_reads *seen, size_t nbytes, bool mapped)
{
	unsigned n = atomic_fetch_add_explicit(&seen->nreads, 1, memory_order_relaxed) + 1, nsmall, nmapped,
	         nwhole;

	if (mapped)
		atomic_fetch_add_explicit(&seen->nmapped, 1, memory_order_relaxed);
	else if (nbytes < PS_ACCESS_PATTERN_SMALL_NBYTES)
		atomic_fetch_add_explicit(&seen->nsmall, 1, memory_order_relaxed);
	else if (nbytes >= PS_ACCESS_PATTERN_WHOLE_NBYTES)
		atomic_fetch_add_explicit(&seen->nwhole, 1, memory_order_relaxed);
	if (n < ENOUGH_READS || (n & (n - 1)) != 0)
		return;
	nmapped = atomic_load_explicit(&seen->nmapped, memory_order_relaxed);
	nsmall = atomic_load_explicit(&seen->nsmall, memory_order_relaxed);
	nwhole = atomic_load_explicit(&seen->nwhole, memory_order_relaxed);
	learn(pattern, seen->tid,
	        nmapped > n / 2  ? PS_READS_MAPPED
	        : nsmall > n / 2 ? PS_READS_SMALL
	        : nwhole > n / 2 ? PS_READS_WHOLE
	                         : PS_READS_LARGE);
}

void ps_access_pattern_cached_read(struct ps_access_pattern *pattern, struct ps_handle_reads *seen,
        size_t nbytes, size_t read_ahead_nbytes)
{
	if (atomic_fetch_add_explicit(&seen->nreads, 1, memory_order_relaxed) != 0)
		return;
	if (nbytes < PS_MIN((size_t)FIRST_LARGE_NBYTES, read_ahead_nbytes)) {
		learn(pattern, seen->tid, PS_READS_SMALL);
		return;
	}
	/* A large read, of unknown size, or a mapping, whose first read-ahead is large, too. Direct reads of
	 * an earlier file have shown which of the two the thread does. If there were none, whole reads are
	 * assumed; the next file that is opened direct shows how the thread reads. */
	switch (known(pattern, seen->tid)) {
	case PS_READS_MAPPED:
		break;
	case PS_READS_SMALL:
	case PS_READS_LARGE:
		learn(pattern, seen->tid, PS_READS_LARGE);
		break;
	default:
		learn(pattern, seen->tid, PS_READS_WHOLE);
	}
}
