#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/log.h"
#include "index/rocksdb_private.h"

#define DAMAGED_NAME "DAMAGED" /* files of ours among RocksDB's */
#define PROBE_NAME "probe"

static const struct {
	const char *text;
	int errnum;
} system_errors[] = {
        {"No space left on device", ENOSPC},
        {"Disk quota exceeded", EDQUOT},
        {"Read-only file system", EROFS},
        {"Permission denied", EACCES},
        {"Operation not permitted", EPERM},
        {"Too many open files", EMFILE},
        {"Cannot allocate memory", ENOMEM},
        {"lock hold by current process", EBUSY},
        {"Resource temporarily unavailable", EBUSY},
};

int ps_kv_errno(const char *text)
{
	for (size_t i = 0; i < PS_ARRAY_LEN(system_errors); i++)
		if (strstr(text, system_errors[i].text))
			return system_errors[i].errnum;
	return EIO;
}

/* A checksum did not fit: what we have open goes on as it can, the next start moves it aside. */
static void mark_damaged(const struct ps_kv *kv)
{
	char path[PATH_MAX];

	snprintf(path, sizeof path, "%s/" DAMAGED_NAME, kv->dir);
	ps_autofd int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		ps_log_debug("index: %s: cannot be marked as damaged", kv->name);
}

int ps_kv_told(struct ps_kv *kv, const char *call, char *text)
{
	int errnum = ps_kv_errno(text);

	if (strstr(text, "Corruption"))
		mark_damaged(kv);
	ps_log_error("%s: %s: %s", call, kv->name, text);
	rocksdb_free(text);
	return -errnum;
}

int ps_kv_check_room(const struct ps_kv *kv, size_t nbytes)
{
	struct statvfs st;

	if (statvfs(kv->dir, &st) < 0)
		return 0; /* the write will tell */
	if (st.f_flag & ST_RDONLY)
		return -EROFS;
	/* RocksDB writes in the background, too: a memtable and its map. */
	return (uint64_t)st.f_bavail * st.f_frsize < nbytes + kv->memtable_nbytes + PS_MIB ? -ENOSPC : 0;
}

int ps_kv_try_to_write(const struct ps_kv *kv)
{
	static const char zeros[4096];
	char path[PATH_MAX];
	ssize_t n = -1;

	snprintf(path, sizeof path, "%s/" PROBE_NAME, kv->dir);
	ps_autofd int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	int e = fd < 0 || (n = write(fd, zeros, sizeof zeros)) < 0 || fdatasync(fd) < 0 ? -errno : 0;

	unlink(path);
	return e == 0 && n < (ssize_t)sizeof zeros ? -ENOSPC : e;
}

bool ps_kv_is_marked_damaged(const char *dir)
{
	char path[PATH_MAX];

	snprintf(path, sizeof path, "%s/" DAMAGED_NAME, dir);
	return access(path, F_OK) == 0;
}

bool ps_kv_log_dir_make(char ret_dir[static sizeof(PS_KV_LOG_DIR)])
{
	strcpy(ret_dir, PS_KV_LOG_DIR);
	return mkdtemp(ret_dir);
}

void ps_kv_log_dir_remove(const char *path)
{
	DIR *dir = opendir(path);

	for (struct dirent *d; dir && (d = readdir(dir));)
		unlinkat(dirfd(dir), d->d_name, 0); /* not "." and "..": those are folders */
	if (dir)
		closedir(dir);
	rmdir(path);
}
