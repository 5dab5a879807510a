#include "store/store_private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/log.h"
#include "base/size.h"

#define BROKEN_NAME "index.broken-" /* 1: the newest, 2: the one before */
#define BROKEN_DEPTH 3
#define RESERVE_NAME "reserve"
#define DATA_FOLDERS 256 /* data/00 to data/ff */
#define FOLDER_NBYTES 4096

/* The whole of a small file, NUL-terminated. Returns its length or -errno. */
static ssize_t read_small(int dir_fd, const char *name, char *ret, size_t cap)
{
	ps_autofd int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	size_t n = 0;
	for (ssize_t got = 1; got > 0 && n < cap - 1; n += (size_t)got) {
		do
			got = pread(fd, ret + n, cap - 1 - n, (off_t)n);
		while (got < 0 && errno == EINTR);
		if (got < 0)
			return -errno;
	}
	ret[n] = '\0';
	return (ssize_t)n;
}

/* Writes a file atomically, also over a power cut. */
static int write_whole(int dir_fd, const char *name, const void *bytes, size_t nbytes)
{
	char tmp[64];

	snprintf(tmp, sizeof(tmp), "%s.tmp", name);
	unlinkat(dir_fd, tmp, 0);
	ps_autofd int fd = openat(dir_fd, tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	int rc = ps_datafile_write_direct(-1, fd, bytes, nbytes, 0);
	if (rc == 0 && (fsync(fd) < 0 || renameat(dir_fd, tmp, dir_fd, name) < 0 || fsync(dir_fd) < 0))
		rc = -errno;
	if (rc < 0)
		unlinkat(dir_fd, tmp, 0);
	return rc;
}

/* -ENOTEMPTY unless the folder has only files that mkfs makes, or that an earlier start may have left
 * before it wrote the marker. */
static int check_empty(int dir_fd)
{
	static const char *const known[] = {".", "..", "lost+found", "lock", PS_MARKER_NAME ".tmp"};
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	int rc = 0;

	if (!dir) {
		rc = -errno;
		if (fd >= 0)
			close(fd);
		return rc;
	}
	for (const struct dirent *d; rc == 0 && (errno = 0, d = readdir(dir));) {
		rc = -ENOTEMPTY;
		for (size_t i = 0; i < PS_ARRAY_LEN(known); i++)
			if (strcmp(d->d_name, known[i]) == 0)
				rc = 0;
	}
	if (rc == 0 && errno)
		rc = -errno;
	closedir(dir);
	return rc;
}

/* 0: the folder has Penstock's marker. -ENOENT: it has no marker, and may become a cache. */
static int check_marker(int dir_fd, const char *path, struct ps_error *err)
{
	char text[64];
	unsigned format = 0;
	ssize_t n = read_small(dir_fd, PS_MARKER_NAME, text, sizeof(text));

	if (n == -ENOENT) {
		int rc = check_empty(dir_fd);
		/* The folder is not empty: another process may just have made it a cache. So the marker is
		 * read again. */
		if (rc == -ENOTEMPTY)
			n = read_small(dir_fd, PS_MARKER_NAME, text, sizeof(text));
		if (n == -ENOENT && rc == -ENOTEMPTY)
			return ps_error_set(err, ENOTEMPTY,
			        "cache directory %s: not empty and not a Penstock cache; name another "
			        "directory",
			        path);
		if (n == -ENOENT)
			return rc < 0 ? ps_error_set(err, -rc, "cache directory %s: %s", path, strerror(-rc))
			              : -ENOENT;
	}
	if (n < 0)
		return ps_error_set(
		        err, (int)-n, "cache directory %s: its marker: %s", path, strerror((int)-n));
	if (sscanf(text, "penstock cache %u", &format) != 1 || format == 0)
		return ps_error_set(err, ENOTEMPTY,
		        "cache directory %s: its file " PS_MARKER_NAME " is not ours; name another directory",
		        path);
	if (format > PS_MARKER_FORMAT)
		return ps_error_set(err, EPROTO,
		        "cache directory %s: written by a newer version (format %u, this one knows %d); use "
		        "that version "
		        "or another directory",
		        path, format, PS_MARKER_FORMAT);
	if (format < PS_MARKER_FORMAT)
		return ps_error_set(err, EPROTO,
		        "cache directory %s: written by a version before 0.3.0, whose format is not read any "
		        "more: remove it "
		        "(rm -r), and it is filled again, or name another directory",
		        path);
	return 0;
}

/* given: a descriptor that has the lock already, or 0. */
static int take_lock(int dir_fd, const char *path, int given, int *ret_fd, struct ps_error *err)
{
	char text[32];
	ps_autofd int fd =
	        given > 0 ? given : openat(dir_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return ps_error_set(
		        err, errno, "cache directory %s: cannot be written: %s", path, strerror(errno));
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK)
			return ps_error_set(
			        err, errno, "cache directory %s: lock: %s", path, strerror(errno));
		ssize_t n = read_small(dir_fd, "lock", text, sizeof(text));
		long pid = n > 0 ? strtol(text, NULL, 10) : 0;
		return ps_error_set(err, EBUSY,
		        "cache directory %s: in use by process %ld; unmount what it serves, or name another "
		        "directory",
		        path, pid);
	}
	int n = snprintf(text, sizeof(text), "%ld\n", (long)getpid());
	/* The pid is only for the error message of another process, so a full disk is not an error. */
	if (ftruncate(fd, 0) == 0 && pwrite(fd, text, (size_t)n, 0) != n)
		ps_log_debug("lock: %s: the pid could not be written", path);
	*ret_fd = ps_steal_fd(&fd);
	return 0;
}

