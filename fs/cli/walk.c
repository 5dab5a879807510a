#include "cli/walk.h"

#include <errno.h>
#include <fnmatch.h>
#include <fts.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/process.h"
#include "daemon/daemon.h"

static int by_name(const FTSENT **a, const FTSENT **b)
{
	return strcmp((*a)->fts_name, (*b)->fts_name);
}

/* The text for an errno. Those of a mount without a daemon need texts of our own: strerror()'s are about
 * sockets. */
static const char *why_not(int errnum)
{
	if (errnum == EPERM)
		return "only root and the owner of the mount may do this";
	return errnum == ENOTCONN || errnum == ECONNABORTED ? ps_mounts_why_not(-errnum) : strerror(errnum);
}

int ps_walk_check_used(const char *const *globs, size_t nglobs, const bool *used, struct ps_error *err)
{
	for (size_t i = 0; i < nglobs; i++)
		if (!used[i])
			return ps_error_set(err, ENOENT, "no file matches '%s'", globs[i]);
	return 0;
}

static bool has(const char *path, const char *attribute)
{
	return getxattr(path, attribute, NULL, 0) >= 0;
}

/* True for the folder of a shard's members (--members): it is fetched, evicted and pinned as the shard is. */
static bool is_shard(const char *path, uint64_t *ret_size)
{
	char text[32] = "";

	if (getxattr(path, "user.penstock.size", text, sizeof(text) - 1) < 0)
		return false;
	*ret_size = strtoull(text, NULL, 10);
	return true;
}

/* True if the shard is beside the folder of its members (--members=both). Then the shard is visited as a
 * file. */
static bool has_shard_beside(const char *path)
{
	ps_autofree char *file = NULL;
	struct stat st;

	if (asprintf(&file, "%s.tar", path) < 0)
		file = NULL;
	return file && stat(file, &st) == 0 && S_ISREG(st.st_mode);
}

int ps_walk_mount(const char *mountpoint, const char *const *globs, size_t nglobs, ps_walk_fn fn, void *arg,
        struct ps_error *err)
{
	ps_autofree char *top = ps_need(strdup(mountpoint));
	ps_autofree bool *used = ps_need(calloc(nglobs ? nglobs : 1, sizeof(*used)));
	char *const tops[] = {top, NULL};
	bool seen = false; /* a file */
	int rc = 0;
	FTSENT *e;

	FTS *fts = fts_open(tops, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, by_name);
	if (!fts)
		return ps_error_set(err, errno, "%s: %s", mountpoint, strerror(errno));
	while (rc == 0 && (e = fts_read(fts))) {
		const char *path = e->fts_path + strlen(top);

		while (*path == '/')
			path++;
		if (e->fts_info == FTS_DNR || e->fts_info == FTS_ERR || e->fts_info == FTS_NS)
			rc = ps_error_set(err, e->fts_errno, "%s: %s", e->fts_path, why_not(e->fts_errno));
		uint64_t size = (uint64_t)e->fts_statp->st_size;
		bool shard = e->fts_info == FTS_D && is_shard(e->fts_path, &size);
		if (shard)
			fts_set(fts, e, FTS_SKIP);
		shard = shard && !has_shard_beside(e->fts_path);
		if (rc == 0 && e->fts_info == FTS_F && !seen && has(e->fts_path, "user.penstock.key"))
			rc = ps_error_set(err, EOPNOTSUPP,
			        "%s: the mount shows the members of all shards in one tree; give the SOURCE, "
			        "or a "
			        "mount of it without --members=merge",
			        mountpoint);
		seen |= e->fts_info == FTS_F;
		if (rc < 0 || (e->fts_info != FTS_F && !shard))
			continue;
		/* Try all globs, so that each one that matches counts as used. */
		bool matches = nglobs == 0;
		for (size_t i = 0; i < nglobs; i++)
			if (ps_match(globs[i], path))
				matches = used[i] = true;
		if (matches)
			rc = fn(arg, e->fts_path, path, size);
		if (rc < 0 && !err->err)
			ps_error_set(err, -rc, "%s: %s", path, why_not(-rc));
	}
	fts_close(fts);
	return rc < 0 ? rc : ps_walk_check_used(globs, nglobs, used, err);
}

bool ps_walk_is(const char *file, const char *name, const char *value)
{
	char attribute[64], seen[64];

	snprintf(attribute, sizeof(attribute), "user.penstock.%s", name);
	ssize_t n = getxattr(file, attribute, seen, sizeof(seen));
	return n >= 0 && (size_t)n == strlen(value) && memcmp(seen, value, (size_t)n) == 0;
}

bool ps_match(const char *glob, const char *path)
{
	const char *slash = strrchr(path, '/');

	while (*glob == '/')
		glob++;
	return fnmatch(glob, path, 0) == 0 || (slash && fnmatch(glob, slash + 1, 0) == 0);
}
