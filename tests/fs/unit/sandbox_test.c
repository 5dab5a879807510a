/* A process in the daemon's sandbox cannot do what an attacker in a daemon would try: mount, look
 * into other processes, gain privileges, and as root change files outside of its cache. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <sched.h>
#include <seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "daemon/daemon.h"
#include "daemon/sandbox_calls.h"

static char top[] = "/tmp/penstock-sandbox-XXXXXX";
static const char *lacks;
static pid_t outside; /* a process of the same user that is in no sandbox */

/* Each returns 0 if it succeeded, else errno. */

static int mounts(void)
{
	return mount("none", top, "tmpfs", 0, NULL) < 0 ? errno : 0;
}

static int unmounts(void)
{
	return umount2("/proc", MNT_DETACH) < 0 ? errno : 0;
}

static int makes_a_namespace(void)
{
	return unshare(CLONE_NEWUSER) < 0 ? errno : 0;
}

static int clones_a_namespace(void)
{
	long pid = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);

	if (pid == 0)
		_exit(0);
	return pid < 0 ? errno : 0;
}

static int traces(void)
{
	return ptrace(PTRACE_SEIZE, outside, 0, 0) < 0 ? errno : 0;
}

static int reads_memory(void)
{
	char byte;
	struct iovec to = {&byte, 1}, from = {&outside, 1};

	return process_vm_readv(outside, &to, 1, &from, 1, 0) < 0 ? errno : 0;
}

static int opens_memory(void)
{
	char path[40];

	snprintf(path, sizeof(path), "/proc/%d/mem", (int)outside);
	ps_autofd int fd = open(path, O_RDWR | O_CLOEXEC);
	return fd < 0 ? errno : 0;
}

static int steals_a_descriptor(void)
{
	int pidfd = (int)syscall(SYS_pidfd_open, outside, 0);

	return syscall(SYS_pidfd_getfd, pidfd, 0, 0) < 0 ? errno : 0;
}

static int opens_a_packet_socket(void)
{
	ps_autofd int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);

	return fd < 0 ? errno : 0;
}

static int loads_bpf(void)
{
	return syscall(SYS_bpf, 0, NULL, 0) < 0 ? errno : 0;
}

static int rings(void)
{
	char params[120] = {0};

	return syscall(SYS_io_uring_setup, 1, params) < 0 ? errno : 0;
}

static int opens_a_unix_socket(void)
{
	ps_autofd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return fd < 0 ? geteuid() == 0 ? errno : EPROTO : geteuid() == 0 ? 0 : EAFNOSUPPORT;
}

static int pairs_sockets(void)
{
	int ends[2];

	return socketpair(AF_UNIX, SOCK_STREAM, 0, ends) < 0 ? errno : 0;
}

static int opens_a_tcp_socket(void)
{
	ps_autofd int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return fd < 0 ? errno : 0;
}

static int forks(void)
{
	pid_t pid = fork();
	int status;

	if (pid == 0)
		_exit(system("true") == 0 ? 0 : 1);
	return pid < 0 || waitpid(pid, &status, 0) < 0 || status != 0 ? ECHILD : 0;
}

static const struct {
	const char *why;
	int (*tries)(void);
	int errnum;    /* 0: it must succeed */
	bool by_calls; /* refused by the filter of system calls alone */
} tries[] = {
        {"a mount hides files of others", mounts, EPERM, false},
        {"so does an unmount", unmounts, EPERM, false},
        {"a user namespace gives all capabilities", makes_a_namespace, EPERM, true},
        {"so does one by clone()", clones_a_namespace, EPERM, true},
        {"another process's privileges", traces, EPERM, true},
        {"another process's secrets", reads_memory, EPERM, true},
        {"another process's code", opens_memory, EACCES, false},
        {"another process's descriptors", steals_a_descriptor, EPERM, true},
        {"the network's packets, and rare code of the kernel", opens_a_packet_socket, EAFNOSUPPORT, true},
        {"rare code of the kernel", loads_bpf, EPERM, true},
        {"calls that no filter sees", rings, EPERM, true},
        {"services start programs for root", opens_a_unix_socket, EAFNOSUPPORT, true},
        {"the helper answers by it", pairs_sockets, 0, false},
        {"requests to origins need it", opens_a_tcp_socket, 0, false},
        {"commands that print credentials need it", forks, 0, false},
};

enum where { IN_SANDBOX, WITHOUT_LANDLOCK, OUTSIDE };

/* What a unit of systemd, a container or an older kernel may do. */
static void refuse_landlock(void)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);

	for (int call = 444; call <= 446; call++) /* landlock_create_ruleset() to landlock_restrict_self() */
		if (!ctx || seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS), call, 0) < 0)
			_exit(99);
	if (seccomp_load(ctx) < 0)
		_exit(99);
	seccomp_release(ctx);
}

static void run_in(enum where where, int (*fn)(void), int *ret)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		ps_autofd int dir = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		if (where == WITHOUT_LANDLOCK)
			refuse_landlock();
		if (where != OUTSIDE)
			(void)ps_sandbox_enter(dir);
		_exit(fn());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (!WIFEXITED(status))
		fail_msg("killed by signal %d", WTERMSIG(status));
	*ret = WEXITSTATUS(status);
}

static void in_sandbox(int (*fn)(void), int *ret)
{
	run_in(IN_SANDBOX, fn, ret);
}

