#include "config.h"

#include "shard/index/index.h"

#include "shard/index/format.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>

#include "base/io.h"
#include "shard/file/file.h"

int ps_shard_index_version_read(
        const char *shard, struct ps_shard_index_version *ret_version, struct ps_error *err)
{
	struct stat st;

	if (stat(shard, &st) < 0)
		return ps_error_set(err, errno, "%s: cannot open: %s", shard, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return ps_error_set(err, EINVAL, "%s: only ordinary files can have an index", shard);
	*ret_version = (struct ps_shard_index_version){.nbytes = (uint64_t)st.st_size,
	        .mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
	        .mode = st.st_mode};
	return 0;
}

bool ps_shard_index_version_same(
        const struct ps_shard_index_version *a, const struct ps_shard_index_version *b)
{
	return a->nbytes == b->nbytes && a->mtime_ns == b->mtime_ns;
}

bool ps_shard_index_sha256_known(const uint8_t sha256[static PS_PSX_SHA256])
{
	static const uint8_t zeros[PS_PSX_SHA256];

	return memcmp(sha256, zeros, PS_PSX_SHA256) != 0;
}

bool ps_shard_index_fd_is_remote(int fd)
{
	static const uint32_t remote[] = {0x65735546 /* FUSE */, 0x6969 /* NFS */, 0xff534d42 /* CIFS */,
	        0xfe534d42 /* SMB2 */, 0x0bd00bd0 /* Lustre */, 0x01021997 /* 9p */, 0x00c36400 /* Ceph */,
	        0x47504653 /* GPFS */, 0x19830326 /* BeeGFS */};
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0)
		return true;
	for (size_t i = 0; i < PS_ARRAY_LEN(remote); i++)
		if ((uint32_t)fs.f_type == remote[i])
			return true;
	return false;
}

bool ps_shard_index_shard_is_here(const char *shard)
{
	char state[16];
	ssize_t n = getxattr(shard, "user.penstock.state", state, sizeof(state));
	ps_autofd int fd = -1;

	if (n >= 0)
		return n == 6 && memcmp(state, "cached", 6) == 0;
	fd = open(shard, O_PATH | O_CLOEXEC);
	return fd >= 0 && !ps_shard_index_fd_is_remote(fd);
}

