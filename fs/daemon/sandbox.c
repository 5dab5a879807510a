/* What a daemon gives up before it reads a byte of the network: docs/design/keeper.md has the reasons. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "daemon/daemon.h"
#include "daemon/sandbox_calls.h"

/* Capabilities ------------------------------------------------------------------------------------------- */

#define CAP(name) (UINT64_C(1) << CAP_##name)
#define CAPS_OF_HELPER (CAP(SYS_ADMIN) | CAP(DAC_OVERRIDE) | CAP(DAC_READ_SEARCH))

static const uint64_t kept[] = {
        /* SETPCAP: the next daemon empties its bounding set; SYS_PTRACE: to open /proc/PID/exe (upgrades) */
        [PS_PRIVILEGES_KEEPER] = CAPS_OF_HELPER | CAP(SETPCAP) | CAP(SYS_PTRACE),
        [PS_PRIVILEGES_HELPER] = CAPS_OF_HELPER,
        [PS_PRIVILEGES_ALONE] = CAPS_OF_HELPER,
        [PS_PRIVILEGES_DAEMON] = CAP(DAC_READ_SEARCH),
        [PS_PRIVILEGES_NONE] = 0,
};

void ps_privileges_drop(enum ps_privileges which)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];
	uint64_t keep = kept[which];

	if (geteuid() != 0)
		return;
	/* The bounding set first: dropping from it needs a capability that is dropped next. */
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
		return; /* the kernel has no core files */
}

/* Files -------------------------------------------------------------------------------------------------- */

/* linux/landlock.h of Linux 6.12; Debian 12's is older. */
struct ruleset {
	uint64_t files, net, scoped;
};
#define ABI_REFER 2 /* Linux 5.19; before, nothing can be renamed from folder to folder */
#define ABI_TRUNCATE 3
#define ABI_SCOPED 6
#define FS_REFER (UINT64_C(1) << 13)
#define FS_TRUNCATE (UINT64_C(1) << 14)
#define SCOPE_SIGNAL (UINT64_C(1) << 1)

#define FS_WRITE (LANDLOCK_ACCESS_FS_WRITE_FILE | FS_TRUNCATE)
#define FS_DEVICES (LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_BLOCK)
#define FS_CHANGE                                                                                          \
	(FS_WRITE | FS_REFER | LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |            \
	        LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK | \
	        LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_SYM)

static int allow(int rules, const struct ruleset *handled, int fd, uint64_t access)
{
	const struct landlock_path_beneath_attr attr = {
	        .allowed_access = access & handled->files, .parent_fd = fd};

	return syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &attr, 0) < 0 ? -errno : 0;
}

/* A path that does not exist needs no rule. */
static int allow_path(int rules, const struct ruleset *handled, const char *path, uint64_t access)
{
	ps_autofd int fd = open(path, O_PATH | O_CLOEXEC);

	return fd < 0 ? 0 : allow(rules, handled, fd, access);
}

/* The caches of the aws command, which may be the command of a credential_process. */
static int allow_home(int rules, const struct ruleset *handled)
{
	static const char *const folders[] = {".aws/cli/cache", ".aws/sso/cache"};
	const char *home = getenv("HOME");
	char path[4096];
	int rc = 0;

	for (size_t i = 0; rc == 0 && home && home[0] == '/' && i < PS_ARRAY_LEN(folders); i++)
		if (snprintf(path, sizeof(path), "%s/%s", home, folders[i]) < (int)sizeof(path))
			rc = allow_path(rules, handled, path, FS_CHANGE);
	return rc;
}

/* Present in a build for coverage, which writes its counts beside its object files when the process ends. */
extern void __gcov_exit(void) __attribute__((weak));

/* *ret: what of landlock this kernel has. */
static int confine_files(int cache_fd, struct ps_call_limits *ret)
{
	int abi = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	/* Only root's daemon could change files of the system, so only it is limited. A user's commands for
	 * credentials may write anywhere; there the domain only separates the daemon from other processes. */
	bool root = geteuid() == 0 && !__gcov_exit;
	struct ruleset handled = {.files = root ? FS_CHANGE | FS_DEVICES : FS_REFER | FS_DEVICES};

	if (abi < ABI_REFER)
		return -ENOSYS;
	if (abi < ABI_TRUNCATE)
		handled.files &= ~FS_TRUNCATE;
	if (abi >= ABI_SCOPED)
		handled.scoped = SCOPE_SIGNAL;
	ps_autofd int rules = (int)syscall(SYS_landlock_create_ruleset, &handled, sizeof(handled), 0);
	if (rules < 0)
		return -errno;
	int rc = 0;
	if (root) {
		rc = allow(rules, &handled, cache_fd, FS_CHANGE);
		if (rc == 0)
			rc = allow_path(rules, &handled, "/dev/null", FS_WRITE);
		if (rc == 0)
			rc = allow_path(rules, &handled, "/dev/fuse", FS_WRITE);
		if (rc == 0) /* RocksDB's own log, while it opens */
			rc = allow_path(rules, &handled, "/dev/shm", FS_CHANGE);
		if (rc == 0) /* a mount's read-ahead */
			rc = allow_path(rules, &handled, "/sys/devices/virtual/bdi", FS_WRITE);
		if (rc == 0)
			rc = allow_home(rules, &handled);
	} else {
		rc = allow_path(rules, &handled, "/", FS_REFER);
	}
	if (rc == 0 && syscall(SYS_landlock_restrict_self, rules, 0) < 0)
		rc = -errno;
	ret->scoped = rc == 0 && handled.scoped;
	ret->no_truncate = rc == 0 && abi < ABI_TRUNCATE;
	return rc;
}

/* All of it ---------------------------------------------------------------------------------------------- */

const char *ps_sandbox_enter(int cache_fd)
{
	ps_privileges_drop(PS_PRIVILEGES_DAEMON);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return "no NoNewPrivs, no seccomp, no landlock";
	struct ps_call_limits limits = {.root = geteuid() == 0};
	bool files = confine_files(cache_fd, &limits) == 0, calls = ps_call_filter(&limits) == 0;

	return files && calls ? "" : files ? "no seccomp" : calls ? "no landlock" : "no seccomp, no landlock";
}