static void a_process_in_the_sandbox_is_refused_what_is_dangerous(void **state)
{
	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(tries); i++) {
		int rc;

		if (tries[i].by_calls && strstr(lacks, "seccomp"))
			continue;
		if (tries[i].tries == opens_memory && strstr(lacks, "landlock"))
			continue;
		in_sandbox(tries[i].tries, &rc);
		if (rc != tries[i].errnum)
			fail_msg(
			        "%s: %s, expected %s", tries[i].why, strerror(rc), strerror(tries[i].errnum));
	}
}

static uint64_t capabilities(const char *which)
{
	size_t n = strlen(which);
	char line[256];
	uint64_t value = UINT64_MAX;
	FILE *f = fopen("/proc/self/status", "re");

	while (f && fgets(line, sizeof(line), f))
		if (strncmp(line, which, n) == 0 && line[n] == ':')
			value = strtoull(line + n + 1, NULL, 16);
	if (f)
		fclose(f);
	return value;
}

static int keeps_capabilities(void)
{
	static const char *const sets[] = {"CapPrm", "CapEff", "CapInh", "CapAmb"};
	uint64_t may = geteuid() == 0 ? UINT64_C(1) << 2 : 0; /* CAP_DAC_READ_SEARCH */

	for (size_t i = 0; i < PS_ARRAY_LEN(sets); i++)
		if (capabilities(sets[i]) & ~may)
			return 1;
	return capabilities("NoNewPrivs") != 1;
}

/* A program of root has all capabilities of the bounding set, if nothing forbids that. */
static int gains_by_a_program(void)
{
	int status = system("test $((0x$(awk '/^CapEff/ {print $2}' /proc/self/status) & ~4)) = 0");

	return status != 0;
}

static void it_has_no_capability_but_to_read_and_gains_none(void **state)
{
	int rc;

	(void)state;
	in_sandbox(keeps_capabilities, &rc);
	assert_int_equal(rc, 0);
	in_sandbox(gains_by_a_program, &rc);
	assert_int_equal(rc, 0);
}

static char path_outside[64];

static int opens_for_writing(const char *path)
{
	ps_autofd int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd < 0 ? errno : 0;
}

static int writes_shadow(void)
{
	return opens_for_writing("/etc/shadow");
}

static int writes_outside(void)
{
	return opens_for_writing(path_outside);
}

static int truncates_outside(void)
{
	return truncate(path_outside, 0) < 0 ? errno : 0;
}

static int makes_outside(void)
{
	ps_autofd int fd = open("/var/penstock-sandbox-test", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	return fd < 0 ? errno : 0;
}

static int reads_outside(void)
{
	ps_autofd int fd = open(path_outside, O_RDONLY | O_CLOEXEC);

	return fd < 0 ? errno : 0;
}

static int uses_the_cache(void)
{
	char from[80], to[80];

	snprintf(from, sizeof(from), "%s/a", top);
	snprintf(to, sizeof(to), "%s/b", top);
	if (mkdir(from, 0700) < 0 || mkdir(to, 0700) < 0)
		return errno;
	snprintf(from, sizeof(from), "%s/a/f", top);
	snprintf(to, sizeof(to), "%s/b/g", top);
	ps_autofd int fd = open(from, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	return fd < 0 || write(fd, "x", 1) != 1 || rename(from, to) < 0 || truncate(to, 0) < 0 ||
	                       opens_for_writing("/dev/null") != 0
	               ? errno
	               : 0;
}

static void root_s_process_changes_files_of_its_cache_only(void **state)
{
	static const struct {
		int (*fn)(void);
		int errnum;
	} rows[] = {{writes_shadow, EACCES}, {writes_outside, EACCES}, {truncates_outside, EACCES},
	        {makes_outside, EACCES}, {reads_outside, 0}, {uses_the_cache, 0}};

	(void)state;
	if (geteuid() != 0 || strstr(lacks, "landlock"))
		return;
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		int rc;

		in_sandbox(rows[i].fn, &rc);
		if (rc != rows[i].errnum)
			fail_msg("row %zu: %s", i, strerror(rc));
	}
}

/* Every call --------------------------------------------------------------------------------------------- */

struct search {
	const char *name;
	unsigned n;
};

static void count_name(void *arg, const char *name)
{
	struct search *s = arg;

	s->n += strcmp(s->name, name) == 0;
}

static unsigned times_in_table(const char *name)
{
	struct search s = {.name = name};

	for (size_t i = 0; i < ps_call_ngroups; i++)
		ps_call_each(&ps_call_groups[i], count_name, &s);
	return s.n;
}

static void must_be_in_table(const char *where, const char *name)
{
	unsigned n = times_in_table(name);

	if (n != 1)
		fail_msg("%s: %s is in %u groups of fs/daemon/sandbox_calls.c, not in one", where, name, n);
}

static void is_in_table_once(void *arg, const char *name)
{
	(void)arg;
	must_be_in_table("the table", name);
}

/* libseccomp's tables of the machines for which there is a sandbox. */
static void every_call_of_libseccomp_is_in_the_table(void **state)
{
	static const uint32_t machines[] = {
	        SCMP_ARCH_X86_64, SCMP_ARCH_AARCH64, SCMP_ARCH_RISCV64, SCMP_ARCH_PPC64LE};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(machines); i++)
		for (int number = 0; number < 1000; number++) {
			char *name = seccomp_syscall_resolve_num_arch(machines[i], number);

			if (name)
				must_be_in_table("libseccomp", name);
			free(name);
		}
	for (size_t i = 0; i < ps_call_ngroups; i++)
		ps_call_each(&ps_call_groups[i], is_in_table_once, NULL);
}

