#include <errno.h>
#include <fnmatch.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/braces.h"
#include "base/strbuf.h"
#include "listing/listing.h"

/* Patterns of a source ----------------------------------------------------------------------------------- */

/* The texts that one pattern's braces expand to. */
struct names {
	char *text; /* the pattern as it was given; not of a glob */
	atomic_bool matched;
	char **plain, **wild; /* plain: without globs, sorted; wild: with globs */
	size_t nplain, nwild;
};

struct ps_glob {
	char *dir;
	bool deep;
	struct names names;
	bool *matched; /* one for each of names.plain */
};

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int expand(struct names *names, const struct ps_braces *braces, struct ps_error *err)
{
	uint64_t n = ps_braces_count(braces);

	names->plain = calloc(n, sizeof(*names->plain));
	names->wild = calloc(PS_MIN(n, (uint64_t)PS_LISTING_FILTER_MAX_WILD), sizeof(*names->wild));
	if (!names->plain || !names->wild)
		return ps_no_memory(err);
	for (uint64_t i = 0; i < n; i++) {
		struct ps_strbuf b = {0};

		ps_braces_add(braces, i, &b);
		char *text = ps_strbuf_take(&b);
		if (!text)
			return ps_no_memory(err);
		if (!strpbrk(text, "*?[")) {
			names->plain[names->nplain++] = text;
		} else if (names->nwild < PS_LISTING_FILTER_MAX_WILD) {
			names->wild[names->nwild++] = text;
		} else {
			free(text);
			return ps_error_set(err, E2BIG, "the braces expand to more than %d globs",
			        PS_LISTING_FILTER_MAX_WILD);
		}
	}
	qsort(names->plain, names->nplain, sizeof(*names->plain), compare);
	return 0;
}

static void names_fini(struct names *names)
{
	for (size_t i = 0; i < names->nplain; i++)
		free(names->plain[i]);
	for (size_t i = 0; i < names->nwild; i++)
		free(names->wild[i]);
	free(names->text);
	free(names->plain);
	free(names->wild);
}

/* The one of the names without globs that is the path; NULL: none. */
static char **find_plain(const struct names *names, const char *path)
{
	return names->nplain ? bsearch(&path, names->plain, names->nplain, sizeof(path), compare) : NULL;
}

bool ps_glob_is_pattern(const char *text)
{
	return strpbrk(text, "*?[{\\") != NULL;
}

int ps_glob_new(const char *text, struct ps_glob **ret, struct ps_error *err)
{
	struct ps_braces *braces = NULL;
	struct ps_glob *glob = calloc(1, sizeof(*glob));
	size_t plain = strcspn(text, "*?[{\\");

	if (!glob)
		return ps_no_memory(err);
	glob->deep = strchr(text + plain, '/') || strstr(text + plain, "**");
	while (plain && text[plain - 1] != '/')
		plain--;
	glob->dir = strndup(text, plain ? plain - 1 : 0);
	int rc = glob->dir ? ps_braces_parse(text, PS_GLOB_MAX_NAMES, &braces, err) : ps_no_memory(err);
	if (!rc)
		rc = expand(&glob->names, braces, err);
	if (!rc && !(glob->matched = calloc(glob->names.nplain + 1, sizeof(*glob->matched))))
		rc = ps_no_memory(err);
	ps_braces_free(braces);
	if (rc) {
		ps_glob_free(glob);
		return rc;
	}
	*ret = glob;
	return 0;
}

void ps_glob_free(struct ps_glob *glob)
{
	if (!glob)
		return;
	names_fini(&glob->names);
	free(glob->matched);
	free(glob->dir);
	free(glob);
}

const char *ps_glob_dir(const struct ps_glob *glob)
{
	return glob->dir;
}

bool ps_glob_is_deep(const struct ps_glob *glob)
{
	return glob->deep;
}

static bool part_matches(const char *pattern, size_t npattern, const char *part, size_t npart)
{
	ps_autofree char *p = strndup(pattern, npattern), *s = strndup(part, npart);

	return p && s && fnmatch(p, s, FNM_PERIOD | FNM_NOESCAPE) == 0;
}

/* Compares pattern and path part by part. A "**" matches any number of parts: if the rest of the path does
 * not match back_pattern (the pattern after the last "**"), the comparison is repeated one part later in the
 * path (back_path). Earlier "**" need not be remembered. */
