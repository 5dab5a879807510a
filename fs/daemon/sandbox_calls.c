#include "daemon/sandbox_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/ioprio.h>
#include <linux/netlink.h>
#include <linux/sockios.h>
#include <sched.h>
#include <seccomp.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"

/* The table ---------------------------------------------------------------------------------------------- */

const struct ps_call_group ps_call_groups[] = {
        {PS_CALL_NEEDED, "reads and writes descriptors that the process has",
                "read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 lseek _llseek "
                "close "
                "close_range dup dup2 dup3 pipe pipe2 sendfile splice tee vmsplice copy_file_range fsync "
                "fdatasync sync_file_range sync_file_range2 ftruncate fallocate fadvise64 readahead flock"},
        {PS_CALL_NEEDED, "files by name: landlock limits what root's daemon changes",
                "stat fstat lstat newfstatat statx statfs fstatfs statfs64 fstatfs64 access faccessat "
                "faccessat2 "
                "getcwd chdir fchdir readlink readlinkat getdents getdents64 mkdir mkdirat rmdir unlink "
                "unlinkat "
                "rename renameat renameat2 link linkat symlink symlinkat umask getxattr lgetxattr fgetxattr "
                "listxattr llistxattr flistxattr inotify_init inotify_init1 inotify_add_watch "
                "inotify_rm_watch"},
        {PS_CALL_NEEDED, "waits",
                "poll ppoll select pselect6 _newselect epoll_create epoll_create1 epoll_ctl epoll_wait "
                "epoll_pwait "
                "epoll_pwait2 eventfd eventfd2 signalfd signalfd4 timerfd_create timerfd_settime "
                "timerfd_gettime "
                "nanosleep clock_nanosleep pause futex futex_waitv futex_wake futex_wait futex_requeue"},
        {PS_CALL_NEEDED, "memory of the process itself",
                "mmap mprotect munmap brk mremap msync mincore madvise memfd_create membarrier mlock mlock2 "
                "munlock "
                "mlockall munlockall"},
        {PS_CALL_NEEDED, "threads, its own signals, and programs that it runs: commands of credentials",
                "fork vfork execve execveat exit exit_group wait4 waitid waitpid rt_sigaction rt_sigprocmask "
                "rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigsuspend sigaltstack sigreturn "
                "set_tid_address "
                "set_robust_list get_robust_list rseq arch_prctl prctl sched_yield restart_syscall "
                "riscv_flush_icache riscv_hwprobe"},
        {PS_CALL_NEEDED, "sockets that the process has",
                "connect accept accept4 sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg shutdown bind "
                "listen "
                "getsockname getpeername setsockopt getsockopt send recv"},
        {PS_CALL_NEEDED, "who the process is, the time, random numbers, and what it has used",
                "getpid gettid getppid getuid geteuid getgid getegid getresuid getresgid getgroups getpgrp "
                "getpgid "
                "getsid uname sysinfo getrandom gettimeofday time times clock_gettime clock_getres getrusage "
                "getrlimit ugetrlimit setrlimit getcpu getpriority ioprio_get capget sched_getaffinity"},
        {PS_CALL_HARMLESS, "concerns the process itself; the kernel refuses what needs a capability",
                "setuid setgid setreuid setregid setresuid setresgid setfsuid setfsgid setgroups capset "
                "setsid "
                "setpgid personality alarm setitimer getitimer timer_create timer_settime timer_gettime "
                "timer_getoverrun timer_delete seccomp landlock_create_ruleset landlock_add_rule "
                "landlock_restrict_self pkey_alloc pkey_free pkey_mprotect mseal map_shadow_stack "
                "memfd_secret "
                "remap_file_pages mbind set_mempolicy get_mempolicy set_mempolicy_home_node uretprobe uprobe "
                "io_setup io_destroy io_submit io_cancel io_getevents io_pgetevents set_thread_area "
                "get_thread_area "
                "signal sigaction sigprocmask sigpending sigsuspend sgetmask ssetmask ulimit swapcontext "
                "switch_endian subpage_prot sync syncfs pidfd_open name_to_handle_at"},
        {PS_CALL_HARMLESS, "only tells something",
                "sched_getscheduler sched_getparam sched_getattr sched_get_priority_max "
                "sched_get_priority_min "
                "sched_rr_get_interval ustat sysfs cachestat statmount listmount lsm_get_self_attr "
                "lsm_list_modules getxattrat listxattrat file_getattr"},
        {PS_CALL_LIMITED, "no namespace: it would give all capabilities", "clone"},
        {PS_CALL_LIMITED,
                "families of sockets that are used, but UNIX for root: services start programs for root",
                "socket"},
        {PS_CALL_LIMITED, "requests that are listed below: the others reach devices and attributes of files",
                "ioctl"},
        {PS_CALL_LIMITED,
                "commands that are listed below: the others send signals, or hold up other processes",
                "fcntl"},
        {PS_CALL_LIMITED, "the process itself: uid 0 may also do this to all other processes of root",
                "kill tgkill prlimit64 setpriority ioprio_set sched_setaffinity sched_setscheduler "
                "sched_setparam "
                "sched_setattr move_pages"},
        {PS_CALL_LIMITED, "signals, where landlock limits them to the daemon's own processes",
                "tkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_send_signal"},
        {PS_CALL_ROOT_LIMITED, "no set-uid or set-gid file; no truncation that landlock does not see",
                "open openat creat mknod mknodat truncate"},
        {PS_CALL_ROOT_LIMITED, "no datagrams: they reach any named socket of a service", "socketpair"},
        {PS_CALL_ROOT_DENIED, "mode and owner of files of root, which landlock does not limit",
                "chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat"},
        {PS_CALL_ROOT_DENIED, "attributes and access lists of files of root, which landlock does not limit",
                "setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat "
                "file_setattr"},
        {PS_CALL_ROOT_DENIED, "times of files of root, which landlock does not limit",
                "utime utimes utimensat futimesat"},
        {PS_CALL_DENIED, "mounts and namespaces",
                "mount umount umount2 pivot_root chroot open_tree open_tree_attr move_mount fsopen fsconfig "
                "fsmount "
                "fspick mount_setattr setns unshare open_by_handle_at quotactl quotactl_fd"},
#if defined(__SANITIZE_ADDRESS__) /* its leak check stops the threads by ptrace() */
        {PS_CALL_NEEDED, "the sanitizer's leak check", "ptrace"},
#else
        {PS_CALL_DENIED, "other processes", "ptrace"},
#endif
        {PS_CALL_DENIED, "other processes: their memory, descriptors and pages",
                "process_vm_readv process_vm_writev process_madvise process_mrelease pidfd_getfd kcmp "
                "migrate_pages"},
        {PS_CALL_DENIED, "memory, queues and semaphores that belong to all processes of the user",
                "shmget shmat shmctl shmdt semget semop semtimedop semctl msgget msgsnd msgrcv msgctl ipc "
                "mq_open "
                "mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr"},
        {PS_CALL_DENIED, "code of the kernel that is rarely used, and what no filter sees",
                "bpf perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register init_module "
                "finit_module delete_module kexec_load kexec_file_load fanotify_init fanotify_mark iopl "
                "ioperm "
                "modify_ldt vm86 spu_create spu_run rtas pciconfig_read pciconfig_write pciconfig_iobase "
                "sys_debug_setcontext lsm_set_self_attr"},
        {PS_CALL_DENIED, "the machine's state: clock, names, swap, accounting, log, keys",
                "reboot swapon swapoff acct settimeofday stime clock_settime clock_adjtime adjtimex "
                "sethostname "
                "setdomainname vhangup syslog add_key request_key keyctl nice"},
        {PS_CALL_ABSENT, "its flags are in memory, which no filter sees: callers use clone()", "clone3"},
        {PS_CALL_ABSENT, "never in this kernel, or not any more",
                "_sysctl create_module get_kernel_syms query_module nfsservctl getpmsg putpmsg afs_syscall "
                "tuxcall "
                "security lookup_dcookie epoll_ctl_old epoll_wait_old vserver uselib bdflush break ftime "
                "gtty idle "
                "lock mpx multiplexer oldfstat oldlstat oldolduname oldstat olduname prof profil readdir "
                "stty "
                "socketcall"},
        {PS_CALL_ROOT_LIMITED, "its flags are in memory, which no filter sees: root's callers use openat()",
                "openat2"},
};
const size_t ps_call_ngroups = PS_ARRAY_LEN(ps_call_groups);