static void mark_number(void *arg, const char *name)
{
	bool *known = arg;
	int number = ps_call_number(name);

	if (number >= 0 && number <= PS_CALL_LAST)
		known[number] = true;
}

/* From 424 on the numbers are the same on every machine, without gaps. */
static void every_number_up_to_the_last_has_a_name(void **state)
{
	bool known[PS_CALL_LAST + 1] = {false};

	(void)state;
	for (size_t i = 0; i < ps_call_ngroups; i++)
		ps_call_each(&ps_call_groups[i], mark_number, known);
	for (int number = 424; number <= PS_CALL_LAST; number++)
		if (!known[number])
			fail_msg("call %d has no name", number);
}

static void every_call_of_the_c_library_is_in_the_table(void **state)
{
	char line[256], name[64];
	unsigned n = 0;
	FILE *f = popen("echo '#include <sys/syscall.h>' | ${CC:-cc} -E -dM - 2>/dev/null", "re");

	(void)state;
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "#define SYS_%63[a-z0-9_A-Z]", name) == 1) {
			must_be_in_table("sys/syscall.h", name);
			n++;
		}
	if (f)
		pclose(f);
	print_message("# %u calls of sys/syscall.h\n", n);
}

/* The functions behind the calls, whose names differ a little. Those of 32-bit programs are left out: the filter
 * refuses all their calls. */
static void every_call_of_this_kernel_is_in_the_table(void **state)
{
	static const char *const others[] = {
	        "ni_syscall", "gethostname", "llseek", "mmap_pgoff", "sendfile64", "fadvise64_64", "vm86old"};
	char line[256], name[64];
	unsigned n = 0;
	FILE *f = fopen("/proc/kallsyms", "re");

	(void)state;
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%*s %*c __x64_sys_%63[a-z0-9_.]", name) != 1 &&
		        sscanf(line, "%*s %*c __arm64_sys_%63[a-z0-9_.]", name) != 1)
			continue;
		size_t len = strlen(name);
		const char *end = len > 2 ? name + len - 2 : name, *bare = name;
		bool skip = strchr(name, '.') || strcmp(end, "16") == 0 || strcmp(end, "32") == 0 ||
		            strncmp(name, "ia32_", 5) == 0 || strncmp(name, "old", 3) == 0 ||
		            strncmp(name, "s390_", 5) == 0;
		for (size_t i = 0; i < PS_ARRAY_LEN(others); i++)
			skip |= strcmp(name, others[i]) == 0;
		if (skip)
			continue;
		if (strncmp(name, "new", 3) == 0 && strcmp(name, "newfstatat") != 0)
			bare += 3;
		must_be_in_table("the kernel", bare);
		n++;
	}
	if (f)
		fclose(f);
	print_message("# %u calls of the kernel\n", n);
}

struct refusals {
	enum ps_call_class class;
	char text[400];
};

static void must_fail(void *arg, const char *name)
{
	struct refusals *r = arg;
	int number = ps_call_number(name), expected = r->class == PS_CALL_ABSENT ? ENOSYS : EPERM;

	if (number < 0 || *r->text)
		return;
	errno = 0;
	if (syscall(number, -1, -1, -1, -1, -1, -1) >= 0 || errno != expected)
		snprintf(r->text, sizeof(r->text), "%s: %s", name, strerror(errno));
}

/* Makes every call that is denied. It must be in the sandbox, where the calls have no effect. */
static int makes_denied_calls(void)
{
	struct refusals r = {0};

	if (prctl(PR_GET_SECCOMP) != 2)
		return 1;
	for (size_t i = 0; i < ps_call_ngroups; i++) {
		r.class = ps_call_groups[i].class;
		if (r.class == PS_CALL_DENIED || r.class == PS_CALL_ABSENT ||
		        (r.class == PS_CALL_ROOT_DENIED && geteuid() == 0))
			ps_call_each(&ps_call_groups[i], must_fail, &r);
	}
	if (*r.text)
		print_message("# succeeded: %s\n", r.text);
	/* Calls of later kernels. */
	for (int number = PS_CALL_LAST + 1; number < 600; number++)
		if (syscall(number, -1, -1, -1, -1, -1, -1) != -1 || errno != ENOSYS)
			return 3;
	return *r.text ? 2 : 0;
}

static void every_denied_call_is_refused(void **state)
{
	(void)state;
	for (enum where where = IN_SANDBOX; where <= WITHOUT_LANDLOCK && !strstr(lacks, "seccomp"); where++) {
		int rc;

		run_in(where, makes_denied_calls, &rc);
		assert_int_equal(rc, 0);
	}
}

/* What would succeed ------------------------------------------------------------------------------------- */

static int outside_fd; /* the file outside, open for reading, as the daemon can open it */
static int segment;    /* shared memory of another process */
#define P path_outside
#define FD outside_fd
#define RC(call) ((call) < 0 ? errno : 0)

static const unsigned char acl[] = {2, 0, 0, 0, 1, 0, 6, 0, 0xff, 0xff, 0xff, 0xff, 2, 0, 6, 0, 0xfe, 0xff, 0,
        0, 4, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x10, 0, 6, 0, 0xff, 0xff, 0xff, 0xff, 0x20, 0, 0, 0, 0xff,
        0xff, 0xff, 0xff};
