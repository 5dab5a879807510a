#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "origin/enumerate.h"
#include "origin/file.h"
#include "listing/names.h"
#include "base/url.h"

struct walk {
	struct ps_names *names;
	const char *root_url;
	struct ps_strbuf path; /* below the root; "" or ends in "/" between entries */
	struct ps_strbuf url;
};

static void cleanup_dir(DIR **dir)
{
	if (*dir)
		closedir(*dir);
}

static int out_of_memory(struct ps_names *names)
{
	return ps_error_set(names->err, ENOMEM, "listing: out of memory");
}

static int walk_dir(struct walk *walk, int fd, unsigned depth);

static int take_file(struct walk *walk, const struct stat *st)
{
	struct ps_listed listed = {.path = walk->path.s};

	ps_strbuf_reset(&walk->url);
	ps_strbuf_add(&walk->url, walk->root_url);
	ps_url_encode(walk->path.s, walk->path.len, true, &walk->url);
	if (walk->url.failed)
		return out_of_memory(walk->names);
	listed.url = walk->url.s;
	ps_file_remote(st, &listed.remote);
	return ps_names_add(walk->names, &listed);
}

/* What cannot be looked at stays as it is known, as behind a web server's 403; a link to nowhere, or what has gone since the
 * folder was read, is not there. */
static int not_seen(struct walk *walk, int errnum)
{
	if (errnum != ENOENT && errnum != ENOTDIR && errnum != ELOOP)
		return ps_names_unread(walk->names, walk->path.s, strerror(errnum));
	ps_names_warn(walk->names, walk->path.s, strerror(errnum));
	return 0;
}

/* A directory below. */
static int take_dir(struct walk *walk, int parent, const char *name, unsigned depth)
{
	ps_strbuf_addc(&walk->path, '/');
	if (walk->path.failed)
		return out_of_memory(walk->names);
	if (!ps_names_enters(walk->names, walk->path.s))
		return 0;
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return not_seen(walk, errno);
	if (depth > PS_LIST_MAX_DEPTH) {
		close(fd);
		ps_names_warn(walk->names, walk->path.s, "skipped: directories nested too deep");
		return 0;
	}
	return walk_dir(walk, fd, depth);
}

static int take_entry(struct walk *walk, int fd, const char *name, unsigned depth)
{
	struct stat st;

	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return 0;
	ps_strbuf_add(&walk->path, name);
	if (walk->path.failed)
		return out_of_memory(walk->names);
	/* A link to a file is one; a link to a directory could be a loop, and is left out. */
	if (fstatat(fd, name, &st, 0) < 0)
		return not_seen(walk, errno);
	if (S_ISREG(st.st_mode))
		return take_file(walk, &st);
	if (!S_ISDIR(st.st_mode) || fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode))
		return 0;
	return take_dir(walk, fd, name, depth + 1);
}

/* Takes fd. */
static int walk_dir(struct walk *walk, int fd, unsigned depth)
{
	DIR *dir __attribute__((cleanup(cleanup_dir))) = fdopendir(fd);
	size_t len = walk->path.len;
	struct dirent *de;

	if (!dir) {
		close(fd);
		return out_of_memory(walk->names);
	}
	while ((errno = 0, de = readdir(dir))) {
		int rc = take_entry(walk, fd, de->d_name, depth);

		if (rc)
			return rc;
		walk->path.len = len;
		if (walk->path.s)
			walk->path.s[len] = '\0';
	}
	if (errno)
		return ps_error_set(walk->names->err, errno, "listing: %s: %s", ps_strbuf_peek(&walk->path),
		        strerror(errno));
	return 0;
}

static int list_dir(const char *url, struct ps_names *names)
{
	struct walk walk = {.names = names, .root_url = url};
	ps_autofree char *path = NULL;
	int rc = ps_file_path(url, &path);

	if (rc)
		return ps_error_set(names->err, -rc, "%s: %s", url, strerror(-rc));
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return ps_error_set(names->err, errno, "%s: %s", path, strerror(errno));
	rc = walk_dir(&walk, fd, 0);
	ps_strbuf_fini(&walk.path);
	ps_strbuf_fini(&walk.url);
	return rc;
}

/* Reads a manifest given by URL, as the local one of @list.txt. */
static int list_manifest(const struct ps_source *source, struct ps_names *names)
{
	ps_autopacked struct ps_packed text = {0};

	ps_autofree char *path = NULL;
	int rc;

	if (ps_source_is_local_list(source)) {
		rc = ps_source_read_list(source, &text, names->err);
		return rc ? rc : ps_expand(source, &text, NULL, NULL, names);
	}
	rc = ps_file_path(source->canonical, &path);
	if (rc)
		return ps_error_set(names->err, -rc, "%s: %s", source->canonical, strerror(-rc));
	rc = ps_source_read_file(path, &text, names->err);
	return rc ? rc : ps_expand(source, &text, NULL, NULL, names);
}

int ps_file_list(struct ps_origin *o, const struct ps_source *source, ps_list_fn fn, void *arg,
        const _Atomic bool *stop, struct ps_error *err)
{
	struct ps_names names;
	struct ps_error mine = {0};
	int rc;

	ps_names_init(&names, &o->lister, fn, arg, stop, err ? err : &mine);
	if (source->kind == PS_SOURCE_DIR)
		rc = list_dir(source->canonical, &names);
	else if (source->kind == PS_SOURCE_MANIFEST)
		rc = list_manifest(source, &names);
	else
		rc = ps_expand(source, NULL, NULL, NULL, &names);
	ps_names_fini(&names);
	return rc;
}