int ps_shard_index_first_read(const char *shard, uint64_t *ret_first, struct ps_error *err)
{
	const struct ps_stream_options options = {.buf_nbytes = PS_STREAM_BUF_MIN, .wake_fd = -1};
	struct ps_stream *stream;
	const uint8_t *p;
	size_t n;
	int rc = ps_stream_open(shard, &options, &stream, err);

	if (rc == 0) {
		rc = ps_stream_inflate(&stream, err);
		if (rc == 0)
			rc = ps_stream_peek(stream, PS_PSX_FIRST, &p, &n, err);
		if (rc == 0)
			*ret_first = ps_psx_sum(0, p, n);
		ps_stream_free(stream);
	}
	return rc < 0 ? ps_error_prefix(err, rc, "%s", shard) : 0;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* The end of an index's name in a folder of indexes, after the shard's base name. */
#define TAIL_FORMAT "-%ju-%016jx" PS_PSX_SUFFIX

char *ps_shard_index_path(
        const char *shard, const char *dir, uint64_t nbytes, uint64_t first, struct ps_error *err)
{
	return dir ? ps_asprintf(err, "%s/%s" TAIL_FORMAT, dir, base_name(shard), (uintmax_t)nbytes,
	                     (uintmax_t)first)
	           : ps_asprintf(err, "%s%s", shard, PS_PSX_SUFFIX);
}

/* Folders ------------------------------------------------------------------------------------------------ */

struct ps_shard_index_folder {
	char *dir;
	char **names; /* sorted by their bytes */
	size_t n, cap;
	struct timespec changed;
};

static int name_compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Adds a name, if it is that of an index. */
static int folder_add(struct ps_shard_index_folder *f, const char *name)
{
	size_t n = strlen(name), suffix = strlen(PS_PSX_SUFFIX);

	if (n <= suffix || strcmp(name + n - suffix, PS_PSX_SUFFIX) != 0)
		return 0;
	if (f->n == f->cap) {
		size_t cap = PS_MAX(f->cap * 2, (size_t)64);
		char **grown = reallocarray(f->names, cap, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		f->names = grown;
		f->cap = cap;
	}
	f->names[f->n] = strdup(name);
	return f->names[f->n] ? (f->n++, 0) : -ENOMEM;
}

int ps_shard_index_folder_read(
        const char *dir, struct ps_shard_index_folder **ret_folder, struct ps_error *err)
{
	struct ps_shard_index_folder *f = calloc(1, sizeof(*f));
	DIR *d = opendir(dir);
	struct dirent *entry;
	struct stat st;
	int r = d ? 0 : -errno;

	if (!f || !(f->dir = strdup(dir)))
		r = -ENOMEM;
	if (r == 0 && fstat(dirfd(d), &st) < 0)
		r = -errno;
	if (r == 0) {
		f->changed = st.st_mtim;
		while (r == 0 && (errno = 0, entry = readdir(d)))
			r = folder_add(f, entry->d_name);
		r = r < 0 ? r : -errno;
	}
	if (d)
		closedir(d);
	if (r < 0) {
		ps_shard_index_folder_free(f);
		return ps_error_set(err, r == -ENOENT ? ENOTDIR : -r,
		        "%s: cannot read the folder of indexes: %s", dir, strerror(-r));
	}
	if (f->n > 0)
		qsort(f->names, f->n, sizeof(*f->names), name_compare);
	*ret_folder = f;
	return 0;
}

void ps_shard_index_folder_free(struct ps_shard_index_folder *f)
{
	if (!f)
		return;
	for (size_t i = 0; i < f->n; i++)
		free(f->names[i]);
	free(f->names);
	free(f->dir);
	free(f);
}

bool ps_shard_index_folder_is_current(const struct ps_shard_index_folder *f)
{
	struct stat st;

	return stat(f->dir, &st) == 0 && st.st_mtim.tv_sec == f->changed.tv_sec &&
	       st.st_mtim.tv_nsec == f->changed.tv_nsec;
}

/* The place of the first name that does not sort before this one. */
static size_t folder_seek(const struct ps_shard_index_folder *f, const char *name)
{
	size_t low = 0, high = f->n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (strcmp(f->names[mid], name) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* Finds the one of n indexes that also fits the shard's first header, and returns its place + 1; 0: none
 * fits, or the header cannot be read without a request. */
static size_t folder_pick(
        const struct ps_shard_index_folder *f, size_t at, size_t n, const char *shard, uint64_t nbytes)
{
	ps_autofree char *path = NULL;
	uint64_t first;

	if (!ps_shard_index_shard_is_here(shard) || ps_shard_index_first_read(shard, &first, NULL) < 0 ||
	        !(path = ps_shard_index_path(shard, f->dir, nbytes, first, NULL)))
		return 0;
	for (size_t i = 0; i < n; i++)
		if (strcmp(f->names[at + i], base_name(path)) == 0)
			return at + i + 1;
	return 0;
}

char *ps_shard_index_folder_find(
        const struct ps_shard_index_folder *f, const char *shard, uint64_t nbytes, struct ps_error *err)
{
	ps_autofree char *prefix = ps_asprintf(err, "%s-%ju-", base_name(shard), (uintmax_t)nbytes);
	size_t at, n = 0, len, picked;

	if (!prefix)
		return NULL;
	len = strlen(prefix);
	at = folder_seek(f, prefix);
	while (at + n < f->n && strncmp(f->names[at + n], prefix, len) == 0 &&
	        strlen(f->names[at + n]) == len + 16 + strlen(PS_PSX_SUFFIX))
		n++;
	if (n == 1)
		return ps_asprintf(err, "%s/%s", f->dir, f->names[at]);
	if (n == 0) {
		ps_error_set(err, ENOENT,
		        "%s: %s has no index of a shard of that name with %ju bytes; make it with "
		        "penstock-loader index --dir %s",
		        shard, f->dir, (uintmax_t)nbytes, f->dir);
		return NULL;
	}
	picked = folder_pick(f, at, n, shard, nbytes);
	if (picked > 0)
		return ps_asprintf(err, "%s/%s", f->dir, f->names[picked - 1]);
	ps_error_set(err, ENOTUNIQ,
	        "%s: two indexes in %s fit its name and size, %s and %s; give each dataset a folder of its "
	        "own, or remove the one that belongs to other data",
	        shard, f->dir, f->names[at], f->names[at + 1]);
	return NULL;
}

char *ps_shard_index_folder_find_longer(
        const struct ps_shard_index_folder *f, const char *shard, uint64_t nbytes, uint64_t first)
{
	ps_autofree char *prefix = ps_asprintf(NULL, "%s-", base_name(shard));
	char tail[17 + sizeof(PS_PSX_SUFFIX)];
	size_t len;

	if (!prefix)
		return NULL;
	len = strlen(prefix);
	snprintf(tail, sizeof(tail), "-%016jx" PS_PSX_SUFFIX, (uintmax_t)first);
	for (size_t i = folder_seek(f, prefix); i < f->n && strncmp(f->names[i], prefix, len) == 0; i++) {
		char *end;
		uintmax_t then = strtoumax(f->names[i] + len, &end, 10);

		if (then > nbytes && strcmp(end, tail) == 0)
			return ps_asprintf(NULL, "%s/%s", f->dir, f->names[i]);
	}
	return NULL;
}

/* Writing ------------------------------------------------------------------------------------------------ */

int ps_shard_index_file_write(
        const char *path, mode_t mode, const void *data, size_t nbytes, struct ps_error *err)
{
	ps_autofree char *part = ps_asprintf(err, "%s.XXXXXX", path);
	ps_autofd int fd = -1;
	int rc;

	if (!part)
		return -ENOMEM;
	fd = mkostemp(part, O_CLOEXEC);
	if (fd < 0)
		return ps_error_set(err, errno, "%s: cannot write: %s", path, strerror(errno));
	(void)fchmod(fd, mode & 0666); /* readers of the shard may read its index */
	rc = ps_write_all(fd, data, nbytes);
	if (rc == 0 && rename(part, path) < 0)
		rc = -errno;
	if (rc < 0) {
		(void)unlink(part);
		return ps_error_set(err, -rc, "%s: cannot write: %s", path, strerror(-rc));
	}
	return 0;
}
