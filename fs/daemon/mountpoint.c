#include "daemon/daemon_private.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "base/hash.h"
#include "base/strbuf.h"
#include "options/options.h"

/* Handles an existing penstock mount: refuses one that is alive or wedged, detaches a dead one. */
static int check_mounted(const char *arg, const struct ps_mount_info *info, struct ps_error *err)
{
	struct ps_mount_id id = ps_mounts_id(info->mountpoint);
	json_t *stats = NULL;
	/* Opens a file, which needs the daemon; the kernel answers a stat of the root from its cache long
	 * after the daemon died. */
	int rc = ps_mounts_stats(info, PS_TIMED_TIMEOUT_MS, &stats);

	json_decref(stats);
	if (rc == 0)
		return ps_error_set(err, EBUSY,
		        "%s: is already a penstock mount; unmount it first (penstock umount %s)", arg, arg);
	if (rc == -ETIMEDOUT)
		return ps_error_set(err, EBUSY,
		        "%s: the penstock mount here does not answer; remove it with penstock umount --force "
		        "%s",
		        arg, arg);
	if (rc != -ENOTCONN && rc != -ECONNABORTED)
		return ps_error_set(err, -rc, "%s: %s", arg, strerror(-rc));
	rc = ps_mountfd_detach(info->mountpoint, id);
	if (rc < 0)
		return ps_error_set(err, -rc,
		        "%s: the daemon of this mount has died; unmount it as root (umount -l %s)", arg, arg);
	return 0;
}

static int check_empty(const char *path, bool *ret_empty)
{
	DIR *d = opendir(path);
	const struct dirent *e;

	if (!d)
		return -errno;
	*ret_empty = true;
	while (*ret_empty && (e = readdir(d)))
		*ret_empty = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
	closedir(d);
	return 0;
}

int ps_mountpoint_check(const char *arg, bool nonempty, char **ret_path, struct ps_error *err)
{
	struct ps_mounts mounts;
	ps_autofree char *path = NULL;
	mode_t mode = 0;
	bool empty = false;
	int rc = ps_mounts_resolve(arg, &path, err);

	if (rc < 0)
		return rc;
	/* Several dead mounts may be stacked here; each round detaches one. */
	for (int round = 0; round < 8; round++) {
		rc = ps_mounts_read(NULL, false, &mounts);
		if (rc < 0)
			return ps_error_set(err, -rc, "/proc/self/mountinfo: %s", strerror(-rc));
		const struct ps_mount_info *info = ps_mounts_find(&mounts, path);
		bool mounted = info;
		rc = info ? check_mounted(arg, info, err) : 0;
		ps_mounts_fini(&mounts);
		if (rc < 0)
			return rc;
		if (!mounted)
			break;
	}
	rc = ps_timed_stat(path, PS_TIMED_TIMEOUT_MS, &mode);
	if (rc == -ENOENT)
		return ps_error_set(
		        err, ENOENT, "%s: there is no such folder; create it first (mkdir %s)", arg, arg);
	if (rc < 0)
		return ps_error_set(err, -rc, "%s: %s", arg, strerror(-rc));
	if (!S_ISDIR(mode))
		return ps_error_set(err, ENOTDIR, "%s: is not a folder", arg);
	*ret_path = realpath(path, NULL);
	if (!*ret_path)
		return ps_error_set(err, errno, "%s: %s", arg, strerror(errno));
	rc = nonempty ? 0 : check_empty(*ret_path, &empty);
	if (rc < 0)
		ps_error_set(err, -rc, "%s: %s", arg, strerror(-rc));
	else if (!nonempty && !empty)
		rc = ps_error_set(err, ENOTEMPTY,
		        "%s: is not empty; choose another folder, or add -o nonempty to hide its files", arg);
	if (rc < 0) {
		free(*ret_path);
		*ret_path = NULL;
	}
	return rc;
}

/* Mountpoints of owners ---------------------------------------------------------------------------------- */

#define PLACES_MAX 64 /* folders that are tried for a source: mounts with other credentials may use some */
#define NAME_MAX_NBYTES 40

