#include "policy/policy.h"

#include <string.h>

#include "policy/policy_private.h"

const struct ps_policy_ops *const ps_policies[] = {&ps_policy_scan, &ps_policy_lru, NULL};

const struct ps_policy_ops *ps_policy_find(const char *name)
{
	for (size_t i = 0; ps_policies[i]; i++)
		if (strcmp(ps_policies[i]->name, name) == 0)
			return ps_policies[i];
	return NULL;
}
