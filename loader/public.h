/* What the files of the public face share, and what the programs use beside penstock.h. */
#ifndef PS_PUBLIC_H
#define PS_PUBLIC_H

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "penstock.h"

/* Hands an error to the caller, control characters of outside names made visible. Returns r. */
static inline int ps_give_error(struct penstock_error *error, int r, const struct ps_load_error *err)
{
	if (!error)
		return r;
	error->code = -r;
	snprintf(error->text, sizeof(error->text), "%s", err->text[0] ? err->text : strerror(-r));
	for (char *p = error->text; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			*p = '?';
	return r;
}

/* -ECHILD: the loader was opened by another process than this one, which is its child. */
static inline int ps_opener_check(pid_t opener, struct ps_load_error *err)
{
	if (opener == getpid())
		return 0;
	return ps_load_error_set(err, ECHILD,
	        "this loader belongs to process %d, which forked; open a loader in this process",
	        (int)opener);
}

/* Bottleneck and advice again, of stats whose times were changed (differences, as of one epoch). Any
 * thread. */
void ps_stats_judge(struct penstock_stats *stats);

/* Bytes that were read of the epoch's shards; of the last epochs, else 0. Any thread. */
uint64_t ps_loader_epoch_nbytes(struct penstock_loader *loader, uint64_t epoch);

#endif
