/* Faults of calls to the C library that real machines do not produce on demand: the nth allocation, read,
 * write or sync fails, bytes are moved in small pieces, signals interrupt, the clock steps. The linker
 * redirects the calls (FAULTS_WRAP), so only those of Penstock's own code count, not those of its libraries.
 * A running process is controlled by the file that PENSTOCK_FAULTS names (tests/fs/daemon/torturer.py).
 *
 * Threads: any; the calls of all threads are counted. */
#ifndef PS_TESTS_FAULTS_H
#define PS_TESTS_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

enum faults_kind {
	FAULTS_ALLOCATION, /* malloc and its like; ENOMEM */
	FAULTS_READ,       /* pread, preadv, read, recvmsg */
	FAULTS_WRITE,      /* write, pwrite, ftruncate, fallocate, sendmsg */
	FAULTS_SYNC,       /* fdatasync, fsync, syncfs */
	FAULTS_NKINDS,
};

/* No faults from now on. The counts stay. */
void faults_end(void);

/* The nth call of a kind (1: the next) fails with errnum, once; 0: none. Counting restarts. */
void faults_fail(enum faults_kind kind, long nth, int errnum);

/* All calls of a kind fail from the nth on. */
void faults_fail_from(enum faults_kind kind, long nth, int errnum);

/* The number of calls since counting restarted; whether one has failed. */
long faults_count(enum faults_kind kind);
bool faults_hit(enum faults_kind kind);

/* Reads and writes move some of their bytes only, and every third one is interrupted (EINTR) first. */
void faults_trickle(bool on);

/* The wall clock is off by this many seconds from now on. */
void faults_step_clock(int64_t seconds);

/* For a loop over the calls: the number of the call to fail after the nth. With PENSTOCK_TEST_LONG=1 every
 * call has its turn, else each of the first 16 and then ever fewer. */
long faults_next(long nth);

#endif
