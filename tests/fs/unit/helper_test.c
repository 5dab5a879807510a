/* The helper does its few tasks for a daemon, and nothing else, whatever the daemon asks for. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "daemon/daemon_private.h"

static char top[] = "/tmp/penstock-helper-XXXXXX";
static char log_path[64];
static int fuse_fd; /* of no mount */

#define BAD_ID 99

/* These two replace the ioctls, in the helper. The id is the size of the file: it shows which file was
 * opened. `seen` is memory that the helper shares. */
static struct {
	int closed_id, flags;
} * seen;

int ps_backing_open(int dev_fd, int fd)
{
	struct stat st;

	(void)dev_fd;
	seen->flags = fcntl(fd, F_GETFL);
	return fstat(fd, &st) == 0 ? (int)st.st_size : -errno;
}

int ps_backing_close(int dev_fd, int id)
{
	(void)dev_fd;
	seen->closed_id = id;
	return id == BAD_ID ? -ENOENT : 0;
}

static struct ps_helper *start(void)
{
	ps_autofd int cache = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct ps_helper *h = NULL;
	struct ps_error err = {0};

	assert_int_equal(ps_helper_start(NULL, cache, -1, &h, &err), 0);
	return h;
}

static int make(const char *dir, const char *name, int nbytes)
{
	char path[160];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0 && ftruncate(fd, nbytes) == 0);
	return fd;
}

struct opener {
	struct ps_helper *helper;
	int nbytes;
	int failed;
};

static void *open_often(void *arg)
{
	struct opener *o = arg;
	char name[16];

	snprintf(name, sizeof(name), "%d", o->nbytes);
	int fd = make(top, name, o->nbytes);
	for (int i = 0; i < 500; i++)
		o->failed += ps_helper_backing.open(o->helper, fuse_fd, fd, name) != o->nbytes;
	close(fd);
	return NULL;
}

static void each_thread_gets_the_id_of_its_file(void **state)
{
	struct ps_helper *h = start();
	struct opener openers[8];
	pthread_t threads[8];

	(void)state;
	for (int i = 0; i < 8; i++) {
		openers[i] = (struct opener){.helper = h, .nbytes = 100 + i};
		assert_int_equal(pthread_create(&threads[i], NULL, open_often, &openers[i]), 0);
	}
	for (int i = 0; i < 8; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(openers[i].failed, 0);
	}
	ps_helper_free(h);
}

static void an_id_is_closed_without_a_wait(void **state)
{
	struct ps_helper *h = start();
	int fd = make(top, "seven", 7);

	(void)state;
	assert_int_equal(ps_helper_backing.close(h, fuse_fd, 4711), 0);
	/* An open comes after earlier closes. */
	assert_int_equal(ps_helper_backing.open(h, fuse_fd, fd, "seven"), 7);
	assert_int_equal(seen->closed_id, 4711);
	/* After PS_BACKING_CLOSES closes without a wait, one waits for the helper and returns the kernel's
	 * error. */
	for (int i = 0; i < PS_BACKING_CLOSES; i++)
		assert_int_equal(ps_helper_backing.close(h, fuse_fd, BAD_ID), 0);
	assert_int_equal(ps_helper_backing.close(h, fuse_fd, BAD_ID), -ENOENT);
	assert_int_equal(ps_helper_backing.close(h, fuse_fd, BAD_ID), 0);
	assert_int_equal(ps_helper_backing.open(h, fuse_fd, fd, "seven"), 7);
	ps_helper_free(h);
	close(fd);
}

