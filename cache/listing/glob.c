#include "listing/glob.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "base/braces.h"
#include "listing/names.h"

#define MAX_WILD 1000 /* patterns with globs in them, after the braces: each is tried for each name */

struct name {
	char *text;
	bool matched;
};

struct ps_glob {
	char *dir;
	bool deep;
	struct name *names; /* plain ones, sorted */
	size_t nnames;
	char **wild;
	size_t nwild;
};

bool ps_glob_is_pattern(const char *text)
{
	return strpbrk(text, "*?[{\\") != NULL;
}

static int name_cmp(const void *a, const void *b)
{
	return strcmp(((const struct name *)a)->text, ((const struct name *)b)->text);
}

static int take(struct ps_glob *glob, char *text, struct ps_error *err)
{
	if (!strpbrk(text, "*?[")) {
		glob->names[glob->nnames++].text = text;
		return 0;
	}
	if (glob->nwild == MAX_WILD) {
		free(text);
		return ps_error_set(err, E2BIG, "braces of more than %d globs", MAX_WILD);
	}
	glob->wild[glob->nwild++] = text;
	return 0;
}

static int expand(struct ps_glob *glob, const struct ps_braces *braces, struct ps_error *err)
{
	uint64_t n = ps_braces_count(braces);

	glob->names = calloc(n, sizeof *glob->names);
	glob->wild = calloc(PS_MIN(n, (uint64_t)MAX_WILD), sizeof *glob->wild);
	if (!glob->names || !glob->wild)
		return ps_error_set(err, ENOMEM, "out of memory");
	for (uint64_t i = 0; i < n; i++) {
		struct ps_strbuf b = {0};

		ps_braces_add(braces, i, &b);
		char *text = ps_strbuf_take(&b);
		int rc = text ? take(glob, text, err) : ps_error_set(err, ENOMEM, "out of memory");
		if (rc)
			return rc;
	}
	qsort(glob->names, glob->nnames, sizeof *glob->names, name_cmp);
	return 0;
}

int ps_glob_new(const char *text, struct ps_glob **ret, struct ps_error *err)
{
	struct ps_braces *braces = NULL;
	struct ps_glob *glob = calloc(1, sizeof *glob);
	size_t plain = strcspn(text, "*?[{\\");

	if (!glob)
		return ps_error_set(err, ENOMEM, "out of memory");
	glob->deep = strchr(text + plain, '/') || strstr(text + plain, "**");
	while (plain && text[plain - 1] != '/')
		plain--;
	glob->dir = strndup(text, plain ? plain - 1 : 0);
	int rc = glob->dir ? ps_braces_parse(text, PS_LIST_MAX_ENTRIES, &braces, err)
	                   : ps_error_set(err, ENOMEM, "out of memory");
	if (!rc)
		rc = expand(glob, braces, err);
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
	for (size_t i = 0; i < glob->nnames; i++)
		free(glob->names[i].text);
	for (size_t i = 0; i < glob->nwild; i++)
		free(glob->wild[i]);
	free(glob->names);
	free(glob->wild);
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

/* The parts of both from the left. After "**" any rest of the path may do: `back` is where to go on if this one does
 * not, and only the last "**" need be remembered. */
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
	struct name key = {.text = (char *)path};
	struct name *name =
	        glob->nnames ? bsearch(&key, glob->names, glob->nnames, sizeof key, name_cmp) : NULL;

	if (name) {
		name->matched = true;
		return true;
	}
	for (size_t i = 0; i < glob->nwild; i++)
		if (wild_matches(glob->wild[i], path))
			return true;
	return false;
}

uint64_t ps_glob_unmatched(struct ps_glob *glob, char **ret_first)
{
	uint64_t n = 0;

	*ret_first = NULL;
	for (size_t i = 0; i < glob->nnames; i++)
		if (!glob->names[i].matched && n++ == 0)
			*ret_first = strdup(glob->names[i].text);
	return n;
}
