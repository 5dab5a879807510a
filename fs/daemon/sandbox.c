/* What a daemon gives up before it reads a byte of the network: docs/design/keeper.md has the reasons. */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
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

/* Capabilities ------------------------------------------------------------------------------------------- */

#define CAP(name) (UINT64_C(1) << CAP_##name)
#define CAPS_OF_HELPER (CAP(SYS_ADMIN) | CAP(DAC_OVERRIDE) | CAP(DAC_READ_SEARCH))

static const uint64_t kept[] = {
        /* SETPCAP: the next daemon empties its bounding set; SYS_PTRACE: to open /proc/PID/exe (upgrades) */
        [PS_PRIVILEGES_KEEPER] = CAPS_OF_HELPER | CAP(SETPCAP) | CAP(SYS_PTRACE),
        [PS_PRIVILEGES_HELPER] = CAPS_OF_HELPER,
        [PS_PRIVILEGES_ALONE] = CAPS_OF_HELPER,
        [PS_PRIVILEGES_DAEMON] = CAP(DAC_READ_SEARCH),
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

/* System calls ------------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
#define OUR_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OUR_ARCH AUDIT_ARCH_AARCH64
#elif defined(__riscv) && __riscv_xlen == 64
#define OUR_ARCH AUDIT_ARCH_RISCV64
#elif defined(__powerpc64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define OUR_ARCH AUDIT_ARCH_PPC64LE
#endif

#ifdef OUR_ARCH

#define SYS_OPEN_TREE_ATTR 467 /* Linux 6.15 */
#define X32_BIT 0x40000000u
#define NEW_NAMESPACES                                                                             \
	(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | \
	        CLONE_NEWCGROUP)

/* System calls that the daemon, its libraries, and the commands that it runs for credentials do not need:
 * mounts, other processes' memory, the kernel's code, namespaces, the machine's state, keys; and calls that
 * make the kernel do what a filter cannot see (io_uring). */
static const uint32_t denied[] = {
        SYS_mount,
        SYS_umount2,
        SYS_pivot_root,
        SYS_chroot,
        SYS_open_tree,
        SYS_OPEN_TREE_ATTR,
        SYS_move_mount,
        SYS_fsopen,
        SYS_fsconfig,
        SYS_fsmount,
        SYS_fspick,
        SYS_mount_setattr,
        SYS_open_by_handle_at,
        SYS_setns,
        SYS_unshare,
#if !defined(__SANITIZE_ADDRESS__) /* its leak check stops the threads by ptrace() */
        SYS_ptrace,
#endif
        SYS_process_vm_readv,
        SYS_process_vm_writev,
        SYS_pidfd_getfd,
        SYS_kcmp,
        SYS_bpf,
        SYS_perf_event_open,
        SYS_userfaultfd,
        SYS_io_uring_setup,
        SYS_io_uring_enter,
        SYS_io_uring_register,
        SYS_init_module,
        SYS_finit_module,
        SYS_delete_module,
        SYS_kexec_load,
#ifdef SYS_kexec_file_load
        SYS_kexec_file_load,
#endif
        SYS_reboot,
        SYS_swapon,
        SYS_swapoff,
        SYS_acct,
        SYS_quotactl,
        SYS_quotactl_fd,
        SYS_settimeofday,
        SYS_clock_settime,
        SYS_clock_adjtime,
        SYS_adjtimex,
        SYS_sethostname,
        SYS_setdomainname,
        SYS_vhangup,
        SYS_syslog,
        SYS_keyctl,
        SYS_add_key,
        SYS_request_key,
#ifdef SYS_iopl
        SYS_iopl,
        SYS_ioperm,
        SYS_modify_ldt,
#endif
};

#define LOAD(offset) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)(offset))
#define LOAD_ARG(n) \
	LOAD(offsetof(struct seccomp_data, args) + 8 * (n) + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? 4 : 0))
