#include "listing/filter.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "base/braces.h"

/* One pattern with its braces expanded. */
struct names {
	char **plain, **wild; /* without globs, sorted; with */
	size_t nplain, nwild;
};

struct list {
	struct names *v;
	size_t n;
};

struct ps_filter {
	struct list include, exclude;
};

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int take(struct names *names, const struct ps_braces *braces, const char *pattern, struct ps_error *err)
{
	uint64_t n = ps_braces_count(braces);

	names->plain = calloc(n, sizeof *names->plain);
	names->wild = calloc(PS_MIN(n, (uint64_t)PS_FILTER_MAX_WILD), sizeof *names->wild);
	if (!names->plain || !names->wild)
		return ps_error_set(err, ENOMEM, "out of memory");
	for (uint64_t i = 0; i < n; i++) {
		struct ps_strbuf b = {0};

		ps_braces_add(braces, i, &b);
		char *text = ps_strbuf_take(&b);
		if (!text)
			return ps_error_set(err, ENOMEM, "out of memory");
		if (!strpbrk(text, "*?[")) {
			names->plain[names->nplain++] = text;
		} else if (names->nwild < PS_FILTER_MAX_WILD) {
			names->wild[names->nwild++] = text;
		} else {
			free(text);
			return ps_error_set(err, E2BIG, "pattern '%s': braces of more than %d globs", pattern,
			        PS_FILTER_MAX_WILD);
		}
	}
	qsort(names->plain, names->nplain, sizeof *names->plain, compare);
	return 0;
}

static int add(struct list *list, const char *pattern, struct ps_error *err)
{
	struct ps_braces *braces = NULL;

	if (!*pattern || *pattern == '/')
		return ps_error_set(err, EINVAL, "pattern '%s': paths begin below the source, without a slash", pattern);
	int rc = ps_braces_parse(pattern, PS_FILTER_MAX_NAMES, &braces, err);
	if (rc == 0)
		rc = take(&list->v[list->n++], braces, pattern, err);
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
	list->v = calloc(n, sizeof *list->v);
	if (!list->v)
		return ps_error_set(err, ENOMEM, "out of memory");
	for (size_t i = 0; rc == 0 && i < n; i++)
		rc = add(list, patterns[i], err);
	return rc;
}

static void list_fini(struct list *list)
{
	for (size_t i = 0; i < list->n; i++) {
		for (size_t k = 0; k < list->v[i].nplain; k++)
			free(list->v[i].plain[k]);
		for (size_t k = 0; k < list->v[i].nwild; k++)
			free(list->v[i].wild[k]);
		free(list->v[i].plain);
		free(list->v[i].wild);
	}
	free(list->v);
}

int ps_filter_new(
        const char *const *include, const char *const *exclude, struct ps_filter **ret, struct ps_error *err)
{
	struct ps_filter *filter = calloc(1, sizeof *filter);

	if (!filter)
		return ps_error_set(err, ENOMEM, "out of memory");
	int rc = add_all(&filter->include, include, err);
	if (rc == 0)
		rc = add_all(&filter->exclude, exclude, err);
	if (rc < 0 || (filter->include.n == 0 && filter->exclude.n == 0))
		ps_filter_free(ps_steal_ptr(&filter));
	if (rc == 0)
		*ret = filter;
	return rc;
}

void ps_filter_free(struct ps_filter *filter)
{
	if (!filter)
		return;
	list_fini(&filter->include);
	list_fini(&filter->exclude);
	free(filter);
}

static bool matches_one(const struct names *names, const char *path)
{
	if (names->nplain && bsearch(&path, names->plain, names->nplain, sizeof path, compare))
		return true;
	for (size_t i = 0; i < names->nwild; i++)
		if (fnmatch(names->wild[i], path, FNM_NOESCAPE) == 0)
			return true;
	return false;
}

static bool matches(const struct list *list, const char *path)
{
	const char *slash = strrchr(path, '/');

	for (size_t i = 0; i < list->n; i++)
		if (matches_one(&list->v[i], path) || (slash && matches_one(&list->v[i], slash + 1)))
			return true;
	return false;
}

bool ps_filter_shows(const struct ps_filter *filter, const char *path)
{
	return !filter ||
	       ((filter->include.n == 0 || matches(&filter->include, path)) && !matches(&filter->exclude, path));
}

/* What ends in "*" and matches the folder's own path matches all below it. */
bool ps_filter_enters(const struct ps_filter *filter, const char *dir)
{
	for (size_t i = 0; filter && i < filter->exclude.n; i++) {
		const struct names *names = &filter->exclude.v[i];

		for (size_t k = 0; k < names->nwild; k++)
			if (names->wild[k][strlen(names->wild[k]) - 1] == '*' &&
			        fnmatch(names->wild[k], dir, FNM_NOESCAPE) == 0)
				return false;
	}
	return true;
}
