/* Requests to the daemon by ioctl on a descriptor of a mounted file, opened for reading: a read-only mount
 * refuses writing before it could arrive. */
#ifndef PS_FUSE_IOCTL_H
#define PS_FUSE_IOCTL_H

#include <linux/ioctl.h>
#include <stdint.h>

#define PS_IOC_TYPE 0xd7

/* Fetch what is missing of the file, at low priority. Returns at once. */
#define PS_IOC_WARM _IO(PS_IOC_TYPE, 1)
/* The three that change what is cached are for root and the mount's owner: EPERM for others.
 *
 * Drop the file's data from the cache; tells how many bytes went. */
#define PS_IOC_EVICT _IOR(PS_IOC_TYPE, 2, uint64_t)
/* Keep the file's data in the cache. Tells the bytes that this reserved; 0: it was pinned already. ENOSPC: all that is
 * pinned would not fit. */
#define PS_IOC_PIN _IOR(PS_IOC_TYPE, 3, uint64_t)
/* Let it go again. Tells the bytes; 0: it was not pinned. */
#define PS_IOC_UNPIN _IOR(PS_IOC_TYPE, 4, uint64_t)
/* What PS_IOC_PIN would tell. Changes nothing. */
#define PS_IOC_PIN_NBYTES _IOR(PS_IOC_TYPE, 5, uint64_t)

/* On .penstock/plan: the next bytes of what would be written to it. The plans last as long as the descriptor is open.
 * EINVAL: a line is not of the form; E2BIG, ENOSPC: it is too much; ESTALE: a position of a plan that was dropped, tell
 * it anew; ENOTTY: the mount's policy follows no plans. loader/order/plan.c has a copy of this: it stands alone. */
#define PS_IOC_TEXT_NBYTES 8184
struct ps_ioc_text {
	uint32_t nbytes;
	char text[PS_IOC_TEXT_NBYTES];
};
#define PS_IOC_PLAN _IOW(PS_IOC_TYPE, 6, struct ps_ioc_text)

/* On the mount's root folder, for root and the mount's owner: list the sources again. Returns when that is done and the
 * kernel has forgotten what it knew of names that changed; EINTR: the listing goes on. Others of the errors: of the listing,
 * and .penstock/stats says more (listing_error). Tells the files there are, and of these how many are new, and how many
 * are gone. */
struct ps_ioc_refreshed {
	uint64_t nfiles, nadded, nvanished;
};
#define PS_IOC_REFRESH _IOR(PS_IOC_TYPE, 7, struct ps_ioc_refreshed)

#endif