/* Opens $TMPDIR/penstock-UID. Any user could create that name first, so the folder must belong to us. */
static int open_base(char **ret_path, struct ps_error *err)
{
	const char *tmp = getenv("TMPDIR");
	ps_autofree char *top = realpath(tmp && tmp[0] == '/' ? tmp : "/tmp", NULL);
	struct stat st;

	if (!top)
		return ps_error_set(
		        err, errno, "%s: %s; set TMPDIR to a folder", tmp ? tmp : "/tmp", strerror(errno));
	ps_autofree char *path = NULL;
	if (asprintf(&path, "%s/penstock-%u", top, (unsigned)geteuid()) < 0)
		return ps_no_memory(err);
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return ps_error_set(err, errno, "%s: cannot be created: %s; set TMPDIR to another folder",
		        path, strerror(errno));
	ps_autofd int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return ps_error_set(
		        err, errno, "%s: %s; set TMPDIR to another folder", path, strerror(errno));
	if (st.st_uid != geteuid() || st.st_mode & 022)
		return ps_error_set(err, EPERM, "%s: %s; remove it, or set TMPDIR to another folder", path,
		        st.st_uid != geteuid() ? "belongs to another user" : "other users may write to it");
	*ret_path = ps_steal_ptr(&path);
	return ps_steal_fd(&fd);
}

/* "https://host/a/train/x-{000..127}.tar" to "train-x-000..127-.tar-1a2b3c4d": a readable name, with a part
 * of the hash to make it unique. */
static void name_place(const char *source, char ret[static NAME_MAX_NBYTES + 16])
{
	struct ps_id id;
	char hex[PS_ID_HEX_LEN + 1];
	size_t n = 0, len = strlen(source);
	const char *from = source + len;

	for (int slashes = 0; from > source && len - (size_t)(from - source) < NAME_MAX_NBYTES; from--)
		if (from[-1] == '/' && ++slashes == 2)
			break;
	for (; *from; from++) {
		bool plain = isalnum((unsigned char)*from) || (strchr("._", *from) && n > 0);

		if (plain)
			ret[n++] = *from;
		else if (n > 0 && ret[n - 1] != '-')
			ret[n++] = '-';
	}
	ps_id_of_strings(&source, 1, &id);
	ps_id_hex(&id, hex);
	snprintf(ret + n, 16, "%s%.8s", n == 0 || ret[n - 1] == '-' ? "" : "-", hex);
}

/* Locks a folder if nothing is mounted there and no other process is about to mount: 0; -EBUSY without a
 * text; or another -errno. *ret_lock_fd is the folder itself; a later mount covers it. */
