#include "config.h"

#include "device/device.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"

void *ps_host_slot_alloc(struct ps_device *device, size_t nbytes, struct ps_error *err)
{
	void *p = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)device;
	if (p == MAP_FAILED) {
		ps_error_set(err, ENOMEM, "no memory for a batch of %zu bytes", nbytes);
		return NULL;
	}
	(void)madvise(p, nbytes, MADV_HUGEPAGE); /* fewer page faults; optional */
	return p;
}

void ps_host_free(void *p, size_t nbytes)
{
	munmap(p, nbytes);
}

#define PREFERRED 1 /* MPOL_PREFERRED, of linux/mempolicy.h */

void ps_host_prefer_node(void *p, size_t nbytes, int node)
{
	unsigned long mask[16] = {0};
	const int bits = 8 * (int)sizeof(mask[0]);

	if (node < 0 || node >= 16 * bits)
		return;
	mask[node / bits] = 1UL << (node % bits);
#ifdef SYS_mbind
	(void)syscall(SYS_mbind, p, nbytes, PREFERRED, mask, 8 * sizeof(mask), 0);
#else
	(void)p, (void)nbytes;
#endif
}

void ps_host_slot_free(struct ps_device *device, void *p, size_t nbytes)
{
	(void)device;
	ps_host_free(p, nbytes);
}

void *ps_host_slot_copy(
        struct ps_device *device, void *p, size_t old_nbytes, size_t new_nbytes, struct ps_error *err)
{
	void *larger = device->ops->alloc(device, new_nbytes, err);

	if (!larger)
		return NULL;
	memcpy(larger, p, PS_MIN(old_nbytes, new_nbytes));
	device->ops->free(device, p, old_nbytes);
	return larger;
}

void *ps_host_slot_resize(
        struct ps_device *device, void *p, size_t old_nbytes, size_t new_nbytes, struct ps_error *err)
{
#ifdef __SANITIZE_THREAD__
	/* ThreadSanitizer does not see mremap: memory mapped later at the old address would be taken for the
	 * former owner's. */
	return ps_host_slot_copy(device, p, old_nbytes, new_nbytes, err);
#endif
	(void)device;
	p = mremap(p, old_nbytes, new_nbytes, MREMAP_MAYMOVE);
	if (p != MAP_FAILED)
		return p;
	ps_error_set(err, ENOMEM, "no memory for a batch of %zu bytes", new_nbytes);
	return NULL;
}
