/* Which data files there are, and how much of the disk each takes: looked up by a thread of its own while the
 * index is opened, for of a hundred thousand files a start would wait for that as long again.
 *
 * Ownership: start makes, free ends. Threads: the one that starts. Blocks: each and free, on the disk. */
#ifndef PS_STORE_DATAFILE_SCAN_H
#define PS_STORE_DATAFILE_SCAN_H

#include <stdint.h>

#include "base/cleanup.h"
#include "base/hash.h"

struct ps_scan;

/* data_fd stays the caller's. NULL: out of memory. */
struct ps_scan *ps_scan_start(int data_fd);
/* Each file, once all are known. 0, -errno of the scan, or what fn returned, which ends it. */
int ps_scan_each(struct ps_scan *scan,
        int (*fn)(void *arg, const struct ps_id *id, uint64_t allocated_nbytes), void *arg) PS_MUST_USE;
void ps_scan_free(struct ps_scan *scan);

#endif