/* Calls that libseccomp 2.5.4, that of Debian 12, does not know. They have the same number everywhere. */
static const struct {
	const char *name;
	int number;
} newer[] = {
        {"set_mempolicy_home_node", 450},
        {"cachestat", 451},
        {"fchmodat2", 452},
        {"map_shadow_stack", 453},
        {"futex_wake", 454},
        {"futex_wait", 455},
        {"futex_requeue", 456},
        {"statmount", 457},
        {"listmount", 458},
        {"lsm_get_self_attr", 459},
        {"lsm_set_self_attr", 460},
        {"lsm_list_modules", 461},
        {"mseal", 462},
        {"setxattrat", 463},
        {"getxattrat", 464},
        {"listxattrat", 465},
        {"removexattrat", 466},
        {"open_tree_attr", 467},
        {"file_getattr", 468},
        {"file_setattr", PS_CALL_LAST},
#if defined(__x86_64__)
        {"uretprobe", 335},
        {"uprobe", 336},
#elif defined(__riscv)
        {"riscv_hwprobe", 258},
#endif
};

int ps_call_number(const char *name)
{
	for (size_t i = 0; i < PS_ARRAY_LEN(newer); i++)
		if (strcmp(newer[i].name, name) == 0)
			return newer[i].number;
	int number = seccomp_syscall_resolve_name(name);
	return number < 0 ? -1 : number; /* libseccomp numbers calls of other machines below 0 */
}