/* The kernel would open these files again as any FUSE mount asks for it, with the helper's privileges. */
static void it_makes_backing_ids_of_files_in_the_cache_only(void **state)
{
	static const struct {
		const char *why, *name; /* NULL: the absolute path of the file outside */
		int errnum;
	} rows[] = {
	        {"a file of the cache", "sub/inside", 0},
	        {"an absolute path", NULL, EXDEV},
	        {"a way out", "../outside", EXDEV},
	        {"a way out, of a folder", "sub/../../outside", EXDEV},
	        {"a symbolic link", "link", ESTALE},
	        {"a symbolic link in the cache", "inner", ESTALE},
	        {"a symbolic link to a folder", "way/outside", ESTALE},
	        {"another name of a file outside", "hard", ESTALE},
	        {"a descriptor", "/proc/self/fd/0", EXDEV},
	        {"a folder", "sub", ESTALE},
	        {"a FIFO", "fifo", ESTALE},
	        {"a file that does not exist", "sub/none", ESTALE},
	        {"no name", "", ESTALE},
	        {"another file than the one that the daemon has", "sub/other", ESTALE},
	        {"a file of another user", "sub/theirs", ESTALE},
	        {"another mount", "mounted/inside", EXDEV},
	};
	char path[160], outside[96], dir[96];
	struct ps_helper *h = start();

	(void)state;
	snprintf(outside, sizeof(outside), "%s.out", top);
	assert_true(mkdir(outside, 0700) == 0 || errno == EEXIST);
	close(make(outside, "outside", 20));
	snprintf(dir, sizeof(dir), "%s/sub", top);
	assert_int_equal(mkdir(dir, 0700), 0);
	close(make(dir, "inside", 30));
	close(make(dir, "other", 40));
	ps_autofd int theirs = make(dir, "theirs", 50);
	bool root = geteuid() == 0 && fchown(theirs, 65534, 65534) == 0, mounted = false;
	snprintf(path, sizeof(path), "%s/fifo", top);
	assert_int_equal(mkfifo(path, 0600), 0);
	snprintf(path, sizeof(path), "%s/way", top);
	assert_int_equal(symlink(outside, path), 0);
	snprintf(path, sizeof(path), "%s/inner", top);
	assert_int_equal(symlink("sub/inside", path), 0);
	snprintf(outside, sizeof(outside), "%s.out/outside", top);
	snprintf(path, sizeof(path), "%s/link", top);
	assert_int_equal(symlink(outside, path), 0);
	snprintf(path, sizeof(path), "%s/hard", top);
	assert_int_equal(link(outside, path), 0);
	snprintf(path, sizeof(path), "%s/mounted", top);
	assert_int_equal(mkdir(path, 0700), 0);
	if (root)
		mounted = mount(dir, path, NULL, MS_BIND, NULL) == 0;
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		const char *name = rows[i].name ? rows[i].name : outside;

		if ((strstr(name, "theirs") && !root) || (strstr(name, "mounted") && !mounted))
			continue;
		/* The daemon has this very file open, but where the row says otherwise. */
		snprintf(path, sizeof(path), "%s%s%s", *name == '/' ? "" : top, *name == '/' ? "" : "/",
		        strcmp(name, "sub/other") == 0 ? "sub/inside" : name);
		ps_autofd int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
		ps_autofd int any = fd < 0 ? open(outside, O_RDONLY | O_CLOEXEC) : -1;
		int rc = ps_helper_backing.open(h, fuse_fd, fd < 0 ? any : fd, name);
		if (rc != (rows[i].errnum ? -rows[i].errnum : 30))
			fail_msg("%s: %d, not %d", rows[i].why, rc, -rows[i].errnum);
		if (rc > 0)
			assert_int_equal(seen->flags & O_ACCMODE, O_RDONLY);
	}
	if (mounted) {
		snprintf(path, sizeof(path), "%s/mounted", top);
		assert_int_equal(umount2(path, MNT_DETACH), 0);
	}
	ps_helper_free(h);
}

static void it_asks_nothing_of_a_device_that_is_not_fuse(void **state)
{
	static const char *const paths[] = {"/dev/null", "/dev/zero", "/", "/proc/self/status"};
	struct ps_helper *h = start();
	ps_autofd int fd = make(top, "eight", 8);

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(paths); i++) {
		ps_autofd int dev = open(paths[i], O_RDONLY | O_CLOEXEC);

		assert_true(dev >= 0);
		assert_int_equal(ps_helper_backing.open(h, dev, fd, "eight"), -EPROTO);
		seen->closed_id = 0;
		for (int k = 0; k < PS_BACKING_CLOSES; k++)
			assert_int_equal(ps_helper_backing.close(h, dev, 5), 0);
		assert_int_equal(ps_helper_backing.close(h, dev, 5), -EPROTO);
		assert_int_equal(seen->closed_id, 0);
	}
	ps_helper_free(h);
}

