/* Whole reads and writes of files. Threads: any. Blocks: on the disk. */
#ifndef PS_BASE_IO_H
#define PS_BASE_IO_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <unistd.h>

/* Reads n bytes at an offset. Returns their number, lower at the end of the file, or -errno. */
static inline ssize_t ps_pread_all(int fd, void *p, size_t n, uint64_t offset)
{
	size_t done = 0;

	while (done < n) {
		ssize_t got = pread(fd, (char *)p + done, n - done, (off_t)(offset + done));

		if (got == 0)
			break;
		if (got < 0 && errno != EINTR)
			return -errno;
		done += got > 0 ? (size_t)got : 0;
	}
	return (ssize_t)done;
}

/* 0 or -errno. */
static inline int ps_write_all(int fd, const void *p, size_t n)
{
	for (size_t done = 0; done < n;) {
		ssize_t put = write(fd, (const char *)p + done, n - done);

		if (put < 0 && errno != EINTR)
			return -errno;
		done += put > 0 ? (size_t)put : 0;
	}
	return 0;
}

#endif