void ps_call_each(const struct ps_call_group *group, void (*fn)(void *arg, const char *name), void *arg)
{
	char name[32];

	for (const char *p = group->names; *p; p += strspn(p, " ")) {
		size_t n = strcspn(p, " ");

		if (n < sizeof(name)) {
			memcpy(name, p, n);
			name[n] = '\0';
			fn(arg, name);
		}
		p += n;
	}
}

/* Limits ------------------------------------------------------------------------------------------------- */

#define NEW_NAMESPACES                                                                             \
	(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | \
	        CLONE_NEWCGROUP)
#define FAMILIES 64 /* more than Linux has */
#define SET_ID (S_ISUID | S_ISGID)
#define MAKES (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))
#define CLONE_FUSE _IOR(229, 0, uint32_t)      /* FUSE_DEV_IOC_CLONE of linux/fuse.h */
#define GET_TERMIOS2 _IOR('T', 0x2A, char[44]) /* TCGETS2, which later C libraries use for isatty() */

/* Requests to terminals only ask. Those of files are FICLONE, which needs a descriptor for writing, and such
 * that only ask. */
static const unsigned ioctls[] = {FIONREAD, FIONBIO, FIOCLEX, FIONCLEX, TIOCOUTQ, TCGETS, GET_TERMIOS2,
        TIOCGWINSZ, TIOCGPGRP, CLONE_FUSE, FICLONE, FICLONERANGE, FS_IOC_GETFLAGS, FS_IOC_GETVERSION,
        FS_IOC_FIEMAP, FIGETBSZ, SIOCATMARK, SIOCGIFNAME, SIOCGIFINDEX, SIOCGIFCONF, SIOCGIFFLAGS,
        SIOCGIFADDR, SIOCGIFNETMASK, SIOCGIFMTU, SIOCGIFHWADDR};

#ifndef F_OFD_GETLK
#error "fcntl.h lacks F_OFD_GETLK"
#endif
static const unsigned fcntls[] = {F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_GETLK,
        F_SETLK, F_SETLKW, F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW, F_GETOWN, F_GETSIG, F_GETLEASE,
        F_GETPIPE_SZ, F_SETPIPE_SZ, F_ADD_SEALS, F_GET_SEALS, F_GET_RW_HINT, F_SET_RW_HINT,
        F_GET_FILE_RW_HINT, F_SET_FILE_RW_HINT, 1024 + 3 /* F_DUPFD_QUERY */, 1024 + 4 /* F_CREATED_QUERY */};

struct filter {
	scmp_filter_ctx ctx;
	const struct ps_call_limits *limits;
	enum ps_call_class class;
	bool foreign; /* of another machine */
	int rc;       /* the first error */
};

static void rule(
        struct filter *f, const char *name, uint32_t action, const struct scmp_arg_cmp *args, unsigned nargs)
{
	/* libseccomp translates its own numbers, also those below 0, to the other machine's. */
	int number = f->foreign ? seccomp_syscall_resolve_name(name) : ps_call_number(name);