static unsigned open_files(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* A compromised process sends more descriptors than the one that a message may have. */
static void a_message_leaves_no_descriptor_open(void **state)
{
	struct ps_keeper_message m = {.kind = PS_KEEPER_PROGRESS};
	union {
		char buf[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	size_t sizes[] = {offsetof(struct ps_keeper_message, text) + 1, 4};
	int ends[2], fd = -1;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	for (size_t i = 0; i < PS_ARRAY_LEN(sizes); i++) {
		struct iovec iov = {&m, sizes[i]};
		struct msghdr msg = {.msg_iov = &iov,
		        .msg_iovlen = 1,
		        .msg_control = control.buf,
		        .msg_controllen = sizeof(control.buf)};
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
		unsigned before = open_files();

		*c = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
		        .cmsg_type = SCM_RIGHTS,
		        .cmsg_len = CMSG_LEN(2 * sizeof(int))};
		memcpy(CMSG_DATA(c), (const int[]){0, 1}, 2 * sizeof(int));
		assert_true(sendmsg(ends[0], &msg, 0) > 0);
		assert_int_equal(ps_keeper_receive(ends[1], 1000, &m, &fd), i == 0 ? 0 : -EPROTO);
		assert_int_equal(fd >= 0, i == 0);
		if (fd >= 0)
			close(fd);
		assert_int_equal(open_files(), before);
	}
	close(ends[0]);
	close(ends[1]);
}

static void it_mounts_nothing_but_the_first_mount(void **state)
{
	const struct ps_mountfd_options options = {.source = "x", .mountpoint = top};
	struct ps_helper *h = start();
	struct ps_error err = {0};
	int fd = -1;

	(void)state;
	assert_int_equal(ps_helper_mount(h, &options, &fd, &err), -EPERM);
	assert_int_equal(fd, -1);
	ps_helper_free(h);
}

static void it_unmounts_no_mount_of_another_kind(void **state)
{
	char place[80];
	struct stat before, after;

	(void)state;
	snprintf(place, sizeof(place), "%s/mnt", top);
	if (mkdir(place, 0700) < 0 || geteuid() != 0 || mount("none", place, "tmpfs", 0, NULL) < 0)
		return; /* not permitted here, as in a container */
	struct ps_helper *h = start();
	ps_autofd int fd = open(place, O_PATH | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(stat(place, &before), 0);
	const struct ps_mount_id id = {before.st_dev, ps_mounts_number(fd)};
	assert_true(id.number != 0);
	assert_int_equal(ps_helper_detach(h, place, id, fuse_fd), -ENOENT);
	assert_int_equal(stat(place, &after), 0);
	assert_true(before.st_dev == after.st_dev);
	ps_helper_free(h);
	assert_int_equal(umount2(place, MNT_DETACH), 0);
}

static void it_opens_the_log_s_file_again(void **state)
{
	struct ps_helper *h = start();
	char old[80];

	(void)state;
	snprintf(old, sizeof(old), "%s.old", log_path);
	assert_int_equal(rename(log_path, old), 0);
	assert_int_equal(ps_helper_reopen_log(h), 0);
	ps_log_warning("a line");
	struct stat st;
	assert_int_equal(stat(log_path, &st), 0);
	assert_true(st.st_size > 0);
	ps_helper_free(h);
}

/* The child of this process whose name is the helper's. */
static pid_t helper_pid(void)
{
	char command[160];
	long pid = 0;

	snprintf(command, sizeof(command),
	        "for p in $(cat /proc/%d/task/*/children); do grep -qx penstock-helper /proc/$p/comm && echo "
	        "$p; done",
	        (int)getpid());
	for (int tries = 0; pid == 0 && tries < 500; tries++, usleep(10000)) {
		FILE *f = popen(command, "re");
		if (f && fscanf(f, "%ld", &pid) != 1)
			pid = 0;
		if (f)
			pclose(f);
	}
	return (pid_t)pid;
}

static void a_killed_helper_is_an_error_at_once(void **state)
{
	while (waitpid(-1, NULL, 0) > 0) {
	}
	struct ps_helper *h = start();
	pid_t pid = helper_pid();
	ps_autofd int fd = make(top, "nine", 9);

	(void)state;
	assert_true(pid > 0);
	assert_int_equal(kill(pid, SIGTERM), 0); /* no effect: the daemon still has to unmount */
	assert_int_equal(ps_helper_backing.open(h, fuse_fd, fd, "nine"), 9);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(ps_helper_backing.open(h, fuse_fd, fd, "nine"), -EPIPE);
	assert_int_equal(ps_helper_backing.close(h, fuse_fd, 1), -EPIPE);
	assert_int_equal(ps_helper_detach(h, top, (struct ps_mount_id){1, 1}, -1), -EPIPE);
	ps_helper_free(h);
}

static void it_ends_with_its_daemon(void **state)
{
	while (waitpid(-1, NULL, 0) > 0) {
	}
	struct ps_helper *h = start();
	pid_t pid = helper_pid();

	(void)state;
	ps_helper_free(h); /* what a daemon's end does, too */
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static int set_up(void **state)
{
	struct ps_error err = {0};

	(void)state;
	seen = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	fuse_fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (seen == MAP_FAILED || !mkdtemp(top))
		return -1;
	snprintf(log_path, sizeof(log_path), "%s/log", top);
	return ps_log_open(log_path, PS_LOG_WARNING, "test", &err);
}

static int tear_down(void **state)
{
	char command[80];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s %s.out", top, top);
	return system(command);
}

int main(void)
{
	if (access("/dev/fuse", R_OK | W_OK) < 0) {
		puts("1..0 # SKIP /dev/fuse cannot be opened");
		return 0;
	}
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(each_thread_gets_the_id_of_its_file),
	        cmocka_unit_test(an_id_is_closed_without_a_wait),
	        cmocka_unit_test(it_makes_backing_ids_of_files_in_the_cache_only),
	        cmocka_unit_test(it_asks_nothing_of_a_device_that_is_not_fuse),
	        cmocka_unit_test(a_message_leaves_no_descriptor_open),
	        cmocka_unit_test(it_mounts_nothing_but_the_first_mount),
	        cmocka_unit_test(it_unmounts_no_mount_of_another_kind),
	        cmocka_unit_test(it_opens_the_log_s_file_again),
	        cmocka_unit_test(a_killed_helper_is_an_error_at_once),
	        cmocka_unit_test(it_ends_with_its_daemon),
	};

	return cmocka_run_group_tests_name("helper", tests, set_up, tear_down);
}
