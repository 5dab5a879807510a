#include "cli/match.h"

#include <fnmatch.h>
#include <string.h>

bool ps_match(const char *glob, const char *path)
{
	const char *slash = strrchr(path, '/');

	while (*glob == '/')
		glob++;
	return fnmatch(glob, path, 0) == 0 || (slash && fnmatch(glob, slash + 1, 0) == 0);
}