static const struct {
	uint64_t value;
	uint32_t size, flags;
} xattr_args = {(uintptr_t) "1", 1, 0};
static const struct {
	uint64_t xflags;
	uint32_t extsize, nextents, projid, cowextsize;
} file_attr = {.xflags = 0x80 /* nodump */};
static int flag_nodump = 0x40;
static const struct timespec times[2] = {{1, 0}, {1, 0}};
static const struct timeval times_us[2] = {{1, 0}, {1, 0}};
static const char *cache_name(const char *name)
{
	static char path[96];

	snprintf(path, sizeof(path), "%s/%s", top, name);
	return path;
}

#define TRY(name, call)          \
	static int name(void)    \
	{                        \
		return RC(call); \
	}

TRY(chmod_path, chmod(P, 0666))
TRY(chmod_set_uid, chmod(P, 04755))
TRY(chmod_fd, fchmod(FD, 0666))
TRY(chmod_at, syscall(SYS_fchmodat, AT_FDCWD, P, 0666))
TRY(chmod_at2_path, syscall(ps_call_number("fchmodat2"), AT_FDCWD, P, 0666, 0))
TRY(chmod_at2_fd, syscall(ps_call_number("fchmodat2"), FD, "", 0666, AT_EMPTY_PATH))
TRY(chown_path, chown(P, (uid_t)-1, 65534))
TRY(chown_link, lchown(P, (uid_t)-1, 65534))
TRY(chown_fd, fchown(FD, (uid_t)-1, 65534))
TRY(chown_at_fd, fchownat(FD, "", (uid_t)-1, 65534, AT_EMPTY_PATH))
TRY(chown_at_path, fchownat(AT_FDCWD, P, (uid_t)-1, 65534, 0))
TRY(xattr_path, setxattr(P, "user.y", "1", 1, 0))
TRY(xattr_link, lsetxattr(P, "user.y", "1", 1, 0))
TRY(xattr_fd, fsetxattr(FD, "user.y", "1", 1, 0))
TRY(xattr_at_path, syscall(ps_call_number("setxattrat"), AT_FDCWD, P, 0, "user.y", &xattr_args, 16))
TRY(xattr_at_fd, syscall(ps_call_number("setxattrat"), FD, "", AT_EMPTY_PATH, "user.y", &xattr_args, 16))
TRY(acl_path, setxattr(P, "system.posix_acl_access", acl, sizeof(acl), 0))
TRY(acl_fd, fsetxattr(FD, "system.posix_acl_access", acl, sizeof(acl), 0))
TRY(xattr_remove_path, removexattr(P, "user.x"))
TRY(xattr_remove_link, lremovexattr(P, "user.x"))
TRY(xattr_remove_fd, fremovexattr(FD, "user.x"))
TRY(xattr_remove_at_path, syscall(ps_call_number("removexattrat"), AT_FDCWD, P, 0, "user.x"))
TRY(xattr_remove_at_fd, syscall(ps_call_number("removexattrat"), FD, "", AT_EMPTY_PATH, "user.x"))
TRY(times_path, utimensat(AT_FDCWD, P, times, 0))
TRY(times_fd, futimens(FD, times))
#ifdef SYS_utime
TRY(times_utime, syscall(SYS_utime, P, NULL))
TRY(times_utimes, syscall(SYS_utimes, P, times_us))
TRY(times_futimesat, syscall(SYS_futimesat, AT_FDCWD, P, times_us))
#endif
TRY(flags_fd, ioctl(FD, FS_IOC_SETFLAGS, &flag_nodump))
TRY(flags_ext_fd, ioctl(FD, FS_IOC_FSSETXATTR, &(struct fsxattr){.fsx_xflags = FS_XFLAG_NODUMP}))
TRY(attr_path, syscall(ps_call_number("file_setattr"), AT_FDCWD, P, &file_attr, sizeof(file_attr), 0))
TRY(attr_fd, syscall(ps_call_number("file_setattr"), FD, "", &file_attr, sizeof(file_attr), AT_EMPTY_PATH))
TRY(limit_other, prlimit(outside, RLIMIT_NOFILE, &(struct rlimit){3, 3}, NULL))
TRY(scheduler_other, sched_setscheduler(outside, SCHED_IDLE, &(struct sched_param){0}))
TRY(param_other, sched_setparam(outside, &(struct sched_param){0}))
TRY(affinity_other, syscall(SYS_sched_setaffinity, outside, 8, &(uint64_t){1}))
TRY(attr_other, syscall(SYS_sched_setattr, outside, &(uint32_t[14]){48}, 0))
TRY(priority_other, setpriority(PRIO_PROCESS, (id_t)outside, 19))
TRY(priority_group, setpriority(PRIO_PGRP, (id_t)getpgid(outside), 19))
TRY(io_priority_other, syscall(SYS_ioprio_set, 1, outside, 3 << 13))
TRY(signal_other, kill(outside, SIGURG))
TRY(signal_group, kill(-outside, SIGURG))
TRY(signal_thread, syscall(SYS_tgkill, outside, outside, SIGURG))
TRY(signal_tkill, syscall(SYS_tkill, outside, SIGURG))
TRY(signal_queue, sigqueue(outside, SIGURG, (union sigval){0}))
TRY(signal_queue_thread, syscall(SYS_rt_tgsigqueueinfo, outside, outside, SIGURG,
                                 &(siginfo_t){.si_signo = SIGURG, .si_code = SI_QUEUE}))
