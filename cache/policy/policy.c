#include "policy/policy.h"

#include <string.h>


const struct ps_policy_ops *const ps_policies[] = {&ps_policy_plan, &ps_policy_scan, &ps_policy_lru, NULL};

const struct ps_policy_ops *ps_policy_find(const char *name)
{
	for (size_t i = 0; ps_policies[i]; i++)
		if (strcmp(ps_policies[i]->name, name) == 0)
			return ps_policies[i];
	return NULL;
}

void ps_policy_part_id(struct ps_id *id, uint32_t part)
{
	for (int i = 0; i < 4; i++)
		id->bytes[i] ^= (uint8_t)(part >> (8 * i));
}

struct ps_id ps_policy_object_id(const struct ps_policy_item *item)
{
	struct ps_id id = item->id;

	ps_policy_part_id(&id, item->part);
	return id;
}
