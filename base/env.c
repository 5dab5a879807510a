#include "base/env.h"

#include <stdlib.h>
#include <string.h>

const char *ps_env_get(const char *const *env, const char *name)
{
	size_t n = strlen(name);
	const char *value = NULL;

	if (!env)
		value = getenv(name);
	for (; !value && env && *env; env++)
		if (strncmp(*env, name, n) == 0 && (*env)[n] == '=')
			value = *env + n + 1;
	return value && *value ? value : NULL;
}
