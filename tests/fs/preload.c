/* An LD_PRELOAD library between penstock and libfuse. While the file named by PENSTOCK_TEST_KILL exists,
 * fuse_reply_open() answers EINTR and returns -ENOENT, as if the opener had been killed before the reply. The
 * kernel then sends no RELEASE. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
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
