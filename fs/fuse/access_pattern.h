/* How those who open files read them: in large pieces, in small ones, or by mapping.
 *
 * An incomplete file opened for direct I/O costs a reader of 1 MiB pieces half the processor time of one
 * opened through the page cache; but each of its reads is a round trip, and a reader of 10 KiB pieces is
 * three times slower than with the kernel's read-ahead; and each new mapping of a direct file empties its
 * page cache. Only OPEN can decide, before the first read: so what was seen of a thread's earlier files
 * decides, or of the mount's latest reader if that thread is new. The first file of all is taken for one that
 * is read in large pieces, as cat, cp, and Python's open() do: they ask for st_blksize.
 *
 * Ownership: part of a ps_fs; one ps_handle_reads a handle. Threads: any. Locks: none; a lost update costs a
 * guess. */
#ifndef PS_FUSE_ACCESS_PATTERN_H
#define PS_FUSE_ACCESS_PATTERN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum ps_access_pattern_kind { PS_READS_LARGE, PS_READS_SMALL, PS_READS_MAPPED };

/* Reads of fewer bytes are small ones. */
#define PS_ACCESS_PATTERN_SMALL_NBYTES (64u * 1024)

#define PS_ACCESS_PATTERN_SLOTS 256
struct ps_access_pattern {
	_Atomic uint64_t threads[PS_ACCESS_PATTERN_SLOTS]; /* id above, kind below, by hash; 0: free */
	_Atomic int latest;                                /* kind */
};

/* What is known of one handle. */
struct ps_handle_reads {
	pid_t tid; /* who opened; 0: unknown */
	_Atomic unsigned nreads, nsmall, nmapped;
};

/* How the thread's next file will probably be read. */
enum ps_access_pattern_kind ps_access_pattern_guess(const struct ps_access_pattern *pattern, pid_t tid);

/* A direct handle's read(2), or with `mapped` a page of it that the kernel wants for a mapping. */
void ps_access_pattern_direct_read(
        struct ps_access_pattern *pattern, struct ps_handle_reads *seen, size_t nbytes, bool mapped);
/* The kernel's READ for a cached handle, of whose read(2) calls the first read-ahead alone shows the size. */
void ps_access_pattern_cached_read(struct ps_access_pattern *pattern, struct ps_handle_reads *seen,
        size_t nbytes, size_t read_ahead_nbytes);

#endif
