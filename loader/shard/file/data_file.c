#include "config.h"

#include "shard/file/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#define FUSE_SUPER 0x65735546

/* Copies of fs/fuse/fuse.h. */
#define IOC_PATH_NBYTES 4096
struct ioc_data_file {
	uint64_t dev, ino, nbytes;
	char path[IOC_PATH_NBYTES];
};
#define IOC_DATA_FILE _IOR(0xd7, 9, struct ioc_data_file)

/* The user who mounted the FUSE file system `dev`, as the kernel has it. False: unknown. */
static bool mount_user(dev_t dev, uid_t *ret_uid)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	ps_autofree char *line = NULL;
	size_t cap = 0;
	bool found = false;
	char wanted[32];

	snprintf(wanted, sizeof(wanted), "%u:%u", major(dev), minor(dev));
	while (f && !found && getline(&line, &cap, f) > 0) {
		const char *rest = strstr(line, " - "), *id;
		unsigned uid;
		char is[32];
		int options = 0;

		if (!rest || sscanf(line, "%*s %*s %31s", is) != 1 || strcmp(is, wanted) != 0)
			continue;
		/* The kernel's options follow the type and the source, which is any text of the mount's user;
		 * spaces in it are escaped. */
		(void)!sscanf(rest, " - %*s %*s %n", &options);
		id = options > 0 ? strstr(rest + options, ",user_id=") : NULL;
		found = id && sscanf(id, ",user_id=%u", &uid) == 1;
		if (found)
			*ret_uid = uid;
	}
	if (f)
		fclose(f);
	return found;
}

int ps_data_file_open(int shard_fd)
{
	ps_autofree struct ioc_data_file *file = NULL;
	struct statfs fs;
	struct stat shard, st;
	uid_t user;
	char path[64];

	if (fstatfs(shard_fd, &fs) < 0 || (uint32_t)fs.f_type != FUSE_SUPER || fstat(shard_fd, &shard) < 0 ||
	        !(file = calloc(1, sizeof(*file))) || ioctl(shard_fd, IOC_DATA_FILE, file) < 0 ||
	        file->path[0] != '/' || !memchr(file->path, 0, sizeof(file->path)))
		return -1;
	/* O_PATH first: the file is opened for reading after it is known which file it is, since opening a
	 * device or a pipe has effects. */
	ps_autofd int fd = open(file->path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	/* A mount of another user could name any file that this process may read, so the data file must be one
	 * that the mount's user owns. */
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_dev != file->dev ||
	        st.st_ino != file->ino || (uint64_t)st.st_size != file->nbytes ||
	        st.st_size != shard.st_size || !mount_user(shard.st_dev, &user) || st.st_uid != user)
		return -1;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, O_RDONLY | O_CLOEXEC);
}