static int lock_place(int base_fd, const char *path, int *ret_lock_fd, struct ps_error *err)
{
	const char *name = strrchr(path, '/') + 1;
	struct ps_mounts mounts;

	if (mkdirat(base_fd, name, 0700) < 0 && errno != EEXIST)
		return ps_error_set(err, errno, "%s: cannot be created: %s", path, strerror(errno));
	/* Looks in the table first: opening a mount that does not answer would block. */
	int rc = ps_mounts_read(NULL, true, &mounts);
	if (rc < 0)
		return ps_error_set(err, -rc, "/proc/self/mountinfo: %s", strerror(-rc));
	const struct ps_mount_info *info = ps_mounts_find(&mounts, path);
	json_t *stats = NULL;
	if (info)
		rc = ps_mounts_stats(info, PS_TIMED_TIMEOUT_MS, &stats);
	json_decref(stats);
	/* Its daemon died. */
	if (info && (rc == -ENOTCONN || rc == -ECONNABORTED))
		rc = ps_mountfd_detach(path, ps_mounts_id(path));
	else if (info)
		rc = -EBUSY;
	ps_mounts_fini(&mounts);
	if (rc < 0)
		return -EBUSY;
	ps_autofd int fd = openat(base_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return ps_error_set(err, errno, "%s: %s", path, strerror(errno));
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return -EBUSY;
	/* If something was mounted between the check and the lock, fd is the root of that mount. */
	struct ps_mount_id id = ps_mounts_id(path);
	if (id.dev)
		return -EBUSY;
	*ret_lock_fd = ps_steal_fd(&fd);
	return 0;
}

int ps_mountpoint_make(const char *source, char **ret_path, int *ret_lock_fd, struct ps_error *err)
{
	ps_autofree char *base = NULL;
	ps_autofd int base_fd = open_base(&base, err);
	char name[NAME_MAX_NBYTES + 16];
	int rc = -EBUSY;

	if (base_fd < 0)
		return base_fd;
	name_place(source, name);
	for (unsigned i = 1; i <= PLACES_MAX && rc == -EBUSY; i++) {
		ps_autofree char *path = NULL;

		if ((i == 1 ? asprintf(&path, "%s/%s", base, name)
		            : asprintf(&path, "%s/%s-%u", base, name, i)) < 0)
			return ps_no_memory(err);
		rc = lock_place(base_fd, path, ret_lock_fd, err);
		if (rc == 0)
			*ret_path = ps_steal_ptr(&path);
	}
	if (rc == -EBUSY && !err->err)
		ps_error_set(err, EBUSY, "%s/%s: all %d mounts of this source are in use; unmount one", base,
		        name, PLACES_MAX);
	return rc;
}

/* True if `path` is the folder `top` or below it. Both are absolute. */
static bool within(const char *path, const char *top)
{
	size_t n = strlen(top);

	while (n > 1 && top[n - 1] == '/')
		n--;
	return strncmp(path, top, n) == 0 && (path[n] == '/' || !path[n] || n == 1);
}

int ps_mountpoint_apart(
        const char *mountpoint, const char *source, const char *cache_dir, struct ps_error *err)
{
	const char *local = strncmp(source, "file://", 7) == 0 ? source + 7 : source;
	ps_autofree char *top = local[0] == '/' ? realpath(local, NULL) : NULL;
	ps_autofree char *cache = realpath(cache_dir, NULL);

	if (top && within(mountpoint, top))
		return ps_error_set(err, EINVAL, "%s is within its own source %s; choose another folder",
		        mountpoint, top);
	if (within(cache ? cache : cache_dir, mountpoint))
		return ps_error_set(err, EINVAL,
		        "the cache %s would be hidden by the mount on %s; choose another --cache-dir",
		        cache_dir, mountpoint);
	return 0;
}

extern char **environ;

static const char device[] = "/dev/fuse";
static const char helper[] = "fusermount3";

/* Reports that this user, or (EPERM) this container, may not use the device. */
static int refuse_device(struct ps_error *err, int errnum)
{
	const struct group *group = NULL;
	char join[96] = "";
	struct stat st;

	if (errnum == EPERM || stat(device, &st) < 0)
		return ps_error_set(err, errnum, "%s: %s; a container needs --device %s --cap-add SYS_ADMIN",
		        device, strerror(errnum), device);
	if ((st.st_mode & 060) == 060 && st.st_gid != 0)
		group = getgrgid(st.st_gid);
	if (group)
		snprintf(join, sizeof(join), "join its group (usermod -aG %.32s USER), ", group->gr_name);
	return ps_error_set(err, errnum,
	        "%s: %s (mode %04o): %sas root, let all users open it (chmod 0666 %s), or mount as root",
	        device, strerror(errnum), (unsigned)(st.st_mode & 0777), join, device);
}

static int open_device(struct ps_error *err)
{
	int fd = open(device, O_RDWR | O_CLOEXEC);

	if (fd >= 0)
		return fd;
	if (errno == ENOENT || errno == ENODEV || errno == ENXIO)
		return ps_error_set(err, errno,
		        "%s does not exist: load the module (modprobe fuse); a container needs --device %s",
		        device, device);
	if (errno == EACCES || errno == EPERM)
		return refuse_device(err, errno);
	return ps_error_set(err, errno, "%s: %s", device, strerror(errno));
}

static int mount_directly(const struct ps_mountfd_options *o, int *ret_fd, struct ps_error *err)
{
	ps_autofd int fd = open_device(err);
	ps_autostrbuf struct ps_strbuf data = {0};

	if (fd < 0)
		return fd;
	ps_strbuf_addf(&data,
	        "fd=%d,rootmode=40000,user_id=%u,group_id=%u,default_permissions,max_read=%u%s%s%s", fd,
	        (unsigned)geteuid(), (unsigned)getegid(), PS_FS_READ_NBYTES,
	        o->allow_other ? ",allow_other" : "", o->security ? "," : "", o->security ? o->security : "");
	if (data.failed)
		return ps_no_memory(err);
	if (mount(o->source, o->mountpoint, "fuse.penstock", MS_RDONLY | MS_NOSUID | MS_NODEV | o->flags,
	            ps_strbuf_peek(&data)) < 0)
		return ps_error_set(err, errno, "mount on %s: %s", o->mountpoint, strerror(errno));
	*ret_fd = ps_steal_fd(&fd);
	return 0;
}

/* Receives the descriptor that fusermount3 sends through the socket; -1: none. */
static int receive_fd(int socket)
{
	char byte;
	struct iovec iov = {&byte, 1};
	union ps_fds room;
	struct msghdr msg = {.msg_iov = &iov,
	        .msg_iovlen = 1,
	        .msg_control = room.buf,
	        .msg_controllen = sizeof(room.buf)};
	ssize_t n;
	int fd = -1;

	do
		n = recvmsg(socket, &msg, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n > 0)
		(void)ps_fds_take(&msg, &fd, 1);
	return fd;
}

/* Starts fusermount3; `comm` becomes its _FUSE_COMMFD (-1: none), its stderr goes to err_fd. */
static int spawn_helper(char *const argv[], int comm, int err_fd, pid_t *ret_pid)
{
	posix_spawn_file_actions_t actions;
	static char comm_env[] = "_FUSE_COMMFD=3";
	size_t n = 0;

	while (environ[n])
		n++;
	ps_autofree char **env = calloc(n + 2, sizeof(*env));
	if (!env)
		return -ENOMEM;
	memcpy(env, environ, n * sizeof(*env));
	if (comm >= 0)
		env[n] = comm_env;
	int rc = posix_spawn_file_actions_init(&actions);
	if (rc == 0) {
		rc = posix_spawn_file_actions_adddup2(&actions, err_fd, STDERR_FILENO);
		/* dup2 onto itself keeps the descriptor and drops its close-on-exec */
		if (rc == 0 && comm >= 0)
			rc = posix_spawn_file_actions_adddup2(&actions, comm, 3);
		if (rc == 0)
			rc = posix_spawnp(ret_pid, helper, &actions, NULL, argv, env);
		posix_spawn_file_actions_destroy(&actions);
	}
	return -rc;
}

/* Reads the helper's stderr into one line, without the program's name. */
static void read_words(int fd, char *ret, size_t room)
{
	size_t n = 0;
	ssize_t got;

	while (n + 1 < room && (got = read(fd, ret + n, room - 1 - n)) > 0)
		n += (size_t)got;
	ret[n] = '\0';
	if (strncmp(ret, helper, sizeof(helper) - 1) == 0)
		memmove(ret, ret + strcspn(ret, " ") + 1, strlen(ret + strcspn(ret, " ")));
	ret[strcspn(ret, "\n")] = '\0';
}

const char *ps_fusermount_advice(const char *words)
{
	if (strstr(words, "username"))
		return " (fusermount3 needs an entry for your user ID in /etc/passwd)";
	if (strstr(words, "mtab"))
		return " (fusermount3 needs /etc/mtab; as root: ln -s /proc/self/mounts /etc/mtab)";
	return "";
}

static void add_escaped(struct ps_strbuf *b, const char *text)
{
	for (; *text; text++) {
		if (*text == ',' || *text == '\\')
			ps_strbuf_addc(b, '\\');
		ps_strbuf_addc(b, *text);
	}
}

static int run_helper(
        char *const argv[], int comm_ours, int comm_theirs, int *ret_fd, char *words, size_t room)
{
	int ends[2], status;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	ps_autofd int in = ends[0];
	int rc = spawn_helper(argv, comm_theirs, ends[1], &pid);
	close(ends[1]);
	if (comm_theirs >= 0)
		close(comm_theirs);
	if (rc < 0)
		return rc;
	if (ret_fd)
		*ret_fd = receive_fd(comm_ours);
	read_words(in, words, room);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
	}
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EPERM;
}