static bool wild_matches(const char *pattern, const char *path)
{
	const char *back_pattern = NULL, *back_path = NULL;

	for (;;) {
		size_t np = strcspn(pattern, "/"), ns = strcspn(path, "/");

		if (np == 2 && pattern[0] == '*' && pattern[1] == '*') {
			if (!pattern[2])
				return *path != '\0';
			back_pattern = pattern += 3;
			back_path = path;
			continue;
		}
		bool last_pattern = !pattern[np], last_path = !path[ns];
		if (*pattern && *path && last_pattern == last_path && part_matches(pattern, np, path, ns)) {
			if (last_path)
				return true;
			pattern += np + 1;
			path += ns + 1;
			continue;
		}
		size_t skip = back_path ? strcspn(back_path, "/") : 0;
		if (!back_path || !back_path[skip])
			return false;
		back_path += skip + 1;
		path = back_path;
		pattern = back_pattern;
	}
}

bool ps_glob_match(struct ps_glob *glob, const char *path)
{
	char **plain = find_plain(&glob->names, path);

	if (plain) {
		glob->matched[plain - glob->names.plain] = true;
		return true;
	}
	for (size_t i = 0; i < glob->names.nwild; i++)
		if (wild_matches(glob->names.wild[i], path))
			return true;
	return false;
}

uint64_t ps_glob_unmatched(struct ps_glob *glob, char **ret_first)
{
	uint64_t n = 0;

	*ret_first = NULL;
	for (size_t i = 0; i < glob->names.nplain; i++)
		if (!glob->matched[i] && n++ == 0)
			*ret_first = strdup(glob->names.plain[i]);
	return n;
}

/* --include and --exclude -------------------------------------------------------------------------------- */

#define INDEX_SUFFIX ".psx" /* follows the name of its shard */
#define CATALOGUE "SHARDS.psc"
#define PATH_MAX_NBYTES 4095

struct list {
	struct names *v;
	size_t n;
};

struct ps_listing_filter {
	struct list include, exclude;
	atomic_bool listed;
};

static int add(struct list *list, const char *pattern, struct ps_error *err)
{
	struct ps_braces *braces = NULL;

	if (!*pattern || *pattern == '/')
		return ps_error_set(
		        err, EINVAL, "pattern '%s': paths begin below the source, without a slash", pattern);
	ps_autofree char *bare = strdup(pattern);
	size_t len = strlen(pattern);
	if (!bare)
		return ps_no_memory(err);
	while (len > 1 && bare[len - 1] == '/') /* the pattern names a folder */
		bare[--len] = '\0';
	int rc = ps_braces_parse(bare, PS_LISTING_FILTER_MAX_NAMES, &braces, err);
	if (rc == 0) {
		rc = expand(&list->v[list->n++], braces, err);
		if (rc == -E2BIG)
			ps_error_prefix(err, rc, "pattern '%s'", pattern);
	}
	if (rc == 0 && !(list->v[list->n - 1].text = strdup(pattern)))
		rc = ps_no_memory(err);
	ps_braces_free(braces);
	return rc;
}

static int add_all(struct list *list, const char *const *patterns, struct ps_error *err)
{
	size_t n = 0;
	int rc = 0;

	while (patterns && patterns[n])
		n++;
	if (n == 0)
		return 0;
	list->v = calloc(n, sizeof(*list->v));
	if (!list->v)
		return ps_no_memory(err);
	for (size_t i = 0; rc == 0 && i < n; i++)
		rc = add(list, patterns[i], err);
	return rc;
}

static void list_fini(struct list *list)
{
	for (size_t i = 0; i < list->n; i++)
		names_fini(&list->v[i]);
	free(list->v);
}

int ps_listing_filter_new(const char *const *include, const char *const *exclude,
        struct ps_listing_filter **ret, struct ps_error *err)
{
	struct ps_listing_filter *filter = calloc(1, sizeof(*filter));

	if (!filter)
		return ps_no_memory(err);
	int rc = add_all(&filter->include, include, err);
	if (rc == 0)
		rc = add_all(&filter->exclude, exclude, err);
	if (rc < 0 || (filter->include.n == 0 && filter->exclude.n == 0))
		ps_listing_filter_free(ps_steal_ptr(&filter));
	if (rc == 0)
		*ret = filter;
	return rc;
}

void ps_listing_filter_free(struct ps_listing_filter *filter)
{
	if (!filter)
		return;
	list_fini(&filter->include);
	list_fini(&filter->exclude);
	free(filter);
}

static bool matches_one(const struct names *names, const char *path)
{
	if (find_plain(names, path))
		return true;
	for (size_t i = 0; i < names->nwild; i++)
		if (fnmatch(names->wild[i], path, FNM_NOESCAPE) == 0)
			return true;
	return false;
}

/* True if one of the names matches the path or its last part, or the path or the last part of a folder
 * above it. */
