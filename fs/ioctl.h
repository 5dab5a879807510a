/* Requests to the daemon by ioctl on a descriptor of a mounted file, opened for reading: a read-only mount
 * refuses writing before it could arrive. */
#ifndef PS_IOCTL_H
#define PS_IOCTL_H

#include <linux/ioctl.h>
#include <stdint.h>

#define PS_IOC_TYPE 0xd7

/* Fetch what is missing of the file, at low priority. Returns at once. */
#define PS_IOC_WARM _IO(PS_IOC_TYPE, 1)
/* Drop the file's data from the cache; tells how many bytes went. */
#define PS_IOC_EVICT _IOR(PS_IOC_TYPE, 2, uint64_t)

#endif