TRY(shared_memory, shmat(segment, NULL, 0) == (void *)-1 ? -1 : 0)
TRY(shared_memory_end, shmctl(segment, IPC_STAT, &(struct shmid_ds){0}))
TRY(queue, syscall(SYS_mq_open, "penstock-test", O_CREAT | O_RDWR, 0600, NULL))
TRY(set_uid_file, open(cache_name("s1"), O_WRONLY | O_CREAT | O_CLOEXEC, 04755))
TRY(set_uid_at, syscall(SYS_openat, AT_FDCWD, cache_name("s2"), O_WRONLY | O_CREAT, 04755))
TRY(set_uid_at2,
        syscall(SYS_openat2, AT_FDCWD, cache_name("s3"),
                &(struct open_how){.flags = O_WRONLY | O_CREAT, .mode = 04755}, sizeof(struct open_how)))
TRY(set_uid_node, mknod(cache_name("s4"), S_IFREG | 04755, 0))
TRY(set_gid_file, creat(cache_name("s5"), 02755))
TRY(datagram_pair, socketpair(AF_UNIX, SOCK_DGRAM, 0, (int[2]){0}))
TRY(lease, fcntl(FD, F_SETLEASE, F_RDLCK))
TRY(write_path, open(P, O_WRONLY | O_CLOEXEC))
TRY(write_reopened, open(cache_name("../../proc/self/fd/9"), O_WRONLY | O_CLOEXEC))
TRY(truncate_path, truncate(P, 0))
TRY(truncate_read_only, open(P, O_RDONLY | O_TRUNC | O_CLOEXEC))
TRY(unlink_path, unlink(P))
TRY(rename_path, rename(P, cache_name("r")))
TRY(rename_over, rename(cache_name("mine"), P))
TRY(link_path, link(P, cache_name("l")))
TRY(link_outside, link(cache_name("mine"), "/var/penstock-sandbox-test"))
TRY(symlink_outside, symlink("/", "/var/penstock-sandbox-test"))
TRY(mkdir_outside, mkdir("/var/penstock-sandbox-test", 0700))
TRY(fifo_outside, mkfifo("/var/penstock-sandbox-test", 0600))

static int signal_pidfd(void)
{
	ps_autofd int pidfd = (int)syscall(SYS_pidfd_open, outside, 0);

	return RC(syscall(SYS_pidfd_send_signal, pidfd, SIGURG, NULL, 0));
}

/* SIGURG is sent for urgent data, with any number that F_SETSIG names. */
static int signal_by_owner(void)
{
	ps_autofd int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return RC(fcntl(fd, F_SETOWN, outside));
}

static int signal_by_ioctl(void)
{
	ps_autofd int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return RC(ioctl(fd, FIOSETOWN, &outside));
}

static int signal_number(void)
{
	int ends[2];

	return pipe(ends) < 0 ? EPROTO : RC(fcntl(ends[0], F_SETSIG, SIGKILL));
}

static int device(void)
{
	ps_autofd int fd = open("/dev/loop-control", O_RDONLY | O_CLOEXEC);

	return fd < 0 ? EACCES : RC(ioctl(fd, 0x4c82)); /* LOOP_CTL_GET_FREE: makes a device */
}

#define BY_LANDLOCK true
#define ROOT_ONLY true
static const struct {
	const char *name;
	int (*tries)(void);
	bool by_landlock; /* only landlock refuses it */
	bool others_may;  /* a user's daemon may do it to the user's own files */
} attacks[] = {
#define ATTACK(fn)                    \
	{                             \
#fn, fn, false, false \
	}
#define ATTACK_ROOT(fn)                   \
	{                                 \
#fn, fn, false, ROOT_ONLY \
	}
#define ATTACK_FILES(fn)                        \
	{                                       \
#fn, fn, BY_LANDLOCK, ROOT_ONLY \
	}
        ATTACK_ROOT(chmod_path),
        ATTACK_ROOT(chmod_set_uid),
        ATTACK_ROOT(chmod_fd),
        ATTACK_ROOT(chmod_at),
        ATTACK_ROOT(chmod_at2_path),
        ATTACK_ROOT(chmod_at2_fd),
        ATTACK_ROOT(chown_path),
        ATTACK_ROOT(chown_link),
        ATTACK_ROOT(chown_fd),
        ATTACK_ROOT(chown_at_fd),
        ATTACK_ROOT(chown_at_path),
        ATTACK_ROOT(xattr_path),
        ATTACK_ROOT(xattr_link),
        ATTACK_ROOT(xattr_fd),
        ATTACK_ROOT(xattr_at_path),
        ATTACK_ROOT(xattr_at_fd),
        ATTACK_ROOT(acl_path),
        ATTACK_ROOT(acl_fd),
        ATTACK_ROOT(xattr_remove_path),
        ATTACK_ROOT(xattr_remove_link),
        ATTACK_ROOT(xattr_remove_fd),
        ATTACK_ROOT(xattr_remove_at_path),
        ATTACK_ROOT(xattr_remove_at_fd),
        ATTACK_ROOT(times_path),
        ATTACK_ROOT(times_fd),
#ifdef SYS_utime
        ATTACK_ROOT(times_utime),
        ATTACK_ROOT(times_utimes),
        ATTACK_ROOT(times_futimesat),
#endif
        ATTACK(flags_fd),
        ATTACK(flags_ext_fd),
        ATTACK_ROOT(attr_path),
        ATTACK_ROOT(attr_fd),
        ATTACK(limit_other),
        ATTACK(scheduler_other),
        ATTACK(param_other),
        ATTACK(affinity_other),
        ATTACK(attr_other),
        ATTACK(priority_other),
        ATTACK(priority_group),
        ATTACK(io_priority_other),
        ATTACK(signal_other),
        ATTACK(signal_group),
        ATTACK(signal_thread),
        ATTACK(signal_tkill),
        ATTACK(signal_queue),
        ATTACK(signal_queue_thread),
        ATTACK(signal_pidfd),
        ATTACK(signal_by_owner),
        ATTACK(signal_by_ioctl),
        ATTACK(signal_number),
        ATTACK(shared_memory),
        ATTACK(shared_memory_end),
        ATTACK(queue),
        ATTACK(device),
        ATTACK(lease),
        ATTACK_ROOT(set_uid_file),
        ATTACK_ROOT(set_uid_at),
        ATTACK_ROOT(set_uid_at2),
        ATTACK_ROOT(set_uid_node),
        ATTACK_ROOT(set_gid_file),
        ATTACK_ROOT(datagram_pair),
        ATTACK_FILES(write_path),
        ATTACK_FILES(write_reopened),
        ATTACK_FILES(truncate_path),
        ATTACK_FILES(truncate_read_only),
        ATTACK_FILES(unlink_path),
        ATTACK_FILES(rename_path),
        ATTACK_FILES(rename_over),
        ATTACK_FILES(link_path),
        ATTACK_FILES(link_outside),
        ATTACK_FILES(symlink_outside),
        ATTACK_FILES(mkdir_outside),
        ATTACK_FILES(fifo_outside),
};