#define RETURN(what) BPF_STMT(BPF_RET | BPF_K, (what))
#define FAIL(errnum) RETURN(SECCOMP_RET_ERRNO | (errnum))
/* UNLESS_ skips `n` instructions if the comparison is false, IF_EQUAL if it is true. */
#define UNLESS_EQUAL(k, n) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(k), 0, (n))
#define UNLESS_ANY(k, n) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (uint32_t)(k), 0, (n))
#define IF_EQUAL(k, n) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(k), (n), 0)

#define FROM_UNIX 6 /* instructions of head from IF_EQUAL(AF_UNIX) on; its jump plus 1 is to FAIL */
static const struct sock_filter head[] = {
        LOAD(offsetof(struct seccomp_data, arch)),
        IF_EQUAL(OUR_ARCH, 1),
        FAIL(ENOSYS),
        LOAD(offsetof(struct seccomp_data, nr)),
#if defined(__x86_64__)
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32_BIT, 0, 1),
        FAIL(ENOSYS),
#endif
        /* The flags of clone3() are in memory, which a filter cannot read. After ENOSYS libc calls
         * clone(). */
        UNLESS_EQUAL(SYS_clone3, 1),
        FAIL(ENOSYS),
        UNLESS_EQUAL(SYS_clone, 4),
        LOAD_ARG(0),
        UNLESS_ANY(NEW_NAMESPACES, 1),
        FAIL(EPERM),
        RETURN(SECCOMP_RET_ALLOW),
        /* ioctls that type into a terminal */
        UNLESS_EQUAL(SYS_ioctl, 5),
        LOAD_ARG(1),
        IF_EQUAL(TIOCSTI, 1),
        UNLESS_EQUAL(TIOCLINUX, 1),
        FAIL(EPERM),
        RETURN(SECCOMP_RET_ALLOW),
        /* Only the socket families that are used: an attacker must not reach the kernel's code for others. */
        UNLESS_EQUAL(SYS_socket, 7),
        LOAD_ARG(0),
        IF_EQUAL(AF_UNIX, 3),
        IF_EQUAL(AF_INET, 2),
        IF_EQUAL(AF_INET6, 1),
        UNLESS_EQUAL(AF_NETLINK, 1),
        RETURN(SECCOMP_RET_ALLOW),
        FAIL(EAFNOSUPPORT),
};

/* The filter lists what is denied: a list of what is allowed would break with the next C library. */
static int filter_calls(void)
{
	struct sock_filter code[PS_ARRAY_LEN(head) + 2 * PS_ARRAY_LEN(denied) + 1];
	const struct sock_fprog program = {.len = PS_ARRAY_LEN(code), .filter = code};
	size_t n = PS_ARRAY_LEN(head);

	memcpy(code, head, sizeof(head));
	for (size_t i = 0; i < PS_ARRAY_LEN(denied); i++) {
		code[n++] = (struct sock_filter)UNLESS_EQUAL(denied[i], 1);
		code[n++] = (struct sock_filter)FAIL(EPERM);
	}
	code[n++] = (struct sock_filter)RETURN(SECCOMP_RET_ALLOW);
	/* Services that listen on UNIX sockets (systemd, D-Bus, container engines) start any program for
	 * root. */
	if (geteuid() == 0)
		code[PS_ARRAY_LEN(head) - FROM_UNIX].jt++;
	/* Without the flag, kernels before 5.16 make all memory loads of the process slower. */
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program) == 0)
		return 0;
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0 ? -errno : 0;
}

#else

static int filter_calls(void)
{
	return -ENOSYS;
}

#endif

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

static int confine_files(int cache_fd)
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
	return rc;
}

/* All of it ---------------------------------------------------------------------------------------------- */

const char *ps_sandbox_enter(int cache_fd)
{
	ps_privileges_drop(PS_PRIVILEGES_DAEMON);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return "no NoNewPrivs, no seccomp, no landlock";
	bool files = confine_files(cache_fd) == 0, calls = filter_calls() == 0;

	return files && calls ? "" : files ? "no seccomp" : calls ? "no landlock" : "no seccomp, no landlock";
}
