#include "store/disk.h"

#include <errno.h>
#include <sys/statvfs.h>

#include "base/clock.h"
#include "store/evict.h"
#include "store/store_dir.h"

void ps_disk_refused(struct ps_store *store, int e, uint64_t wanted_nbytes)
{
	atomic_store(&store->disk_wanted_nbytes, wanted_nbytes);
	if (atomic_exchange(&store->disk_errnum, -e) == 0)
		atomic_store(&store->disk_refused_s, ps_clock_real_s());
}

void ps_disk_took(struct ps_store *store)
{
	if (atomic_load(&store->disk_errnum))
		atomic_store(&store->disk_errnum, 0);
}

static bool has_room(const struct ps_store *store)
{
	struct statvfs st;

	return fstatvfs(store->data_fd, &st) == 0 &&
	       (uint64_t)st.f_bavail * st.f_frsize >=
	               store->min_free_nbytes + atomic_load(&store->disk_wanted_nbytes);
}

int ps_disk_error(struct ps_store *store, int64_t *ret_since_s)
{
	int errnum = atomic_load(&store->disk_errnum);

	/* Nobody may have asked it for anything since. */
	if (errnum == ENOSPC && !atomic_load(&store->index_failed) && has_room(store)) {
		ps_disk_took(store);
		errnum = 0;
	}
	*ret_since_s = errnum ? atomic_load(&store->disk_refused_s) : 0;
	return errnum;
}

/* The folder -------------------------------------------------------------------------------------- */

uint64_t ps_store_data_limit(const struct ps_store *store)
{
	return store->limit_nbytes - PS_MIN(store->limit_nbytes, atomic_load(&store->index_nbytes));
}

/* index_lock held. Evicts what is in use, too: without names and rows nothing is cached. */
static int count_index(struct ps_store *store, uint64_t nbytes, uint64_t allocated_nbytes)
{
	const struct ps_wish nothing = {.pinned = true};
	struct ps_room room = {0};
	int e = -EAGAIN;

	while (e == -EAGAIN) {
		ps_room_look(store, &room);
		PS_LOCK_SCOPE(&store->lock);
		store->index_nbytes = nbytes;
		store->index_allocated_nbytes = allocated_nbytes;
		e = ps_room_try(store, &room, &nothing);
		/* If it is the disk that is full, the index finds out by itself when it writes. */
		if (e == -ENOSPC && store->used_nbytes + nbytes <= store->limit_nbytes)
			e = 0;
	}
	return e < 0 ? -EDQUOT : 0;
}

/* index_lock held. */
static int look(struct ps_store *store, size_t nbytes)
{
	uint64_t sorted, allocated;

	allocated = ps_store_dir_measure(store->dir_fd, store->data_fd, store->reserve_nbytes, &sorted);
	int e = count_index(store, allocated + ps_index_peak_nbytes(store->index, sorted, nbytes), allocated);
	atomic_store(&store->index_slack_nbytes, e == 0 ? ps_index_slack_nbytes(store->index) : 0);
	return e;
}

int ps_folder_look(struct ps_store *store)
{
	if (!store->counts_folder)
		return 0;
	PS_LOCK_SCOPE(&store->index_lock);
	return look(store, 0);
}

int ps_folder_room(void *arg, size_t nbytes)
{
	struct ps_store *store = arg;
	uint64_t slack = atomic_load(&store->index_slack_nbytes);

	if (!store->counts_folder)
		return 0;
	while (slack >= nbytes)
		if (atomic_compare_exchange_weak(&store->index_slack_nbytes, &slack, slack - nbytes))
			return 0;
	PS_LOCK_SCOPE(&store->index_lock);
	return look(store, nbytes);
}

uint64_t ps_store_reachable(struct ps_store *store)
{
	struct ps_room room = {0};

	ps_room_look(store, &room);
	PS_LOCK_SCOPE(&store->lock);
	uint64_t there = store->used_nbytes - PS_MIN(store->used_nbytes, atomic_load(&store->unwritten)) +
	                 store->index_allocated_nbytes;
	return room.disk > store->limit_nbytes ? store->limit_nbytes : PS_MIN(store->limit_nbytes, there + room.disk);
}