/* A fresh file outside, a file of the cache to rename, and another process. */
static void prepare(struct stat *ret)
{
	char command[256];

	snprintf(command, sizeof(command),
	        "rm -rf %s %s/s? %s/r %s/l %s/mine /var/penstock-sandbox-test /dev/mqueue/penstock-test", P,
	        top, top, top, top);
	assert_int_equal(system(command), 0);
	outside = fork();
	if (outside == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setsid();
		for (;;)
			pause();
	}
	assert_true(outside > 0);
	while (getpgid(outside) != outside)
		usleep(1000);
	close(open(P, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	ps_autofd int fd = open(P, O_WRONLY | O_CLOEXEC);
	assert_int_equal(write(fd, "secret", 6), 6);
	(void)fsetxattr(fd, "user.x", "1", 1, 0);
	close(open(cache_name("mine"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	outside_fd = dup2(open(P, O_RDONLY | O_CLOEXEC), 9);
	assert_int_equal(fstat(outside_fd, ret), 0);
}

static bool unchanged(const struct stat *before)
{
	struct stat st, named;
	char value;

	return fstat(FD, &st) == 0 && stat(P, &named) == 0 && named.st_ino == st.st_ino &&
	       st.st_mode == before->st_mode && st.st_uid == before->st_uid && st.st_gid == before->st_gid &&
	       st.st_size == before->st_size && st.st_nlink == before->st_nlink &&
	       st.st_mtime == before->st_mtime && st.st_ctim.tv_nsec == before->st_ctim.tv_nsec &&
	       st.st_ctime == before->st_ctime && fgetxattr(FD, "user.y", &value, 1) < 0;
}

/* In the sandbox nothing succeeds. Without landlock, what seccomp alone refuses. Outside of it, as a control, all
 * of it, unless this kernel or file system does not know it. */
static void what_uid_0_may_do_is_refused(void **state)
{
	unsigned ncontrol = 0;

	(void)state;
	if (strstr(lacks, "seccomp"))
		return;
	kill(outside, SIGKILL);
	waitpid(outside, NULL, 0);
	segment = shmget(IPC_PRIVATE, 4096, 0600);
	assert_true(segment >= 0);
	for (enum where where = IN_SANDBOX; where <= OUTSIDE; where++)
		for (size_t i = 0; i < PS_ARRAY_LEN(attacks); i++) {
			struct stat before;
			bool landlock = where == IN_SANDBOX && !strstr(lacks, "landlock");
			int rc;

			if (where != OUTSIDE && geteuid() != 0 && attacks[i].others_may)
				continue;
			if (where != OUTSIDE && attacks[i].by_landlock && !landlock)
				continue;
			prepare(&before);
			run_in(where, attacks[i].tries, &rc);
			if (where == OUTSIDE)
				ncontrol += rc == 0;
			bool whole = unchanged(&before);
			kill(outside, SIGKILL);
			waitpid(outside, NULL, 0);
			outside = -1;
			close(outside_fd);
			if (where != OUTSIDE && rc == 0)
				fail_msg("%s%s: succeeded", attacks[i].name, landlock ? "" : ", no landlock");
			if (where != OUTSIDE && !whole)
				fail_msg("%s: it failed (%s), but the file outside has changed",
				        attacks[i].name, strerror(rc));
			if (where == OUTSIDE && rc != 0)
				print_message("# %s: %s outside of the sandbox, too\n", attacks[i].name,
				        strerror(rc));
		}
	shmctl(segment, IPC_RMID, NULL);
	(void)syscall(SYS_mq_unlink, "penstock-test");
	(void)remove("/var/penstock-sandbox-test");
	print_message("# %u of %zu succeed outside of the sandbox\n", ncontrol, PS_ARRAY_LEN(attacks));
	if (geteuid() == 0)
		assert_true(ncontrol >= 60);
}

/* Other machines ----------------------------------------------------------------------------------------- */

#define FILTER_MAX 8192

/* Runs a filter as the kernel does, with the instructions that libseccomp writes. */
static uint32_t decide(const struct sock_filter *code, size_t n, const struct seccomp_data *data)
{
	uint32_t a = 0;

	for (size_t i = 0; i < n; i++) {
		const struct sock_filter *c = &code[i];

		switch (c->code) {
		case BPF_LD | BPF_W | BPF_ABS:
			assert_true(c->k + 4 <= sizeof(*data));
			memcpy(&a, (const char *)data + c->k, 4);
			break;
		case BPF_ALU | BPF_AND | BPF_K:
			a &= c->k;
			break;
		case BPF_JMP | BPF_JA:
			i += c->k;
			break;
		case BPF_JMP | BPF_JEQ | BPF_K:
			i += a == c->k ? c->jt : c->jf;
			break;
		case BPF_JMP | BPF_JGT | BPF_K:
			i += a > c->k ? c->jt : c->jf;
			break;
		case BPF_JMP | BPF_JGE | BPF_K:
			i += a >= c->k ? c->jt : c->jf;
			break;
		case BPF_RET | BPF_K:
			return c->k;
		default:
			fail_msg("instruction %#x", c->code);
		}
	}
	fail_msg("the filter has no end");
	return 0;
}

#define ERRNO(number) (SECCOMP_RET_ERRNO | (number))

struct machine {
	uint32_t arch;
	const char *name;
	struct ps_call_limits limits;
	enum ps_call_class class;
	struct sock_filter code[FILTER_MAX];
	size_t n;
	unsigned nchecked, nabsent;
};

static uint32_t decide_call(const struct machine *m, int number, uint64_t first, uint64_t second)
{
	const struct seccomp_data data = {.nr = number, .arch = m->arch, .args = {first, second}};

	return decide(m->code, m->n, &data);
}

static void decides_by_the_table(void *arg, const char *name)
{
	static const struct {
		uint32_t root, user;
	} expected[] = {
	        [PS_CALL_NEEDED] = {SECCOMP_RET_ALLOW, SECCOMP_RET_ALLOW},
	        [PS_CALL_HARMLESS] = {SECCOMP_RET_ALLOW, SECCOMP_RET_ALLOW},
	        [PS_CALL_ROOT_LIMITED] = {0, SECCOMP_RET_ALLOW},
	        [PS_CALL_ROOT_DENIED] = {ERRNO(EPERM), SECCOMP_RET_ALLOW},
	        [PS_CALL_DENIED] = {ERRNO(EPERM), ERRNO(EPERM)},
	        [PS_CALL_ABSENT] = {ERRNO(ENOSYS), ERRNO(ENOSYS)},
	        [PS_CALL_LIMITED] = {0, 0},
	};
	struct machine *m = arg;
	uint32_t right = m->limits.root ? expected[m->class].root : expected[m->class].user;
	int number = seccomp_syscall_resolve_name_arch(m->arch, name);

	if (number < 0 && m->arch == seccomp_arch_native())
		number = ps_call_number(name);
	if (number < 0) {
		m->nabsent++; /* the machine has no such call, or libseccomp does not know it */
		return;
	}
	if (!right)
		return;
	uint32_t got = decide_call(m, number, 0, 0);
	if (got != right)
		fail_msg("%s: %s: %#x, not %#x", m->name, name, got, right);
	m->nchecked++;
}

/* Calls that a machine has under another name are its callers' only way: it must have one of each row. */
static void has_what_the_daemon_needs(const struct machine *m)
{
	static const char *const needed[] = {"read", "openat", "newfstatat", "statx", "unlinkat", "renameat2",
	        "mkdirat", "ppoll", "pselect6", "epoll_pwait", "futex", "mmap", "clone", "execve",
	        "rt_sigaction", "connect", "sendmsg", "recvmsg", "clock_nanosleep", "getrandom", "faccessat",
	        "readlinkat", "pipe2", "eventfd2", "inotify_init1", "dup3"};

	for (size_t i = 0; i < PS_ARRAY_LEN(needed); i++) {
		int number = seccomp_syscall_resolve_name_arch(m->arch, needed[i]);

		if (number < 0 || decide_call(m, number, 0, 0) != SECCOMP_RET_ALLOW)
			fail_msg("%s: %s is not allowed", m->name, needed[i]);
	}
}

/* The arguments of calls with limits are at the same places on each machine. */
static void limits_hold(const struct machine *m)
{
	const struct {
		const char *name;
		uint64_t first, second;
		uint32_t right;
	} rows[] = {
	        {"clone", SIGCHLD, 0, SECCOMP_RET_ALLOW},
	        {"clone", CLONE_NEWUSER | SIGCHLD, 0, ERRNO(EPERM)},
	        {"socket", AF_INET, SOCK_STREAM, SECCOMP_RET_ALLOW},
	        {"socket", AF_PACKET, SOCK_RAW, ERRNO(EAFNOSUPPORT)},
	        {"socket", AF_UNIX, SOCK_STREAM, m->limits.root ? ERRNO(EAFNOSUPPORT) : SECCOMP_RET_ALLOW},
	        {"ioctl", 0, FIONBIO, SECCOMP_RET_ALLOW},
	        {"ioctl", 0, FS_IOC_SETFLAGS, ERRNO(ENOSYS)},
	        {"fcntl", 0, F_SETFL, SECCOMP_RET_ALLOW},
	        {"fcntl", 0, F_SETOWN, ERRNO(ENOSYS)},
	        {"prlimit64", 1, RLIMIT_NOFILE, ERRNO(EPERM)},
	        {"sched_setaffinity", 1, 8, ERRNO(EPERM)},
	        {"setpriority", PRIO_PROCESS, 1, ERRNO(EPERM)},
	        {"kill", 1, SIGURG, m->limits.scoped ? SECCOMP_RET_ALLOW : ERRNO(ENOSYS)},
	        {"kill", (uint64_t)getpid(), SIGURG, SECCOMP_RET_ALLOW},
	};

	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		int number = seccomp_syscall_resolve_name_arch(m->arch, rows[i].name);
		uint32_t got = decide_call(m, number, rows[i].first, rows[i].second);

		if (number < 0 || got != rows[i].right)
			fail_msg("%s: %s, row %zu: %#x, not %#x", m->name, rows[i].name, i, got,
			        rows[i].right);
	}
}

static void the_filter_is_right_on_other_machines(void **state)
{
	static const struct {
		uint32_t arch;
		const char *name;
		unsigned nchecked; /* at least, with libseccomp 2.5.4 */
	} machines[] = {{SCMP_ARCH_X86_64, "x86_64", 300}, {SCMP_ARCH_AARCH64, "aarch64", 240}};
	static struct machine m;

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(machines); i++)
		for (unsigned bits = 0; bits < 8; bits++) {
			m = (struct machine){.arch = machines[i].arch,
			        .name = machines[i].name,
			        .limits = {.root = bits & 1, .scoped = bits & 2, .no_truncate = bits & 4}};
			FILE *f = tmpfile();
			assert_non_null(f);
			scmp_filter_ctx ctx = ps_call_filter_new(&m.limits, m.arch);
			assert_non_null(ctx);
			assert_int_equal(seccomp_export_bpf(ctx, fileno(f)), 0);
			seccomp_release(ctx);
			rewind(f);
			m.n = fread(m.code, sizeof(m.code[0]), FILTER_MAX, f);
			fclose(f);
			assert_true(m.n > 0 && m.n < FILTER_MAX);
			for (size_t g = 0; g < ps_call_ngroups; g++) {
				m.class = ps_call_groups[g].class;
				ps_call_each(&ps_call_groups[g], decides_by_the_table, &m);
			}
			has_what_the_daemon_needs(&m);
			limits_hold(&m);
			if (bits == 1)
				print_message("# %s: %u calls are right, %u absent\n", m.name, m.nchecked,
				        m.nabsent);
			assert_true(m.nchecked >= machines[i].nchecked);
			/* Another machine's numbers mean other calls. */
			m.arch = SCMP_ARCH_X86;
			assert_int_equal(decide_call(&m, 3, 0, 0), ERRNO(ENOSYS));
		}
}

static int enters(void)
{
	ps_autofd int dir = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const char *text = ps_sandbox_enter(dir);

	return !*text                                                ? 0
	       : strstr(text, "seccomp") && strstr(text, "landlock") ? 3
	       : strstr(text, "seccomp")                             ? 1
	                                                             : 2;
}

static int set_up(void **state)
{
	static const char *const texts[] = {"", "seccomp", "landlock", "seccomp and landlock"};
	int status;

	(void)state;
	if (!mkdtemp(top))
		return -1;
	snprintf(path_outside, sizeof(path_outside), "%s.out", top);
	ps_autofd int fd = open(path_outside, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	pid_t pid = fork();
	if (pid == 0)
		_exit(enters());
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) > 3)
		return -1;
	lacks = texts[WEXITSTATUS(status)];
	print_message("# the sandbox lacks: %s\n", *lacks ? lacks : "nothing");
	outside = fork();
	if (outside == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	return outside < 0 || fd < 0 ? -1 : 0;
}

static int tear_down(void **state)
{
	char command[256];

	(void)state;
	if (outside > 0) {
		kill(outside, SIGKILL);
		waitpid(outside, NULL, 0);
	}
	snprintf(command, sizeof(command), "rm -rf %s %s", top, path_outside);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_process_in_the_sandbox_is_refused_what_is_dangerous),
	        cmocka_unit_test(it_has_no_capability_but_to_read_and_gains_none),
	        cmocka_unit_test(root_s_process_changes_files_of_its_cache_only),
	        cmocka_unit_test(every_call_of_libseccomp_is_in_the_table),
	        cmocka_unit_test(every_number_up_to_the_last_has_a_name),
	        cmocka_unit_test(every_call_of_the_c_library_is_in_the_table),
	        cmocka_unit_test(every_call_of_this_kernel_is_in_the_table),
	        cmocka_unit_test(every_denied_call_is_refused),
	        cmocka_unit_test(what_uid_0_may_do_is_refused),
	        cmocka_unit_test(the_filter_is_right_on_other_machines),
	};

	return cmocka_run_group_tests_name("sandbox", tests, set_up, tear_down);
}
