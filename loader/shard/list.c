#include "config.h"

#include "shard/shard.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/braces.h"
#include "shard/file/file.h"

/* Names of a shard list that stand for files to be found: wildcards and folders.
 *
 *   data/t*.tar   what glob(7) matches; hidden files only where the pattern has their dot. If a file has
 *                 exactly this name, wildcards included, the pattern stands for that file
 *   data          a folder: the files in it whose names end as those of tar shards do (PS_LIST_SUFFIXES)
 *
 * The files found are sorted by bytes, the same in every locale.
 *
 * Ownership: as the list's.   Threads: one at a time.   Blocks: on the file system.
 * Errors: -ENOENT where nothing is found, the errno of reading a folder, or -ENOMEM, -E2BIG. */
#define PS_LIST_SUFFIXES ".tar", ".tar.zst", ".tar.gz", ".tgz", ".tar.lz4"

#define ps_autolist __attribute__((cleanup(ps_shard_list_fini)))

void ps_shard_list_fini(struct ps_shard_list *list)
{
	for (size_t i = 0; i < list->n; i++)
		free(list->names[i]);
	free(list->names);
	*list = (struct ps_shard_list){0};
}

void ps_shard_list_cut(struct ps_shard_list *list, size_t n)
{
	while (list->n > n) {
		char *name = list->names[--list->n];
		list->nbytes -= strlen(name) + 1;
		free(name);
	}
}

int ps_shard_list_take(struct ps_shard_list *list, char *name, struct ps_error *err)
{
	ps_autofree char *owned = name;
	size_t len;

	if (!owned)
		return ps_error_set(err, ENOMEM, "shard list: out of memory");
	len = strlen(owned);
	if (list->n >= PS_LIST_MAX_NAMES || list->nbytes + len + 1 > PS_LIST_MAX_BYTES)
		return ps_error_set(err, E2BIG, "shard list: more than %d names or %lu bytes of names",
		        PS_LIST_MAX_NAMES, PS_LIST_MAX_BYTES);
	if (list->n == list->cap) {
		size_t cap = list->cap ? list->cap * 2 : 16;
		char **names = reallocarray(list->names, cap, sizeof(*names));

		if (!names)
			return ps_error_set(err, ENOMEM, "shard list: out of memory");
		list->names = names;
		list->cap = cap;
	}
	list->names[list->n++] = ps_steal_ptr(&owned);
	list->nbytes += len + 1;
	return 0;
}

/* Adds the expansion of one pattern of `len` bytes, without '@' and "::". */
static int braces_add(struct ps_shard_list *list, const char *pattern, size_t len, struct ps_error *err)
{
	ps_autofree char *text = NULL;
	struct ps_braces *braces = NULL;
	size_t before = list->n;
	int rc;

	if (len > PS_LIST_MAX_PATTERN)
		return ps_error_set(err, E2BIG, "%.60s...: a shard pattern of more than %lu bytes", pattern,
		        PS_LIST_MAX_PATTERN);
	if (memchr(pattern, 0, len))
		return ps_error_set(err, EINVAL, "%.200s: a shard name with a zero byte", pattern);
	text = strndup(pattern, len);
	if (!text)
		return ps_error_set(err, ENOMEM, "shard list: out of memory");
	rc = ps_braces_parse(text, PS_LIST_MAX_NAMES, &braces, err);
	if (rc < 0)
		return ps_error_prefix(err, rc, "%.200s", text);
	for (uint64_t i = 0; i < ps_braces_count(braces) && rc == 0; i++) {
		struct ps_strbuf name = {0};

		ps_braces_add(braces, i, &name);
		rc = ps_shard_list_take(list, ps_strbuf_take(&name), err);
		if (rc == 0 && !*list->names[list->n - 1])
			rc = ps_error_set(err, EINVAL, "%.200s: an empty shard name", text);
	}
	ps_braces_free(braces);
	if (rc < 0)
		ps_shard_list_cut(list, before);
	return rc;
}

/* Files -------------------------------------------------------------------------------------------------- */

int ps_shard_list_add_text(
        struct ps_shard_list *list, const char *text, size_t len, const char *name, struct ps_error *err)
{
	size_t before = list->n;
	const char *end = text + len;
	size_t line_no = 0;