static bool matches_any(const struct names *names, const char *path)
{
	char above[PATH_MAX_NBYTES + 1];
	size_t len = strlen(path);

	for (;;) {
		const char *slash = strrchr(path, '/');

		if (matches_one(names, path) || (slash && matches_one(names, slash + 1)))
			return true;
		if (!slash || len > PATH_MAX_NBYTES)
			return false;
		len = (size_t)(slash - path);
		memmove(above, path, len);
		above[len] = '\0';
		path = above;
	}
}

/* True if one of the patterns matches. A pattern that has not matched yet is tried even after another one
 * has matched, since patterns that never match are reported. */
static bool matches(struct list *list, const char *path)
{
	bool any = false;

	for (size_t i = 0; i < list->n; i++) {
		struct names *names = &list->v[i];

		if ((any && atomic_load(&names->matched)) || !matches_any(names, path))
			continue;
		any = true;
		atomic_store(&names->matched, true);
	}
	return any;
}

bool ps_listing_filter_is_catalogue(const char *path)
{
	const char *slash = strrchr(path, '/');

	return strcmp(slash ? slash + 1 : path, CATALOGUE) == 0;
}

/* True if this name of a pattern could be that of a file in the folder. */
static bool may_be_in(const char *name, const char *dir)
{
	const char *slash = strrchr(name, '/');
	ps_autofree char *above = slash ? strndup(name, (size_t)(slash - name)) : NULL;

	if (!strpbrk(slash ? slash + 1 : name, "*?[."))
		return false; /* more likely a folder's */
	return !slash || (above && fnmatch(above, dir, FNM_NOESCAPE) == 0);
}

static bool may_match_in(const struct list *list, const char *dir)
{
	for (size_t i = 0; i < list->n; i++) {
		const struct names *names = &list->v[i];

		for (size_t k = 0; k < names->nwild; k++)
			if (may_be_in(names->wild[k], dir))
				return true;
		for (size_t k = 0; k < names->nplain; k++)
			if (may_be_in(names->plain[k], dir))
				return true;
	}
	return false;
}

bool ps_listing_filter_shows(struct ps_listing_filter *filter, const char *path)
{
	size_t len = strlen(path), suffix = strlen(INDEX_SUFFIX);
	bool indexes = filter && len > suffix && strcmp(path + len - suffix, INDEX_SUFFIX) == 0;
	bool catalogue = filter && ps_listing_filter_is_catalogue(path);
	ps_autofree char *of = NULL; /* the shard that it indexes, or the folder that it catalogues */

	if (!filter)
		return true;
	if (indexes)
		of = strndup(path, len - suffix);
	if (catalogue)
		of = strndup(path, PS_MAX(len, strlen(CATALOGUE) + 1) - strlen(CATALOGUE) - 1);
	bool shown = filter->include.n == 0 || matches(&filter->include, path) ||
	             (of && indexes && matches(&filter->include, of)) ||
	             (of && catalogue && may_match_in(&filter->include, of));
	return shown && !matches(&filter->exclude, path) && !(of && indexes && matches(&filter->exclude, of));
}

/* A pattern that ends in "*" and matches the folder's path matches everything below it. */
bool ps_listing_filter_enters(struct ps_listing_filter *filter, const char *dir)
{
	size_t len = strlen(dir);
	ps_autofree char *bare = strndup(dir, len > 0 ? len - 1 : 0);

	for (size_t i = 0; filter && i < filter->exclude.n; i++) {
		struct names *names = &filter->exclude.v[i];
		bool all = bare && *bare && matches_any(names, bare);

		for (size_t k = 0; k < names->nwild && !all; k++)
			all = names->wild[k][strlen(names->wild[k]) - 1] == '*' &&
			      fnmatch(names->wild[k], dir, FNM_NOESCAPE) == 0;
		if (all) {
			atomic_store(&names->matched, true);
			return false;
		}
	}
	return true;
}

void ps_listing_filter_listed(struct ps_listing_filter *filter)
{
	if (filter)
		atomic_store(&filter->listed, true);
}

const char *ps_listing_filter_pattern(
        const struct ps_listing_filter *filter, size_t i, bool *ret_exclude, bool *ret_unmatched)
{
	if (!filter || i >= filter->include.n + filter->exclude.n)
		return NULL;
	*ret_exclude = i >= filter->include.n;
	const struct names *names =
	        *ret_exclude ? &filter->exclude.v[i - filter->include.n] : &filter->include.v[i];
	*ret_unmatched = atomic_load(&filter->listed) && !atomic_load(&names->matched);
	return names->text;
}
