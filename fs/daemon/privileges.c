#include "daemon/privileges.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"

static const unsigned kept[] = {CAP_SYS_ADMIN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER};

void ps_privileges_drop(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];
	uint64_t keep = 0;

	if (geteuid() != 0)
		return;
	for (size_t i = 0; i < PS_ARRAY_LEN(kept); i++)
		keep |= UINT64_C(1) << kept[i];
	/* The bounding set first: that needs a capability which goes next. */
	for (unsigned cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		if (!(keep >> cap & 1))
			prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
	if (syscall(SYS_capget, &head, data) < 0) {
		ps_log_debug("capabilities: %s", strerror(errno));
		return;
	}
	for (unsigned i = 0; i < 2; i++) {
		data[i].permitted &= (uint32_t)(keep >> (32 * i));
		data[i].effective &= data[i].permitted;
		data[i].inheritable = 0;
	}
	if (syscall(SYS_capset, &head, data) < 0)
		ps_log_warning("capabilities: %s: the daemon keeps them all", strerror(errno));
}

void ps_privileges_no_core(void)
{
	ps_autofd int fd = open("/proc/self/coredump_filter", O_WRONLY | O_CLOEXEC);

	if (fd >= 0 && write(fd, "0", 1) < 0)
		return; /* a kernel without core files */
}