	if (number == __NR_SCMP_ERROR || (number < 0 && !f->foreign) || f->rc < 0)
		return;
	f->rc = seccomp_rule_add_array(f->ctx, action, number, nargs, args);
	if (f->rc < 0)
		ps_log_debug("sandbox: %s: %s", name, strerror(-f->rc));
}

static void allow(struct filter *f, const char *name)
{
	rule(f, name, SCMP_ACT_ALLOW, NULL, 0);
}

static void deny(struct filter *f, const char *name)
{
	rule(f, name, SCMP_ACT_ERRNO(EPERM), NULL, 0);
}

/* The kernel reads these arguments as 32 bits, and ignores the upper half of the register. */
static struct scmp_arg_cmp is(unsigned arg, uint32_t mask, uint32_t value)
{
	return (struct scmp_arg_cmp){arg, SCMP_CMP_MASKED_EQ, mask, value};
}

static struct scmp_arg_cmp equals(unsigned arg, int value)
{
	return is(arg, UINT32_MAX, (uint32_t)value);
}

static void allow_if(struct filter *f, const char *name, struct scmp_arg_cmp one)
{
	rule(f, name, SCMP_ACT_ALLOW, &one, 1);
}

static void allow_if_both(
        struct filter *f, const char *name, struct scmp_arg_cmp one, struct scmp_arg_cmp two)
{
	rule(f, name, SCMP_ACT_ALLOW, (const struct scmp_arg_cmp[]){one, two}, 2);
}

/* Without this rule the others would be answered ENOSYS. */
static void deny_unless_zero(struct filter *f, const char *name, unsigned arg)
{
	rule(f, name, SCMP_ACT_ERRNO(EPERM), &(struct scmp_arg_cmp){arg, SCMP_CMP_NE, 0, 0}, 1);
}

static void limit_sockets(struct filter *f)
{
	for (int family = 0; family < FAMILIES; family++) {
		if (family == AF_INET || family == AF_INET6 || (family == AF_UNIX && !f->limits->root))
			allow_if(f, "socket", equals(0, family));
		else if (family == AF_NETLINK)
			allow_if_both(f, "socket", equals(0, family), equals(2, NETLINK_ROUTE));
		else
			rule(f, "socket", SCMP_ACT_ERRNO(EAFNOSUPPORT),
			        (const struct scmp_arg_cmp[]){equals(0, family)}, 1);
	}
}

/* Allows to open a file, and to make one without set-uid and set-gid. */
static void limit_open(struct filter *f, const char *name, unsigned flags, unsigned mode)
{
	static const struct {
		uint32_t mask, value;
	} truncates[] = {{O_TRUNC, 0}, {O_TRUNC | O_ACCMODE, O_TRUNC | O_WRONLY},
	        {O_TRUNC | O_ACCMODE, O_TRUNC | O_RDWR}};

	if (!f->limits->no_truncate) {
		allow_if(f, name, is(flags, MAKES, 0));
		allow_if(f, name, is(mode, SET_ID, 0));
		return;
	}
	/* Landlock sees files that are opened for writing. Others must not be truncated either. */
	for (size_t i = 0; i < PS_ARRAY_LEN(truncates); i++) {
		allow_if(f, name, is(flags, MAKES | truncates[i].mask, truncates[i].value));
		allow_if_both(f, name, is(flags, truncates[i].mask, truncates[i].value), is(mode, SET_ID, 0));
	}
}

static void limit_pids(struct filter *f)
{
	static const char *const calls[] = {"prlimit64", "sched_setaffinity", "sched_setscheduler",
	        "sched_setparam", "sched_setattr", "move_pages"};
	static const char *const signals[] = {
	        "kill", "tgkill", "tkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal"};

	for (size_t i = 0; i < PS_ARRAY_LEN(calls); i++) {
		allow_if(f, calls[i], equals(0, 0));
		deny_unless_zero(f, calls[i], 0);
	}
	allow_if_both(f, "setpriority", equals(0, PRIO_PROCESS), equals(1, 0));
	allow_if_both(f, "ioprio_set", equals(0, IOPRIO_WHO_PROCESS), equals(1, 0));
	deny_unless_zero(f, "setpriority", 1);
	deny_unless_zero(f, "ioprio_set", 1);
	for (size_t i = 0; i < PS_ARRAY_LEN(signals); i++) {
		if (f->limits->scoped)
			allow(f, signals[i]);
		else if (i > 1)
			deny(f, signals[i]);
	}
	if (f->limits->scoped)
		return;
	allow_if(f, "tgkill", equals(0, getpid()));
	allow_if(f, "kill", equals(0, getpid()));
	allow_if(f, "kill", equals(0, 0)); /* commands of credentials end themselves so */
}

