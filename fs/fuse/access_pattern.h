/* How threads read the files that they open: in whole pieces (512 KiB and more), large ones, small ones (below
 * 64 KiB), or by mapping.
 *
 * An incomplete file is opened for direct I/O or through the page cache. With direct I/O a reader of 1 MiB
 * pieces takes half the processor time. But each direct read is a round trip, so a reader of 10 KiB pieces
 * is three times slower than with the kernel's read-ahead; and each new mapping of a direct file empties
 * its page cache. The choice is made at OPEN, before the first read. It follows from the thread's earlier
 * files, or from the mount's latest reader if the thread is new. The first file of a mount is expected to
 * be read in large pieces: cat, cp and Python's open() read st_blksize at a time.
 *
 * A complete file that is not passed through is opened direct only for a thread that has read an earlier file
 * in whole pieces: such reads are as fast as those of pages that the kernel keeps, and take no second copy in
 * memory (tests/bench/RESULTS.md). All others may need the pages again.
 *
 * Ownership: a ps_access_pattern is part of a ps_fs; each handle has its own ps_handle_reads. Threads: any.
 * Locks: none; a lost update only makes the next guess worse. */
#ifndef PS_FUSE_ACCESS_PATTERN_H
#define PS_FUSE_ACCESS_PATTERN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum ps_access_pattern_kind { PS_READS_LARGE, PS_READS_SMALL, PS_READS_MAPPED, PS_READS_WHOLE };

/* A read of fewer bytes is small. */
#define PS_ACCESS_PATTERN_SMALL_NBYTES (64u * 1024)
/* A read of as many bytes, or more, is whole. */
#define PS_ACCESS_PATTERN_WHOLE_NBYTES (512u * 1024)

#define PS_ACCESS_PATTERN_SLOTS 256
struct ps_access_pattern {
	/* thread id in the high bits, kind in the low bits; indexed by a hash of the id; 0: free */
	_Atomic uint64_t threads[PS_ACCESS_PATTERN_SLOTS];
	_Atomic int latest; /* kind */
};

/* How many reads one handle has had, by kind. */
struct ps_handle_reads {
	pid_t tid; /* the thread that opened it; 0: unknown */
	_Atomic unsigned nreads, nsmall, nmapped, nwhole;
};

/* How the thread will probably read its next file. */
enum ps_access_pattern_kind ps_access_pattern_guess(const struct ps_access_pattern *pattern, pid_t tid);
/* True if this thread itself has read an earlier file in whole pieces, as far as is known. */
bool ps_access_pattern_reads_whole(const struct ps_access_pattern *pattern, pid_t tid);

/* Records a READ of a handle that is open for direct I/O: a read(2), or with `mapped` the kernel's read of
 * pages for a mapping of the file. */
void ps_access_pattern_direct_read(
        struct ps_access_pattern *pattern, struct ps_handle_reads *seen, size_t nbytes, bool mapped);
/* Records a READ of a handle that reads through the page cache. Only the handle's first READ is used: the
 * kernel chooses the size of the first read-ahead by the size of the read(2), which the daemon cannot
 * see. */
void ps_access_pattern_cached_read(struct ps_access_pattern *pattern, struct ps_handle_reads *seen,
        size_t nbytes, size_t read_ahead_nbytes);

#endif
