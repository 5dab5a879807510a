#include "daemon/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/log.h"

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