#ifndef MS_NOSYMFOLLOW
#define MS_NOSYMFOLLOW 256
#endif

/* As fusermount3 spells them. Those that it does not know it refuses. MS_RELATIME is the kernel's default. */
static const struct {
	unsigned long flag;
	const char *word;
} words_of[] = {{MS_NOEXEC, "noexec"}, {MS_NOATIME, "noatime"}, {MS_STRICTATIME, "strictatime"},
        {MS_NODIRATIME, "nodiratime"}, {MS_SYNCHRONOUS, "sync"}, {MS_DIRSYNC, "dirsync"},
        {MS_LAZYTIME, "lazytime"}, {MS_NOSYMFOLLOW, "nosymfollow"}};

static int mount_by_helper(const struct ps_mountfd_options *o, int *ret_fd, struct ps_error *err)
{
	ps_autostrbuf struct ps_strbuf b = {0};
	char words[256] = "";
	int sockets[2], fd = -1;

	ps_strbuf_addf(&b, "ro,nosuid,nodev,default_permissions,max_read=%u,subtype=penstock%s,",
	        PS_FS_READ_NBYTES, o->allow_other ? ",allow_other" : "");
	for (size_t i = 0; i < PS_ARRAY_LEN(words_of); i++)
		if (o->flags & words_of[i].flag)
			ps_strbuf_addf(&b, "%s,", words_of[i].word);
	if (o->security)
		ps_strbuf_addf(&b, "%s,", o->security);
	ps_strbuf_add(&b, "fsname=");
	add_escaped(&b, o->source);
	ps_autofree char *options = ps_strbuf_take(&b);
	if (!options)
		return ps_no_memory(err);
	/* The sockets are opened first: the child moves its socket to descriptor 3, which must not be another
	 * descriptor that it needs. */
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) < 0)
		return ps_error_set(err, errno, "socketpair: %s", strerror(errno));
	ps_autofd int ours = sockets[0];
	char *argv[] = {(char *)(uintptr_t)helper, (char *)(uintptr_t) "-o", options,
	        (char *)(uintptr_t) "--", (char *)(uintptr_t)o->mountpoint, NULL};
	int rc = run_helper(argv, ours, sockets[1], &fd, words, sizeof(words));
	if (rc == -ENOENT)
		return ps_error_set(err, EPERM,
		        "mount on %s: not permitted: run as root, or install fusermount3 (package fuse3)",
		        o->mountpoint);
	if (rc < 0 || fd < 0) {
		if (fd >= 0)
			close(fd);
		/* fusermount3 opens the device as the user, who has no permission. */
		if (access(device, R_OK | W_OK) < 0 && errno == EACCES)
			return refuse_device(err, EACCES);
		return ps_error_set(err, EPERM, "mount on %s: %s%s", o->mountpoint,
		        *words ? words : "fusermount3 failed", ps_fusermount_advice(words));
	}
	*ret_fd = fd;
	return 0;
}