	for (const char *line = text; line < end;) {
		const char *nl = memchr(line, '\n', (size_t)(end - line));
		const char *next = nl ? nl + 1 : end;
		const char *stop = nl ? nl : end;
		int rc = 0;

		line_no++;
		while (line < stop && (*line == ' ' || *line == '\t'))
			line++;
		while (stop > line && (stop[-1] == ' ' || stop[-1] == '\t' || stop[-1] == '\r'))
			stop--;
		if (line < stop && *line != '#')
			rc = braces_add(list, line, (size_t)(stop - line), err);
		if (rc < 0) {
			ps_shard_list_cut(list, before);
			return ps_error_prefix(err, rc, "%s:%zu", name, line_no);
		}
		line = next;
	}
	return 0;
}

static int list_file(struct ps_shard_list *list, const char *path, struct ps_error *err)
{
	ps_autofd int fd = open(path, O_RDONLY | O_CLOEXEC);
	__attribute__((cleanup(ps_buf_fini))) struct ps_buf text = {0};
	size_t before = list->n;
	ssize_t got = 1;
	int rc;

	if (fd < 0)
		return ps_error_set(
		        err, errno, "%s: cannot open the list of shards: %s", path, strerror(errno));
	while (got != 0) {
		if (text.n >= PS_LIST_MAX_FILE)
			return ps_error_set(err, E2BIG, "%s: the list has more than %zu bytes", path, text.n);
		if (ps_buf_reserve(&text, 65536) < 0)
			return ps_error_set(err, ENOMEM, "%s: out of memory", path);
		got = read(fd, text.p + text.n, text.cap - text.n);
		if (got < 0 && errno != EINTR)
			return ps_error_set(
			        err, errno, "%s: cannot read the list of shards: %s", path, strerror(errno));
		text.n += got > 0 ? (size_t)got : 0;
	}
	rc = ps_shard_list_add_text(list, (const char *)text.p, text.n, path, err);
	if (rc == 0 && list->n == before)
		return ps_error_set(err, EINVAL, "%s: the list names no shard", path);
	return rc;
}

/* Files to be found ------------------------------------------------------------------------------------- */

#define LOOKED_AT 64 /* entries of a subfolder that are looked at */
#define WILD "*?["

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void sort(struct ps_shard_list *list, size_t from)
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

/* File systems may leave the type to stat(). */
static bool entry_is_folder(DIR *d, const struct dirent *e)
{
	struct stat st;

	return e->d_type == DT_DIR ||
	       (e->d_type == DT_UNKNOWN && fstatat(dirfd(d), e->d_name, &st, 0) == 0 && S_ISDIR(st.st_mode));
}

/* True if the subfolder has files and none is a shard, as in a class folder. */
static bool holds_files(const char *folder, const char *slash, const char *below)
{
	ps_autofree char *path = ps_asprintf(NULL, "%s%s%s", folder, slash, below);
	const struct dirent *e;
	bool files = false;
	DIR *d = path ? opendir(path) : NULL;

	for (int i = 0; d && i < LOOKED_AT && (e = readdir(d)); i++) {
		if (e->d_name[0] == '.' || entry_is_folder(d, e))
			continue;
		files = !is_shard(e->d_name);
		if (!files)
			break;
	}
	if (d)
		closedir(d);
	return files;
}

/* What a folder without shards contains instead: below: a folder in it; NULL: none. foreign: the kind of one of its
 * files (shard/file/file.h); NULL: none is known. */
static int folder_refuse(
        const char *folder, const char *slash, const char *below, const char *foreign, struct ps_error *err)
{
	if (foreign)
		return ps_error_set(err, ENOENT, "%s: no shards in this folder; it has %s", folder, foreign);
	if (below && holds_files(folder, slash, below))
		return ps_error_set(err, ENOENT,
		        "%s: a folder of class folders ('%s' is one), not of shards; make shards of it once: "
		        "penstock-loader pack --classes '%s' 'NAME-%%06d.tar'",
		        folder, below, folder);
	if (below)
		return ps_error_set(err, ENOENT,
		        "%s: no shards in this folder itself; give a folder in it, such as '%s%s%s', or "
		        "'%s%s*/*.tar' "
		        "for the shards of all its folders",
		        folder, folder, slash, below, folder, slash);
	return ps_error_set(err, ENOENT,
	        "%s: no shards in this folder (files that end in .tar, .tar.zst, .tar.gz, .tgz or "
	        ".tar.lz4); for others write a pattern, such as '%s%s*.txt'",
	        folder, folder, slash);
}

