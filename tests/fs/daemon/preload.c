/* An LD_PRELOAD library between penstock and its libraries.
 *
 * While the file named by PENSTOCK_TEST_KILL exists, fuse_reply_open() answers EINTR and returns -ENOENT, as
 * if the opener had been killed before the reply. The kernel then sends no RELEASE.
 *
 * While PENSTOCK_TEST_SLOW names a file, each fstatat() takes 0.2 s and writes 4 KiB to it, as on a slow
 * disk. While it names a folder, nothing is written, as with a disk that hangs.
 *
 * While the file named by PENSTOCK_TEST_SLOW_KEEPER exists, each message to the keeper is sent 0.2 s late. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuse/handshake.h"

__attribute__((visibility("default"))) int fuse_reply_open(fuse_req_t req, const struct fuse_file_info *fi)
{
	const char *path = getenv("PENSTOCK_TEST_KILL");
	void *symbol = dlsym(RTLD_NEXT, "fuse_reply_open");
	int (*next)(fuse_req_t, const struct fuse_file_info *);

	if (path && access(path, F_OK) == 0) {
		fuse_reply_err(req, EINTR);
		return -ENOENT;
	}
	memcpy(&next, &symbol, sizeof(next));
	return next(req, fi);
}

__attribute__((visibility("default"))) int fstatat(int dir_fd, const char *name, struct stat *ret, int flags)
{
	static const char zeros[4096];
	const char *path = getenv("PENSTOCK_TEST_SLOW");
	void *symbol = dlsym(RTLD_NEXT, "fstatat");
	int (*next)(int, const char *, struct stat *, int);

	if (path && access(path, F_OK) == 0) {
		int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);

		poll(NULL, 0, 200);
		if (fd >= 0 && write(fd, zeros, sizeof(zeros)) < 0)
			abort();
		if (fd >= 0)
			close(fd);
	}
	memcpy(&next, &symbol, sizeof(next));
	return next(dir_fd, name, ret, flags);
}

__attribute__((visibility("default"))) ssize_t sendmsg(int sock, const struct msghdr *message, int flags)
{
	const char *path = getenv("PENSTOCK_TEST_SLOW_KEEPER");
	void *symbol = dlsym(RTLD_NEXT, "sendmsg");
	ssize_t (*next)(int, const struct msghdr *, int);
	int type = 0;

	if (path && getsockopt(sock, SOL_SOCKET, SO_TYPE, &type, &(socklen_t){sizeof(type)}) == 0 &&
	        type == SOCK_SEQPACKET && access(path, F_OK) == 0)
		poll(NULL, 0, 200);
	memcpy(&next, &symbol, sizeof(next));
	return next(sock, message, flags);
}