static void limit_all(struct filter *f)
{
	bool root = f->limits->root;

	allow_if(f, "clone", is(0, NEW_NAMESPACES, 0));
	for (uint32_t bit = 1; bit; bit <<= 1)
		if (NEW_NAMESPACES & bit)
			rule(f, "clone", SCMP_ACT_ERRNO(EPERM),
			        (const struct scmp_arg_cmp[]){is(0, bit, bit)}, 1);
	limit_sockets(f);
	for (size_t i = 0; i < PS_ARRAY_LEN(ioctls); i++)
		allow_if(f, "ioctl", equals(1, (int)ioctls[i]));
	for (size_t i = 0; i < PS_ARRAY_LEN(fcntls); i++)
		allow_if(f, "fcntl", equals(1, (int)fcntls[i]));
	limit_pids(f);
	if (!root)
		return;
	limit_open(f, "open", 1, 2);
	limit_open(f, "openat", 2, 3);
	allow_if(f, "creat", is(1, SET_ID, 0));
	allow_if(f, "mknod", is(1, SET_ID, 0));
	allow_if(f, "mknodat", is(2, SET_ID, 0));
	if (f->limits->no_truncate)
		deny(f, "truncate");
	else
		allow(f, "truncate");
	allow_if_both(f, "socketpair", equals(0, AF_UNIX), is(1, 0xf, SOCK_STREAM));
	allow_if_both(f, "socketpair", equals(0, AF_UNIX), is(1, 0xf, SOCK_SEQPACKET));
}

/* The filter --------------------------------------------------------------------------------------------- */

static void add_call(void *arg, const char *name)
{
	struct filter *f = arg;
	bool root = f->limits->root;

	switch (f->class) {
	case PS_CALL_NEEDED:
	case PS_CALL_HARMLESS:
		allow(f, name);
		break;
	case PS_CALL_ROOT_LIMITED:
		if (!root)
			allow(f, name);
		break;
	case PS_CALL_ROOT_DENIED:
		if (root)
			deny(f, name);
		else
			allow(f, name);
		break;
	case PS_CALL_DENIED:
		deny(f, name);
		break;
	case PS_CALL_LIMITED:
	case PS_CALL_ABSENT:
		break;
	}
}

scmp_filter_ctx ps_call_filter_new(const struct ps_call_limits *limits, uint32_t machine)
{
	struct filter f = {.ctx = seccomp_init(SCMP_ACT_ERRNO(ENOSYS)), .limits = limits};

	if (!f.ctx)
		return NULL;
	if (machine && machine != seccomp_arch_native()) {
		f.foreign = true;
		f.rc = seccomp_arch_add(f.ctx, machine);
		if (f.rc == 0)
			f.rc = seccomp_arch_remove(f.ctx, SCMP_ARCH_NATIVE);
	}
	/* Calls of other machines, such as those of 32 bits. */
	(void)seccomp_attr_set(f.ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS));
	/* Without it, kernels before 5.16 make all memory loads of the process slower. */
	(void)seccomp_attr_set(f.ctx, SCMP_FLTATR_CTL_SSB, 1);
	(void)seccomp_attr_set(f.ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2); /* a binary tree */
	for (size_t i = 0; i < ps_call_ngroups; i++) {
		f.class = ps_call_groups[i].class;
		ps_call_each(&ps_call_groups[i], add_call, &f);
	}
	limit_all(&f);
	if (f.rc == 0)
		return f.ctx;
	seccomp_release(f.ctx);
	return NULL;
}

int ps_call_filter(const struct ps_call_limits *limits)
{
	scmp_filter_ctx ctx = ps_call_filter_new(limits, 0);
	int rc = ctx ? seccomp_load(ctx) : -ENOMEM;

	if (ctx)
		seccomp_release(ctx);
	return rc;
}