int ps_mountfd_mount(const struct ps_mountfd_options *options, int *ret_fd, struct ps_error *err)
{
	int rc = mount_directly(options, ret_fd, err);

	/* Without the privilege, or without access to the device, the set-uid helper may still succeed. */
	if ((rc == -EPERM || rc == -EACCES) && geteuid() != 0)
		rc = mount_by_helper(options, ret_fd, err);
	else if (rc == -EPERM)
		ps_error_set(err, EPERM,
		        "mount on %s: not permitted: it needs CAP_SYS_ADMIN (a container: --device "
		        "/dev/fuse --cap-add SYS_ADMIN)",
		        options->mountpoint);
	return rc;
}

#define FUSE_MAJOR 10 /* devices.txt of the kernel: misc, 229 = /dev/fuse */
#define FUSE_MINOR 229

bool ps_mountfd_is_fuse(int fd)
{
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) &&
	       st.st_rdev == makedev(FUSE_MAJOR, FUSE_MINOR);
}

bool ps_mountfd_is_connected(int fd)
{
	struct pollfd p = {.fd = fd};

	return fd >= 0 && poll(&p, 1, 0) == 0; /* POLLERR: it has ended */
}

bool ps_mountfd_may_be(int fd, dev_t dev)
{
	char path[48], line[128];
	unsigned number = minor(dev);

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f) && sscanf(line, "fuse_connection: %u", &number) != 1) {
	}
	if (f)
		fclose(f);
	return number == minor(dev);
}

int ps_mountfd_detach(const char *mountpoint, struct ps_mount_id id)
{
	char words[256], path[40];
	ps_autofd int fd = open(mountpoint, O_PATH | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (!id.number || ps_mounts_number(fd) != id.number)
		return -ENOENT;
	/* Unmount by descriptor: between a check of the path and the unmount, another process could mount
	 * there. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (umount2(path, MNT_DETACH) == 0)
		return 0;
	if (errno != EPERM)
		return -errno;
	close(ps_steal_fd(&fd));
	char *argv[] = {(char *)(uintptr_t)helper, (char *)(uintptr_t) "-u", (char *)(uintptr_t) "-z",
	        (char *)(uintptr_t) "--", (char *)(uintptr_t)mountpoint, NULL};
	return run_helper(argv, -1, -1, NULL, words, sizeof(words));
}