/* Makes the folder; its parent must exist, so that a path on an unmounted disk is an error. */
static int make_dir(const char *dir, struct ps_error *err)
{
	const char *slash = strrchr(dir, '/');
	ps_autofree char *parent = slash && slash > dir ? strndup(dir, (size_t)(slash - dir)) : NULL;

	if (mkdir(dir, 0700) == 0 || errno == EEXIST)
		return 0;
	int e = errno;
	if (e == ENOENT && parent && access(parent, F_OK) < 0)
		return ps_error_set(err, ENOENT,
		        "cache directory %s: the folder %s does not exist; create it (mkdir -p %s), or name "
		        "another "
		        "--cache-dir",
		        dir, parent, parent);
	return ps_error_set(err, e, "cache directory %s: cannot be made: %s", dir, strerror(e));
}

/* A symbolic link is followed if this user or root made it. */
static int open_dir(const char *dir, bool make, struct ps_error *err)
{
	int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
	struct stat st;

	if (lstat(dir, &st) == 0 && S_ISLNK(st.st_mode) && st.st_uid != 0 && st.st_uid != geteuid())
		return ps_error_set(err, EPERM,
		        "cache directory %s: is a link that another user made (uid %u); name another "
		        "directory",
		        dir, (unsigned)st.st_uid);
	int fd = open(dir, flags);
	if (fd < 0 && errno == ENOENT && make) {
		int rc = make_dir(dir, err);
		if (rc < 0)
			return rc;
		fd = open(dir, flags | O_NOFOLLOW);
	}
	if (fd < 0)
		return ps_error_set(err, errno, "cache directory %s: %s", dir, strerror(errno));
	return fd;
}

int ps_store_dir_sub(int dir_fd, const char *path, const char *name, struct ps_error *err)
{
	struct stat st;

	if (mkdirat(dir_fd, name, 0700) < 0 && errno != EEXIST && errno != EROFS)
		return ps_error_set(
		        err, errno, "cache directory %s/%s: cannot be made: %s", path, name, strerror(errno));
	ps_autofd int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 || fstat(fd, &st) < 0)
		return ps_error_set(err, errno, "cache directory %s/%s: %s", path, name, strerror(errno));
	if (st.st_uid != geteuid())
		return ps_error_set(err, EPERM,
		        "cache directory %s/%s: belongs to another user (uid %u); remove it, or name another "
		        "directory",
		        path, name, (unsigned)st.st_uid);
	if (st.st_mode & 077 && fchmod(fd, 0700) < 0 && errno != EROFS)
		return ps_error_set(
		        err, errno, "cache directory %s/%s: chmod: %s", path, name, strerror(errno));
	return ps_steal_fd(&fd);
}

