#include "config.h"

#include "tools/out_name.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/tools.h"

#define LEVEL_DEFAULT 3

/* Where the number stands: the '%', its width, and what follows. NULL: there is none, or it is none of ours.
 */
static const char *number_find(const char *pattern, int *ret_width, const char **ret_rest)
{
	const char *percent = strchr(pattern, '%'), *p = percent;

	if (!p)
		return NULL;
	p++;
	*ret_width = 0;
	if (*p == '0')
		while (isdigit((unsigned char)*p) && *ret_width < 100)
			*ret_width = *ret_width * 10 + (*p++ - '0');
	if (*p != 'd' || *ret_width > 18)
		return NULL;
	*ret_rest = p + 1;
	return percent;
}

bool ps_out_pattern_check(const char *pattern)
{
	const char *rest = "";
	int width;

	if (number_find(pattern, &width, &rest) && !strchr(rest, '%'))
		return true;
	ps_complain("%s: the shards' name needs one number, as in train-%%06d.tar", pattern);
	return false;
}

char *ps_out_name(const char *pattern, uint64_t n)
{
	const char *rest = "", *percent;
	int width = 0;
	char *name;

	percent = number_find(pattern, &width, &rest);
	if (!percent || asprintf(&name, "%.*s%0*ju%s", (int)(percent - pattern), pattern, width, (uintmax_t)n,
	                        rest) < 0)
		return NULL;
	return name;
}

bool ps_out_level(const char *pattern, int level, int *ret_level)
{
	size_t len = strlen(pattern);
	bool zst = len > 4 && strcmp(pattern + len - 4, ".zst") == 0;

	if (level > 0 && !zst) {
		ps_complain("--zstd: then the shards' name must end in .zst, not %s", pattern);
		return false;
	}
	*ret_level = zst && level == 0 ? LEVEL_DEFAULT : level;
	return true;
}

int ps_out_prepare(const char *name, bool force, struct ps_load_error *err)
{
	const char *slash = strrchr(name, '/');

	if (slash && slash > name) {
		ps_autofree char *folder = strndup(name, (size_t)(slash - name));
		int r = folder ? ps_folder_make(folder, err)
		               : ps_load_error_set(err, ENOMEM, "out of memory");

		if (r < 0)
			return r;
	}
	if (force || access(name, F_OK) != 0)
		return 0;
	return ps_load_error_set(err, EEXIST, "%s is there already; --force writes over it", name);
}
