#include "config.h"

#include "shard/index_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/hash.h"

#define ETAG_XATTR "user.penstock.etag"

int ps_index_version_read(const char *shard, struct ps_index_version *ret_version, struct ps_load_error *err)
{
	struct ps_index_version v = {0};
	struct stat st;
	ssize_t n;

	if (stat(shard, &st) < 0)
		return ps_load_error_set(err, errno, "%s: cannot open: %s", shard, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return ps_load_error_set(err, EINVAL, "%s: only ordinary files can have an index", shard);
	v.nbytes = (uint64_t)st.st_size;
	v.mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
	v.mode = st.st_mode;
	n = getxattr(shard, ETAG_XATTR, v.etag, sizeof(v.etag));
	v.etag_len = n > 0 ? (size_t)n : 0; /* none, too long, or a file system without: by its time */
	*ret_version = v;
	return 0;
}

bool ps_index_version_same(const struct ps_index_version *a, const struct ps_index_version *b)
{
	if (a->nbytes != b->nbytes)
		return false;
	if (a->etag_len > 0 && b->etag_len > 0)
		return a->etag_len == b->etag_len && memcmp(a->etag, b->etag, a->etag_len) == 0;
	return a->mtime_ns == b->mtime_ns;
}

char *ps_index_path(const char *shard, const char *dir, const char *suffix, struct ps_load_error *err)
{
	const char *slash = strrchr(shard, '/');
	ps_autofree char *real = NULL;
	char *path = NULL;
	int n;

	if (!dir) {
		n = asprintf(&path, "%s%s", shard, suffix);
	} else {
		real = realpath(shard, NULL);
		if (!real) {
			ps_load_error_set(err, errno, "%s: cannot open: %s", shard, strerror(errno));
			return NULL;
		}
		n = asprintf(&path, "%s/%s-%016jx%s", dir, slash ? slash + 1 : shard,
		        (uintmax_t)ps_hash(PS_HASH_BEGIN, real, strlen(real)), suffix);
	}
	if (n < 0) {
		ps_load_error_set(err, ENOMEM, "out of memory");
		return NULL;
	}
	return path;
}

static int all_write(int fd, const uint8_t *p, size_t n)
{
	while (n > 0) {
		ssize_t done = write(fd, p, n);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return -1;
		p += done;
		n -= (size_t)done;
	}
	return 0;
}

int ps_index_file_write(
        const char *path, mode_t mode, const void *data, size_t nbytes, struct ps_load_error *err)
{
	ps_autofree char *part = NULL;
	ps_autofd int fd = -1;

	if (asprintf(&part, "%s.XXXXXX", path) < 0) {
		part = NULL;
		return ps_load_error_set(err, ENOMEM, "out of memory");
	}
	fd = mkostemp(part, O_CLOEXEC);
	if (fd < 0)
		return ps_load_error_set(err, errno, "%s: cannot write: %s", path, strerror(errno));
	(void)fchmod(fd, mode & 0666); /* who may read the shard may read its index */
	if (all_write(fd, data, nbytes) < 0 || rename(part, path) < 0) {
		int r = ps_load_error_set(err, errno, "%s: cannot write: %s", path, strerror(errno));

		(void)unlink(part);
		return r;
	}
	return 0;
}
