/* Another program's folder that shares the store's budget: the store's limit is lowered by the bytes that the
 * folder takes. A thread of its own measures it. */
#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"
#include "base/thread.h"
#include "store/store_private.h"

#define EVERY_NS (2 * PS_NS_PER_S)
#define SHARE_OF_TIME 50    /* measuring takes at most 1 / SHARE_OF_TIME of the time */
#define LEAST_OF_LIMIT 50   /* the store keeps at least 1 / LEAST_OF_LIMIT of the budget */
#define WALK_DESCRIPTORS 16 /* deeper folders cost more opens, no more descriptors */

static _Thread_local uint64_t walked_nbytes;

static int walked(const char *path, const struct stat *st, int kind, struct FTW *where)
{
	(void)path, (void)where;
	if (kind != FTW_NS)
		walked_nbytes += (uint64_t)st->st_blocks * 512;
	return 0;
}

static void look(struct ps_store *store)
{
	uint64_t least = store->beside.budget_nbytes / LEAST_OF_LIMIT, theirs;

	/* The disk space of the folder, as du counts it; 0 if there is no such folder. */
	walked_nbytes = 0;
	(void)nftw(store->beside.dir, walked, WALK_DESCRIPTORS, FTW_PHYS | FTW_MOUNT);
	theirs = PS_MIN(walked_nbytes, store->beside.budget_nbytes - least);
	{
		PS_LOCK_SCOPE(&store->lock);
		store->limit_nbytes = store->beside.budget_nbytes - theirs;
	}
	ps_room_trim(store);
}

static void *beside_thread(void *arg)
{
	struct ps_store *store = arg;
	uint64_t next = 0;

	for (;;) {
		{
			PS_LOCK_SCOPE(&store->lock);
			while (!store->beside.worker.stopping && ps_clock_mono_ns() < next)
				ps_cond_wait_until(&store->beside.worker.wake, &store->lock, next);
			if (store->beside.worker.stopping)
				return NULL;
		}
		uint64_t began = ps_clock_mono_ns();
		look(store);
		uint64_t took = ps_clock_mono_ns() - began;
		next = began + took + PS_MAX(EVERY_NS, SHARE_OF_TIME * took);
	}
}

int ps_beside_start(struct ps_store *store, const char *dir)
{
	if (!dir)
		return 0;
	store->beside.dir = strdup(dir);
	if (!store->beside.dir)
		return -ENOMEM;
	store->beside.budget_nbytes = store->limit_nbytes;
	look(store);
	return ps_worker_start(&store->beside.worker, "store-beside", beside_thread, store);
}

void ps_beside_stop(struct ps_store *store)
{
	ps_worker_stop(&store->beside.worker, &store->lock);
	free(ps_steal_ptr(&store->beside.dir));
}
