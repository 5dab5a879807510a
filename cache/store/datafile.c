#include "store/store_private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"

#define DIRECT_ALIGNMENT 4096 /* of memory, length and offset: enough for present disks */
#define PROBE_NBYTES 8192
#define NAME_LEN (2 + 1 + PS_ID_HEX_LEN + 1) /* ab/abcdef... */

static void datafile_name(const struct ps_id *id, char ret_name[static NAME_LEN])
{
	char hex[PS_ID_HEX_LEN + 1];

	ps_id_hex(id, hex);
	snprintf(ret_name, NAME_LEN, "%.2s/%s", hex, hex);
}

void ps_object_data_name(const struct ps_object *object, char ret_name[static PS_DATA_NAME_LEN])
{
	char name[NAME_LEN];

	datafile_name(&object->id, name);
	snprintf(ret_name, PS_DATA_NAME_LEN, "data/%s", name);
}

int ps_object_data_path(const struct ps_object *object, char *ret_path, size_t nbytes)
{
	char name[PS_DATA_NAME_LEN];

	ps_object_data_name(object, name);
	int n = snprintf(ret_path, nbytes, "%s/%s", object->store->dir, name);
	return n < 0 || (size_t)n >= nbytes ? -ENAMETOOLONG : 0;
}

int ps_datafile_create(int data_fd, const struct ps_id *id, uint64_t size, int *ret_fd)
{
	char name[NAME_LEN], dir[3];

	datafile_name(id, name);
	snprintf(dir, sizeof(dir), "%.2s", name);
	if (mkdirat(data_fd, dir, 0700) < 0 && errno != EEXIST)
		return -errno;
	int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
	ps_autofd int fd = openat(data_fd, name, flags, 0600);
	if (fd < 0 && errno == EEXIST && unlinkat(data_fd, name, 0) == 0)
		fd = openat(data_fd, name, flags, 0600);
	if (fd < 0)
		return -errno;
	if (size > INT64_MAX || ftruncate(fd, (off_t)size) < 0) {
		int e = size > INT64_MAX ? -EFBIG : -errno;
		unlinkat(data_fd, name, 0);
		return e;
	}
	*ret_fd = ps_steal_fd(&fd);
	return 0;
}

int ps_datafile_open(int data_fd, const struct ps_id *id, int *ret_fd, bool *ret_writable)
{
	char name[NAME_LEN];

	datafile_name(id, name);
	int fd = openat(data_fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	*ret_writable = fd >= 0;
	if (fd < 0 && (errno == EROFS || errno == EACCES))
		fd = openat(data_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

int ps_datafile_open_direct(int data_fd, const struct ps_id *id)
{
	char name[NAME_LEN];

	datafile_name(id, name);
	return openat(data_fd, name, O_WRONLY | O_DIRECT | O_CLOEXEC | O_NOFOLLOW);
}

void ps_datafile_read_ahead(int fd, bool whole)
{
	posix_fadvise(fd, 0, 0, whole ? POSIX_FADV_NORMAL : POSIX_FADV_RANDOM);
}

int ps_datafile_unlink(int data_fd, const struct ps_id *id)
{
	char name[NAME_LEN];

	datafile_name(id, name);
	return unlinkat(data_fd, name, 0) < 0 && errno != ENOENT ? -errno : 0;
}

static int write_all(int fd, const void *bytes, size_t nbytes, uint64_t offset)
{
	const char *p = bytes;

	while (nbytes > 0) {
		ssize_t n = pwrite(fd, p, nbytes, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		p += n;
		nbytes -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

int ps_datafile_write_direct(int direct_fd, int fd, const void *bytes, size_t nbytes, uint64_t offset)
{
	bool aligned = ((uintptr_t)bytes | nbytes | offset) % DIRECT_ALIGNMENT == 0;
	int rc = direct_fd >= 0 && aligned ? write_all(direct_fd, bytes, nbytes, offset) : -EINVAL;

	/* A device with larger sectors answers EINVAL. */
	return rc == -EINVAL ? write_all(fd, bytes, nbytes, offset) : rc;
}

int ps_datafile_read(int fd, void *ret_bytes, size_t nbytes, uint64_t offset)
{
	char *p = ret_bytes;

	while (nbytes > 0) {
		ssize_t n = pread(fd, p, nbytes, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -ENODATA;
		p += n;
		nbytes -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

int ps_datafile_punch(int fd, uint64_t offset, uint64_t nbytes)
{
	int rc;

	do
		rc = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)nbytes);
	while (rc < 0 && errno == EINTR);
	return rc < 0 ? -errno : 0;
}

bool ps_datafile_can_punch(int data_fd)
{
	static const char name[] = "hole";

	ps_autofd int fd = openat(data_fd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return false;
	unlinkat(data_fd, name, 0);
	return ftruncate(fd, PROBE_NBYTES) == 0 && ps_datafile_punch(fd, 0, PROBE_NBYTES) == 0;
}

int64_t ps_datafile_mtime_ns(const struct stat *st)
{
	return (int64_t)st->st_mtim.tv_sec * (int64_t)PS_NS_PER_S + st->st_mtim.tv_nsec;
}

int64_t ps_datafile_ctime_ns(const struct stat *st)
{
	return (int64_t)st->st_ctim.tv_sec * (int64_t)PS_NS_PER_S + st->st_ctim.tv_nsec;
}

static int each_in(int data_fd, const char *name,
        int (*fn)(void *arg, const struct ps_id *id, const struct stat *st), void *arg)
{
	int fd = openat(data_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? 0 : -errno;
	DIR *dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return -ENOMEM;
	}
	int e = 0;
	for (;;) {
		struct ps_id id;
		struct stat st;

		errno = 0;
		const struct dirent *d = e == 0 ? readdir(dir) : NULL;
		/* Errors are returned, because a skipped file would count as lost. */
		if (!d) {
			e = e ? e : -errno;
			closedir(dir);
			return e;
		}
		if (ps_id_parse(d->d_name, &id) < 0 || d->d_name[0] != name[0] || d->d_name[1] != name[1])
			continue;
		if (fstatat(fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
			e = errno == ENOENT ? 0 : -errno;
			continue;
		}
		if (S_ISREG(st.st_mode))
			e = fn(arg, &id, &st);
	}
}

int ps_datafile_each(
        int data_fd, int (*fn)(void *arg, const struct ps_id *id, const struct stat *st), void *arg)
{
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < 256; i++) {
		char name[3];

		snprintf(name, sizeof(name), "%02x", i);
		rc = each_in(data_fd, name, fn, arg);
	}
	return rc;
}