/* Opens this user's penstock-UID in a folder that others may write to. */
static int open_own(int dir_fd, const char *path, bool make, char **ret_path, struct ps_error *err)
{
	char name[32];
	struct stat st;

	snprintf(name, sizeof(name), "penstock-%u", (unsigned)geteuid());
	if (asprintf(ret_path, "%s/%s", path, name) < 0) {
		*ret_path = NULL;
		return ps_error_set(err, ENOMEM, "out of memory");
	}
	if (!make && fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return ps_error_set(err, errno, "cache directory %s: there is no cache in it", *ret_path);
	return ps_store_dir_sub(dir_fd, path, name, err);
}

int ps_store_dir_find(const char *dir, bool make, int *ret_fd, char **ret_path, struct ps_error *err)
{
	struct stat st;
	ps_autofree char *own = NULL;
	ps_autofd int fd = open_dir(dir, make, err);
	if (fd < 0)
		return fd;
	ps_autofree char *path = realpath(dir, NULL);
	if (!path || fstat(fd, &st) < 0)
		return ps_error_set(err, errno, "cache directory %s: %s", dir, strerror(errno));
	if (st.st_uid != 0 && st.st_uid != geteuid())
		return ps_error_set(err, EPERM,
		        "cache directory %s: belongs to another user (uid %u); choose another --cache-dir, "
		        "or run "
		        "this as that user",
		        path, (unsigned)st.st_uid);
	if (!(st.st_mode & (S_IWGRP | S_IWOTH))) {
		*ret_fd = ps_steal_fd(&fd);
		*ret_path = ps_steal_ptr(&path);
		return 0;
	}
	int own_fd = open_own(fd, path, make, &own, err);
	if (own_fd < 0)
		return own_fd;
	*ret_fd = own_fd;
	*ret_path = ps_steal_ptr(&own);
	return 0;
}

void ps_store_dir_unlock(int fd)
{
	/* Another process may have a copy of the descriptor. */
	flock(fd, LOCK_UN);
	close(fd);
}

int ps_store_dir_open(const char *dir, bool must_exist, int given_lock_fd, int *ret_dir_fd, int *ret_lock_fd,
        char **ret_path, struct ps_error *err)
{
	static const char marker[] = "penstock cache 2\n";
	ps_autofd int lock_fd = -1, fd = -1;
	ps_autofree char *path = NULL;
	int rc = ps_store_dir_find(dir, !must_exist, &fd, &path, err);
	if (rc < 0)
		return rc;
	/* Checked before the lock file is made, so that a directory that is not a cache stays unchanged. */
	rc = check_marker(fd, path, err);
	if (rc == -ENOENT && must_exist)
		return ps_error_set(err, ENOENT, "cache directory %s: there is no cache in it", path);
	if (rc < 0 && rc != -ENOENT)
		return rc;
	rc = take_lock(fd, path, given_lock_fd, &lock_fd, err);
	if (rc < 0)
		return rc;
	rc = check_marker(fd, path, err);
	if (rc == -ENOENT) {
		rc = write_whole(fd, PS_MARKER_NAME, marker, sizeof(marker) - 1);
		if (rc < 0)
			ps_error_set(
			        err, -rc, "cache directory %s: cannot be written: %s", path, strerror(-rc));
	}
	if (rc < 0)
		return rc;
	*ret_dir_fd = ps_steal_fd(&fd);
	*ret_lock_fd = ps_steal_fd(&lock_fd);
	*ret_path = ps_steal_ptr(&path);
	return 0;
}

int ps_store_dir_no_room(const char *dir, int rc, uint64_t nbytes, struct ps_error *err)
{
	return ps_error_set(err, -rc,
	        "cache directory %s: %s: the cache cannot be opened without %llu MiB for its index; make "
	        "room "
	        "on that disk, or name another directory",
	        dir, strerror(-rc), (unsigned long long)(nbytes / PS_MIB));
}

/* Root's daemon cannot change the mode of a folder any more once it is in its sandbox. */
static int close_to_others(int dir_fd, const char *path, struct ps_error *err)
{
	static const char *const names[] = {"index", "data"};
	struct stat st;

	for (size_t i = 0; i < PS_ARRAY_LEN(names); i++) {
		if (fstatat(dir_fd, names[i], &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		ps_autofd int fd = ps_store_dir_sub(dir_fd, path, names[i], err);
		if (fd < 0)
			return fd;
	}
	return 0;
}

int ps_store_dir_lock(const char *dir, int *ret_dir_fd, int *lock_fd, struct ps_error *err)
{
	ps_autofree char *path = NULL;

	int rc = ps_store_dir_open(dir, false, *lock_fd, ret_dir_fd, lock_fd, &path, err);
	if (rc == 0)
		rc = close_to_others(*ret_dir_fd, path, err);
	return rc == -ENOSPC || rc == -EDQUOT ? ps_store_dir_no_room(dir, rc, PS_RESERVE_NBYTES, err) : rc;
}

int ps_store_dir_salt(int dir_fd, const char *path, uint8_t *ret_salt, size_t nbytes, struct ps_error *err)
{
	char text[256];
	ssize_t n = read_small(dir_fd, "salt", text, sizeof(text));

	if (n == (ssize_t)nbytes) {
		memcpy(ret_salt, text, nbytes);
		return 0;
	}
	if (n < 0 && n != -ENOENT)
		return ps_error_set(err, (int)-n, "cache directory %s: salt: %s", path, strerror((int)-n));
	if (n >= 0)
		ps_log_warning(
		        "store: %s: the salt was damaged; datasets with credentials are listed again", path);
	if (getrandom(ret_salt, nbytes, 0) != (ssize_t)nbytes)
		return ps_error_set(err, EIO, "cache directory %s: no random bytes for the salt", path);
	int rc = write_whole(dir_fd, "salt", ret_salt, nbytes);
	return rc < 0 ? ps_error_set(err, -rc, "cache directory %s: salt: %s", path, strerror(-rc)) : 0;
}

static bool is_older_broken_index(const char *name)
{
	static const char begin[] = BROKEN_NAME;
	size_t n = sizeof(begin) - 1;

	return strncmp(name, begin, n) == 0 && name[n] && strcmp(name + n, "1") != 0 &&
	       name[n + strspn(name + n, "0123456789")] == '\0';
}

/* Removes, as far as possible, the names for which `wanted` is true (NULL: all); depth: of nested folders. */
static void remove_in(int dir_fd, bool (*wanted)(const char *name), int depth)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return;
	}
	for (const struct dirent *d; (d = readdir(dir));) {
		if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0 ||
		        (wanted && !wanted(d->d_name)) || unlinkat(dir_fd, d->d_name, 0) == 0 || depth == 0)
			continue;
		ps_autofd int sub =
		        openat(dir_fd, d->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		if (sub >= 0)
			remove_in(sub, NULL, depth - 1);
		unlinkat(dir_fd, d->d_name, AT_REMOVEDIR);
	}
	closedir(dir);
}

int ps_store_dir_set_aside(int dir_fd, const char *path, struct ps_error *err)
{
	/* Eviction never removes an index that was moved aside, so older ones are removed here. */
	remove_in(dir_fd, is_older_broken_index, BROKEN_DEPTH);
	if ((renameat(dir_fd, BROKEN_NAME "1", dir_fd, BROKEN_NAME "2") < 0 && errno != ENOENT) ||
	        renameat(dir_fd, "index", dir_fd, BROKEN_NAME "1") < 0)
		return ps_error_set(err, errno,
		        "cache directory %s: index: cannot be moved aside: %s; remove its " BROKEN_NAME
		        "* folders",
		        path, strerror(errno));
	ps_log_warning("store: %s: the index was damaged (%s); it is now " BROKEN_NAME
	               "1, and the cache starts empty",
	        path, err->text);
	return 0;
}

void ps_store_dir_reserve(int dir_fd, uint64_t nbytes)
{
	struct statvfs vfs;
	struct stat st;

	if (nbytes == 0)
		return;
	if (fstatat(dir_fd, RESERVE_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		if ((uint64_t)st.st_size == nbytes)
			return;
		unlinkat(dir_fd, RESERVE_NAME, 0);
	}
	if (fstatvfs(dir_fd, &vfs) < 0 || (uint64_t)vfs.f_bavail * vfs.f_frsize < 2 * nbytes)
		return;
	ps_autofd int fd =
	        openat(dir_fd, RESERVE_NAME, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd >= 0 && posix_fallocate(fd, 0, (off_t)nbytes) != 0)
		unlinkat(dir_fd, RESERVE_NAME, 0);
}

bool ps_store_dir_give_up_reserve(int dir_fd)
{
	return unlinkat(dir_fd, RESERVE_NAME, 0) == 0;
}

struct usage {
	uint64_t nbytes, sorted_nbytes;
};

static void measure_in(int dir_fd, int depth, struct usage *u)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct stat st;

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return;
	}
	for (const struct dirent *d; (d = readdir(dir));) {
		const char *dot = strrchr(d->d_name, '.');
		uint64_t nbytes;

		if (strcmp(d->d_name, "..") == 0 || fstatat(fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		nbytes = (uint64_t)st.st_blocks * 512;
		if (!S_ISDIR(st.st_mode) || strcmp(d->d_name, ".") == 0) {
			bool reserve = depth == 0 && strcmp(d->d_name, RESERVE_NAME) == 0;
			u->nbytes += reserve ? 0 : nbytes;
			u->sorted_nbytes += dot && strcmp(dot, ".sst") == 0 ? nbytes : 0;
		} else if (depth < BROKEN_DEPTH && !(depth == 0 && strcmp(d->d_name, "data") == 0)) {
			ps_autofd int sub =
			        openat(fd, d->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
			if (sub >= 0)
				measure_in(sub, depth + 1, u);
		}
	}
	closedir(dir);
}

uint64_t ps_store_dir_measure(int dir_fd, int data_fd, uint64_t reserve_nbytes, uint64_t *ret_sorted_nbytes)
{
	struct usage u = {.nbytes = reserve_nbytes};
	struct stat st;
	char name[3];

	measure_in(dir_fd, 0, &u);
	for (unsigned i = 0; i < DATA_FOLDERS; i++) {
		snprintf(name, sizeof(name), "%02x", i);
		u.nbytes += fstatat(data_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0
		                    ? (uint64_t)st.st_blocks * 512
		                    : FOLDER_NBYTES;
	}
	u.nbytes += fstat(data_fd, &st) == 0 ? (uint64_t)st.st_blocks * 512 : 0;
	*ret_sorted_nbytes = u.sorted_nbytes;
	return u.nbytes;
}
