#include "daemon/privileges.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
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

void ps_cgroup_target(const char *own, uid_t uid, char *ret, size_t room)
{
	char manager[48];

	ret[0] = '\0';
	if (own[0] != '/' || !own[1])
		return;
	if (uid == 0) {
		if (strcmp(own, "/penstock") != 0)
			snprintf(ret, room, "/penstock");
		return;
	}
	snprintf(manager, sizeof manager, "/user@%u.service/", (unsigned)uid);
	const char *s = strstr(own, manager);
	if (!s || strcmp(s + strlen(manager), "penstock") == 0)
		return;
	size_t n = (size_t)(s - own) + strlen(manager);
	if (n + sizeof "penstock" <= room)
		snprintf(ret, room, "%.*spenstock", (int)n, own);
}

/* Our group in the hierarchy of version 2, or "". */
static void own_group(char *ret, size_t room)
{
	char line[4096];
	FILE *f = fopen("/proc/self/cgroup", "re");

	ret[0] = '\0';
	while (f && fgets(line, sizeof line, f)) {
		line[strcspn(line, "\n")] = '\0';
		if (strncmp(line, "0::", 3) == 0)
			snprintf(ret, room, "%s", line + 3);
	}
	if (f)
		fclose(f);
}

static int enter(const char *hierarchy, const char *group)
{
	char path[8192], pid[16];

	snprintf(path, sizeof path, "%s%s", hierarchy, group);
	if (mkdir(path, 0755) < 0 && errno != EEXIST)
		return -errno;
	snprintf(path, sizeof path, "%s%s/cgroup.procs", hierarchy, group);
	ps_autofd int fd = open(path, O_WRONLY | O_CLOEXEC);
	int n = snprintf(pid, sizeof pid, "%d", (int)getpid());
	return fd < 0 || write(fd, pid, (size_t)n) != n ? -errno : 0;
}

void ps_cgroup_leave(void)
{
	static const char *const hierarchies[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
	char own[4096], target[4096];
	struct stat st;
	int rc = -ENOENT;

	own_group(own, sizeof own);
	ps_cgroup_target(own, geteuid(), target, sizeof target);
	for (size_t i = 0; *target && rc == -ENOENT && i < PS_ARRAY_LEN(hierarchies); i++) {
		char path[64];

		snprintf(path, sizeof path, "%s/cgroup.procs", hierarchies[i]);
		if (stat(path, &st) == 0)
			rc = enter(hierarchies[i], target);
	}
	if (*target && rc == 0)
		ps_log_info("mount: the daemon is in the control group %s now", target);
	else if (own[0] && own[1])
		ps_log_info("mount: the daemon stays in the control group %s, and ends with it", own);
}
