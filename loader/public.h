/* Shared by the files that implement penstock.h; and functions that the programs use in addition to those of
 * penstock.h. */
#ifndef PS_PUBLIC_H
#define PS_PUBLIC_H

#include <errno.h>
#include <unistd.h>

#include "base/error.h"
#include "penstock.h"

/* Copies an error to the caller's struct, with '?' for control characters, which names in shards may have,
 * and keeps what penstock_error_detail() returns. Returns r. */
int ps_give_error(struct penstock_error *error, int r, const struct ps_error *err);

/* -ECHILD: the loader was opened by a parent of this process, before a fork. */
static inline int ps_opener_check(pid_t opener, struct ps_error *err)
{
	if (opener == getpid())
		return 0;
	return ps_error_set(err, ECHILD,
	        "this loader belongs to process %d, which forked; open a loader in this process",
	        (int)opener);
}

/* Computes bottleneck and advice again, for stats whose times were replaced (by those of one epoch, for
 * example). Threads: any. */
void ps_stats_judge(struct penstock_stats *stats);

/* Bytes that were read from shards for an epoch. Known for the last four epochs; else 0. Threads: any. */
uint64_t ps_loader_epoch_nbytes(struct penstock_loader *loader, uint64_t epoch);

#endif