static int folder_find(struct ps_shard_list *out, const char *folder, struct ps_error *err)
{
	const char *slash = folder[strlen(folder) - 1] == '/' ? "" : "/";
	const struct dirent *e;
	ps_autofree char *below = NULL;
	const char *foreign = NULL;
	size_t before = out->n;
	DIR *d = opendir(folder);
	int rc = 0;

	if (!d)
		return ps_error_set(err, errno, "%s: cannot read the folder: %s", folder, strerror(errno));
	while (rc == 0 && (errno = 0, e = readdir(d))) {
		bool folder_below = entry_is_folder(d, e);

		if (folder_below && e->d_name[0] != '.' && !below)
			below = strdup(e->d_name); /* without memory the error text lacks this advice */
		if (!folder_below && e->d_name[0] != '.' && !foreign)
			foreign = ps_foreign_of_name(e->d_name);
		if (is_shard(e->d_name) && !folder_below)
			rc = ps_shard_list_take(
			        out, ps_asprintf(NULL, "%s%s%s", folder, slash, e->d_name), err);
	}
	if (rc == 0 && errno)
		rc = ps_error_set(err, errno, "%s: cannot read the folder: %s", folder, strerror(errno));
	closedir(d);
	if (rc == 0 && out->n == before)
		rc = folder_refuse(folder, slash, below, foreign, err);
	sort(out, before);
	return rc;
}

static int pattern_find(struct ps_shard_list *out, const char *pattern, struct ps_error *err)
{
	size_t before = out->n;
	glob_t found = {0};
	int rc = glob(pattern, GLOB_NOSORT | GLOB_NOESCAPE | GLOB_ERR, NULL, &found);

	if (rc == GLOB_NOSPACE)
		rc = ps_error_set(err, ENOMEM, "%s: out of memory", pattern);
	else if (rc == GLOB_ABORTED)
		rc = ps_error_set(err, errno ? errno : EIO, "%s: cannot read a folder of this pattern: %s",
		        pattern, strerror(errno ? errno : EIO));
	else if (rc == GLOB_NOMATCH)
		rc = ps_error_set(err, ENOENT, "%s: no file matches this pattern", pattern);
	for (size_t i = 0; rc == 0 && i < found.gl_pathc; i++)
		rc = ps_shard_list_take(out, strdup(found.gl_pathv[i]), err);
	globfree(&found);
	sort(out, before);
	return rc;
}

/* Replaces each wildcard from `from` on by the files found; a folder as well, if it is the only name. After
 * an error the caller must cut the list at `from` or before. */
static int shard_list_find(struct ps_shard_list *list, size_t from, struct ps_error *err)
{
	ps_autolist struct ps_shard_list found = {0};
	bool alone = list->n - from == 1, any = false;
	struct stat st;
	int rc = 0;

	if (alone) { /* a name that ends like a shard is taken for a file, without a stat() */
		const char *slash = strrchr(list->names[from], '/');

		any = !is_shard(slash ? slash + 1 : list->names[from]);
	}
	for (size_t i = from; i < list->n && !any; i++)
		any = strpbrk(list->names[i], WILD) != NULL;
	if (!any)
		return 0;
	for (size_t i = from; i < list->n && rc == 0; i++) {
		const char *name = list->names[i];

		/* a URL with a query is not a pattern: opening it gives the better error text */
		if (strpbrk(name, WILD) && !strstr(name, "://") && access(name, F_OK) < 0)
			rc = pattern_find(&found, name, err);
		else if (alone && stat(name, &st) == 0 && S_ISDIR(st.st_mode))
			rc = folder_find(&found, name, err);
		else
			rc = ps_shard_list_take(&found, strdup(name), err);
	}
	ps_shard_list_cut(list, from);
	for (size_t i = 0; i < found.n && rc == 0; i++)
		rc = ps_shard_list_take(list, ps_steal_ptr(&found.names[i]), err);
	return rc;
}

int ps_shard_list_add(struct ps_shard_list *list, const char *pattern, struct ps_error *err)
{
	size_t before = list->n;

	if (*pattern == '@')
		return list_file(list, pattern + 1, err);
	for (const char *p = pattern;;) {
		const char *next = strstr(p, "::");
		size_t from = list->n;
		int rc = braces_add(list, p, next ? (size_t)(next - p) : strlen(p), err);

		if (rc == 0)
			rc = shard_list_find(list, from, err);
		if (rc < 0) {
			ps_shard_list_cut(list, before);
			return rc;
		}
		if (!next)
			return 0;
		p = next + 2;
	}
}
