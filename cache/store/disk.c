#include "store/disk.h"

#include <errno.h>
#include <sys/statvfs.h>

#include "base/clock.h"

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
