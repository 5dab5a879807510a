/* A process in the daemon's sandbox cannot do what an attacker in a daemon would try: mount, look
 * into other processes, gain privileges, and as root change files outside of its cache. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "daemon/daemon.h"

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

static void in_sandbox(int (*fn)(void), int *ret)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		ps_autofd int dir = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		(void)ps_sandbox_enter(dir);
		_exit(fn());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	*ret = WEXITSTATUS(status);
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
	if (outside == 0)
		for (;;)
			pause();
	return outside < 0 || fd < 0 ? -1 : 0;
}

static int tear_down(void **state)
{
	char command[256];

	(void)state;
	kill(outside, SIGKILL);
	waitpid(outside, NULL, 0);
	snprintf(command, sizeof(command), "rm -rf %s %s", top, path_outside);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_process_in_the_sandbox_is_refused_what_is_dangerous),
	        cmocka_unit_test(it_has_no_capability_but_to_read_and_gains_none),
	        cmocka_unit_test(root_s_process_changes_files_of_its_cache_only),
	};

	return cmocka_run_group_tests_name("sandbox", tests, set_up, tear_down);
}
