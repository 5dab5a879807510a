#include "config.h"

#include "shard/list_find.h"

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shard/foreign.h"

#define LOOKED_AT 64 /* entries of a folder in a folder */
#define WILD "*?["
#define ps_autolist __attribute__((cleanup(ps_list_fini)))

static bool is_folder(const char *name)
{
	struct stat st;

	return stat(name, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Not a URL with a query: whoever opens it says more. */
static bool is_wild(const char *name)
{
	return strpbrk(name, WILD) && !strstr(name, "://") && access(name, F_OK) < 0;
}

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void sort(struct ps_list *list, size_t from)
{
	if (list->n > from)
		qsort(list->names + from, list->n - from, sizeof(*list->names), compare);
}

static bool is_shard(const char *name)
{
	static const char *const suffixes[] = {PS_LIST_SUFFIXES};
	size_t len = strlen(name);

	for (size_t i = 0; i < PS_ARRAY_LEN(suffixes); i++) {
		size_t n = strlen(suffixes[i]);

		if (name[0] != '.' && len > n && strcmp(name + len - n, suffixes[i]) == 0)
			return true;
	}
	return false;
}

/* What there is in a folder without shards. */
struct contents {
	char *below;         /* a folder in it; NULL: none */
	const char *foreign; /* what one of its files is (foreign.h); NULL: none is known */
};

static void contents_free(struct contents *c)
{
	free(c->below);
}

/* Files, and none a shard, as in a class folder. */
static bool holds_files(const char *folder, const char *slash, const char *below)
{
	ps_autofree char *path = NULL;
	const struct dirent *e;
	bool files = false;
	DIR *d;

	if (asprintf(&path, "%s%s%s", folder, slash, below) < 0)
		return (path = NULL);
	d = opendir(path);
	for (int i = 0; d && i < LOOKED_AT && (e = readdir(d)); i++) {
		if (e->d_name[0] == '.' || e->d_type == DT_DIR)
			continue;
		files = !is_shard(e->d_name);
		if (!files)
			break;
	}
	if (d)
		closedir(d);
	return files;
}

static int folder_refuse(
        const char *folder, const char *slash, const struct contents *in, struct ps_load_error *err)
{
	if (in->foreign)
		return ps_load_error_set(err, ENOENT, "%s: no shards in this folder; it has %s", folder, in->foreign);
	if (in->below && holds_files(folder, slash, in->below))
		return ps_load_error_set(err, ENOENT,
		        "%s: a folder of class folders ('%s' is one), not of shards; make shards of it once: "
		        "penstock-loader pack --classes '%s' 'NAME-%%06d.tar'",
		        folder, in->below, folder);
	if (in->below)
		return ps_load_error_set(err, ENOENT,
		        "%s: no shards in this folder itself; give a folder in it, such as '%s%s%s', or "
		        "'%s%s*/*.tar' "
		        "for those of all of them",
		        folder, folder, slash, in->below, folder, slash);
	return ps_load_error_set(err, ENOENT,
	        "%s: no shards in this folder (files that end in .tar, .tar.zst, .tar.gz, .tgz or "
	        ".tar.lz4); for others write a pattern, such as '%s%s*.txt'",
	        folder, folder, slash);
}

static int folder_find(struct ps_list *out, const char *folder, struct ps_load_error *err)
{
	const char *slash = folder[strlen(folder) - 1] == '/' ? "" : "/";
	const struct dirent *e;
	__attribute__((cleanup(contents_free))) struct contents in = {0};
	size_t before = out->n;
	DIR *d = opendir(folder);
	int r = 0;

	if (!d)
		return ps_load_error_set(
		        err, errno, "%s: cannot read the folder: %s", folder, strerror(errno));
	while (r == 0 && (errno = 0, e = readdir(d))) {
		char *name;
		int len;

		if (e->d_type == DT_DIR && e->d_name[0] != '.' && !in.below)
			in.below = strdup(e->d_name); /* without memory the advice is another one */
		if (e->d_type != DT_DIR && e->d_name[0] != '.' && !in.foreign)
			in.foreign = ps_foreign_of_name(e->d_name);
		if (!is_shard(e->d_name) || e->d_type == DT_DIR)
			continue;
		len = asprintf(&name, "%s%s%s", folder, slash, e->d_name);
		r = ps_list_take(out, len < 0 ? NULL : name, len < 0 ? 0 : (size_t)len, err);
	}
	if (r == 0 && errno)
		r = ps_load_error_set(err, errno, "%s: cannot read the folder: %s", folder, strerror(errno));
	closedir(d);
	if (r == 0 && out->n == before)
		r = folder_refuse(folder, slash, &in, err);
	sort(out, before);
	return r;
}

static int pattern_find(struct ps_list *out, const char *pattern, struct ps_load_error *err)
{
	size_t before = out->n;
	glob_t found = {0};
	int r = glob(pattern, GLOB_NOSORT | GLOB_NOESCAPE | GLOB_ERR, NULL, &found);

	if (r == GLOB_NOSPACE)
		r = ps_load_error_set(err, ENOMEM, "%s: out of memory", pattern);
	else if (r == GLOB_ABORTED)
		r = ps_load_error_set(err, errno ? errno : EIO,
		        "%s: cannot read a folder of this pattern: %s", pattern,
		        strerror(errno ? errno : EIO));
	else if (r == GLOB_NOMATCH)
		r = ps_load_error_set(err, ENOENT, "%s: no file matches this pattern", pattern);
	for (size_t i = 0; r == 0 && i < found.gl_pathc; i++)
		r = ps_list_push(out, found.gl_pathv[i], strlen(found.gl_pathv[i]), err);
	globfree(&found);
	sort(out, before);
	return r;
}

/* A shard's name needs no look at the disk. */
static bool may_be_folder(const char *name)
{
	const char *slash = strrchr(name, '/');

	return !is_shard(slash ? slash + 1 : name);
}

int ps_list_find(struct ps_list *list, size_t from, struct ps_load_error *err)
{
	ps_autolist struct ps_list found = {0};
	bool alone = list->n - from == 1, any = alone && may_be_folder(list->names[from]);
	int r = 0;

	for (size_t i = from; i < list->n && !any; i++)
		any = strpbrk(list->names[i], WILD) != NULL;
	if (!any)
		return 0;
	for (size_t i = from; i < list->n && r == 0; i++) {
		const char *name = list->names[i];

		if (is_wild(name))
			r = pattern_find(&found, name, err);
		else if (alone && is_folder(name))
			r = folder_find(&found, name, err);
		else
			r = ps_list_push(&found, name, strlen(name), err);
	}
	ps_list_cut(list, from);
	for (size_t i = 0; i < found.n && r == 0; i++) {
		char *name = ps_steal_ptr(&found.names[i]);

		r = ps_list_take(list, name, strlen(name), err);
	}
	return r;
}
